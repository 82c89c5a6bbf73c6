package estimate

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/route"
	"corbel.dev/corbel/usage/window"
)

var (
	histories = flag.Int("histories", 25, "how many random histories are judged")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first history")
)

// record is an entry of the log: a batch, a step of the table of shards, or a correction.
type record struct {
	at       time.Time
	producer string
	epoch    uint64
	sequence uint64
	events   []usage.Event
	// What the log's owner decided when it applied the record.
	verdicts []dedup.Verdict
	observed []usage.Observation
	begin    []route.Move
	finish   []route.Move
	void     *usage.Correction
}

// counter is a process: its state, the table as it knows it, and its place in the log.
type counter struct {
	name          string
	main, loading *aggregate.Counter
	table         route.Table
	offset        int
	// The newest snapshot.
	saved       [2][]byte
	savedTable  route.Table
	savedOffset int
}

// world is a whole usage plane in one goroutine.
type world struct {
	t        *testing.T
	seed     uint64
	r        *rand.Rand
	key      usage.Key
	products []*usage.Product
	cfg      aggregate.Config
	now      time.Time
	log      []*record
	dedup    *dedup.State
	saved    []byte // the snapshot of dedup, at an offset
	savedAt  int
	counters []*counter
	moving   []route.Move
	copies   map[int]*aggregate.Counter // by the offset of the record that began the move
	// The model.
	truth     map[string]fact
	voided    map[string]bool
	nextID    int
	sequences map[string]uint64
	resend    []*record
}

// fact is an event as the model has it: when it first came decides whether it was late.
type fact struct {
	usage.Event
	first time.Time
	order uint64
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: %s\nreplay: go test ./usage/estimate -run TestHistories -seed %d -histories 1", w.seed,
		fmt.Sprintf(format, args...), w.seed)
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 1)), key: usage.NewKey([16]byte{byte(seed)}),
		now: time.Date(2026, 10, 23, 20, 0, 0, 0, time.UTC), copies: map[int]*aggregate.Counter{}, truth: map[string]fact{},
		voided: map[string]bool{}, sequences: map[string]uint64{}}
	for _, p := range []usage.Product{
		{Name: "hosts", Kind: usage.Unique, Identity: []string{"host"}, Tags: []string{"team"}},
		{Name: "users", Kind: usage.Unique, Identity: []string{"host", "team"}, ExactBelow: 30, Precision: 12},
		{Name: "bytes", Kind: usage.Sum, Tags: []string{"team"}},
		{Name: "peak", Kind: usage.Max}, {Name: "level", Kind: usage.Last},
	} {
		if err := p.Complete(); err != nil {
			t.Fatal(err)
		}
		p.Generation = 1
		w.products = append(w.products, &p)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	w.cfg = aggregate.Config{Zone: func(tenant string) window.Zone {
		if tenant == "berlin" {
			return window.In(berlin)
		}
		return window.Zone{}
	}}
	w.dedup = dedup.NewState(dedup.Config{})
	w.saved = w.dedup.Append(nil)
	table := route.Table{}.WithMembers([]route.Member{{Name: "c0"}, {Name: "c1"}, {Name: "c2"}}, true)
	for _, m := range table.Members {
		c := &counter{name: m.Name, main: aggregate.New(w.cfg), loading: aggregate.New(w.cfg), table: table}
		c.save()
		w.counters = append(w.counters, c)
	}
	return w
}

func (c *counter) save() {
	c.saved = [2][]byte{c.main.Append(nil), c.loading.Append(nil)}
	c.savedTable, c.savedOffset = c.table, c.offset
}

// event makes a new event, some time ago.
func (w *world) event() usage.Event {
	ago := time.Duration(w.r.IntN(int(2 * time.Hour)))
	if w.r.IntN(10) == 0 {
		ago = time.Duration(w.r.IntN(int(26 * time.Hour)))
	}
	w.nextID++
	return usage.Event{ID: fmt.Sprint(w.nextID), Source: fmt.Sprint("s", w.r.IntN(3)),
		Tenant: []string{"berlin", "acme"}[w.r.IntN(2)], Product: w.products[w.r.IntN(len(w.products))].Name,
		Time: w.now.Add(-ago).UnixNano(),
		Identity: []usage.Field{{Name: "host", Value: fmt.Sprint("h", w.r.IntN(100))},
			{Name: "team", Value: fmt.Sprint(w.r.IntN(3))}},
		Tags:  []usage.Field{{Name: "team", Value: fmt.Sprint(w.r.IntN(4))}},
		Value: usage.Int(w.r.Int64()), HasValue: true}
}

