package finished

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/window"
)

// memory is a table that can fail.
type memory struct {
	mu     sync.Mutex // guards what follows
	rows   map[string]Row
	last   []string // what the last Puts wrote
	fails  error
	newest time.Time
	closed int
}

func (m *memory) Put(_ context.Context, rows []Row) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return m.fails
	}
	for _, r := range rows {
		value := "nothing"
		if r.Value != nil {
			value = r.Value.String()
		}
		state := "open"
		if r.Final() {
			state = "final"
		}
		key := fmt.Sprintf("%s %s %s", r.Tenant, r.Window, r.From.Format("02T15"))
		m.rows[key], m.last = r, append(m.last, fmt.Sprintf("%s=%s %s", key, value, state))
	}
	return nil
}

func (m *memory) Newest(context.Context) (time.Time, error) { return m.newest, nil }

func (m *memory) Close() { m.closed++ }

// wrote is what has been written since it was asked last.
func (m *memory) wrote() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.last)
	text := strings.Join(m.last, "; ")
	m.last = nil
	return text
}

// source has numbers of one product.
type source struct {
	counts *aggregate.Counter
	p      *usage.Product
	clock  *clock.Fake
	orders uint64
	silent []string
}

func (s *source) Series(context.Context) ([]aggregate.Series, []string) {
	return s.counts.Series(), s.silent
}

func (s *source) Estimate(_ context.Context, q aggregator.Question) (estimate.Estimate, error) {
	ranges := []window.Range{{From: q.From, To: q.To}}
	if q.Step != "" {
		steps, err := q.Zone.Steps(ranges[0], q.Step, aggregator.MaxSteps)
		if err != nil {
			return estimate.Estimate{}, err
		}
		ranges = append(ranges, steps...)
	}
	series := aggregate.Series{Tenant: q.Tenant, Product: q.Product, Generation: s.p.Generation}
	return estimate.Make(s.p, estimate.Question{Range: ranges[0], Late: s.p.Late, Step: q.Step != ""},
		s.counts.Query(series, s.p, ranges, -1), estimate.Coverage{Shards: 1, Warm: 1, AsOf: s.clock.Now()}), nil
}

