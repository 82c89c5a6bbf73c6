package catalogplane

import (
	"context"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/raftgroup"
)

// Operator is the catalog's Raft group as its operators see it; Others are the groups of other planes, without which
// no server may be taken away either.
type Operator struct {
	Raft   *raftgroup.Group
	Others func() []*raftgroup.Group
}

func (o Operator) group() (*group.Group, error) {
	if g := o.Raft.Raft.Load(); g != nil {
		return g, nil
	}
	return nil, raftgroup.ErrForming
}

// Leader implements operatorrows.Operator.
func (o Operator) Leader() string { return o.Raft.LeaderAddr() }

// Peers implements operatorrows.Operator.
func (o Operator) Peers() []string {
	g, err := o.group()
	if err != nil {
		return nil
	}
	servers, _, err := g.Configuration()
	if err != nil {
		return nil
	}
	var list []string
	for _, s := range servers {
		list = append(list, s.Address)
	}
	return list
}

// Configuration implements operatorrows.Operator.
func (o Operator) Configuration() ([]operatorrows.RaftServer, uint64, error) {
	g, err := o.group()
	if err != nil {
		return nil, 0, err
	}
	servers, index, err := g.Configuration()
	if err != nil {
		return nil, 0, err
	}
	leader, _ := g.Leader()
	health := o.health()
	names := map[string]string{}
	for _, m := range o.Raft.Base.Pool.Members(member.ActAskServer) {
		names[m.Tags["id"]] = m.Name
	}
	var list []operatorrows.RaftServer
	for _, s := range servers {
		row := operatorrows.RaftServer{ID: s.ID, Node: names[s.ID], Address: s.Address, Leader: s.ID == leader,
			Voter: s.Voter}
		if row.Node == "" {
			row.Node = "(unknown)"
		}
		if h, ok := health[s.ID]; ok {
			row.LastIndex = h.LastIndex
		}
		if s.ID == o.Raft.Base.ID {
			row.LastIndex = g.AppliedIndex()
		}
		list = append(list, row)
	}
	return list, index, nil
}

func (o Operator) health() map[string]group.ServerHealth {
	if pilot := o.Raft.Pilot.Load(); pilot != nil {
		if state, ok := pilot.State(); ok {
			return state.Servers
		}
	}
	return nil
}

// TransferLeader implements operatorrows.Operator.
func (o Operator) TransferLeader(ctx context.Context, id string) error {
	g, err := o.group()
	if err != nil {
		return err
	}
	return g.TransferLeadership(ctx, id)
}

// AutopilotHealth implements operatorrows.Operator. Healthy and FailureTolerance are of all groups: who waits for them
// before the next server is taken away, or its disk, must not take the quorum of another plane's group. A group that is
// too small to spare anybody does not count: an upgrade to a release with a new plane would wait for ever.
func (o Operator) AutopilotHealth() operatorrows.AutopilotHealth {
	pilot := o.Raft.Pilot.Load()
	if pilot == nil {
		return operatorrows.AutopilotHealth{}
	}
	state, ok := pilot.State()
	if !ok {
		return operatorrows.AutopilotHealth{}
	}
	h := operatorrows.AutopilotHealth{Healthy: state.Healthy, FailureTolerance: state.FailureTolerance}
	for _, p := range o.Others() {
		v, known := p.Votes()
		if known {
			h.Healthy = h.Healthy && v.Whole
		}
		if known && !v.Small {
			h.FailureTolerance = min(h.FailureTolerance, v.Spare)
		}
	}
	for _, s := range state.Servers {
		h.Servers = append(h.Servers, operatorrows.ServerHealth{ID: s.ID, Name: s.Name, Address: s.Address,
			SerfStatus: memberStatus(o.Raft.Base.Pool, s.ID), NodeStatus: string(s.Status), Replica: s.Replica,
			Version: s.Version,
			Leader:  s.Leader, Voter: s.Voter, Healthy: s.Healthy,
			LastContact: s.LastContact, LastTerm: s.LastTerm, LastIndex: s.LastIndex, StableSince: s.StableSince})
	}
	return h
}

// Autopilot implements operatorrows.Operator.
func (o Operator) Autopilot() operatorrows.AutopilotConfig {
	return o.Raft.PilotConfig(o.Raft.Registry.State())
}

// SetAutopilot implements operatorrows.Operator.
func (o Operator) SetAutopilot(ctx context.Context, c operatorrows.AutopilotConfig, cas bool) (bool, error) {
	if err := raftgroup.GroupPilot(c).Check(); err != nil {
		return false, err
	}
	op := catalog.RecordOp{Verb: catalog.RecordSet,
		Record: catalog.Record{Kind: catalog.RecordAutopilot, Key: raftgroup.PilotKey, Value: raftgroup.EncodePilot(&c)}}
	if cas {
		op.Verb, op.Record.ModifyIndex = catalog.RecordCAS, c.ModifyIndex
	}
	result, err := o.Raft.Registry.Apply(ctx, &catalog.Records{Ops: []catalog.RecordOp{op}})
	if err == nil {
		err = result.Err
	}
	if err != nil {
		return false, errkind.E(errkind.Of(err), "set autopilot's configuration", err)
	}
	return result.OK, nil
}

func memberStatus(pool *member.Pool, id string) string {
	for _, m := range pool.Members(member.ActShow) {
		if m.Tags["id"] == id {
			return m.Status.String()
		}
	}
	return "none"
}
