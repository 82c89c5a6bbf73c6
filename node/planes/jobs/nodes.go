package jobsplane

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobsched"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/jobtell"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
)

// nodes answers what nodes call (package noderpc), on every server: what is to be stored goes to the leader as a
// command, heartbeats as they are.
type nodes struct {
	group     *groupState
	sched     *jobsched.Sched
	clock     clock.Clock
	registers *gatherer
	updates   *gatherer
	services  *gatherer
	texts     *jobtell.Texts
	// orders says whether all servers of the group keep the order of updates.
	orders func() bool
}

// nodeBody is the part of a registration that servers keep for those who ask, as a NodeDetail's Body.
type nodeBody struct {
	RPCAddr, HTTPAddr string
	TLS               bool
	DriverTexts       map[string]string
}

func newNodes(d *plane.Doors, g *groupState, s *jobsched.Sched, head func(string) jobstore.Head) *nodes {
	n := &nodes{group: g, sched: s, clock: d.Clock, texts: jobtell.NewTexts(),
		registers: newGatherer(g, head, jobstore.NodeRegistration), updates: newGatherer(g, head, jobstore.AllocationUpdated),
		services: newGatherer(g, head, "ServiceRegistration"), orders: raftgroup.Common(g.raft, version.JobsOrder)}
	roles := wire.Members
	d.Handle(roles, noderpc.MethodRegister, n.register)
	d.Handle(roles, noderpc.MethodHeartbeat, n.heartbeat)
	d.Handle(roles, noderpc.MethodUpdate, n.update)
	d.Handle(roles, noderpc.MethodServices, n.serve)
	d.Handle(roles, noderpc.MethodInstances, n.instances)
	d.HandleStream(roles, noderpc.MethodAllocs, n.allocs)
	return n
}

// known checks that a node is who it says.
func (n *nodes) known(k noderpc.Key) (*jobstore.View, error) {
	v := n.group.store.View()
	d := v.NodeDetail(k.Node)
	if d == nil || v.State.Node(k.Node) == nil {
		return nil, errkind.New(errkind.NotFound, "node "+k.Node.String()+" is not registered")
	}
	if subtle.ConstantTimeCompare([]byte(d.Secret), []byte(k.Secret.String())) != 1 {
		return nil, errkind.New(errkind.Denied, "the secret of node "+k.Node.String()+" is another one")
	}
	return v, nil
}

func (n *nodes) register(ctx context.Context, req []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.Register](req)
	if err != nil {
		return nil, err
	}
	if m.Node.IsZero() || m.Secret.IsZero() {
		return nil, errkind.New(errkind.Invalid, "a node has an id and a secret")
	}
	if _, err := n.known(m.Key); errkind.Is(err, errkind.Denied) {
		return nil, err
	}
	body, err := json.Marshal(nodeBody{m.RPCAddr, m.HTTPAddr, m.TLS, m.DriverTexts})
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "node", err)
	}
	w := jobstore.NodeWrite{Node: m.Spec, Secret: m.Secret.String(), Detail: string(body)}
	out, err := n.registers.add(ctx, 1, func(c *jobstore.Command) { c.Nodes.Put = append(c.Nodes.Put, w) })
	if err != nil {
		return nil, err
	}
	if _, err := n.known(m.Key); err != nil {
		return nil, err
	}
	return noderpc.Bytes(&noderpc.Registered{Index: out.Index, Every: n.sched.Every()}), nil
}

func (n *nodes) heartbeat(ctx context.Context, req []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.Heartbeat](req)
	if err != nil {
		return nil, err
	}
	v := n.group.store.View()
	ids := make([]jobs.ID, 0, len(m.Nodes))
	var strangers []jobs.ID
	for _, k := range m.Nodes {
		if d := v.NodeDetail(k.Node); d != nil && d.Secret == k.Secret.String() {
			ids = append(ids, k.Node)
		} else {
			strangers = append(strangers, k.Node)
		}
	}
	every, unknown, leads := n.sched.Beat(ids)
	if !leads {
		return n.group.raft.AtLeader(ctx, noderpc.MethodHeartbeat, req)
	}
	return noderpc.Bytes(&noderpc.Beaten{Every: every, Unknown: append(unknown, strangers...),
		Known: jobtell.Differing(v, ids, m.Held)}), nil
}

func (n *nodes) update(ctx context.Context, req []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.Updates](req)
	if err != nil {
		return nil, err
	}
	v, err := n.known(m.Key)
	if err != nil {
		return nil, err
	}
	list := make([]jobstore.Report, 0, len(m.List))
	for i := range m.List {
		u := &m.List[i]
		if a := v.State.Allocation(u.Alloc); a != nil && a.NodeID != m.Node || !clientStatus[u.Status] {
			continue
		}
		list = append(list, jobstore.Report{Alloc: u.Alloc, Health: u.Health, Tasks: string(u.TaskStates),
			Net: string(u.Network), Order: u.Order,
			Client: jobs.Client{Status: u.Status, Description: u.Description, StartedAt: u.StartedAt, FinishedAt: u.FinishedAt}})
	}
	if len(list) == 0 {
		return noderpc.Bytes(&noderpc.Updated{Index: v.State.Index()}), nil
	}
	ordered := n.orders()
	out, err := n.updates.add(ctx, len(list), func(c *jobstore.Command) {
		c.Allocs.Reports, c.Allocs.Ordered = append(c.Allocs.Reports, list...), ordered
	})
	if err != nil {
		return nil, err
	}
	return noderpc.Bytes(&noderpc.Updated{Index: out.Index}), nil
}

