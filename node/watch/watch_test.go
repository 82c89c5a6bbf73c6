package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/polltest"
)

// onePath answers blocking queries from one value and its index.
type onePath struct {
	mu      sync.Mutex
	body    string
	index   int
	changed chan struct{}
	asked   []string
}

func (p *onePath) set(body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.body, p.index = body, p.index+1
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *onePath) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.URL.Path+" "+r.Header.Get("X-Consul-Token"))
	for r.URL.Query().Get("index") == fmt.Sprint(p.index) {
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	w.Header().Set("X-Consul-Index", fmt.Sprint(p.index))
	if p.body == "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = io.WriteString(w, p.body)
}

func TestWatchesTellEachChangeOnce(t *testing.T) {
	api := &onePath{index: 5, changed: make(chan struct{})}
	var mu sync.Mutex
	var told []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		told = append(told, r.Method+" "+r.Header.Get("X-Consul-Index")+" "+r.Header.Get("X-Of")+" "+string(body))
	}))
	defer hook.Close()
	file := filepath.Join(t.TempDir(), "told")
	list, err := Parse([]map[string]any{
		{"type": "key", "key": "a/b", "handler_type": "http", "token": "secret",
			"http_handler_config": map[string]any{"path": hook.URL, "method": "PUT", "timeout": "30s",
				"header": map[string]any{"x-of": []any{"me"}}}},
		{"type": "key", "key": "a/b", "args": []any{"/bin/sh", "-c", `printf '%s ' "$CONSUL_INDEX" >>"$0"; cat >>"$0"`,
			file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{API: api, Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler),
		Token: func() string { return "agents" }})
	s.Set(list)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	want := []string{"PUT 5 me null"}
	expect := func(script string) {
		t.Helper()
		polltest.Until(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			text, _ := os.ReadFile(file) // not there yet is empty
			return strings.Join(told, "\n") == strings.Join(want, "\n") && string(text) == script
		}, "the hook to hear %q and the script %q", want, script)
	}
	script := "5 null\n"
	expect(script)
	api.set(`[{"Key":"a/b"}]`)
	want = append(want, `PUT 6 me {"Key":"a/b"}`)
	script += `6 {"Key":"a/b"}` + "\n"
	expect(script)
	api.set(`[{"Key":"a/b"}]`) // another index, the same answer
	api.set(`[{"Key":"a/b","Flags":1}]`)
	want = append(want, `PUT 8 me {"Key":"a/b","Flags":1}`)
	script += `8 {"Key":"a/b","Flags":1}` + "\n"
	expect(script)
	s.Set(nil) // a reload without watches
	api.set(`[{"Key":"a/b","Flags":2}]`)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	expect(script)
	api.mu.Lock()
	defer api.mu.Unlock()
	asked := strings.Join(api.asked, "\n")
	if !strings.Contains(asked, "/v1/kv/a/b secret") || !strings.Contains(asked, "/v1/kv/a/b agents") {
		t.Errorf("asked\n%s", asked)
	}
}

func TestWatchesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"key","args":["x"]}`:                                                           `watches[0]: type "key" needs key`,
		`{"type":"moon","args":["x"]}`:                                                          "is none of key, keyprefix",
		`{"type":"nodes"}`:                                                                      "needs args",
		`{"type":"nodes","args":["x"],"colour":"red"}`:                                          "invalid config key colour",
		`{"type":"nodes","handler_type":"pigeon","args":["x"]}`:                                 "handler_type",
		`{"type":"nodes","http_handler_config":{"path":"http://x","timeout":"soon"}}`:           "http_handler_config.timeout",
		`{"type":"nodes","http_handler_config":{"path":"http://x","speed":1}}`:                  "invalid config key http_handler_config.speed",
		`{"type":"service","service":"web","tag":"a","passingonly":true,"handler":"true"}`:      "",
		`{"type":"checks","state":"critical","args":["x"],"datacenter":"dc1","stale":true}`:     "",
		`{"type":"keyprefix","prefix":"a/","args":["x"]}`:                                       "",
		`{"type":"event","name":"deploy","args":["x"],"token":"t"}`:                             "",
		`{"type":"connect_leaf","args":["x"]}`:                                                  `type "connect_leaf" needs service`,
		`{"type":"connect_leaf","service":"web","args":["x"]}`:                                  "",
		`{"type":"agent_service","args":["x"]}`:                                                 `needs service_id`,
		`{"type":"agent_service","service_id":"web","args":["x"]}`:                              "",
		`{"type":"connect_roots","args":["x"]}`:                                                 "",
		`{"type":"services","handler_type":"http","http_handler_config":{"path":"http://x/y"}}`: "",
	} {
		var m map[string]any
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&m); err != nil {
			t.Fatal(err)
		}
		_, err := Parse([]map[string]any{m})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
