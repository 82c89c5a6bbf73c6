package jobsplane

import (
	"context"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs/jobpack"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/errkind/errwire"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
)

// groupID is the number of the plane's Raft group on the wire.
const groupID = 5

// methodPropose is the RPC by which a command reaches the leader of the plane.
const methodPropose = "jobs.propose"

// groupState is the plane's Raft group with its state. It is written on any server, by way of the leader.
type groupState struct {
	b     *base.Base
	raft  *raftgroup.Group
	store *jobstore.Store
}

func newGroup(d *plane.Doors, store *jobstore.Store) *groupState {
	g := &groupState{b: d.Base, store: store}
	g.raft = d.Group(groupID, store)
	d.Handle(wire.Servers, methodPropose, g.serve)
	return g
}

// propose commits a command. It returns once this server's View has it.
func (g *groupState) propose(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error) {
	if c.Now == 0 {
		panic("jobsplane: a command without its time")
	}
	ctx, cancel := context.WithTimeout(ctx, g.b.Cfg.Limits.RPCClient)
	defer cancel()
	raw := c.Encode()
	giveUp := g.b.Clock.Now().Add(g.b.Cfg.Raft.RPCHold)
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		changes := g.raft.LeaderChanges()
		out, err := g.try(ctx, raw)
		if err == nil && out.Err != nil {
			return nil, out.Err
		}
		if !errkind.Is(err, errkind.NotLeader) && !errkind.Is(err, errkind.Unavailable) || ctx.Err() != nil ||
			g.b.Clock.Now().After(giveUp) {
			return out, err
		}
		t := g.b.Clock.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
		case <-changes:
		case <-t.C:
		}
		t.Stop()
	}
}

// here commits a command on this server, or fails at once: for the leader's own work.
func (g *groupState) here(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, g.b.Cfg.Limits.RPCClient)
	defer cancel()
	out, err := g.raft.Propose(ctx, c.Encode())
	if err != nil {
		return nil, err
	}
	r := out.(*jobstore.Result)
	if r.Err != nil {
		return nil, r.Err
	}
	return r, nil
}

func (g *groupState) try(ctx context.Context, raw []byte) (*jobstore.Result, error) {
	if g.raft.IsLeader() {
		out, err := g.raft.Propose(ctx, raw)
		if err != nil {
			return nil, err
		}
		return out.(*jobstore.Result), nil
	}
	addr := g.raft.LeaderAddr()
	if addr == "" || addr == g.b.RPCAddr() {
		return nil, raftgroup.ErrForming
	}
	reply, err := g.b.RPC.Call(ctx, addr, methodPropose, raw)
	if err != nil {
		return nil, err
	}
	r := pack.Read(reply)
	out := &jobstore.Result{}
	if r.Bool() {
		out.Err = errwire.Read(r)
		return out, nil
	}
	jobpack.Read(r, &out.Done)
	if r.Err() != nil {
		return nil, errkind.E(errkind.Unknown, methodPropose, r.Err())
	}
	return out, g.reach(ctx, out.Index)
}

// reach waits until this server's View has index.
func (g *groupState) reach(ctx context.Context, index uint64) error {
	for {
		grown := g.store.Ring().Grown()
		if g.store.View().State.Index() >= index {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return errkind.E(errkind.Unknown, "the change was made; this server does not show it yet", ctx.Err())
		}
	}
}

// serve answers methodPropose on the leader.
func (g *groupState) serve(ctx context.Context, raw []byte) ([]byte, error) {
	out, err := g.raft.Propose(ctx, raw)
	if err != nil {
		return nil, err
	}
	r := out.(*jobstore.Result)
	b := pack.Bool(nil, r.Err != nil)
	if r.Err != nil {
		return errwire.Append(b, r.Err, 0), nil
	}
	return jobpack.Append(b, &r.Done), nil
}

// atLeader calls a method of the leader; nobody leads is Unavailable.
func (g *groupState) atLeader(ctx context.Context, method string, req []byte) ([]byte, error) {
	addr := g.raft.LeaderAddr()
	if addr == "" || addr == g.b.RPCAddr() {
		return nil, raftgroup.ErrForming
	}
	return g.b.RPC.Call(ctx, addr, method, req)
}
