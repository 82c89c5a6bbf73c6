// Package vault is the client of the secrets plane's HTTP API, which is Vault's
// contract, so it works against Vault and OpenBao too.
//
// A Client may be used from any goroutine. Every call has a deadline: the
// context's, or Config.Timeout. Calls are repeated only where Config.Retries says so:
// who scripts them knows whether they may be. Errors of the server are *Error; what went wrong on the way
// there is any other error. Numbers are json.Number, as they came.
package vault

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/errkind"
)

// Config says which server to talk to and how. The zero value is https://127.0.0.1:8200, as Vault's users know it.
type Config struct {
	Address    string // http://…, https://… or unix:///path
	Token      string
	Namespace  string
	CAFile     string // PEM; default the system's authorities
	CAPath     string // folder of PEM files
	CertFile   string
	KeyFile    string
	ServerName string
	SkipVerify bool
	WrapTTL    string
	Timeout    time.Duration // default 60 s
	MFA        []string      // METHOD[:PASSCODE] each, sent along
	// Retries is how often a request is sent again after an answer of 412, 429 or 5xx but 501, or none at all, with a
	// pause before.
	Retries int
	// RateLimit bounds the requests per second, those that are sent again too; 0 is no bound. RateBurst (1) is how many
	// may go at once.
	RateLimit float64
	RateBurst int
	// Proxy is where requests go through; "" is as the environment says for all programs.
	Proxy string
	// NoRedirects has an answer of a standby that points elsewhere be the answer.
	NoRedirects bool
	// SRV has the address's host looked up as a service in DNS where the address has no port.
	SRV bool
}

// Env reads variables that have two prefixes: BAO_ wins over VAULT_.
func Env(getenv func(string) string, name string) string {
	if v := getenv("BAO_" + name); v != "" {
		return v
	}
	return getenv("VAULT_" + name)
}

// FromEnv fills a Config from VAULT_ADDR, VAULT_TOKEN and so on, or BAO_ADDR, BAO_TOKEN and so on.
func FromEnv(getenv func(string) string) (Config, error) {
	env := func(name string) string { return Env(getenv, name) }
	c := Config{Address: env("ADDR"), Token: env("TOKEN"), Namespace: env("NAMESPACE"), CAFile: env("CACERT"),
		CAPath:   env("CAPATH"),
		CertFile: env("CLIENT_CERT"), KeyFile: env("CLIENT_KEY"), ServerName: env("TLS_SERVER_NAME"),
		WrapTTL: env("WRAP_TTL")}
	if agent := env("AGENT_ADDR"); agent != "" {
		c.Address = agent
	}
	c.Proxy = cmp.Or(env("PROXY_ADDR"), env("HTTP_PROXY"))
	if v := env("MFA"); v != "" {
		c.MFA = strings.Split(v, ",")
	}
	for name, at := range map[string]*bool{"SKIP_VERIFY": &c.SkipVerify, "DISABLE_REDIRECTS": &c.NoRedirects,
		"SRV_LOOKUP": &c.SRV} {
		v := env(name)
		if v == "" {
			continue
		}
		on, err := strconv.ParseBool(v)
		if err != nil {
			return c, errkind.Errorf(errkind.Invalid, "VAULT_%s is %q; it must be true or false", name, v)
		}
		*at = on
	}
	if v := env("MAX_RETRIES"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return c, errkind.Errorf(errkind.Invalid, "VAULT_MAX_RETRIES is %q; it must be a number", v)
		}
		c.Retries = max(n, 0) // below 0 is none, as Vault's documentation has it
	}
	if v := env("RATE_LIMIT"); v != "" {
		var err error
		if c.RateLimit, c.RateBurst, err = parseRate(v); err != nil {
			return c, err
		}
	}
	if v := env("CLIENT_TIMEOUT"); v != "" {
		if n, err := strconv.Atoi(v); err == nil {
			v = strconv.Itoa(n) + "s"
		}
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return c, errkind.Errorf(errkind.Invalid, "VAULT_CLIENT_TIMEOUT is %q; it must be seconds or a duration such as 30s",
				v)
		}
		c.Timeout = d
	}
	return c, nil
}

// Client talks to one server.
type Client struct {
	base  string
	cfg   Config
	http  *http.Client
	limit *rate.Limiter // nil: none
}

