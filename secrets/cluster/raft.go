package cluster

import (
	"context"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/raftstore"
	"corbel.dev/corbel/secrets/storage/records"
	"corbel.dev/corbel/telemetry"
)

// RaftGroup is the number of the plane's group on the wire.
const RaftGroup = 2

// RaftConfig says what a Raft member is made of.
type RaftConfig struct {
	Dir     string // log, snapshots, authority
	ID      string // this member's, for ever
	Address string // where the others reach its wire
	Wire    *wire.Wire
	// Own: the wire is the plane's alone, and its identity comes from the authority in Dir. Else it has one
	// already, and members are known from outside.
	Own bool

	Multiplier                      int
	SnapshotThreshold, TrailingLogs uint64
	SnapshotInterval                time.Duration
	Autopilot                       group.AutopilotConfig

	FS      vfs.FS
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// Node is this server's member of the Raft group: storage and lock in one. A server that is of no cluster yet has
// an empty storage that takes nothing, until Found or a join.
type Node struct {
	cfg      RaftConfig
	store    *raftstore.Store
	listener net.Listener

	group     atomic.Pointer[group.Group]
	pilot     atomic.Pointer[group.Autopilot]
	joined    atomic.Pointer[invitation] // accepted, but not used yet
	caughtUp  atomic.Bool                // the copy of this server is not the empty one of a start
	replicas  atomic.Pointer[[]string]   // that never get a vote
	deadAfter atomic.Int64               // nanoseconds of silence
	leads     atomic.Bool                // reads must be those of the leader
	opening   opening
	ended     chan struct{} // closed when Run has ended
	mu        sync.Mutex    // one founding or joining at a time
}

// opening is how a node's group begins.
type opening struct {
	start  chan []group.Server   // how the group begins; room for one
	begun  atomic.Bool           // start was given: this server is a member
	opened chan struct{}         // closed when group is there
	failed atomic.Pointer[error] // why it could not be opened
}

var _ storage.Backend = (*Node)(nil)

const authorityFile = "authority.json"

// NewNode makes a member. One that was part of a cluster takes part again when Run is called.
func NewNode(cfg RaftConfig) (*Node, error) {
	n := &Node{cfg: cfg, store: raftstore.New(cfg.Log), opening: opening{start: make(chan []group.Server, 1),
		opened: make(chan struct{})},
		ended: make(chan struct{})}
	n.deadAfter.Store(int64(firstDeadAfter))
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, errkind.E(errkind.Unavailable, "storage raft: path", err)
	}
	n.listener = cfg.Wire.Listen(wire.ProtoRaft, RaftGroup, wire.Servers)
	if !cfg.Own {
		return n, nil
	}
	authority, err := load(cfg.FS, n.path(authorityFile))
	if err != nil {
		return nil, err
	}
	if authority == nil {
		return n, nil
	}
	if err := n.become(authority); err != nil {
		return nil, err
	}
	n.opening.begun.Store(true)
	n.opening.start <- nil
	return n, nil
}

func (n *Node) path(name string) string { return filepath.Join(n.cfg.Dir, name) }

func (n *Node) become(a *Authority) error {
	id, err := a.Identity(n.cfg.ID, n.cfg.Clock.Now())
	if err != nil {
		return err
	}
	return n.cfg.Wire.Reload(id)
}

// Run takes part in the group from when there is one, until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	defer close(n.ended)
	var first []group.Server
	select {
	case first = <-n.opening.start:
	case <-ctx.Done():
		return n.listener.Close()
	}
	c := &n.cfg
	g, err := group.Open(group.Config{Name: "secrets", GroupID: RaftGroup, Dir: n.path("raft"), FS: c.FS, LocalID: c.ID,
		LocalAddr: c.Address, Listener: n.listener,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return c.Wire.Dial(ctx, addr, wire.ProtoRaft, RaftGroup)
		},
		Machine: n.store, Bootstrap: first, RaftMultiplier: c.Multiplier,
		Compaction: group.Compaction{SnapshotThreshold: c.SnapshotThreshold,
			SnapshotInterval: c.SnapshotInterval, TrailingLogs: c.TrailingLogs},
		Clock: c.Clock, Log: c.Log, Metrics: c.Metrics})
	if err != nil {
		n.opening.failed.Store(&err)
		close(n.opening.opened)
		return err
	}
	pilot := group.NewAutopilot(g, members{n}, c.Autopilot, nil)
	n.pilot.Store(pilot)
	n.group.Store(g)
	n.store.Serve(g)
	close(n.opening.opened)
	var parts life.Group
	parts.Add("group", g.Run)
	parts.Add("autopilot", pilot.Run)
	return parts.Run(ctx)
}

// begin starts the group and waits for it.
func (n *Node) begin(ctx context.Context, first []group.Server) error {
	if n.opening.begun.Swap(true) {
		return errkind.New(errkind.Conflict, "the group has begun already")
	}
	n.opening.start <- first
	select {
	case <-n.opening.opened:
	case <-n.ended:
		return errkind.New(errkind.Unavailable, "the server is stopping")
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "start the Raft group", ctx.Err())
	}
	if err := n.opening.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Found makes this server the first member of a new cluster, and returns when it leads. One that is part of a
