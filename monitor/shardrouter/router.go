// Package shardrouter shares the events among the servers of a cluster: each owns some of the shards (package shards),
// takes the results of their entities, and keeps the state of others as their replica.
//
// The table of who has what is an object of the plane's configuration: the leader of its Raft group plans it, by what
// it hears of the servers, and every server follows it. An event that reaches another server than its owner goes on
// to the owner, in batches, in the order in which it came. What an owner made durable goes to the replica, in batches
// too, at most every ReplicateEvery; what a replica missed it gets as a whole. Questions are answered by any server.
//
// What is queued is bounded in bytes: who brings events waits for each (with a deadline) while the owner does not
// keep up; a replica that does not keep up is sent the whole of a shard again. A server without a word for GoneAfter
// loses its shards to their replicas. It may go on for a while without knowing: what it takes meanwhile counts
// nowhere, and is dropped when it learns of the table.
package shardrouter

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/shards"
)

// Member is a server of the plane as the pool knows it.
type Member struct {
	ID, Name, Addr string
	Left           bool // in order: it does not come back by itself
	Leaving        bool // it is about to
}

// Config of a Router. Zero durations are the defaults that are named.
type Config struct {
	Self      string // this server's id
	Ingest    *ingest.Ingest
	Resources *resources.Resources
	// Leads says whether this server leads the plane's group; Ready whether its configuration is that of the group.
	Leads, Ready func() bool
	// Members lists the plane's servers, this one too.
	Members func() []Member
	// Call asks another server (core/rpc).
	Call func(ctx context.Context, addr, method string, req []byte) ([]byte, error)
	// Forwarded is told of each call that brought events to their owner how long the oldest of them took, from its frame
	// until the owner's answer that it is taken; nil is not told. It must not block.
	Forwarded func(took time.Duration)
	Log       *slog.Logger
	Now       func() time.Time

	// GoneAfter (1.5 s) is after which silence shards go to their replicas, LostAfter (1 min) after which silence shards
	// that nobody else has begin anew elsewhere.
	GoneAfter, LostAfter time.Duration
	// ReplicateEvery is the least time between two batches for a replica (50 ms), unless more waits than one carries.
	ReplicateEvery time.Duration
	// QueueBytes bounds each send queue (8 MiB), BackBytes what waits for all replicas (128 MiB).
	QueueBytes, BackBytes int
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Router is one server's part. All methods may be called from any goroutine.
type Router struct {
	cfg   Config
	table atomic.Pointer[shards.Table] // nil until it is known
	// pageBytes is about how much one answer holds.
	pageBytes int
	// followed is the index of the table whose roles this server has taken.
	followed atomic.Uint64

	mu      sync.Mutex
	changed chan struct{}        // closed when the table changes
	frozen  map[uint16]time.Time // until when a shard waits to be handed over

	back    *back
	queues  *sendQueues
	inbound inbound
	watch   watch
	voids   voids

	counts
}

// counts are what Stats tells.
type counts struct {
	takeovers, moved, adopted atomic.Uint64
	stuck                     atomic.Int64
}

// New returns a Router, whose Replicate is to be the ingest's.
func New(cfg Config) *Router {
	orDefault(&cfg.GoneAfter, 1500*time.Millisecond)
	orDefault(&cfg.LostAfter, time.Minute)
	orDefault(&cfg.ReplicateEvery, 50*time.Millisecond)
	orDefault(&cfg.QueueBytes, 8<<20)
	orDefault(&cfg.BackBytes, 128<<20)
	s := &Router{cfg: cfg, changed: make(chan struct{}), frozen: map[uint16]time.Time{}, pageBytes: pageBytes}
	s.back = newBack(s)
	s.queues = newSendQueues(s)
	s.inbound.last = map[queueKey]*answered{}
	s.watch.heard, s.watch.refused = map[string]*heard{}, map[string]error{}
	return s
}

// Use says of which ingest the spread is; it is called before Run.
func (s *Router) Use(in *ingest.Ingest) { s.cfg.Ingest = in }

// Handlers are the methods that other servers call.
func (s *Router) Handlers() map[string]func(context.Context, []byte) ([]byte, error) {
	return map[string]func(context.Context, []byte) ([]byte, error){
		methodEvents: s.takeEvents, methodReplicate: s.takeReplica, methodPing: s.pong, methodRelease: s.release,
		methodAsk: s.answer,
	}
}

// The methods.
const (
	methodEvents    = "monitor.results"
	methodReplicate = "monitor.replicate"
	methodPing      = "monitor.ping"
	methodRelease   = "monitor.release"
	methodAsk       = "monitor.ask"
)

// Run does the server's part until ctx ends.
func (s *Router) Run(ctx context.Context) error {
	var g life.Group
	g.Add("table", s.follow)
	g.Add("replicas", s.back.run)
	g.Add("send queues", s.queues.run)
	g.Add("plan", leader{s}.run)
	return g.Run(ctx)
}

// followEvery is how often the table is looked at without a change.
const followEvery = 250 * time.Millisecond

// follow does what the table says.
func (s *Router) follow(ctx context.Context) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var index uint64
	for {
		changed := s.cfg.Resources.Changed()
		item := s.item()
		s.voids.founding = s.voids.founding || item == nil && s.cfg.Ready()
		if item != nil && item.Index != index && (s.table.Load() != nil || s.cfg.Ready()) {
			index = item.Index
			s.become(item)
			s.followed.Store(index)
		}
		s.thaw()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

func (s *Router) item() *objects.Item {
	return s.cfg.Resources.View().Get(monitor.ShardTableType, "", monitor.ShardTableName)
}

// become takes the roles that a table gives this server.
func (s *Router) become(item *objects.Item) {
	next := tableOf(item.Object().(*monitor.ShardTable))
	old := s.table.Load()
	in, self := s.cfg.Ingest, s.cfg.Self
	if old == nil && in.Blank() && !s.voids.founding {
		if had := s.voids.begin(&next, self); had > 0 {
			s.cfg.Log.Error("the event store is empty although this server had events; other servers continue with their "+
				"replicas", "shards", had)
		}
	}
	s.table.Store(&next) // what owners send is taken from now on
	for i := range next {
		n, now := uint16(i), next[i]
		before := shards.Shard{}
		if old != nil {
			before = old[i]
		}
		before.Complete = now.Complete // that is for the leader
		if old != nil && now != before && settles(before, now, self) {
			s.voids.end(n)
		}
		if old != nil && now == before {
			continue
		}
		switch {
		case now.Owner == self && s.voids.has(n):
		case now.Owner == self:
			s.unfreeze(n)
			if !in.Owns(n) && before.Owner != "" {
				s.takeovers.Add(1)
			}
			in.Own(n)
			s.back.assign(n, now.Replica, now.Next)
		case now.Replica == self || now.Next == self:
			s.unfreeze(n)
			in.Leave(n)
			s.back.assign(n, "", "")
		default:
			s.unfreeze(n)
			in.Leave(n)
			in.Forget(n)
			s.back.assign(n, "", "")
		}
	}
	s.mu.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	s.queues.wake()
}

// changes returns a channel that is closed when the table changes.
func (s *Router) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Lacks tells what the server waits for before it can take events, nothing when it can.
func (s *Router) Lacks() []string {
	t := s.table.Load()
	if t == nil {
		return []string{"it is not known yet which server has which events"}
	}
	for _, one := range t {
		if one.Owner == "" {
			return []string{"not all events have a server yet"}
		}
	}
	return nil
}

// owner returns who has a shard, "" when nobody knows.
func (s *Router) owner(shard uint16) string {
	if t := s.table.Load(); t != nil {
		return t[shard].Owner
	}
	return ""
}

// member returns a server by its id.
func (s *Router) member(id string) (Member, error) {
	for _, m := range s.cfg.Members() {
		if m.ID == id {
			return m, nil
		}
	}
	return Member{}, errkind.Errorf(errkind.Unavailable, "the server %s, which has the events, is not known", id)
}

// Owner tells the epoch of a shard that this server owns. It only looks something up.
func (s *Router) Owner(shard uint16) (epoch uint64, owned bool) {
	t := s.table.Load()
	if t == nil {
		return 0, false
	}
	return t[shard].Epoch, t[shard].Owner == s.cfg.Self
}

// Stored tells of a shard.
type Stored struct {
	Shard    int    `json:"shard"`
	Role     string `json:"role"` // owner or replica
	Epoch    uint64 `json:"epoch"`
	Sequence uint64 `json:"sequence"`
}

// Stored lists the shards that this server has, with the newest sequence that is durable here.
func (s *Router) Stored() []Stored {
	out := []Stored{}
	t := s.table.Load()
	if t == nil {
		return out
	}
	sequences := s.cfg.Ingest.Stored()
	for i, one := range t {
		role := ""
		switch s.cfg.Self {
		case one.Owner:
			role = "owner"
		case one.Replica:
			role = "replica"
		default:
			continue
		}
		out = append(out, Stored{i, role, one.Epoch, sequences[i]})
	}
	return out
}

// Stats are counts since the start.
type Stats struct {
	Owned, Followed int
	Takeovers       uint64 // shards that came here
	Moved           uint64 // shards that this leader had handed over in order
	// shards that this leader gave to a server that lacked something, since nobody who had it came
	// back
	Adopted        uint64
	Stuck          int64  // shards that this leader sees servers keep, for 30 s and more, that are to give them away
	Forwarded      uint64 // events that went to their owner
	Brief          uint64 // of these, such that went without what the owner had
	Dropped        uint64 // events that found no owner in time
	Waiting        int64  // bytes of events on the way to their owners
	Replicated     uint64 // bytes
	ReplicaWaiting int64  // bytes for replicas
	Resent         uint64 // shards that were sent to a replica as a whole
	ReplicaBehind  int    // owned shards whose replica lacks something or that have none
}

// Stats returns the counts.
func (s *Router) Stats() Stats {
	st := Stats{Takeovers: s.takeovers.Load(), Moved: s.moved.Load(), Adopted: s.adopted.Load(), Stuck: s.stuck.Load(),
		Forwarded: s.queues.forwarded.Load(), Brief: s.queues.brief.Load(), Dropped: s.queues.dropped.Load(),
		Waiting: s.queues.waiting.Load()}
	st.Replicated, st.Resent, st.ReplicaWaiting = s.back.sent.Load(), s.back.resent.Load(), s.back.waiting.Load()
	if t := s.table.Load(); t != nil {
		for i, one := range t {
			if one.Owner == s.cfg.Self {
				st.Owned++
				if !s.back.synced(uint16(i)) {
					st.ReplicaBehind++
				}
			}
			if one.Replica == s.cfg.Self {
				st.Followed++
			}
		}
	}
	return st
}

func tableOf(o *monitor.ShardTable) (t shards.Table) {
	for i, p := range o.Shards {
		if i < len(t) && p != nil {
			t[i] = shards.Shard{Owner: p.Owner, Replica: p.Replica, Epoch: p.Epoch, Complete: p.Complete, Next: p.Next}
		}
	}
	return t
}

func objectOf(t *shards.Table) *monitor.ShardTable {
	o := &monitor.ShardTable{Meta: monitor.Meta{Name: monitor.ShardTableName}}
	for _, one := range t {
		o.Shards = append(o.Shards, &monitor.ShardPlace{Owner: one.Owner, Replica: one.Replica, Epoch: one.Epoch,
			Complete: one.Complete, Next: one.Next})
	}
	return o
}

// Announce publishes an event that is not stored, here.
func (s *Router) Announce(e *monitor.Event) error { return s.cfg.Ingest.Announce(e) }

// HandOver waits until this server, which has told the others that it leaves, owns no shard any more, or ctx ends.
func (s *Router) HandOver(ctx context.Context) {
	for s.Stats().Owned > 0 {
		changed := s.changes()
		if s.Stats().Owned == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
