// Package client is the Go client of Corbel's HTTP API, which speaks Consul's wire
// contract, so it works against either.
//
// A Client holds one connection pool and may be used from any goroutine. Every
// call has a deadline: the context's, or Config.Timeout when it has none; blocking
// queries add their wait to it. Streams (Monitor) last as long as their context.
// Nothing is retried except by Follow. Errors of the server are *Error with its
// status and text; errors on the way there carry a hint what to do next.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/neterr"
)

// Config says which agent to talk to and how. The zero value is http://127.0.0.1:8500.
type Config struct {
	Address  string // host:port, http://…, https://… or unix:///path
	Token    string
	User     string // "user:password" for a proxy that wants basic authentication
	CAFile   string // PEM; default the system's authorities
	CAPath   string // folder of PEM files, trusted beside CAFile
	CertFile string // client certificate
	KeyFile  string
	// ServerName overrides the name that the server's certificate must have.
	ServerName string
	// SkipVerify accepts any certificate. For tests and rescue only.
	SkipVerify bool
	// Timeout bounds each call whose context has no deadline; default 60 s.
	Timeout time.Duration
	// MaxConns bounds connections to the agent; default 64.
	MaxConns int
	// Transport answers in place of the network, for a source that is no agent. nil is the network.
	Transport http.RoundTripper
}

// FromEnv fills a Config from CORBEL_HTTP_ADDR, CORBEL_TOKEN and so on, or from
// CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN and so on where the former are not set.
func FromEnv(getenv func(string) string) (Config, error) {
	env := func(name string) string {
		if v := getenv("CORBEL_" + name); v != "" {
			return v
		}
		return getenv("CONSUL_" + name)
	}
	c := Config{Address: env("HTTP_ADDR"), Token: getenv("CORBEL_TOKEN"), User: env("HTTP_AUTH"), CAFile: env("CACERT"),
		CAPath: env("CAPATH"), CertFile: env("CLIENT_CERT"), KeyFile: env("CLIENT_KEY"), ServerName: env("TLS_SERVER_NAME")}
	if c.Token == "" {
		c.Token = env("HTTP_TOKEN")
	}
	if path := env("HTTP_TOKEN_FILE"); c.Token == "" && path != "" {
		token, err := ReadToken(path)
		if err != nil {
			return c, err
		}
		c.Token = token
	}
	if ssl := env("HTTP_SSL"); ssl != "" {
		on, err := strconv.ParseBool(ssl)
		if err != nil {
			return c, errkind.Errorf(errkind.Invalid, "HTTP_SSL is %q; it must be true or false", ssl)
		}
		if on && !strings.Contains(c.Address, "://") {
			c.Address = "https://" + orDefault(c.Address, "127.0.0.1:8501")
		}
	}
	if verify := env("HTTP_SSL_VERIFY"); verify != "" {
		on, err := strconv.ParseBool(verify)
		if err != nil {
			return c, errkind.Errorf(errkind.Invalid, "HTTP_SSL_VERIFY is %q; it must be true or false", verify)
		}
		c.SkipVerify = !on
	}
	return c, nil
}

// ReadToken reads a token from a file, without the white space around it.
func ReadToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", errkind.E(errkind.Invalid, "read token file", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func orDefault(s, d string) string {
	if s == "" {
		return d
	}
	return s
}

// Client talks to one agent or server.
type Client struct {
	base    string // "http://host:port", without a slash at the end
	address string // as the user knows it, for messages
	cfg     Config
	http    *http.Client
}

