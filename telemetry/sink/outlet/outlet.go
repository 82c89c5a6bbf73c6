// Package outlet carries telemetry packets to one address that may be slow, dead,
// unresolvable or lying, without its producer ever noticing.
//
// Invariants:
//   - Offer never blocks: the queue holds Config.QueueCount packets; when it is full
//     the new packet is dropped and its lines are counted in telemetry.sink.dropped.
//   - Names are resolved in the background, again every 30 s and after an error. Start
//     does not wait for a name, and a changed address is taken up at the next pass.
//   - Every dial and write has a deadline. A write that fails loses its packet (counted)
//     and closes the connection: half a packet on a stream cannot be mended.
//   - While nothing is connected, packets are dropped and counted, not kept: old
//     measurements are worth less than the memory.
//
// Run owns all goroutines. On its way out it delivers what is queued, for half a second at most.
package outlet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

const (
	dialTimeout    = 5 * time.Second
	writeTimeout   = time.Second
	resolveTimeout = 5 * time.Second
	resolveEvery   = 30 * time.Second
	drainTimeout   = 500 * time.Millisecond
	minBackoff     = 250 * time.Millisecond
	maxBackoff     = 10 * time.Second
	// sendBuffer is what the system holds for a TCP sink that does not read; its own bound is megabytes, minutes of
	// metrics that nobody knows to be lost. It is enough for 640 kB/s to a peer 200 ms away.
	sendBuffer = 128 << 10
	// provenAfter is how long a connection must have taken what it was given before the
	// next failure counts as a first one: a peer that accepts and never reads takes the
	// first 200 kB of each connection, again and again.
	provenAfter = 5 * time.Second
	// settledAfter is how long nothing must have failed until an outage is said to be over.
	settledAfter = time.Minute
)

// Resolver looks up a host name; net.DefaultResolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config makes an Outlet.
type Config struct {
	Sink     string // the label of its metrics
	Target   Target
	Registry *telemetry.Registry
	Clock    clock.Clock  // nil means the machine's
	Logger   *slog.Logger // nil discards
	Resolver Resolver     // nil means the system's
	// Dial opens the connection; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// QueueCount is how many packets wait at most; 0 means 256 (360 kB).
	QueueCount int
}

// Target is where packets go.
type Target struct {
	Network string // udp, tcp, unix (datagram or stream, whichever is there), unixgram, unixstream
	Address string // host:port or a path
}

// ParseTarget reads host:port (over network), or udp://, tcp://, unix://, unixgram://, unixstream://.
func ParseTarget(network, s string) (Target, error) {
	t := Target{Network: network, Address: s}
	if scheme, rest, found := strings.Cut(s, "://"); found {
		t = Target{scheme, rest}
	}
	switch t.Network {
	case "udp", "tcp":
		host, port, err := net.SplitHostPort(t.Address)
		if err != nil {
			return t, errkind.Errorf(errkind.Invalid, "address %q is not host:port", s)
		}
		if _, err := net.LookupPort(t.Network, port); err != nil {
			return t, errkind.Errorf(errkind.Invalid, "address %q has no valid port", s)
		}
		if host == "" {
			t.Address = net.JoinHostPort("127.0.0.1", port)
		}
	case "unix", "unixgram", "unixstream":
		if t.Address == "" {
			return t, errkind.Errorf(errkind.Invalid, "address %q names no socket", s)
		}
	default:
		return t, errkind.Errorf(errkind.Invalid, "address %q: scheme %q is not known", s, t.Network)
	}
	return t, nil
}

type packet struct {
	bytes []byte
	lines int
}

// Outlet is one address' queue and writer. Offer may be called by one goroutine or many.
type Outlet struct {
	cfg   Config
	queue chan packet
	// current is the resolved address; nil while there is none.
	current atomic.Pointer[string]
	// resting is until when nothing is tried after a failure, in Unix nanoseconds; 0 while things go well.
	resting atomic.Int64
	kick    chan struct{} // asks for a resolution before its time

	dropped, sent, failures *telemetry.Counter
	deaf                    *telemetry.Gauge // 1 from the first failure of an outage until its end
}

// New makes an Outlet; it opens nothing.
func New(cfg Config) *Outlet {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if cfg.QueueCount <= 0 {
		cfg.QueueCount = 256
	}
	o := &Outlet{
		cfg: cfg, queue: make(chan packet, cfg.QueueCount), kick: make(chan struct{}, 1),
		dropped:  cfg.Registry.Counter("telemetry.sink.dropped", "sink", cfg.Sink),
		sent:     cfg.Registry.Counter("telemetry.sink.sent", "sink", cfg.Sink),
		failures: cfg.Registry.Counter("telemetry.sink.errors", "sink", cfg.Sink),
		deaf:     cfg.Registry.Gauge("telemetry.sink.deaf", "sink", cfg.Sink),
	}
	if !o.needsResolving() {
		o.current.Store(&cfg.Target.Address)
	}
	return o
}

// Offer queues a packet of so many lines; the Outlet owns it from then on. It
// never blocks; false means that it was dropped and counted.
func (o *Outlet) Offer(b []byte, lines int) bool {
	select {
	case o.queue <- packet{b, lines}:
		return true
	default:
		o.Drop(lines)
		return false
	}
}

// Stuck tells that a packet offered now would be dropped: a producer can then save
// itself the making of packets. It ends by itself, so ask again.
func (o *Outlet) Stuck() bool {
	return len(o.queue) == cap(o.queue) || o.cfg.Clock.Now().UnixNano() < o.resting.Load()
}

