package agentproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/client/vaultagent/autoauth"
	"corbel.dev/corbel/kit/polltest"
)

// origin is a server that leases what is asked below lease/, and counts.
type origin struct {
	mu    sync.Mutex
	asked map[string]int
	hold  chan struct{} // not nil: answers wait for it
	last  http.Header
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	o.asked[r.URL.Path]++
	n, hold := o.asked[r.URL.Path], o.hold
	o.last = r.Header.Clone()
	o.mu.Unlock()
	if hold != nil {
		<-hold
	}
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch {
	case strings.HasPrefix(path, "lease/"):
		fmt.Fprintf(w, `{"lease_id":"%s/%d","lease_duration":3600,"renewable":true,"data":{"token":%q}}`, path, n,
			r.Header.Get("X-Vault-Token"))
	case path == "auth/token/create", strings.HasSuffix(path, "/login/ann"):
		fmt.Fprintf(w, `{"auth":{"client_token":"made-%d","accessor":"acc-%d","lease_duration":3600,"renewable":true}}`, n, n)
	case path == "sys/leases/renew" || path == "auth/token/renew-self":
		fmt.Fprint(w, `{"lease_id":"x","lease_duration":2,"renewable":true}`)
	case strings.HasPrefix(path, "short/"):
		fmt.Fprintf(w, `{"lease_id":"%s/%d","lease_duration":2,"renewable":true,"data":{}}`, path, n)
	case path == "denied":
		w.WriteHeader(403)
		fmt.Fprint(w, `{"errors":["permission denied"]}`)
	default:
		fmt.Fprintf(w, `{"lease_id":"","data":{"n":%d,"body":%q}}`, n, body)
	}
}

func (o *origin) count(path string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked["/v1/"+path]
}

// rig is a proxy before an origin.
type rig struct {
	*testing.T
	o      *origin
	p      *Proxy
	server *httptest.Server
}

func newRig(t *testing.T, change func(c *Config)) *rig {
	t.Helper()
	o := &origin{asked: map[string]int{}}
	behind := httptest.NewServer(o)
	t.Cleanup(behind.Close)
	cfg := Config{Role: agentconfig.Agent, Cache: true, Vault: vault.Config{Address: behind.URL},
		Tokens: autoauth.NewTokens("auto"), Proxy: agentconfig.APIProxy{UseAutoAuthToken: true}}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := agentconfig.Listener{}
	if len(cfg.Listeners) > 0 {
		l = cfg.Listeners[0]
	}
	server := httptest.NewServer(p.handler(l))
	t.Cleanup(server.Close)
	return &rig{t, o, p, server}
}

