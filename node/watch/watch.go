// Package watch runs the watches of a configuration: each asks this process's own API, again and again, and tells a
// script or an HTTP handler of each answer that differs from the one before.
package watch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/procgroup"
)

// The times of watches.
const (
	watchWait       = "5m" // how long a query is parked at a time
	watchRetryMin   = time.Second
	watchRetryMax   = time.Minute
	handlerTimeout  = 10 * time.Second
	scriptTimeout   = time.Minute
	maxHandlerBytes = 4 << 10 // of a handler's output, for the log
)

// Watch is one entry of watches: a question, and what to do when its answer changes.
type Watch struct {
	name   string // for the log
	path   string // of the blocking query
	token  string
	single bool // of a list of one, the element is told: a key
	hashed bool // what it has seen is said by a hash, not by an index

	args []string // a script, which gets the answer on stdin

	url     string // an HTTP handler, which gets it as body
	method  string
	header  http.Header
	timeout time.Duration
	client  *http.Client
}

// Parse reads the watches of a configuration. Every wrong one is named.
func Parse(list []map[string]any) ([]*Watch, error) {
	var all []*Watch
	var wrong []error
	for i, m := range list {
		w, err := parse(m)
		if err != nil {
			err = fmt.Errorf("watches[%d]: %w", i, err)
		}
		all, wrong = append(all, w), append(wrong, err)
	}
	return all, errors.Join(wrong...)
}

// stanza reads the keys of a watch and remembers which were read.
type stanza struct {
	m     map[string]any
	wrong []error
}

func (s *stanza) text(key string) string {
	v, ok := s.m[key]
	delete(s.m, key)
	switch v := v.(type) {
	case string:
		return v
	case bool, json.Number:
		return fmt.Sprint(v)
	}
	if ok && v != nil {
		s.wrong = append(s.wrong, fmt.Errorf("%s must be a string", key))
	}
	return ""
}

func (s *stanza) texts(key string) []string {
	v := s.m[key]
	delete(s.m, key)
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, item := range v {
			out = append(out, fmt.Sprint(item))
		}
		return out
	}
	s.wrong = append(s.wrong, fmt.Errorf("%s must be a list of strings", key))
	return nil
}

func parse(m map[string]any) (*Watch, error) {
	s := &stanza{m: maps.Clone(m)}
	kind := s.text("type")
	w := &Watch{name: kind, token: s.text("token")}
	query := url.Values{}
	if dc := s.text("datacenter"); dc != "" {
		query.Set("dc", dc)
	}
	if s.text("stale") == "true" {
		query.Set("stale", "")
	}
	need := func(key string) string {
		v := s.text(key)
		if v == "" {
			s.wrong = append(s.wrong, fmt.Errorf("type %q needs %s", kind, key))
		}
		w.name += " " + v
		return url.PathEscape(v)
	}
	switch kind {
	case "key":
		w.path, w.single = "/v1/kv/"+strings.ReplaceAll(need("key"), "%2F", "/"), true
	case "keyprefix":
		w.path = "/v1/kv/" + strings.ReplaceAll(need("prefix"), "%2F", "/")
		query.Set("recurse", "")
	case "services":
		w.path = "/v1/catalog/services"
	case "nodes":
		w.path = "/v1/catalog/nodes"
	case "service":
		w.path = "/v1/health/service/" + need("service")
		for _, tag := range s.texts("tag") {
			query.Add("tag", tag)
		}
		if s.text("passingonly") == "true" {
			query.Set("passing", "1")
		}
	case "checks":
		if service := s.text("service"); service != "" {
			w.path = "/v1/health/checks/" + url.PathEscape(service)
		} else if w.path = "/v1/health/state/any"; s.m["state"] != nil {
			w.path = "/v1/health/state/" + url.PathEscape(s.text("state"))
		}
	case "event":
		w.path = "/v1/event/list"
		if name := s.text("name"); name != "" {
			query.Set("name", name)
		}
	case "connect_roots":
		w.path = "/v1/agent/connect/ca/roots"
	case "connect_leaf":
		w.path = "/v1/agent/connect/ca/leaf/" + need("service")
	case "agent_service":
		w.path, w.hashed = "/v1/agent/service/"+need("service_id"), true
	default:
		s.wrong = append(s.wrong, fmt.Errorf("type %q is none of key, keyprefix, services, nodes, service, checks, event, "+
			"connect_roots, connect_leaf, agent_service", kind))
	}
	if filter := s.text("filter"); filter != "" {
		query.Set("filter", filter)
	}
	w.path += "?" + query.Encode()
	w.handler(s)
	for _, key := range slices.Sorted(maps.Keys(s.m)) {
		s.wrong = append(s.wrong, fmt.Errorf("invalid config key %s", key))
	}
	return w, errors.Join(s.wrong...)
}

