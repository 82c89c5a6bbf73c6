package registry

import (
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
)

// MemberStatus is what gossip says of a member; the contract's numbers.
type MemberStatus uint8

// The statuses.
const (
	MemberAlive   MemberStatus = 1
	MemberLeaving MemberStatus = 2
	MemberLeft    MemberStatus = 3
	MemberFailed  MemberStatus = 4
)

// Member is one host in the gossip pool.
type Member struct {
	Name   string
	Addr   string // IP
	Tags   map[string]string
	Status MemberStatus
}

// Members is the gossip pool as the catalog needs it.
type Members interface {
	Members() []Member
	// Changes is closed and replaced at each change; read, then re-call.
	Changes() <-chan struct{}
}

// ReconcileOptions say what Reconcile cannot read from the members.
type ReconcileOptions struct {
	// Self is this server's name: it never takes its own node out.
	Self       string
	Datacenter string
	// Version is used for members whose build tag tells none.
	Version string
	// Missing judges a node with a serfHealth check that is no member: see memberList. nil keeps all.
	Missing func(node *catalog.Node) Absence
	// Overdue tells whether the node of a failed member has been down for longer than its
	// own ReconnectMeta allows. nil: none is.
	Overdue func(node *catalog.Node) bool
}

// Absence is what to do about a node that is no member any more.
type Absence uint8

// The absences.
const (
	AbsenceUnclear Absence = iota // wait: this process may not have met the member yet
	AbsenceFailed                 // treat as a failed member
	AbsenceGone                   // the pool has forgotten the member: deregister
)

// registrationsPerBatch bounds the size of one command; each registration is some 500 bytes.
const registrationsPerBatch = 128

// Reconcile compares the catalog with the gossip pool and returns the commands
// that make the catalog agree; none when it does. It is pure and does not change
// its arguments.
//
// Order matters and is part of the result: departures come first, so that their
// names and IDs are free, then the failed, then the living. All Deregister
// commands come before the first RegisterBatch.
//
// A node without a serfHealth check was registered by hand and is never touched,
// unless a member has its name and ID.
func Reconcile(state *statestore.State, members []Member, o ReconcileOptions) []catalog.Command {
	var commands []catalog.Command
	var failed, living []*catalog.Register
	present := make(map[string]bool, len(members))
	for i := range members {
		m := &members[i]
		present[strings.ToLower(m.Name)] = true
		switch m.Status {
		case MemberAlive:
			if state.NodeBarOf(m.Name, m.Tags["id"]) != nil {
				continue // removed by force: the catalog would refuse it each time
			}
			living = append(living, aliveRegistration(state, m, &o)...)
		case MemberFailed:
			switch node := memberNode(state, m); {
			case node == nil:
			case o.Overdue != nil && o.Overdue(node) && !strings.EqualFold(m.Name, o.Self):
				commands = append(commands, &catalog.Deregister{Node: node.Name})
			default:
				failed = appendFailed(failed, state, node)
			}
		case MemberLeft:
			if node := memberNode(state, m); node != nil && !strings.EqualFold(m.Name, o.Self) {
				commands = append(commands, &catalog.Deregister{Node: node.Name})
			}
		}
	}
	if o.Missing != nil {
		for node := range gossipedNodes(state) {
			if present[strings.ToLower(node.Name)] {
				continue
			}
			switch o.Missing(node) {
			case AbsenceGone:
				commands = append(commands, &catalog.Deregister{Node: node.Name})
			case AbsenceFailed:
				failed = appendFailed(failed, state, node)
			}
		}
	}
	all := append(failed, living...)
	for len(all) > 0 {
		n := min(len(all), registrationsPerBatch)
		commands = append(commands, &catalog.RegisterBatch{Registrations: all[:n:n]})
		all = all[n:]
	}
	return commands
}

// gossipedNodes yields the nodes that gossip vouches for or did.
func gossipedNodes(state *statestore.State) func(func(*catalog.Node) bool) {
	return func(yield func(*catalog.Node) bool) {
		for node := range state.Nodes() {
			if state.Check(node.Name, catalog.SerfHealthID) != nil && !yield(node) {
				return
			}
		}
	}
}

// memberNode is the node that stands for a member that is gone; nil when there
// is none, or another host has its name by now.
func memberNode(state *statestore.State, m *Member) *catalog.Node {
	node := state.Node(m.Name)
	if node == nil {
		return nil
	}
	id := m.Tags["id"]
	if id != "" && node.ID != "" {
		if !strings.EqualFold(id, node.ID) {
			return nil
		}
		return node
	}
	if state.Check(node.Name, catalog.SerfHealthID) == nil {
		return nil
	}
	return node
}

func serfCheck(node string, status catalog.Health) *catalog.Check {
	c := &catalog.Check{
		Node: node, ID: catalog.SerfHealthID, Name: catalog.SerfHealthName,
		Status: status, Output: catalog.SerfAliveOutput,
	}
	if status == catalog.Critical {
		c.Output = catalog.SerfFailedOutput
	}
	return c
}

