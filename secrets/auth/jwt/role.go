package jwt

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
)

// role says whose tokens log in, and as what.
type role struct {
	User        string              `json:"user_claim"`
	UserPointer bool                `json:"user_claim_json_pointer,omitempty"`
	Audiences   []string            `json:"bound_audiences,omitempty"`
	Subject     string              `json:"bound_subject,omitempty"`
	Claims      map[string][]string `json:"bound_claims,omitempty"`
	Glob        bool                `json:"glob,omitempty"`
	Groups      string              `json:"groups_claim,omitempty"`
	Mappings    map[string]string   `json:"claim_mappings,omitempty"`
	leeways
	Tokens auth.Params `json:"tokens"`

	Type string `json:"role_type,omitempty"` // "" is jwt: records of before there was another
	browser
}

// leeways are how far the times of a token may be off.
type leeways struct {
	Skew      time.Duration `json:"clock_skew_leeway,omitempty"`
	Expiry    time.Duration `json:"expiration_leeway,omitempty"`
	NotBefore time.Duration `json:"not_before_leeway,omitempty"`
}

// browser is what a login through a browser (OIDC) adds.
type browser struct {
	Redirects []string      `json:"allowed_redirect_uris,omitempty"`
	Scopes    []string      `json:"oidc_scopes,omitempty"`
	MaxAge    time.Duration `json:"max_age,omitempty"`
	Verbose   bool          `json:"verbose_oidc_logging,omitempty"` // kept and shown: what a token says is never logged
}

// The types of roles.
const (
	typeJWT  = "jwt"
	typeOIDC = "oidc"
)

func (r *role) kind() string {
	if r.Type == "" {
		return typeJWT
	}
	return r.Type
}

// Read implements auth.Record.
func (r *role) Read(f *secrets.Fields) error {
	if err := r.Tokens.Read(f); err != nil {
		return err
	}
	switch kind := f.String("role_type"); {
	case kind == typeJWT || kind == typeOIDC:
		r.Type = kind
	case kind != "":
		return errkind.Errorf(errkind.Invalid, "field \"role_type\": %q is neither jwt nor oidc", kind)
	case r.User == "": // a new role; without a word Vault takes this
		r.Type = typeOIDC
	}
	if mode := f.String("callback_mode"); mode != "" && mode != "client" {
		return errkind.Errorf(errkind.Invalid,
			"field \"callback_mode\": %q is not supported: only the client that began a login may end it", mode)
	}
	for field, into := range map[string]*string{"user_claim": &r.User, "bound_subject": &r.Subject,
		"groups_claim": &r.Groups} {
		if f.Has(field) {
			*into = f.String(field)
		}
	}
	for field, into := range map[string]*time.Duration{"clock_skew_leeway": &r.Skew, "expiration_leeway": &r.Expiry,
		"not_before_leeway": &r.NotBefore, "max_age": &r.MaxAge} {
		*into = f.Duration(field, *into)
	}
	r.UserPointer = f.Bool("user_claim_json_pointer", r.UserPointer)
	for field, into := range map[string]*[]string{"bound_audiences": &r.Audiences, "allowed_redirect_uris": &r.Redirects,
		"oidc_scopes": &r.Scopes} {
		if f.Has(field) {
			*into = f.Strings(field)
		}
	}
	r.Verbose = f.Bool("verbose_oidc_logging", r.Verbose)
	if f.Has("claim_mappings") {
		r.Mappings = auth.Pairs(f, "claim_mappings")
	}
	if f.Has("bound_claims") {
		var err error
		if r.Claims, err = boundClaims(f.Any("bound_claims")); err != nil {
			return err
		}
	}
	if kind := f.String("bound_claims_type"); kind != "" {
		if kind != "string" && kind != "glob" {
			return errkind.Errorf(errkind.Invalid, "field \"bound_claims_type\": %q is neither string nor glob", kind)
		}
		r.Glob = kind == "glob"
	}
	if err := f.Err(); err != nil {
		return err
	}
	return r.check()
}