// send sends new events: by a producer with sequences, or with ids; and may send former ones again, in other pieces.
func (w *world) send() {
	rec := &record{at: w.now}
	for range 1 + w.r.IntN(6) {
		rec.events = append(rec.events, w.event())
	}
	if w.r.IntN(2) == 0 {
		rec.producer = fmt.Sprint("p", w.r.IntN(3))
		w.sequences[rec.producer]++
		rec.epoch, rec.sequence = 1, w.sequences[rec.producer]
	}
	w.append(rec)
	if w.r.IntN(3) == 0 {
		w.resend = append(w.resend, rec)
	}
	if len(w.resend) > 0 && w.r.IntN(2) == 0 {
		again := *w.resend[w.r.IntN(len(w.resend))]
		again.at, again.verdicts, again.observed = w.now, nil, nil
		if again.producer == "" { // retried batches split differently
			again.events = slices.Clone(again.events[w.r.IntN(len(again.events)):])
			list := again.events
			w.r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			again.events = append(again.events, w.event())
		}
		w.append(&again)
	}
}

// append stores a record, which is when its verdicts are made. The model learns of events at their first arrival.
func (w *world) append(rec *record) {
	order := uint64(len(w.log)) << 16
	for i, e := range rec.events {
		name := e.Tenant + "/" + e.Source + "/" + e.ID
		if _, known := w.truth[name]; !known {
			w.truth[name] = fact{e, rec.at, order + uint64(i)}
		}
	}
	w.log = append(w.log, rec)
	w.decide(w.dedup, rec)
}

// decide applies a record to the memory of deduplication. Done again, it must decide the same.
func (w *world) decide(state *dedup.State, rec *record) {
	state.Advance(rec.at)
	var verdicts []dedup.Verdict
	var observed []usage.Observation
	whole := dedup.New
	if rec.producer != "" {
		whole = state.Batch(rec.producer, rec.epoch, rec.sequence)
	}
	for i := range rec.events {
		e := &rec.events[i]
		p := w.products[slices.IndexFunc(w.products, func(p *usage.Product) bool { return p.Name == e.Product })]
		o, _, err := p.Observe(w.key, e, rec.at, nil)
		if err != nil {
			w.fatalf("%v", err)
		}
		verdict, id := whole, o.ID
		if rec.producer != "" {
			id = usage.Hash{}
		}
		if whole == dedup.New {
			verdict = state.Event(id, time.Unix(0, o.Time), p.Late)
		}
		verdicts, observed = append(verdicts, verdict), append(observed, o)
	}
	if rec.verdicts != nil && !slices.Equal(rec.verdicts, verdicts) {
		w.fatalf("decided again, a record is %v, it was %v", verdicts, rec.verdicts)
	}
	rec.verdicts, rec.observed = verdicts, observed
}

// step applies the next record to a counter.
func (w *world) step(c *counter) {
	rec, order := w.log[c.offset], uint64(c.offset)<<16
	switch {
	case rec.begin != nil:
		moves := movesOf(rec.begin, func(m route.Move) bool { return m.From == c.name })
		if w.copies[c.offset] == nil {
			w.copies[c.offset] = aggregate.New(w.cfg)
		}
		if len(rec.begin) > 0 && rec.begin[0].From == c.name {
			w.copies[c.offset] = c.main.Copy(moves)
		}
		next, err := c.table.Begin(rec.begin...)
		if err != nil {
			w.fatalf("%v", err)
		}
		c.table = next
		if rec.begin[0].To == c.name {
			c.loading = aggregate.New(w.cfg)
			w.catchUp(rec.begin[0].From, c.offset) // the copy is of this very offset
			c.loading.Merge(w.copies[c.offset])
		}
	case rec.finish != nil:
		next, err := c.table.Switch(false, rec.finish...)
		if err != nil {
			w.fatalf("%v", err)
		}
		c.table = next
		if rec.finish[0].To == c.name {
			c.main.Merge(c.loading)
			c.loading = aggregate.New(w.cfg)
		}
		if rec.finish[0].From == c.name {
			c.main.Drop(movesOf(rec.finish, func(m route.Move) bool { return m.From == c.name }))
		}
	case rec.void != nil:
		w.recount(c, rec.void)
	default:
		for i := range rec.observed {
			if rec.verdicts[i] == dedup.New {
				w.count(c, &rec.observed[i], order+uint64(i), (*aggregate.Counter).Apply)
			}
		}
	}
	c.main.Advance(rec.at)
	c.loading.Advance(rec.at)
	c.offset++
}

func movesOf(list []route.Move, is func(route.Move) bool) func(int) bool {
	shards := map[int]bool{}
	for _, m := range list {
		shards[m.Shard] = is(m)
	}
	return func(shard int) bool { return shards[shard] }
}

