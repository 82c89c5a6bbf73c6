// Package envelope reads and writes objects as commercial APIs of the contract have them: with type, api_version,
// metadata and spec.
package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"corbel.dev/corbel/monitor"
)

// Envelope is a wrapped object.
type Envelope struct {
	Type       string                     `json:"type"`
	APIVersion string                     `json:"api_version"`
	Metadata   json.RawMessage            `json:"metadata"`
	Spec       map[string]json.RawMessage `json:"spec"`
}

// Wrap makes the envelope of what is shown of an object of a type.
func Wrap(t *monitor.Type, o any) (*Envelope, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	out := &Envelope{Type: t.Kind, APIVersion: t.APIVersion}
	if err := json.Unmarshal(b, &out.Spec); err != nil {
		return nil, err
	}
	out.Metadata = out.Spec["metadata"]
	delete(out.Spec, "metadata")
	switch o := o.(type) {
	case *monitor.Provider:
		out.Type = o.Kind
	case *monitor.AuthProvider:
		if o.Directory != "" {
			out.Type, out.Spec = o.Directory, nil
			err = json.Unmarshal(o.Spec, &out.Spec)
		}
	}
	return out, err
}

// takes tells whether objects of a type may be of a kind.
func takes(t *monitor.Type, kind string) bool {
	switch t.Name {
	case "providers":
		return slices.Contains(monitor.SecretKinds, kind)
	case "authproviders":
		return kind == t.Kind || slices.Contains(monitor.Directories, kind)
	}
	return kind == t.Kind
}

// Unwrap reads a wrapped object of a type into o, and returns it as it would stand unwrapped.
func Unwrap(t *monitor.Type, b []byte, o monitor.Object) (plain []byte, err error) {
	var in Envelope
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, err
	}
	switch {
	case in.Type == "":
		return nil, errors.New("type is missing: the body has type, api_version, metadata and spec")
	case !takes(t, in.Type):
		return nil, fmt.Errorf("type %q is not %q", in.Type, t.Kind)
	case in.APIVersion != t.APIVersion:
		return nil, fmt.Errorf("api_version %q is not %q", in.APIVersion, t.APIVersion)
	case in.Spec == nil:
		in.Spec = map[string]json.RawMessage{}
	}
	delete(in.Spec, "metadata")
	spec := in.Spec
	p, isLogin := o.(*monitor.AuthProvider)
	if isLogin && in.Type != t.Kind { // its spec is its own
		if p.Spec, err = json.Marshal(spec); err != nil {
			return nil, err
		}
		p.Directory, spec = in.Type, map[string]json.RawMessage{}
	}
	if len(in.Metadata) > 0 {
		spec["metadata"] = in.Metadata
	}
	whole, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(whole, o); err != nil {
		return nil, err
	}
	if p, ok := o.(*monitor.Provider); ok {
		p.Kind = in.Type
	}
	return whole, nil
}
