package node

import (
	"context"
	"net/netip"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/sockets"
)

const (
	// drainLook is how often connections of draining services are looked at. One counts that is there at two looks:
	// checks of this agent take less.
	drainLook = 500 * time.Millisecond
	// drainAsk is how often the servers are asked whether all proxies know.
	drainAsk = 2 * time.Second
)

// drainWatch counts connections that are made to draining instances after every proxy knew that they go:
// drain.new_connections{service}, by the instance's id. Whoever makes them does not go through the catalog, or does
// not listen to it.
type drainWatch struct {
	p    *Process
	each map[string]*drained
}

// drained is one instance. Connections that were there when the last proxy knew are old.
type drained struct {
	told  bool
	asked time.Time
	ports []uint16
	old   map[connection]bool
	young map[connection]bool // seen once
}

type connection struct{ local, remote netip.AddrPort }

// run looks until ctx ends.
func (w *drainWatch) run(ctx context.Context) error {
	w.each = map[string]*drained{}
	t := time.NewTicker(drainLook)
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

func (w *drainWatch) look(ctx context.Context) {
	for id := range w.each {
		if w.p.local.Check(catalog.ServiceDrainPrefix+id) == nil {
			delete(w.each, id)
		}
	}
	for id := range w.p.local.View().Services {
		if w.p.local.Check(catalog.ServiceDrainPrefix+id) == nil {
			continue
		}
		d := w.each[id]
		if d == nil {
			d = &drained{}
			w.each[id] = d
			w.p.metrics.Counter("drain.new_connections", "service", id)
		}
		if !d.told {
			if time.Since(d.asked) < drainAsk {
				continue
			}
			within, cancel := context.WithTimeout(ctx, drainAsk)
			d.ports, d.told = w.p.api.Agent.Told(within, id)
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
			w.p.metrics.Counter("drain.new_connections", "service", id).Add(uint64(n))
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