// New checks cfg and builds a Client. It does no network.
func New(cfg Config) (*Client, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 64
	}
	address := orDefault(cfg.Address, "127.0.0.1:8500")
	if rest, ok := strings.CutPrefix(address, "tcp://"); ok {
		address = rest // what container platforms put into variables
	}
	c := &Client{address: address, cfg: cfg}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	tr := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: cfg.MaxConns,
		MaxConnsPerHost: cfg.MaxConns,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true}
	switch {
	case strings.HasPrefix(address, "unix://"):
		path := strings.TrimPrefix(address, "unix://")
		c.base = "http://localhost"
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	case strings.Contains(address, "://"):
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, errkind.Errorf(errkind.Invalid, "address %q must be host:port, http://, https:// or unix://", address)
		}
		c.base = strings.TrimSuffix(address, "/")
	default:
		c.base = "http://" + strings.TrimSuffix(address, "/")
		if _, err := url.Parse(c.base); err != nil {
			return nil, errkind.Errorf(errkind.Invalid, "address %q must be host:port, http://, https:// or unix://", address)
		}
	}
	files := TLSFiles{CAFile: cfg.CAFile, CAPath: cfg.CAPath, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile,
		ServerName: cfg.ServerName, SkipVerify: cfg.SkipVerify}
	tlsConfig, err := files.Config()
	if err != nil {
		return nil, err
	}
	tr.TLSClientConfig = tlsConfig
	c.http = &http.Client{Transport: tr}
	if cfg.Transport != nil {
		c.http.Transport = cfg.Transport
	}
	return c, nil
}

// Address is the agent's address as it was configured.
func (c *Client) Address() string { return c.address }

// WithToken is the same client with another token. Both share their connections: one of them is closed.
func (c *Client) WithToken(token string) *Client {
	other := *c
	other.cfg.Token = token
	return &other
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Query holds what reads have in common.
type Query struct {
	Index      uint64        // block until the answer's index is above
	Wait       time.Duration // how long to block; default the server's 5 m
	Stale      bool
	Consistent bool
	Datacenter string
	Filter     string
	Near       string
	NodeMeta   map[string]string
}

// Values are the parameters of the query.
func (q Query) Values() url.Values {
	v := url.Values{}
	if q.Index > 0 {
		v.Set("index", strconv.FormatUint(q.Index, 10))
		if q.Wait > 0 {
			v.Set("wait", q.Wait.String())
		}
	}
	if q.Stale {
		v.Set("stale", "")
	}
	if q.Consistent {
		v.Set("consistent", "")
	}
	for _, pair := range [][2]string{{"dc", q.Datacenter}, {"filter", q.Filter}, {"near", q.Near}} {
		if pair[1] != "" {
			v.Set(pair[0], pair[1])
		}
	}
	for name, value := range q.NodeMeta {
		v.Add("node-meta", name+":"+value)
	}
	return v
}

// blockFor is how long the server may hold a query: wait plus its jitter.
func (q Query) blockFor() time.Duration {
	if q.Index == 0 {
		return 0
	}
	wait := q.Wait
	if wait == 0 {
		wait = 5 * time.Minute
	}
	return wait + wait/16
}

// Meta is what an answer says about itself.
type Meta struct {
	Index       uint64
	KnownLeader bool
	LastContact time.Duration
}

// Error is an answer of the server that is not a success.
type Error struct {
	Method, Path string
	Code         int
	Body         string // at most 64 KiB
	Meta         Meta
}

// Error implements error, in the words that Consul's clients use.
func (e *Error) Error() string {
	text := fmt.Sprintf("Unexpected response code: %d (%s)", e.Code, e.Body)
	if hint := e.hint(); hint != "" {
		text += "; " + hint
	}
	return text
}

func (e *Error) hint() string {
	switch {
	case strings.Contains(e.Body, "ACL support disabled"):
		return "set acl { enabled = true } on all servers and agents"
	case e.Code == http.StatusForbidden || e.Code == http.StatusUnauthorized:
		return "give a token with -token or CORBEL_TOKEN"
	case strings.Contains(e.Body, "No cluster leader"):
		return "the servers are electing or lost their majority; see `corbel operator raft list-peers --stale`"
	case strings.Contains(e.Body, "No known Consul servers"):
		return "the agent has joined no servers; see `corbel members` and `corbel join`"
	case e.Code == http.StatusTooManyRequests:
		return "the agent sheds load; try again later"
	}
	return ""
}

// IsNotFound tells whether err says that the object does not exist.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusNotFound
}

