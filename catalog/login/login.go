// Package login checks the credentials of other systems that are traded for tokens: JWTs
// (by given keys, a JWKS address or OIDC discovery), what an OIDC provider says of a person whose browser
// was sent there, and Kubernetes service account tokens
// (by asking the cluster's TokenReview).
//
// A Verifier keeps fetched keys for a while and asks for them again when a token names one
// that is not among them. Each question to the outside has a deadline and a bound on the
// answer. It is safe for concurrent use and starts no goroutine.
package login

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/oidc"
)

// Verifier implements grants.Verifier. Make it with New.
type Verifier struct {
	clock clock.Clock
	keys  *jwks.Keys
	begun oidc.Pendings // the logins of browsers, of all methods
}

var _ grants.Verifier = (*Verifier)(nil)

// New makes a Verifier; a nil clock is the real one.
func New(c clock.Clock) *Verifier {
	if c == nil {
		c = clock.Real{}
	}
	return &Verifier{clock: c, keys: jwks.New(c.Now)}
}

// Check implements grants.Verifier.
func (v *Verifier) Check(m *acl.AuthMethod) error {
	var err error
	switch m.Type {
	case "jwt":
		_, err = jwtConfigOf(m)
	case "oidc":
		_, err = oidcConfigOf(m)
	case "kubernetes":
		_, err = kubernetesConfigOf(m)
	default:
		err = fmt.Errorf("type %q is not known", m.Type)
	}
	if err != nil {
		return errkind.Errorf(errkind.Invalid, "Invalid Auth Method: %w", err)
	}
	return nil
}

// Fields implements grants.Verifier.
func (v *Verifier) Fields(m *acl.AuthMethod) grants.Claims {
	switch m.Type {
	case "jwt", "oidc":
		if c, err := jwtConfigOf(m); err == nil {
			return c.fields()
		}
	case "kubernetes":
		return serviceAccount("namespace", "name", "uid")
	}
	return grants.Claims{}
}

// Login implements grants.Verifier. Kind Denied: the credential is not good.
func (v *Verifier) Login(ctx context.Context, m *acl.AuthMethod, credential string) (grants.Claims, error) {
	if len(credential) > jwks.MaxBytes {
		return grants.Claims{}, errkind.Errorf(errkind.Invalid, "the bearer token has %d bytes, the most is %d",
			len(credential), jwks.MaxBytes)
	}
	switch m.Type {
	case "jwt":
		return v.jwt(ctx, m, credential)
	case "kubernetes":
		return v.kubernetes(ctx, m, credential)
	case "oidc":
		return grants.Claims{}, errkind.Errorf(errkind.Invalid, "auth method %q is of type \"oidc\": a login begins at "+
			"/v1/acl/oidc/auth-url, with a browser", m.Name)
	}
	return grants.Claims{}, errkind.Errorf(errkind.Invalid, "auth method %q has the type %q, which is not known",
		m.Name, m.Type)
}

func denied(format string, args ...any) error {
	return errkind.Errorf(errkind.Denied, format, args...)
}

// decodeConfig reads a method's Config; a key that is not known is an error, as it may be a misspelt restriction.
func decodeConfig(m *acl.AuthMethod, into any) error {
	b, err := json.Marshal(m.Config)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("Config: %w", err)
	}
	return nil
}
