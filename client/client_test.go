package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Config{Address: s.URL, Token: "t1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestRequests holds what goes over the wire for each call: method, path, query and body.
func TestRequests(t *testing.T) {
	var got, answer string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body))
		if r.Header.Get("X-Consul-Token") != "t1" {
			t.Errorf("%s: no token", got)
		}
		io.WriteString(w, answer)
	})
	ctx, seven := t.Context(), uint64(7)
	for _, tt := range []struct {
		want, answer string
		do           func() error
	}{
		{"GET /v1/kv/a//b%20c/%3F", `[{"Key":"x","Value":"aGk="}]`, func() error {
			p, _, err := c.KV().Get(ctx, "a//b c/?", Query{})
			if err == nil && string(p.Value) != "hi" {
				return fmt.Errorf("value %q", p.Value)
			}
			return err
		}},
		{"PUT /v1/kv/k?cas=7&flags=3 v", "true", func() error {
			_, err := c.KV().Put(ctx, "k", []byte("v"), KVWrite{Flags: 3, CAS: &seven})
			return err
		}},
		{"PUT /v1/kv/k?acquire=s1", "false", func() error {
			ok, err := c.KV().Put(ctx, "k", nil, KVWrite{Acquire: "s1"})
			if ok {
				return errors.New("false came back as true")
			}
			return err
		}},
		{"DELETE /v1/kv/k/?recurse=", "true", func() error { _, err := c.KV().Delete(ctx, "k/", true, nil); return err }},
		{"GET /v1/kv/p/?keys=&separator=%2F", `["p/a"]`, func() error {
			_, _, err := c.KV().Keys(ctx, "p/", "/", Query{})
			return err
		}},
		{"GET /v1/health/service/web?dc=dc2&index=9&passing=1&wait=10s", `[]`, func() error {
			_, _, err := c.Service(ctx, "web", true, Query{Index: 9, Wait: 10 * time.Second, Datacenter: "dc2"})
			return err
		}},
		{`PUT /v1/session/create {"LockDelay":"1s","TTL":"15s"}`, `{"ID":"u"}`, func() error {
			id, err := c.CreateSession(ctx, Session{TTL: "15s", LockDelay: "1s"})
			if id != "u" {
				return fmt.Errorf("id %q", id)
			}
			return err
		}},
		{"PUT /v1/agent/service/maintenance/web-1?enable=true&reason=disk", "",
			func() error { return c.Maintenance(ctx, "web-1", true, "disk") }},
		{"PUT /v1/agent/force-leave/n1?prune=1", "", func() error { return c.ForceLeave(ctx, "n1", true, false) }},
		{"DELETE /v1/operator/raft/peer?address=a%3A1", "", func() error { return c.Operator().RaftRemove(ctx, "", "a:1") }},
		{"GET /v1/agent/self", `{"Config":{"NodeName":"n"}}`, func() error { _, err := c.Self(ctx); return err }},
	} {
		answer = tt.answer
		if err := tt.do(); err != nil || got != tt.want {
			t.Errorf("sent %q, want %q, error %v", got, tt.want, err)
		}
	}
}

func TestMissingKeyKeepsItsIndex(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Consul-Index", "41")
		w.WriteHeader(404)
	})
	p, meta, err := c.KV().Get(t.Context(), "k", Query{})
	if p != nil || err != nil || meta.Index != 41 {
		t.Fatalf("%v %+v %v", p, meta, err)
	}
}

