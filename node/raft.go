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
)

// catalogGroup is the number of the catalog plane's Raft group on the wire.
const catalogGroup = 1

// raftPlane runs a plane's Raft group on a server. A new member of a
// cluster that is still forming has no group until it has seen all the servers
// it expects; until then nobody leads as far as it can tell.
type raftPlane struct {
	b        *base
	name     string // of the group, and of its folder
	number   uint8  // of the group on the wire
	machine  group.Machine
	registry *registry.Registry // the catalog's machine; nil of other planes
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
func newRaftPlane(b *base, machine *registry.Registry) *raftPlane {
	p := &raftPlane{b: b, name: "catalog", number: catalogGroup, machine: machine, registry: machine, listener: b.wire.Listen(wire.ProtoRaft, catalogGroup),
		opened: make(chan struct{}), joinedFile: "joined", joinedTag: "raft_joined", takesPart: func(member.Member) bool { return true }}
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
	first, ok := p.first(ctx)
	if !ok {
		_ = p.listener.Close()
		return nil
	}
	cfg := p.b.cfg
	g, err := group.Open(group.Config{
		Name: p.name, GroupID: p.number, Dir: filepath.Join(cfg.DataDir, "raft", p.name), FS: p.b.fs,
		InMemory: cfg.DataDir == "", LocalID: p.b.id, LocalAddr: p.b.rpcAddr(), Listener: p.listener,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return p.b.wire.Dial(ctx, addr, wire.ProtoRaft, p.number)
		},
		Machine: p.machine, Bootstrap: first, RaftMultiplier: cfg.Raft.Multiplier,
		SnapshotThreshold: uint64(cfg.Raft.SnapshotThreshold), SnapshotInterval: cfg.Raft.SnapshotInterval,
		TrailingLogs: uint64(cfg.Raft.TrailingLogs), Clock: p.b.clock, Log: p.b.log, Metrics: p.b.metrics,
	})
	if err != nil {
		_ = p.listener.Close()
		return err
	}
	pilot := group.NewAutopilot(g, autopilotSource{p.b.pool, p.takesPart}, p.firstPilot(), p.forget)
	p.group.Store(g)
	p.autopilot.Store(pilot)
	p.once.Do(func() { close(p.opened) })
	var parts life.Group
	parts.Add("group", g.Run)
	parts.Add("autopilot", pilot.Run)
	if p.registry != nil {
		parts.Add("autopilot's configuration", p.followPilot)
	}
	parts.Add("servers", p.followMembers)
	return parts.Run(ctx)
}

// firstPilot is autopilot's configuration at the start. Only the catalog's group removes dead servers: who is out of the pool is
// out of all groups.
func (p *raftPlane) firstPilot() group.AutopilotConfig {
	if p.registry != nil {
		return groupPilot(p.pilotConfig(p.registry.State()))
	}
	c := groupPilot(pilotFromFile(&p.b.current().Autopilot))
	c.CleanupDeadServers = false
	return c
}

// forget takes a failed server out of the pool. Gossip must not wait for a disk or a quorum: a failed member is forgotten by name.
func (p *raftPlane) forget(id string) {
	if p.registry == nil {
		return
	}
	for _, m := range serverMembers(p.b.pool) {
		if m.Tags["id"] == id {
			_ = p.b.pool.ForceLeave(m.Name, false)
		}
	}
}

