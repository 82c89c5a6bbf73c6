package consulapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/consulapi/short"
	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/hothttp/hottest"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// stage serves one API twice: at hot through hothttp with net/http behind it, at slow by net/http alone.
type stage struct {
	testing.TB
	api   *API
	hot   *short.Path
	store *store
	addr  string // of the hot front door
	slow  string
	stop  func() // ends the hot path, as a shutdown does
	// declined counts requests that the hot path handed over.
	declined *counting
	marked   bool // net/http's answers say so
}

// counting counts what a Handler declines.
type counting struct {
	hothttp.Handler
	mu       sync.Mutex
	declined int
}

func (c *counting) Serve(call *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	o := c.Handler.Serve(call, r)
	if o == hothttp.Decline {
		c.mu.Lock()
		c.declined++
		c.mu.Unlock()
	}
	return o
}

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.declined
}

func newStage(t testing.TB, change func(*Config)) *stage {
	t.Helper()
	return (&stage{TB: t, store: newStore()}).begin(change)
}

func (s *stage) begin(change func(*Config)) *stage {
	s.Helper()
	t := s.TB
	cfg := Config{Config: rows.Config{Identity: rows.Identity{Datacenter: "dc1", NodeName: "n1", Server: true},
		Registry: s.store}}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.api, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if s.hot = s.api.Hot(); s.hot == nil {
		t.Fatal("not eligible")
	}
	s.declined = &counting{Handler: s.hot}
	l, slow := listen(t), listen(t)
	s.addr, s.slow = l.Addr().String(), slow.Addr().String()
	srv, err := hothttp.New(l, hothttp.Config{Handler: s.declined})
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: s.behind(), ReadHeaderTimeout: time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	hotCtx, stop := context.WithCancel(ctx)
	s.stop = stop
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.hot.Run(hotCtx) })
	wg.Go(func() { _ = srv.Run(ctx) })
	wg.Go(func() { _ = back.Serve(srv.Fallback()) })
	wg.Go(func() { _ = back.Serve(slow) })
	until(t, "the hot path to run", s.hot.Running)
	t.Cleanup(func() {
		stop()
		cancel()
		_ = back.Close()
		wg.Wait()
	})
	return s
}

// behind is the API as net/http serves it.
func (s *stage) behind() http.Handler {
	if s.marked {
		return hottest.Mark(s.api)
	}
	return s.api
}

func listen(t testing.TB) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// client is one raw connection.
type client struct {
	testing.TB
	net.Conn
	R *bufio.Reader
}

func dialTo(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{t, nc, bufio.NewReader(nc)}
}

func requestText(method, target, headers, body string) string {
	s := method + " " + target + " HTTP/1.1\r\nHost: corbel\r\n" + headers
	if body != "" {
		s += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return s + "\r\n" + body
}

func (c *client) send(text string) {
	if _, err := io.WriteString(c, text); err != nil {
		c.Fatal(err)
	}
}

func (c *client) read() response {
	c.Helper()
	res, err := http.ReadResponse(c.R, nil)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.Fatal(err)
	}
	res.Header.Del("Date")
	res.Header["Content-Length"] = []string{fmt.Sprint(res.ContentLength)}
	return response{res.StatusCode, res.Header, string(b)}
}

func (c *client) ask(method, target, headers, body string) response {
	c.Helper()
	c.send(requestText(method, target, headers, body))
	return c.read()
}

// service registers an instance of web on a node.
func (s *stage) service(node, status string) {
	s.Helper()
	st, _ := catalog.ParseHealth(status)
	put(s.TB, s.store, &catalog.Register{Node: catalog.Node{Name: node, Address: "10.0.0.1"},
		Service: &catalog.Service{ID: "web", Name: "web", Port: 80, Tags: []string{"v1"}},
		Checks:  []*catalog.Check{{ID: "c", Name: "c", ServiceID: "web", Status: st}}})
}