// ask sends a request as a client does; header is "Name: value" each.
func (r *rig) ask(method, path, body string, header ...string) (status int, cache, text string) {
	r.Helper()
	req, err := http.NewRequest(method, r.server.URL+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("X-Cache"), string(raw)
}

func (r *rig) wants(cache, method, path, body string, header ...string) {
	r.Helper()
	status, got, text := r.ask(method, path, body, header...)
	if status != 200 || got != cache {
		r.Errorf("%s %s %v: %d, %s, want %s: %s", method, path, header, status, got, cache, text)
	}
}

// Leases and tokens are answered from the cache, to the same request with the same token only; the rest never is.
func TestCache(t *testing.T) {
	r := newRig(t, nil)
	r.wants("MISS", "GET", "/v1/lease/a", "")
	r.wants("HIT", "GET", "/v1/lease/a", "")
	r.wants("MISS", "GET", "/v1/lease/a?x=1", "")
	r.wants("MISS", "GET", "/v1/lease/a", "", "X-Vault-Namespace: team")
	r.wants("MISS", "PUT", "/v1/lease/a", `{"a":1}`)
	r.wants("HIT", "PUT", "/v1/lease/a", `{"a":1}`)
	r.wants("MISS", "PUT", "/v1/lease/a", `{"a":2}`)
	for range 3 {
		r.wants("MISS", "GET", "/v1/secret/a", "")
		r.wants("MISS", "GET", "/v1/lease/b", "", "X-Vault-Token: stranger") // nobody here looks after it
	}
	r.wants("MISS", "PUT", "/v1/auth/userpass/login/ann", `{"password":"x"}`)
	r.wants("HIT", "PUT", "/v1/auth/userpass/login/ann", `{"password":"x"}`)
	r.wants("MISS", "GET", "/v1/lease/c", "", "X-Vault-Token: made-1") // the login's
	r.wants("HIT", "GET", "/v1/lease/c", "", "Authorization: Bearer made-1")
	if status, _, text := r.ask("GET", "/v1/denied", ""); status != 403 || !strings.Contains(text, "permission denied") {
		t.Error(status, text)
	}
}

// What is revoked through here leaves the cache, with what belongs to it.
func TestEviction(t *testing.T) {
	r := newRig(t, nil)
	fill := func() {
		t.Helper()
		r.p.cache.drop(func(*kept) bool { return true })
		r.o.mu.Lock()
		clear(r.o.asked)
		r.o.mu.Unlock()
		r.wants("MISS", "POST", "/v1/auth/token/create", "{}")
		r.wants("MISS", "GET", "/v1/lease/own", "", "X-Vault-Token: made-1")
		r.wants("MISS", "GET", "/v1/lease/auto", "")
	}
	for _, test := range []struct {
		path, body string
		header     []string
		left       string // of create, own, auto
	}{
		{"/v1/auth/token/revoke", `{"token":"made-1"}`, nil, "auto"},
		{"/v1/auth/token/revoke-self", "", []string{"X-Vault-Token: made-1"}, "auto"},
		{"/v1/auth/token/revoke-accessor", `{"accessor":"acc-1"}`, nil, "auto"},
		{"/v1/auth/token/revoke-orphan", `{"token":"auto"}`, nil, "create own"},
		{"/v1/sys/leases/revoke", `{"lease_id":"lease/own/1"}`, nil, "create auto"},
		{"/v1/sys/leases/revoke/lease/own/1", "", nil, "create auto"},
		{"/v1/sys/leases/revoke-prefix/lease/", "", nil, "create"},
		{"/agent/v1/cache-clear", `{"type":"token","value":"made-1"}`, nil, "auto"},
		{"/agent/v1/cache-clear", `{"type":"token_accessor","value":"acc-1"}`, nil, "auto"},
		{"/agent/v1/cache-clear", `{"type":"lease","value":"lease/auto/1"}`, nil, "create own"},
		{"/agent/v1/cache-clear", `{"type":"request_path","value":"/v1/lease/"}`, nil, "create"},
		{"/agent/v1/cache-clear", `{"type":"all"}`, nil, ""},
	} {
		fill()
		if status, _, text := r.ask("POST", test.path, test.body, test.header...); status != 200 {
			t.Errorf("%s: %d %s", test.path, status, text)
		}
		left := map[string]bool{}
		r.p.cache.mu.Lock()
		for _, k := range r.p.cache.byKey {
			left[k.path] = true
		}
		r.p.cache.mu.Unlock()
		for name, path := range map[string]string{"create": "auth/token/create", "own": "lease/own", "auto": "lease/auto"} {
			if left[path] != strings.Contains(test.left, name) {
				t.Errorf("%s %s: %s is there: %t, want %s", test.path, test.body, name, left[path], test.left)
			}
		}
	}
	if status, _, _ := r.ask("POST", "/agent/v1/cache-clear", `{"type":"wrong","value":"x"}`); status != 400 {
		t.Error("a type that there is not:", status)
	}
}

// Equal requests that come together reach the server once.
func TestTogether(t *testing.T) {
	r := newRig(t, nil)
	r.o.hold = make(chan struct{})
	var wait sync.WaitGroup
	for range 10 {
		wait.Go(func() {
			if status, _, text := r.ask("GET", "/v1/lease/many", ""); status != 200 || !strings.Contains(text, "many/1") {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	polltest.Until(t, func() bool { return r.o.count("lease/many") == 1 }, "the first arrives")
	r.o.mu.Lock()
	close(r.o.hold)
	r.o.hold = nil
	r.o.mu.Unlock()
	wait.Wait()
	if n := r.o.count("lease/many"); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

// Whose token is sent is as use_auto_auth_token says.
func TestWhoseToken(t *testing.T) {
	for _, test := range []struct {
		proxy     agentconfig.APIProxy
		sent, got string
	}{
		{agentconfig.APIProxy{UseAutoAuthToken: true}, "", "auto"},
		{agentconfig.APIProxy{UseAutoAuthToken: true}, "own", "own"},
		{agentconfig.APIProxy{UseAutoAuthToken: true, Force: true}, "own", "auto"},
		{agentconfig.APIProxy{}, "", ""},
		{agentconfig.APIProxy{}, "own", "own"},
	} {
		r := newRig(t, func(c *Config) { c.Proxy = test.proxy; c.Vault.Namespace = "team" })
		r.ask("GET", "/v1/secret/a", "", "X-Vault-Token: "+test.sent)
		r.o.mu.Lock()
		if got := r.o.last.Get("X-Vault-Token"); got != test.got || r.o.last.Get("X-Vault-Namespace") != "team" {
			t.Errorf("%+v, sent %q: got %q in %q", test.proxy, test.sent, got, r.o.last.Get("X-Vault-Namespace"))
		}
		r.o.mu.Unlock()
	}
}

// A listener serves what it is for.
func TestListeners(t *testing.T) {
	quits := make(chan struct{}, 1)
	with := func(l agentconfig.Listener) *rig {
		return newRig(t, func(c *Config) {
			l.TLSDisable = true
			c.Listeners, c.Quit = []agentconfig.Listener{l}, func() { quits <- struct{}{} }
		})
	}
	status := func(r *rig, method, path string, header ...string) int {
		got, _, _ := r.ask(method, path, "", header...)
		return got
	}
	r := with(agentconfig.Listener{RequireRequestHeader: true})
	asked := status(r, "GET", "/v1/secret/a", "X-Vault-Request: true")
	if without := status(r, "GET", "/v1/secret/a"); without != 412 || asked != 200 {
		t.Error("header:", without, asked)
	}
	r = with(agentconfig.Listener{MetricsOnly: true})
	if a, b := status(r, "GET", "/v1/secret/a"), status(r, "GET", "/agent/v1/metrics"); a != 404 || b != 200 {
		t.Error("metrics:", a, b)
	}
	r = with(agentconfig.Listener{})
	if a := status(r, "POST", "/agent/v1/quit"); a != 404 {
		t.Error("quit without enable_quit:", a)
	}
	r = with(agentconfig.Listener{EnableQuit: true})
	if a, b := status(r, "GET", "/agent/v1/quit"), status(r, "POST", "/agent/v1/quit"); a != 405 || b != 200 {
		t.Error("quit:", a, b)
	}
	polltest.Get(t, quits, "quit")
	_, _, text := r.ask("GET", "/agent/v1/metrics?format=prometheus", "")
	r.ask("GET", "/v1/secret/a", "")
	if _, _, after := r.ask("GET", "/agent/v1/metrics?format=prometheus", ""); text == after ||
		!strings.Contains(after, "vault_agent_proxy_success 1\n") {
		t.Error(after)
	}
}

// Leases are renewed while the proxy runs, over a socket, and leave the cache when their token is another.
func TestRun(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	r := newRig(t, func(c *Config) {
		c.Listeners = []agentconfig.Listener{{Type: "unix", Address: socket, TLSDisable: true, SocketMode: 0o600}}
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.p.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return net.Dial("unix", socket)
	}}}
	defer client.CloseIdleConnections()
	polltest.NoError(t, polltest.Deadline, func() error {
		resp, err := client.Get("http://x/v1/short/a")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}, "the socket answers")
	polltest.Until(t, func() bool { return r.o.count("sys/leases/renew") >= 2 }, "the lease is renewed twice")
	r.wants("HIT", "GET", "/v1/short/a", "")
	stop()
	if err := polltest.Get(t, done, "Run ends"); err != nil {
		t.Error(err)
	}
}

// Lives end: what the server does not renew any more, and what comes to its longest.
func TestLife(t *testing.T) {
	now := time.Unix(0, 0)
	l := started(now, time.Hour, true)
	if !l.renewable || !l.due.Equal(now.Add(40*time.Minute)) {
		t.Errorf("%+v", l)
	}
	last := l.given(now, 15*time.Minute, true)
	if last.renewable || last.due.Before(now.Add(13*time.Minute)) || !last.due.Before(last.end) {
		t.Errorf("near its longest: %+v", last)
	}
	at := l.due
	for n := 0; ; n++ {
		next, ends := l.failed(at)
		if ends {
			if n < 3 || at.After(l.end) {
				t.Errorf("gave up after %d failures at %v of %v", n, at, l.end)
			}
			break
		}
		at = next.due
	}
}

// The cache is bounded.
func TestBounds(t *testing.T) {
	c := newCache()
	for i := range maxEntries + 5 {
		k := &kept{key: fmt.Sprint(i), place: -1, life: started(time.Now(), time.Hour, true)}
		if fits := c.put(k); fits != (i < maxEntries) {
			t.Fatalf("entry %d: %t", i, fits)
		}
	}
	c.drop(func(*kept) bool { return true })
	big := &kept{key: "big", place: -1, body: make([]byte, maxCacheBytes)}
	if !c.put(big) || c.put(&kept{key: "more", place: -1, body: []byte("x")}) {
		t.Error("bytes are not bounded")
	}
	for i := range 3 * maxPlain {
		c.isPlain(fmt.Sprint(i))
	}
	if len(c.plain) > maxPlain {
		t.Error("plain keys are not bounded")
	}
}

// Counts are served in the form of Vault's metrics too.
func TestCounts(t *testing.T) {
	c := &Counts{}
	c.Add("auth.success")
	w := httptest.NewRecorder()
	c.serve(w, httptest.NewRequest("GET", "/agent/v1/metrics", nil))
	var out struct {
		Counters []struct {
			Name  string
			Count int
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || len(out.Counters) != 1 ||
		out.Counters[0].Name != "vault.agent.auth.success" {
		t.Errorf("%s, %v", w.Body, err)
	}
}
