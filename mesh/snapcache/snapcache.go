package snapcache

import (
	"container/list"
	"context"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/telemetry"
)

var _ feed.Source = (*Cache)(nil)

// Catalog is the replicated catalog (catalog/registry).
type Catalog interface {
	State() *statestore.State
	// OnApply has f called with each new State, in order; f does not block.
	OnApply(f func(next *statestore.State, changes *catalog.Changes))
}

// Access turns a token into rights (catalog/grants).
type Access interface {
	// Grant returns the same pointer as long as nothing about the token changed.
	Grant(ctx context.Context, token string) (*acl.Grant, error)
}

// Config says what a Cache is made of. Zero values mean the defaults that are named.
type Config struct {
	Catalog    Catalog
	Access     Access // nil: everybody may follow everything
	Datacenter string // "dc1"
	ServerName string // what the servers' certificates show, for those of peers that come through gateways
	// Imported finds services of peers, as mesh.Maker has it; nil: there are none.
	Imported func(st *statestore.State, peer, service string) (imported *statestore.State, protocol string, ok bool)
	// DefaultAllow is what holds for those whom no intention speaks of.
	DefaultAllow bool
	// Window is the least time between two builds of a subject; below zero there is none. 20 ms.
	// It grows up to 50 times as long for those that change again and again while much is to be built.
	Window time.Duration
	// Workers build and tell at the same time; half as many as processors, at least 2. One of
	// them does nothing but endpoints.
	Workers int
	// MaxSubjects bounds what is followed at the same time: who asks for more is Overloaded. 262,144.
	MaxSubjects int
	// Recheck is how often the rights of followers are looked at without a change: tokens run out. 30 s.
	Recheck time.Duration

	Clock   clock.Clock
	Logger  *slog.Logger
	Metrics *telemetry.Registry
}

func (c *Config) complete() {
	if c.Datacenter == "" {
		c.Datacenter = "dc1"
	}
	if c.Window == 0 {
		c.Window = 20 * time.Millisecond
	}
	if c.Workers <= 0 {
		c.Workers = runtime.GOMAXPROCS(0) / 2
	}
	c.Workers = max(2, c.Workers)
	if c.MaxSubjects <= 0 {
		c.MaxSubjects = 1 << 18
	}
	if c.Recheck <= 0 {
		c.Recheck = 30 * time.Second
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
}

// Cache is made by New. Follow works also before Run and after it, then without news.
type Cache struct {
	cfg     Config
	entries entryCache
	meters  meters
	counts  counts

	// mu guards all below and the parts of cells that say so. It is taken by the goroutine
	// that applies the log: only look-ups and moves are done under it. Cells' and
	// followers' locks are never taken while it is held.
	mu      sync.Mutex
	cells   map[mesh.Subject]*cell
	by      map[input]map[*cell]struct{}
	tokens  map[string]*tokenUse
	log     logPlace
	queue   buildQueue
	stopped bool
	rights  uint64 // grows with each change that may change rights

	due     chan struct{} // something began to wait
	recheck chan struct{} // rights may have changed
}

// buildQueue is what has to be built.
type buildQueue struct {
	urgent  []*cell // to be built now, in order, before those in ready
	ready   []*cell
	waiting []*cell    // to be built when their window is over
	wakeAt  time.Time  // when they are looked through next; zero for never
	idle    *sync.Cond // workers wait here for ready
}

// logPlace is how far the log was heard.
type logPlace struct {
	applied uint64     // index of the newest State that was heard of
	marks   *list.List // of *mark, oldest first: the changes that are not told yet
	newest  position
	// terminating is the index of the last change of an entry of a terminating gateway that was heard of; after another
	// history began, of any entry. list is that of the names of services.
	terminating atomic.Uint64
	list        uint64 // guarded by mu
}

// position is what Newest tells.
type position struct{ generation, index uint64 }

// mark says that a subject was touched and is not told of yet.
type mark struct {
	index uint64 // no change that it stands for has a lower one
	at    time.Time
}

// counts are for tests and Stats.
type counts struct{ builds, encoded, published, told atomic.Uint64 }

// Stats says what a Cache has done so far.
type Stats struct {
	Subjects  int    // that are followed
	Followers int    // of all subjects
	Builds    uint64 // views made
	Encoded   uint64 // bodies made of them
	Published uint64 // bodies that were another than before
	Told      uint64 // times that a follower was called, its first value left out
}

// New makes a Cache that hears of what the catalog applies from now on. It starts nothing.
func New(cfg Config) (*Cache, error) {
	if cfg.Catalog == nil {
		return nil, errkind.New(errkind.Invalid, "snapshot cache: Catalog is required")
	}
	cfg.complete()
	sc := &Cache{
		cfg: cfg, cells: map[mesh.Subject]*cell{}, by: map[input]map[*cell]struct{}{}, tokens: map[string]*tokenUse{},
		log: logPlace{marks: list.New()}, due: make(chan struct{}, 1), recheck: make(chan struct{}, 1),
	}
	sc.queue.idle = sync.NewCond(&sc.mu)
	sc.meters = newMeters(sc, cfg.Metrics)
	cfg.Catalog.OnApply(sc.changed)
	st := cfg.Catalog.State()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.appliedLocked(st)
	sc.advanceLocked()
	sc.log.terminating.Store(st.RecordsIndex(catalog.RecordConfigEntry))
	sc.log.list = st.ServiceListIndex()
	return sc, nil
}

// Run builds and tells until ctx ends.
func (sc *Cache) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for i := range sc.cfg.Workers {
		group.Go(func() { sc.work(i == 0) })
	}
	group.Go(func() { sc.release(ctx) })
	group.Go(func() { sc.keepRights(ctx) })
	<-ctx.Done()
	sc.mu.Lock()
	sc.stopped = true
	sc.queue.idle.Broadcast()
	sc.mu.Unlock()
	group.Wait()
	return nil
}