// New checks cfg and builds a Client. It does no network.
func New(cfg Config) (*Client, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.Address == "" {
		cfg.Address = "https://127.0.0.1:8200"
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	proxy := http.ProxyFromEnvironment
	if cfg.Proxy != "" {
		at, err := url.Parse(cfg.Proxy)
		if err != nil || at.Host == "" {
			return nil, errkind.Errorf(errkind.Invalid, "VAULT_PROXY_ADDR is %q; it must be http://host:port", cfg.Proxy)
		}
		proxy = http.ProxyURL(at)
	}
	tr := &http.Transport{Proxy: proxy, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2: true}
	c := &Client{base: strings.TrimSuffix(cfg.Address, "/"), cfg: cfg}
	if cfg.RateLimit > 0 {
		c.limit = rate.NewLimiter(rate.Limit(cfg.RateLimit), max(cfg.RateBurst, 1))
	}
	if path, ok := strings.CutPrefix(cfg.Address, "unix://"); ok {
		c.base = "http://localhost"
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	} else if u, err := url.Parse(cfg.Address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errkind.Errorf(errkind.Invalid, "address %q must be http://host:port, https://host:port or unix:///path",
			cfg.Address)
	}
	if u, err := url.Parse(c.base); cfg.SRV && err == nil && u.Port() == "" {
		tr.DialContext = bySRV(dialer, u.Hostname())
	}
	files := client.TLSFiles{CAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, ServerName: cfg.ServerName,
		SkipVerify: cfg.SkipVerify}
	if cfg.CAFile == "" {
		files.CAPath = cfg.CAPath
	}
	t, err := files.Config()
	if err != nil {
		return nil, err
	}
	tr.TLSClientConfig = t
	c.http = &http.Client{Transport: tr, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		// A standby sends to the active server. The token goes along to where it is protected as well as before.
		if cfg.NoRedirects || len(via) > 2 || via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	return c, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Address is the server's, as it was given.
func (c *Client) Address() string { return c.cfg.Address }

// WithToken is the same client with another token.
func (c *Client) WithToken(token string) *Client {
	d := *c
	d.cfg.Token = token
	return &d
}

// Wrapping is the same client that has its answers wrapped for this long; "" is not at all.
func (c *Client) Wrapping(ttl string) *Client {
	d := *c
	d.cfg.WrapTTL = ttl
	return &d
}

// Auth is a login's or a new token's part of an answer.
type Auth struct {
	ClientToken      string            `json:"client_token"`
	Accessor         string            `json:"accessor"`
	Policies         []string          `json:"policies"`
	TokenPolicies    []string          `json:"token_policies"`
	IdentityPolicies []string          `json:"identity_policies"`
	Metadata         map[string]string `json:"metadata"`
	LeaseDuration    int64             `json:"lease_duration"`
	Renewable        bool              `json:"renewable"`
	MFA              *MFA              `json:"mfa_requirement,omitempty"`
}

// MFA is a second factor that a login lacks: for each constraint a passcode of one of its methods, sent to
// sys/mfa/validate.
type MFA struct {
	ID          string `json:"mfa_request_id"`
	Constraints map[string]struct {
		Any []MFAMethod `json:"any"`
	} `json:"mfa_constraints"`
}

// MFAMethod is a way to show a second factor.
type MFAMethod struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Name string `json:"name"`
}

// WrapInfo tells of a wrapped answer.
type WrapInfo struct {
	Token           string `json:"token"`
	Accessor        string `json:"accessor"`
	TTL             int64  `json:"ttl"`
	CreationTime    string `json:"creation_time"`
	CreationPath    string `json:"creation_path"`
	WrappedAccessor string `json:"wrapped_accessor"`
}

// Answer is what a server said. Raw is its body; the other fields are set where it is an envelope.
type Answer struct {
	LeaseID       string         `json:"lease_id"`
	LeaseDuration int64          `json:"lease_duration"`
	Renewable     bool           `json:"renewable"`
	Data          map[string]any `json:"data"`
	Warnings      []string       `json:"warnings"`
	Auth          *Auth          `json:"auth"`
	Wrap          *WrapInfo      `json:"wrap_info"`

	Status int    `json:"-"`
	Raw    []byte `json:"-"`
}

// Empty reports whether the server answered without a body.
func (a *Answer) Empty() bool { return len(bytes.TrimSpace(a.Raw)) == 0 }

// Error is the server's refusal.
type Error struct {
	Method, URL string
	Status      int
	Texts       []string
	Answer      *Answer // its body, where it is an envelope all the same (a deleted version, a warning)
}

// Error implements error, in the form that Vault's users and their scripts know.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Error making API request.\n\nURL: %s %s\nCode: %d. Errors:\n\n", e.Method, e.URL, e.Status)
	for i, t := range e.Texts {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("* " + t)
	}
	return b.String()
}

// maxAnswer bounds an answer in memory. A list of a million keys is some 50 MiB.
const maxAnswer = 256 << 20

// Do asks for path below /v1/. method LIST is sent as GET with list=true, so that
// proxies let it pass. body is encoded as JSON unless it is nil or []byte.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body any) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	req, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.send(req)
	if err != nil {
		return nil, c.unreached(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, c.unreached(err)
	}
	if len(raw) > maxAnswer {
		return nil, fmt.Errorf("the answer of %s is larger than 256 MiB", path)
	}
	a := &Answer{Status: resp.StatusCode, Raw: raw}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	decoded := dec.Decode(a)
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return a, nil // an answer that is no envelope is the caller's to read
	}
	return refused(a, decoded, &Error{Method: method, URL: req.URL.String(), Status: resp.StatusCode}, raw)
}

