// Package drainwatch counts the connections that a host's draining instances still get after every proxy knew that they
// go. Whoever makes them does not go through the catalog, or does not listen to it.
package drainwatch

import (
	"context"
	"net/netip"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/kit/sockets"
	"corbel.dev/corbel/telemetry"
)

const (
	// lookEach is how often connections of draining services are looked at. One counts that is there at two looks:
	// checks of this agent take less.
	lookEach = 500 * time.Millisecond
	// askEach is how often the servers are asked whether all proxies know.
	askEach = 2 * time.Second
)

// Local is what this host registered.
type Local interface {
	View() *local.View
	Check(id string) *local.Check
}

// Config describes a Watch.
type Config struct {
	Local Local
	// Told tells, of an instance that drains, which ports it has and whether every proxy knows that it goes.
	Told    func(ctx context.Context, id string) (ports []uint16, told bool)
	Metrics *telemetry.Registry
}

// Watch counts drain.new_connections{service}, by the instance's id.
type Watch struct {
	cfg  Config
	each map[string]*drained // Run's own
}

// New returns a watch that starts nothing.
func New(cfg Config) *Watch { return &Watch{cfg: cfg, each: map[string]*drained{}} }

// drained is one instance. Connections that were there when the last proxy knew are old.
type drained struct {
	told  bool
	asked time.Time
	ports []uint16
	old   map[connection]bool
	young map[connection]bool // seen once
}

type connection struct{ local, remote netip.AddrPort }

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	t := time.NewTicker(lookEach)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			w.look(ctx)
		}
	}
}

func (w *Watch) look(ctx context.Context) {
	for id := range w.each {
		if w.cfg.Local.Check(catalog.ServiceDrainPrefix+id) == nil {
			delete(w.each, id)
		}
	}
	for id := range w.cfg.Local.View().Services {
		if w.cfg.Local.Check(catalog.ServiceDrainPrefix+id) == nil {
			continue
		}
		d := w.each[id]
		if d == nil {
			d = &drained{}
			w.each[id] = d
			w.cfg.Metrics.Counter("drain.new_connections", "service", id)
		}
		if !d.told {
			if time.Since(d.asked) < askEach {
				continue
			}
			within, cancel := context.WithTimeout(ctx, askEach)
			d.ports, d.told = w.cfg.Told(within, id)
			cancel()
			d.asked = time.Now()
			if !d.told {
				continue
			}
		}
		list, err := sockets.Established(d.ports...)
		if err != nil {
			continue // `corbel services drain` says so to who waits for it
		}
		if n := d.newer(list); n > 0 {
			w.cfg.Metrics.Counter("drain.new_connections", "service", id).Add(uint64(n))
		}
	}
}

// newer takes the connections that there are, and says how many began after the first look and were there at the last
// one too.
func (d *drained) newer(list []sockets.Conn) (n int) {
	young := map[connection]bool{}
	first := d.old == nil
	old := map[connection]bool{}
	for _, c := range list {
		key := connection{c.Local, c.Remote}
		switch {
		case first || d.old[key]:
			old[key] = true
		case d.young[key]:
			n++
			old[key] = true
		default:
			young[key] = true
		}
	}
	d.old, d.young = old, young // those that ended are forgotten: their ports are used again
	return n
}
