package node

import (
	"context"
	"errors"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/shardrouter"
	"corbel.dev/corbel/monitor/users"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/raftgroup"
)

// monitorGroupID is the number of the monitor plane's Raft group on the wire; 2 is that of the secrets plane.
const monitorGroupID = 3

// monitorGroupName is its name.
const monitorGroupName = "monitor"

// tagMonitor in a server's gossip tags says that it is to be a member of the monitor plane.
const tagMonitor = "monitor"

// tagMonitorAgents tells where a server takes agents: ws or wss, a colon, and the port.
const tagMonitorAgents = "monitor_agents"

// methodMonitorPropose is the RPC by which a command reaches the leader of the plane.
const methodMonitorPropose = "monitor.propose"

// monitorGroup is the plane's group as its configuration writes through it: on any server, by way of the leader.
type monitorGroup struct{ m *monitorPlane }

// Propose implements resources.Group. It returns once this server has the command too.
func (g *monitorGroup) Propose(ctx context.Context, cmd []byte) (any, error) {
	m := g.m
	ctx, cancel := context.WithTimeout(ctx, m.p.Cfg.Limits.RPCClient)
	defer cancel()
	giveUp := m.p.Clock.Now().Add(m.p.Cfg.Raft.RPCHold)
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		changes := m.raft.LeaderChanges()
		out, err := g.try(ctx, cmd)
		if !errkind.Is(err, errkind.NotLeader) && !errkind.Is(err, errkind.Unavailable) || ctx.Err() != nil ||
			m.p.Clock.Now().After(giveUp) {
			return out, err
		}
		t := m.p.Clock.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
		case <-changes:
		case <-t.C:
		}
		t.Stop()
	}
}

func (g *monitorGroup) try(ctx context.Context, cmd []byte) (any, error) {
	m := g.m
	if m.raft.IsLeader() {
		return m.raft.Propose(ctx, cmd)
	}
	addr := m.raft.LeaderAddr()
	if addr == "" || addr == m.p.RPCAddr() {
		return nil, raftgroup.ErrForming
	}
	reply, err := m.p.RPC.Call(ctx, addr, methodMonitorPropose, cmd)
	if err != nil {
		return nil, err
	}
	r := pack.Read(reply)
	index, conflict := r.Uint(), r.Bool()
	refused := error(nil)
	if r.Bool() {
		refused = errkind.New(errkind.Kind(r.Uint()), r.String())
		if conflict {
			refused = objects.ErrPrecondition
		}
	}
	if r.Err() != nil {
		return nil, errkind.E(errkind.Unknown, methodMonitorPropose, r.Err())
	}
	return refused, m.reach(ctx, index)
}

// reach waits until this server's view has index.
func (m *monitorPlane) reach(ctx context.Context, index uint64) error {
	for {
		changed := m.resources.Changed()
		if m.resources.View().Index() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errkind.E(errkind.Unknown, "the change was made; this server does not show it yet", ctx.Err())
		}
	}
}

// propose serves methodMonitorPropose on the leader.
func (m *monitorPlane) propose(ctx context.Context, cmd []byte) ([]byte, error) {
	out, err := m.raft.Propose(ctx, cmd)
	if err != nil {
		return nil, err
	}
	refused, _ := out.(error)
	b := pack.Uint(nil, m.resources.View().Index())
	b = pack.Bool(b, errors.Is(refused, objects.ErrPrecondition))
	b = pack.Bool(b, refused != nil)
	if refused != nil {
		b = pack.Uint(b, uint64(errkind.Of(refused)))
		b = pack.String(b, errkind.Text(refused))
	}
	return b, nil
}

// errInitialized is the answer to who would initialize a plane that is so already.
var errInitialized = errkind.New(errkind.Conflict, "the monitor plane has been initialized before")

// initialize makes an empty plane usable: the seed in one command, so that it is there whole or not at all.
func (m *monitorPlane) initialize(ctx context.Context, admin, password, apiKey string) error {
	if m.resources.View().Get("namespaces", "", "default") != nil {
		return errInitialized
	}
	ops, err := users.Seed(admin, password, apiKey, 0, m.p.Clock.Now().Unix())
	if err != nil {
		return errkind.E(errkind.Invalid, "password", err)
	}
	err = m.resources.Write(ctx, ops...)
	if errkind.Is(err, errkind.Conflict) {
		return errInitialized
	}
	return err
}

// newShardRouter makes the plane's sharing of events among servers.
func newShardRouter(m *monitorPlane) *shardrouter.Router {
	return shardrouter.New(shardrouter.Config{Self: m.p.ID, Resources: m.resources, Members: m.members, Call: m.p.RPC.Call,
		Forwarded: m.forwarded, Log: m.log, Now: m.p.Clock.Now,
		Leads: func() bool { g := m.raft.Raft.Load(); return g != nil && g.LeaseHeld() },
		Ready: func() bool { return m.raft.LeaderAddr() != "" && m.raft.LastContact() <= raftgroup.Silent }})
}

// members lists the servers of the plane.
func (m *monitorPlane) members() (list []shardrouter.Member) {
	for _, s := range m.p.Pool.Members(member.ActAskServer) {
		if s.Tags[tagMonitor] != "" {
			list = append(list, shardrouter.Member{ID: s.Tags["id"], Name: s.Name, Addr: base.MemberRPC(s),
				Left: s.Status == member.Left, Leaving: s.Tags[base.TagAway] == "drains"})
		}
	}
	return list
}