func (r *role) check() error {
	if r.User == "" {
		return errkind.New(errkind.Invalid, "a user claim must be defined on the role: field \"user_claim\"")
	}
	if r.kind() == typeOIDC {
		if err := r.checkBrowser(); err != nil {
			return err
		}
	} else if len(r.Audiences) == 0 && len(r.Tokens.CIDRs) == 0 && r.Subject == "" && len(r.Claims) == 0 {
		return errkind.New(errkind.Invalid, "must have at least one bound constraint when creating/updating a role: "+
			"bound_audiences, bound_subject, bound_claims or token_bound_cidrs")
	}
	seen := []string{"role"}
	for claim, key := range r.Mappings {
		if claim == "" || key == "" || slices.Contains(seen, key) {
			return errkind.Errorf(errkind.Invalid,
				"field \"claim_mappings\": %q -> %q: both must be set, and the key be no other's and not \"role\"", claim, key)
		}
		seen = append(seen, key)
	}
	return nil
}

func (r *role) checkBrowser() error {
	if len(r.Redirects) == 0 {
		return errkind.New(errkind.Invalid, "allowed_redirect_uris must be set if 'role_type' is 'oidc' or unspecified")
	}
	for _, text := range r.Redirects {
		if u, err := url.Parse(text); err != nil || u.Scheme == "" || (u.Host == "" && u.Opaque == "") || u.User != nil ||
			u.Fragment != "" {
			return errkind.Errorf(errkind.Invalid,
				"field \"allowed_redirect_uris\": %q is no address that a browser can be sent to", text)
		}
	}
	if r.MaxAge < 0 {
		return errkind.New(errkind.Invalid, "field \"max_age\": must not be negative")
	}
	return nil
}

// boundClaims reads claims with their values: one, or a list of them.
func boundClaims(v any) (map[string][]string, error) {
	object, ok := v.(map[string]any)
	if text, is := v.(string); is {
		ok = json.Unmarshal([]byte(text), &object) == nil || text == ""
	}
	if !ok && v != nil {
		return nil, errkind.New(errkind.Invalid, "field \"bound_claims\": must be an object of claims with their values")
	}
	out := map[string][]string{}
	for claim, values := range object {
		list, many := values.([]any)
		if !many {
			list = []any{values}
		}
		for _, value := range list {
			if n, ok := value.(float64); ok { // of an object that came as a text
				value = json.Number(fmt.Sprint(n))
			}
			text, ok := jwks.Plain(value)
			if !ok {
				return nil, errkind.Errorf(errkind.Invalid,
					"field \"bound_claims\": claim %q: a value must be a text, a number, true or false", claim)
			}
			out[claim] = append(out[claim], text)
		}
		if len(out[claim]) == 0 {
			return nil, errkind.Errorf(errkind.Invalid, "field \"bound_claims\": claim %q has no values", claim)
		}
	}
	return out, nil
}

// Show implements auth.Record.
func (r *role) Show() map[string]any {
	kind, claims := "string", map[string]any{}
	if r.Glob {
		kind = "glob"
	}
	for claim, values := range r.Claims {
		if claims[claim] = values; len(values) == 1 {
			claims[claim] = values[0]
		}
	}
	out := map[string]any{"role_type": r.kind(), "user_claim": r.User, "user_claim_json_pointer": r.UserPointer,
		"bound_audiences": auth.List(r.Audiences),
		"bound_subject":   r.Subject, "bound_claims": claims, "bound_claims_type": kind, "groups_claim": r.Groups,
		"claim_mappings":    r.Mappings,
		"clock_skew_leeway": auth.Seconds(r.Skew), "expiration_leeway": auth.Seconds(r.Expiry),
		"not_before_leeway": auth.Seconds(r.NotBefore),
		"oidc_scopes":       r.Scopes, "allowed_redirect_uris": r.Redirects, "verbose_oidc_logging": r.Verbose,
		"max_age": auth.Seconds(r.MaxAge)}
	r.Tokens.Show(out)
	return out
}
