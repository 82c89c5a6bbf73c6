package acltoken

import (
	"context"
	"net/http"
	"time"

	"corbel.dev/corbel/secrets/engine/record"
)

// nomad is the plane of Nomad's API.
type nomad struct{}

const nomadHeader = "X-Nomad-Token"

func (nomad) name() string  { return "nomad" }
func (nomad) roles() string { return "role" }
func (nomad) role() role    { return &nomadRole{Type: "client"} }

func (nomad) params(a *access) record.Params {
	return record.Params{{Name: "address", At: &a.Address}, {Name: "max_token_name_length", At: &a.NameLength},
		{Name: "ca_cert", At: &a.CA}, {Name: "client_cert", At: &a.Cert}}
}

func (nomad) url(a *access) string { return a.Address }

// nomadRole is a role of Nomad's, under "role/<name>".
type nomadRole struct {
	Policies []string `json:"policies,omitempty"`
	Global   bool     `json:"global,omitempty"`
	Type     string   `json:"type"`
}

func (r *nomadRole) params() record.Params {
	return record.Params{{Name: "policies", At: &r.Policies}, {Name: "global", At: &r.Global}, {Name: "type", At: &r.Type}}
}

func (*nomadRole) lifetimes() (ttl, longest time.Duration) { return 0, 0 }

func (r *nomadRole) check() error {
	switch {
	case r.Type != "client" && r.Type != "management":
		return invalid("field \"type\": must be client or management")
	case r.Type == "client" && len(r.Policies) == 0:
		return invalid("field \"policies\": cannot be empty when using client tokens")
	case r.Type == "management" && len(r.Policies) > 0:
		return invalid("field \"policies\": should be empty when using management tokens")
	}
	return nil
}

func (nomad) make(ctx context.Context, to *caller, as role, of *live) (map[string]any, error) {
	r := as.(*nomadRole)
	body := struct {
		Name, Type string
		Policies   []string
		Global     bool
	}{of.Name, r.Type, r.Policies, r.Global}
	var made struct{ AccessorID, SecretID string }
	if err := to.ask(ctx, http.MethodPost, "/v1/acl/token", nomadHeader, body, &made); err != nil {
		return nil, err
	}
	of.Accessor, of.Made = made.AccessorID, true
	return map[string]any{"secret_id": made.SecretID, "accessor_id": made.AccessorID}, nil
}

// end goes by the accessor of a lease, and by the name of what a crash left. What the server does not delete is looked
// for in the list of tokens: only there denied and gone can be told apart.
func (n nomad) end(ctx context.Context, to *caller, of *live) error {
	if of.Made && n.delete(ctx, to, of.Accessor) == nil {
		return nil
	}
	var tokens []struct{ AccessorID, Name string }
	if err := to.ask(ctx, http.MethodGet, "/v1/acl/tokens", nomadHeader, nil, &tokens); err != nil {
		return err
	}
	for _, t := range tokens {
		if of.Made && t.AccessorID == of.Accessor || !of.Made && t.Name == of.Name {
			return n.delete(ctx, to, t.AccessorID)
		}
	}
	return nil
}

func (nomad) delete(ctx context.Context, to *caller, accessor string) error {
	return to.ask(ctx, http.MethodDelete, "/v1/acl/token/"+accessor, nomadHeader, nil, nil)
}

func (nomad) bootstrap(ctx context.Context, to *caller) (string, error) {
	var made struct{ SecretID string }
	err := to.ask(ctx, http.MethodPost, "/v1/acl/bootstrap", nomadHeader, nil, &made)
	return made.SecretID, err
}
