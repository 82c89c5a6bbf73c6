// Package copies keeps a copy of each key of the cache on other hosts: a host that is killed takes none with it.
//
// Slots belong to hosts by usage/slots, in blocks, as the catalog says. The first host of a block is its owner: it
// alone takes commands. The next ones have copies, and the first of these owns the block when the owner is gone.
//
//	who has a copy      of each block the owner keeps a link to each host that is to have a copy: that one empties its
//	                    place, hears each change from then on, then all values that there were, and is whole
//	what is durable     the answer to a write waits until all linked hosts have the change. A host that does not answer
//	                    is given up; but the answers wait until the catalog names it no more
//	who takes over      the catalog names, for each owner, the hosts whose copies miss nothing. One that is named, and
//	                    whole, goes on with its copy; any other begins with nothing
//	who hands over      a new owner asks the former one, if it lives, to let go first: it answers MOVED from then on
//	                    (before, a new owner that does not know yet would send clients back), and gives the values
//	                    that the new owner has no copy of. What was written or deleted there meanwhile stays
//	                    as it is
//	who comes back      a host that was killed begins with nothing, and asks for the copies that the catalog named then
//
// What always holds: an answer is never older than what a client was told before, for a value that is in doubt is
// dropped, and one that is not there is never wrong. A host that has not heard from the catalog's leader for a while
// answers nobody, since others may own its keys by now. In the moment before it notices, it may tell a value that was
// overwritten elsewhere; it acknowledges no write then that a named copy does not have.
//
// New starts nothing; Run owns all goroutines, and waits for them. All methods are for any goroutine.
package copies

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/slots"
)

// View is what the catalog says. It is never changed.
type View struct {
	Map *slots.Map
	// Index grows with each change. Since is that of the last one after which this host may have owned less than before:
	// of its checks.
	Index, Since uint64
	// Named are, by the host that owns keys, the hosts whose copies of them miss nothing, with the session of each.
	Named map[string]map[string]uint64
	// Incarnation is that of this host's own entry.
	Incarnation uint64
}

func (v *View) owner(block int) string {
	n, _ := v.Map.Owner(block * slots.Block)
	return n.ID
}

func (v *View) has(host string) bool {
	for _, n := range v.Map.Nodes() {
		if n.ID == host {
			return true
		}
	}
	return false
}

