package accessrows

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

// storedMethod is an auth method as the catalog shows it.
type storedMethod struct {
	Name, Type    string
	TokenLocality string         `json:",omitempty"`
	MaxTokenTTL   span           `json:",omitempty"`
	Default       bool           `json:",omitempty"`
	Config        map[string]any `json:",omitempty"`
	indexes
}

// wireMethod is an auth method as clients of this API know it. Lists leave Config out.
type wireMethod struct {
	Name            string
	Type            string
	TokenLocality   string
	TokenNameFormat string
	MaxTokenTTL     span
	Default         bool
	Config          map[string]any `json:",omitempty"`
	CreateIndex     uint64
	ModifyIndex     uint64
}

// The types of methods that this API makes; the catalog's others are shown under their own names.
const (
	typeJWT  = "JWT"
	typeOIDC = "OIDC"
)

// defaultNameFormat is stock's: the names of tokens are not made by formats here.
const defaultNameFormat = "${auth_method_type}-${auth_method_name}"

// configNames are the keys of a method's configuration here that the catalog calls otherwise.
var configNames = map[string]string{"SigningAlgs": "JWTSupportedAlgs", "DiscoveryCaPem": "OIDCDiscoveryCACert",
	"OIDCEnablePKCE": "OIDCClientUsePKCE"}

func (m *storedMethod) show(whole bool) *wireMethod {
	out := &wireMethod{Name: m.Name, Type: m.Type, TokenLocality: m.TokenLocality, TokenNameFormat: defaultNameFormat,
		MaxTokenTTL: m.MaxTokenTTL, Default: m.Default, CreateIndex: m.CreateIndex, ModifyIndex: m.ModifyIndex}
	for _, known := range []string{typeJWT, typeOIDC} {
		if strings.EqualFold(m.Type, known) {
			out.Type = known
		}
	}
	if !whole {
		return out
	}
	out.Config = map[string]any{}
	for name, v := range m.Config {
		for here, there := range configNames {
			if name == there {
				name = here
			}
		}
		if text, ok := v.(string); ok && (name == "BoundIssuer" || name == "DiscoveryCaPem") {
			v = []any{text} // as clients' JSON is read, which may be laid over it
		}
		out.Config[name] = v
	}
	return out
}

// clientSecret is the key of what the provider knows us by; redacted is what is shown in its place.
const (
	clientSecret = "OIDCClientSecret"
	redacted     = "redacted"
)

// redact hides the provider's secret in what is about to be answered.
func (m *wireMethod) redact() *wireMethod {
	if m.Config[clientSecret] != nil {
		m.Config[clientSecret] = redacted
	}
	return m
}

// keep takes over the secret of the method that this one replaces, where it came back as it was shown.
func (m *wireMethod) keep(secret any) error {
	switch {
	case m.Config[clientSecret] != redacted:
		return nil
	case secret == nil:
		return nomadrows.BadRequest("Config: OIDCClientSecret: %q stands in place of a secret that is not shown: give the "+
			"secret", redacted)
	}
	m.Config[clientSecret] = secret
	return nil
}

// catalog is the method as the catalog is sent it.
func (m *wireMethod) catalog() (*storedMethod, error) {
	switch {
	case !strings.EqualFold(m.Type, typeJWT) && !strings.EqualFold(m.Type, typeOIDC):
		return nil, nomadrows.BadRequest("invalid token type %q: Type must be JWT or OIDC", m.Type)
	case m.TokenNameFormat != "" && m.TokenNameFormat != defaultNameFormat:
		return nil, nomadrows.BadRequest("TokenNameFormat: names of tokens have no format here: leave it out")
	}
	out := &storedMethod{Name: m.Name, Type: strings.ToLower(m.Type), TokenLocality: m.TokenLocality,
		MaxTokenTTL: m.MaxTokenTTL, Default: m.Default, Config: map[string]any{}}
	for name, v := range m.Config {
		switch {
		case empty(v) || name == "VerboseLogging": // also OIDCEnablePKCE: a provider gets PKCE's challenge anyhow
			continue
		case name == "OIDCDisableUserInfo":
			return nil, nomadrows.BadRequest("Config: OIDCDisableUserInfo: the provider's user info is always asked: leave " +
				"it out")
		}
		if there, ok := configNames[name]; ok {
			name = there
		}
		if name == "BoundIssuer" || name == "OIDCDiscoveryCACert" {
			list, ok := v.([]any)
			if ok && len(list) > 1 && name == "BoundIssuer" {
				return nil, nomadrows.BadRequest("Config: BoundIssuer takes one issuer here")
			}
			var parts []string
			for _, one := range list {
				text, _ := one.(string)
				parts = append(parts, text)
			}
			if ok {
				v = strings.Join(parts, "\n")
			}
		}
		out.Config[name] = v
	}
	return out, nil
}

// empty tells whether clients send a value only because the field is there.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case float64:
		return v == 0
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// methods lists the methods. Whoever may not see them is shown what a login needs: names, types, which is the default.
func methods(q *request) error {
	var all []*storedMethod
	index, err := read(q, "auth-methods", nil, &all)
	if errkind.Is(err, errkind.Denied) { // who is about to log in has no rights, or a token that is over
		index, err = q.Access.Ask(q.Ctx(), nomadrows.AccessCall{Remote: q.R.RemoteAddr, Method: http.MethodGet,
			Path: "login-methods", Own: true, Query: reading(q, nil)}, &all)
	}
	if err != nil {
		return told(err)
	}
	return showList(q, index, func(yield func(*wireMethod) bool) {
		for _, m := range all {
			if begins(q, m.Name) && !yield(m.show(false)) {
				return
			}
		}
	}, func(m *wireMethod) string { return m.Name })
}

