package monitor

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"corbel.dev/corbel/kit/tagproto"
)

// CallbackPath is where OpenID providers send browsers back to, at the address of a backend (the contract's).
const CallbackPath = "/api/enterprise/authentication/v2/oidc/callback"

// AuthProvider is an OpenID provider that people log in at (authentication/v2 oidc): what its claims say of a person
// is the name and the groups of a user that is stored nowhere.
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
	NoOffline bool           `json:"disable_offline_access" pb:"11"`
	CACert    string         `json:"ca_cert,omitempty" pb:"12"` // PEM; "" is the host's authorities. Sensu has none
	Extra     tagproto.Extra `json:"-"`
}

// Validate returns what is wrong with the provider.
func (p *AuthProvider) Validate() error {
	if err := named("authentication provider", p.Name); err != nil {
		return err
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
	return &out
}

// Keep takes over the secret of the provider that this one replaces, where it came back hidden.
func (p *AuthProvider) Keep(old *AuthProvider) {
	if p.ClientSecret == hidden {
		p.ClientSecret = old.ClientSecret
	}
}

// Naming is what decides whom the provider's claims name: sessions hold as long as it stays.
func (p *AuthProvider) Naming() string {
	return fmt.Sprintf("%q", []string{p.Server, p.ClientID, p.UsernameClaim, p.UsernamePrefix, p.GroupsClaim,
		p.GroupsPrefix})
}