// refused reads the answer of a server that did not do what was asked.
func refused(a *Answer, decoded error, e *Error, raw []byte) (*Answer, error) {
	var refusal struct {
		Errors []string `json:"errors"`
	}
	if err := json.Unmarshal(raw, &refusal); err != nil && len(raw) > 0 {
		refusal.Errors = []string{"the answer is no JSON: " + strings.TrimSpace(string(raw[:min(len(raw), 500)]))}
		if bytes.Contains(raw, []byte("HTTP request to an HTTPS server")) {
			refusal.Errors = append(refusal.Errors, "the server speaks TLS: set VAULT_ADDR=https://…")
		}
	}
	e.Texts = refusal.Errors
	if decoded == nil && (a.Data != nil || len(a.Warnings) > 0) {
		e.Answer = a
	}
	return nil, e
}

// Follow is Stream of a read with parameters.
func (c *Client) Follow(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return c.stream(ctx, http.MethodGet, path, query, nil)
}

// Stream sends body, which may be nil, and returns the answer's as it comes. There is no deadline but ctx's.
func (c *Client) Stream(ctx context.Context, method, path string, body io.ReadSeeker) (io.ReadCloser, error) {
	return c.stream(ctx, method, path, nil, body)
}

func (c *Client) stream(ctx context.Context, method, path string, query url.Values, body io.ReadSeeker) (io.ReadCloser,
	error) {
	req, err := c.request(ctx, method, path, query, nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.GetBody = func() (io.ReadCloser, error) { // a standby says where to go
			_, err := body.Seek(0, io.SeekStart)
			return io.NopCloser(body), err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
		req.ContentLength = -1
	}
	resp, err := c.once(req)
	if err != nil {
		return nil, c.unreached(err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, c.unreached(err)
	}
	_, err = refused(&Answer{}, nil, &Error{Method: method, URL: req.URL.String(), Status: resp.StatusCode}, raw)
	return nil, err
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	u := c.base + "/v1/" + escape(path)
	if method == "LIST" {
		method = http.MethodGet
		if query == nil {
			query = url.Values{}
		}
		query.Set("list", "true")
	}
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, u, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Vault-Request", "true")
	for _, m := range c.cfg.MFA {
		req.Header.Add("X-Vault-MFA", m)
	}
	for name, value := range map[string]string{"X-Vault-Token": c.cfg.Token, "X-Vault-Namespace": c.cfg.Namespace,
		"X-Vault-Wrap-TTL": c.cfg.WrapTTL} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	} else if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

func escape(path string) string {
	return (&url.URL{Path: strings.TrimPrefix(path, "/")}).EscapedPath()
}

// unreached adds what to do next to an error of the way.
func (c *Client) unreached(err error) error {
	if errors.Is(err, errTooMany) {
		return err
	}
	var u *url.Error
	if errors.As(err, &u) && u.Timeout() {
		return errkind.Errorf(errkind.Unavailable,
			"no answer from %s in time: %w; VAULT_CLIENT_TIMEOUT sets how long to wait", c.cfg.Address, err)
	}
	if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return errkind.Errorf(errkind.Unavailable, "%w; the server speaks no TLS: set VAULT_ADDR=http://…", err)
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return errkind.Errorf(errkind.Unavailable,
			"%w; VAULT_CACERT or -ca-cert names the authority to trust, VAULT_TLS_SERVER_NAME the server", err)
	}
	return errkind.Errorf(errkind.Unavailable, "%w; is a server running there? VAULT_ADDR or -address says where", err)
}
