package local

import (
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// sidecarSuffix makes the id and the name of the proxy that stands beside a service.
const sidecarSuffix = "-sidecar-proxy"

// sidecarCheckInterval is how often a sidecar's port is tried when it brings no checks.
const sidecarCheckInterval = 10 * time.Second

func (d *ServiceDefinition) wantsSidecar() bool {
	return d.Connect != nil && d.Connect.SidecarService != nil
}

// split takes the sidecar out of a registration: the service without it, and the proxy that it asks
// for, with everything filled in that the contract fills in. The proxy is nil when none is asked for.
// taken are the ports that no sidecar may get; the one chosen is added.
func (l *Local) split(d *ServiceDefinition, taken map[int]bool) (service, proxy *ServiceDefinition, err error) {
	if !d.wantsSidecar() {
		return d, nil, nil
	}
	parent := *d
	parent.Connect = nil
	p := *d.Connect.SidecarService
	p.AutoSidecar = true
	p.Kind = catalog.KindConnectProxy
	p.ID, p.Name = d.ServiceID()+sidecarSuffix, d.Name+sidecarSuffix
	if p.Tags == nil {
		p.Tags = slices.Clone(d.Tags)
	}
	if p.Meta == nil {
		p.Meta = maps.Clone(d.Meta)
	}
	if p.Address == "" {
		p.Address = d.Address
	}
	if p.Locality == nil {
		p.Locality = d.Locality
	}
	if p.Weights == nil {
		p.Weights = d.Weights
	}
	if p.Token == "" {
		p.Token = d.Token
	}
	p.EnableTagOverride = p.EnableTagOverride || d.EnableTagOverride
	if p.Port == 0 && p.SocketPath == "" {
		if p.Port, err = l.sidecarPort(p.ID, taken); err != nil {
			return nil, nil, err
		}
	}
	bind, err := p.sidecarOf(d)
	if err != nil {
		return nil, nil, err
	}
	if p.Check == nil && len(p.Checks) == 0 {
		p.Checks = p.sidecarChecks(d.ServiceID(), bind)
	}
	return &parent, &p, p.Validate()
}

// sidecarOf completes the Proxy of a sidecar, and returns the address that the proxy binds.
func (d *ServiceDefinition) sidecarOf(parent *ServiceDefinition) (bind string, err error) {
	proxy := map[string]any{}
	if len(d.Proxy) > 0 {
		if err := json.Unmarshal(d.Proxy, &proxy); err != nil {
			return "", errkind.Errorf(errkind.Invalid, "Invalid SidecarService: Proxy: %w", err)
		}
	}
	proxy["DestinationServiceName"], proxy["DestinationServiceID"] = parent.Name, parent.ServiceID()
	if proxy["LocalServiceSocketPath"] == nil {
		if proxy["LocalServiceAddress"] == nil {
			proxy["LocalServiceAddress"] = "127.0.0.1"
		}
		if proxy["LocalServicePort"] == nil && parent.Port > 0 {
			proxy["LocalServicePort"] = parent.Port
		}
	}
	bind = "127.0.0.1"
	if free, ok := proxy["Config"].(map[string]any); ok {
		if addr, ok := free["bind_address"].(string); ok && addr != "" && addr != "0.0.0.0" && addr != "::" {
			bind = addr
		}
	}
	d.Proxy, err = json.Marshal(proxy) // maps marshal sorted: canonical
	return bind, err
}

// sidecarChecks are those of a sidecar that brings none: it listens, and its service is well.
func (d *ServiceDefinition) sidecarChecks(parent, bind string) []*CheckDefinition {
	var checks []*CheckDefinition
	if d.Port > 0 {
		checks = append(checks, &CheckDefinition{Name: "Connect Sidecar Listening", Interval: sidecarCheckInterval,
			TCP: net.JoinHostPort(bind, strconv.Itoa(d.Port))})
	}
	return append(checks, &CheckDefinition{Name: "Connect Sidecar Aliasing " + parent, AliasService: parent})
}

// sidecarPort is the port that the sidecar has already, else the first free one of the range.
func (l *Local) sidecarPort(id string, taken map[int]bool) (int, error) {
	low, high := l.cfg.SidecarMinPort, l.cfg.SidecarMaxPort
	if s := l.Service(id); s != nil && s.Definition.AutoSidecar && s.Service.Port >= low && s.Service.Port <= high &&
		!taken[s.Service.Port] {
		taken[s.Service.Port] = true
		return s.Service.Port, nil
	}
	used := map[int]bool{}
	for other, s := range l.Services() {
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
func (l *Local) splitAll(all []*ServiceDefinition) ([]*ServiceDefinition, error) {
	taken := map[int]bool{}
	for _, d := range all {
		taken[d.Port] = true
		if d.wantsSidecar() {
			taken[d.Connect.SidecarService.Port] = true
		}
	}
	out := make([]*ServiceDefinition, 0, len(all))
	for _, d := range all {
		if d.Validate() != nil { // is told with all other problems
			out = append(out, d)
			continue
		}
		service, proxy, err := l.split(d, taken)
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
