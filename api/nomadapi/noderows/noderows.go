// Package noderows answers the rows of nodes and node pools.
package noderows

import (
	"cmp"
	"iter"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/state"
	"corbel.dev/corbel/kit/errkind"
)

type request = nomadrows.Request

// Rows are the rows of nodes.
func Rows() []nomadrows.Row {
	const read, write = nomadrows.NodeRead, nomadrows.NodeWrite
	return []nomadrows.Row{
		{Methods: "GET", Path: "/v1/nodes", Right: read, Handle: list},
		{Methods: "GET", Path: "/v1/node/pools", Right: read, Handle: pools},
		{Methods: "PUT POST", Path: "/v1/node/pools", Right: write, Handle: putPool},
		{Methods: "GET", Path: "/v1/node/pool/:pool/nodes", Right: read, Handle: poolNodes},
		{Methods: "GET", Path: "/v1/node/pool/:pool/jobs", Right: read, Handle: poolJobs},
		{Methods: "GET", Path: "/v1/node/pool/:pool", Right: read, Handle: pool},
		{Methods: "PUT POST", Path: "/v1/node/pool/:pool", Right: write, Handle: putPool},
		{Methods: "DELETE", Path: "/v1/node/pool/:pool", Right: write, Handle: deletePool},
		{Methods: "GET", Path: "/v1/node/:node/allocations", Right: read, Handle: allocations},
		{Methods: "PUT POST", Path: "/v1/node/:node/drain", Right: write, Handle: drain},
		{Methods: "PUT POST", Path: "/v1/node/:node/eligibility", Right: write, Handle: eligibility},
		{Methods: "PUT POST", Path: "/v1/node/:node/evaluate", Right: write, Handle: evaluate},
		{Methods: "PUT POST", Path: "/v1/node/:node/purge", Right: write, Handle: purge},
		{Methods: "GET", Path: "/v1/node/:node", Right: read, Handle: get},
	}
}

// nodes yields nodes by prefix of their ids, of one pool where pool is not "".
func nodes(v nomadrows.View, prefix, pool string) iter.Seq[*state.Use] {
	return func(yield func(*state.Use) bool) {
		for u := range v.State().Uses() {
			if nomadrows.HasPrefix(u.Node.ID, prefix) && (pool == "" || pool == "all" || u.Node.InPool() == pool) && !yield(u) {
				return
			}
		}
	}
}

func list(q *request) error { return listOf(q, "") }

func listOf(q *request, pool string) error {
	prefix, err := q.Prefix()
	if err != nil {
		return err
	}
	resources, err := q.Flag("resources")
	if err != nil {
		return err
	}
	system, err := q.Flag("os")
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Whole(nomadrows.Nodes, func(v nomadrows.View) (any, error) {
		return nomadrows.List(q, nomadrows.Listing[*state.Use]{
			Items: nodes(v, prefix, pool),
			Name:  func(u *state.Use) string { return u.Node.ID.String() },
			Show: func(u *state.Use) any {
				more := v.Node(u.Node.ID)
				stub := jobwire.NodeListed(u.Node, host(more.Address), resources)
				stub.Version, stub.LastDrain = cmp.Or(more.Version, stub.Version), more.LastDrain
				if more.Drivers != nil {
					stub.Drivers = more.Drivers
				}
				if system {
					stub.Attributes = map[string]string{"os.name": u.Node.Attributes["os.name"]}
				}
				return stub
			},
		})
	}))
}

// host is an address without its port.
func host(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			return address[:i]
		}
	}
	return address
}

// Shown is a node as the API shows it.
func Shown(v nomadrows.View, u *state.Use) *jobwire.Node {
	w, more := jobwire.FromNode(u.Node, u.Class), v.Node(u.Node.ID)
	w.HTTPAddr, w.TLSEnabled, w.LastDrain = more.Address, more.TLS, more.LastDrain
	w.Events = more.Events
	if more.Links != nil {
		w.Links = more.Links
	}
	if more.Drivers != nil {
		w.Drivers = more.Drivers
	}
	return w
}

func get(q *request) error {
	return nomadrows.One(q, "node", nomadrows.Object[*state.Use]{
		Table: nomadrows.Nodes, Missing: "node not found",
		Find:     func(v nomadrows.View, id jobs.ID) *state.Use { return v.State().Node(id) },
		Modified: func(u *state.Use) uint64 { return u.Node.ModifyIndex },
		Show:     func(v nomadrows.View, u *state.Use) (any, error) { return Shown(v, u), nil },
	})
}

