// Package dedup tells which events were counted before. It is a state machine that runs where a log's records are
// applied, so "seen" is never known before "stored": a record's verdicts are a function of the records before it.
//
// Two ways to be told apart: a producer's (name, epoch, sequence) for a batch, or a hash of (tenant, source, id) for
// an event of a batch without one.
//
// The promise, exact within 96 bits of a keyed hash (10^9 live ids: a false duplicate with a probability of 10^-11):
// an event is told New at most once. What is older than Floor is told Late, never New, because its id may be
// forgotten by then. Ids are kept for Window after their arrival or their time, whichever is later. When more than
// Capacity ids are alive, the floor rises minute by minute until they fit: the window becomes shorter, the promise
// stays. When one minute alone has too many, events with ids are told Full. All decisions depend on live ids alone,
// never on how the memory is laid out, so a state that was restored from a snapshot decides as the one that wrote it.
//
// Memory is at most about 52 bytes for each of Capacity ids (16 at a fill of 5/16 to 3/4), and 150 and its name for
// each of MaxProducers. One goroutine at a time.
package dedup

import (
	"cmp"
	"errors"
	"maps"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
)

// Verdict is what is done with a batch or an event.
type Verdict uint8

// The verdicts.
const (
	New       Verdict = iota + 1 // count it
	Duplicate                    // it was accepted before
	Late                         // older than what can be counted: it is listed for corrections
	Full                         // refused: no room to remember it; nothing was stored
	Fenced                       // refused: a newer epoch of this producer is known
	Unknown                      // refused: the sequence is so far behind that nobody can tell
)

var verdicts = [...]string{"", "new", "duplicate", "late", "full", "fenced", "unknown"}

// String returns the verdict in lower case.
func (v Verdict) String() string { return verdicts[v] }

// Accepted reports whether the sender is told that the event is stored.
func (v Verdict) Accepted() bool { return v == New || v == Duplicate || v == Late }

// ErrDamaged refuses bytes that are no state.
var ErrDamaged = errors.New("dedup: damaged")

// Config configures a State.
type Config struct {
	// Window is how long ids are kept: the longest `late` of all products. Zero means 24 h.
	Window time.Duration
	// Capacity is how many ids are kept at once. Zero means 1,000,000: about 52 MB at worst.
	Capacity int
	// MaxProducers bounds those that are known. Zero means 100,000.
	MaxProducers int
}

func (c Config) complete() Config {
	c.Window = cmp.Or(c.Window, usage.DefaultLate)
	c.Capacity = cmp.Or(c.Capacity, 1_000_000)
	c.MaxProducers = cmp.Or(c.MaxProducers, 100_000)
	return c
}

// State remembers. Make one with New.
type State struct {
	cfg       Config
	now       minute // of the newest record
	floor     minute // ids of earlier minutes are forgotten
	ids       ids
	alive     map[minute]int // ids by minute; the sum over minutes from the floor on is live
	live      int
	producers map[string]*producer
	freezes   int // under way
}

// minute counts from 1970.
type minute uint32

func minuteOf(t time.Time) minute { return minute(max(t.Unix(), 0) / 60) }

// NewState makes an empty state.
func NewState(cfg Config) *State {
	return &State{cfg: cfg.complete(), alive: map[minute]int{}, producers: map[string]*producer{}}
}

// Floor is the time before which everything is late.
func (s *State) Floor() time.Time { return time.Unix(int64(s.floor)*60, 0).UTC() }

// Live is how many ids are remembered, Bytes what they take.
func (s *State) Live() int { return s.live }

// Bytes is the memory of the ids and the producers.
func (s *State) Bytes() int {
	n := s.ids.bytes()
	for name := range s.producers {
		n += len(name) + producerBytes
	}
	return n
}

// Advance moves on to a record's time. Time never goes back: an earlier one is the newest one.
func (s *State) Advance(at time.Time) {
	s.now = max(s.now, minuteOf(at))
	if window := minute(s.cfg.Window / time.Minute); s.now > window {
		s.raise(s.now - window)
	}
}

func (s *State) raise(to minute) {
	if to <= s.floor {
		return
	}
	if int(to-s.floor) > len(s.alive) {
		for m, n := range s.alive {
			if m < to {
				s.live -= n
				delete(s.alive, m)
			}
		}
	} else {
		for m := s.floor; m < to; m++ {
			s.live -= s.alive[m]
			delete(s.alive, m)
		}
	}
	s.floor = to
}

