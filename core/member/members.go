package member

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/telemetry"
)

// forceLifetime is how long an operator's word about a member waits for its failure.
const forceLifetime = 5 * time.Minute

// maxIntents bounds what is remembered of departures.
const maxIntents = 4096

// entry is what is known of a member. Entries are replaced, never changed.
type entry struct {
	Member
	meta  []byte
	epoch uint64
	own   bool // the leave was in its own words
}

type heard struct {
	intent
	at time.Time
}

// memberList is the state of the pool: events in, statuses out. Its lock is held for
// map operations only; it calls nobody.
type memberList struct {
	self                 string
	failedFor, leftFor   time.Duration
	clock                clock.Clock
	joins, leaves, fails *telemetry.Counter
	flaps                *telemetry.Counter

	mu      sync.Mutex // guards all below
	members map[string]*entry
	intents map[string]heard         // the newest per name
	places  map[string]vivaldi.Coord // of the members that were probed; of those known alone
	alive   int
	sorted  []Member // nil: make anew
	changed chan struct{}
}

func newMemberList(cfg Config) *memberList {
	return &memberList{
		self: cfg.Name, failedFor: cfg.ReconnectTimeout, leftFor: cfg.TombstoneTimeout, clock: cfg.Clock,
		joins: cfg.Metrics.Counter("serf.member.join"), leaves: cfg.Metrics.Counter("serf.member.left"),
		fails: cfg.Metrics.Counter("serf.member.failed"), flaps: cfg.Metrics.Counter("serf.member.flap"),
		members: map[string]*entry{}, intents: map[string]heard{}, places: map[string]vivaldi.Coord{},
		changed: make(chan struct{}),
	}
}

// flapTime: a member that comes back sooner after failing counts as flapping.
const flapTime = time.Minute

func (r *memberList) setLocked(e *entry) {
	if old := r.members[e.Name]; old != nil && old.Status == Alive {
		r.alive--
	}
	if e.Status == Alive {
		r.alive++
	}
	r.members[e.Name] = e
	r.touchLocked()
}

func (r *memberList) dropLocked(name string) {
	if old := r.members[name]; old != nil {
		if old.Status == Alive {
			r.alive--
		}
		delete(r.members, name)
		delete(r.places, name)
		r.touchLocked()
	}
}

func (r *memberList) touchLocked() {
	r.sorted = nil
	close(r.changed)
	r.changed = make(chan struct{})
}

// arrived takes in a member that is alive or whose description changed.
func (r *memberList) arrived(m Member, meta []byte, epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	m.Status, m.Since = Alive, now
	own := false
	if said, ok := r.intents[m.Name]; ok {
		switch {
		case said.epoch != epoch || said.force:
			delete(r.intents, m.Name)
		default:
			m.Status, own = Leaving, true
		}
	}
	if old := r.members[m.Name]; old != nil {
		if old.Status == m.Status {
			m.Since = old.Since
		}
		if old.Status == Failed && now.Sub(old.Since) < flapTime {
			r.flaps.Add(1)
		}
		if old.Status != Alive && m.Status == Alive {
			r.joins.Add(1)
		}
	} else {
		r.joins.Add(1)
	}
	r.setLocked(&entry{Member: m, meta: meta, epoch: epoch, own: own})
}

// gone takes in that a member no longer answers.
func (r *memberList) gone(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.members[name]
	if old == nil || old.Status == Left || old.Status == Failed {
		return
	}
	e := *old
	e.Since = r.clock.Now()
	said, ok := r.intents[name]
	ok = ok && said.epoch == old.epoch
	if ok && said.force && e.Since.Sub(said.at) > forceLifetime {
		ok = false
	}
	if old.Status != Leaving && !ok {
		e.Status = Failed
		r.fails.Add(1)
		r.setLocked(&e)
		return
	}
	r.leaves.Add(1)
	if ok && said.prune {
		r.dropLocked(name)
		return
	}
	e.Status, e.own = Left, !ok || !said.force
	r.setLocked(&e)
}