func TestHotAnswersAsNetHTTPDoes(t *testing.T) {
	grants := func(c *Config) { c.Authorizer, c.DefaultACLPolicy = readers(), "deny" }
	fallback := func(c *Config) {
		grants(c)
		c.DefaultToken = func() string { return "reader" }
	}
	staleness := func(c *Config) { c.DiscoveryMaxStale = time.Second }
	requests := []struct {
		method, target, headers, body string
		hot                           bool
	}{
		{"PUT", "/v1/kv/a/key", "", "<value>", true},
		{"GET", "/v1/kv/a/key", "", "", true},
		{"GET", "/v1/kv/a/key?stale", "", "", true},
		{"GET", "/v1/kv/a/key?raw", "", "", true},
		{"GET", "/v1/kv/a/key?raw=", "", "", true},
		{"GET", "/v1/kv/none", "", "", true},
		{"GET", "/v1/kv/none?raw", "", "", true},
		{"PUT", "/v1/kv/empty", "", "", true},
		{"GET", "/v1/kv/empty", "", "", true},
		{"GET", "/v1/kv/empty?raw", "", "", true},
		{"GET", "/v1/kv//a//key", "", "", true},
		{"GET", "/v1/kv/big", "", "", true},
		{"GET", "/v1/kv/big", "Accept-Encoding: gzip\r\n", "", true},
		{"GET", "/v1/kv/big?raw", "Accept-Encoding: deflate, gzip\r\n", "", true},
		{"GET", "/v1/kv/big?raw", "Accept-Encoding: x-gzip\r\n", "", true},
		{"GET", "/v1/kv/a/key", "Accept-Encoding: gzip\r\n", "", true},
		{"GET", "/v1/kv/a/key", "X-Consul-Token: reader\r\n", "", true},
		{"GET", "/v1/kv/a/key", "X-Consul-Token: nobody\r\n", "", true},
		{"PUT", "/v1/kv/a/key", "X-Consul-Token: reader\r\n", "x", true},
		{"PUT", "/v1/kv/a/key?cas=1", "", "x", false},
		{"GET", "/v1/kv/a/key?consistent", "", "", false},
		{"GET", "/v1/kv/a/key?keys", "", "", false},
		{"GET", "/v1/kv/", "", "", false},
		{"GET", "/v1/kv/a/../b", "", "", false},
		{"GET", "/v1/health/service/web", "", "", true},
		{"GET", "/v1/health/service/web?passing", "", "", true},
		{"GET", "/v1/health/service/web?passing=1&stale=", "", "", true},
		{"GET", "/v1/health/service/web?passing=false", "", "", true},
		{"GET", "/v1/health/service/WEB", "", "", true},
		{"GET", "/v1/health/service/none", "", "", true},
		{"GET", "/v1/health/service/web", "Accept-Encoding: gzip\r\n", "", true},
		{"GET", "/v1/health/service/none", "Accept-Encoding: gzip\r\n", "", true},
		{"GET", "/v1/health/service/web", "X-Consul-Token: reader\r\n", "", true},
		{"GET", "/v1/health/service/web", "X-Consul-Token: nobody\r\n", "", true},
		{"GET", "/v1/health/service/web?index=1&wait=2s", "", "", true},
		{"GET", "/v1/health/service/web?index=1000&wait=16ns&passing", "", "", true},
		{"GET", "/v1/health/service/web?stale&wait=5ms&index=999999999", "Accept-Encoding: gzip\r\n", "", true},
		{"GET", "/v1/health/service/none?wait=1ms&index=9", "", "", true},
		{"GET", "/v1/health/service/web?index=x", "", "", false},
		{"GET", "/v1/health/service/web?passing=maybe", "", "", false},
		{"GET", "/v1/health/service/web?tag=v1", "", "", false},
		{"GET", "/v1/health/service/web?pretty", "", "", false},
		{"GET", "/v1/health/service/web?consistent", "", "", false},
		{"GET", "/v1/health/service/", "", "", false},
		{"GET", "/v1/health/service//", "", "", false},
		{"GET", "/v1/catalog/service/we//b", "", "", false},
		{"GET", "/v1/catalog/service/web", "", "", true},
		{"GET", "/v1/catalog/service/web?stale", "Accept-Encoding: gzip\r\n", "", true},
		{"GET", "/v1/catalog/service/web?index=1000&wait=1ms", "", "", true},
		{"PUT", "/v1/catalog/service/web", "", "x", false},
		{"GET", "/v1/catalog/nodes", "", "", false},
		{"PUT", "/v1/catalog/register", "", `{"Node":"n","Address":"10.0.0.9","Service":{"ID":"s1","Service":"s","Port":80}}`,
			true},
		{"PUT", "/v1/catalog/register", "",
			`{"node":"n2","ADDRESS":"\u0031","Service":{"Service":"s","Proxy":null},"Check":null}`, true},
		{"PUT", "/v1/catalog/register", "X-Consul-Token: reader\r\n", `{"Node":"n","Address":"10.0.0.9"}`, true},
		{"PUT", "/v1/catalog/register", "X-Consul-Token: nobody\r\n", `{"Node":"n","Address":"10.0.0.9"}`, true},
		{"PUT", "/v1/catalog/register", "", `{"Node":"n"}`, true},
		{"PUT", "/v1/catalog/register", "", `{"Node":"n","Address":"a","Datacenter":"dc2"}`, true},
		{"PUT", "/v1/catalog/register", "", `{"Node":"n","Address":"a","Service":{"ID":"x"}}`, true},
		{"PUT", "/v1/catalog/register", "", `{"Node":"n","Address":"a","Check":{"CheckID":"c","Status":"fine"}}`, true},
		{"PUT", "/v1/catalog/register", "",
			`{"Node":"n","Address":"a","Check":{"CheckID":"c","ServiceID":"none","Status":"passing"}}`, true},
		{"PUT", "/v1/catalog/register", "", `{"Node":5}`, true},
		{"PUT", "/v1/catalog/register", "", `{`, true},
		{"PUT", "/v1/catalog/register", "", "", true},
		{"PUT", "/v1/catalog/register?dc=dc1", "", `{"Node":"n","Address":"10.0.0.9"}`, false},
		{"POST", "/v1/catalog/register", "", `{"Node":"n","Address":"10.0.0.9"}`, false},
	}
	conditions := []struct {
		name     string
		config   func(*Config)
		contact  registry.Contact
		err      error
		declines bool
	}{
		{name: "leader", contact: registry.Contact{KnownLeader: true, Leader: true}},
		{name: "leader that is not ready", contact: registry.Contact{KnownLeader: true, Leader: true,
			LastContact: 12 * time.Second}},
		{name: "follower", contact: registry.Contact{KnownLeader: true, LastContact: 1500 * time.Millisecond},
			config: staleness},
		{name: "near follower", contact: registry.Contact{KnownLeader: true, LastContact: 20 * time.Millisecond},
			config: staleness},
		{name: "no leader", err: errkind.New(errkind.Unavailable, "No cluster leader")},
		{name: "not the leader", err: errkind.New(errkind.NotLeader, "not the leader"), declines: true},
		{name: "overloaded", err: errkind.New(errkind.Overloaded, "full")},
		{name: "rights", contact: registry.Contact{KnownLeader: true, Leader: true}, config: grants},
		{name: "default token", contact: registry.Contact{KnownLeader: true, Leader: true}, config: fallback},
	}
	for _, cond := range conditions {
		t.Run(cond.name, func(t *testing.T) {
			s := newStage(t, cond.config)
			for i := range 12 {
				s.service(fmt.Sprintf("node%02d", i), []string{"passing", "critical"}[i%2])
			}
			put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/key", Value: []byte("<value>")}})
			put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "big", Value: make([]byte, 5000)}})
			s.store.set(cond.contact, cond.err)
			for _, q := range requests {
				before := s.declined.count()
				hot := dialTo(t, s.addr).ask(q.method, q.target, q.headers, q.body)
				served := s.declined.count() == before
				slow := dialTo(t, s.slow).ask(q.method, q.target, q.headers, q.body)
				if hot.status != slow.status || hot.body != slow.body || !maps.EqualFunc(hot.header, slow.header, slices.Equal) {
					t.Errorf("%s %s %q\n hot %d %v %q\nslow %d %v %q", q.method, q.target, q.headers,
						hot.status, hot.header, hot.body, slow.status, slow.header, slow.body)
				}
				if !cond.declines && slow.status < 400 && served != q.hot {
					t.Errorf("%s %s %q: served hot: %v", q.method, q.target, q.headers, served)
				}
			}
		})
	}
}

