package host

import (
	"cmp"
	"slices"
	"strings"

	"corbel.dev/corbel/mesh"
)

// Settled tells how the proxies with a stream stand to the instances of a service that this host knows of now: how many
// have endpoints of it, and which of those have not acknowledged them yet, as node/id.
func (h *Host) Settled(service string) (proxies int, pending []string) {
	h.mu.Lock()
	members := make([]*member, 0, len(h.proxies))
	for _, m := range h.proxies {
		if len(m.streams) > 0 {
			members = append(members, m)
		}
	}
	h.mu.Unlock()
	for _, m := range members {
		sets := m.sets.Load()
		if sets == nil {
			continue
		}
		concerned, behind := m.applied.behind(sets[mesh.TypeEndpoints], service)
		if concerned {
			proxies++
		}
		if behind {
			pending = append(pending, cmp.Or(m.key.node, h.cfg.Node)+"/"+m.key.id)
		}
	}
	slices.Sort(pending)
	return proxies, slices.Compact(pending)
}

// behind tells whether a set has endpoints of the service, and whether some are not acknowledged as they are.
func (a *applied) behind(set mesh.Set, service string) (concerned, behind bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range set.All() {
		if !endpointsOf(r.Name, service) {
			continue
		}
		concerned = true
		behind = behind || a.resourceLocked(r).Applied != r.Version
	}
	return concerned, behind
}

// endpointsOf tells whether a cluster's name ([subset.]service.namespace.datacenter..., contract 30.5) is one of the
// service.
func endpointsOf(cluster, service string) bool {
	_, name, found := strings.Cut(cluster, "~") // a leg of failover: failover-target~n~cluster
	if found {
		_, cluster, _ = strings.Cut(name, "~")
	}
	rest, ok := strings.CutPrefix(cluster, service+".default.")
	if !ok {
		_, cluster, _ = strings.Cut(cluster, ".")
		rest, ok = strings.CutPrefix(cluster, service+".default.")
	}
	return ok && rest != ""
}