func method(q *request) error {
	var m storedMethod
	index, err := read(q, "auth-method/"+url.PathEscape(q.Args["name"]), nil, &m)
	if err != nil {
		return missing(err, "ACL auth method not found")
	}
	return q.Told(index, m.show(true).redact())
}

func createMethod(q *request) error { return setMethod(q, "") }
func updateMethod(q *request) error { return setMethod(q, q.Args["name"]) }

// setMethod creates a method, or changes the one of that name: what the client leaves out stays.
func setMethod(q *request, name string) error {
	body, err := q.Body()
	if err != nil {
		return err
	}
	in, path, secret := &wireMethod{Type: ""}, "auth-method", any(nil)
	if name != "" {
		var old storedMethod
		path += "/" + url.PathEscape(name)
		if _, err := ask(q, http.MethodGet, path, nil, nil, &old); err != nil {
			return missing(err, "ACL auth method not found")
		}
		in = old.show(true)
		secret = in.Config[clientSecret]
	}
	if err := json.Unmarshal(body, in); err != nil {
		return nomadrows.BadRequest("%s", err)
	}
	if err := in.keep(secret); err != nil {
		return err
	}
	if name != "" && in.Name != name {
		return nomadrows.BadRequest("ACL auth method name does not match request path")
	}
	send, err := in.catalog()
	if err != nil {
		return err
	}
	var made storedMethod
	if _, err := ask(q, http.MethodPut, path, nil, methodWrite{send.Name, send.Type, send.TokenLocality,
		send.MaxTokenTTL, send.Default, send.Config}, &made); err != nil {
		return told(err)
	}
	return q.Wrote(made.ModifyIndex, made.show(true).redact())
}

// methodWrite is a method as it is sent.
type methodWrite struct {
	Name, Type    string
	TokenLocality string `json:",omitempty"`
	MaxTokenTTL   span   `json:",omitempty"`
	Default       bool
	Config        map[string]any
}

func deleteMethod(q *request) error {
	index, err := ask(q, http.MethodDelete, "auth-method/"+url.PathEscape(q.Args["name"]), nil, nil, nil)
	if errkind.Is(err, errkind.NotFound) {
		return nomadrows.Failed("ACL auth method not found")
	}
	return gone(q, index, err)
}

// wireRule is a binding rule, as both sides know it.
type wireRule struct {
	ID, Description, AuthMethod, Selector, BindType, BindName string
	CreateIndex, ModifyIndex                                  uint64
}

// bindManagement is the bind type that the catalog knows as the policy of management tokens.
const bindManagement = "management"

func (r wireRule) show() *wireRule {
	if r.BindType == "policy" && r.BindName == globalManagement {
		r.BindType, r.BindName = bindManagement, ""
	}
	return &r
}

func rules(q *request) error {
	var all []*wireRule
	index, err := read(q, "binding-rules", nil, &all)
	if err != nil {
		return told(err)
	}
	return showList(q, index, func(yield func(*wireRule) bool) {
		for _, r := range all {
			if begins(q, r.ID) && !yield(r.show()) {
				return
			}
		}
	}, func(r *wireRule) string { return r.ID })
}

func rule(q *request) error {
	var r wireRule
	index, err := read(q, "binding-rule/"+q.Args["id"], nil, &r)
	if err != nil {
		return missing(err, "ACL binding rule not found")
	}
	return q.Told(index, r.show())
}

// setRule creates a rule, or changes the one that the path names: what the client leaves out stays.
func setRule(q *request) error {
	body, err := q.Body()
	if err != nil {
		return err
	}
	in, path := &wireRule{}, "binding-rule"
	if id := q.Args["id"]; id != "" {
		path += "/" + id
		var old wireRule
		if _, err := ask(q, http.MethodGet, path, nil, nil, &old); err != nil {
			return missing(err, "ACL binding rule not found")
		}
		in = old.show()
	}
	if err := json.Unmarshal(body, in); err != nil {
		return nomadrows.BadRequest("%s", err)
	}
	switch in.BindType {
	case bindManagement:
		if in.BindName != "" {
			return nomadrows.BadRequest("BindName should be empty with the bind type management")
		}
		in.BindType, in.BindName = "policy", globalManagement
	case "policy", "role":
	default:
		return nomadrows.BadRequest("BindType %q: use role, policy or management", in.BindType)
	}
	var made wireRule
	if _, err := ask(q, http.MethodPut, path, nil, in, &made); err != nil {
		return told(err)
	}
	return q.Wrote(made.ModifyIndex, made.show())
}

func deleteRule(q *request) error {
	index, err := ask(q, http.MethodDelete, "binding-rule/"+q.Args["id"], nil, nil, nil)
	if errkind.Is(err, errkind.NotFound) {
		return nomadrows.Failed("ACL binding rule not found")
	}
	return gone(q, index, err)
}

// login trades a JWT for a token.
func login(q *request) error {
	in, err := nomadrows.Decode[struct{ AuthMethodName, LoginToken string }](q)
	if err != nil {
		return err
	}
	switch {
	case in.AuthMethodName == "":
		return nomadrows.BadRequest("missing auth method name")
	case in.LoginToken == "":
		return nomadrows.BadRequest("missing login token")
	}
	var made stored
	_, err = ask(q, http.MethodPost, "login", nil, struct{ AuthMethod, BearerToken string }{in.AuthMethodName,
		in.LoginToken}, &made)
	return replied(q, &made, err)
}
