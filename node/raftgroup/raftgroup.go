// Package raftgroup runs a plane's Raft group on a server: with whom it begins, who becomes a member as gossip suggests
// and the servers themselves confirm, with autopilot by the configuration in the catalog. New is the catalog's own
// group, NewOf that of any other plane. Until the group is open nobody leads, as far as it can tell.
package raftgroup

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/base"
)

// CatalogID is the number of the catalog plane's Raft group on the wire.
const CatalogID = 1

// Group runs a plane's Raft group on a server. A new member of a
// cluster that is still forming has no group until it has seen all the servers
// it expects; until then nobody leads as far as it can tell.
type Group struct {
	Base     *base.Base
	Name     string // of the group, and of its folder
	number   uint8  // of the group on the wire
	machine  group.Machine
	Registry *registry.Registry // the catalog's machine, which has autopilot's configuration
	catalog  *Group             // its group; nil of the catalog's itself
	listener net.Listener
	// first says with whom to begin the group; see firstMembers.
	first func(context.Context) ([]group.Server, bool)
	// joinedFile and joinedTag say, on disk and in the pool, that this server is a member of the group.
	joinedFile, joinedTag string
	// takesPart says which servers of the pool are to be members.
	takesPart func(member.Member) bool

	Raft    atomic.Pointer[group.Group]
	Pilot   atomic.Pointer[group.Autopilot]
	opened  chan struct{} // closed when group is there
	Leaving atomic.Bool   // this server leaves, and says so to leaders that ask
}

// New is the catalog's.
func New(b *base.Base, machine *registry.Registry) *Group {
	p := &Group{Base: b, Name: "catalog", number: CatalogID, machine: machine, Registry: machine,
		listener: b.Wire.Listen(wire.ProtoRaft, CatalogID, wire.Servers),
		opened:   make(chan struct{}), joinedFile: "joined", joinedTag: "raft_joined",
		takesPart: func(member.Member) bool { return true }}
	p.first = p.firstMembers
	return p
}

// NewOf is the group of another plane. The servers whose configuration has the plane say so with a tag of its name,
// and are its members; the catalog decides, once, with whom it begins.
func NewOf(b *base.Base, of *Group, name string, number uint8, machine group.Machine) *Group {
	p := &Group{Base: b, Name: name, number: number, machine: machine, Registry: of.Registry, catalog: of,
		listener: b.Wire.Listen(wire.ProtoRaft, number, wire.Servers),
		opened:   make(chan struct{}), joinedFile: name + "-joined", joinedTag: name + "_joined",
		takesPart: func(m member.Member) bool { return m.Tags[name] != "" }}
	p.first = p.founders
	return p
}

// ErrForming is the answer while nobody leads.
var ErrForming = errkind.New(errkind.Unavailable, "No cluster leader")

// Propose implements registry.Proposer.
func (p *Group) Propose(ctx context.Context, cmd []byte) (any, error) {
	if g := p.Raft.Load(); g != nil {
		return g.Propose(ctx, cmd)
	}
	return nil, ErrForming
}

// VerifyLeader implements registry.Proposer.
func (p *Group) VerifyLeader(ctx context.Context) error {
	if g := p.Raft.Load(); g != nil {
		return g.VerifyLeader(ctx)
	}
	return ErrForming
}

// Leads returns nil when this server surely leads the group, and its state has all that was acknowledged before: within
// its lease at once, else after a round to a quorum.
func Leads(ctx context.Context, p *Group) error {
	if p.LeaseHeld() {
		return nil
	}
	return p.VerifyLeader(ctx)
}

// LeaseHeld implements registry.Proposer.
func (p *Group) LeaseHeld() bool { g := p.Raft.Load(); return g != nil && g.LeaseHeld() }

// IsLeader implements registry.Proposer.
func (p *Group) IsLeader() bool { g := p.Raft.Load(); return g != nil && g.IsLeader() }

// Leader implements registry.Proposer.
func (p *Group) Leader() (id, addr string) {
	if g := p.Raft.Load(); g != nil {
		return g.Leader()
	}
	return "", ""
}

// LastContact implements registry.Proposer. Before the group is open the state is empty, however young the process.
func (p *Group) LastContact() time.Duration {
	if g := p.Raft.Load(); g != nil {
		return g.LastContact()
	}
	return 1<<63 - 1
}

// Lag is how much older than what the leader has may be what is here.
func (p *Group) Lag() time.Duration {
	if p.IsLeader() {
		return 0
	}
	return p.LastContact()
}

// LeaderChanges implements registry.Proposer.
func (p *Group) LeaderChanges() <-chan struct{} {
	if g := p.Raft.Load(); g != nil {
		return g.LeaderChanges()
	}
	return p.opened
}

// Fsyncs counts the fsyncs of the log since it was opened.
func (p *Group) Fsyncs() uint64 {
	if g := p.Raft.Load(); g != nil {
		return g.Fsyncs()
	}
	return 0
}

