package monitor

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"corbel.dev/corbel/kit/tagproto"
)

// CallbackPath is where OpenID providers send browsers back to, at the address of a backend (the contract's).
const CallbackPath = "/api/enterprise/authentication/v2/oidc/callback"

// Directories are the kinds of authentication providers that ask for a password and know it by LDAP.
var Directories = []string{"ldap", "ad"}

// AuthProvider is an OpenID provider that people log in at (authentication/v2 oidc), or a directory (ldap, ad): what it
// says of a person is the name and the groups of a user that is stored nowhere.
type AuthProvider struct {
	Meta           `json:"metadata,omitempty" pb:"1"`
	Server         string   `json:"server" pb:"2"` // the issuer
	ClientID       string   `json:"client_id" pb:"3"`
	ClientSecret   string   `json:"client_secret" pb:"4"` // never shown
	RedirectURI    string   `json:"redirect_uri" pb:"5"`  // CallbackPath at an address that people reach
	UsernameClaim  string   `json:"username_claim" pb:"6"`
	UsernamePrefix string   `json:"username_prefix,omitempty" pb:"7"`
	GroupsClaim    string   `json:"groups_claim,omitempty" pb:"8"` // "" gives no groups
	GroupsPrefix   string   `json:"groups_prefix,omitempty" pb:"9"`
	Scopes         []string `json:"additional_scopes" pb:"10"`
	// NoOffline changes nothing: no session outlives its login by the provider's refresh tokens.
	NoOffline bool   `json:"disable_offline_access" pb:"11"`
	CACert    string `json:"ca_cert,omitempty" pb:"12"` // PEM; "" is the host's authorities. Sensu has none
	Directory string `json:"-" pb:"13"`                 // one of Directories; "" is oidc
	// Spec is a directory's, a JSON object: what it says is read in package ldaplogin.
	Spec  json.RawMessage `json:"-" pb:"14"`
	Extra tagproto.Extra  `json:"-"`
}

// Validate returns what is wrong with the provider.
func (p *AuthProvider) Validate() error {
	if err := named("authentication provider", p.Name); err != nil {
		return err
	}
	if p.Directory != "" {
		return nil
	}
	for _, must := range [][2]string{{"server", p.Server}, {"client_id", p.ClientID}, {"client_secret", p.ClientSecret},
		{"redirect_uri", p.RedirectURI}, {"username_claim", p.UsernameClaim}} {
		if must[1] == "" {
			return fmt.Errorf("spec: %s must be set", must[0])
		}
	}
	if p.ClientSecret == hidden {
		return fmt.Errorf("spec: client_secret: %s stands in place of a secret that is not shown: set the secret", hidden)
	}
	for _, at := range [][2]string{{"server", p.Server}, {"redirect_uri", p.RedirectURI}} {
		u, err := url.Parse(at[1])
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" ||
			u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("spec: %s %q is not an http:// or https:// address", at[0], at[1])
		}
	}
	if !strings.HasSuffix(p.RedirectURI, CallbackPath) {
		return fmt.Errorf("spec: redirect_uri %q must end with %s", p.RedirectURI, CallbackPath)
	}
	for i, scope := range p.Scopes {
		if scope == "" || strings.ContainsAny(scope, " \t\r\n") {
			return fmt.Errorf("spec: additional_scopes[%d]: %q must be one word", i, scope)
		}
	}
	if p.CACert != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(p.CACert)) {
		return errors.New("spec: ca_cert holds no PEM certificate")
	}
	return nil
}

// Shown returns the provider as it may be shown: without its secret.
func (p *AuthProvider) Shown() *AuthProvider {
	out := *p
	out.ClientSecret = hidden
	if p.Directory != "" {
		out.Spec = p.withPasswords(func(string, string) string { return hidden })
	}
	return &out
}

// Keep takes over the secret of the one that this provider replaces, if it came back hidden and goes to the same place.
func (p *AuthProvider) Keep(old *AuthProvider) {
	if p.ClientSecret == hidden && p.Server == old.Server {
		p.ClientSecret = old.ClientSecret
	}
	if p.Directory != "" && old.Directory != "" {
		former := map[string]string{}
		old.withPasswords(func(at, password string) string { former[at] = password; return password })
		p.Spec = p.withPasswords(func(at, password string) string {
			if was, ok := former[at]; ok && password == hidden {
				return was
			}
			return password
		})
	}
}

// withPasswords is a directory's spec with other passwords of its servers' bindings. at is all that decides whom a
// password is told to: with a server of another place it is another one's.
func (p *AuthProvider) withPasswords(change func(at, password string) string) json.RawMessage {
	var spec map[string]any
	if json.Unmarshal(p.Spec, &spec) != nil {
		return p.Spec
	}
	servers, _ := spec["servers"].([]any)
	for _, one := range servers {
		server, _ := one.(map[string]any)
		binding, _ := server["binding"].(map[string]any)
		if password, ok := binding["password"].(string); ok {
			at := fmt.Sprintf("%q %v %v %v %q %q", server["host"], server["port"], server["security"], server["insecure"],
				server["trusted_ca_file"], binding["user_dn"])
			binding["password"] = change(at, password)
		}
	}
	if out, err := json.Marshal(spec); err == nil {
		return out
	}
	return p.Spec
}

// Naming is what decides whom the provider's claims name: sessions hold as long as it stays.
func (p *AuthProvider) Naming() string {
	if p.Directory != "" { // a new password of a binding names nobody else
		return p.Directory + string(p.withPasswords(func(string, string) string { return "" }))
	}
	return fmt.Sprintf("%q", []string{p.Server, p.ClientID, p.UsernameClaim, p.UsernamePrefix, p.GroupsClaim,
		p.GroupsPrefix})
}
