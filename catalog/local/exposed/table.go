package exposed

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
)

// Table is which proxies of a host checks go through, and the ports of those that do. Its owner guards it.
type Table struct {
	Ports
	proxies map[string]Proxy // by id; of those that stand before an instance
	central map[string]bool  // ids of proxies for which config entries ask it
}

// Ask notes that config entries ask it of a proxy, or no longer; false: that was known.
func (t *Table) Ask(proxy string, on bool) bool {
	if t.central[proxy] == on {
		return false
	}
	if t.central == nil {
		t.central = map[string]bool{}
	}
	t.central[proxy] = on
	return true
}

// Note takes in a registration of any kind, nil when it is gone. It returns the instances whose checks may go other
// ways now, "" for none.
func (t *Table) Note(id string, s *catalog.Service) (before, now string) {
	was := t.proxies[id]
	var is Proxy
	if s == nil {
		delete(t.central, id)
	} else if is = ReadProxy(s); is.Service != "" {
		is.Checks = is.Checks || t.central[id]
	}
	if is.Service == "" {
		delete(t.proxies, id)
	} else {
		if t.proxies == nil {
			t.proxies = map[string]Proxy{}
		}
		t.proxies[id] = is
	}
	if was.Service == is.Service {
		was.Service = ""
	}
	return was.Service, is.Service
}

// Of lists the proxies of an instance, and whether its checks go through each.
func (t *Table) Of(service string) map[string]bool {
	var out map[string]bool
	for id, p := range t.proxies {
		if p.Service == service {
			if out == nil {
				out = map[string]bool{}
			}
			out[id] = p.Checks
		}
	}
	return out
}

// Way is how a check of an instance goes: through the first by id of the proxies that ask for it, if it can. Full tells
// that no port is left for it.
func (t *Table) Way(id, service string, s check.Spec, used func(port int) bool) (w Way, full bool) {
	first, p := "", Proxy{}
	for id, one := range t.proxies {
		if one.Checks && one.Service == service && (first == "" || id < first) {
			first, p = id, one
		}
	}
	if _, can := Path(s); first == "" || !can {
		t.Free(id)
		return Way{}, false
	}
	if w.Port = t.Take(id, used); w.Port == 0 {
		return Way{}, true
	}
	w.Address = p.Address
	return w, false
}
