package definition

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

// SidecarSuffix makes the id and the name of the proxy that stands beside a service.
const SidecarSuffix = "-sidecar-proxy"

// sidecarCheckInterval is how often a sidecar's port is tried when it brings no checks.
const sidecarCheckInterval = 10 * time.Second

// WantsSidecar tells whether the registration asks for a proxy beside the service.
func (d *Service) WantsSidecar() bool {
	return d.Connect != nil && d.Connect.SidecarService != nil
}

// Split takes the sidecar out of a registration: the service without it, and the proxy that it asks
// for, with everything filled in that the contract fills in. The proxy is nil when none is asked for.
// port chooses one for the sidecar of an id that names none.
func (d *Service) Split(port func(id string) (int, error)) (service, proxy *Service, err error) {
	if !d.WantsSidecar() {
		return d, nil, nil
	}
	parent := *d
	parent.Connect = nil
	p := *d.Connect.SidecarService
	p.AutoSidecar = true
	p.Kind = catalog.KindConnectProxy
	p.ID, p.Name = d.ServiceID()+SidecarSuffix, d.Name+SidecarSuffix
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
		if p.Port, err = port(p.ID); err != nil {
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
func (d *Service) sidecarOf(parent *Service) (bind string, err error) {
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
		port := parent.Port
		if port == 0 {
			port = DefaultPort(parent.Ports)
		}
		if proxy["LocalServicePort"] == nil && port > 0 {
			proxy["LocalServicePort"] = port
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
func (d *Service) sidecarChecks(parent, bind string) []*Check {
	var checks []*Check
	if d.Port > 0 {
		checks = append(checks, &Check{Name: "Connect Sidecar Listening", Interval: sidecarCheckInterval,
			Probe: Probe{TCP: net.JoinHostPort(bind, strconv.Itoa(d.Port))}})
	}
	return append(checks, &Check{Name: "Connect Sidecar Aliasing " + parent,
		Probe: Probe{Alias: Alias{AliasService: parent}}})
}