// inOrder tells whether the node's serfHealth says so already.
func inOrder(state *statestore.State, node string, status catalog.Health) bool {
	c := state.Check(node, catalog.SerfHealthID)
	return c != nil && c.Status == status
}

func appendFailed(list []*catalog.Register, state *statestore.State, node *catalog.Node) []*catalog.Register {
	if inOrder(state, node.Name, catalog.Critical) {
		return list
	}
	return append(list, failedRegistration(node))
}

func failedRegistration(node *catalog.Node) *catalog.Register {
	return &catalog.Register{
		Node:           *node,
		SkipNodeUpdate: true,
		Checks:         []*catalog.Check{serfCheck(node.Name, catalog.Critical)},
	}
}

// aliveRegistration is nil when the catalog knows all about the member already.
// The agent's own anti-entropy owns what else its node carries: of a known node
// only the ID and the address are ever set here.
func aliveRegistration(state *statestore.State, m *Member, o *ReconcileOptions) []*catalog.Register {
	var list []*catalog.Register
	r := &catalog.Register{Node: catalog.Node{
		ID: m.Tags["id"], Name: m.Name, Address: m.Addr, Datacenter: o.Datacenter,
		TaggedAddresses: taggedAddresses(m.Addr),
		Meta: map[string]string{"consul-network-segment": m.Tags["segment"],
			"consul-version": memberVersion(m, o)},
	}}
	node := state.Node(m.Name)
	// Of a node that came to be known since state was read nothing is overwritten: its agent said more than gossip does.
	r.SkipNodeUpdate = true
	if node != nil {
		sameID := r.Node.ID == "" || strings.EqualFold(r.Node.ID, node.ID)
		r.SkipNodeUpdate = sameID && node.Address == m.Addr
		if !r.SkipNodeUpdate {
			kept := *node
			kept.Address = m.Addr
			if r.Node.ID != "" {
				kept.ID = r.Node.ID
			}
			r.Node = kept
		}
		if !sameID && node.ID != "" && state.Check(node.Name, catalog.SerfHealthID) != nil {
			// The host was replaced by another of its name. The catalog gives the
			// name away only when the old one is known to be dead.
			list = appendFailed(list, state, node)
		}
	}
	if len(list) > 0 || !inOrder(state, m.Name, catalog.Passing) {
		r.Checks = []*catalog.Check{serfCheck(m.Name, catalog.Passing)}
	}
	if m.Tags["role"] == "consul" {
		if s := serverService(m, o); !sameServer(state.Service(m.Name, s.ID), s) {
			r.Service = s
		}
	}
	if node != nil && r.SkipNodeUpdate && r.Checks == nil && r.Service == nil {
		return nil
	}
	return append(list, r)
}

func taggedAddresses(addr string) map[string]string {
	out := map[string]string{"lan": addr, "wan": addr}
	if ip, err := netip.ParseAddr(addr); err == nil {
		family := "_ipv4"
		if ip.Is6() && !ip.Is4In6() {
			family = "_ipv6"
		}
		out["lan"+family], out["wan"+family] = addr, addr
	}
	return out
}

// memberVersion is the build tag without what follows the version (1.2.3:abcdef).
func memberVersion(m *Member, o *ReconcileOptions) string {
	if version, _, _ := strings.Cut(m.Tags["build"], ":"); version != "" {
		return version
	}
	return o.Version
}

// serverService is the service that every server carries.
func serverService(m *Member, o *ReconcileOptions) *catalog.Service {
	port, err := strconv.Atoi(m.Tags["port"])
	if err != nil || port <= 0 || port > 65535 {
		port = 8300
	}
	number := func(tag string) string {
		if n, err := strconv.Atoi(m.Tags[tag]); err == nil && n > 0 && n <= 65535 {
			return strconv.Itoa(n)
		}
		return "0"
	}
	return &catalog.Service{
		Node: m.Name, ID: catalog.ServerServiceID, Name: catalog.ServerServiceName,
		Port: port, Weights: catalog.Weights{Passing: 1, Warning: 1},
		Meta: map[string]string{
			"version": memberVersion(m, o), "raft_version": "3",
			"serf_protocol_current": "2", "serf_protocol_min": "1", "serf_protocol_max": "5",
			"read_replica": strconv.FormatBool(tagSet(m, "read_replica")),
			"non_voter":    strconv.FormatBool(tagSet(m, "nonvoter")),
			"grpc_port":    number("grpc_port"), "grpc_tls_port": number("grpc_tls_port"),
		},
	}
}

// tagSet reads a tag that is there, as 1 or true, when it applies.
func tagSet(m *Member, tag string) bool {
	on, err := strconv.ParseBool(m.Tags[tag])
	return err == nil && on
}

func sameServer(have, want *catalog.Service) bool {
	return have != nil && have.Name == want.Name && have.Port == want.Port && maps.Equal(have.Meta, want.Meta)
}