// Do sends one request. path may carry parameters already. body may be nil, []byte, an io.Reader or a value for JSON.
// The caller closes the answer's body and cancels ctx to end a stream. Answers
// other than 2xx come back as *Error.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var payload io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		payload = bytes.NewReader(b)
	case io.Reader:
		payload = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "encode request", err)
		}
		payload = bytes.NewReader(text)
	}
	target := c.base + path
	if len(query) > 0 {
		mark := "?"
		if strings.Contains(path, "?") {
			mark = "&"
		}
		target += mark + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "make request", err)
	}
	if c.cfg.Token != "" {
		req.Header.Set("X-Consul-Token", c.cfg.Token)
	}
	if c.cfg.User != "" {
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.cfg.User)))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status matters, its text is a courtesy
		resp.Body.Close()
		return nil, &Error{Method: method, Path: path, Code: resp.StatusCode, Body: strings.TrimSpace(string(text)),
			Meta: metaOf(resp.Header)}
	}
	return resp, nil
}

// unreachable says what to do when there was no answer.
func (c *Client) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case neterr.Refused(err), errors.Is(err, os.ErrNotExist):
		return errkind.Errorf(errkind.Unavailable,
			"no agent answers at %s (%w); is the agent running? try `corbel dev`, or set -http-addr or CORBEL_HTTP_ADDR",
			c.address, err)
	case errors.As(err, &unknown):
		return errkind.Errorf(errkind.Unavailable, "%s: %w; give its authority with -ca-file or CORBEL_CACERT",
			c.address, err)
	case errors.As(err, &record) || strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return errkind.Errorf(errkind.Unavailable, "%s serves plain HTTP: use http:// in the address", c.address)
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return errkind.Errorf(errkind.Unavailable, "%s gave no answer in time: %w", c.address, err)
	}
	return errkind.Errorf(errkind.Unavailable, "%s: %w", c.address, err)
}

// call sends a request under a deadline and decodes the answer's JSON into out
// (nil: ignored; *[]byte: the bytes themselves).
func (c *Client) call(ctx context.Context, method, path string, q url.Values, body, out any,
	extra time.Duration) (Meta, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout+extra)
		defer cancel()
	}
	resp, err := c.Do(ctx, method, path, q, body)
	if err != nil {
		return Meta{}, err
	}
	defer resp.Body.Close()
	meta := metaOf(resp.Header)
	switch out := out.(type) {
	case nil:
		_, err = io.Copy(io.Discard, resp.Body)
	case *[]byte:
		*out, err = io.ReadAll(resp.Body)
	default:
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	if err != nil {
		return meta, errkind.E(errkind.Unavailable, "read the answer to "+method+" "+path, err)
	}
	return meta, nil
}

func metaOf(h http.Header) Meta {
	index, _ := strconv.ParseUint(h.Get("X-Consul-Index"), 10, 64) // absent on agent endpoints
	millis, _ := strconv.ParseInt(h.Get("X-Consul-LastContact"), 10, 64)
	return Meta{Index: index, KnownLeader: h.Get("X-Consul-KnownLeader") == "true",
		LastContact: time.Duration(millis) * time.Millisecond}
}

// Get reads path into out, blocking as q says.
func (c *Client) Get(ctx context.Context, path string, q Query, out any) (Meta, error) {
	return c.call(ctx, http.MethodGet, path, q.Values(), nil, out, q.blockFor())
}

// Put sends body to path and decodes the answer into out.
func (c *Client) Put(ctx context.Context, path string, query url.Values, body, out any) error {
	_, err := c.call(ctx, http.MethodPut, path, query, body, out, 0)
	return err
}

// Send sends body to path by a method and decodes the answer into out.
func (c *Client) Send(ctx context.Context, method, path string, query url.Values, body, out any) error {
	_, err := c.call(ctx, method, path, query, body, out, 0)
	return err
}

// Escape keeps the slashes of a key and quotes all else.
func Escape(key string) string {
	parts := strings.Split(key, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
