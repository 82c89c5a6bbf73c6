// Package nomad is the client of the jobs plane's HTTP API, which is Nomad's contract, so it works against Nomad too.
//
// A Client may be used from any goroutine. Every call has a deadline: the context's, or Config.Timeout beyond the wait
// of a blocking query. Streams have the context's alone. Errors of the server are *Error; what went wrong on the way
// there is any other error. Answers are decoded into what the caller gives.
package nomad

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

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/ws"
)

// Config says which server to talk to and how. The zero value is http://127.0.0.1:4646.
type Config struct {
	Address    string // http://…, https://… or unix:///path
	Token      string
	Namespace  string
	Region     string
	CAFile     string // PEM; default the system's authorities
	CAPath     string // folder of PEM files
	CertFile   string
	KeyFile    string
	ServerName string
	SkipVerify bool
	Timeout    time.Duration // default 60 s
}

// DefaultAddress is where a server of this host answers.
const DefaultAddress = "http://127.0.0.1:4646"

// FromEnv fills a Config from NOMAD_ADDR, NOMAD_TOKEN and so on.
func FromEnv(getenv func(string) string) (Config, error) {
	c := Config{Address: getenv("NOMAD_ADDR"), Token: getenv("NOMAD_TOKEN"), Namespace: getenv("NOMAD_NAMESPACE"),
		Region: getenv("NOMAD_REGION"), CAFile: getenv("NOMAD_CACERT"), CAPath: getenv("NOMAD_CAPATH"),
		CertFile: getenv("NOMAD_CLIENT_CERT"), KeyFile: getenv("NOMAD_CLIENT_KEY"),
		ServerName: getenv("NOMAD_TLS_SERVER_NAME")}
	if text := getenv("NOMAD_SKIP_VERIFY"); text != "" {
		skip, err := strconv.ParseBool(text)
		if err != nil {
			return c, errkind.Errorf(errkind.Invalid, "NOMAD_SKIP_VERIFY is %q; it must be true or false", text)
		}
		c.SkipVerify = skip
	}
	return c, nil
}

// Client talks to one server.
type Client struct {
	base string
	cfg  Config
	http *http.Client
	tls  *tls.Config
}

// New checks cfg and builds a Client. It does no network.
func New(cfg Config) (*Client, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	cfg.Address = cmp.Or(cfg.Address, DefaultAddress)
	if !strings.Contains(cfg.Address, "://") {
		cfg.Address = "http://" + cfg.Address
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
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	tr := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: t,
		TLSHandshakeTimeout: 10 * time.Second}
	c := &Client{base: strings.TrimSuffix(cfg.Address, "/"), cfg: cfg, tls: t}
	if path, ok := strings.CutPrefix(cfg.Address, "unix://"); ok {
		c.base = "http://localhost"
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	} else if u, err := url.Parse(cfg.Address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errkind.Errorf(errkind.Invalid, "address %q must be http://host:port, https://host:port or unix:///path",
			cfg.Address)
	}
	c.http = &http.Client{Transport: tr}
	return c, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Namespace is the one that requests ask for, default when none is given.
func (c *Client) Namespace() string { return cmp.Or(c.cfg.Namespace, "default") }

// Error is the server's refusal.
type Error struct {
	Status int
	Text   string
}

// Error implements error, in the form that scripts know.
func (e *Error) Error() string {
	return fmt.Sprintf("Unexpected response code: %d (%s)", e.Status, strings.TrimSpace(e.Text))
}

// IsNotFound reports whether the server does not have what was asked for.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// Meta is what the headers of an answer say.
type Meta struct {
	Index uint64
	Next  string // the token of the next page
}

// maxAnswer bounds an answer in memory: a list of 100,000 allocations has some 80 MiB.
const maxAnswer = 512 << 20

// Do sends a request below /v1/ and decodes the answer into out, unless it is nil. body is encoded as JSON unless it is
// nil. A *json.RawMessage takes the answer as it is.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body, out any) (Meta, error) {
	limit := c.cfg.Timeout
	if wait, err := time.ParseDuration(query.Get("wait")); err == nil {
		limit += wait + wait/16
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return Meta{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return Meta{}, c.unreached(err)
	}
	if len(text) > maxAnswer {
		return Meta{}, fmt.Errorf("the answer of %s is larger than 512 MiB: ask for pages", path)
	}
	index, err := strconv.ParseUint(resp.Header.Get("X-Nomad-Index"), 10, 64)
	if err != nil {
		index = 0 // calls to nodes have none
	}
	meta := Meta{Index: index, Next: resp.Header.Get("X-Nomad-Nexttoken")}
	if out == nil || len(bytes.TrimSpace(text)) == 0 {
		return meta, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return meta, fmt.Errorf("the answer of %s is not what was asked for: %w; does %s speak Nomad's API?", path, err,
			c.cfg.Address)
	}
	return meta, nil
}

// Get is Do for a read.
func (c *Client) Get(ctx context.Context, path string, query url.Values, out any) (Meta, error) {
	return c.Do(ctx, http.MethodGet, path, query, nil, out)
}

// Put is Do for a write.
func (c *Client) Put(ctx context.Context, path string, query url.Values, body, out any) error {
	_, err := c.Do(ctx, http.MethodPut, path, query, body, out)
	return err
}

// Stream reads an answer as it comes.
func (c *Client) Stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Upload sends what r has, as it is, and discards the answer.
func (c *Client) Upload(ctx context.Context, path string, query url.Values, r io.Reader) error {
	resp, err := c.send(ctx, http.MethodPut, path, query, r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// send sends a request and turns refusals into errors. A body that is an io.Reader goes as it is.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	r, raw := body.(io.Reader)
	if body != nil && !raw {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+c.target(path, query), r)
	if err != nil {
		return nil, err
	}
	req.Header = c.header()
	if raw {
		req.Header.Set("Content-Type", "application/octet-stream")
	} else if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreached(err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, c.unreached(err)
	}
	return nil, &Error{resp.StatusCode, string(text)}
}

// SetRegion has the requests from now on go to a region. It is not for concurrent use.
func (c *Client) SetRegion(region string) { c.cfg.Region = region }

// target is the path with what the configuration adds.
func (c *Client) target(path string, query url.Values) string {
	q := url.Values{}
	for name, values := range query {
		q[name] = values
	}
	for name, value := range map[string]string{"namespace": c.cfg.Namespace, "region": c.cfg.Region} {
		if value != "" && !q.Has(name) {
			q.Set(name, value)
		}
	}
	path = "/v1/" + path
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

func (c *Client) header() http.Header {
	h := http.Header{}
	if c.cfg.Token != "" {
		h.Set("X-Nomad-Token", c.cfg.Token)
	}
	return h
}

// Dial opens a WebSocket below /v1/.
func (c *Client) Dial(ctx context.Context, path string, query url.Values, limits *ws.Limits) (*ws.Conn, error) {
	conn, _, err := ws.Dial(ctx, "ws"+strings.TrimPrefix(c.base, "http")+c.target(path, query), c.header(), c.tls, limits)
	var refused *ws.Refused
	if errors.As(err, &refused) {
		return nil, &Error{refused.Status, refused.Body}
	}
	if err != nil {
		return nil, c.unreached(err)
	}
	return conn, nil
}

// unreached adds what to do next to an error of the way.
func (c *Client) unreached(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return errkind.Errorf(errkind.Unavailable, "%w; the server speaks no TLS: set NOMAD_ADDR=http://…", err)
	}
	return errkind.Errorf(errkind.Unavailable, "%w; is a server running there? NOMAD_ADDR or -address says where", err)
}
