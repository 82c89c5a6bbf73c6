package node

import (
	"context"
	"encoding/json"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/monitor/mirror"
	"corbel.dev/corbel/node/raftgroup"
)

// methodMonitorReplicators asks the plane's leader what came of its replicators.
const methodMonitorReplicators = "monitor.replicators"

// buildMirror makes what copies objects from other clusters.
func (m *monitorPlane) buildMirror() {
	m.mirror = mirror.New(mirror.Config{
		Resources: m.resources, Leads: m.raft.LeaseHeld, Cluster: func() string { return m.cluster().ID }, Now: m.p.Clock.Now,
		Log: m.log,
	})
	m.p.RPCSrv.Handle(wire.Servers, methodMonitorReplicators,
		func(context.Context, []byte) ([]byte, error) { return json.Marshal(m.mirror.Status()) })
}

// replicators tells what came of the replicators, whichever server leads.
func (m *monitorPlane) replicators(ctx context.Context) (list []mirror.Status, err error) {
	if m.raft.IsLeader() {
		return m.mirror.Status(), nil
	}
	addr := m.raft.LeaderAddr()
	if addr == "" || addr == m.p.RPCAddr() {
		return nil, raftgroup.ErrForming
	}
	b, err := m.p.RPC.Call(ctx, addr, methodMonitorReplicators, nil)
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	return list, err
}

// meterMirror exports what the leader copies; the other servers have nothing to tell.
func (m *monitorPlane) meterMirror(stat func(name, help string, f func() float64, labels ...string)) {
	sum := func(pick func(mirror.Status) uint64) func() float64 {
		return func() float64 {
			n := uint64(0)
			for _, s := range m.mirror.Status() {
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
