package local

import (
	"maps"
	"slices"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/local/exposed"
)

// ForProxy is the registration as the mesh is to read it: with what the proxy lets through for checks.
func (s *Service) ForProxy() *catalog.Service {
	if s.forProxy != nil {
		return s.forProxy
	}
	return s.Service
}

// Exposer has the checks of the instance that a proxy stands before go through it, or no longer, as config entries say.
// What the proxy's own registration asks holds beside that.
func Exposer(l *Local) func(proxy string, on bool) {
	return func(proxy string, on bool) {
		l.runs.mu.Lock()
		defer l.runs.mu.Unlock()
		st, c := l.state, change{}
		st.mu.Lock()
		if e := st.services[proxy]; e != nil && st.exposed.Ask(proxy, on) {
			c.version = st.touchLocked()
			st.exposeLocked(proxy, e.cur.Service, c.version, &c)
		}
		st.mu.Unlock()
		l.runs.tell(c)
	}
}

// wayLocked is the way of a check, with a port of its own where it goes through a proxy.
func wayLocked(st *state, d *definition.Check) exposed.Way {
	w, full := st.exposed.Way(d.ID, d.ServiceID, d.Spec(st.cfg.OutputMaxSizeBytes), func(port int) bool {
		for _, e := range st.services {
			if e.cur.Service.Port == port {
				return true
			}
		}
		return false
	})
	if full {
		st.cfg.Log.Warn("a check does not go through the proxy of its service: no port is left; widen "+
			"ports.expose_min_port and expose_max_port", "check", d.ID, "service", d.ServiceID)
	}
	return w
}

// exposeLocked takes in a registration, nil when it is gone, and gives the checks of the instances that it may concern
// the ways that they have now, and the proxies of those what they let through.
func (st *state) exposeLocked(id string, s *catalog.Service, gen uint64, c *change) {
	before, now := st.exposed.Note(id, s)
	for _, service := range []string{id, before, now} {
		proxies := st.exposed.Of(service)
		if service == "" || len(proxies) == 0 && service != before {
			continue
		}
		var paths []entry.ExposePath
		for _, id := range slices.Sorted(maps.Keys(st.checksOf[service])) {
			e := st.checksOf[service][id]
			d := e.cur.Definition
			if way := wayLocked(st, d); way != e.way {
				next := *e.cur.Check
				next.ExposedPort, e.way = way.Port, way
				st.replaceCheckLocked(e, &next, gen)
				e.run, e.seq = gen, 0
				c.stop = append(c.stop, id)
				c.start = append(c.start, started{d, gen, check.Start{Status: next.Status, Output: next.Output}, way})
			}
			if e.way.Port > 0 {
				path, _ := exposed.Path(d.Spec(st.cfg.OutputMaxSizeBytes))
				path.ListenerPort = e.way.Port
				paths = append(paths, path)
			}
		}
		for id, through := range proxies {
			e := st.services[id]
			if e == nil {
				continue
			}
			next := *e.cur
			if next.forProxy = nil; through && len(paths) > 0 {
				next.forProxy = exposed.With(next.Service, paths, st.cfg.Node.Address)
			}
			if next.forProxy != nil || e.cur.forProxy != nil {
				e.cur = &next
			}
		}
	}
}
