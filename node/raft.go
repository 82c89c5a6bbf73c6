package node

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"sync"
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

// catalogGroup is the number of the catalog plane's Raft group on the wire.
const catalogGroup = 1

// raftPlane runs a plane's Raft group on a server. A new member of a
// cluster that is still forming has no group until it has seen all the servers
// it expects; until then nobody leads as far as it can tell.
type raftPlane struct {
	b        *base.Base
	name     string // of the group, and of its folder
	number   uint8  // of the group on the wire
	machine  group.Machine
	registry *registry.Registry // the catalog's machine, which has autopilot's configuration
	listener net.Listener
	// first says with whom to begin the group; see firstMembers.
	first func(context.Context) ([]group.Server, bool)
	// joinedFile and joinedTag say, on disk and in the pool, that this server is a member of the group.
	joinedFile, joinedTag string
	// takesPart says which servers of the pool are to be members.
	takesPart func(member.Member) bool

	group     atomic.Pointer[group.Group]
	autopilot atomic.Pointer[group.Autopilot]
	opened    chan struct{} // closed when group is there
	leaving   atomic.Bool
	once      sync.Once
}

// newRaftPlane is the catalog's.
func newRaftPlane(b *base.Base, machine *registry.Registry) *raftPlane {
	p := &raftPlane{b: b, name: "catalog", number: catalogGroup, machine: machine, registry: machine,
		listener: b.Wire.Listen(wire.ProtoRaft, catalogGroup, wire.Servers),
		opened:   make(chan struct{}), joinedFile: "joined", joinedTag: "raft_joined",
		takesPart: func(member.Member) bool { return true }}
	p.first = p.firstMembers
	return p
}

var errForming = errkind.New(errkind.Unavailable, "No cluster leader")

// Propose implements registry.Proposer.
func (p *raftPlane) Propose(ctx context.Context, cmd []byte) (any, error) {
	if g := p.group.Load(); g != nil {
		return g.Propose(ctx, cmd)
	}
	return nil, errForming
}

// VerifyLeader implements registry.Proposer.
func (p *raftPlane) VerifyLeader(ctx context.Context) error {
	if g := p.group.Load(); g != nil {
		return g.VerifyLeader(ctx)
	}
	return errForming
}

// LeaseHeld implements registry.Proposer.
func (p *raftPlane) LeaseHeld() bool { g := p.group.Load(); return g != nil && g.LeaseHeld() }

// IsLeader implements registry.Proposer.
func (p *raftPlane) IsLeader() bool { g := p.group.Load(); return g != nil && g.IsLeader() }

// Leader implements registry.Proposer.
func (p *raftPlane) Leader() (id, addr string) {
	if g := p.group.Load(); g != nil {
		return g.Leader()
	}
	return "", ""
}

// LastContact implements registry.Proposer. Before the group is open the state is empty, however young the process.
func (p *raftPlane) LastContact() time.Duration {
	if g := p.group.Load(); g != nil {
		return g.LastContact()
	}
	return 1<<63 - 1
}

// LeaderChanges implements registry.Proposer.
func (p *raftPlane) LeaderChanges() <-chan struct{} {
	if g := p.group.Load(); g != nil {
		return g.LeaderChanges()
	}
	return p.opened
}

// fsyncs counts the fsyncs of the log since it was opened.
func (p *raftPlane) fsyncs() uint64 {
	if g := p.group.Load(); g != nil {
		return g.Fsyncs()
	}
	return 0
}

func (p *raftPlane) leaderAddr() string { _, addr := p.Leader(); return addr }

