package registration

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/vaultconf"
)

// agent remembers what it was told, as an agent of Consul does.
type agent struct {
	mu       sync.Mutex
	services map[string]definition
	checks   map[string]string
	tokens   map[string]bool
	beats    int
	down     bool
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	a.tokens[r.Header.Get("X-Consul-Token")] = true
	body, _ := io.ReadAll(r.Body)
	switch path := r.URL.Path; {
	case path == "/v1/agent/service/register":
		var d definition
		if err := json.Unmarshal(body, &d); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.services[d.ID], a.checks[d.Check.CheckID] = d, d.Check.Status
	case strings.HasPrefix(path, "/v1/agent/check/update/"):
		id := strings.TrimPrefix(path, "/v1/agent/check/update/")
		if _, ok := a.checks[id]; !ok {
			http.Error(w, "Unknown check ID", http.StatusNotFound)
			return
		}
		var u struct{ Status string }
		_ = json.Unmarshal(body, &u)
		a.checks[id] = u.Status
		a.beats++
	case strings.HasPrefix(path, "/v1/agent/service/deregister/"):
		delete(a.services, strings.TrimPrefix(path, "/v1/agent/service/deregister/"))
	}
}

func (a *agent) of(id string) (definition, string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, ok := a.services[id]
	return d, a.checks[id+":vault-sealed-check"], ok
}

func (a *agent) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func TestEntry(t *testing.T) {
	a := &agent{services: map[string]definition{}, checks: map[string]string{}, tokens: map[string]bool{}}
	server := httptest.NewServer(a)
	defer server.Close()
	e, err := read(vaultconf.NewKeys(map[string]any{"address": server.URL, "token": "t", "check_timeout": "1s",
		"service_tags": "eu, west", "service_meta": []any{map[string]any{"team": "sec"}}}), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now := State{Sealed: true}
	is := func(s State) { mu.Lock(); now = s; mu.Unlock() }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	parts := (&Entry{e}).Parts("https://10.0.0.1:8200", slog.New(slog.DiscardHandler),
		func(context.Context) (State, error) {
			mu.Lock()
			defer mu.Unlock()
			return now, nil
		})
	go func() { ended <- parts[0].Run(ctx) }()
	const id = "vault:10.0.0.1:8200"
	sees := func(what, status string, tags ...string) {
		t.Helper()
		polltest.Until(t, func() bool {
			d, s, ok := a.of(id)
			return ok && s == status && reflect.DeepEqual(d.Tags, tags) && d.Address == "10.0.0.1" && d.Port == 8200
		}, "%s", what)
	}
	sees("a server that is not initialized", "critical", "eu", "west", "sealed")
	is(State{Initialized: true, Sealed: true})
	sees("a sealed server", "critical", "eu", "west", "sealed", "initialized")
	is(State{Initialized: true, Standby: true})
	sees("a standby", "passing", "eu", "west", "standby", "initialized")
	is(State{Initialized: true})
	sees("the active server", "passing", "eu", "west", "active", "initialized")
	a.set(func() { a.beats = 0 })
	polltest.Until(t, func() (ok bool) { a.set(func() { ok = a.beats > 1 }); return ok }, "beats")

	a.set(func() { a.down = true })
	a.set(func() { a.services, a.checks, a.down = map[string]definition{}, map[string]string{}, false })
	sees("an agent that began anew", "passing", "eu", "west", "active", "initialized")
	cancel()
	if err := polltest.Get(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	if _, _, there := a.of(id); there {
		t.Error("a server that ended is there still")
	}
	if !reflect.DeepEqual(a.tokens, map[string]bool{"t": true}) {
		t.Errorf("tokens %v", a.tokens)
	}
}

func TestRead(t *testing.T) {
	none := func(string) string { return "" }
	for want, values := range map[string]map[string]any{
		"address: ":        {"address": "a/b"},
		"scheme: ":         {"scheme": "ftp"},
		"check_timeout: ":  {"check_timeout": "10ms"},
		"tls_ca_file: ":    {"tls_ca_file": "/does/not/exist"},
		"tls_cert_file":    {"tls_cert_file": "a"},
		"tls_min_version":  {"tls_min_version": "ssl3"},
		"service: must":    {"service": ""},
		"disable_registra": {"disable_registration": "perhaps"},
	} {
		if _, err := read(vaultconf.NewKeys(values), none); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", values, err, want)
		}
	}
	if e, err := read(vaultconf.NewKeys(map[string]any{"disable_registration": "true"}), none); e != nil || err != nil {
		t.Errorf("turned off: %v, %v", e, err)
	}
	env := map[string]string{"CONSUL_HTTP_ADDR": "consul.example:8501", "CONSUL_HTTP_SSL": "true",
		"CONSUL_HTTP_TOKEN": "x"}
	e, err := read(vaultconf.NewKeys(map[string]any{"service_address": ""}), func(k string) string { return env[k] })
	if err != nil || e.agent != "https://consul.example:8501" || e.token != "x" {
		t.Fatalf("%+v, %v", e, err)
	}
	d, err := e.definition("https://vault.example", State{Initialized: true})
	if err != nil || d.Address != "" || d.Port != 8200 || d.ID != "vault:vault.example:8200" {
		t.Errorf("%+v, %v: want the node's address", d, err)
	}
	if _, err := e.definition("vault.example", State{}); err == nil {
		t.Error("an api_addr that is no URL was taken")
	}
}
