package uiplane

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"corbel.dev/corbel/api/uiapi/rowfilter"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/planes/ui/nodemap"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

// nodeRow is one node. It implements rowfilter.Row.
type nodeRow struct {
	Name      string            `json:"name"`
	Address   string            `json:"address"`
	State     string            `json:"state"`
	Instances int               `json:"instances"`
	Failing   int               `json:"failing"`
	Output    string            `json:"output,omitempty"`
	Meta      map[string]string `json:"meta,omitempty"`
	health    catalog.Health
}

func (n nodeRow) Words() []string { return []string{n.Name, n.Address, n.Output} }

func (n nodeRow) Values(field string) (out []string) {
	switch field {
	case "name":
		return []string{n.Name}
	case "meta":
		for k, v := range n.Meta {
			out = append(out, k+"="+v)
		}
		return out
	}
	return []string{n.State}
}

// nodeOrder puts the worst first.
func nodeOrder(a, b *nodeRow) int {
	return cmp.Or(cmp.Compare(weight(b.health), weight(a.health)), cmp.Compare(b.Failing, a.Failing),
		strings.Compare(a.Name, b.Name))
}

func nodesFrom(g *acl.Grant, st *statestore.State) rowlists.Maker[nodeRow] {
	return rowlists.Maker[nodeRow]{Each: eachNode(g, st), Make: func(name string) []nodeRow {
		return []nodeRow{nodeOf(st, st.Node(name), g)}
	}}
}

func (f *fleet) nodeRows(g *acl.Grant, st *statestore.State) []*rowlists.Line[nodeRow] {
	return f.nodes.All(g.Class(), st.Index(), nodesFrom(g, st))
}

// nodeOf tells of a node and of those of its checks and instances that may be seen.
func nodeOf(st *statestore.State, n *catalog.Node, g *acl.Grant) nodeRow {
	row := nodeRow{Name: n.Name, Address: n.Address, Meta: n.Meta}
	state := catalog.Passing
	for c := range st.ChecksOfNode(n.Name) {
		if c.ServiceID != "" && !g.Allow(acl.Service, c.ServiceName, acl.Read) {
			continue
		}
		if c.Status != catalog.Passing {
			row.Failing++
		}
		if weight(c.Status) > weight(state) {
			state, row.Output = c.Status, firstLine(c.Output)
		}
	}
	for s := range st.ServicesOfNode(n.Name) {
		if g.Allow(acl.Service, s.Name, acl.Read) {
			row.Instances++
		}
	}
	row.State, row.health = state.String(), state
	return row
}

// mapOf is a map of the nodes that pass q=, grouped by a key of their metadata, and of those that are elsewhere alone.
func (f *fleet) mapOf(g *acl.Grant, st *statestore.State, q url.Values, by string,
	draw func(*nodeRow) (place string, s nodemap.Square), elsewhere ...nodemap.Node) *nodemap.Map {
	lines, _, problem := f.nodes.Matching(g.Class(), st.Index(), nodesFrom(g, st), q.Get("q"),
		rowlists.Scope[nodeRow]{}, nodeFields...)
	out := nodemap.Of(by, func(yield func(nodemap.Node) bool) {
		for _, l := range lines {
			n := nodemap.Node{Name: l.Row.Name, Meta: l.Row.Meta}
			if n.Place, n.Square = draw(&l.Row); !yield(n) {
				return
			}
		}
		for _, n := range elsewhere {
			if !yield(n) {
				return
			}
		}
	})
	out.Problem = problem
	return out
}

// mapTopic shows the health of nodes, grouped by the key by=.
func (f *fleet) mapTopic(ctx context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
	return f.mapOf(g, st, q, q.Get("by"), func(r *nodeRow) (string, nodemap.Square) {
		return "", nodemap.Health(weight(r.health))
	}), ctx.Err()
}

// roomMapTopic shows what jobs have of nodes, of=cpu or of=memory, to those who may read nodes there; without by= they
// stand by datacenter and class. Nodes that the catalog does not have stand beside its own.
func roomMapTopic(u *UI, f *fleet) *topic {
	t := f.topic(func(ctx context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
		if err := g.Check(acl.JobsNode, "", acl.Read); err != nil || u.jobs == nil {
			return nil, cmp.Or(err, errkind.New(errkind.NotFound, "this server runs no jobs plane"))
		}
		nodes := u.jobs.NodeRooms()
		square := nodemap.Rooms(nodes, q.Get("of"))
		passes, err := rowfilter.Parse(q.Get("q"), nodeFields...)
		if err != nil {
			passes = rowfilter.Filter{} // the map says what is wrong with it, and shows all
		}
		lone := nodemap.Lone(nodes, square, func(name string) bool {
			return st.Node(name) == nil && passes.Match(nodeRow{Name: name})
		})
		return f.mapOf(g, st, q, cmp.Or(q.Get("by"), nodemap.ByPlace), func(r *nodeRow) (string, nodemap.Square) {
			return square(r.Name)
		}, lone...), ctx.Err()
	})
	if u.jobs != nil {
		t.version = func() uint64 { return f.state().Index() + u.jobs.Index() } // both only grow
	}
	return t
}

var nodeFields = []string{"name", "meta", "state"}

func (f *fleet) nodesTopic(ctx context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
	return f.nodes.Page(g.Class(), st.Index(), nodesFrom(g, st), q, rowlists.Scope[nodeRow]{},
		nodeFields...), ctx.Err()
}