// depart takes in a departure. It tells whether it was news, to be passed on.
func (r *memberList) depart(i intent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	old := r.members[i.name]
	if said, ok := r.intents[i.name]; ok && said.epoch > i.epoch && (old == nil || old.epoch != i.epoch) {
		return false // about a former process
	} else if ok && said.epoch == i.epoch && (said.prune || !i.prune) && (!said.force ||
		i.force) && now.Sub(said.at) < forceLifetime {
		return false
	}
	if len(r.intents) >= maxIntents {
		r.forgetIntentLocked()
	}
	r.intents[i.name] = heard{i, now}
	if old == nil || old.epoch != i.epoch {
		return true
	}
	e := *old
	switch {
	case i.prune && (old.Status == Failed || old.Status == Left):
		r.dropLocked(i.name)
		return true
	case old.Status == Failed:
		e.Status, e.Since, e.own = Left, now, !i.force
		r.leaves.Add(1)
	case old.Status == Alive && !i.force:
		e.Status, e.Since, e.own = Leaving, now, true
	default:
		return true
	}
	r.setLocked(&e)
	return true
}

// forgetIntentLocked makes room by dropping the oldest.
func (r *memberList) forgetIntentLocked() {
	var oldest string
	for name, said := range r.intents {
		if oldest == "" || said.at.Before(r.intents[oldest].at) {
			oldest = name
		}
	}
	delete(r.intents, oldest)
}

// tell returns what a newcomer, or one that was cut off, may have missed.
func (r *memberList) tell() []hearsay {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	var list []hearsay
	for _, e := range r.members {
		if e.Status != Alive && len(list) < maxHearsay {
			list = append(list, hearsay{e.Name, e.Addr, e.Port, e.meta, e.Status, e.own, now.Sub(e.Since)})
		}
	}
	return list
}

// hear merges what another member tells. What is alive here stays so until gossip
// itself says otherwise, unless the member announced its departure: such news is returned, to be passed on.
func (r *memberList) hear(h hearsay) (intent, bool) {
	epoch, tags, err := decodeMeta(h.meta)
	if err != nil || h.name == r.self {
		return intent{}, false
	}
	if (h.status == Leaving || h.status == Left) && h.own {
		r.mu.Lock()
		old := r.members[h.name]
		known := old != nil && old.epoch == epoch && (old.Status == Alive || old.Status == Failed)
		r.mu.Unlock()
		if known {
			i := intent{name: h.name, epoch: epoch}
			return i, r.depart(i)
		}
	}
	if h.status != Leaving {
		r.hearOfGone(h, epoch, tags)
	}
	return intent{}, false
}

// hearOfGone merges what is told of a member that failed or left.
func (r *memberList) hearOfGone(h hearsay, epoch uint64, tags map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	since := now.Add(-h.age)
	if h.age > r.keptFor(h.status) {
		return
	}
	if said, ok := r.intents[h.name]; ok && said.prune && said.epoch == epoch {
		return
	}
	old := r.members[h.name]
	switch {
	case old == nil:
	case old.Status == Failed && h.status == Left && bytes.Equal(old.meta, h.meta):
		r.leaves.Add(1)
	default:
		return
	}
	m := Member{Name: h.name, Addr: h.addr, Port: h.port, Tags: tags, Status: h.status, Since: since}
	r.setLocked(&entry{Member: m, meta: bytes.Clone(h.meta), epoch: epoch, own: h.own})
}

func (r *memberList) keptFor(s Status) time.Duration {
	if s == Failed {
		return r.failedFor
	}
	return r.leftFor
}

// reap forgets those who are gone for long enough.
func (r *memberList) reap() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for name, e := range r.members {
		if (e.Status == Failed || e.Status == Left) && now.Sub(e.Since) > r.keptFor(e.Status) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		r.dropLocked(name)
	}
	for name, said := range r.intents {
		if now.Sub(said.at) > r.leftFor {
			delete(r.intents, name)
		}
	}
	return names
}

func (r *memberList) list() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sorted == nil {
		r.sorted = make([]Member, 0, len(r.members))
		for _, e := range r.members {
			r.sorted = append(r.sorted, e.Member)
		}
		slices.SortFunc(r.sorted, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	}
	return r.sorted
}

func (r *memberList) get(name string) (Member, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.members[name]; e != nil {
		return e.Member, true
	}
	return Member{}, false
}

func (r *memberList) epochOf(name string) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.members[name]; e != nil {
		return e.epoch, true
	}
	return 0, false
}

func (r *memberList) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// lies takes in where a member lies, as it said itself.
func (r *memberList) lies(name string, at vivaldi.Coord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.members[name] != nil {
		r.places[name] = at
	}
}

func (r *memberList) place(name string) (vivaldi.Coord, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.places[name]
	return at, ok
}

func (r *memberList) aliveCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(1, r.alive)
}
