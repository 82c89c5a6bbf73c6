// Package exposed is about checks that go through the proxy of their service: which can, by which ports, and what the
// proxy has to let through for them. It is pure; catalog/local decides when.
package exposed

import (
	"encoding/json"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/entry"
)

// Key is where With puts entry.ExposedChecks into the Proxy of a registration, beside what users may set there.
const Key = "ExposedChecks"

// Proxy is what a proxy's registration says of checks. It is the zero Proxy for all that stands before no instance.
type Proxy struct {
	Service string // the id of the instance that it stands before
	Address string // where the agent reaches it
	Checks  bool   // whether checks of that instance go through it
}

// ReadProxy reads a registration.
func ReadProxy(s *catalog.Service) Proxy {
	if s.Kind != catalog.KindConnectProxy {
		return Proxy{}
	}
	var p struct {
		DestinationServiceID string
		Expose               entry.Expose
		Config               struct {
			Bind any `json:"bind_address"`
		}
	}
	if json.Unmarshal(s.Proxy, &p) != nil || p.DestinationServiceID == "" {
		return Proxy{}
	}
	out := Proxy{Service: p.DestinationServiceID, Address: s.Address, Checks: p.Expose.Checks}
	if bind, ok := p.Config.Bind.(string); ok && bind != "" {
		out.Address = bind
	}
	if ip := net.ParseIP(out.Address); out.Address == "" || ip != nil && ip.IsUnspecified() {
		out.Address = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			out.Address = "::1"
		}
	}
	return out
}

// grpcPath is the method of gRPC's health protocol that a check calls.
const grpcPath = "/grpc.health.v1.Health/Check"

// Path is what a proxy is to let through for a check, but for the listener's port. Only checks by HTTP and gRPC without
// TLS can go through it: what listens there speaks plain text.
func Path(s check.Spec) (entry.ExposePath, bool) {
	out := entry.ExposePath{ParsedFromCheck: true, Protocol: "http"}
	switch s.Kind {
	case check.KindHTTP:
		u, err := url.Parse(s.Target)
		if err != nil || u.Scheme != "http" {
			return out, false
		}
		out.Path, out.LocalPathPort = u.EscapedPath(), 80
		if out.Path == "" {
			out.Path = "/"
		}
		if port := u.Port(); port != "" {
			out.LocalPathPort, _ = strconv.Atoi(port)
		}
	case check.KindGRPC:
		host, _, _ := strings.Cut(s.Target, "/")
		_, port, err := net.SplitHostPort(host)
		if err != nil || s.UseTLS {
			return out, false
		}
		out.Path, out.Protocol = grpcPath, "http2"
		out.LocalPathPort, _ = strconv.Atoi(port)
	}
	return out, out.LocalPathPort > 0
}

// Way is where a check goes in place of its own target; the zero Way is that target.
type Way struct {
	Address string
	Port    int
}

// Through is a check that goes this way.
func (w Way) Through(s check.Spec) check.Spec {
	if w.Port == 0 {
		return s
	}
	to := net.JoinHostPort(w.Address, strconv.Itoa(w.Port))
	switch s.Kind {
	case check.KindHTTP:
		u, err := url.Parse(s.Target)
		if err != nil {
			return s // no such check has a way
		}
		u.Host = to
		s.Target = u.String()
	case check.KindGRPC:
		if _, service, ok := strings.Cut(s.Target, "/"); ok {
			to += "/" + service
		}
		s.Target = to
	}
	return s
}

// Ports hands out the ports of listeners, one for each check.
type Ports struct {
	Low, High int
	of        map[string]int // by the id of the check
	taken     map[int]bool
}

// Take gives a check the port that it has, else the first free one: neither another check's nor in use. It is 0 when
// there is none.
func (p *Ports) Take(check string, used func(port int) bool) int {
	if port := p.of[check]; port > 0 {
		return port
	}
	for port := max(p.Low, 1); port <= p.High; port++ {
		if p.taken[port] || used(port) {
			continue
		}
		if p.of == nil {
			p.of, p.taken = map[string]int{}, map[int]bool{}
		}
		p.of[check], p.taken[port] = port, true
		return port
	}
	return 0
}

// Free takes a port back.
func (p *Ports) Free(check string) {
	if port := p.of[check]; port > 0 {
		delete(p.of, check)
		delete(p.taken, port)
	}
}

// With is a proxy's registration with what it has to let through. Connections may come from this host, which has the
// address agent, and from the proxy's own address.
func With(s *catalog.Service, paths []entry.ExposePath, agent string) *catalog.Service {
	proxy := map[string]json.RawMessage{}
	if json.Unmarshal(s.Proxy, &proxy) != nil {
		return s // it was read before
	}
	from := []string{"127.0.0.0/8", "::1/128"}
	for _, address := range []string{agent, s.Address} {
		ip := net.ParseIP(address)
		if ip == nil || ip.IsUnspecified() || ip.IsLoopback() {
			continue
		}
		bits := "/128"
		if ip.To4() != nil {
			bits = "/32"
		}
		if net := ip.String() + bits; !slices.Contains(from, net) {
			from = append(from, net)
		}
	}
	value, err := json.Marshal(entry.ExposedChecks{Paths: paths, From: from})
	if err != nil {
		return s // texts and numbers have a JSON
	}
	proxy[Key] = value
	out := *s
	if out.Proxy, err = json.Marshal(proxy); err != nil {
		return s
	}
	return &out
}
