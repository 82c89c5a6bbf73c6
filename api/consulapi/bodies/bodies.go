// Package bodies reads what clients of the contract send about nodes, services and checks, and makes the catalog's
// objects and commands of it. Names of fields match in any case, durations are texts or numbers, a Proxy is brought to
// one spelling. A Register as programs write it is read without reflection (ParseRegister).
package bodies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
)

// maxNesting bounds how deep a JSON body may nest.
const maxNesting = 64

// Decode reads a sound JSON body into v, whose field names match in any case.
func Decode(b []byte, v any) error {
	if err := Sound(b); err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(v); err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	return nil
}

// Sound refuses what encoding/json would mend or follow too far: invalid
// UTF-8 (it would become another name) and deep nesting.
func Sound(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("body is not valid UTF-8")
	}
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return fmt.Errorf("body nests deeper than %d levels", maxNesting)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// Span is a duration that a body gives as a string or as nanoseconds.
type Span = definition.Span

// Node is a node as clients write it.
type Node struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	Locality        *catalog.Locality
	ModifyIndex     uint64
}

// Catalog is the node as the catalog keeps it.
func (n *Node) Catalog() *catalog.Node {
	return &catalog.Node{ID: strings.ToLower(n.ID), Name: n.Node, Address: n.Address, Datacenter: n.Datacenter,
		TaggedAddresses: n.TaggedAddresses, Meta: n.Meta, Locality: n.Locality, ModifyIndex: n.ModifyIndex}
}

// Service is an instance as clients write it.
type Service struct {
	Kind            string
	ID              string
	Service         string
	Tags            []string
	Address         string
	TaggedAddresses map[string]catalog.ServiceAddress
	Meta            map[string]string
	Port            int
	catalog.Sockets
	Weights           *catalog.Weights
	EnableTagOverride bool
	Proxy             json.RawMessage
	Connect           struct{ Native bool }
	Locality          *catalog.Locality
	ModifyIndex       uint64
}

// Catalog is the instance as the catalog keeps it.
func (w *Service) Catalog(node string) (*catalog.Service, error) {
	proxy, destination, err := CanonicalProxy(w.Proxy)
	if err != nil {
		return nil, answer.Invalidf("Request decode failed: Proxy: %v", err)
	}
	s := &catalog.Service{Node: node, Kind: w.Kind, ID: w.ID, Name: w.Service, Tags: w.Tags, Address: w.Address,
		TaggedAddresses: w.TaggedAddresses, Meta: w.Meta, Port: w.Port, Sockets: w.Sockets,
		EnableTagOverride: w.EnableTagOverride, Connect: catalog.Connect{
			Native: w.Connect.Native, Proxy: proxy, ProxyDestination: destination,
		},
		Locality: w.Locality, Indexes: catalog.Indexes{ModifyIndex: w.ModifyIndex}}
	if w.Weights != nil {
		s.Weights = *w.Weights
	}
	if err := definition.ValidatePorts(s.Port, s.Sockets); err != nil {
		return nil, err
	}
	if s.Port == 0 {
		s.Port = definition.DefaultPort(s.Ports)
	}
	return s, nil
}

// Check is a check as clients write it.
type Check struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	Interval    string
	Timeout     string
	ExposedPort int
	Definition  *definition.Wire
	ModifyIndex uint64
}

// Catalog is the check as the catalog keeps it.
func (w *Check) Catalog(node string) (*catalog.Check, error) {
	c := &catalog.Check{Node: node, ID: w.CheckID, Name: w.Name, Status: catalog.Critical, Notes: w.Notes,
		Output:    w.Output,
		ServiceID: w.ServiceID, ServiceName: w.ServiceName, ServiceTags: w.ServiceTags, Type: w.Type,
		Interval: w.Interval, Timeout: w.Timeout, ExposedPort: w.ExposedPort,
		Indexes: catalog.Indexes{ModifyIndex: w.ModifyIndex}}
	if c.ID == "" {
		c.ID = w.Name
	}
	if w.Status != "" {
		var ok bool
		if c.Status, ok = catalog.ParseHealth(w.Status); !ok {
			return nil, answer.Invalidf("Invalid check status: '%s'", w.Status)
		}
	}
	if w.Definition != nil {
		c.Definition = w.Definition.JSON()
	}
	return c, nil
}

// proxyFields are the names of a Proxy object's fields, by their lower case.
var proxyFields = lowered("DestinationServiceName", "DestinationServiceID", "LocalServiceAddress", "LocalServicePort",
	"LocalServiceSocketPath", "Mode", "TransparentProxy", "Config", "Upstreams", "MeshGateway", "Expose",
	"EnvoyExtensions", "AccessLogs", "MutualTLSMode")

func lowered(names ...string) map[string]string {
	m := make(map[string]string, len(names))
	for _, n := range names {
		m[strings.ToLower(n)] = n
	}
	return m
}

// CanonicalProxy brings a Proxy object to sorted keys in the contract's
// spelling, with the parts that the contract always prints, and reads its destination.
func CanonicalProxy(raw []byte) (proxy []byte, destination string, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, "", nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var in map[string]any
	if err := dec.Decode(&in); err != nil {
		return nil, "", err
	}
	out := map[string]any{}
	for k, v := range in {
		if name, ok := proxyFields[strings.ToLower(k)]; ok && v != nil {
			out[name] = v
		}
	}
	if len(out) == 0 {
		return nil, "", nil
	}
	if v, ok := out["DestinationServiceName"]; ok {
		if destination, ok = v.(string); !ok {
			return nil, "", fmt.Errorf("DestinationServiceName must be a string")
		}
	}
	for name, unset := range map[string]any{"Mode": "", "MeshGateway": map[string]any{}, "Expose": map[string]any{}} {
		if _, ok := out[name]; !ok {
			out[name] = unset
		}
	}
	proxy, err = json.Marshal(out)
	return proxy, destination, err
}
