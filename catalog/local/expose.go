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

// exposures are the checks that go through a proxy of their service.
type exposures struct {
	ports   exposed.Ports
	proxies map[string]exposed.Proxy // by id; of those that stand before an instance
	central map[string]bool          // ids of proxies for which config entries ask it
}

// ForProxy is the registration as the mesh is to read it: with what the proxy lets through for checks.
func (s *Service) ForProxy() *catalog.Service {
	if s.forProxy != nil {
		return s.forProxy
	}
	return s.Service
}

// ExposeChecks has the checks of the instance that a proxy stands before go through it, or no longer, as config entries
// say. What the proxy's own registration asks holds beside that.
func (l *Local) ExposeChecks(proxy string, on bool) { l.runs.exposeChecks(proxy, on) }

func (r *runs) exposeChecks(proxy string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell(r.state.exposeChecks(proxy, on))
}

func (st *state) exposeChecks(proxy string, on bool) (c change) {
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.services[proxy]
	if e == nil || st.exposed.central[proxy] == on {
		return c
	}
	if st.exposed.central == nil {
		st.exposed.central = map[string]bool{}
	}
	st.exposed.central[proxy] = on
	c.version = st.touchLocked()
	st.noteProxyLocked(proxy, e.cur.Service, c.version, &c)
	return c
}

// noteProxyLocked takes in a registration of any kind, nil when it is gone.
func (st *state) noteProxyLocked(id string, s *catalog.Service, gen uint64, c *change) {
	before := st.exposed.proxies[id]
	var now exposed.Proxy
	if s == nil {
		delete(st.exposed.central, id)
	} else if now = exposed.ReadProxy(s); now.Service != "" {
		now.Checks = now.Checks || st.exposed.central[id]
	}
	if now.Service == "" {
		delete(st.exposed.proxies, id)
	} else {
		if st.exposed.proxies == nil {
			st.exposed.proxies = map[string]exposed.Proxy{}
		}
		st.exposed.proxies[id] = now
	}
	if before.Service != now.Service {
		st.exposeLocked(before.Service, gen, c)
	}
	st.exposeLocked(now.Service, gen, c)
}

// proxyOfLocked is the proxy that the checks of an instance go through: the first by id of those that ask for it.
func (st *state) proxyOfLocked(service string) (p exposed.Proxy, ok bool) {
	first := ""
	for id, one := range st.exposed.proxies {
		if one.Checks && one.Service == service && (!ok || id < first) {
			first, p, ok = id, one, true
		}
	}
	return p, ok
}

// wayLocked is the way of a check, with a port of its own where it goes through a proxy.
func (st *state) wayLocked(d *definition.Check) exposed.Way {
	p, through := exposed.Proxy{}, false
	if d.ServiceID != "" && len(st.exposed.proxies) > 0 {
		p, through = st.proxyOfLocked(d.ServiceID)
	}
	if through {
		_, through = exposed.Path(d.Spec(st.cfg.OutputMaxSizeBytes))
	}
	if !through {
		st.exposed.ports.Free(d.ID)
		return exposed.Way{}
	}
	port := st.exposed.ports.Take(d.ID, func(port int) bool {
		for _, e := range st.services {
			if e.cur.Service.Port == port {
				return true
			}
		}
		return false
	})
	if port == 0 {
		st.cfg.Log.Warn("a check does not go through the proxy of its service: no port is left; widen ports.expose_min_port "+
			"and expose_max_port", "check", d.ID, "service", d.ServiceID)
		return exposed.Way{}
	}
	return exposed.Way{Address: p.Address, Port: port}
}

// exposeLocked gives the checks of an instance the ways that they have now, and its proxies what they let through.
func (st *state) exposeLocked(service string, gen uint64, c *change) {
	if service == "" {
		return
	}
	var paths []entry.ExposePath
	for _, id := range slices.Sorted(maps.Keys(st.checksOf[service])) {
		e := st.checksOf[service][id]
		d := e.cur.Definition
		if way := st.wayLocked(d); way != e.way {
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
	for id, p := range st.exposed.proxies {
		e := st.services[id]
		if p.Service != service || e == nil {
			continue
		}
		next := *e.cur
		next.forProxy = nil
		if p.Checks && len(paths) > 0 {
			next.forProxy = exposed.With(next.Service, paths, st.cfg.Node.Address)
		}
		if next.forProxy != nil || e.cur.forProxy != nil {
			e.cur = &next
		}
	}
}
