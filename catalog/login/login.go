// Package login checks the credentials of other systems that are traded for tokens: JWTs
// (by given keys, a JWKS address or OIDC discovery) and Kubernetes service account tokens
// (by asking the cluster's TokenReview).
//
// A Verifier keeps fetched keys for a while and asks for them again when a token names one
// that is not among them. Each question to the outside has a deadline and a bound on the
// answer. It is safe for concurrent use and starts no goroutine.
package login

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// askTimeout bounds one question to another system; the login that waits for it has a deadline of its own.
	askTimeout = 5 * time.Second
	// answerBytes bounds what another system may answer.
	answerBytes = 1 << 20
	// maxCredentialBytes bounds a credential; no JWT in use comes near.
	maxCredentialBytes = 64 << 10
)

// Verifier implements grants.Verifier. Make it with New.
type Verifier struct {
	clock clock.Clock
	keys  keyCache
}

var _ grants.Verifier = (*Verifier)(nil)

// New makes a Verifier; a nil clock is the real one.
func New(c clock.Clock) *Verifier {
	if c == nil {
		c = clock.Real{}
	}
	return &Verifier{clock: c, keys: keyCache{clock: c, kept: map[string]*keySet{}}}
}

// Check implements grants.Verifier.
func (v *Verifier) Check(m *acl.AuthMethod) error {
	var err error
	switch m.Type {
	case "jwt":
		_, err = jwtConfigOf(m)
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
	case "jwt":
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
	if len(credential) > maxCredentialBytes {
		return grants.Claims{}, errkind.Errorf(errkind.Invalid, "the bearer token has %d bytes, the most is %d", len(credential), maxCredentialBytes)
	}
	switch m.Type {
	case "jwt":
		return v.jwt(ctx, m, credential)
	case "kubernetes":
		return v.kubernetes(ctx, m, credential)
	}
	return grants.Claims{}, errkind.Errorf(errkind.Invalid, "auth method %q has the type %q, which is not known", m.Name, m.Type)
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

// checkURL takes addresses of the web alone.
func checkURL(field, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("%s: %q is no http or https address", field, text)
	}
	return nil
}

func checkCA(field, pem string) error {
	if pem != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(pem)) {
		return fmt.Errorf("%s holds no PEM certificate", field)
	}
	return nil
}

// client talks to a system whose certificate is signed by ca, or by the host's authorities when it is empty.
func client(ca string) *http.Client {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		conf.RootCAs = x509.NewCertPool()
		conf.RootCAs.AppendCertsFromPEM([]byte(ca))
	}
	return &http.Client{
		Timeout: askTimeout,
		Transport: &http.Transport{TLSClientConfig: conf, DialContext: (&net.Dialer{Timeout: askTimeout}).DialContext,
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the answer is a redirect: configure the address that it leads to")
		},
	}
}

// ask sends a request and decodes the JSON that comes back.
func ask(ctx context.Context, ca string, r *http.Request, into any) error {
	res, err := client(ca).Do(r.WithContext(ctx))
	if err != nil {
		return errkind.E(errkind.Unavailable, "ask "+r.URL.Host, err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end or given up
	b, err := io.ReadAll(io.LimitReader(res.Body, answerBytes))
	if err != nil {
		return errkind.E(errkind.Unavailable, "read the answer of "+r.URL.Host, err)
	}
	if res.StatusCode/100 != 2 {
		return errkind.Errorf(errkind.Unavailable, "%s answered %s", r.URL.Host, res.Status)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return errkind.Errorf(errkind.Unavailable, "the answer of %s is no JSON as expected: %w", r.URL.Host, err)
	}
	return nil
}
