// Package parts runs the counters of this server: of each part of the log of events that it leads, and of each of which
// it has a copy. A part is named by its home, the server that had it first; definitions.Part says who has it now.
//
// What always holds:
//   - An event is acknowledged when it is durable on the lead and, where the table names a copy, on that server too:
//     there first, so that a lead's log is never ahead of its copy's.
//   - Only who the table names as the copy may become the lead. A lead that cannot reach its copy goes on alone when
//     the plane's Raft group has taken the copy out of the table, and not before; Config.Alone says when it asks for
//     that, or that it never does.
//   - A lead that starts asks the Raft group for a new epoch, and takes from its copy what it lacks, before it takes
//     events. Who knows a newer epoch refuses the lead of an older one.
//   - A copy counts what it stores, so that it takes over without reading anything.
//
// Where brokers have the logs (Config.Shared), any server may lead a part: it reads the newest snapshot that it finds,
// and the log behind it. A lead that has not heard yet that it leads no more stores a record at an offset where the new
// one did not expect it: either of them then reads the log again, and what was acknowledged is counted once.
//
// The leader of the Raft group has the copy take over when a lead has been silent for Config.Failover, or when its host
// has refused connections for a third of that. It gives a part back to its home when that has had a copy for as long.
// Run owns all goroutines; the other methods are for any.
package parts

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/pace"
)

// Place is where a part is on this server.
type Place struct {
	Counter *counter.Counter
	// Begin empties the place and opens its log, which begins at an offset. No counter runs meanwhile.
	Begin func(ctx context.Context, first uint64) (eventlog.Log, error)
	// Save stores a state, which is in pieces, as the newest snapshot, as of an offset.
	Save func(ctx context.Context, state [][]byte, next uint64) error
}