// cluster already returns at once when it leads.
func (n *Node) Found(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.Member() {
		if n.cfg.Own {
			authority, err := NewAuthority(n.cfg.Clock.Now())
			if err != nil {
				return err
			}
			if err := n.become(authority); err != nil {
				return err
			}
			if err := n.begin(ctx, []group.Server{{ID: n.cfg.ID, Address: n.cfg.Address, Voter: true}}); err != nil {
				return err
			}
			// Last: a start that finds the file goes on with what the group has on disk.
			if err := authority.save(n.cfg.FS, n.path(authorityFile)); err != nil {
				return err
			}
		}
	}
	select {
	case <-n.opening.opened:
	case <-ctx.Done():
		return errkind.New(errkind.Unavailable, "the Raft group has not begun yet")
	}
	g := n.group.Load()
	if g == nil {
		return errNotOpen
	}
	return n.awaitLead(ctx, g)
}

func (n *Node) awaitLead(ctx context.Context, g *group.Group) error {
	for {
		changed := g.LeaderChanges()
		if g.IsLeader() {
			return g.VerifyLeader(ctx)
		}
		if id, addr := g.Leader(); id != "" && id != n.cfg.ID {
			return errkind.E(errkind.NotLeader, "", &raftstore.Elsewhere{ID: id, Address: addr})
		}
		select {
		case <-changed:
		case <-n.cfg.Clock.NewTimer(100 * time.Millisecond).C:
		case <-ctx.Done():
			return errkind.New(errkind.Unavailable, "no leader was elected in time")
		}
	}
}

// ID is this member's id.
func (n *Node) ID() string { return n.cfg.ID }

// Member reports whether this server is part of a cluster.
func (n *Node) Member() bool { return n.opening.begun.Load() }

var errBehind = errkind.New(errkind.Unavailable, "the Raft group has no leader yet: what is stored is not known here")

var errNotOpen = errkind.New(errkind.Unavailable,
	"the Raft group of this server is still being opened: try again in a moment")

// under is where reads go: to the leader's checked state while this server leads, to its own copy otherwise,
// which may be old; nil where there is none.
func (n *Node) under(ctx context.Context) (*records.Reader, error) {
	switch {
	case n.leads.Load():
		return &n.store.Reader, nil
	case n.group.Load() != nil:
		local := n.store.Local()
		if n.caughtUp.Load() {
			return &local, nil
		}
		// After a start the copy is empty until a leader says how much of the log is committed. That must not look like
		// a storage that nobody has initialized.
		if _, ok, _ := local.Get(ctx, barrier.KeyringPath); ok {
			n.caughtUp.Store(true)
		} else if n.store.Leads(ctx) != nil {
			return nil, errBehind
		}
		return &local, nil
	case n.opening.begun.Load():
		return nil, errNotOpen
	}
	return nil, nil
}

// Fresh says how old this member's own copy may be, and the index of the newest entry in it. The copy that a read sees
// afterwards is as new or newer.
func (n *Node) Fresh() (index uint64, lag time.Duration) {
	g := n.group.Load()
	if g == nil {
		return 0, math.MaxInt64
	}
	lag = g.LastContact()
	return g.AppliedIndex(), lag
}

// Get implements storage.Backend.
func (n *Node) Get(ctx context.Context, key string) ([]byte, bool, error) {
	b, err := n.under(ctx)
	if err != nil {
		return nil, false, err
	}
	if b == nil {
		if in := n.joined.Load(); in != nil {
			value, ok := in.Records[key]
			return value, ok, nil
		}
		return nil, false, nil
	}
	return b.Get(ctx, key)
}

// List implements storage.Backend.
func (n *Node) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	b, err := n.under(ctx)
	if err != nil || b == nil {
		return nil, err
	}
	return b.List(ctx, prefix, after, limit)
}

// Scan implements storage.Backend.
func (n *Node) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	b, err := n.under(ctx)
	if err != nil || b == nil {
		return nil, err
	}
	return b.Scan(ctx, from, to, limit)
}

// Commit implements storage.Backend.
func (n *Node) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	return n.store.Commit(ctx, epoch, ops)
}

// Fence implements storage.Backend.
func (n *Node) Fence(ctx context.Context, epoch storage.Epoch) error {
	return n.store.Fence(ctx, epoch)
}

// Info implements storage.Backend.
func (n *Node) Info() storage.Info { return n.store.Info() }

// Close implements storage.Backend.
func (n *Node) Close() error { return n.store.Close() }

// members tells autopilot who there is: who is in the group. Nobody else knows of them.
type members struct{ n *Node }

// Servers implements group.MemberSource.
func (m members) Servers() []group.ServerInfo {
	g := m.n.group.Load()
	if g == nil {
		return nil
	}
	list, _, err := g.Configuration()
	if err != nil {
		return nil
	}
	var known map[string]group.ServerHealth
	if pilot := m.n.pilot.Load(); pilot != nil {
		st, _ := pilot.State()
		known = st.Servers
	}
	replicas, dead := m.n.nonVoters(), time.Duration(m.n.deadAfter.Load())
	out := make([]group.ServerInfo, 0, len(list))
	for _, s := range list {
		info := group.ServerInfo{ID: s.ID, Name: s.ID, Address: s.Address, Status: group.MemberAlive,
			Replica: slices.Contains(replicas, s.ID)}
		if h, ok := known[s.ID]; ok && s.ID != m.n.cfg.ID && h.LastContact > dead {
			info.Status = group.MemberFailed
		}
		out = append(out, info)
	}
	return out
}

// firstDeadAfter is when cleanup_dead_servers takes a silent member away, until an operator says otherwise.
const firstDeadAfter = 24 * time.Hour

// nonVoters are the members that never get a vote.
func (n *Node) nonVoters() []string {
	if list := n.replicas.Load(); list != nil {
		return *list
	}
	return nil
}
