package entry

import (
	"errors"
	"fmt"
)

// GatewayTLS is the TLS of a gateway or listener.
type GatewayTLS struct {
	Enabled       bool
	TLSMinVersion string      `json:",omitempty"`
	TLSMaxVersion string      `json:",omitempty"`
	CipherSuites  []string    `json:",omitempty"`
	SDS           *GatewaySDS `json:",omitempty"`
}

// GatewaySDS names a certificate that Envoy fetches.
type GatewaySDS struct {
	ClusterName  string `json:",omitempty"`
	CertResource string `json:",omitempty"`
}

// IngressListener is one port.
type IngressListener struct {
	Port     int
	Protocol string           `json:",omitempty"`
	Services []IngressService `json:",omitempty"`
	TLS      *GatewayTLS      `json:",omitempty"`
}

// IngressService is a service behind a listener.
type IngressService struct {
	Name                  string
	Hosts                 []string            `json:",omitempty"`
	Namespace             string              `json:",omitempty"`
	Partition             string              `json:",omitempty"`
	TLS                   *GatewayTLS         `json:",omitempty"`
	RequestHeaders        *HeaderModifiers    `json:",omitempty"`
	ResponseHeaders       *HeaderModifiers    `json:",omitempty"`
	MaxConnections        *uint32             `json:",omitempty"`
	MaxPendingRequests    *uint32             `json:",omitempty"`
	MaxConcurrentRequests *uint32             `json:",omitempty"`
	PassiveHealthCheck    *PassiveHealthCheck `json:",omitempty"`
}

// IngressDefaults hold where a service sets nothing.
type IngressDefaults struct {
	MaxConnections        *uint32             `json:",omitempty"`
	MaxPendingRequests    *uint32             `json:",omitempty"`
	MaxConcurrentRequests *uint32             `json:",omitempty"`
	PassiveHealthCheck    *PassiveHealthCheck `json:",omitempty"`
}

// Ingress is ingress-gateway.
type Ingress struct {
	Common
	TLS       GatewayTLS
	Listeners []IngressListener
	Defaults  *IngressDefaults `json:",omitempty"`
}

// Normalize implements Entry.
func (e *Ingress) Normalize() {
	for i := range e.Listeners {
		if e.Listeners[i].Protocol == "" {
			e.Listeners[i].Protocol = "tcp"
		}
	}
}

// Validate implements Entry.
func (e *Ingress) Validate() error {
	errs := []error{e.validate("")}
	ports := map[int]bool{}
	for i, l := range e.Listeners {
		path := fmt.Sprintf("Listeners[%d]", i)
		errs = append(errs, oneOf(path+".Protocol", l.Protocol, protocols...))
		switch {
		case l.Port < 1 || l.Port > 65535:
			errs = append(errs, fmt.Errorf("%s.Port %d: must be 1 to 65535", path, l.Port))
		case ports[l.Port]:
			errs = append(errs, fmt.Errorf("port %d declared on two listeners", l.Port))
		}
		ports[l.Port] = true
		if len(l.Services) == 0 {
			errs = append(errs, fmt.Errorf("%s: no service declared for listener with port %d", path, l.Port))
		}
		if l.Protocol == "tcp" && len(l.Services) > 1 {
			errs = append(errs, fmt.Errorf("%s: multiple services per listener are only supported for L7 protocols", path))
		}
		for j, s := range l.Services {
			if s.Name == "" {
				errs = append(errs, fmt.Errorf("%s.Services[%d].Name cannot be blank", path, j))
			}
			if s.Name == "*" && l.Protocol == "tcp" {
				errs = append(errs, fmt.Errorf("%s: wildcard service name is only valid for protocols of HTTP", path))
			}
		}
	}
	return errors.Join(errs...)
}

// LinkedService is a service that a terminating gateway stands for.
type LinkedService struct {
	Name                   string
	Namespace              string `json:",omitempty"`
	CAFile                 string `json:",omitempty"`
	CertFile               string `json:",omitempty"`
	KeyFile                string `json:",omitempty"`
	SNI                    string `json:",omitempty"`
	DisableAutoHostRewrite bool   `json:",omitempty"`
}

// Terminating is terminating-gateway.
type Terminating struct {
	Common
	Services []LinkedService
}

// Normalize implements Entry.
func (e *Terminating) Normalize() {}

// Validate implements Entry.
func (e *Terminating) Validate() error {
	errs := []error{e.validate("")}
	seen := map[string]bool{}
	for i, s := range e.Services {
		switch {
		case s.Name == "":
			errs = append(errs, fmt.Errorf("Services[%d].Name cannot be blank",
				i)) //nolint:staticcheck // begins with a field's name
		case seen[s.Name]:
			errs = append(errs, fmt.Errorf("service %q was specified more than once within a namespace", s.Name))
		case (s.CertFile == "") != (s.KeyFile == "") || s.CertFile != "" && s.CAFile == "":
			errs = append(errs, fmt.Errorf("service %q must have a CertFile, CAFile, and KeyFile specified for TLS origination",
				s.Name))
		}
		seen[s.Name] = true
	}
	return errors.Join(errs...)
}

// Exported is exported-services.
type Exported struct {
	Common
	Services []ExportedService `json:",omitempty"`
}

// ExportedService is a service and who may use it.
type ExportedService struct {
	Name      string
	Namespace string     `json:",omitempty"`
	Consumers []Consumer `json:",omitempty"`
}

// Consumer is another cluster or partition.
type Consumer struct {
	Partition     string `json:",omitempty"`
	Peer          string `json:",omitempty"`
	SamenessGroup string `json:",omitempty"`
}

// Normalize implements Entry.
func (e *Exported) Normalize() {}

// Validate implements Entry.
func (e *Exported) Validate() error {
	errs := []error{e.validate("default")}
	for i, s := range e.Services {
		if s.Name == "" {
			errs = append(errs, fmt.Errorf("Services[%d].Name cannot be empty",
				i)) //nolint:staticcheck // begins with a field's name
		}
		if len(s.Consumers) == 0 {
			errs = append(errs, fmt.Errorf("Services[%d]: must have at least one consumer",
				i)) //nolint:staticcheck // begins with a field's name
		}
	}
	return errors.Join(errs...)
}

// JWT is jwt-provider. Its keys and rules are kept as they were given.
type JWT struct {
	Common
	JSONWebKeySet    map[string]any   `json:",omitempty"`
	Issuer           string           `json:",omitempty"`
	Audiences        []string         `json:",omitempty"`
	Locations        []map[string]any `json:",omitempty"`
	Forwarding       map[string]any   `json:",omitempty"`
	ClockSkewSeconds int              `json:",omitempty"`
	CacheConfig      map[string]any   `json:",omitempty"`
}

// Normalize implements Entry.
func (e *JWT) Normalize() {}

// Validate implements Entry.
func (e *JWT) Validate() error {
	err := e.validate("")
	if len(e.JSONWebKeySet) == 0 {
		err = errors.Join(err, errors.New("JSONWebKeySet is required")) //nolint:staticcheck // begins with a field's name
	}
	return err
}
