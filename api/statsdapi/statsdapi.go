// Package statsdapi is the door of the usage plane for programs that send metrics: DogStatsD and plain statsd, over UDP
// and a Unix datagram socket.
//
// What comes within a flush is added up before it is stored: amounts of one product, tenant and tags are one event, and
// so is a member of a set however often it came. A datagram has no answer, so what cannot be taken is counted
// (usage.statsd.dropped) and nothing else; what was handed on is sent until it is stored, under a producer's sequence.
// What comes before it is known which products there are waits in the sockets' buffers.
//
// Bounds: MaxEntries wait to be stored; beyond, new ones are dropped. Run owns all goroutines.
package statsdapi

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/dogstatsd"
	"corbel.dev/corbel/usage/router"
)

// Bounds.
const (
	MaxEntries  = 100_000
	packetBytes = 64 << 10
	flushEvery  = 200 * time.Millisecond
	batchEvents = 5000
	readBuffer  = 8 << 20 // of a socket, as far as the machine allows
	readyLimit  = 10 * time.Second
)

// Config of a Door.
type Config struct {
	// Address is host:port of the UDP port, Socket the path of a Unix socket; "" has none.
	Address, Socket string
	// Tenant is whose usage all of it is; "" takes the tag tenant.
	Tenant string
	// Producer is this server's name as a producer.
	Producer string
	Kind     func(product string) (usage.Kind, bool)
	// Ready returns once Kind knows the products that there are; an error has it asked again. After readyLimit datagrams
	// are taken all the same: what is not known then is rejected, and counted. nil takes it that Kind knows.
	Ready   func(ctx context.Context) error
	Take    func(ctx context.Context, b *router.Batch) (router.Answer, error)
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// Door takes datagrams. Make one with Open.
type Door struct {
	cfg                                  Config
	conns                                []net.PacketConn
	packets, dropped, rejected, accepted *telemetry.Counter
	epoch, sequence                      uint64

	mu      sync.Mutex // guards known, tenants, list
	known   map[string]int
	tenants map[string]int // how many entries each has: a quarter at most, so that one leaves room to the others
	list    []cloudevents.Item
	arrived chan struct{} // has one element when a batch is full
}

// Open opens the sockets and starts nothing.
func Open(cfg Config) (*Door, error) {
	m := cfg.Metrics
	d := &Door{cfg: cfg, known: map[string]int{}, tenants: map[string]int{}, arrived: make(chan struct{}, 1),
		packets: m.Counter("usage.statsd.packets"), dropped: m.Counter("usage.statsd.dropped"),
		rejected: m.Counter("usage.statsd.rejected"), accepted: m.Counter("usage.statsd.events")}
	if cfg.Address != "" {
		addr, err := net.ResolveUDPAddr("udp", cfg.Address)
		if err != nil {
			return nil, err
		}
		c, err := net.ListenUDP("udp", addr)
		if err != nil {
			return nil, err
		}
		_ = c.SetReadBuffer(readBuffer) // the machine's limit is fine too
		d.conns = append(d.conns, c)
	}
	if cfg.Socket != "" {
		if info, err := os.Lstat(cfg.Socket); err == nil && info.Mode()&fs.ModeSocket != 0 {
			if err := os.Remove(cfg.Socket); err != nil {
				return nil, errors.Join(err, d.Close())
			}
		}
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: cfg.Socket, Net: "unixgram"})
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		d.conns = append(d.conns, c)
	}
	return d, nil
}