// handler reads what a watch does.
func (w *Watch) handler(s *stanza) {
	kind, script := s.text("handler_type"), s.text("handler")
	if w.args = s.texts("args"); script != "" {
		w.args = []string{"/bin/sh", "-c", script}
	}
	inner, _ := s.m["http_handler_config"].(map[string]any)
	delete(s.m, "http_handler_config")
	if kind == "http" || kind == "" && inner != nil {
		h := &stanza{m: maps.Clone(inner)}
		w.url, w.method, w.timeout = h.text("path"), strings.ToUpper(h.text("method")), handlerTimeout
		if w.method == "" {
			w.method = http.MethodPost
		}
		if text := h.text("timeout"); text != "" {
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 {
				s.wrong = append(s.wrong, fmt.Errorf("http_handler_config.timeout %q is no duration such as 10s", text))
			}
			w.timeout = d
		}
		header, _ := inner["header"].(map[string]any)
		delete(h.m, "header")
		w.header = http.Header{}
		for name, v := range header {
			values := &stanza{m: map[string]any{name: v}}
			w.header[http.CanonicalHeaderKey(name)] = values.texts(name)
		}
		insecure := h.text("tls_skip_verify") == "true"
		w.client = &http.Client{Timeout: w.timeout, Transport: &http.Transport{DisableKeepAlives: true,
			Proxy: http.ProxyFromEnvironment,
			// what the watch's owner asked for
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: insecure}}}
		s.wrong = append(s.wrong, h.wrong...)
		for _, key := range slices.Sorted(maps.Keys(h.m)) {
			s.wrong = append(s.wrong, fmt.Errorf("invalid config key http_handler_config.%s", key))
		}
	}
	switch {
	case kind != "" && kind != "script" && kind != "http":
		s.wrong = append(s.wrong, fmt.Errorf("handler_type %q is none of script, http", kind))
	case w.url == "" && len(w.args) == 0:
		s.wrong = append(s.wrong, errors.New("needs args (a script), or handler_type http with http_handler_config.path"))
	case w.url != "" && len(w.args) > 0:
		s.wrong = append(s.wrong, errors.New("has a script and an HTTP handler: one of them"))
	}
}

// Config is what watches need. All fields but Token are set.
type Config struct {
	API   http.Handler
	Clock clock.Clock
	Log   *slog.Logger
	Token func() string // for watches without one
}

// Watches runs those that were set last. Several goroutines may use it at once.
type Watches struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	ctx     context.Context
	list    []*Watch
	running sync.WaitGroup
	stop    context.CancelFunc // of those running
}

// New makes one without watches, and starts nothing.
func New(cfg Config) *Watches { return &Watches{cfg: cfg} }

// Set replaces the watches.
func (s *Watches) Set(list []*Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
	if s.ctx != nil {
		s.startLocked()
	}
}

// startLocked ends the watches of before and begins the others.
func (s *Watches) startLocked() {
	if s.stop != nil {
		s.stop()
	}
	ctx, stop := context.WithCancel(s.ctx)
	s.stop = stop
	for _, w := range s.list {
		s.running.Go(func() { s.follow(ctx, w) })
	}
}

// Run owns the watches until ctx ends.
func (s *Watches) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.startLocked()
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil
	s.stop()
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// follow asks and tells until ctx ends.
func (s *Watches) follow(ctx context.Context, w *Watch) {
	seen, told := "", [sha256.Size]byte{}
	wait := backoff.Backoff{Min: watchRetryMin, Max: watchRetryMax}
	for ctx.Err() == nil {
		body, next, err := s.ask(ctx, w, seen)
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.Log.Warn("a watch was not answered", "watch", w.name, "error", err)
			}
			s.pause(ctx, wait.Next())
			continue
		}
		wait = backoff.Backoff{Min: watchRetryMin, Max: watchRetryMax}
		if seen = next; next == "" { // an answer that does not block
			s.pause(ctx, watchRetryMin)
		}
		if sum := sha256.Sum256(body); sum != told {
			told = sum
			if err := w.tell(ctx, body, next); err != nil && ctx.Err() == nil {
				s.cfg.Log.Error("a watch's handler failed", "watch", w.name, "error", err)
			}
		}
	}
}

func (s *Watches) pause(ctx context.Context, d time.Duration) {
	t := s.cfg.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// ask asks the process's own API for something else than was seen: an index or a hash, which comes with the
// answer. A missing key is an answer: null.
func (s *Watches) ask(ctx context.Context, w *Watch, seen string) (body []byte, next string, err error) {
	target, param, header := w.path, "index", "X-Consul-Index"
	if w.hashed {
		param, header = "hash", "X-Consul-Contenthash"
	}
	if seen != "" {
		target += "&wait=" + watchWait + "&" + param + "=" + seen
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, "", err
	}
	r.RequestURI, r.RemoteAddr = target, "127.0.0.1:0"
	token := w.token
	if token == "" && s.cfg.Token != nil {
		token = s.cfg.Token()
	}
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	answer, err := httpx.Answer(s.cfg.API, r)
	if err != nil {
		return nil, "", err
	}
	next = answer.Head.Get(header) // absent: the row does not block
	switch {
	case answer.Status == http.StatusNotFound && len(answer.Body) == 0:
		return []byte("null"), next, nil
	case answer.Status != http.StatusOK:
		return nil, "", fmt.Errorf("%d %s", answer.Status, bytes.TrimSpace(answer.Body))
	case w.single:
		var list []json.RawMessage
		if err := json.Unmarshal(answer.Body, &list); err != nil || len(list) != 1 {
			return nil, "", fmt.Errorf("the answer is no key: %v", err)
		}
		return list[0], next, nil
	}
	return answer.Body, next, nil
}

// tell gives an answer to the handler.
func (w *Watch) tell(ctx context.Context, body []byte, index string) error {
	if w.url != "" {
		return w.post(ctx, body, index)
	}
	ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.args[0], w.args[1:]...)
	cmd.Stdin = bytes.NewReader(append(slices.Clone(body), '\n'))
	cmd.Env = append(os.Environ(), "CONSUL_INDEX="+index)
	procgroup.Apart(cmd)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", w.args[0], err, bytes.TrimSpace(out[:min(len(out), maxHandlerBytes)]))
	}
	return nil
}

func (w *Watch) post(ctx context.Context, body []byte, index string) error {
	r, err := http.NewRequestWithContext(ctx, w.method, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = w.header.Clone()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Consul-Index", index)
	resp, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxHandlerBytes)) // for the log only
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s: %s", w.url, resp.Status, bytes.TrimSpace(text))
	}
	return nil
}
