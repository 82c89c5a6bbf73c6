package monitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"corbel.dev/corbel/kit/tagproto"
)

// Provider is an object of a commercial API of the contract, kept as it came: a secrets provider (secrets/v1), the
// configuration of a PostgreSQL store (store/v1), a service component or a rule template (bsm/v1), the configuration of
// the web UI (web/v1), or a saved search (searches/v1).
type Provider struct {
	Meta  `pb:"1"`
	Kind  string          `pb:"2"` // as its file says: Env, PostgresConfig
	Spec  json.RawMessage `pb:"3"` // a JSON object
	Extra tagproto.Extra
}

// providerKinds are the kinds of providers that are known: SecretKinds first.
var (
	SecretKinds   = []string{"Env", "VaultProvider", "CyberArkConjurProvider"}
	providerKinds = append(slices.Clone(SecretKinds), "PostgresConfig", "ServiceComponent", "RuleTemplate",
		"GlobalConfig", "Search")
)

// Validate returns what is wrong with the provider.
func (p *Provider) Validate() error {
	if err := named("provider", p.Name); err != nil {
		return err
	}
	if !slices.Contains(providerKinds, p.Kind) {
		return fmt.Errorf("type %q is not one of %q", p.Kind, providerKinds)
	}
	var spec map[string]any
	if err := json.Unmarshal(p.Spec, &spec); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	switch p.Kind {
	case "VaultProvider":
		if _, err := p.Vault(); err != nil {
			return err
		}
	case "PostgresConfig":
		if dsn, _ := spec["dsn"].(string); dsn == "" {
			return errors.New("spec: dsn must be set")
		}
	}
	return nil
}

// MarshalJSON writes the provider's metadata and what its spec says, as one object.
func (p *Provider) MarshalJSON() ([]byte, error) {
	meta, err := json.Marshal(p.Meta)
	if err != nil {
		return nil, err
	}
	out := append([]byte(`{"metadata":`), meta...)
	if spec := bytes.TrimSpace(p.Spec); len(spec) > 2 {
		return append(append(out, ','), spec[1:]...), nil
	}
	return append(out, '}'), nil
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (p *Provider) UnmarshalJSON(b []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	p.Meta = Meta{}
	if meta := all["metadata"]; meta != nil {
		if err := json.Unmarshal(meta, &p.Meta); err != nil {
			return err
		}
	}
	delete(all, "metadata")
	spec, err := json.Marshal(all) // a null is no object, and becomes an empty one
	if err == nil && all == nil {
		spec = []byte("{}")
	}
	p.Spec = spec
	return err
}

// SecretSource names a secret of a provider (secrets/v1 Secret): what checks, handlers and mutators refer to.
type SecretSource struct {
	Meta     `json:"metadata,omitempty" pb:"1"`
	ID       string         `json:"id" pb:"2"` // what the provider knows it by: a variable's name, a path
	Provider string         `json:"provider" pb:"3"`
	Extra    tagproto.Extra `json:"-"`
}

// Validate returns what is wrong with the secret.
func (s *SecretSource) Validate() error {
	if err := named("secret", s.Name); err != nil {
		return err
	}
	switch {
	case s.Namespace == "":
		return errNamespace
	case s.ID == "":
		return errors.New("secret id must be set")
	case s.Provider == "":
		return errors.New("secret provider must be set")
	}
	return nil
}
