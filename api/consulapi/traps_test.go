package consulapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

func TestTrap1IndexIsNeverZero(t *testing.T) {
	r := newRig(t, nil)
	for _, target := range []string{"/v1/kv/none", "/v1/catalog/nodes", "/v1/catalog/services", "/v1/health/service/x",
		"/v1/health/state/any", "/v1/session/list", "/v1/kv/?keys", "/v1/catalog/node/x"} {
		if got := r.do("GET", target, "").header.Get("X-Consul-Index"); got != "1" {
			t.Errorf("%s: index %q, want 1", target, got)
		}
	}
}

func TestTrap2PathsAreRaw(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"PUT", "/v1/kv/a//b", "1", 200, "true"},
		{"PUT", "/v1/kv/a%2Fc%20d", "2", 200, "true"},
		{"PUT", "/v1/kv//lead", "3", 200, "true"},
		{"PUT", "/v1/kv/%C3%A9", "4", 200, "true"},
		{"GET", "/v1/kv/?keys", "", 200, `["/lead","a//b","a/c d","é"]`},
		{"PUT", "/v1/kv/bad%00byte", "1", 400, "*"},
	})
	a := r.do("GET", "/v1/kv/t/../up?raw", "")
	if a.status != 307 || a.header.Get("Location") != "/v1/kv/up?raw" {
		t.Errorf("dot segments: %d %q", a.status, a.header.Get("Location"))
	}
}

func TestTrap3PresenceCounts(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"PUT", "/v1/kv/p/a", "1", 200, "true"},
		{"GET", "/v1/kv/p/?recurse=false", "", 200, "*"},
		{"GET", "/v1/kv/p/?keys=false", "", 200, `["p/a"]`},
		{"GET", "/v1/kv/p/a?raw=false", "", 200, "1"},
		{"GET", "/v1/kv/p/a?stale=false&consistent=false", "", 400, "*"},
	})
}

func TestTrap4MissingKeyHasHeadersAndNoBody(t *testing.T) {
	r := newRig(t, nil)
	a := r.want("GET", "/v1/kv/none", "", 404, "")
	for _, h := range []string{"X-Consul-Index", "X-Consul-KnownLeader", "X-Consul-LastContact"} {
		if a.header.Get(h) == "" {
			t.Errorf("%s is missing", h)
		}
	}
}

func TestTrap6RegistrationBodies(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/agent/service/register", `{"Name":"w"}`, 200, "")
	r.want("PUT", "/v1/catalog/register", `{"Node":"n","Address":"a"}`, 200, "true")
}

