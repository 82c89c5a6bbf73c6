package entry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// The kinds.
const (
	ServiceDefaults    = "service-defaults"
	ProxyDefaults      = "proxy-defaults"
	ServiceIntentions  = "service-intentions"
	ServiceResolver    = "service-resolver"
	ServiceRouter      = "service-router"
	ServiceSplitter    = "service-splitter"
	Mesh               = "mesh"
	IngressGateway     = "ingress-gateway"
	TerminatingGateway = "terminating-gateway"
	ExportedServices   = "exported-services"
	JWTProvider        = "jwt-provider"
)

// Global is the only name of the kinds that there is one entry of: proxy-defaults
// has the name "global", mesh the name "mesh", exported-services "default".
const Global = "global"

// Entry is one config entry.
type Entry interface {
	Base() *Common
	// Normalize sets defaults and what follows from other fields.
	Normalize()
	// Validate returns what is wrong with the entry by itself.
	Validate() error
}

// Common is what all kinds have. Namespace and Partition take "default" only.
type Common struct {
	Kind      string
	Name      string
	Namespace string            `json:",omitempty"`
	Partition string            `json:",omitempty"`
	Meta      map[string]string `json:",omitempty"`
}

// Base implements Entry for the kinds that embed it.
func (b *Common) Base() *Common { return b }

var kinds = map[string]func() Entry{
	ServiceDefaults:    func() Entry { return &Service{} },
	ProxyDefaults:      func() Entry { return &Proxy{} },
	ServiceIntentions:  func() Entry { return &Intentions{} },
	ServiceResolver:    func() Entry { return &Resolver{} },
	ServiceRouter:      func() Entry { return &Router{} },
	ServiceSplitter:    func() Entry { return &Splitter{} },
	Mesh:               func() Entry { return &MeshConfig{} },
	IngressGateway:     func() Entry { return &Ingress{} },
	TerminatingGateway: func() Entry { return &Terminating{} },
	ExportedServices:   func() Entry { return &Exported{} },
	JWTProvider:        func() Entry { return &JWT{} },

	APIGateway:            func() Entry { return &API{} },
	HTTPRoute:             func() Entry { return &HTTP{} },
	TCPRoute:              func() Entry { return &TCP{} },
	InlineCertificate:     func() Entry { return &Certificate{} },
	FileSystemCertificate: func() Entry { return &CertificateFiles{} },
}

// New returns an empty entry of the kind, nil for a kind that is not known.
func New(kind string) Entry {
	if make := kinds[kind]; make != nil {
		return make()
	}
	return nil
}

// Known tells whether there is such a kind.
func Known(kind string) bool { return kinds[kind] != nil }

// Key is where an entry is stored.
func Key(kind, name string) string { return kind + "/" + name }

// Encode returns the entry's canonical JSON, without indexes.
func Encode(e Entry) ([]byte, error) { return json.Marshal(e) }

// Load reads what Encode wrote.
func Load(kind string, raw []byte) (Entry, error) {
	e := New(kind)
	if e == nil {
		return nil, fmt.Errorf("config entry kind %q", kind)
	}
	return e, json.Unmarshal(raw, e)
}

// validate checks what all kinds share; only, when set, is the one name that there may be.
func (b *Common) validate(only string) error {
	switch {
	case b.Name == "":
		return errors.New("Name is required") //nolint:staticcheck // the contract's text
	case only != "" && b.Name != only:
		return fmt.Errorf("invalid name (%q), only %q is supported", b.Name, only)
	case b.Namespace != "" && b.Namespace != "default":
		return errors.New("Namespace: only \"default\" is supported") //nolint:staticcheck // begins with a field's name
	case b.Partition != "" && b.Partition != "default":
		return errors.New("Partition: only \"default\" is supported") //nolint:staticcheck // begins with a field's name
	case len(b.Meta) > 64:
		return errors.New("Meta: cannot have more than 64 key/value pairs") //nolint:staticcheck // begins with a field's name
	}
	for k, v := range b.Meta {
		if k == "" || len(k) > 128 || len(v) > 512 {
			return fmt.Errorf("Meta: key %q or its value is empty or too long (128 and 512 bytes)",
				k) //nolint:staticcheck // begins with a field's name
		}
	}
	return nil
}

func oneOf(field, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("invalid %s %q: must be one of %q", field, value, allowed)
}