// Event decides about an event at the state's time. late is its product's; a zero id is never a duplicate.
func (s *State) Event(id usage.Hash, at time.Time, late time.Duration) Verdict {
	verdict := New
	if s.tooLate(at, late) {
		verdict = Late
	}
	if id == (usage.Hash{}) {
		return verdict
	}
	if s.ids.has(id, s.floor) {
		return Duplicate
	}
	for s.live >= s.cfg.Capacity {
		if s.floor >= s.now {
			return Full
		}
		s.raise(s.floor + 1)
	}
	if s.tooLate(at, late) { // the floor may have passed it just now
		verdict = Late
	}
	m := max(minuteOf(at), s.now)
	s.ids.add(id, m, s.floor)
	s.alive[m]++
	s.live++
	return verdict
}

func (s *State) tooLate(at time.Time, late time.Duration) bool {
	m := minuteOf(at)
	return m < s.floor || m+minute(late/time.Minute) < s.now
}

// TooLate says whether an event was too late when it came, as Event judges it while no ids are forgotten early.
func TooLate(at, came time.Time, late time.Duration) bool {
	return minuteOf(at)+minute(late/time.Minute) < minuteOf(came)
}

// Batch decides about a producer's batch at the state's time.
func (s *State) Batch(name string, epoch, sequence uint64) Verdict {
	p, known := s.producers[name]
	if !known {
		if len(s.producers) >= s.cfg.MaxProducers {
			maps.DeleteFunc(s.producers, func(_ string, p *producer) bool { return p.last < s.floor })
			if len(s.producers) >= s.cfg.MaxProducers {
				return Full
			}
		}
		p = &producer{}
		s.producers[name] = p
	}
	switch {
	case known && epoch < p.epoch:
		return Fenced
	case !known || epoch > p.epoch:
		*p = producer{epoch: epoch}
		if sequence > inFlight {
			p.low = sequence - inFlight // what was before it, nobody can tell
		}
	}
	p.last = s.now
	return p.mark(sequence)
}

// inFlight is how many batches of a producer may be under way at once, and arrive in any order.
const inFlight = 1024

const producerBytes = 150 + 48 // with its share of the map

// producer is what is known of one.
type producer struct {
	epoch uint64
	// Invariant: solid <= low. All sequences up to solid were seen; of those up to low nobody can tell; the bits say
	// it of the inFlight ones behind low, by sequence modulo inFlight.
	solid, low uint64
	bits       [inFlight / 64]uint64
	last       minute
}

func (p *producer) mark(sequence uint64) Verdict {
	switch {
	case sequence == 0: // they begin with 1
		return Unknown
	case sequence <= p.solid:
		return Duplicate
	case sequence <= p.low:
		return Unknown
	case sequence > p.low+inFlight:
		p.slide(sequence - inFlight)
	}
	word, bit := &p.bits[sequence%inFlight/64], uint64(1)<<(sequence%64)
	if *word&bit != 0 {
		return Duplicate
	}
	*word |= bit
	for p.solid == p.low && p.bits[(p.low+1)%inFlight/64]&(1<<((p.low+1)%64)) != 0 { // what is complete needs no bits
		p.slide(p.low + 1)
	}
	return New
}

// slide moves the bits on to a new low: a sequence that is left behind unseen parts solid from low for good.
func (p *producer) slide(low uint64) {
	if low-p.low > inFlight {
		p.bits, p.low = [inFlight / 64]uint64{}, low
		return
	}
	for p.low < low {
		p.low++
		word, bit := &p.bits[p.low%inFlight/64], uint64(1)<<(p.low%64)
		if *word&bit != 0 && p.solid == p.low-1 {
			p.solid = p.low
		}
		*word &^= bit
	}
}

// Read decodes what Append wrote, for a configuration of now: a smaller capacity raises the floor at the next event.
func Read(outer *pack.Reader, cfg Config) (*State, error) {
	r := outer.Record()
	defer outer.Merge(r)
	s := NewState(cfg)
	s.now, s.floor = minute(r.Uint()), minute(r.Uint())
	for range r.Count() {
		name := r.String()
		p := &producer{epoch: r.Uint(), solid: r.Uint(), low: r.Uint(), last: minute(r.Uint())}
		for i := range p.bits {
			p.bits[i] = r.Uint()
		}
		if _, twice := s.producers[name]; twice || p.solid > p.low || r.Err() != nil {
			return nil, ErrDamaged
		}
		s.producers[name] = p
	}
	for range r.Count() {
		e := entry{r.Uint(), r.Uint()}
		if r.Err() != nil || e.minute() < s.floor || e.minute() == 0 {
			return nil, ErrDamaged
		}
		if !s.ids.put(e, s.floor) {
			return nil, ErrDamaged
		}
		s.alive[e.minute()]++
		s.live++
	}
	if r.Err() != nil {
		return nil, ErrDamaged
	}
	return s, nil
}
