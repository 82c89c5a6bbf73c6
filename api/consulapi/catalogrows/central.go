package catalogrows

import (
	"cmp"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/registry"
)

// central is how an answer is asked for that also depends on config entries.
func central(key string, index func(*catalog.State) uint64) (string, registry.Subject, func(*catalog.State) uint64) {
	return key + "+central", registry.Subject{Topic: registry.TopicCatalog}, func(st *catalog.State) uint64 {
		return max(index(st), st.RecordsIndex(catalog.RecordConfigEntry))
	}
}

// merged is the instance as its proxy is to be set up: what config entries say lies under
// what it registered. Instances that are no proxies stay as they are.
func (s *Selection) merged(st *catalog.State, svc *catalog.Service) *catalog.Service {
	if !s.central || svc.Kind == catalog.KindTypical {
		return svc
	}
	get := func(kind, name string) entry.Entry { return entry.Stored(st, kind, name) }
	proxy, err := entry.Merge(get, cmp.Or(svc.ProxyDestination, svc.Name), svc.Proxy)
	if err != nil {
		return svc // what is stored was canonical JSON: it decodes
	}
	out := *svc
	out.Proxy = proxy
	return &out
}
