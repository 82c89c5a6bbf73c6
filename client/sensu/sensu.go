// Package sensu is the client of the monitor's REST API, which is Sensu Go's contract, so it works against either.
//
// A Client may be used from any goroutine. It logs in at its first request, where it has a name and a password, and
// again when its token has run out. Every call has a deadline: the context's, or Config.Timeout; following events
// lasts as long as its context. Errors of the server are *Error.
package sensu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/neterr"
)

// Config says which server to talk to, and as whom: a user with a password, an API key, or an access token. The zero
// address is http://127.0.0.1:8080.
type Config struct {
	Address     string // http://… or https://…
	User        string
	Password    string
	APIKey      string
	AccessToken string
	CAFile      string // PEM; default the system's authorities
	SkipVerify  bool
	Timeout     time.Duration // default 60 s
}

// DefaultAddress is where the monitor plane answers unless something else was said.
const DefaultAddress = "http://127.0.0.1:8080"

// FromEnv fills a Config from CORBEL_MONITOR_ADDR, CORBEL_MONITOR_USERNAME, CORBEL_MONITOR_PASSWORD and
// CORBEL_MONITOR_API_KEY, or from those that sensuctl knows: SENSU_API_URL, SENSU_API_KEY, SENSU_ACCESS_TOKEN,
// SENSU_TRUSTED_CA_FILE, SENSU_INSECURE_SKIP_TLS_VERIFY.
func FromEnv(getenv func(string) string) Config {
	first := func(names ...string) string {
		for _, n := range names {
			if v := getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	return Config{
		Address: first("CORBEL_MONITOR_ADDR", "SENSU_API_URL"), User: getenv("CORBEL_MONITOR_USERNAME"),
		Password: getenv("CORBEL_MONITOR_PASSWORD"),
		APIKey:   first("CORBEL_MONITOR_API_KEY", "SENSU_API_KEY"), AccessToken: getenv("SENSU_ACCESS_TOKEN"),
		CAFile:     first("CORBEL_CACERT", "SENSU_TRUSTED_CA_FILE"),
		SkipVerify: getenv("SENSU_INSECURE_SKIP_TLS_VERIFY") == "true",
	}
}

// Client talks to one server.
type Client struct {
	base string
	cfg  Config
	http *http.Client

	mu     sync.Mutex
	access string
}

// New checks cfg and builds a Client. It does no network.
func New(cfg Config) (*Client, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.Address == "" {
		cfg.Address = DefaultAddress
	}
	if !strings.Contains(cfg.Address, "://") {
		cfg.Address = "http://" + cfg.Address
	}
	u, err := url.Parse(cfg.Address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errkind.Errorf(errkind.Invalid, "address %q must be http://host:port or https://host:port", cfg.Address)
	}
	files := client.TLSFiles{CAFile: cfg.CAFile, SkipVerify: cfg.SkipVerify}
	t, err := files.Config()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &Client{base: strings.TrimSuffix(cfg.Address, "/"), cfg: cfg, access: cfg.AccessToken,
		http: &http.Client{Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: t, TLSHandshakeTimeout: 10 * time.Second,
			Proxy: http.ProxyFromEnvironment}}}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is an answer of the server that is not a success.
type Error struct {
	Method, Path string
	Status       int
	Code         int // the contract's
	Message      string
}

// Error implements error.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s: %d %s", e.Method, e.Path, e.Status, e.Message)
	if e.Status == http.StatusUnauthorized {
		text += "; log in with --username and --password, or --api-key (in dev: admin, P@ssw0rd!)"
	}
	return text
}

// NotFound reports whether err says that something is not there.
func NotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// maxAnswer bounds an answer in memory.
const maxAnswer = 1 << 30

// Warnings are what a server wants known about a write that it took: the texts of the answer's Warning headers (RFC
// 7234, 5.5).
func Warnings(h http.Header) (out []string) {
	for _, w := range h.Values("Warning") {
		if _, quoted, ok := strings.Cut(w, `"`); ok {
			if text, err := strconv.Unquote(`"` + quoted); err == nil {
				out = append(out, text)
			}
		}
	}
	return out
}

// Do sends one request and returns the body and the headers of its answer. body is JSON, or nil.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte,
	http.Header, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	return c.do(ctx, method, path, query, body, "")
}

// do is Do for a write that holds only where match, if any, is the tag of what is there.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body []byte,
	match string) ([]byte, http.Header, error) {
	resp, err := c.send(ctx, method, path, query, body, match)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = errkind.Errorf(errkind.TooLarge, "the answer is larger than 1 GiB")
	}
	return b, resp.Header, err
}

// send sends a request, with a new token when the one it has does not hold any more.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body []byte,
	match string) (*http.Response, error) {
	for again := false; ; again = true {
		auth, err := c.authorization(ctx, again)
		if err != nil {
			return nil, err
		}
		resp, err := c.once(ctx, method, path, query, body, auth, match)
		var e *Error
		if !errors.As(err, &e) || e.Status != http.StatusUnauthorized || again || c.cfg.User == "" {
			return resp, err
		}
	}
}