// Config of a Host.
type Config struct {
	// Self is this host's ID in maps.
	Self string
	// View is the newest one that this host knows, and the same as long as nothing changes. It must answer from memory.
	View func() *View
	// Age is how old it may be: everything that was decided before is in it.
	Age func() time.Duration
	// Call asks another host.
	Call func(ctx context.Context, host, method string, req []byte) ([]byte, error)
	// Gone says whether the process of another host has ended, as far as this host knows; nil knows it of none. What is
	// asked of its keys waits for the catalog's word who owns them next.
	Gone func(host string) bool
	// Name puts this host into the catalog, with those whose copies miss nothing. It returns once View has that.
	Name func(ctx context.Context, incarnation uint64, named map[string]uint64) error
	// Rate bounds what is given away, and what a new copy is filled with, in bytes a second; zero means 32 MiB. Keeps
	// says that nothing is given to the next owners of keys.
	Rate  int
	Keeps bool
	// Patience is how long a host with a copy may be silent before it is given up; zero means a second. Limit is how
	// long an answer may wait; zero means 5 s.
	Patience, Limit time.Duration
	// Silence is how old the catalog's word may be at most; zero means 2 s. Others must not take a host for gone that
	// has heard from the catalog since.
	Silence time.Duration
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// Host is this host's part. Make one with New.
type Host struct {
	cfg         Config
	cache       *cache.Cache
	incarnation uint64
	table       atomic.Pointer[table]
	kick        chan struct{}
	overtaken   atomic.Uint64 // commands that came too late: another host owned the key
	giving      atomic.Int64  // how many hosts are given values
	meters      meters
	group       sync.WaitGroup

	tableMu sync.Mutex // guards changes of table

	mu sync.Mutex // guards what follows, and orders what other hosts ask for
	memory
	ctx context.Context // of Run; nil before and after

	naming naming
}

// memory is what a host knows of the keys of others.
type memory struct {
	held  [slots.Blocks]held
	had   [slots.Blocks]bool // what is here of a block is as of when this host owned it last
	lent  [slots.Blocks]lent // to whom it was given since: that one may ask again
	heard map[string]heard
	fails map[string]failure
	heirs map[string]uint64 // who had copies of what this host had when it was killed
}

// naming is what the catalog was told.
type naming struct {
	mu    sync.Mutex // guards named, and orders what the catalog is told
	named map[string]uint64
}

type meters struct {
	copied, dropped, taken *telemetry.Counter
}

// heard is how far this host has heard the changes of another one.
type heard struct{ session, next uint64 }

// lent is who was given the values of a block, as the owner by an index.
type lent struct {
	to    string
	index uint64
}

// failure is when a host did not become a copy, or was given up as one, and how often in a row.
type failure struct {
	at    time.Time
	times int
}

// held is what this host has of a block of another one.
type held struct {
	of      string
	session uint64
	whole   bool
}

// Who owns a block, as far as this host knows.
type ownership uint8

const (
	others ownership = iota
	mine
	given // to another host, which asked for it; the catalog's word may come later
)

// table is what this host does now. It is never changed.
type table struct {
	view    *View
	own     [slots.Blocks]ownership
	givenTo [slots.Blocks]string
	asOf    [slots.Blocks]uint64 // the index by which a block was given
	// left is when the catalog's word came that a block is another host's by now, until that one has asked for it.
	left    [slots.Blocks]time.Time
	feeds   [slots.Blocks][]*link
	links   map[string]*link
	imports [slots.Blocks]*imported
	// importing says that there are some.
	importing bool
	next      chan struct{} // closed when there is another one
}

// The errors of a host.
var (
	ErrDown  = errkind.New(errkind.Unavailable, "this host does not know now whether it owns the key")
	ErrMoved = errkind.New(errkind.Unavailable, "another host owns the key by now")
	errSlow  = errkind.New(errkind.Unavailable, "a copy was not made in time, and it is not settled yet to go on without")
)

// New makes a host. It hears what changes in the cache: see Host.Follows.
func New(cfg Config) *Host {
	if cfg.Rate == 0 {
		cfg.Rate = 32 << 20
	}
	if cfg.Patience == 0 {
		cfg.Patience = time.Second
	}
	if cfg.Limit == 0 {
		cfg.Limit = 5 * time.Second
	}
	if cfg.Silence == 0 {
		cfg.Silence = 2 * time.Second
	}
	if cfg.Gone == nil {
		cfg.Gone = func(string) bool { return false }
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = telemetry.New(telemetry.Config{})
	}
	r := cfg.Metrics
	r.Declare(telemetry.KindCounter, "usage.cache.copied", "Changes that other cache hosts have a copy of.")
	r.Declare(telemetry.KindCounter, "usage.cache.copies_lost", "Cache hosts that were given up as copies.")
	r.Declare(telemetry.KindCounter, "usage.cache.taken_over", "Blocks of slots that went on here with a copy.")
	h := &Host{cfg: cfg, incarnation: newSession(), kick: make(chan struct{}, 1),
		memory: memory{fails: map[string]failure{}, heard: map[string]heard{}},
		naming: naming{named: map[string]uint64{}}, meters: meters{copied: r.Counter("usage.cache.copied"),
			dropped: r.Counter("usage.cache.copies_lost"), taken: r.Counter("usage.cache.taken_over")}}
	h.table.Store(&table{next: make(chan struct{})})
	return h
}

// Use says which cache it is. It is called once, before Run.
func (h *Host) Use(c *cache.Cache) { h.cache = c }

// newSession is a number that is not used twice: 40 bits, for it is told in the catalog.
func newSession() uint64 { return rand.Uint64N(1<<40-1) + 1 }

// change replaces the table.
func (h *Host) change(f func(t *table)) {
	h.tableMu.Lock()
	defer h.tableMu.Unlock()
	old := h.table.Load()
	t := *old
	t.next = make(chan struct{})
	t.links = map[string]*link{}
	for name, l := range old.links {
		t.links[name] = l
	}
	f(&t)
	t.importing = slices.ContainsFunc(t.imports[:], func(im *imported) bool { return im != nil })
	h.table.Store(&t)
	close(old.next)
}

func (h *Host) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// handWait is how long a command waits for the former owner of its key to let go, goneWait for the next owner where
// the former one is gone: the catalog may need another leader first.
const (
	handWait = 3 * time.Second
	goneWait = 8 * time.Second
	// leaveWait is how long a command waits where its key was, until the next owner has heard that it is one: before,
	// that one would send the client back.
	leaveWait = time.Second
)

// leaving says whether a block is another host's by the newest view, and that one may not know it yet.
func (h *Host) leaving(t *table, b int) bool {
	return t.own[b] == mine || !t.left[b].IsZero() && h.cfg.Clock.Since(t.left[b]) < leaveWait
}

// Where says which host owns a slot: "" is this one. Where the slot is about to come here, or to go to a host that does
// not know it yet, where its owner is gone, or while this host does not hear from the catalog's leader, it waits for
// better. Its error is ErrDown.
func (h *Host) Where(slot int) (addr string, err error) {
	b := slot / slots.Block
	var end time.Time
	for {
		t, v, limit := h.table.Load(), h.cfg.View(), handWait
		owner, ok := v.Map.Owner(slot)
		switch {
		case ok && owner.ID != h.cfg.Self && h.cfg.Gone(owner.ID) && (end.IsZero() || h.cfg.Clock.Now().Before(end)):
			limit = goneWait
		case ok && owner.ID != h.cfg.Self && h.leaving(t, b) && (end.IsZero() || h.cfg.Clock.Now().Before(end)):
			limit = leaveWait
		case ok && owner.ID != h.cfg.Self:
			if t.view != v {
				h.wake()
			}
			return owner.Addr(), nil
		case h.cfg.Age() > h.cfg.Silence: // others may own the key by now
		case ok && t.view != nil && t.own[b] == mine && (t.view == v || v.Since <= t.view.Index):
			return "", nil
		case ok && t.view == v && t.own[b] == given:
			for _, n := range v.Map.Nodes() {
				if n.ID == t.givenTo[b] {
					return n.Addr(), nil
				}
			}
		}
		now := h.cfg.Clock.Now()
		if end.IsZero() {
			end = now.Add(limit)
		}
		if !now.Before(end) {
			return "", ErrDown
		}
		h.wake()
		timer := h.cfg.Clock.NewTimer(look)
		select {
		case <-t.next:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Readable says whether this host has a copy of a slot that may be read: it misses nothing that its owner has told, as
// far as this host knows.
func (h *Host) Readable(slot int) bool {
	v := h.cfg.View()
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.held[slot/slots.Block]
	return x.whole && v.Named[x.of][h.cfg.Self] == x.session
}

// Mine says whether this host owns a slot now, without waiting.
func (h *Host) Mine(slot int) bool { return h.table.Load().own[slot/slots.Block] == mine }

// Touch is called before each command that may change a key: where its value may still come from a former owner, it
// will not after that.
func (h *Host) Touch(key []byte) {
	t := h.table.Load()
	if !t.importing {
		return
	}
	if im := t.imports[slots.Of(key)/slots.Block]; im != nil {
		im.bury(string(key))
	}
}

// Begin is called before a command that may change something, and Settle after it with what Begin returned.
func (h *Host) Begin() uint64 { return h.overtaken.Load() }

// Settle returns when all changes so far have their copies. After an error nothing may be answered: what became of the
// changes is not known. While the catalog's leader is not heard it waits: its next word says whether this host owned
// the keys all along.
func (h *Host) Settle(began uint64) error {
	t, end := h.table.Load(), h.cfg.Clock.Now().Add(h.cfg.Limit)
	for _, l := range t.links {
		if err := l.await(end); err != nil {
			return err
		}
	}
	for waited := false; ; waited = true {
		if h.overtaken.Load() != began {
			return ErrMoved
		}
		if h.cfg.Age() <= h.cfg.Silence {
			if waited && (t.view == nil || h.cfg.View().Since > t.view.Index) {
				return ErrDown
			}
			return nil
		}
		if !h.cfg.Clock.Now().Before(end) { // others may own the keys by now
			return ErrDown
		}
		timer := h.cfg.Clock.NewTimer(look)
		<-timer.C
	}
}

// Copies is how many copies each key has at least that this host owns, and that have been filled or are being filled.
func (h *Host) Copies() int {
	t, least := h.table.Load(), -1
	for b := range t.own {
		if t.own[b] == mine && (least < 0 || len(t.feeds[b]) < least) {
			least = len(t.feeds[b])
		}
	}
	return max(least, 0)
}

// Left says whether others own all keys, and have got what they asked for: always where there are no others.
func (h *Host) Left() bool {
	v := h.cfg.View()
	for _, n := range v.Map.Nodes() {
		if n.ID != h.cfg.Self && !n.Draining {
			return h.Status().Owned == 0 && !h.Busy()
		}
	}
	return true
}

// Busy says whether values are given to other hosts now.
func (h *Host) Busy() bool { return h.giving.Load() > 0 }

// Follows implements cache.Follower.
func (h *Host) Follows(key string, asked bool) bool {
	t := h.table.Load()
	b := slots.Of([]byte(key)) / slots.Block
	if t.own[b] != mine {
		if asked {
			h.overtaken.Add(1)
		}
		return false
	}
	return len(t.feeds[b]) > 0 || t.imports[b] != nil
}

// Changed implements cache.Follower.
func (h *Host) Changed(key string, change []byte) {
	t := h.table.Load()
	b := slots.Of([]byte(key)) / slots.Block
	if im := t.imports[b]; im != nil && cache.Gone(change) {
		im.bury(key)
	}
	for _, l := range t.feeds[b] {
		l.enqueue(change)
	}
}

// Cleared implements cache.Follower: the copies begin anew, with nothing.
func (h *Host) Cleared() {
	t := h.table.Load()
	for _, im := range t.imports {
		if im != nil {
			im.close()
		}
	}
	for _, l := range t.links {
		l.enqueue(cleared)
	}
}

// cleared is the change that takes all values of a session away.
var cleared = []byte{0}

// look is how often the catalog is looked at where nothing says that it has changed.
const look = 50 * time.Millisecond

// Run keeps copies until ctx ends.
func (h *Host) Run(ctx context.Context) error {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.ctx = nil
		h.mu.Unlock()
		h.group.Wait()
	}()
	h.enter(ctx)
	for ctx.Err() == nil {
		if v := h.cfg.View(); v != h.table.Load().view {
			h.adopt(ctx, v)
		}
		h.tend(ctx)
		timer := h.cfg.Clock.NewTimer(look)
		select {
		case <-ctx.Done():
		case <-h.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// enter puts this host into the catalog: what it had in a former life is not there any more, and those who had copies
// then are asked for them.
func (h *Host) enter(ctx context.Context) {
	began := h.cfg.Clock.Now()
	for ctx.Err() == nil && h.cfg.Age() >= h.cfg.Clock.Since(began) {
		pause(ctx, h.cfg.Clock, look)
	}
	heirs := h.cfg.View().Named[h.cfg.Self]
	h.mu.Lock()
	h.heirs = heirs
	h.mu.Unlock()
	for ctx.Err() == nil {
		err := h.name(ctx, func(map[string]uint64) {})
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			h.cfg.Log.Warn("the cache is not in the catalog yet", "error", err)
		}
		pause(ctx, h.cfg.Clock, time.Second)
	}
}

func pause(ctx context.Context, c clock.Clock, d time.Duration) {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// name changes what the catalog says of the copies of this host's keys.
func (h *Host) name(ctx context.Context, f func(named map[string]uint64)) error {
	h.naming.mu.Lock()
	defer h.naming.mu.Unlock()
	f(h.naming.named)
	next := map[string]uint64{}
	for host, session := range h.naming.named {
		next[host] = session
	}
	ctx, cancel := context.WithTimeout(ctx, nameWait)
	defer cancel()
	return h.cfg.Name(ctx, h.incarnation, next)
}

// nameWait is how long the catalog may take to hear who has copies.
const nameWait = 5 * time.Second

// Status is what operators see.
type Status struct {
	Owned, Held, Whole int               // blocks of 512
	Copies             map[string]string // by host: whether it misses nothing
	Giving             bool
}

// Status reads the host.
func (h *Host) Status() Status {
	t := h.table.Load()
	s := Status{Copies: map[string]string{}, Giving: h.Busy()}
	for _, own := range t.own {
		if own == mine {
			s.Owned++
		}
	}
	h.mu.Lock()
	for _, x := range h.held {
		if x.of != "" {
			s.Held++
		}
		if x.whole {
			s.Whole++
		}
	}
	h.mu.Unlock()
	for name, l := range t.links {
		s.Copies[name] = l.state()
	}
	return s
}

// InSync is how many hosts have copies that miss nothing.
func (h *Host) InSync() (n int) {
	for _, l := range h.table.Load().links {
		if l.state() == stateWhole {
			n++
		}
	}
	return n
}

func (s Status) String() string {
	var list []string
	for name, state := range s.Copies {
		list = append(list, name+": "+state)
	}
	return fmt.Sprintf("%d blocks owned, %d held, copies: %s", s.Owned, s.Held, strings.Join(list, ", "))
}