// catchUp has another counter apply the records up to an offset, and that one too.
func (w *world) catchUp(name string, offset int) {
	for _, c := range w.counters {
		for c.name == name && c.offset <= offset {
			w.step(c)
		}
	}
}

func (w *world) count(c *counter, o *usage.Observation, order uint64,
	apply func(*aggregate.Counter, *usage.Observation, uint64) aggregate.Outcome,
) {
	to, place := c.main, c.table.At(o.Identity.Shard())
	if place.Next == c.name {
		to = c.loading
	} else if place.Owner != c.name {
		return
	}
	if apply(to, o, order) != aggregate.Counted {
		w.fatalf("%s does not count an event of %s", c.name, time.Unix(0, o.Time))
	}
}

// recount takes voided events out: their minutes are cleared and counted again from the log before this record.
func (w *world) recount(c *counter, v *usage.Correction) {
	var voids usage.Voids
	for i, rec := range w.log[:c.offset+1] {
		if rec.void != nil {
			voids.Add(w.key, rec.void, uint64(i)<<16)
		}
	}
	s := aggregate.Series{Tenant: v.Tenant, Product: v.Product, Generation: 1}
	for _, state := range []*aggregate.Counter{c.main, c.loading} {
		span := state.Clear(s, window.Range{From: v.From, To: v.To})
		for i, rec := range w.log[:c.offset] {
			for j := range rec.observed {
				o, order := &rec.observed[j], uint64(i)<<16+uint64(j)
				place := c.table.At(o.Identity.Shard())
				mine := state == c.main && place.Owner == c.name || state == c.loading && place.Next == c.name
				if mine && rec.verdicts[j] == dedup.New && o.Tenant == v.Tenant && o.Product.Name == v.Product &&
					span.Contains(time.Unix(0, o.Time)) && !voids.Voided(o, rec.events[j].Source, order) {
					state.Recount(o, order)
				}
			}
		}
	}
}

// kill ends a counter, or the owner of the log: it comes back with its newest snapshot, and replays.
func (w *world) kill() {
	if w.r.IntN(4) == 0 {
		state, err := dedup.Read(pack.Read(w.saved), dedup.Config{})
		if err != nil {
			w.fatalf("%v", err)
		}
		for _, rec := range w.log[w.savedAt:] {
			if rec.events != nil {
				w.decide(state, rec)
			}
		}
		if !bytes.Equal(state.Append(nil), w.dedup.Append(nil)) {
			w.fatalf("the memory of ids is another one after a replay")
		}
		w.dedup, w.saved, w.savedAt = state, state.Append(nil), len(w.log)
		return
	}
	c := w.counters[w.r.IntN(len(w.counters))]
	offset := c.offset
	find := func(s aggregate.Series) (*usage.Product, bool) {
		i := slices.IndexFunc(w.products, func(p *usage.Product) bool { return p.Name == s.Product })
		return w.products[i], true
	}
	for i, to := range []**aggregate.Counter{&c.main, &c.loading} {
		state, err := aggregate.Read(pack.Read(c.saved[i]), w.cfg, find)
		if err != nil {
			w.fatalf("%v", err)
		}
		*to = state
	}
	for c.table, c.offset = c.savedTable, c.savedOffset; c.offset < offset; {
		w.step(c)
	}
}

// roll moves some shards of one counter to another: begins, or ends what was begun.
func (w *world) roll() {
	rec := &record{at: w.now}
	if w.moving != nil {
		rec.finish, w.moving = w.moving, nil
		w.log = append(w.log, rec)
		return
	}
	from := w.r.IntN(3)
	for _, c := range w.counters {
		for c.offset < len(w.log) {
			w.step(c)
		}
	}
	owned := w.counters[from].table.Owned(w.counters[from].name)
	to := w.counters[(from+1+w.r.IntN(2))%3].name
	for _, shard := range owned {
		if w.r.IntN(3) == 0 {
			w.moving = append(w.moving, route.Move{Shard: shard, From: w.counters[from].name, To: to})
		}
	}
	if rec.begin = w.moving; rec.begin != nil {
		w.log = append(w.log, rec)
	}
}