// Ready tells whether the State says which cluster it is of. It does not on a server that has just
// joined, or has not read its log yet: such a one is not to be asked.
func (sc *Cache) Ready() bool {
	generation, _ := sc.Newest()
	return generation != 0
}

// Newest implements feed.Source.
func (sc *Cache) Newest() (generation, index uint64) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.log.newest.generation, sc.log.newest.index
}

// Stats tells what was done.
func (sc *Cache) Stats() Stats {
	s := Stats{Builds: sc.counts.builds.Load(), Encoded: sc.counts.encoded.Load(), Published: sc.counts.published.Load(),
		Told: sc.counts.told.Load()}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	s.Subjects = len(sc.cells)
	for _, use := range sc.tokens {
		s.Followers += len(use.followers)
	}
	return s
}

// changed takes note of what a batch touched. It is called by the goroutine that applies the log.
func (sc *Cache) changed(next *statestore.State, c *catalog.Changes) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	from, now := sc.log.applied+1, sc.cfg.Clock.Now() // no change of the batch has a lower index
	sc.appliedLocked(next)
	defer sc.advanceLocked()
	if c == nil {
		for e := sc.log.marks.Front(); e != nil; e = e.Next() {
			e.Value.(*mark).index = 1 // of another history: it says nothing any more
		}
		sc.log.terminating.Store(next.RecordsIndex(catalog.RecordConfigEntry))
		sc.log.list = next.ServiceListIndex()
		sc.markAllLocked(1, now)
		sc.rightsChangedLocked()
		return
	}
	for _, t := range c.Names {
		if cells := sc.by[input{inputService, t.Name}]; len(cells) > 0 {
			talk := onlyTalk(c, t.Index)
			for cell := range cells {
				if !talk || cell.subject.Subset != "" { // a subset's filter may look at what checks say
					sc.markLocked(cell, from, now)
				}
			}
		}
	}
	if list := next.ServiceListIndex(); list != sc.log.list {
		sc.log.list = list
		sc.touchLocked(input{inputNames, ""}, from, now)
	}
	for i := range c.Records {
		r := c.Records[i].After
		if r == nil {
			r = c.Records[i].Before
		}
		switch r.Kind {
		case catalog.RecordConfigEntry:
			sc.touchLocked(input{inputEntry, r.Key}, from, now)
			if strings.HasPrefix(r.Key, entry.HTTPRoute+"/") || strings.HasPrefix(r.Key, entry.TCPRoute+"/") {
				sc.touchLocked(input{inputRoutes, ""}, from, now)
			}
			if strings.HasPrefix(r.Key, entry.TerminatingGateway+"/") {
				sc.log.terminating.Store(next.RecordsIndex(catalog.RecordConfigEntry))
				sc.touchLocked(input{inputTerminating, ""}, from, now)
			}
			if c.Records[i].Before == nil || c.Records[i].After == nil {
				sc.touchLocked(input{inputPresence, r.Key}, from, now)
				if strings.HasPrefix(r.Key, entry.ServiceIntentions+"/") {
					sc.touchLocked(input{inputOwners, ""}, from, now)
				}
			}
		case catalog.RecordTrust:
			sc.touchLocked(input{inputTrust, r.Key}, from, now)
			sc.touchLocked(input{inputTrust, ""}, from, now)
		case catalog.RecordImported:
			sc.touchLocked(input{inputImported, r.Key}, from, now)
		case catalog.RecordVirtualIP:
			sc.touchLocked(input{inputManualIPs, catalog.KeyOfManualIPs(r)}, from, now)
		case catalog.RecordCA:
			sc.touchLocked(input{inputRoots, ""}, from, now)
		case catalog.RecordSystem:
			if r.Key == catalog.ClusterIDKey || r.Key == catalog.HistoryKey {
				sc.markAllLocked(from, now)
			}
		case catalog.RecordACLToken, catalog.RecordACLPolicy, catalog.RecordACLRole, catalog.RecordACLAuthMethod,
			catalog.RecordACLBindingRule, catalog.RecordACLBootstrap:
			sc.rightsChangedLocked()
		}
	}
}

// appliedLocked notes the newest State. Another history begins with its own indexes.
func (sc *Cache) appliedLocked(st *statestore.State) {
	sc.log.applied = st.Index()
	if g := generation(st); g != sc.log.newest.generation {
		sc.log.newest = position{generation: g}
	}
}

// advanceLocked moves Newest up to the last change before the oldest that is not told yet.
func (sc *Cache) advanceLocked() {
	index := sc.log.applied
	if front := sc.log.marks.Front(); front != nil {
		index = min(index, front.Value.(*mark).index-1)
	}
	sc.log.newest.index = max(sc.log.newest.index, index)
}

func (sc *Cache) markAllLocked(from uint64, now time.Time) {
	for _, c := range sc.cells {
		sc.markLocked(c, from, now)
	}
}

func (sc *Cache) touchLocked(in input, from uint64, now time.Time) {
	for c := range sc.by[in] {
		sc.markLocked(c, from, now)
	}
}

func (sc *Cache) rightsChangedLocked() {
	sc.rights++
	notify(sc.recheck)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