// Close closes the sockets, where Run is never called.
func (d *Door) Close() (err error) {
	for _, c := range d.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Addr is where the UDP port answers; nil without one.
func (d *Door) Addr() net.Addr {
	if d.cfg.Address == "" {
		return nil
	}
	return d.conns[0].LocalAddr()
}

// Run takes datagrams until ctx ends; what has been taken by then is stored.
func (d *Door) Run(ctx context.Context) error {
	d.epoch = uint64(d.cfg.Clock.Now().UnixNano())
	d.await(ctx)
	var parts life.Group
	parts.Add("store", d.store)
	for _, c := range d.conns {
		parts.Add("read", func(ctx context.Context) error {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // it ends the read
			defer stop()
			return d.read(ctx, c)
		})
	}
	return parts.Run(ctx)
}

// await waits until it is known which products there are, for readyLimit at most.
func (d *Door) await(ctx context.Context) {
	if d.cfg.Ready == nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := d.insist(within, d.cfg.Ready); err != nil && ctx.Err() == nil {
		d.cfg.Log.Warn("usage: metrics are taken before it is known which products there are", "error", err)
	}
}

// insist calls f until it succeeds; when ctx ends it returns f's last error.
func (d *Door) insist(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		t := d.cfg.Clock.NewTimer(flushEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

func (d *Door) read(ctx context.Context, c net.PacketConn) error {
	buf := make([]byte, packetBytes)
	var events []usage.Event
	for {
		n, _, err := c.ReadFrom(buf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			continue // of one datagram
		}
		d.packets.Add(1)
		var rejects []dogstatsd.Reject
		events, rejects = dogstatsd.Decode(events[:0], string(buf[:n]))
		d.rejected.Add(uint64(len(rejects)))
		d.add(events)
	}
}

// add adds events to what waits.
func (d *Door) add(events []usage.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var key []byte
	for i := range events {
		e := &events[i]
		if d.cfg.Tenant != "" {
			e.Tenant = d.cfg.Tenant
		}
		kind, known := d.cfg.Kind(e.Product)
		if !known {
			d.rejected.Add(1)
			continue
		}
		key = keyOf(key[:0], e)
		if at, ok := d.known[string(key)]; ok && (kind == usage.Sum || kind == usage.Unique) {
			if old := &d.list[at]; kind == usage.Sum {
				old.Value, _ = old.Value.Add(e.Value)
			}
			continue
		}
		if len(d.list) >= MaxEntries || d.cfg.Tenant == "" && d.tenants[e.Tenant] >= MaxEntries/4 {
			d.dropped.Add(1)
			continue
		}
		d.tenants[e.Tenant]++
		d.known[string(key)] = len(d.list)
		d.list = append(d.list, cloudevents.Item{Event: *e})
	}
	if len(d.list) >= batchEvents {
		select {
		case d.arrived <- struct{}{}:
		default:
		}
	}
}

// keyOf is what makes two events add up.
func keyOf(b []byte, e *usage.Event) []byte {
	b = append(append(append(b, e.Tenant...), 0), e.Product...)
	if e.Time != 0 {
		b = append(b, 0, byte(e.Time), byte(e.Time>>8), byte(e.Time>>16), byte(e.Time>>24), byte(e.Time>>32),
			byte(e.Time>>40), byte(e.Time>>48), byte(e.Time>>56))
	}
	for i, list := range [...][]usage.Field{e.Identity, e.Tags} {
		b = append(b, 1, byte(i))
		for _, f := range list {
			b = append(append(append(append(b, f.Name...), 2), f.Value...), 3)
		}
	}
	return b
}

// store hands on what waits.
func (d *Door) store(ctx context.Context) error {
	for {
		t := d.cfg.Clock.NewTimer(flushEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			d.flush(end)
			return nil
		case <-t.C:
		case <-d.arrived:
		}
		t.Stop()
		d.flush(ctx)
	}
}

func (d *Door) flush(ctx context.Context) {
	d.mu.Lock()
	list := d.list
	d.list = nil
	clear(d.known)
	clear(d.tenants)
	d.mu.Unlock()
	now := d.cfg.Clock.Now().UnixNano()
	for i := range list {
		if list[i].Time == 0 {
			list[i].Time = now // a batch that is sent again keeps it
		}
	}
	for part := range slices.Chunk(list, batchEvents) {
		d.sequence++
		d.send(ctx, &router.Batch{Producer: d.cfg.Producer, Epoch: d.epoch, Sequence: d.sequence, Items: part})
	}
}

// send sends a batch until it is stored or ctx ends.
func (d *Door) send(ctx context.Context, b *router.Batch) {
	var answer router.Answer
	err := d.insist(ctx, func(ctx context.Context) (err error) {
		answer, err = d.cfg.Take(ctx, b)
		return err
	})
	if err != nil {
		d.dropped.Add(uint64(len(b.Items)))
		d.cfg.Log.Warn("usage: metrics were lost at the end of the process", "events", len(b.Items),
			"error", strings.TrimSpace(err.Error()))
		return
	}
	d.accepted.Add(uint64(answer.Accepted))
	d.rejected.Add(uint64(len(answer.Rejected)))
	if len(answer.Rejected) > 0 {
		d.cfg.Log.Debug("usage: metrics were rejected", "count", len(answer.Rejected), "first", answer.Rejected[0].Error)
	}
}