// void takes an event out that was counted.
func (w *world) void() {
	names := make([]string, 0, len(w.truth))
	for name, f := range w.truth {
		if w.now.Sub(f.first) < 30*time.Hour {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return
	}
	name := names[w.r.IntN(len(names))]
	f := w.truth[name]
	at := time.Unix(0, f.Time).UTC().Truncate(time.Minute)
	c := &usage.Correction{Kind: usage.Void, Tenant: f.Tenant, Product: f.Product, Source: f.Source, IDs: []string{f.ID},
		Reason: "test"}
	if err := c.Check(); err != nil {
		w.fatalf("%v", err)
	}
	c.From, c.To = at, at.Add(time.Minute) // where the event was: the wiring finds it in the log
	w.log = append(w.log, &record{at: w.now, void: c})
	w.voided[name] = true
}

// judge asks for an estimate and compares it with the model.
func (w *world) judge() {
	for _, c := range w.counters {
		for c.offset < len(w.log) {
			w.step(c)
		}
	}
	p := w.products[w.r.IntN(len(w.products))]
	tenant := []string{"berlin", "acme"}[w.r.IntN(2)]
	names := usage.WindowNames()
	span, err := w.cfg.Zone(tenant).Of(names[w.r.IntN(len(names))], w.now)
	if err != nil {
		w.fatalf("%v", err)
	}
	tag := -1
	if len(p.Tags) > 0 {
		tag = 0
	}
	s := aggregate.Series{Tenant: tenant, Product: p.Name, Generation: 1}
	var answer *aggregate.Partial
	for _, c := range w.counters {
		if part := c.main.Query(s, p, []window.Range{span}, tag); answer == nil {
			answer = part
		} else {
			answer.Merge(part)
		}
	}
	e := Make(p, Question{Range: span, Late: p.Late, By: tag >= 0}, answer, Coverage{Shards: usage.Shards,
		Warm: usage.Shards, AsOf: w.now})
	want, n := w.expected(tenant, p, span, "")
	switch {
	case n == 0 && (p.Kind == usage.Max || p.Kind == usage.Last):
		if e.Value != nil {
			w.fatalf("%s of nothing is %s", p.Kind, e.Value)
		}
		return
	case e.Value == nil:
		w.fatalf("%s has no value, want %s", p.Name, want)
	case e.Error.Method != Sketch && *e.Value != want:
		w.fatalf("%s of %s in %v: %s, want %s", p.Name, tenant, span, e.Value, want)
	case e.Error.Low.Compare(want) > 0 || e.Error.High.Compare(want) < 0:
		w.fatalf("%s of %s: %s to %s, want %s", p.Name, tenant, e.Error.Low, e.Error.High, want)
	case e.Error.Method == Sketch && p.Name != "users":
		w.fatalf("%s became a sketch", p.Name)
	}
	for _, row := range e.By {
		if want, _ := w.expected(tenant, p, span, row.Tag); row.Other || row.Value != want {
			w.fatalf("%s of %s, team %s: %s, want %s", p.Name, tenant, row.Tag, row.Value, want)
		}
	}
}

func (w *world) expected(tenant string, p *usage.Product, span window.Range, team string) (v usage.Quantity, n int) {
	seen := map[string]bool{}
	var last fact
	for name, f := range w.truth {
		at := time.Unix(0, f.Time)
		minutes := f.first.Unix()/60 - at.Unix()/60
		if f.Tenant != tenant || f.Product != p.Name || !span.Contains(at) || w.voided[name] || minutes > 24*60 ||
			team != "" && f.Tags[0].Value != team {
			continue
		}
		n++
		switch p.Kind {
		case usage.Unique:
			seen[fmt.Sprint(f.Identity[:len(p.Identity)])] = true
			v = usage.Uint(uint64(len(seen)))
		case usage.Sum:
			v, _ = v.Add(f.Value)
		case usage.Max:
			if n == 1 || f.Value.Compare(v) > 0 {
				v = f.Value
			}
		case usage.Last:
			if n == 1 || f.Time > last.Time || f.Time == last.Time && f.order > last.order {
				v, last = f.Value, f
			}
		}
	}
	return v, n
}

// TestHistories is the contract's section 9, "estimates equal the model's exactly for sums and exact sets", for the
// core: random histories with retries in other pieces, late events, voids, hand-over of shards, kills and replays
// over the night in which Berlin's clocks go back. Long form: go test ./usage/estimate -run TestHistories -histories
// 5000.
func TestHistories(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*histories); seed++ {
		w := newWorld(t, seed)
		for range 150 {
			w.now = w.now.Add(time.Duration(w.r.IntN(int(40 * time.Minute))))
			switch k := w.r.IntN(20); {
			case k < 11:
				w.send()
			case k == 11:
				w.kill()
			case k == 12:
				w.roll()
			case k == 13:
				w.void()
			case k == 14:
				c := w.counters[w.r.IntN(len(w.counters))]
				c.save()
			case k == 15:
				w.saved, w.savedAt = w.dedup.Append(nil), len(w.log)
			case k < 18: // some counters are behind
				if c := w.counters[w.r.IntN(len(w.counters))]; c.offset < len(w.log) {
					w.step(c)
				}
			default:
				w.judge()
			}
		}
		for range 10 {
			w.judge()
		}
	}
}
