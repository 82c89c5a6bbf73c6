package node

import (
	"context"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
)

// operator is the catalog's Raft group as its operators see it; others are the groups of other planes, without which
// no server may be taken away either.
type operator struct {
	raft   *raftPlane
	others func() []*raftPlane
}

func newOperator(p *Process) operator {
	return operator{raft: p.raft, others: func() []*raftPlane { // the planes are built later
		if p.monitor == nil {
			return nil
		}
		return []*raftPlane{p.monitor.raft}
	}}
}

func (o operator) group() (*group.Group, error) {
	if g := o.raft.group.Load(); g != nil {
		return g, nil
	}
	return nil, errForming
}

// Leader implements operatorrows.Operator.
func (o operator) Leader() string { return o.raft.leaderAddr() }

// Peers implements operatorrows.Operator.
func (o operator) Peers() []string {
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
func (o operator) Configuration() ([]operatorrows.RaftServer, uint64, error) {
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
	for _, m := range o.raft.b.Pool.Members(member.ActAskServer) {
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
		if s.ID == o.raft.b.ID {
			row.LastIndex = g.AppliedIndex()
		}
		list = append(list, row)
	}
	return list, index, nil
}

func (o operator) health() map[string]group.ServerHealth {
	if pilot := o.raft.autopilot.Load(); pilot != nil {
		if state, ok := pilot.State(); ok {
			return state.Servers
		}
	}
	return nil
}

// TransferLeader implements operatorrows.Operator.
func (o operator) TransferLeader(ctx context.Context, id string) error {
	g, err := o.group()
	if err != nil {
		return err
	}
	return g.TransferLeadership(ctx, id)
}

// AutopilotHealth implements operatorrows.Operator. Healthy and FailureTolerance are of all groups: who waits for them
// before the next server is taken away, or its disk, must not take the quorum of another plane's group.
func (o operator) AutopilotHealth() operatorrows.AutopilotHealth {
	pilot := o.raft.autopilot.Load()
	if pilot == nil {
		return operatorrows.AutopilotHealth{}
	}
	state, ok := pilot.State()
	if !ok {
		return operatorrows.AutopilotHealth{}
	}
	h := operatorrows.AutopilotHealth{Healthy: state.Healthy, FailureTolerance: state.FailureTolerance}
	for _, p := range o.others() {
		whole, tolerance, known := p.votes()
		if known {
			h.Healthy, h.FailureTolerance = h.Healthy && whole, min(h.FailureTolerance, tolerance)
		}
	}
	for _, s := range state.Servers {
		h.Servers = append(h.Servers, operatorrows.ServerHealth{ID: s.ID, Name: s.Name, Address: s.Address,
			SerfStatus: memberStatus(o.raft.b.Pool, s.ID), NodeStatus: string(s.Status), Replica: s.Replica, Version: s.Version,
			Leader: s.Leader, Voter: s.Voter, Healthy: s.Healthy,
			LastContact: s.LastContact, LastTerm: s.LastTerm, LastIndex: s.LastIndex, StableSince: s.StableSince})
	}
	return h
}

// votes says of a group, as this member of it sees it, whether all living servers that are to vote do, and how many
// voters may fail before it has no quorum.
func (p *raftPlane) votes() (whole bool, tolerance int, known bool) {
	g := p.group.Load()
	if g == nil {
		return false, 0, false
	}
	servers, _, err := g.Configuration()
	if err != nil || len(servers) == 0 {
		return false, 0, false
	}
	whole, tolerance = countVotes(servers, p.b.Pool.Members(member.ActSuggestServer), p.takesPart)
	return whole, tolerance, true
}

func countVotes(servers []group.Server, pool []member.Member, takesPart func(member.Member) bool) (whole bool,
	tolerance int) {
	votes, voters := map[string]bool{}, 0
	for _, s := range servers {
		if votes[s.ID] = s.Voter; s.Voter {
			voters++
		}
	}
	whole, living := true, 0
	for _, m := range pool {
		switch id := m.Tags["id"]; {
		case m.Status != member.Alive:
		case votes[id]:
			living++
		case takesPart(m) && m.Tags["read_replica"] != "1":
			whole = false
		}
	}
	return whole && living == voters, max(living-(voters/2+1), 0)
}
