package jobsplane

import (
	"context"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs/jobpack"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
)

// groupID is the number of the plane's Raft group on the wire.
const groupID = 5

// methodPropose is the RPC by which a command reaches the leader of the plane.
const methodPropose = "jobs.propose"

// groupState is the plane's Raft group with its state. It is written on any server, by way of the leader.
type groupState struct {
	raft   *raftgroup.Group
	store  *jobstore.Store
	writer *raftgroup.Writer[*jobstore.Result]
}

func newGroup(d *plane.Doors, store *jobstore.Store) *groupState {
	g := &groupState{store: store}
	g.raft = d.Group(groupID, store)
	g.writer = raftgroup.NewWriter(g.raft, methodPropose, raftgroup.Answers[*jobstore.Result]{
		Of: func(made any) (*jobstore.Result, error) {
			r := made.(*jobstore.Result)
			return r, r.Err
		},
		Append: func(b []byte, r *jobstore.Result) []byte { return jobpack.Append(b, &r.Done) },
		Read: func(r *pack.Reader) *jobstore.Result {
			out := &jobstore.Result{}
			jobpack.Read(r, &out.Done)
			return out
		},
		Index:   func() uint64 { return store.View().State.Index() },
		Changed: func() <-chan struct{} { return store.Ring().Grown() },
	})
	d.Handle(wire.Servers, methodPropose, g.writer.Serve)
	return g
}

// propose commits a command. It returns once this server's View has it.
func (g *groupState) propose(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error) {
	if c.Now == 0 {
		panic("jobsplane: a command without its time")
	}
	return done(g.writer.Do(ctx, c.Encode()))
}

// here commits a command on this server, or fails at once: for the leader's own work.
func (g *groupState) here(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error) {
	return done(g.writer.Here(ctx, c.Encode()))
}

// done leaves no answer beside an error.
func done(r *jobstore.Result, err error) (*jobstore.Result, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}