// TestErrorsSayTheNextStep holds the hints that people get.
func TestErrorsSayTheNextStep(t *testing.T) {
	for _, tt := range []struct {
		code int
		body string
		want string
	}{
		{403, "Permission denied", "Unexpected response code: 403 (Permission denied); give a token"},
		{500, "No cluster leader", "corbel operator raft list-peers"},
		{500, "boom", "Unexpected response code: 500 (boom)"},
		{429, "x", "try again later"},
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, tt.body, tt.code) })
		_, err := c.Leader(t.Context())
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d %s: %v", tt.code, tt.body, err)
		}
		var e *Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Body != tt.body {
			t.Errorf("lost code or body: %#v", err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := New(Config{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Leader(t.Context()); !errkind.Is(err, errkind.Unavailable) ||
		!strings.Contains(err.Error(), "try `corbel dev`") {
		t.Errorf("closed port: %v", err)
	}
}

// TestDeadline: a server that never answers does not hold the caller.
func TestDeadline(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(release)
	c, err := New(Config{Address: s.URL, Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Leader(t.Context()); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "no answer in time") {
		t.Fatalf("got %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		io.WriteString(w, `"here"`)
	})}}
	s.Start()
	defer s.Close()
	c, err := New(Config{Address: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Leader(t.Context()); got != "here" || err != nil {
		t.Fatal(got, err)
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `"safe"`)
	}))
	s.Config.ErrorLog = nil
	defer s.Close()
	plain, _ := New(Config{Address: s.URL})
	if _, err := plain.Leader(t.Context()); err == nil || !strings.Contains(err.Error(), "CORBEL_CACERT") {
		t.Fatalf("unknown authority: %v", err)
	}
	open, _ := New(Config{Address: s.URL, SkipVerify: true})
	if got, err := open.Leader(t.Context()); got != "safe" {
		t.Fatal(got, err)
	}
	if _, err := New(Config{CertFile: "x"}); !errkind.Is(err, errkind.Invalid) {
		t.Fatalf("half a client certificate: %v", err)
	}
}

func TestFromEnv(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		env  map[string]string
		want Config
		bad  bool
	}{
		{map[string]string{}, Config{}, false},
		{map[string]string{"CONSUL_HTTP_ADDR": "a:1", "CONSUL_HTTP_TOKEN": "t"}, Config{Address: "a:1", Token: "t"}, false},
		{map[string]string{"CONSUL_HTTP_ADDR": "a:1", "CORBEL_HTTP_ADDR": "b:1", "CORBEL_TOKEN": "u",
			"CONSUL_HTTP_TOKEN": "t"}, Config{Address: "b:1", Token: "u"}, false},
		{map[string]string{"CONSUL_HTTP_TOKEN_FILE": file}, Config{Token: "from-file"}, false},
		{map[string]string{"CONSUL_HTTP_SSL": "true", "CONSUL_HTTP_SSL_VERIFY": "false"},
			Config{Address: "https://127.0.0.1:8501", SkipVerify: true}, false},
		{map[string]string{"CONSUL_HTTP_SSL": "maybe"}, Config{}, true},
		{map[string]string{"CONSUL_HTTP_TOKEN_FILE": file + "x"}, Config{}, true},
	} {
		got, err := FromEnv(func(k string) string { return tt.env[k] })
		if (err != nil) != tt.bad || !tt.bad && got != tt.want {
			t.Errorf("%v: %+v %v", tt.env, got, err)
		}
	}
}

// TestFollow: yields on movement only, begins again when the index falls, ends on refusal.
func TestFollow(t *testing.T) {
	type step struct {
		index uint64
		value string
		err   error
	}
	steps := []step{{5, "a", nil}, {5, "a", nil}, {8, "b", nil}, {3, "restored", nil}, {3, "restored", nil},
		{9, "", &Error{Code: 403}}}
	var asked []uint64
	read := func(_ context.Context, q Query) (string, Meta, error) {
		asked = append(asked, q.Index)
		s := steps[0]
		steps = steps[1:]
		return s.value, Meta{Index: s.index}, s.err
	}
	var seen []string
	for v, err := range Follow(t.Context(), Query{}, read) {
		if err != nil {
			v = "error"
		}
		seen = append(seen, v)
	}
	text, _ := json.Marshal(asked)
	if strings.Join(seen, " ") != "a b restored restored error" || string(text) != "[0,5,5,8,0,3]" {
		t.Fatalf("seen %v, asked %s", seen, text)
	}
}

// TestAddressOfContainers: tcp:// in a variable means plain HTTP.
func TestAddressOfContainers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `"here"`) }))
	defer s.Close()
	c, err := New(Config{Address: "tcp://" + strings.TrimPrefix(s.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Leader(t.Context()); got != "here" || err != nil {
		t.Fatal(got, err)
	}
}
