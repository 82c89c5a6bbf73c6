package usagecacheplane

import (
	"context"
	"net"
	"time"

	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/cache"
)

// meters export what the cache counts.
type meters struct {
	cache *cache.Cache
	rows  []meter
	drain *drain
	late  *telemetry.GaugeSet // clients that a drain waits for
	ago   *telemetry.Gauge    // since when
}

// meter is a counter that follows one of the cache's.
type meter struct {
	counter *telemetry.Counter
	read    func(*cache.Stats) uint64
	last    uint64
}

func newMeters(r *telemetry.Registry, c *cache.Cache, d *drain) *meters {
	m := &meters{cache: c, drain: d, late: r.GaugeSet("usage.drain.client"), ago: r.Gauge("usage.drain.ms")}
	count := func(name, help string, read func(*cache.Stats) uint64) {
		r.Declare(telemetry.KindCounter, name, help)
		m.rows = append(m.rows, meter{counter: r.Counter(name), read: read})
	}
	count("usage.cache.hit", "Accesses to keys that were there.", func(s *cache.Stats) uint64 { return s.Hits })
	count("usage.cache.miss", "Accesses to keys that were not.", func(s *cache.Stats) uint64 { return s.Misses })
	count("usage.cache.evicted", "Keys that went for lack of room.", func(s *cache.Stats) uint64 { return s.Evicted })
	count("usage.cache.expired", "Keys whose time was over.", func(s *cache.Stats) uint64 { return s.Expired })
	gauge := func(name, help string, read func() float64) {
		r.Declare(telemetry.KindGauge, name, help)
		r.GaugeFunc(name, read)
	}
	gauge("usage.cache.keys", "Keys in this host's cache.", func() float64 { return float64(c.Keys()) })
	gauge("usage.cache.bytes", "What they take.", func() float64 { return float64(c.Stats().Bytes) })
	gauge("usage.cache.limit", "What they may take.", func() float64 { return float64(c.MaxBytes()) })
	gauge("usage.cache.tenant_bytes", "What the tenant with the most of them has.",
		func() float64 { return float64(c.Stats().LargestTenantBytes) })
	gauge("usage.drain.waiting", "Clients that a drain of this host's cache waits for.",
		func() float64 { return float64(d.waiting()) })
	return m
}

// run counts until ctx ends.
func (m *meters) run(ctx context.Context) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		st := m.cache.Stats()
		for i := range m.rows {
			row := &m.rows[i]
			now := row.read(&st)
			row.counter.Add(now - row.last)
			row.last = now
		}
		m.tell()
	}
}

// mostNamed bounds the clients of a drain that are told by name; maxName bounds a name.
const mostNamed, maxName = 10, 80

// tell tells whom a drain waits for, and for how long.
func (m *meters) tell() {
	s := m.drain.status()
	if s.State != "draining" {
		m.late.Replace(nil)
		m.ago.Set(0)
		return
	}
	m.ago.Set(float64(m.drain.p.d.Clock.Since(*s.Since)) / float64(time.Millisecond))
	count := map[string]float64{}
	for _, c := range s.Clients {
		name := c.Name
		if host, _, err := net.SplitHostPort(c.Addr); err == nil && name == "" {
			name = host
		}
		if name = name[:min(len(name), maxName)]; count[name] > 0 || len(count) < mostNamed {
			count[name]++
		}
	}
	var points []telemetry.Point
	for name, n := range count {
		points = append(points, telemetry.Point{Labels: []string{"client", name}, Value: n})
	}
	m.late.Replace(points)
}
