package local

import (
	"sync"

	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
)

// sidecarPorts hands out the ports of sidecars that name none. Its lock is held from the choice
// of a port until the sidecar is registered, and taken before all others.
type sidecarPorts struct {
	sync.Mutex
	low, high int
	state     *state
}

// split is d.Split; taken are the ports that no sidecar may get; the one chosen is added.
func (p *sidecarPorts) split(d *definition.Service, taken map[int]bool) (service, proxy *definition.Service,
	err error) {
	return d.Split(func(id string) (int, error) { return p.choose(id, taken) })
}

// choose gives the port that the sidecar has already, else the first free one of the range.
func (p *sidecarPorts) choose(id string, taken map[int]bool) (int, error) {
	low, high := p.low, p.high
	registered := p.state.snapshot().Services
	if s := registered[id]; s != nil && s.Definition.AutoSidecar && s.Service.Port >= low && s.Service.Port <= high &&
		!taken[s.Service.Port] {
		taken[s.Service.Port] = true
		return s.Service.Port, nil
	}
	used := map[int]bool{}
	for other, s := range registered {
		if other != id {
			used[s.Service.Port] = true
		}
	}
	for port := max(low, 1); port <= high; port++ {
		if !used[port] && !taken[port] {
			taken[port] = true
			return port, nil
		}
	}
	return 0, errkind.Errorf(errkind.Invalid, "Invalid SidecarService: none left in the configured sidecar port range "+
		"(%d to %d): set Port, or widen ports.sidecar_min_port and sidecar_max_port", low, high)
}

// splitAll takes the sidecars out of a set of definitions.
func (p *sidecarPorts) splitAll(all []*definition.Service) ([]*definition.Service, error) {
	taken := map[int]bool{}
	for _, d := range all {
		taken[d.Port] = true
		if d.WantsSidecar() {
			taken[d.Connect.SidecarService.Port] = true
		}
	}
	out := make([]*definition.Service, 0, len(all))
	for _, d := range all {
		if d.Validate() != nil { // is told with all other problems
			out = append(out, d)
			continue
		}
		service, proxy, err := p.split(d, taken)
		if err != nil {
			return nil, errkind.Errorf(errkind.Invalid, "service %q: %w", d.ServiceID(), err)
		}
		out = append(out, service)
		if proxy != nil {
			out = append(out, proxy)
		}
	}
	return out, nil
}
