package acltoken

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

// access is where a server is and who asks it, under "config/access".
type access struct {
	Address    string `json:"address"`
	Scheme     string `json:"scheme,omitempty"` // of Consul, whose address may have none
	Token      string `json:"token,omitempty"`  // nobody reads it, nor the key
	CA         string `json:"ca_cert,omitempty"`
	Cert       string `json:"client_cert,omitempty"`
	Key        string `json:"client_key,omitempty"`
	NameLength int    `json:"max_token_name_length,omitempty"`
}

const (
	askWithin    = 15 * time.Second
	answerBytes  = 8 << 20 // a list of tokens
	refusalBytes = 512
	nameLength   = 256
)

func (c *call) access() (*secrets.Response, error) {
	a := &access{Scheme: "http", NameLength: nameLength}
	have := *a
	ok, err := c.read(accessKey, &have)
	if err != nil {
		return nil, err
	}
	if ok {
		*a = have
	}
	switch c.r.Op {
	case secrets.Read:
		if !ok {
			return nil, errNotFound
		}
		out := map[string]any{}
		c.e.plane.params(a).Show(out)
		return answer(out)
	case secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(accessKey)}}, nil
	case secrets.Create, secrets.Update:
	default:
		return nil, errUnsupported
	}
	if err := c.e.plane.params(a).Read(c.f); err != nil {
		return nil, err
	}
	if c.f.Has("client_key") {
		a.Key = c.f.String("client_key")
	}
	if c.f.Has("token") {
		a.Token = c.f.String("token")
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	at := c.e.plane.url(a)
	switch u, err := url.Parse(at); {
	case a.Address == "":
		return nil, invalid("field \"address\": is missing")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, invalid("field \"address\": %q leads to no http or https address", a.Address)
	case a.NameLength < 1 || a.NameLength > nameLength:
		return nil, invalid("field \"max_token_name_length\": must be 1 to %d", nameLength)
	case ok && have.Token != "" && !c.f.Has("token") && (at != c.e.plane.url(&have) || a.CA != have.CA):
		return nil, invalid("field \"token\": must be given again, since it was stored for another server or certificate")
	}
	to, err := c.e.to(a)
	if err != nil {
		return nil, err
	}
	if a.Token != "" {
		return store(accessKey, a)
	}
	if a.Token, err = c.e.plane.bootstrap(c, to); err != nil {
		return nil, fmt.Errorf("field \"token\": is missing, and the server gave no first one: %w", err)
	}
	return store(accessKey, a)
}

// caller asks the server of a mount.
type caller struct {
	*access
	plane plane
	at    string
	http  *http.Client
}

func (c *call) caller() (*caller, error) {
	a := &access{Scheme: "http", NameLength: nameLength}
	ok, err := c.read(accessKey, a)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, invalid("configuration not found: write %s first", accessKey)
	}
	return c.e.to(a)
}

func (e *Engine) to(a *access) (*caller, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CA != "" {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM([]byte(a.CA)) {
			return nil, invalid("field \"ca_cert\": holds no certificate in PEM")
		}
	}
	if a.Cert != "" || a.Key != "" {
		own, err := tls.X509KeyPair([]byte(a.Cert), []byte(a.Key))
		if err != nil {
			return nil, invalid("fields \"client_cert\", \"client_key\": are no certificate with its key, in PEM")
		}
		t.Certificates = []tls.Certificate{own}
	}
	return &caller{access: a, plane: e.plane, at: strings.TrimSuffix(e.plane.url(a), "/"), http: &http.Client{
		Timeout: askWithin, Transport: &http.Transport{TLSClientConfig: t, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// refused is what a server answered in the place of a result.
type refused struct {
	status int
	text   string
}

// Error implements error.
func (r *refused) Error() string { return fmt.Sprintf("%d: %s", r.status, r.text) }

// ask sends a request; into nil wants no answer. An error has a kind, and is a *refused where the server refused.
func (to *caller) ask(ctx context.Context, method, path, header string, body, into any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, to.at+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if to.Token != "" {
		r.Header.Set(header, to.Token)
	}
	resp, err := to.http.Do(r)
	if err != nil {
		return errkind.Errorf(errkind.Unavailable, "%s cannot be reached: %v", to.plane.name(), err)
	}
	defer resp.Body.Close() //nolint:errcheck // read alone
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err != nil {
		return errkind.Errorf(errkind.Unavailable, "%s: its answer ended: %v", to.plane.name(), err)
	}
	if resp.StatusCode != http.StatusOK {
		kind := errkind.Invalid
		if resp.StatusCode >= 500 {
			kind = errkind.Unavailable
		}
		no := &refused{resp.StatusCode, string(bytes.TrimSpace(text[:min(len(text), refusalBytes)]))}
		return errkind.Errorf(kind, "%s refused: %w", to.plane.name(), no)
	}
	if into != nil && json.Unmarshal(text, into) != nil {
		return errkind.Errorf(errkind.Unavailable, "%s: its answer is not of its API", to.plane.name())
	}
	return nil
}

// newLive names a token by who asked for what, in a way that no other has.
func newLive(role, holder string, now time.Time, longest int) *live {
	id := uuid.NewString()
	name := fmt.Sprintf("vault-%s-%s-%d", role, holder, now.UnixNano())
	if tail := "-" + id[:8]; len(name)+len(tail) <= longest {
		name += tail
	} else {
		name = id[:min(len(id), longest)]
	}
	return &live{Accessor: id, Name: strings.ToValidUTF8(strings.ReplaceAll(name, "/", "-"), "-")}
}
