package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/shardrouter"
	"corbel.dev/corbel/monitor/users"
	"corbel.dev/corbel/node/base"
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

func newMonitorRaft(p *Process, machine *resources.Resources) *raftPlane {
	r := &raftPlane{b: p.Base, name: monitorGroupName, number: monitorGroupID, machine: machine, registry: p.registry,
		listener: p.Wire.Listen(wire.ProtoRaft, monitorGroupID, wire.Servers),
		opened:   make(chan struct{}), joinedFile: "monitor-joined", joinedTag: "monitor_joined",
		takesPart: func(m member.Member) bool { return m.Tags[tagMonitor] != "" }}
	r.first = func(ctx context.Context) ([]group.Server, bool) { return p.monitorFounders(ctx, r) }
	return r
}

// foundersKey is the record of the catalog, of kind RecordSystem, that says with which servers the monitor's group
// began. The plane may be switched on years after the cluster was founded, on one server after the other: the catalog
// decides, once, who begins it, and whoever is not among them joins.
const foundersKey = "monitor-founders"

// gatherFounders is how long the catalog's leader waits for all servers to have the plane before it begins with those
// that do.
const gatherFounders = 5 * time.Second

// monitorFounders says with whom to begin the plane's group; an empty list joins one that exists or goes on with the
// state on disk.
func (p *Process) monitorFounders(ctx context.Context, r *raftPlane) ([]group.Server, bool) {
	if r.joined() {
		return nil, true
	}
	began, silent := p.Clock.Now(), map[string]time.Time{}
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		if list, ok := p.readFounders(); ok {
			return list, true
		}
		if p.raft.LeaseHeld() {
			if list := r.confirmed(ctx, p.couldFound(p.Clock.Since(began) > gatherFounders), silent); len(list) > 0 {
				if err := p.writeFounders(ctx, list); err != nil && ctx.Err() == nil {
					p.Log.Debug("the monitor plane could not be founded yet", "error", err)
				}
			}
		}
		t := p.Clock.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, false
		}
	}
}

// readFounders returns with whom the group begins, an empty list where this server is none of them. A record of
// servers that are all gone, as a restored snapshot of another cluster has, says nothing.
func (p *Process) readFounders() ([]group.Server, bool) {
	record := p.registry.State().Record(catalog.RecordSystem, foundersKey)
	if record == nil {
		return nil, false
	}
	list := decodeFounders(record.Value)
	if slices.ContainsFunc(list, func(s group.Server) bool { return s.ID == p.ID }) {
		return list, true
	}
	for _, m := range p.Pool.Members(member.ActSuggestServer) {
		if m.Tags["monitor_joined"] != "" || slices.ContainsFunc(list,
			func(s group.Server) bool { return s.ID == m.Tags["id"] }) {
			return nil, true
		}
	}
	return nil, false
}

// couldFound lists the servers that would begin the group now; nil is to wait for more.
func (p *Process) couldFound(waited bool) (list []group.Server) {
	for _, m := range p.Pool.Members(member.ActSuggestServer) {
		switch {
		case m.Status != member.Alive:
		case m.Tags["monitor_joined"] != "": // the group is there
			return nil
		case m.Tags["read_replica"] == "1":
		case m.Tags[tagMonitor] != "":
			list = append(list, group.Server{ID: m.Tags["id"], Address: base.MemberRPC(m), Voter: true})
		case !waited:
			return nil
		}
	}
	slices.SortFunc(list, func(a, b group.Server) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (p *Process) writeFounders(ctx context.Context, list []group.Server) error {
	ctx, cancel := context.WithTimeout(ctx, foundingTimeout)
	defer cancel()
	r := catalog.Record{Kind: catalog.RecordSystem, Key: foundersKey, Value: encodeFounders(list)}
	if old := p.registry.State().Record(r.Kind, r.Key); old != nil {
		r.ModifyIndex = old.ModifyIndex
	}
	_, _, err := p.registry.SetRecords(ctx, catalog.RecordOp{Verb: catalog.RecordCAS, Record: r})
	return err
}

func encodeFounders(list []group.Server) []byte {
	b, mark := pack.Begin(nil)
	b = pack.Uint(b, uint64(len(list)))
	for _, s := range list {
		b = pack.String(pack.String(b, s.ID), s.Address)
	}
	return pack.End(b, mark)
}

func decodeFounders(b []byte) (list []group.Server) {
	outer := pack.Read(b)
	r := outer.Record()
	for n := r.Count(); n > 0 && r.Err() == nil; n-- {
		list = append(list, group.Server{ID: r.String(), Address: r.String(), Voter: true})
	}
	if r.Err() != nil || outer.Err() != nil {
		return nil
	}
	return list
}

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
	addr := m.raft.leaderAddr()
	if addr == "" || addr == m.p.RPCAddr() {
		return nil, errForming
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
		Leads: func() bool { g := m.raft.group.Load(); return g != nil && g.LeaseHeld() },
		Ready: func() bool { return m.raft.leaderAddr() != "" && m.raft.LastContact() <= silentLeader }})
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
