// Package pace is the budget of bytes for what makes counters warm: one bucket for a host, from which every load and
// store of a snapshot takes, wherever it goes, so that what is counted meanwhile has the network and the disks for
// itself.
//
// What always holds:
//   - No more goes than the rate and a burst of a second. What is larger than a burst goes, and is waited for
//     afterwards, so pieces are to be small.
//   - The rate is what the configuration says, or a share of the speed of the network card, which is halved with each
//     second in which the card dropped packets.
//   - The folder of this server crosses no link: a byte of it costs an eighth.
//   - Who gives up waiting gives back what it took.
//
// A Budget is for any goroutine, and starts none.
package pace

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/uplink"
	"corbel.dev/corbel/telemetry"
)

// Config of a Budget.
type Config struct {
	// Rate is in bytes a second. Zero has no bound, and below zero it is a share of the speed of Link, less while that
	// drops packets.
	Rate int
	// Link tells of the card; nil is one of which nothing is known.
	Link    func() uplink.State
	Clock   clock.Clock
	Metrics *telemetry.Registry
}

// Budget is the bucket of a host. Make one with New.
type Budget struct {
	clock   clock.Clock
	link    func() uplink.State // nil: the rate is what it is, zero is without end
	metrics *telemetry.Registry

	mu    sync.Mutex // guards what follows; held while the card is asked, which is a file or two
	rate  float64    // bytes a second
	share share
	left  float64
	at    time.Time
}

// The metrics: bytes that were loaded, by whence, and sent or stored, by where; and how long what waited.
const (
	LoadedBytes = "usage.warmup.bytes"
	SentBytes   = "usage.warmup.sent"
	Waited      = "usage.warmup.waited_ms"
)

// New makes a Budget that is full.
func New(cfg Config) *Budget {
	b := &Budget{clock: cfg.Clock, metrics: cfg.Metrics}
	if b.clock == nil {
		b.clock = clock.Real{}
	}
	switch {
	case cfg.Rate >= 0:
		b.rate = float64(cfg.Rate)
	case cfg.Link == nil:
		b.link = func() uplink.State { return uplink.State{} }
	default:
		b.link = cfg.Link
	}
	m := cfg.Metrics
	m.Declare(telemetry.KindCounter, LoadedBytes, "What was loaded before events could be counted, as it travelled.")
	m.Declare(telemetry.KindCounter, SentBytes, "What was saved of the state, or given to servers that load, as it "+
		"travelled.")
	m.Declare(telemetry.KindCounter, Waited, "How long loads and stores of snapshots have waited for their budget.")
	m.Declare(telemetry.KindGauge, "usage.warmup.budget", "Bytes a second that loads and stores of snapshots may "+
		"take of this host, as of the last time.")
	m.GaugeFunc("usage.warmup.budget", b.Rate)
	return b
}

// Rate is that of the last look, in bytes a second; zero has no bound.
func (b *Budget) Rate() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rate
}

// Lane is a place to or from which snapshots go. The zero value and nil have no budget, and count nothing.
type Lane struct {
	b              *Budget
	cost           float64 // of a byte
	loaded, sent   *telemetry.Counter
	loads, savings *telemetry.Counter // how long they waited
}

// Folder is the lane of this server's own disk, Server that of other servers.
const (
	Folder = "folder"
	Server = "server"
)

// folderCost is what a byte of the folder costs: a disk of one's own is several times as fast as the link, and a
// restart is not to wait for the network.
const folderCost = 1. / 8

// Lane is the one of a name. What a server gives to others that load is a load, too: theirs.
func (b *Budget) Lane(name string) *Lane {
	m := b.metrics
	l := &Lane{b: b, cost: 1, loaded: m.Counter(LoadedBytes, "from", name), sent: m.Counter(SentBytes, "to", name),
		loads: m.Counter(Waited, "of", name), savings: m.Counter(Waited, "of", "saving")}
	switch name {
	case Folder:
		l.cost = folderCost
	case Server:
		l.savings = l.loads
	}
	return l
}

// Load waits until so many bytes may come, and counts them.
func (l *Lane) Load(ctx context.Context, bytes int) error {
	if l == nil || l.b == nil {
		return ctx.Err()
	}
	if err := l.take(ctx, bytes, l.loads); err != nil {
		return err
	}
	l.loaded.Add(uint64(bytes))
	return nil
}

// Send waits until so many bytes may go, and counts them.
func (l *Lane) Send(ctx context.Context, bytes int) error {
	if l == nil || l.b == nil {
		return ctx.Err()
	}
	if err := l.take(ctx, bytes, l.savings); err != nil {
		return err
	}
	l.sent.Add(uint64(bytes))
	return nil
}

// Charge takes bytes that have come already, and waits for nothing: Load of the next ones does.
func (l *Lane) Charge(bytes int) {
	if l != nil && l.b != nil {
		l.b.take(float64(bytes) * l.cost)
		l.loaded.Add(uint64(bytes))
	}
}

// Loaded counts bytes that came by somebody else's budget.
func (l *Lane) Loaded(bytes int) {
	if l != nil && l.b != nil {
		l.loaded.Add(uint64(bytes))
	}
}

func (l *Lane) take(ctx context.Context, bytes int, waited *telemetry.Counter) error {
	cost := float64(bytes) * l.cost
	wait := l.b.take(cost)
	if wait <= 0 {
		return ctx.Err()
	}
	began := l.b.clock.Now()
	t := l.b.clock.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		l.b.giveBack(cost)
	}
	waited.Add(uint64(max(0, l.b.clock.Since(began).Milliseconds())))
	return ctx.Err()
}

// take takes bytes, and says how long to wait for them.
func (b *Budget) take(bytes float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if b.link != nil && b.share.due(now) {
		b.rate = b.share.next(now, b.link())
	}
	if b.rate <= 0 {
		return 0
	}
	if b.at.IsZero() {
		b.left = b.rate
	} else {
		b.left = min(b.left+b.rate*now.Sub(b.at).Seconds(), b.rate)
	}
	b.at = now
	b.left -= bytes
	if b.left >= 0 {
		return 0
	}
	return time.Duration(-b.left / b.rate * float64(time.Second))
}

func (b *Budget) giveBack(bytes float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += bytes
}

// What a warm-up may take of a link.
const (
	linkShare   = 0.3      // of its speed: usage.md of the contracts, section 7
	unknownLink = 64 << 20 // in bytes a second, where the speed is not known
	leastRate   = 1 << 20
	shareLook   = time.Second
	shareStale  = 10 * time.Second
	leastPart   = 1. / 16
	partGrows   = 1.25 // each look without a drop: from the least to all of it in 13 s
)

// share is what may go over a link: a part of its speed, and with each look that finds packets dropped half of that,
// until there are no more.
type share struct {
	part    float64
	dropped uint64
	at      time.Time
}

// due says whether it is time to look.
func (s *share) due(now time.Time) bool { return s.at.IsZero() || now.Sub(s.at) >= shareLook }

// next is the rate from now on, in bytes a second. What was dropped while nothing went says nothing.
func (s *share) next(now time.Time, link uplink.State) float64 {
	switch {
	case s.at.IsZero() || now.Sub(s.at) > shareStale:
		s.part = 1
	case link.Dropped > s.dropped:
		s.part = max(s.part/2, leastPart)
	default:
		s.part = min(s.part*partGrows, 1)
	}
	s.dropped, s.at = link.Dropped, now
	full := link.Speed * linkShare
	if full <= 0 {
		full = unknownLink
	}
	return max(full*s.part, leastRate)
}