// readers is an Authorizer with one token, reader, which may read, but not node03.
func readers() rows.Authorizer {
	return tokens{"reader": rules(`key_prefix "" { policy = "read" } service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }
		node "node03" { policy = "deny" }`), "": rules("")}
}

func TestHotIsOnlyForPlainConfigurations(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"blocked paths": func(c *Config) { c.BlockEndpoints = []string{"/v1/kv/"} },
		"writers":       func(c *Config) { c.AllowWriteFrom = []string{"10.0.0.0/8"} },
		"headers":       func(c *Config) { c.ResponseHeaders = map[string]string{"X-A": "b"} },
	} {
		if r := newRig(t, change); r.api.Hot() != nil {
			t.Errorf("%s: there is a hot path", name)
		}
	}
}

func TestHotAllocations(t *testing.T) {
	s := newStage(t, func(c *Config) { c.Registry = &stubRegistry{store: c.Registry.(*store)} })
	put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/key", Value: make([]byte, 512)}})
	for _, c := range []struct {
		text string
		most float64
	}{
		{requestText("GET", "/v1/kv/a/key", "", ""), 3},
		{requestText("PUT", "/v1/kv/a/key", "", strings.Repeat("x", 512)), 4},
		{requestText("GET", "/v1/health/service/web?passing", "", ""), 4},
	} {
		trip := roundTrip(t, s.addr, c.text)
		if n := testing.AllocsPerRun(300, trip); n > c.most+raceAllocs {
			t.Errorf("%.40q allocates %v times, want at most %v", c.text, n, c.most)
		}
	}
}