// firstMembers says with whom to begin a cluster; an empty list joins one that
// exists or goes on with the state on disk. False: the process ends first.
func (p *raftPlane) firstMembers(ctx context.Context) ([]group.Server, bool) {
	cfg := p.b.cfg
	self := group.Server{ID: p.b.id, Address: p.b.rpcAddr(), Voter: true}
	switch {
	case p.joined():
		return nil, true
	case cfg.Raft.Bootstrap || cfg.Dev:
		return []group.Server{self}, true
	case cfg.Raft.BootstrapExpect == 0:
		return nil, true
	}
	p.b.log.Info("waiting for the servers of a new cluster", "bootstrap_expect", cfg.Raft.BootstrapExpect)
	for {
		changed := p.b.pool.Changes()
		list := p.expected(self)
		if list != nil {
			return list, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// expected returns all first members once as many as expected are alive, or an
// empty list when one of them is part of a cluster already; nil until then.
func (p *raftPlane) expected(self group.Server) []group.Server {
	list := []group.Server{self}
	want := p.b.cfg.Raft.BootstrapExpect
	for _, m := range serverMembers(p.b.pool) {
		switch {
		case m.Name == p.b.cfg.Node.Name || m.Status != member.Alive:
			continue
		case m.Tags["raft_joined"] == "1" || m.Tags["bootstrap"] == "1":
			return []group.Server{}
		case m.Tags["read_replica"] == "1":
			continue
		}
		list = append(list, group.Server{ID: m.Tags["id"], Address: memberRPC(m), Voter: true})
	}
	if len(list) < want {
		return nil
	}
	return list
}

// joined says that this server is a member of a cluster: it must never begin another one.
func (p *raftPlane) joined() bool {
	if p.b.cfg.DataDir == "" {
		return false
	}
	_, err := p.b.fs.Stat(filepath.Join(p.b.cfg.DataDir, "raft", p.joinedFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// noteJoined keeps that fact and tells the pool.
func (p *raftPlane) noteJoined(ctx context.Context) {
	if p.b.cfg.DataDir != "" && !p.joined() {
		path := filepath.Join(p.b.cfg.DataDir, "raft", p.joinedFile)
		if err := vfs.WriteFileAtomic(p.b.fs, path, []byte("member of a cluster\n"), 0o600); err != nil {
			p.b.log.Warn("cannot note that this server is a member", "error", err)
			return
		}
	}
	if err := p.b.addTag(ctx, p.joinedTag, "1"); err != nil && ctx.Err() == nil {
		p.b.log.Warn("cannot tell the pool that this server is a member", "error", err)
	}
}

// memberInterval is how often the leader compares pool and group without a change.
const memberInterval = 10 * time.Second

// followMembers lets the leader add servers that joined the pool and remove
// those that left it. Votes are autopilot's business.
func (p *raftPlane) followMembers(ctx context.Context) error {
	noted := false
	t := time.NewTimer(0)
	defer t.Stop()
	g := p.group.Load()
	for {
		changed, leads := p.b.pool.Changes(), g.LeaderChanges()
		if !noted && p.inConfiguration() {
			noted = true
			p.noteJoined(ctx)
		}
		if g.LeaseHeld() {
			p.reconcile(ctx)
		}
		wait := memberInterval
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
	servers, _, err := p.group.Load().Configuration()
	if err != nil || p.leaderAddr() == "" {
		return false
	}
	for _, s := range servers {
		if s.ID == p.b.id {
			return true
		}
	}
	return false
}

// removeFormer removes the member that had the address before: a server that lost its data comes back as somebody new.
func (p *raftPlane) removeFormer(ctx context.Context, servers []group.Server, addr string) error {
	for _, s := range servers {
		if s.Address == addr && s.ID != p.b.id {
			p.b.log.Warn("another server has this one's address now; it is removed from the group", "server", s.ID, "address", addr)
			return p.group.Load().RemoveServer(ctx, s.ID)
		}
	}
	return nil
}

func (p *raftPlane) reconcile(ctx context.Context) {
	g := p.group.Load()
	servers, _, err := g.Configuration()
	if err != nil {
		return
	}
	have := map[string]group.Server{}
	for _, s := range servers {
		have[s.ID] = s
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, m := range serverMembers(p.b.pool) {
		id, addr := m.Tags["id"], memberRPC(m)
		s, known := have[id]
		var err error
		switch {
		case id == p.b.id || !p.takesPart(m) && !known:
			continue
		case m.Status == member.Alive && !known:
			p.b.log.Info("a server joins the group", "server", m.Name, "address", addr)
			if err = p.removeFormer(ctx, servers, addr); err == nil {
				err = g.AddNonvoter(ctx, id, addr)
			}
		case m.Status == member.Alive && s.Address != addr:
			p.b.log.Info("a server has a new address", "server", m.Name, "address", addr)
			if s.Voter {
				err = g.AddVoter(ctx, id, addr)
			} else {
				err = g.AddNonvoter(ctx, id, addr)
			}
		case m.Status == member.Left && known:
			p.b.log.Info("a server left the group", "server", m.Name)
			err = g.RemoveServer(ctx, id)
		}
		if err != nil {
			p.b.log.Warn("cannot change the group's members", "server", m.Name, "error", err)
		}
	}
}
