// Package allocrows answers the rows of allocations: what the servers know of them, and what only the node that runs
// one can say or do: logs, files, exec, restart, signal, statistics.
package allocrows

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
)

type request = nomadrows.Request

// Rows are the rows of allocations.
func Rows() []nomadrows.Row {
	const any = nomadrows.Anyone // the right is asked for in the allocation's namespace
	return []nomadrows.Row{
		{Methods: "GET", Path: "/v1/allocations", Right: nomadrows.ReadJob, Handle: list},
		{Methods: "PUT POST", Path: "/v1/allocation/:alloc/stop", Right: any, Handle: stop},
		{Methods: "GET", Path: "/v1/allocation/:alloc/services", Right: any, Handle: services},
		{Methods: "GET", Path: "/v1/allocation/:alloc/checks", Right: any, Handle: checks},
		{Methods: "GET", Path: "/v1/allocation/:alloc", Right: any, Handle: get},
		{Methods: "PUT POST", Path: "/v1/client/allocation/:alloc/restart", Right: any, Handle: restart},
		{Methods: "PUT POST", Path: "/v1/client/allocation/:alloc/signal", Right: any, Handle: signal},
		{Methods: "GET", Path: "/v1/client/allocation/:alloc/stats", Right: any, Handle: stats},
		{Methods: "GET", Path: "/v1/client/allocation/:alloc/checks", Right: any, Handle: checks},
		{Methods: "GET PUT POST", Path: "/v1/client/allocation/:alloc/gc", Right: any, Handle: collect},
		{Methods: "GET", Path: "/v1/client/allocation/:alloc/exec", Right: any, Stream: true, Handle: exec},
		{Methods: "GET", Path: "/v1/client/stats", Right: nomadrows.NodeRead, Handle: hostStats},
		{Methods: "GET", Path: "/v1/client/metadata", Right: nomadrows.NodeRead, Own: true, Handle: meta},
		{Methods: "PUT POST", Path: "/v1/client/metadata", Right: nomadrows.NodeWrite, Own: true, Handle: setMeta},
		{Methods: "GET PUT POST", Path: "/v1/client/gc", Right: nomadrows.NodeWrite, Handle: collectAll},
		{Methods: "GET", Path: "/v1/client/fs/ls/:alloc", Right: any, Stream: true, Handle: ls},
		{Methods: "GET", Path: "/v1/client/fs/stat/:alloc", Right: any, Stream: true, Handle: stat},
		{Methods: "GET", Path: "/v1/client/fs/cat/:alloc", Right: any, Stream: true, Handle: cat},
		{Methods: "GET", Path: "/v1/client/fs/readat/:alloc", Right: any, Stream: true, Handle: readAt},
		{Methods: "GET", Path: "/v1/client/fs/stream/:alloc", Right: any, Stream: true, Handle: stream},
		{Methods: "GET", Path: "/v1/client/fs/logs/:alloc", Right: any, Stream: true, Handle: logs},
	}
}

func list(q *request) error {
	prefix, err := q.Prefix()
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Whole(nomadrows.Allocations, func(v nomadrows.View) (any, error) {
		return q.AllocationList(v, func(yield func(*jobs.Allocation) bool) {
			for a := range v.State().Allocations() {
				if nomadrows.HasPrefix(a.ID, prefix) && q.Sees(a.Job.Namespace, nomadrows.ReadJob) && !yield(a) {
					return
				}
			}
		})
	}))
}

// shown is an allocation with what its node says of its network.
type shown struct {
	*jobwire.Allocation
	NetworkStatus json.RawMessage `json:",omitempty"`
}

func get(q *request) error {
	return nomadrows.One(q, "alloc", nomadrows.Object[*jobs.Allocation]{
		Table: nomadrows.Allocations, Missing: "alloc not found", Right: nomadrows.ReadJob,
		Find:      func(v nomadrows.View, id jobs.ID) *jobs.Allocation { return v.State().Allocation(id) },
		Modified:  func(a *jobs.Allocation) uint64 { return a.ModifyIndex },
		Namespace: func(a *jobs.Allocation) string { return a.Job.Namespace },
		Show: func(v nomadrows.View, a *jobs.Allocation) (any, error) {
			w := jobwire.FromAllocation(a, nomadrows.NodeOf(v, a.NodeID), jobwire.FromJob(a.Job))
			w.TaskStates = v.Tasks(a.ID)
			return shown{w, v.Network(a.ID)}, nil
		},
	})
}

// find is the allocation of a call, for those who have the right in its namespace.
func find(q *request, what nomadrows.Capability, missing string) (*jobs.Allocation, error) {
	id, err := q.ID("alloc")
	if err != nil {
		return nil, err
	}
	v, err := q.Views.View(q.Ctx(), true)
	if err != nil {
		return nil, err
	}
	a := v.State().Allocation(id)
	if a == nil { // it may be newer than what this server has
		if a, err = await(q, id, v.State().Index()); err != nil {
			return nil, err
		}
	}
	if a == nil {
		return nil, nomadrows.NotFound(missing)
	}
	return a, q.May(a.Job.Namespace, what)
}

// awaitLimit is how long a server that does not lead waits for an allocation that it does not know.
const awaitLimit = 2 * time.Second

// await is an allocation that this server did not know at index, nil where there is none.
func await(q *request, id jobs.ID, index uint64) (*jobs.Allocation, error) {
	v, err := q.Views.View(q.Ctx(), false)
	switch {
	case err == nil:
		return v.State().Allocation(id), nil
	case !errkind.Is(err, errkind.NotLeader):
		return nil, err
	}
	ctx, cancel := context.WithTimeout(q.Ctx(), awaitLimit)
	defer cancel()
	for {
		q.Views.Wait(ctx, nomadrows.Watch{Table: nomadrows.Allocations, ID: id}, index)
		if v, err = q.Views.View(q.Ctx(), true); err != nil {
			return nil, err
		}
		if a := v.State().Allocation(id); a != nil || ctx.Err() != nil {
			return a, nil
		}
		index = v.State().Index()
	}
}

