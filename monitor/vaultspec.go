package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/kit/exactjson"
)

// VaultSpec is what a VaultProvider's spec says of the server that has its secrets.
type VaultSpec struct {
	Client struct {
		Address     string          `json:"address"`    // "" is this cluster's own secrets plane
		Token       string          `json:"token"`      // never shown
		TokenFile   string          `json:"token_file"` // on the servers; in place of Token
		Version     string          `json:"version"`    // of the key/value engine: v1 or v2 (the default)
		Namespace   string          `json:"namespace"`
		Timeout     string          `json:"timeout"` // a duration such as 20s
		MaxRetries  int             `json:"max_retries"`
		TLS         VaultTLS        `json:"tls"`
		RateLimiter json.RawMessage `json:"rate_limiter"` // accepted; calls at once are bounded here
		Agent       string          `json:"agent_address"`
	} `json:"client"`
}

// VaultTLS says whom to trust, by files on the servers.
type VaultTLS struct {
	CACert     string `json:"ca_cert"`
	CAPath     string `json:"ca_path"`
	ClientCert string `json:"client_cert"`
	ClientKey  string `json:"client_key"`
	ServerName string `json:"tls_server_name"`
	CName      string `json:"cname"`
	Insecure   bool   `json:"insecure"`
}

// Vault returns what a VaultProvider's spec says, and what is wrong with it.
func (p *Provider) Vault() (*VaultSpec, error) {
	s := new(VaultSpec)
	if err := exactjson.Decode(p.Spec, s); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	c := &s.Client
	u, err := url.Parse(c.Address)
	switch {
	case c.Address != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https"):
		return nil, fmt.Errorf("spec: client.address %q is not an http:// or https:// address", c.Address)
	case c.Version != "" && c.Version != "v1" && c.Version != "v2":
		return nil, fmt.Errorf("spec: client.version %q is neither v1 nor v2", c.Version)
	case c.Token == "" && c.TokenFile == "":
		return nil, errors.New("spec: client.token or client.token_file must be set")
	case c.Token != "" && c.TokenFile != "":
		return nil, errors.New("spec: client.token and client.token_file exclude each other")
	case strings.ContainsAny(c.Token, "\r\n"):
		return nil, errors.New("spec: client.token must be one line")
	case (c.TLS.ClientCert == "") != (c.TLS.ClientKey == ""):
		return nil, errors.New("spec: client.tls.client_cert and client_key must be set together")
	case c.TLS.CAPath != "" || c.Agent != "":
		return nil, errors.New("spec: client.tls.ca_path and client.agent_address are not supported: use ca_cert and address")
	case c.MaxRetries < 0 || c.MaxRetries > 10:
		return nil, fmt.Errorf("spec: client.max_retries %d must be from 0 to 10", c.MaxRetries)
	}
	if c.Timeout != "" {
		if d, err := time.ParseDuration(c.Timeout); err != nil || d <= 0 || d > time.Minute {
			return nil, fmt.Errorf("spec: client.timeout %q must be a duration up to 1m", c.Timeout)
		}
	}
	return s, nil
}

// hidden is what is shown in place of a provider's token.
const hidden = "REDACTED"

// withToken returns the provider with a token in its client's place, or without a change where it has none. at is the
// address that it is told to.
func (p *Provider) withToken(change func(at, token string) string) *Provider {
	var spec, client map[string]json.RawMessage
	var token string
	if json.Unmarshal(p.Spec, &spec) != nil || json.Unmarshal(spec["client"], &client) != nil ||
		json.Unmarshal(client["token"], &token) != nil || token == "" {
		return p
	}
	next := change(string(client["address"]), token)
	if next == token {
		return p
	}
	client["token"], _ = json.Marshal(next) // a text has a JSON, and what was one too
	spec["client"], _ = json.Marshal(client)
	out := *p
	out.Spec, _ = json.Marshal(spec)
	return &out
}

// Shown returns the provider as it may be shown: without its token.
func (p *Provider) Shown() *Provider {
	if p.Kind == "VaultProvider" && exactjson.Check(p.Spec) != nil { // it was stored before its keys had to be exact
		return &Provider{Meta: p.Meta, Kind: p.Kind}
	}
	return p.withToken(func(_, _ string) string { return hidden })
}

// Keep takes over the token of the one that this provider replaces, if it came back hidden and goes to the same place.
func (p *Provider) Keep(old *Provider) {
	former, was := "", ""
	old.withToken(func(at, token string) string { former, was = token, at; return token })
	*p = *p.withToken(func(at, token string) string {
		if token == hidden && former != "" && at == was {
			return former
		}
		return token
	})
}
