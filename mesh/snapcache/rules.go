package snapcache

import (
	"slices"
	"sync"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// sharedRules are the encoded rules of all services that no intention names: one body for thousands of subjects.
// Each service has a subject of its own nevertheless. Proxies that moved from one subject to another had, for a
// moment, the rules of two States mixed, which were never in force.
type sharedRules struct {
	mu     sync.Mutex // guards all below; held while they are encoded, so that one worker does it
	of     *catalog.Record
	domain string
	body   []byte // nil: none was encoded yet
}

// encode encodes who may reach the service.
func (s *sharedRules) encode(m *mesh.Maker, service string) ([]byte, error) {
	v := m.Rules(service)
	if m.State.Record(catalog.RecordConfigEntry, entry.Key(entry.ServiceIntentions, service)) != nil ||
		slices.ContainsFunc(v.Intentions, func(i mesh.Intention) bool { return i.Peer != "" }) { // a peer's trust may change
		return encodeRules(v)
	}
	of := m.State.Record(catalog.RecordConfigEntry, entry.Key(entry.ServiceIntentions, "*"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.body != nil && s.of == of && s.domain == v.TrustDomain {
		return s.body, nil
	}
	body, err := encodeRules(v)
	if err == nil {
		s.of, s.domain, s.body = of, v.TrustDomain, body
	}
	return body, err
}

func encodeRules(v *mesh.Rules) ([]byte, error) {
	value, err := envoy.Authorization(v)
	if err != nil {
		return nil, err
	}
	return value.Encode(), nil
}