func (p *Group) LeaderAddr() string { _, addr := p.Leader(); return addr }

// Run opens the group once its first members are known and runs it with its autopilot.
func (p *Group) Run(ctx context.Context) error {
	first, ok := p.await(ctx)
	if !ok {
		_ = p.listener.Close()
		return nil
	}
	cfg := p.Base.Cfg
	g, err := group.Open(group.Config{
		Name: p.Name, GroupID: p.number, Dir: filepath.Join(cfg.DataDir, "raft", p.Name), FS: p.Base.FS,
		InMemory: cfg.DataDir == "", LocalID: p.Base.ID, LocalAddr: p.Base.RPCAddr(), Listener: p.listener,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return p.Base.Wire.Dial(ctx, addr, wire.ProtoRaft, p.number)
		},
		DialServer: p.DialServer, Statement: p.statement,
		Machine: p.machine, Bootstrap: first, RaftMultiplier: cfg.Raft.Multiplier,
		Compaction: group.Compaction{SnapshotThreshold: uint64(cfg.Raft.SnapshotThreshold),
			SnapshotInterval: cfg.Raft.SnapshotInterval, TrailingLogs: uint64(cfg.Raft.TrailingLogs)},
		Clock: p.Base.Clock, Log: p.Base.Log, Metrics: p.Base.Metrics,
	})
	if err != nil {
		_ = p.listener.Close()
		return err
	}
	pilot := group.NewAutopilot(g, autopilotSource{p.Base.Pool, p.takesPart}, p.firstPilot(), p.forget)
	p.Raft.Store(g)
	p.Pilot.Store(pilot)
	close(p.opened)
	var parts life.Group
	parts.Add("group", g.Run)
	parts.Add("autopilot", pilot.Run)
	parts.Add("autopilot's configuration", p.followPilot)
	parts.Add("servers", p.followMembers)
	return parts.Run(ctx)
}

// firstPilot is autopilot's configuration at the start.
func (p *Group) firstPilot() group.AutopilotConfig {
	return GroupPilot(p.PilotConfig(p.Registry.State()))
}

// forget takes a failed server out of the pool. Gossip must not wait for a disk or a quorum: a failed member is
// forgotten by name.
func (p *Group) forget(id string) {
	for _, m := range p.Base.Pool.Members(member.ActSuggestServer) {
		if m.Tags["id"] == id {
			_ = p.Base.Pool.ForceLeave(m.Name, false)
		}
	}
}

// joined says that this server is a member of a cluster: it must never begin another one.
func (p *Group) joined() bool {
	if p.Base.Cfg.DataDir == "" {
		return false
	}
	_, err := p.Base.FS.Stat(filepath.Join(p.Base.Cfg.DataDir, "raft", p.joinedFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// noteJoined keeps that fact and tells the pool.
func (p *Group) noteJoined(ctx context.Context) {
	if p.Base.Cfg.DataDir != "" && !p.joined() {
		path := filepath.Join(p.Base.Cfg.DataDir, "raft", p.joinedFile)
		if err := vfs.WriteFileAtomic(p.Base.FS, path, []byte("member of a cluster\n"), 0o600); err != nil {
			p.Base.Log.Warn("cannot record that this server is a member", "error", err)
			return
		}
	}
	if err := p.Base.AddTag(ctx, p.joinedTag, "1"); err != nil && ctx.Err() == nil {
		p.Base.Log.Warn("cannot announce that this server is a member", "error", err)
	}
}

// Silent is for how long a server may not have heard of a leader and be ready.
const Silent = 5 * time.Second

// memberInterval is how often the leader compares pool and group without a change.
const memberInterval = 10 * time.Second

// followMembers lets the leader add servers that joined the pool and remove
// those that left it, if these say so themselves. Votes are autopilot's business.
func (p *Group) followMembers(ctx context.Context) error {
	noted := false
	t := time.NewTimer(0)
	defer t.Stop()
	g := p.Raft.Load()
	members := group.NewMembership(g, func() time.Duration { return p.Pilot.Load().Config().ServerStabilizationTime })
	for {
		changed, leads := p.Base.Pool.Changes(), g.LeaderChanges()
		if !noted && p.InConfiguration() {
			noted = true
			p.noteJoined(ctx)
		}
		wait := memberInterval
		if again := members.Reconcile(ctx, p.Suggestions()); again > 0 {
			wait = min(wait, again)
		}
		if !noted || g.IsLeader() && !g.LeaseHeld() {
			wait = 100 * time.Millisecond
		}
		t.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-leads:
		case <-t.C:
		}
	}
}

func (p *Group) InConfiguration() bool {
	g := p.Raft.Load()
	if g == nil {
		return false
	}
	servers, _, err := g.Configuration()
	if err != nil || p.LeaderAddr() == "" {
		return false
	}
	for _, s := range servers {
		if s.ID == p.Base.ID {
			return true
		}
	}
	return false
}