// Config of Parts.
type Config struct {
	Self        string
	Definitions *definitions.Definitions
	// Open makes the place of a part, with a counter that follows and does not run yet.
	Open func(part string) (Place, error)
	// Call asks another server. Voters are the servers of the plane, and Leads says whether this one leads them.
	Call   func(ctx context.Context, server, method string, req []byte) ([]byte, error)
	Voters func() []string
	Leads  func() bool
	// Copies is how many servers have each part: 1 or 2.
	Copies int
	// Shared says that all servers reach the same logs, in brokers: any of them may lead any part, and there are no
	// copies.
	Shared bool
	// Alone is how long a lead waits for its copy before it asks to go on without it; zero never asks.
	Alone time.Duration
	// Failover is how long a lead is silent before its copy takes over; zero means 10 s.
	Failover time.Duration
	// Return is how long the parts of a server that is stopped by plan wait for it before another one gets their copies;
	// zero does not wait.
	Return time.Duration
	// Budget bounds what this server gives to copies that are being made; nil has no bound. What is acknowledged does not
	// wait for it.
	Budget  *pace.Budget
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// Parts is the owner. Make one with New.
type Parts struct {
	cfg    Config
	signal *counter.Signal

	settled atomic.Bool // it is known which parts this server has, and that it has them
	// leaving says that this server is about to be stopped: it becomes no copy any more. draining says that it gives up
	// what it has.
	leaving, draining atomic.Bool
	lane              *pace.Lane // of what goes to copies that are being made
	filling           sync.Mutex // held while a copy is being made: one at a time
	pinged            atomic.Pointer[pinged]
	warmup            *warmup

	mu      sync.Mutex // guards what follows
	parts   map[string]*part
	started chan *part // made while Run runs
	context context.Context
	away    map[string]absence // of servers that said that they are being stopped
	began   time.Time          // when Run did
}

// New makes Parts, with the place of this server's own part, and starts nothing.
func New(cfg Config, signal *counter.Signal) (*Parts, error) {
	cfg.Failover = cmp.Or(cfg.Failover, 10*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Budget == nil {
		cfg.Budget = pace.New(pace.Config{Clock: cfg.Clock, Metrics: cfg.Metrics})
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Parts{cfg: cfg, signal: signal, lane: cfg.Budget.Lane(pace.Server), parts: map[string]*part{},
		away: map[string]absence{}, started: make(chan *part, maxParts)}
	_, err := p.open(cfg.Self)
	cfg.Metrics.GaugeFunc("usage.counter.backlog", func() float64 { return float64(p.Backlog()) })
	cfg.Metrics.Declare(telemetry.KindGauge, "usage.counter.oldest_age", "How long, in milliseconds, the oldest batch "+
		"has waited to be stored and counted.")
	cfg.Metrics.GaugeFunc("usage.counter.oldest_age", func() float64 { return millis(p.Oldest()) })
	cfg.Metrics.GaugeFunc("usage.parts.led", func() float64 { led, _ := p.count(); return float64(led) })
	cfg.Metrics.GaugeFunc("usage.parts.copied", func() float64 { _, copied := p.count(); return float64(copied) })
	cfg.Metrics.GaugeFunc("usage.parts.alone", func() float64 { return float64(p.alone()) })
	p.warmup = newWarmup(p)
	return p, err
}

// maxParts bounds the parts of one server: a plane has as many as it has servers.
const maxParts = 64

// open finds a part, or makes it.
func (p *Parts) open(name string) (*part, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.parts[name]; found != nil {
		return found, nil
	}
	if len(p.parts) >= maxParts {
		return nil, errkind.Errorf(errkind.Overloaded, "usage: this server has %d parts", maxParts)
	}
	place, err := p.cfg.Open(name)
	if err != nil {
		return nil, err
	}
	made := &part{Place: place, p: p, name: name, bad: map[string]failure{}}
	p.parts[name] = made
	p.started <- made // has room for maxParts, which are never more
	return made, nil
}

// opened is open; nil is one that cannot be opened, which is told.
func opened(p *Parts, name string) *part {
	t, err := p.open(name)
	if err != nil {
		p.cfg.Log.Error("usage: a part cannot be opened", "part", name, "error", err)
	}
	return t
}

func (p *Parts) find(name string) *part {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parts[name]
}

func (p *Parts) all() (list []*part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, made := range p.parts {
		list = append(list, made)
	}
	return list
}

// over says that Run ends.
func (p *Parts) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.context != nil && p.context.Err() != nil
}

// Names are the parts of the plane, in order.
func (p *Parts) Names() []string {
	if owners := p.cfg.Definitions.View().Owners; len(owners) > 0 {
		return owners
	}
	return []string{p.cfg.Self}
}

// Local is the counter of a part that this server leads, as far as it knows; nil where another one does.
func (p *Parts) Local(name string) *counter.Counter {
	if p.cfg.Definitions.View().Part(name).Lead != p.cfg.Self {
		return nil
	}
	if found := p.find(name); found != nil {
		return found.Counter
	}
	return nil
}

// Served is Local, for a request of another server.
func (p *Parts) Served(name string) (*counter.Counter, error) {
	if c := p.Local(name); c != nil {
		return c, nil
	}
	return nil, errkind.Errorf(errkind.NotLeader, "usage: part %.60q is led by server %.60q, not by this one", name,
		p.cfg.Definitions.View().Part(name).Lead)
}

// Lead is the server that leads a part.
func (p *Parts) Lead(name string) string { return p.cfg.Definitions.View().Part(name).Lead }

// Warm says whether all parts that this server leads have counted what they stored, and take events.
func (p *Parts) Warm() bool {
	for _, name := range p.Names() {
		if c := p.Local(name); c != nil && !(c.Warm() && c.Leads()) {
			return false
		}
	}
	return true
}

// Changed is closed with the next change of what was counted here.
func (p *Parts) Changed() <-chan struct{} { return p.signal.Changed() }

// Backlog is how many bytes of events wait on this server.
func (p *Parts) Backlog() (bytes int64) {
	for _, made := range p.all() {
		bytes += made.Counter.Backlog()
	}
	return bytes
}

// Oldest is how long the oldest batch has waited on this server to be stored and counted.
func (p *Parts) Oldest() (age time.Duration) {
	for _, made := range p.all() {
		age = max(age, made.Counter.Share().Oldest())
	}
	return age
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (p *Parts) count() (led, copied int) {
	view := p.cfg.Definitions.View()
	for _, name := range p.Names() {
		switch now := view.Part(name); p.cfg.Self {
		case now.Lead:
			led++
		case now.Copy:
			copied++
		}
	}
	return led, copied
}

// alone is how many parts this server leads that have no copy and should have one.
func (p *Parts) alone() (n int) {
	view := p.cfg.Definitions.View()
	if len(p.cfg.Voters()) < 2 {
		return 0 // nobody else can have one
	}
	for _, name := range p.Names() {
		if now := view.Part(name); p.cfg.Copies > 1 && now.Lead == p.cfg.Self && now.Copy == "" {
			n++
		}
	}
	return n
}

// lonely tells for how long a part has had no copy.
func lonely(p *Parts, to *telemetry.Gauge, since time.Time) time.Time {
	if p.alone() == 0 {
		to.Set(0)
		return time.Time{}
	}
	if since.IsZero() {
		since = p.cfg.Clock.Now()
	}
	to.Set(millis(p.cfg.Clock.Since(since)))
	return since
}

// Run runs the counters until ctx ends.
func (p *Parts) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	p.mu.Lock()
	p.context, p.began = ctx, p.cfg.Clock.Now()
	p.mu.Unlock()
	wg.Go(func() { p.oversee(ctx) })
	wg.Go(func() { p.settle(ctx) })
	var since time.Time // since when a part has had no copy
	gauge := p.cfg.Metrics.Gauge("usage.parts.alone_ms")
	for {
		since = lonely(p, gauge, since)
		for _, name := range p.Names() { // after a restart, what the table says
			if now := p.cfg.Definitions.View().Part(name); now.Lead == p.cfg.Self || now.Copy == p.cfg.Self {
				opened(p, name)
			}
		}
		changed := p.cfg.Definitions.Changed()
		t := p.cfg.Clock.NewTimer(p.warmup.look())
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case made := <-p.started:
			wg.Go(func() { made.keep(ctx) })
			wg.Go(func() { made.run(ctx) })
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}