// allocations are whole objects here, with their jobs.
func allocations(q *request) error {
	id, err := q.ID("node")
	if err != nil {
		return err
	}
	of := func(v nomadrows.View) iter.Seq[*jobs.Allocation] { return v.State().OnNode(id) }
	return q.Read(nomadrows.Reading{
		Watch: nomadrows.Watch{Table: nomadrows.Allocations, ID: id},
		Index: func(v nomadrows.View) (index uint64) {
			for a := range of(v) {
				index = max(index, a.ModifyIndex)
			}
			if index == 0 {
				return v.Index(nomadrows.Allocations)
			}
			return index
		},
		Answer: func(v nomadrows.View) (any, error) {
			node, shown := nomadrows.NodeOf(v, id), map[*jobs.Job]*jobwire.Job{}
			list := []*jobwire.Allocation{}
			for a := range of(v) {
				if q.May(a.Job.Namespace, nomadrows.ReadJob) != nil {
					continue
				}
				if shown[a.Job] == nil {
					shown[a.Job] = jobwire.FromJob(a.Job)
				}
				w := jobwire.FromAllocation(a, node, shown[a.Job])
				w.TaskStates = v.Tasks(a.ID)
				list = append(list, w)
			}
			return list, nil
		},
	})
}

// target reads the id of a write. A node that is not there is 500.
func target(q *request) (jobs.ID, error) {
	id, err := q.ID("node")
	if err != nil {
		return id, err
	}
	v, err := q.Views.View(q.Ctx(), false)
	if err != nil {
		return id, err
	}
	if v.State().Node(id) == nil {
		return id, nomadrows.Failed("node not found")
	}
	return id, nil
}

func evalIDs(list []jobs.ID) []string {
	texts := make([]string, len(list))
	for i, id := range list {
		texts[i] = id.String()
	}
	return texts
}

// changed is the answer of writes to nodes.
type changed struct {
	EvalIDs                                 []string
	EvalCreateIndex, NodeModifyIndex, Index uint64
}

func answered(q *request, w nomadrows.Written, err error) error {
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, &changed{EvalIDs: evalIDs(w.Evals), EvalCreateIndex: w.EvalIndex, NodeModifyIndex: w.Index,
		Index: w.Index})
}

func drain(q *request) error {
	body, err := nomadrows.Decode[struct {
		NodeID    string
		DrainSpec *struct {
			Deadline         jobwire.Duration
			IgnoreSystemJobs bool
		}
		MarkEligible bool
		Meta         map[string]string
	}](q)
	if err != nil {
		return err
	}
	id, err := target(q)
	if err != nil {
		return err
	}
	d := nomadrows.Draining{MarkEligible: body.MarkEligible, Meta: body.Meta}
	if s := body.DrainSpec; s != nil {
		d.Drain, d.Deadline, d.IgnoreSystemJobs = true, time.Duration(s.Deadline), s.IgnoreSystemJobs
	}
	w, err := q.Nodes.Drain(q.Ctx(), id, d)
	return answered(q, w, err)
}

func eligibility(q *request) error {
	body, err := nomadrows.Decode[struct{ NodeID, Eligibility string }](q)
	if err != nil {
		return err
	}
	if body.Eligibility != "eligible" && body.Eligibility != "ineligible" {
		return nomadrows.BadRequest("invalid scheduling eligibility %q", body.Eligibility)
	}
	id, err := target(q)
	if err != nil {
		return err
	}
	w, err := q.Nodes.Eligible(q.Ctx(), id, body.Eligibility == "eligible")
	if errkind.Is(err, errkind.Conflict) {
		return nomadrows.Failed("%s", errkind.Text(err))
	}
	return answered(q, w, err)
}

func evaluate(q *request) error {
	id, err := target(q)
	if err != nil {
		return err
	}
	w, err := q.Nodes.EvaluateNode(q.Ctx(), id)
	return answered(q, w, err)
}

func purge(q *request) error {
	id, err := target(q)
	if err != nil {
		return err
	}
	w, err := q.Nodes.Purge(q.Ctx(), id)
	return answered(q, w, err)
}