// roundTrip sends the same request on one connection and reads an answer as long as the first, at no allocation.
func roundTrip(t testing.TB, addr, text string) func() {
	c := dialTo(t, addr)
	out, in := []byte(text), make([]byte, 64<<10)
	c.send(text)
	size := 0
	res := c.read()
	nc := c.Conn
	measure := func() { // the length of head and body, once
		if _, err := nc.Write(out); err != nil {
			t.Fatal(err)
		}
		for !strings.HasSuffix(string(in[:size]), res.body) || size == 0 {
			n, err := nc.Read(in[size:])
			if err != nil {
				t.Fatal(err)
			}
			size += n
		}
	}
	measure()
	return func() {
		if _, err := nc.Write(out); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(nc, in[:size]); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkFrontDoors(b *testing.B) {
	s := newStage(b, func(c *Config) { c.Registry = &stubRegistry{store: c.Registry.(*store)} })
	put(b, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/key", Value: make([]byte, 512)}})
	for _, q := range []struct{ name, text string }{
		{"kvget", requestText("GET", "/v1/kv/a/key", "", "")},
		{"kvput", requestText("PUT", "/v1/kv/a/key", "", strings.Repeat("x", 512))},
	} {
		for name, addr := range map[string]string{"hot": s.addr, "nethttp": s.slow} {
			b.Run(q.name+"/"+name, func(b *testing.B) {
				trip := roundTrip(b, addr, q.text)
				b.ReportAllocs()
				for b.Loop() {
					trip()
				}
			})
		}
	}
}

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}