func (c *Client) once(ctx context.Context, method, path string, query url.Values, body []byte,
	auth, match string) (*http.Response, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "make request", err)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if match != "" {
		req.Header.Set("If-Match", match)
	}
	if body != nil && method != http.MethodPatch {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &Error{Method: method, Path: path, Status: resp.StatusCode}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status matters, its text is a courtesy
	if json.Unmarshal(b, e) != nil || e.Message == "" {
		e.Message = strings.TrimSpace(string(b))
	}
	return nil, e
}

// authorization is what a request shows; anew asks for another token.
func (c *Client) authorization(ctx context.Context, anew bool) (string, error) {
	if c.cfg.APIKey != "" {
		return "Key " + c.cfg.APIKey, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.User != "" && (c.access == "" || anew) {
		r := http.Request{Header: http.Header{}}
		r.SetBasicAuth(c.cfg.User, c.cfg.Password)
		resp, err := c.once(ctx, http.MethodGet, "/auth", nil, nil, r.Header.Get("Authorization"), "")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		var tokens struct {
			Access string `json:"access_token"`
		}
		if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&tokens); err != nil || tokens.Access == "" {
			return "", errkind.Errorf(errkind.Unavailable, "%s gave no token: is it the monitor's API?", c.base)
		}
		c.access = tokens.Access
	}
	if c.access == "" {
		return "", nil
	}
	return "Bearer " + c.access, nil
}

// Login logs in with Config's user and password and returns the server's answer: the access token, the refresh token
// and when the first ends.
func (c *Client) Login(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(c.cfg.User, c.cfg.Password)
	resp, err := c.once(ctx, http.MethodGet, "/auth", nil, nil, r.Header.Get("Authorization"), "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, 1<<20))
}

func (c *Client) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case neterr.Refused(err):
		return errkind.Errorf(errkind.Unavailable,
			"no monitor answers at %s (%w); try `corbel dev`, or set --monitor-addr or CORBEL_MONITOR_ADDR", c.base, err)
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return errkind.Errorf(errkind.Unavailable, "%s gave no answer in time: %w", c.base, err)
	}
	return errkind.Errorf(errkind.Unavailable, "%s: %w", c.base, err)
}

// Get reads an object into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	b, _, err := c.Do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	return errkind.E(errkind.Unavailable, "the answer to "+path, json.Unmarshal(b, out))
}

// pageSize is how many objects are asked for at once.
const pageSize = "500"

// List goes through a list page by page. An error ends it.
func (c *Client) List(ctx context.Context, path string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		q := url.Values{"limit": {pageSize}}
		for name, v := range query {
			q[name] = v
		}
		for {
			b, header, err := c.Do(ctx, http.MethodGet, path, q, nil)
			var page []json.RawMessage
			if err == nil {
				err = errkind.E(errkind.Unavailable, "the answer to "+path, json.Unmarshal(b, &page))
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			next := header.Get("Sensu-Continue")
			if next == "" {
				return
			}
			q.Set("continue", next)
		}
	}
}

// silence is after how long without a line a stream counts as dead: four heartbeats.
const silence = time.Minute

// Lines reads a stream of JSON to its end: what path exports. An error of the stream ends it.
func (c *Client) Lines(ctx context.Context, path string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := c.send(ctx, http.MethodGet, path, query, nil, "")
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		dead := time.AfterFunc(silence, cancel)
		defer dead.Stop()
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 64<<20)
		for in.Scan() {
			dead.Reset(silence)
			line := bytes.TrimSpace(in.Bytes())
			if len(line) == 0 {
				continue
			}
			var refused struct {
				Error *Error `json:"error"`
			}
			if json.Unmarshal(line, &refused) == nil && refused.Error != nil {
				refused.Error.Method, refused.Error.Path, refused.Error.Status = http.MethodGet, path, http.StatusServiceUnavailable
				yield(nil, refused.Error)
				return
			}
			if !yield(bytes.Clone(line), nil) {
				return
			}
		}
		if err := in.Err(); err != nil {
			yield(nil, c.unreachable(err))
		}
	}
}

// Follow shows events as they are stored. A stream that breaks is yielded as an error, then opened again after a
// growing pause; what came between is not seen. The loop ends with ctx, when the consumer stops, or when the server
// refuses.
func (c *Client) Follow(ctx context.Context, query url.Values) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
		for ctx.Err() == nil {
			last := errkind.Errorf(errkind.Unavailable, "%s ended the stream of events", c.base)
			for event, err := range c.Lines(ctx, "/api/corbel/v1/events/watch", query) {
				if err != nil {
					last = err
					break
				}
				retry.Reset()
				if !yield(event, nil) {
					return
				}
			}
			var e *Error
			refused := errors.As(last, &e) && e.Status/100 == 4
			if ctx.Err() != nil || !yield(nil, last) || refused {
				return
			}
			timer := time.NewTimer(retry.Next())
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}
