// Package senders watches what the events of senders look like: whose clock is off, and which field of a product makes
// ever new identities. It decides nothing about an event; what it finds is for operators.
//
// Bounds: maxSenders and maxFields are known at once, and what comes beyond is not watched until a Look has forgotten
// who was quiet. At most Config.PerSecond events a second are looked into, so that it costs a busy server nothing.
// A Watch is for any goroutine.
package senders

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/sketch"
)

const (
	maxSenders = 256
	maxFields  = 256
	// fewest batches of a sender say what its clock is.
	fewest = 3
	// ClockOff is from how far off a clock is told.
	ClockOff = time.Minute
	// steady is how much the delay of a clock that is slow may differ from batch to batch: one who sends what is old has
	// another delay each time.
	steady = 5 * time.Second
	// period is what identities are compared by; Explodes is how many times as many of them are told, and leastMany how
	// many there must be.
	period    = 5 * time.Minute
	Explodes  = 5
	leastMany = 5000
	precision = 11 // 2 kB, 2.3 %
)

// Sender is one who sends events: its producer's name, or its tenant and source.
type Sender string

// Clock is a sender whose clock differs from this server's by more than ClockOff: Ahead is below zero where it is slow.
type Clock struct {
	Sender Sender
	Ahead  time.Duration
}

// Field is one of a product's, "" for the whole identity.
type Field struct{ Product, Name string }

// Growth is a field with many times as many values as in the period before.
type Growth struct {
	Field
	Values uint64
	Times  float64
}

// sender is what is known of one since the last Look. The freshest event of a batch tells the clock.
type sender struct {
	batches     int
	least, most time.Duration // of the freshest events, ahead of now
}

// values are those of a field: of this period, and the counts of those before.
type values struct {
	now    *sketch.Sketch
	before []uint64 // newest last
}

const periodsKept = 6

// Watch is the owner. Make one with New.
type Watch struct {
	seed      maphash.Seed
	perSecond int

	mu      sync.Mutex // guards what follows
	senders map[Sender]*sender
	fields  map[Field]*values
	began   time.Time // of the period
	second  int64
	looked  int // events of this second
}

// New makes a Watch that looks into so many events a second; zero means 20,000.
func New(perSecond int) *Watch {
	return &Watch{seed: maphash.MakeSeed(), perSecond: cmp.Or(perSecond, 20_000), senders: map[Sender]*sender{},
		fields: map[Field]*values{}}
}

// Batch is what one Saw is about.
type Batch struct {
	w     *Watch
	now   time.Time
	fresh map[Sender]time.Duration
	deep  bool // there is room to look into identities
	count int
}

// Begin begins a batch that came now. End ends it; a Batch is for one goroutine.
func (w *Watch) Begin(now time.Time) *Batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := now.Unix(); s != w.second {
		w.second, w.looked = s, 0
	}
	return &Batch{w: w, now: now, fresh: map[Sender]time.Duration{}, deep: w.looked < w.perSecond}
}

// Saw takes in an event, also one that is refused. Of one without a time, nothing is learned of a clock.
func (b *Batch) Saw(producer string, e *usage.Event) {
	if b.count++; e.Time == 0 {
		return
	}
	of := Sender(producer)
	if producer == "" {
		of = Sender(cmp.Or(e.Tenant, usage.DefaultTenant) + "/" + e.Source)
	}
	ahead := time.Unix(0, e.Time).Sub(b.now)
	if was, known := b.fresh[of]; !known || ahead > was {
		if known || len(b.fresh) < maxSenders {
			b.fresh[of] = ahead
		}
	}
}

// Counts takes in the identity of an event that counts.
func (b *Batch) Counts(p *usage.Product, e *usage.Event) {
	if !b.deep || p.Kind != usage.Unique {
		return
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	var whole uint64
	for _, name := range p.Identity {
		v, _ := usage.Find(e.Identity, name)
		h := maphash.String(b.w.seed, v)
		whole = whole*1099511628211 + h
		if len(p.Identity) > 1 {
			b.w.add(Field{p.Name, "identity." + name}, h)
		}
	}
	b.w.add(Field{p.Name, ""}, whole^whole>>29)
	for _, name := range p.Tags {
		if v, ok := usage.Find(e.Tags, name); ok {
			b.w.add(Field{p.Name, "tags." + name}, maphash.String(b.w.seed, v))
		}
	}
}

func (w *Watch) add(f Field, hash uint64) {
	v := w.fields[f]
	if v == nil {
		if len(w.fields) >= maxFields {
			return
		}
		v = &values{now: sketch.New(precision)}
		w.fields[f] = v
	}
	v.now.Add(hash)
}

// End ends the batch.
func (b *Batch) End() {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if b.deep {
		b.w.looked += b.count
	}
	for of, ahead := range b.fresh {
		s := b.w.senders[of]
		if s == nil {
			if len(b.w.senders) >= maxSenders {
				continue
			}
			s = &sender{least: ahead, most: ahead}
			b.w.senders[of] = s
		}
		s.batches++
		s.least, s.most = min(s.least, ahead), max(s.most, ahead)
	}
}

// Look says what was found since the last Look: the worst first, at most `most` of each.
func (w *Watch) Look(now time.Time, most int) (clocks []Clock, growing []Growth) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for of, s := range w.senders {
		switch {
		case s.batches < fewest:
		case s.most > ClockOff: // nothing can come before it happens
			clocks = append(clocks, Clock{of, s.most})
		case s.most < -ClockOff && s.most-s.least < steady:
			clocks = append(clocks, Clock{of, s.most})
		}
	}
	clear(w.senders)
	slices.SortFunc(clocks, func(a, b Clock) int {
		return cmp.Or(cmp.Compare(b.Ahead.Abs(), a.Ahead.Abs()), cmp.Compare(a.Sender, b.Sender))
	})
	over := now.Sub(w.began) >= period
	for f, v := range w.fields {
		count := uint64(v.now.Estimate())
		if n := len(v.before); n > 0 {
			usual := slices.Sorted(slices.Values(v.before))[n/2]
			if times := float64(count) / float64(max(usual, 1)); count >= leastMany && times >= Explodes {
				growing = append(growing, Growth{f, count, times})
			}
		}
	}
	growing = named(growing)
	if over {
		w.turn(now)
	}
	return clocks[:min(len(clocks), most)], growing[:min(len(growing), most)]
}

// named leaves out a product's whole identity, or a lesser field, where the field that grows most says why.
func named(list []Growth) []Growth {
	worst := map[string]Growth{}
	for _, g := range list {
		old, known := worst[g.Product]
		if !known || old.Name == "" && g.Name != "" || g.Name != "" && g.Values > old.Values {
			worst[g.Product] = g
		}
	}
	return slices.SortedFunc(maps.Values(worst), func(a, b Growth) int {
		return cmp.Or(cmp.Compare(b.Values, a.Values), cmp.Compare(a.Product, b.Product))
	})
}

// turn begins the next period. What was not seen in any that is kept is forgotten. The first period is a beginning, and
// not compared with.
func (w *Watch) turn(now time.Time) {
	first := w.began.IsZero()
	w.began = now
	for f, v := range w.fields {
		if count := uint64(v.now.Estimate()); !first {
			v.before = append(v.before, count)
		}
		v.before = v.before[max(0, len(v.before)-periodsKept):]
		if v.now.Empty() && slices.Max(append(v.before, 0)) == 0 {
			delete(w.fields, f)
			continue
		}
		v.now = sketch.New(precision)
	}
}
