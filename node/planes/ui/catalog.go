package uiplane

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

// fleet shows the catalog, as this server has it.
type fleet struct {
	state     func() *statestore.State
	grant     func(context.Context, string) (*acl.Grant, error)
	read      func() bool // whether the state was read from the log; nil: it was
	health    healths
	services  rowlists.Lists[serviceRow]
	instances rowlists.Rolls[instanceRow]
	nodes     rowlists.Rolls[nodeRow]
}

func newFleet(state func() *statestore.State, grant func(context.Context, string) (*acl.Grant, error)) *fleet {
	f := &fleet{state: state, grant: grant}
	f.instances.Order, f.nodes.Order = instanceOrder, nodeOrder
	return f
}

// look is how often what is made of the catalog may be made anew.
const look = 500 * time.Millisecond

// showing makes of a state what a grant may see of it.
type showing func(ctx context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error)

// topic is one that is made of the catalog's state, and shared by all tokens of the same rights.
func (f *fleet) topic(make showing) *topic {
	return &topic{every: look, rights: f.rights, version: func() uint64 { return f.state().Index() },
		make: func(ctx context.Context, p *uiapi.Person, q url.Values) (any, error) {
			g, err := f.grant(ctx, p.Catalog)
			if err != nil {
				return nil, err
			}
			if f.read != nil && !f.read() { // an empty list would take the reader's place away
				return nil, errkind.New(errkind.Unavailable, "this server still reads its log")
			}
			return make(ctx, g, f.state(), q)
		}}
}

func (f *fleet) rights(ctx context.Context, p *uiapi.Person) (string, error) {
	g, err := f.grant(ctx, p.Catalog)
	if err != nil {
		return "", err
	}
	return g.Class(), nil
}

// tally is how many instances there are in each state.
type tally struct {
	Instances int `json:"instances"`
	Passing   int `json:"passing"`
	Warning   int `json:"warning"`
	Critical  int `json:"critical"`
	// Output is what the check of the first of the worst instances says: why, in the row.
	Output string `json:"output,omitempty"`
}

func (t *tally) add(h catalog.Health) {
	t.Instances++
	switch h {
	case catalog.Passing:
		t.Passing++
	case catalog.Warning:
		t.Warning++
	default:
		t.Critical++
	}
}

// with counts what o has as t's own.
func (t *tally) with(o tally) {
	t.Instances, t.Passing = t.Instances+o.Instances, t.Passing+o.Passing
	t.Warning, t.Critical = t.Warning+o.Warning, t.Critical+o.Critical
}

// worst is the weight of the worst instance.
func (t *tally) worst() int {
	switch {
	case t.Critical > 0:
		return 2
	case t.Warning > 0:
		return 1
	}
	return 0
}

// healths keeps the tallies of services until something of them changes.
type healths struct {
	mu   sync.Mutex
	kept map[string]keptTally
}

type keptTally struct {
	index uint64
	tally tally
}

// of counts the instances of a service on the nodes that may be seen.
func (h *healths) of(st *statestore.State, name string, g *acl.Grant) tally {
	all := g.AllowBelow(acl.Node, "", acl.Read)
	index := st.ServiceIndex(name)
	if all {
		h.mu.Lock()
		k, ok := h.kept[name]
		h.mu.Unlock()
		if ok && k.index == index {
			return k.tally
		}
	}
	var t tally
	for s := range st.Instances(name) {
		if all || g.Allow(acl.Node, s.Node, acl.Read) {
			health, by := worst(st, s)
			if by != nil && weight(health) > t.worst() {
				t.Output = firstLine(by.Output)
			}
			t.add(health)
		}
	}
	if all {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.kept == nil || len(h.kept) > 2*st.Counts().Services+1000 { // names that are gone
			h.kept = map[string]keptTally{}
		}
		h.kept[name] = keptTally{index, t}
	}
	return t
}

// worst is the state of an instance, by its checks and its node's, and the check that says so.
func worst(st *statestore.State, s *catalog.Service) (health catalog.Health, by *catalog.Check) {
	health = catalog.Passing
	for c := range st.InstanceChecks(s.Node, s.ID) {
		if weight(c.Status) > weight(health) {
			health, by = c.Status, c
		}
	}
	for c := range st.InstanceChecks(s.Node, "") {
		if weight(c.Status) > weight(health) {
			health, by = c.Status, c
		}
	}
	return health, by
}

func weight(h catalog.Health) int {
	switch h {
	case catalog.Passing:
		return 0
	case catalog.Warning:
		return 1
	}
	return 2
}

// serviceRow is one service. It implements rowfilter.Row.
type serviceRow struct {
	Name string `json:"name"`
	Kind string `json:"kind,omitempty"`
	tally
	Tags []string `json:"tags"`
}

func (s serviceRow) Words() []string { return append([]string{s.Name}, s.Tags...) }

