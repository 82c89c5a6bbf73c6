package entry

import (
	"fmt"
	"slices"
)

// Getter finds an entry, nil when there is none.
type Getter func(kind, name string) Entry

// related are the kinds that Protocol and CheckGraph look at for a service.
var related = []string{ServiceDefaults, ServiceRouter, ServiceSplitter, ServiceResolver}

// Related lists the keys that CheckGraph(name) depends on.
func Related(name string) []string {
	keys := []string{Key(ProxyDefaults, Global)}
	for _, kind := range related {
		keys = append(keys, Key(kind, name))
	}
	return keys
}

// Protocol is what a service speaks: its own default, else that of all proxies, else tcp.
func Protocol(get Getter, service string) string {
	if e, ok := get(ServiceDefaults, service).(*Service); ok && e.Protocol != "" {
		return e.Protocol
	}
	if e, ok := get(ProxyDefaults, Global).(*Proxy); ok {
		if p := e.Protocol(); p != "" {
			return p
		}
	}
	return "tcp"
}

// IsHTTP tells whether requests can be told apart in the protocol.
func IsHTTP(protocol string) bool {
	return slices.Contains([]string{"http", "http2", "grpc"}, protocol)
}

// CheckGraph returns why a service's entries do not work together: routes and splits
// need a protocol with requests, and redirects must end.
func CheckGraph(get Getter, service string) error {
	protocol := Protocol(get, service)
	for _, kind := range []string{ServiceRouter, ServiceSplitter} {
		if e := get(kind, service); e != nil && !IsHTTP(protocol) {
			return fmt.Errorf(
				"discovery chain %q uses a protocol %q that does not permit advanced routing or splitting behavior",
				service, protocol)
		}
	}
	seen := map[string]bool{}
	for at := service; ; {
		if seen[at] {
			return fmt.Errorf("detected circular resolver redirect: %q", service)
		}
		seen[at] = true
		r, ok := get(ServiceResolver, at).(*Resolver)
		if !ok || r.Redirect == nil || r.Redirect.Service == "" || r.Redirect.Datacenter != "" || r.Redirect.Peer != "" {
			return nil
		}
		at = r.Redirect.Service
	}
}
