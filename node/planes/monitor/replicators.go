package monitorplane

import (
	"context"
	"encoding/json"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/monitor/mirror"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
)

// MethodReplicators asks the plane's leader what came of its replicators.
const MethodReplicators = "monitor.replicators"

// replicators copies objects from other clusters, on the server that leads the plane.
type replicators struct {
	*mirror.Mirror
	b    *base.Base
	raft *raftgroup.Group
}

func newReplicators(d *plane.Doors, g *Group) *replicators {
	x := &replicators{b: d.Base, raft: g.Raft, Mirror: mirror.New(mirror.Config{Resources: g.Resources,
		Leads: g.Raft.LeaseHeld, Cluster: func() string { return clusterID(d) }, Now: d.Clock.Now, Log: d.Log})}
	d.Handle(wire.Servers, MethodReplicators,
		func(context.Context, []byte) ([]byte, error) { return json.Marshal(x.Status()) })
	return x
}

// all tells what came of the replicators, whichever server leads.
func (x *replicators) all(ctx context.Context) (list []mirror.Status, err error) {
	if x.raft.IsLeader() {
		return x.Status(), nil
	}
	addr := x.raft.LeaderAddr()
	if addr == "" || addr == x.b.RPCAddr() {
		return nil, raftgroup.ErrForming
	}
	b, err := x.b.RPC.Call(ctx, addr, MethodReplicators, nil)
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	return list, err
}

// meter exports what the leader copies; the other servers have nothing to tell.
func (x *replicators) meter(stat gauge) {
	sum := func(pick func(mirror.Status) uint64) func() float64 {
		return func() float64 {
			n := uint64(0)
			for _, s := range x.Status() {
				n += pick(s)
			}
			return float64(n)
		}
	}
	stat("replicator_rounds", "Rounds of all replicators, on the server that leads.",
		sum(func(s mirror.Status) uint64 { return s.Rounds }))
	stat("replicator_rounds_failed", "Such that did not get the whole list of their source, or could not write all of it.",
		sum(func(s mirror.Status) uint64 { return s.Failed }))
	stat("replicator_objects_written", "Objects that were copied from other clusters.",
		sum(func(s mirror.Status) uint64 { return s.Written }))
	stat("replicator_objects_deleted", "Objects that were deleted since their source has them no more.",
		sum(func(s mirror.Status) uint64 { return s.Deleted }))
	stat("replicator_objects_refused", "Objects that could not be written or deleted, each time.",
		sum(func(s mirror.Status) uint64 { return s.Refused }))
	stat("replicators_failing", "Replicators whose newest round failed.", sum(func(s mirror.Status) uint64 {
		if s.Error != "" {
			return 1
		}
		return 0
	}))
}