// unknown is what calls to nodes answer where there is no such allocation.
func unknown(q *request) string { return "Unknown allocation \"" + q.Args["alloc"] + "\"" }

func stop(q *request) error {
	a, err := find(q, nomadrows.AllocLifecycle, "alloc not found")
	if err != nil {
		return err
	}
	quick, err := q.Flag("no_shutdown_delay")
	if err != nil {
		return err
	}
	w, err := q.Starter.StopAllocation(q.Ctx(), a.ID, quick)
	if err != nil {
		return nomadrows.Missing(err)
	}
	return q.Wrote(w.Index, struct {
		EvalID string
		Index  uint64
	}{w.Eval.String(), w.Index})
}

func services(q *request) error {
	id, err := q.ID("alloc")
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Whole(nomadrows.Services, func(v nomadrows.View) (any, error) {
		a := v.State().Allocation(id)
		if a == nil {
			return nil, nomadrows.NotFound("alloc not found")
		}
		if err := q.May(a.Job.Namespace, nomadrows.ReadJob); err != nil {
			return nil, err
		}
		return ofAllocation(v.Services(a.Job.Namespace), id.String()), nil
	}))
}

func ofAllocation(all iter.Seq[*nomadrows.Service], id string) []*nomadrows.Service {
	list := []*nomadrows.Service{}
	for s := range all {
		if s.AllocID == id {
			list = append(list, s)
		}
	}
	return list
}

// done is the answer of calls that have none.
type done struct{ Index uint64 }

// ask calls the node of an allocation.
func ask(q *request, a *jobs.Allocation, method string, in, out any) error {
	return reached(q.Clients.Ask(q.Ctx(), a.NodeID, method, in, out))
}

// reached gives an error of a node its status.
func reached(err error) error {
	switch errkind.Of(err) {
	case errkind.NotFound:
		return nomadrows.NotFound(errkind.Text(err))
	case errkind.Invalid:
		return nomadrows.BadRequest("%s", errkind.Text(err))
	case errkind.Denied: // a path that leads out of the allocation: stock says 500
		return nomadrows.Failed("%s", errkind.Text(err))
	}
	return err
}

func restart(q *request) error {
	body, err := nomadrows.DecodeOr[struct {
		TaskName string
		AllTasks bool
	}](q)
	if err != nil {
		return err
	}
	a, err := find(q, nomadrows.AllocLifecycle, unknown(q))
	if err != nil {
		return err
	}
	if body.TaskName != "" && body.AllTasks {
		return nomadrows.BadRequest("either a task or all tasks can be restarted, not both")
	}
	call := nomadrows.TaskCall{AllocID: a.ID.String(), Task: body.TaskName, AllTasks: body.AllTasks}
	if err := ask(q, a, nomadrows.CallRestart, call, nil); err != nil {
		return err
	}
	return q.JSON(done{})
}

func signal(q *request) error {
	body, err := nomadrows.DecodeOr[struct{ Task, Signal string }](q)
	if err != nil {
		return err
	}
	a, err := find(q, nomadrows.AllocLifecycle, unknown(q))
	if err != nil {
		return err
	}
	call := nomadrows.TaskCall{AllocID: a.ID.String(), Task: body.Task, Signal: body.Signal}
	if err := ask(q, a, nomadrows.CallSignal, call, nil); err != nil {
		return err
	}
	return q.JSON(done{})
}

// passed sends a node's answer on as it is.
func passed(q *request, what nomadrows.Capability, method string) error {
	a, err := find(q, what, unknown(q))
	if err != nil {
		return err
	}
	var answer json.RawMessage
	call := nomadrows.TaskCall{AllocID: a.ID.String(), Task: q.Query.Value("task")}
	if err := ask(q, a, method, call, &answer); err != nil {
		return err
	}
	return q.JSON(answer)
}

func stats(q *request) error { return passed(q, nomadrows.ReadJob, nomadrows.CallAllocStats) }

func checks(q *request) error { return passed(q, nomadrows.ReadJob, nomadrows.CallChecks) }

func collect(q *request) error {
	a, err := find(q, nomadrows.SubmitJob, unknown(q))
	if err != nil {
		return err
	}
	return ask(q, a, nomadrows.CallCollect, nomadrows.TaskCall{AllocID: a.ID.String()}, nil)
}

// node is the node of a call that names one, or that of this process.
func node(q *request) (jobs.ID, error) {
	return named(q, q.Query.Value("node_id"))
}

func named(q *request, text string) (jobs.ID, error) {
	if text == "" {
		if id := q.Cluster.Self().Node; !id.IsZero() {
			return id, nil
		}
		return jobs.ID{}, nomadrows.BadRequest("this server runs no allocations: say which node with node_id")
	}
	id, ok := nomadrows.ParseID(text)
	if !ok {
		return id, nomadrows.Failed("Unknown node %q", text)
	}
	return id, nil
}

func hostStats(q *request) error {
	id, err := node(q)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := reached(q.Clients.Ask(q.Ctx(), id, nomadrows.CallHostStats, struct{}{}, &answer)); err != nil {
		return err
	}
	return q.JSON(answer)
}

func collectAll(q *request) error {
	id, err := node(q)
	if err != nil {
		return err
	}
	return reached(q.Clients.Ask(q.Ctx(), id, nomadrows.CallCollect, nomadrows.TaskCall{}, nil))
}