func (s *source) event(t *testing.T, tenant string, at time.Time, value int64) {
	t.Helper()
	e := usage.Event{Tenant: tenant, Product: s.p.Name, Time: at.UnixNano(), HasValue: true, Value: usage.Int(value)}
	o, _, err := s.p.Observe(usage.Key{}, &e, s.clock.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.orders++
	if got := s.counts.Apply(&o, s.orders); got != aggregate.Counted {
		t.Fatalf("the event at %s: %v", at, got)
	}
}

// world is a writer with a table, a clock at half past midnight, and a product with hours and days that takes events
// for two hours.
type world struct {
	*source
	*memory
	w    *Writer
	view *definitions.View
}

func newWorld(t *testing.T) *world {
	t.Helper()
	p := usage.Product{Name: "calls", Kind: usage.Sum, Windows: []string{"5m", "hour", "day"}, Late: 2 * time.Hour}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	products, made := usage.Products{}.Put(p, time.Time{})
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	zone := func(tenant string) window.Zone {
		if tenant == "berlin" {
			return window.In(berlin)
		}
		return window.In(time.UTC)
	}
	s := &source{counts: aggregate.New(aggregate.Config{Zone: zone}), p: made,
		clock: clock.NewFake(time.Date(2026, 5, 2, 0, 30, 0, 0, time.UTC))}
	o := &world{source: s, memory: &memory{rows: map[string]Row{}}, view: &definitions.View{Products: products}}
	o.w = New(Config{Source: s, View: func() *definitions.View { return o.view }, Zone: zone, Clock: s.clock,
		Open: func(context.Context) (Table, error) { return o.memory, nil }, Leads: func() bool { return true }})
	return o
}

// passes looks once, and compares what is written.
func (o *world) passes(t *testing.T, what, want string) {
	t.Helper()
	if err := o.w.pass(t.Context()); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if got := o.wrote(); got != want {
		t.Errorf("%s: it wrote %s\nwant %s", what, got, want)
	}
}

// TestWriter: a window is written when it is over, again where its number changed or became final, and not otherwise.
func TestWriter(t *testing.T) {
	o := newWorld(t)
	midnight := o.clock.Now().Truncate(24 * time.Hour)
	o.event(t, "acme", midnight.Add(-110*time.Minute), 5)
	o.event(t, "acme", midnight.Add(-50*time.Minute), 7)
	o.event(t, "acme", midnight.Add(10*time.Minute), 1)
	o.passes(t, "what is over", "acme day 01T00=12 open; acme hour 01T22=5 open; acme hour 01T23=7 open")
	o.passes(t, "nothing new", "")
	o.event(t, "acme", midnight.Add(-40*time.Minute), 3)
	o.passes(t, "an event that came late", "acme day 01T00=15 open; acme hour 01T23=10 open")
	o.clock.Advance(150 * time.Minute)
	o.passes(t, "what can change no more",
		"acme day 01T00=15 final; acme hour 01T22=5 final; acme hour 01T23=10 final; acme hour 02T00=1 final")
	o.passes(t, "nothing new", "")
	o.event(t, "acme", o.clock.Now().Add(-time.Minute), 2)
	o.fails = errors.New("the table is away")
	if err := o.w.pass(t.Context()); !errors.Is(err, o.fails) {
		t.Errorf("the table is away: %v", err)
	}
	o.fails = nil
	o.passes(t, "after a failure", "acme hour 02T02=2 open")
	o.silent = []string{"s2: it does not answer"}
	o.event(t, "acme", o.clock.Now().Add(-2*time.Minute), 2)
	if err := o.w.pass(t.Context()); err == nil {
		t.Error("a part that does not answer is no reason to come again")
	}
	if got := o.wrote(); got != "acme hour 02T02=4 open" {
		t.Errorf("beside a part that does not answer: %s", got)
	}
	row := o.rows["acme hour 02T02"]
	if row.To.Sub(row.From) != time.Hour || row.Kind != "sum" || row.Zone != "UTC" || row.Completeness.Ratio != 1 {
		t.Errorf("%+v", row)
	}
}

// TestCalendars: a tenant's windows are those of its own calendar, and a new leader goes on where the table ends.
func TestCalendars(t *testing.T) {
	o := newWorld(t)
	midnight := o.clock.Now().Truncate(24 * time.Hour)
	o.event(t, "berlin", midnight.Add(-150*time.Minute), 5) // half an hour before the end of a day there
	o.event(t, "berlin", midnight.Add(-90*time.Minute), 7)
	o.passes(t, "days of Berlin", "berlin day 30T22=5 final; berlin hour 01T21=5 final; berlin hour 01T22=7 open")
	next := *o
	next.w = New(o.w.cfg)
	next.newest = o.clock.Now()
	next.passes(t, "the next leader", "berlin day 30T22=5 final; berlin hour 01T21=5 final; berlin hour 01T22=7 open")
	o.clock.Advance(60 * 24 * time.Hour) // hours are written for two days, days for five weeks
	next = *o
	next.w = New(o.w.cfg)
	next.newest = time.Time{}
	next.passes(t, "what is long over", "")
}

// TestRevised: a correction has the windows that it changed written again.
func TestRevised(t *testing.T) {
	o := newWorld(t)
	midnight := o.clock.Now().Truncate(24 * time.Hour)
	o.event(t, "acme", midnight.Add(-50*time.Minute), 7)
	o.clock.Advance(4 * time.Hour)
	o.passes(t, "what is over", "acme day 01T00=7 final; acme hour 01T23=7 final")
	o.clock.Advance(72 * time.Hour)
	o.passes(t, "long after", "")
	o.event(t, "acme", midnight.Add(-45*time.Minute), 2) // as a replacement does
	view := *o.view
	view.Periods = []estimate.Period{{Series: o.counts.Series()[0], From: midnight.Add(-24 * time.Hour), To: midnight,
		Closed: usage.Int(7), Revisions: []estimate.Revision{{At: o.clock.Now(), Value: usage.Int(9)}}}}
	o.view = &view
	o.passes(t, "a correction", "acme day 01T00=9 final")
}

// TestRun: it looks soon after its start, writes nothing where another server leads, and closes the table at its end.
func TestRun(t *testing.T) {
	o := newWorld(t)
	midnight := o.clock.Now().Truncate(24 * time.Hour)
	o.event(t, "acme", midnight.Add(-50*time.Minute), 7)
	leads := make(chan bool, 8)
	for _, l := range []bool{false, true, true, true} { // a pass asks before and in it
		leads <- l
	}
	o.w.cfg.Leads = func() bool {
		select {
		case l := <-leads:
			return l
		default:
			return true
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.w.Run(ctx) }()
	waits := func() { polltest.Until(t, func() bool { return o.clock.Timers() == 1 }, "the writer to wait") }
	waits()
	o.clock.Advance(firstPass)
	waits()
	if got := o.wrote(); got != "" {
		t.Errorf("while another server leads: %s", got)
	}
	o.clock.Advance(retryEvery)
	waits()
	if got := o.wrote(); got != "acme day 01T00=7 open; acme hour 01T23=7 open" {
		t.Error(got)
	}
	cancel()
	if err := <-done; err != nil || o.closed != 1 {
		t.Errorf("%v, closed %d times", err, o.closed)
	}
}
