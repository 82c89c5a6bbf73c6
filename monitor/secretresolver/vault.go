package secretresolver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

const (
	defaultTimeout = 10 * time.Second
	maxAnswer      = 4 << 20
	maxFile        = 1 << 20
	retryAfter     = 100 * time.Millisecond
)

// client asks one server that speaks Vault's API.
type client struct {
	index uint64 // of the provider
	base  string
	spec  *monitor.VaultSpec
	http  *http.Client
}

// client returns a provider's client, made anew when the provider was changed.
func (r *Resolver) client(item *objects.Item) (client, error) {
	r.mu.Lock()
	c, known := r.clients[item.Name]
	r.mu.Unlock()
	if known && c.index == item.Index {
		return c, nil
	}
	spec, err := item.Object().(*monitor.Provider).Vault()
	if err != nil { // one that was written before it was looked at
		return c, errkind.E(errkind.Invalid, "provider "+item.Name, err)
	}
	base := strings.TrimSuffix(spec.Client.Address, "/")
	if base == "" {
		if base = r.cfg.Own(); base == "" {
			return c, errkind.Errorf(errkind.Invalid,
				"provider %s: client.address is empty, and this server has no secrets plane", item.Name)
		}
	}
	next := client{index: item.Index, base: base, spec: spec}
	if next.http, err = newHTTP(spec); err != nil {
		return c, errkind.E(errkind.Invalid, "provider "+item.Name, err)
	}
	if known {
		c.http.CloseIdleConnections()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[item.Name] = next
	return next, nil
}

// Close closes the connections that are kept.
func (r *Resolver) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		c.http.CloseIdleConnections()
	}
}

func newHTTP(s *monitor.VaultSpec) (*http.Client, error) {
	t := &s.Client.TLS
	// insecure is asked for by the provider
	secure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.Insecure, ServerName: t.ServerName}
	if secure.ServerName == "" {
		secure.ServerName = t.CName
	}
	if t.CACert != "" {
		text, err := readFile(t.CACert)
		if err != nil {
			return nil, fmt.Errorf("tls.ca_cert: %w", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls.ca_cert: %s holds no certificate", t.CACert)
		}
	}
	if t.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(t.ClientCert, t.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("tls.client_cert, client_key: %w", err)
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	limit := defaultTimeout
	if s.Client.Timeout != "" {
		limit, _ = time.ParseDuration(s.Client.Timeout) // it was validated
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure,
		MaxIdleConnsPerHost: callsAtMax, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	return &http.Client{Transport: transport, Timeout: limit, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("it answers with a redirect, and the token is for its own address alone")
	}}, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return b, err
}

// place says where a secret is: id is its path with the engine's mount first, and behind a # the name of its field,
// which is "value" where none is named. With v2 the path is one as `vault kv get` has it: what the API puts between
// mount and path is put in here.
func place(version, id string) (path, field string, err error) {
	path, field, named := strings.Cut(id, "#")
	if !named {
		field = "value"
	}
	path = strings.Trim(path, "/")
	mount, rest, found := strings.Cut(path, "/")
	if !found || field == "" || rest == "" || mount == "." || mount == ".." {
		return "", "", errkind.Errorf(errkind.Invalid, "id %q is not of the form mount/path#field", id)
	}
	words := strings.Split(rest, "/")
	if version != "v1" && words[0] != "data" {
		words = append([]string{"data"}, words...)
	}
	out := "/v1/" + url.PathEscape(mount)
	for _, w := range words {
		if w == "" || w == "." || w == ".." {
			return "", "", errkind.Errorf(errkind.Invalid, "id %q is not of the form mount/path#field", id)
		}
		out += "/" + url.PathEscape(w)
	}
	return out, field, nil
}

// read reads one field of a secret.
func (c *client) read(ctx context.Context, id string) (string, error) {
	path, field, err := place(c.spec.Client.Version, id)
	if err != nil {
		return "", err
	}
	for try := 0; ; try++ {
		text, err := c.get(ctx, path, field)
		if err == nil || !errkind.Is(err, errkind.Unavailable) || try >= c.spec.Client.MaxRetries || ctx.Err() != nil {
			return text, err
		}
		t := time.NewTimer(retryAfter << try)
		select {
		case <-ctx.Done():
			t.Stop()
		case <-t.C:
		}
	}
}

// token is the provider's, or what its file holds now.
func (c *client) token() (string, error) {
	if file := c.spec.Client.TokenFile; file != "" {
		b, err := readFile(file)
		token := strings.TrimSpace(string(b))
		if err == nil && (token == "" || strings.ContainsAny(token, " \r\n")) {
			err = fmt.Errorf("%s holds no token", file)
		}
		return token, errkind.E(errkind.Invalid, "client.token_file", err)
	}
	return c.spec.Client.Token, nil
}

func (c *client) get(ctx context.Context, path, field string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return "", errkind.E(errkind.Invalid, "client.address", err)
	}
	token, err := c.token()
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Vault-Token", token)
	req.Header.Set("X-Vault-Request", "true")
	if ns := c.spec.Client.Namespace; ns != "" {
		req.Header.Set("X-Vault-Namespace", ns)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if of := (*url.Error)(nil); errors.As(err, &of) {
			err = of.Err
		}
		return "", errkind.E(errkind.Unavailable, c.base, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return "", errkind.E(errkind.Unavailable, c.base, err)
	case resp.StatusCode == http.StatusNotFound:
		return "", errkind.Errorf(errkind.NotFound, "%s has nothing at %s", c.base, path)
	case resp.StatusCode == http.StatusForbidden:
		return "", errkind.Errorf(errkind.Denied, "%s does not let this server read %s", c.base, path)
	case resp.StatusCode != http.StatusOK:
		return "", errkind.Errorf(errkind.Unavailable, "%s answers %s", c.base, resp.Status)
	case len(b) > maxAnswer:
		return "", errkind.Errorf(errkind.TooLarge, "%s%s is larger than %d bytes", c.base, path, maxAnswer)
	}
	return pick(b, c.spec.Client.Version != "v1", field, c.base+path)
}

// pick finds a field in an answer. A value that is no text is its JSON.
func pick(b []byte, v2 bool, field, at string) (string, error) {
	var answer struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(b, &answer); err != nil { // the error of a parser may quote what it read
		return "", errkind.Errorf(errkind.Unavailable, "the answer of %s is not JSON as Vault's API has it", at)
	}
	data := answer.Data
	if v2 {
		var inner map[string]json.RawMessage
		if json.Unmarshal(data["data"], &inner) != nil || inner == nil {
			return "", errkind.Errorf(errkind.NotFound, "there is no version of a secret at %s", at)
		}
		data = inner
	}
	raw, found := data[field]
	if !found {
		return "", errkind.Errorf(errkind.NotFound, "the secret at %s has no field %q", at, field)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	return string(raw), nil
}