// run opens the group once its first members are known and runs it with its autopilot.
func (p *raftPlane) run(ctx context.Context) error {
	first, ok := p.await(ctx)
	if !ok {
		_ = p.listener.Close()
		return nil
	}
	cfg := p.b.Cfg
	g, err := group.Open(group.Config{
		Name: p.name, GroupID: p.number, Dir: filepath.Join(cfg.DataDir, "raft", p.name), FS: p.b.FS,
		InMemory: cfg.DataDir == "", LocalID: p.b.ID, LocalAddr: p.b.RPCAddr(), Listener: p.listener,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return p.b.Wire.Dial(ctx, addr, wire.ProtoRaft, p.number)
		},
		DialServer: p.dialServer, Statement: p.statement,
		Machine: p.machine, Bootstrap: first, RaftMultiplier: cfg.Raft.Multiplier,
		SnapshotThreshold: uint64(cfg.Raft.SnapshotThreshold), SnapshotInterval: cfg.Raft.SnapshotInterval,
		TrailingLogs: uint64(cfg.Raft.TrailingLogs), Clock: p.b.Clock, Log: p.b.Log, Metrics: p.b.Metrics,
	})
	if err != nil {
		_ = p.listener.Close()
		return err
	}
	pilot := group.NewAutopilot(g, autopilotSource{p.b.Pool, p.takesPart}, p.firstPilot(), p.forget)
	p.group.Store(g)
	p.autopilot.Store(pilot)
	p.once.Do(func() { close(p.opened) })
	var parts life.Group
	parts.Add("group", g.Run)
	parts.Add("autopilot", pilot.Run)
	parts.Add("autopilot's configuration", p.followPilot)
	parts.Add("servers", p.followMembers)
	return parts.Run(ctx)
}

// firstPilot is autopilot's configuration at the start.
func (p *raftPlane) firstPilot() group.AutopilotConfig {
	return groupPilot(p.pilotConfig(p.registry.State()))
}

// forget takes a failed server out of the pool. Gossip must not wait for a disk or a quorum: a failed member is
// forgotten by name.
func (p *raftPlane) forget(id string) {
	for _, m := range p.b.Pool.Members(member.ActSuggestServer) {
		if m.Tags["id"] == id {
			_ = p.b.Pool.ForceLeave(m.Name, false)
		}
	}
}

// joined says that this server is a member of a cluster: it must never begin another one.
func (p *raftPlane) joined() bool {
	if p.b.Cfg.DataDir == "" {
		return false
	}
	_, err := p.b.FS.Stat(filepath.Join(p.b.Cfg.DataDir, "raft", p.joinedFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// noteJoined keeps that fact and tells the pool.
func (p *raftPlane) noteJoined(ctx context.Context) {
	if p.b.Cfg.DataDir != "" && !p.joined() {
		path := filepath.Join(p.b.Cfg.DataDir, "raft", p.joinedFile)
		if err := vfs.WriteFileAtomic(p.b.FS, path, []byte("member of a cluster\n"), 0o600); err != nil {
			p.b.Log.Warn("cannot record that this server is a member", "error", err)
			return
		}
	}
	if err := p.b.AddTag(ctx, p.joinedTag, "1"); err != nil && ctx.Err() == nil {
		p.b.Log.Warn("cannot announce that this server is a member", "error", err)
	}
}

// memberInterval is how often the leader compares pool and group without a change.
const memberInterval = 10 * time.Second

// followMembers lets the leader add servers that joined the pool and remove
// those that left it, if these say so themselves. Votes are autopilot's business.
func (p *raftPlane) followMembers(ctx context.Context) error {
	noted := false
	t := time.NewTimer(0)
	defer t.Stop()
	g := p.group.Load()
	members := group.NewMembership(g, func() time.Duration { return p.autopilot.Load().Config().ServerStabilizationTime })
	for {
		changed, leads := p.b.Pool.Changes(), g.LeaderChanges()
		if !noted && p.inConfiguration() {
			noted = true
			p.noteJoined(ctx)
		}
		wait := memberInterval
		if again := members.Reconcile(ctx, p.suggestions()); again > 0 {
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

func (p *raftPlane) inConfiguration() bool {
	g := p.group.Load()
	if g == nil {
		return false
	}
	servers, _, err := g.Configuration()
	if err != nil || p.leaderAddr() == "" {
		return false
	}
	for _, s := range servers {
		if s.ID == p.b.ID {
			return true
		}
	}
	return false
}
