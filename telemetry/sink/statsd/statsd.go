// Package statsd writes the registry's changes as statsd lines: plain statsd over
// UDP, statsite over TCP, and dogstatsd over UDP and unix sockets.
//
// Each flush (100 ms) writes counters as the difference since the last one (|c)
// and timings as samples (|ms). Gauges (|g) are looked at once a second and written
// when they changed, and each ten seconds in any case, since a datagram may be lost.
// Packets hold whole lines and at most 1,400 bytes. What the outlet cannot take is dropped
// and counted there; the differences it held are gone, as is usual for statsd.
//
// A Sink reads the registry through a cursor of its own. Nothing that observes metrics
// knows that it exists.
package statsd

import (
	"context"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/telemetry/sink/outlet"
)

// PacketBytes is the largest packet: it fits an Ethernet frame with room for tunnels.
const PacketBytes = 1400

const (
	defaultFlush = 100 * time.Millisecond
	gaugeEvery   = time.Second
	gaugeRefresh = 10 * time.Second
	// stuckEvery is how often what happened is counted as dropped while the outlet takes nothing.
	stuckEvery = time.Second
)

// Config makes a Sink.
type Config struct {
	Dialect  Dialect
	Tags     []string // on each line, dogstatsd only
	Registry *telemetry.Registry
	Outlet   outlet.Config
	Clock    clock.Clock   // nil means the machine's
	Flush    time.Duration // 0 means 100 ms
}

// Sink is one destination. Run it once.
type Sink struct {
	cfg    Config
	tags   string
	cursor *telemetry.Cursor
	out    *outlet.Outlet

	lines  map[*telemetry.Series]*line
	gauges map[*telemetry.Series]gaugeMark
	packet []byte
	count  int // lines in packet
	room   []byte
	values []float64
}

type gaugeMark struct {
	value float64
	at    time.Time
}

// New makes a Sink; it opens nothing.
func New(cfg Config) *Sink {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Flush <= 0 {
		cfg.Flush = defaultFlush
	}
	s := &Sink{
		cfg: cfg, cursor: cfg.Registry.NewCursor(), out: outlet.New(cfg.Outlet),
		tags:  strings.Join(cfg.Tags, ","),
		lines: make(map[*telemetry.Series]*line), gauges: make(map[*telemetry.Series]gaugeMark),
		values: make([]float64, 0, sampleLimit),
	}
	s.cursor.Skip() // what was counted before the sink was asked for is not its news
	return s
}

// Run flushes until ctx ends, then once more.
func (s *Sink) Run(ctx context.Context) error {
	outCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.out.Run(outCtx) }) // it has no errors but ctx's
	defer wg.Wait()
	defer stop()
	timer := s.cfg.Clock.NewTimer(s.cfg.Flush)
	defer timer.Stop()
	var gaugesAt, droppedAt time.Time
	for {
		select {
		case <-ctx.Done():
			s.flush(s.cfg.Clock.Now(), true)
			return nil
		case <-timer.C:
		}
		now := s.cfg.Clock.Now()
		if s.out.Stuck() {
			if now.Sub(droppedAt) >= stuckEvery {
				s.drop()
				droppedAt = now
			}
			timer.Reset(s.cfg.Flush)
			continue
		}
		withGauges := now.Sub(gaugesAt) >= gaugeEvery
		if withGauges {
			gaugesAt = now
		}
		s.flush(now, withGauges)
		timer.Reset(s.cfg.Flush)
	}
}

// flush writes what changed into packets and hands them over.
func (s *Sink) flush(now time.Time, withGauges bool) {
	naming := s.cfg.Registry.Naming()
	s.cursor.Each(func(r *telemetry.Reading) {
		l := s.lines[r.Series]
		if l == nil || l.naming != naming {
			l = newLine(s.cfg.Dialect, s.tags, naming, r)
			s.lines[r.Series] = l
		}
		switch r.Series.Kind {
		case telemetry.KindCounter:
			s.add(l.appendCounter(s.room[:0], r.Sum))
		case telemetry.KindGauge:
			if withGauges {
				s.gauge(l, r, now)
			}
		default:
			values, rate := samples(r, s.values[:0])
			for _, v := range values {
				s.add(l.appendTiming(s.room[:0], v, rate))
			}
		}
	})
	s.hand()
	s.forget()
}

// forget drops what is remembered of series that are gone (telemetry.GaugeSet), once it is more than there are.
func (s *Sink) forget() {
	list := s.cfg.Registry.Series()
	if len(s.lines) <= len(list) {
		return
	}
	there := make(map[*telemetry.Series]bool, len(list))
	for _, series := range list {
		there[series] = true
	}
	for series := range s.lines {
		if !there[series] {
			delete(s.lines, series)
			delete(s.gauges, series)
		}
	}
}

// drop counts what happened since the last pass without writing a line of it: a sink that
// takes nothing must cost nothing. Gauges are not lost, they are sent again by their value.
func (s *Sink) drop() {
	lines := 0
	s.cursor.Each(func(r *telemetry.Reading) {
		switch r.Series.Kind {
		case telemetry.KindCounter:
			lines++
		case telemetry.KindGauge:
		default:
			lines += int(min(r.Count, sampleLimit))
		}
	})
	s.out.Drop(lines)
	clear(s.gauges)
}

func (s *Sink) gauge(l *line, r *telemetry.Reading, now time.Time) {
	last, seen := s.gauges[r.Series]
	if seen && last.value == r.Sum && now.Sub(last.at) < gaugeRefresh {
		return
	}
	s.gauges[r.Series] = gaugeMark{r.Sum, now}
	if r.Sum < 0 && s.cfg.Dialect != Dogstatsd {
		// statsd reads a signed gauge as a change; only after a 0 is it a value.
		s.add(l.appendGauge(s.room[:0], 0))
	}
	s.add(l.appendGauge(s.room[:0], r.Sum))
}

// add puts a line into the packet, handing the packet over first if it would not fit.
func (s *Sink) add(line []byte) {
	s.room = line
	if len(line)+1 > PacketBytes {
		s.out.Drop(1)
		return
	}
	if len(s.packet)+len(line)+1 > PacketBytes {
		s.hand()
	}
	if s.packet == nil {
		s.packet = make([]byte, 0, PacketBytes)
	}
	s.packet = append(append(s.packet, line...), '\n')
	s.count++
}

func (s *Sink) hand() {
	if s.count == 0 {
		return
	}
	packet := s.packet
	if s.cfg.Dialect == Plain {
		packet = packet[:len(packet)-1] // some servers read an empty last line as a bad one
	}
	s.out.Offer(packet, s.count)
	s.packet, s.count = nil, 0
}