func TestTrap7TagsAndMetaAreNeverNull(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/agent/service/register", `{"Name":"w"}`, 200, "")
	if a := r.do("GET", "/v1/agent/service/w", ""); !strings.Contains(a.body, `"Tags":[],"Meta":{}`) {
		t.Errorf("agent view: %s", a.body)
	}
	r.want("PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1m"}`, 200, "")
	if a := r.do("GET", "/v1/agent/checks", ""); !strings.Contains(a.body, `"ServiceTags":[]`) {
		t.Errorf("checks: %s", a.body)
	}
}

func TestTrap9TxnWeights(t *testing.T) {
	r := newRig(t, nil)
	r.node("x")
	r.want("PUT", "/v1/txn", `[{"Service":{"Verb":"set","Node":"x","Service":{"ID":"s","Service":"s"}}}]`, 200, "*")
	if a := r.do("GET", "/v1/catalog/service/s", ""); !strings.Contains(a.body,
		`"ServiceWeights":{"Passing":1,"Warning":1}`) {
		t.Errorf("weights in a transaction: %s", a.body)
	}
	r.want("PUT", "/v1/catalog/register", `{"Node":"x","Address":"a","Service":{"Service":"s2"}}`, 200, "true")
	if a := r.do("GET", "/v1/catalog/service/s2", ""); !strings.Contains(a.body,
		`"ServiceWeights":{"Passing":1,"Warning":1}`) {
		t.Errorf("weights at registration: %s", a.body)
	}
}

func TestTrap11ChecksBeginCritical(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/agent/service/register", `{"Name":"w","Check":{"TTL":"1m"}}`, 200, "")
	r.want("GET", "/v1/agent/health/service/id/w?format=text", "", 503, "critical")
}

func TestTrap12SessionNeedsSerfHealth(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/catalog/register", `{"Node":"bare","Address":"a"}`, 200, "true")
	r.want("PUT", "/v1/session/create", `{"Node":"bare"}`, 500, "*")
	r.want("PUT", "/v1/session/create", `{"Node":"bare","NodeChecks":[]}`, 200, "*")
}

func TestTrap18SelfIsAMapOfMaps(t *testing.T) {
	r := newRig(t, nil)
	var self map[string]map[string]any
	if err := json.Unmarshal([]byte(r.do("GET", "/v1/agent/self", "").body), &self); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"Config", "DebugConfig", "Coord", "Member", "Stats", "Meta", "xDS"} {
		if self[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	if self["Config"]["Version"] != "1.21.4" || self["Config"]["Server"] != true {
		t.Errorf("Config: %v", self["Config"])
	}
}

func TestTrap21HeartbeatsStayLocal(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/agent/service/register", `{"Name":"w","Check":{"TTL":"1m"}}`, 200, "")
	before := r.store.applies
	for range 50 {
		r.want("PUT", "/v1/agent/check/pass/service:w", "", 200, "")
	}
	if r.store.applies != before {
		t.Errorf("heartbeats reached the log %d times", r.store.applies-before)
	}
}

func TestTrap22WaitWithoutIndexDoesNotBlock(t *testing.T) {
	r := newRig(t, nil)
	begun := time.Now()
	r.want("GET", "/v1/kv/none?wait=5m", "", 404, "")
	if time.Since(begun) > 30*time.Second {
		t.Error("it blocked")
	}
}

func TestBlockingQuery(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/kv/k", "1", 200, "true")
	done := make(chan response, 1)
	go func() { done <- r.do("GET", "/v1/kv/k?index=2&wait=5m", "") }()
	until(t, "the query to park", func() bool { return r.api.Blocking() == 1 })
	r.want("PUT", "/v1/kv/k", "1", 200, "true") // the same again wakes nobody
	if r.api.Blocking() != 1 {
		t.Error("an idempotent write woke the watcher")
	}
	r.want("PUT", "/v1/kv/k", "2", 200, "true")
	a := <-done
	if a.status != 200 || a.header.Get("X-Consul-Index") != "3" || !strings.Contains(a.body, `"ModifyIndex":3`) {
		t.Errorf("got %d %v %s", a.status, a.header, a.body)
	}
	if a := r.do("GET", "/v1/kv/k?index=3&wait=1ms", ""); a.header.Get("X-Consul-Index") != "3" {
		t.Errorf("after the wait: %v", a.header)
	}
}

func TestBlockingQueryEndsWithItsClient(t *testing.T) {
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan response, 1)
	go func() { done <- r.send(httptest.NewRequest("GET", "/v1/kv/k?index=1", nil).WithContext(ctx)) }()
	until(t, "the query to park", func() bool { return r.api.Blocking() == 1 })
	cancel()
	<-done
	if r.api.Blocking() != 0 {
		t.Error("the waiter stayed")
	}
}

func TestWokenWatchersShareOneBody(t *testing.T) {
	r := newRig(t, nil)
	r.node("a")
	const watchers = 200
	done := make(chan response, watchers)
	for i := range watchers {
		go func() { done <- r.do("GET", fmt.Sprintf("/v1/health/service/web?index=1&wait=%ds", 100+i), "") }()
	}
	until(t, "all to park", func() bool { return r.api.Blocking() == watchers })
	r.want("PUT", "/v1/catalog/register", `{"Node":"a","Address":"b","Service":{"Service":"web"}}`, 200, "true")
	first := <-done
	for range watchers - 1 {
		if a := <-done; a.body != first.body || a.header.Get("X-Consul-Index") != first.header.Get("X-Consul-Index") {
			t.Fatalf("answers differ: %s", a.body)
		}
	}
	if !strings.Contains(first.body, `"Service":"web"`) {
		t.Errorf("body: %s", first.body)
	}
}

// follower notes what it was asked to forward.
type follower struct{ leader, any int }

func (f *follower) Forward(w http.ResponseWriter, r *http.Request, toLeader bool) error {
	if toLeader {
		f.leader++
	} else {
		f.any++
	}
	b := make([]byte, 64)
	n, _ := r.Body.Read(b)
	_, err := w.Write(append([]byte("forwarded:"), b[:n]...))
	return err
}

func (f *follower) ForwardStream(w http.ResponseWriter, r *http.Request, toLeader bool) error {
	return f.Forward(w, r, toLeader)
}

func TestFollowerForwards(t *testing.T) {
	f := &follower{}
	r := newRig(t, func(c *Config) { c.Forward = f })
	r.store.readErr = errkind.New(errkind.NotLeader, "node is not the leader")
	r.run([]step{
		{"GET", "/v1/kv/a", "", 200, "forwarded:"},
		{"PUT", "/v1/kv/a", "the body", 200, "forwarded:the body"},
		{"GET", "/v1/kv/a?stale", "", 404, ""},
		{"PUT", "/v1/session/create", `{}`, 200, "forwarded:{}"},
		{"GET", "/v1/status/leader", "", 200, `"10.0.0.1:8300"`},
		{"GET", "/v1/agent/services", "", 200, "{}"},
		{"GET", "/v1/operator/raft/configuration", "", 200, "forwarded:"},
	})
	if f.leader != 4 || f.any != 0 {
		t.Errorf("forwarded %d to the leader, %d to any", f.leader, f.any)
	}
}

func TestNoLeader(t *testing.T) {
	r := newRig(t, nil)
	r.store.readErr = errkind.New(errkind.Unavailable, "No cluster leader")
	r.run([]step{
		{"GET", "/v1/kv/a", "", 500, "No cluster leader"},
		{"PUT", "/v1/kv/a", "x", 500, "No cluster leader"},
		{"GET", "/v1/catalog/nodes?consistent", "", 500, "No cluster leader"},
		{"GET", "/v1/catalog/nodes?stale", "", 200, "[]"},
		{"GET", "/v1/status/leader", "", 200, "*"},
	})
}

func TestClientAgentForwardsAllButItsOwn(t *testing.T) {
	f := &follower{}
	r := newRig(t, func(c *Config) { c.Forward, c.Registry, c.Operator.Group = f, nil, nil })
	r.run([]step{
		{"GET", "/v1/catalog/nodes", "", 200, "forwarded:"},
		{"PUT", "/v1/kv/a", "x", 200, "forwarded:x"},
		{"GET", "/v1/status/leader", "", 200, "forwarded:"},
		{"GET", "/v1/agent/checks", "", 200, "{}"},
	})
	if f.any != 3 || f.leader != 0 {
		t.Errorf("forwarded %d to any, %d to the leader", f.any, f.leader)
	}
}

func TestMaxStaleRetriesAsDefault(t *testing.T) {
	r := newRig(t, nil)
	r.store.contact = registry.Contact{KnownLeader: true, LastContact: 3 * time.Second}
	a := r.want("GET", "/v1/catalog/nodes?max_stale=10s", "", 200, "[]")
	if a.header.Get("X-Consul-LastContact") != "3000" || a.header.Get("X-Consul-Effective-Consistency") != "stale" {
		t.Errorf("within the bound: %v", a.header)
	}
	if a := r.do("GET", "/v1/catalog/nodes?max_stale=1s", ""); a.header.Get("X-Consul-Effective-Consistency") != "leader" {
		t.Errorf("beyond the bound: %v", a.header)
	}
}

// TestLeaderTellsItsAge: a leader that was just elected replays its log, and may lack what its predecessor
// acknowledged.
func TestLeaderTellsItsAge(t *testing.T) {
	r := newRig(t, nil)
	for contact, want := range map[time.Duration]string{
		0: "0", time.Nanosecond: "1", 12 * time.Second: "12000", 1<<63 - 1: "9223372036855",
	} {
		r.store.contact = registry.Contact{KnownLeader: true, Leader: true, LastContact: contact}
		if a := r.do("GET", "/v1/catalog/nodes?stale", ""); a.header.Get("X-Consul-LastContact") != want {
			t.Errorf("a leader whose state may be %s old states %q, want %s", contact, a.header.Get("X-Consul-LastContact"),
				want)
		}
	}
}

func TestTransportRules(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.BlockEndpoints = []string{"/v1/agent/host"}
		c.AllowWriteFrom = []string{"192.0.2.0/24"} // httptest's address
		c.ResponseHeaders = map[string]string{"x-extra": "1"}
	})
	r.run([]step{
		{"GET", "/", "", 200, "Corbel agent\n"},
		{"GET", "/v1//catalog/datacenters", "", 307, "*"},
		{"GET", "/v1/catalog/nodes?ns=team", "", 200, "*"},
		{"GET", "/v1/nope", "", 404, "Invalid URL path: not a recognized HTTP API endpoint"},
		{"GET", "/v1/catalog/datacenters", "this is no JSON", 200, `["dc1"]`}, // a GET's body is not looked at
		{"GET", "/v1/agent/host", "", 403, "Endpoint is blocked by agent configuration"},
		{"PATCH", "/v1/kv/a", "", 405, "method PATCH not allowed"},
		{"PUT", "/v1/kv/a", "x", 200, "true"},
	})
	a := r.do("OPTIONS", "/v1/kv/a", "")
	if a.status != 200 || a.header.Get("Allow") != "OPTIONS,GET,PUT,DELETE" || a.header.Get("X-Extra") != "1" {
		t.Errorf("OPTIONS: %d %v", a.status, a.header)
	}
	req := httptest.NewRequest("PUT", "/v1/kv/a", strings.NewReader("x"))
	req.RemoteAddr = "203.0.113.9:99"
	if a := r.send(req); a.status != 403 || a.body != "Access is restricted" {
		t.Errorf("a writer from outside: %d %s", a.status, a.body)
	}
	if a := r.do("GET", "/v1/catalog/datacenters?pretty", ""); a.body != "[\n    \"dc1\"\n]\n" {
		t.Errorf("pretty: %q", a.body)
	}
	req = httptest.NewRequest("GET", "/v1/kv/big?raw", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	r.want("PUT", "/v1/kv/big", strings.Repeat("x", 5000), 200, "true")
	if a := r.send(req); a.header.Get("Content-Encoding") != "gzip" || a.header.Get("Vary") != "Accept-Encoding" ||
		len(a.body) > 1000 {
		t.Errorf("gzip: %v, %d bytes", a.header, len(a.body))
	}
}

func TestServiceHashBlocks(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/agent/service/register", `{"Name":"w","Port":1}`, 200, "")
	hash := r.do("GET", "/v1/agent/service/w", "").header.Get("X-Consul-ContentHash")
	if hash == "" {
		t.Fatal("no content hash")
	}
	done := make(chan response, 1)
	go func() { done <- r.do("GET", "/v1/agent/service/w?wait=5m&hash="+hash, "") }()
	until(t, "the query to park", func() bool { return r.api.Blocking() == 1 })
	r.want("PUT", "/v1/agent/service/register", `{"Name":"w","Port":2}`, 200, "")
	a := <-done
	if a.status != 200 || !strings.Contains(a.body, `"Port":2`) || a.header.Get("X-Consul-ContentHash") == hash {
		t.Errorf("got %d %v %s", a.status, a.header, a.body)
	}
}

// oneLine is a log that says one thing to each follower.
type oneLine struct{}

func (oneLine) Follow(_ context.Context, level slog.Level, asJSON bool, w io.Writer, flush func()) error {
	_, err := fmt.Fprintf(w, "%v %v\n", level, asJSON)
	flush()
	return err
}

func TestMonitorAndMetricsReachTheirSources(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Agent.Logs = oneLine{}
		c.Agent.MetricsHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_,
				_ = io.WriteString(w, r.URL.RawQuery)
		})
	})
	r.want("GET", "/v1/agent/monitor?loglevel=WARN&logjson", "", 200, "WARN true\n")
	r.want("GET", "/v1/agent/metrics?format=prometheus", "", 200, "format=prometheus")
}

func TestNamedPortsInEveryView(t *testing.T) {
	r := newRig(t, nil)
	const ports = `"Ports":[{"Name":"http","Port":8080,"Default":true},{"Name":"grpc","Port":9090}]`
	const shown = `[{"Name":"http","Port":8080,"Default":true},{"Name":"grpc","Port":9090,"Default":false}]`
	r.want("PUT", "/v1/agent/service/register", `{"Name":"api",`+ports+`}`, 200, "")
	r.want("PUT", "/v1/catalog/register", `{"Node":"n","Address":"10.0.0.1","Service":{"Service":"far",`+ports+`}}`, 200,
		"true")
	for path, want := range map[string]string{
		"/v1/agent/service/api":   `"Port":8080,"Ports":` + shown,
		"/v1/agent/services":      `"Port":8080,"Ports":` + shown,
		"/v1/catalog/service/far": `"ServicePort":8080,"ServicePorts":` + shown,
		"/v1/catalog/node/n":      `"Port":8080,"Ports":` + shown,
		"/v1/health/service/far":  `"Port":8080,"Ports":` + shown,
	} {
		if a := r.do("GET", path, ""); !strings.Contains(a.body, want) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	const two = `"Ports":[{"Name":"a","Port":1}]`
	r.want("PUT", "/v1/agent/service/register", `{"Name":"api",`+two+`}`, 400, "*")
	r.want("PUT", "/v1/catalog/register", `{"Node":"n","Address":"10.0.0.1","Service":{"Service":"far",`+two+`}}`, 400, "*")
}