// clientStatus are the states that a node may report.
var clientStatus = map[string]bool{jobs.ClientPending: true, jobs.ClientRunning: true, jobs.ClientComplete: true,
	jobs.ClientFailed: true}

// serviceBody is the document of a native service, as the API shows it.
type serviceBody struct {
	ID, ServiceName, Namespace, NodeID, Datacenter, JobID, AllocID string
	Tags                                                           []string
	Address                                                        string
	Port                                                           int
}

func (n *nodes) serve(ctx context.Context, req []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.Services](req)
	if err != nil {
		return nil, err
	}
	if _, err = n.known(m.Key); err != nil {
		return nil, err
	}
	if m.All { // compared below: with a state as new as this message, not with one that a snapshot replaces
		if _, err = n.services.add(ctx, 0, func(*jobstore.Command) {}); err != nil {
			return nil, err
		}
	}
	v, err := n.known(m.Key)
	if err != nil {
		return nil, err
	}
	drop := map[string]bool{}
	for _, id := range m.Delete {
		drop[id] = true
	}
	keep := map[string]bool{}
	for i := range m.Upsert {
		keep[m.Upsert[i].ID] = true
	}
	var writes []jobstore.DocWrite
	if m.All || len(drop) > 0 {
		for d := range v.Documents(jobstore.Services, "") {
			if keep[d.Name] || !m.All && !drop[d.Name] || !strings.Contains(d.Body, m.Node.String()) {
				continue
			}
			var s serviceBody
			if json.Unmarshal([]byte(d.Body), &s) == nil && s.NodeID == m.Node.String() {
				writes = append(writes, jobstore.DocWrite{Document: *d, Delete: true})
			}
		}
	}
	node := v.State.Node(m.Node).Node
	for i := range m.Upsert {
		s := &m.Upsert[i]
		if a := v.State.Allocation(s.Alloc); a == nil || a.NodeID != m.Node || a.Job.Namespace != s.Namespace {
			continue
		}
		body, err := json.Marshal(serviceBody{ID: s.ID, ServiceName: s.Name, Namespace: s.Namespace, NodeID: m.Node.String(),
			Datacenter: node.Datacenter, JobID: s.Job, AllocID: s.Alloc.String(), Tags: s.Tags, Address: s.Address,
			Port: s.Port})
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "service "+s.ID, err)
		}
		if old := v.Document(jobstore.Services, s.Namespace, s.ID); m.All && old != nil && old.Body == string(body) {
			continue // said again, in case it was lost
		}
		writes = append(writes, jobstore.DocWrite{Document: jobstore.Document{Table: jobstore.Services,
			Namespace: s.Namespace,
			Name:      s.ID, Body: string(body)}})
	}
	if len(writes) == 0 {
		return nil, nil
	}
	_, err = n.services.add(ctx, len(writes), func(c *jobstore.Command) { c.Names.Docs = append(c.Names.Docs, writes...) })
	return nil, err
}

// instances answers noderpc.MethodInstances.
func (n *nodes) instances(_ context.Context, req []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.InstancesAsk](req)
	if err != nil {
		return nil, err
	}
	v, err := n.known(m.Key)
	if err != nil {
		return nil, err
	}
	a := v.State.Allocation(m.Alloc)
	if a == nil || a.NodeID != m.Node {
		return nil, errkind.New(errkind.NotFound, "the node has no such allocation")
	}
	out := &noderpc.Instances{Index: v.Index(jobstore.Services)}
	for d := range v.Documents(jobstore.Services, a.Job.Namespace) {
		var s serviceBody
		if json.Unmarshal([]byte(d.Body), &s) == nil && s.ServiceName == m.Name && len(out.List) < noderpc.MaxUpdates {
			out.List = append(out.List, noderpc.Registration{ID: s.ID, Name: s.ServiceName, Namespace: s.Namespace,
				Job: s.JobID, Address: s.Address, Port: s.Port, Tags: s.Tags})
		}
	}
	return noderpc.Bytes(out), nil
}

// rpcAddr is where a node is called.
func (n *nodes) rpcAddr(id jobs.ID) (string, bool) {
	v := n.group.store.View()
	d, u := v.NodeDetail(id), v.State.Node(id)
	if d == nil || u == nil || u.Node.Duty.Status == jobs.NodeDown {
		return "", false
	}
	var body nodeBody
	if json.Unmarshal([]byte(d.Body), &body) != nil || body.RPCAddr == "" {
		return "", false
	}
	return body.RPCAddr, true
}

// settle is how long changes of a node's allocations are collected before they are sent.
const settle = 20 * time.Millisecond