func (s serviceRow) Values(field string) []string {
	switch field {
	case "name":
		return []string{s.Name}
	case "tag":
		return s.Tags
	case "kind":
		return []string{s.Kind}
	}
	return []string{s.state()}
}

func (s serviceRow) state() string {
	switch {
	case s.Critical > 0:
		return "critical"
	case s.Warning > 0:
		return "warning"
	}
	return "passing"
}

func (f *fleet) serviceRows(ctx context.Context, g *acl.Grant, st *statestore.State) ([]serviceRow, error) {
	return f.services.Get(ctx, g.Class(), st.Index(), func(context.Context) ([]serviceRow, error) {
		rows := []serviceRow{}
		for s := range st.ServiceNames() {
			if !g.Allow(acl.Service, s.Name, acl.Read) {
				continue
			}
			row := serviceRow{Name: s.Name, tally: f.health.of(st, s.Name, g), Tags: s.Tags}
			for one := range st.Instances(s.Name) {
				row.Kind = one.Kind
				break
			}
			if row.Tags == nil {
				row.Tags = []string{}
			}
			rows = append(rows, row)
		}
		slices.SortStableFunc(rows, func(a, b serviceRow) int {
			return cmp.Or(cmp.Compare(b.Critical, a.Critical), cmp.Compare(b.Warning, a.Warning),
				strings.Compare(a.Name, b.Name))
		})
		return rows, nil
	})
}

func (f *fleet) servicesTopic(ctx context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
	rows, err := f.serviceRows(ctx, g, st)
	return rowlists.Paged(rows, q, "name", "tag", "state", "kind"), err
}

// instanceRow is one instance of a service. It implements rowfilter.Row.
type instanceRow struct {
	Service string   `json:"service"`
	ID      string   `json:"id"`
	Node    string   `json:"node"`
	Address string   `json:"address"`
	State   string   `json:"state"`
	Check   string   `json:"check,omitempty"`
	Output  string   `json:"output,omitempty"`
	Tags    []string `json:"tags"`
	health  catalog.Health
}

func (i instanceRow) Words() []string {
	return append([]string{i.Service, i.ID, i.Node, i.Address, i.Output}, i.Tags...)
}

func (i instanceRow) Values(field string) []string {
	switch field {
	case "service":
		return []string{i.Service}
	case "node":
		return []string{i.Node}
	case "tag":
		return i.Tags
	case "check":
		return []string{i.Check}
	}
	return []string{i.State}
}

// instanceOrder puts the worst first.
func instanceOrder(a, b *instanceRow) int {
	return cmp.Or(cmp.Compare(weight(b.health), weight(a.health)), strings.Compare(a.Service, b.Service),
		strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID))
}

// instancesTopic shows the instances of a service, of all that may be seen without one, the worst first.
func (f *fleet) instancesTopic(ctx context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
	of := rowlists.Scope[instanceRow]{}
	if service := q.Get("service"); service != "" {
		of = rowlists.Scope[instanceRow]{Key: service, Passes: func(i *instanceRow) bool {
			return strings.EqualFold(i.Service, service)
		}}
	}
	from := rowlists.Maker[instanceRow]{Each: eachNode(g, st), Make: func(node string) []instanceRow {
		return instancesOf(st, node, g)
	}}
	return f.instances.Page(g.Class(), st.Index(), from, q, of, "service", "node", "tag", "check", "state"), ctx.Err()
}

// eachNode are the nodes that may be seen, with the index of all that is on them.
func eachNode(g *acl.Grant, st *statestore.State) func(func(string, uint64) bool) {
	all := g.AllowBelow(acl.Node, "", acl.Read)
	return func(yield func(string, uint64) bool) {
		for n, index := range st.NodesWithIndex() {
			if (all || g.Allow(acl.Node, n.Name, acl.Read)) && !yield(n.Name, index) {
				return
			}
		}
	}
}

// instancesOf are the instances on a node that may be seen.
func instancesOf(st *statestore.State, node string, g *acl.Grant) (rows []instanceRow) {
	for s := range st.ServicesOfNode(node) {
		if !g.Allow(acl.Service, s.Name, acl.Read) {
			continue
		}
		h, by := worst(st, s)
		row := instanceRow{Service: s.Name, ID: s.ID, Node: s.Node, State: h.String(), health: h, Tags: s.Tags}
		if row.Tags == nil {
			row.Tags = []string{}
		}
		address := s.Address
		if n := st.Node(s.Node); address == "" && n != nil {
			address = n.Address
		}
		if s.Port != 0 {
			address = net.JoinHostPort(address, strconv.Itoa(s.Port))
		}
		row.Address = address
		if by != nil {
			row.Check, row.Output = by.Name, firstLine(by.Output)
		}
		rows = append(rows, row)
	}
	return rows
}

// lineBytes bounds what a row says.
const lineBytes = 300

// firstLine is the first line of a text that says something, cut to what a row can show.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > lineBytes {
		return strings.ToValidUTF8(line[:lineBytes], "") + "…"
	}
	return strings.ToValidUTF8(line, "�")
}