// Drop counts lines that the producer gave up by itself.
func (o *Outlet) Drop(lines int) { o.dropped.Add(uint64(lines)) }

// Run delivers until ctx ends, then for at most half a second what is still queued.
func (o *Outlet) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if o.needsResolving() {
		wg.Go(func() { o.resolveLoop(ctx) })
	}
	w := writer{o: o}
	defer w.close()
	for {
		select {
		case <-ctx.Done():
			w.drain()
			return nil
		case p := <-o.queue:
			w.deliver(ctx, p)
		}
	}
}

func (o *Outlet) needsResolving() bool {
	if o.cfg.Target.Network != "udp" && o.cfg.Target.Network != "tcp" {
		return false
	}
	_, err := netip.ParseAddrPort(o.cfg.Target.Address)
	return err != nil
}

// writer holds the connection; only Run's goroutine touches it.
type writer struct {
	o       *Outlet
	conn    net.Conn
	address string // what conn was dialled to
	framed  bool   // each packet goes out behind its length
	failing bool
	failed  time.Time // the newest failure
	retryAt time.Time
	backoff time.Duration
	since   time.Time // when conn was dialled
	frame   []byte
}

func (w *writer) deliver(ctx context.Context, p packet) {
	now := w.o.cfg.Clock.Now()
	if w.conn == nil && now.Before(w.retryAt) {
		w.o.Drop(p.lines)
		return
	}
	if err := w.connect(ctx); err != nil {
		w.fail(ctx, p, err)
		return
	}
	if err := w.write(p.bytes, writeTimeout); err != nil {
		w.fail(ctx, p, err)
		return
	}
	w.o.sent.Add(uint64(p.lines))
	if now.Sub(w.since) >= provenAfter {
		w.backoff = 0
	}
	w.o.resting.Store(0)
	// A write to UDP without a listener succeeds, and the next one tells of it: an outage is over when nothing failed
	// for a while.
	if w.failing && now.Sub(w.failed) >= settledAfter {
		w.failing = false
		w.o.deaf.Set(0)
		w.o.cfg.Registry.Publish(telemetry.SinkRecovered{Sink: w.o.cfg.Sink})
		w.o.cfg.Logger.Info("telemetry sink is delivering again", "sink", w.o.cfg.Sink)
	}
}

var errUnresolved = errors.New("the name does not resolve yet")

// connect makes sure that there is a connection to the current address.
func (w *writer) connect(ctx context.Context) error {
	address := w.o.current.Load()
	if address == nil {
		return fmt.Errorf("%s: %w", w.o.cfg.Target.Address, errUnresolved)
	}
	if w.conn != nil && w.address == *address {
		return nil
	}
	w.close()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	network := w.o.cfg.Target.Network
	dial := w.o.cfg.Dial
	var err error
	switch network {
	case "unixstream":
		w.conn, err = dial(ctx, "unix", *address)
		w.framed = true
	case "unix":
		w.framed = false
		w.conn, err = dial(ctx, "unixgram", *address)
		if errors.Is(err, syscall.EPROTOTYPE) {
			w.framed = true
			w.conn, err = dial(ctx, "unix", *address)
		}
	default:
		w.conn, err = dial(ctx, network, *address)
	}
	if err != nil {
		w.conn = nil // a typed nil from a dialer is not a connection
		return err
	}
	if c, ok := w.conn.(*net.TCPConn); ok {
		_ = c.SetWriteBuffer(sendBuffer) // without it the system's own bound holds, which is larger
	}
	w.address, w.since = *address, w.o.cfg.Clock.Now()
	return nil
}

func (w *writer) write(b []byte, within time.Duration) error {
	// The kernel's time, whatever cfg.Clock says: a deadline must hold in fault runs too.
	if err := w.conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if w.framed {
		w.frame = binary.LittleEndian.AppendUint32(w.frame[:0], uint32(len(b)))
		w.frame = append(w.frame, b...)
		b = w.frame
	}
	_, err := w.conn.Write(b)
	return err
}

// fail drops the packet, closes the connection and tells the world once per outage.
func (w *writer) fail(ctx context.Context, p packet, err error) {
	w.close()
	w.o.Drop(p.lines)
	if ctx.Err() != nil {
		return
	}
	w.o.failures.Add(1)
	w.failed = w.o.cfg.Clock.Now()
	w.backoff = min(max(2*w.backoff, minBackoff), maxBackoff)
	w.retryAt = w.o.cfg.Clock.Now().Add(w.backoff)
	w.o.resting.Store(w.retryAt.UnixNano())
	select {
	case w.o.kick <- struct{}{}:
	default:
	}
	if !w.failing {
		w.failing = true
		w.o.deaf.Set(1)
		w.o.cfg.Registry.Publish(telemetry.SinkFailing{Sink: w.o.cfg.Sink, Reason: err.Error()})
		w.o.cfg.Logger.Warn("telemetry sink is not accepting data; metrics are dropped and counted",
			"sink", w.o.cfg.Sink, "error", err)
	}
}

// drain delivers what is queued over the connection that is there.
func (w *writer) drain() {
	until := time.Now().Add(drainTimeout)
	for {
		select {
		case p := <-w.o.queue:
			if w.conn == nil || w.write(p.bytes, time.Until(until)) != nil {
				w.close()
				w.o.Drop(p.lines)
			} else {
				w.o.sent.Add(uint64(p.lines))
			}
		default:
			return
		}
	}
}

func (w *writer) close() {
	if w.conn != nil {
		// The connection is given up whatever Close says.
		_ = w.conn.Close()
		w.conn = nil
	}
}
