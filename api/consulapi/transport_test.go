package consulapi

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
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

func TestHeadIsNoMethodOfAnyRow(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{"/v1/kv/a", "/v1/agent/self", "/v1/health/service/web"} {
		a := r.want("HEAD", path, "", 405, "*")
		if !strings.Contains(a.header.Get("Allow"), "GET") {
			t.Errorf("%s: Allow is %q", path, a.header.Get("Allow"))
		}
	}
}

func TestPrettyWithoutBeingAsked(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pretty = true })
	r.want("PUT", "/v1/kv/a", "1", 200, "true")
	r.want("GET", "/v1/catalog/datacenters", "", 200, "[\n    \"dc1\"\n]")
	r.want("GET", "/v1/catalog/datacenters?pretty", "", 200, "[\n    \"dc1\"\n]\n")
	r.want("GET", "/v1/kv/a?raw", "", 200, "1")
	r.node("n2")
	for range 2 { // encoded, then shared
		a := r.want("GET", "/v1/catalog/nodes", "", 200, "*")
		if !strings.HasPrefix(a.body, "[\n    {\n        \"ID\"") {
			t.Errorf("nodes are %.40q", a.body)
		}
	}
}

func TestTranslationIsTold(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TranslateWAN = true })
	if h := r.want("GET", "/v1/catalog/nodes", "", 200, "*").header; h.Get("X-Consul-Translate-Addresses") != "true" {
		t.Errorf("headers %v", h)
	}
	r = newRig(t, nil)
	if h := r.want("GET", "/v1/catalog/nodes", "", 200, "*").header; h["X-Consul-Translate-Addresses"] != nil {
		t.Error("the header stands for nothing")
	}
}

// lines is a log and a source of metrics that say what they are told to.
type lines struct{ text string }

func (l lines) Follow(ctx context.Context, _ slog.Level, _ bool, w io.Writer, flush func()) error {
	return l.Stream(ctx, w, flush)
}

func (l lines) Stream(ctx context.Context, w io.Writer, flush func()) error {
	_, err := io.WriteString(w, l.text)
	flush()
	<-ctx.Done()
	return err
}

func (lines) ServeHTTP(http.ResponseWriter, *http.Request) {}

// TestStreamsAreCompressedFromTheirFirstByte reads a line out of an answer that has not ended.
func TestStreamsAreCompressedFromTheirFirstByte(t *testing.T) {
	source := lines{`{"a":1}` + "\n"}
	r := newRig(t, func(c *Config) { c.Agent.Logs, c.Agent.MetricsHandler = source, source })
	srv := httptest.NewServer(r.api)
	defer srv.Close()
	for _, path := range []string{"/v1/agent/monitor", "/v1/agent/metrics/stream"} {
		for _, zip := range []string{"gzip", ""} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			req, err := http.NewRequestWithContext(ctx, "GET", srv.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", zip)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Header.Get("Content-Encoding") != zip {
				t.Errorf("%s: encoding %q, want %q", path, resp.Header.Get("Content-Encoding"), zip)
			}
			body := io.Reader(resp.Body)
			if zip != "" {
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			if line, err := bufio.NewReader(body).ReadString('\n'); line != source.text || err != nil {
				t.Errorf("%s: read %q, %v", path, line, err)
			}
			cancel()
			_ = resp.Body.Close()
		}
	}
}

// TestConsistentQueryEndsWithLeadership: a parked consistent query is told when the leader is lost, not when its wait
// is over.
func TestConsistentQueryEndsWithLeadership(t *testing.T) {
	lost := make(chan struct{})
	r := newRig(t, func(c *Config) { c.LeaderChanges = func() <-chan struct{} { return lost } })
	r.want("PUT", "/v1/kv/a", "1", 200, "true")
	index := r.want("GET", "/v1/kv/a", "", 200, "*").header.Get("X-Consul-Index")
	done := make(chan response, 1)
	go func() { done <- r.do("GET", "/v1/kv/a?consistent&wait=10m&index="+index, "") }()
	until(t, "the query to park", func() bool { return r.store.waits() > 0 })
	r.store.set(registry.Contact{}, errkind.New(errkind.Unavailable, "No cluster leader"))
	close(lost)
	select {
	case a := <-done:
		if a.status != 500 || a.body != "No cluster leader" {
			t.Errorf("answered %d %s", a.status, a.body)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the query stayed parked")
	}
}

// TestConsistentQueryOutlivesOtherChanges: what changes in the group while this server leads on ends no query.
func TestConsistentQueryOutlivesOtherChanges(t *testing.T) {
	changes := make(chan chan struct{}, 2)
	first, second := make(chan struct{}), make(chan struct{})
	changes <- first
	changes <- second
	r := newRig(t, func(c *Config) { c.LeaderChanges = func() <-chan struct{} { return <-changes } })
	r.want("PUT", "/v1/kv/a", "1", 200, "true")
	index := r.want("GET", "/v1/kv/a", "", 200, "*").header.Get("X-Consul-Index")
	done := make(chan response, 1)
	go func() { done <- r.do("GET", "/v1/kv/a?raw&consistent&wait=10m&index="+index, "") }()
	until(t, "the query to park", func() bool { return r.store.waits() == 1 })
	close(first)
	until(t, "the query to park again", func() bool { return r.store.waits() == 2 })
	r.want("PUT", "/v1/kv/a", "2", 200, "true")
	select {
	case a := <-done:
		if a.status != 200 || a.body != "2" {
			t.Errorf("answered %d %s", a.status, a.body)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the query stayed parked")
	}
}

func TestHostTellsAboutItself(t *testing.T) {
	r := newRig(t, nil)
	var host struct {
		Memory, Disk, Host map[string]any
		CPU                []map[string]any
		CollectionTime     int64
		Errors             []string
	}
	if err := json.Unmarshal([]byte(r.want("GET", "/v1/agent/host", "", 200, "*").body), &host); err != nil {
		t.Fatal(err)
	}
	if len(host.Errors) > 0 || host.CollectionTime == 0 || len(host.CPU) == 0 {
		t.Errorf("host %+v", host)
	}
	for name, has := range map[string]bool{
		"total": host.Memory["total"].(float64) > 0, "usedPercent": host.Disk["usedPercent"] != nil,
		"kernelVersion": host.Host["kernelVersion"] != "", "uptime": host.Host["uptime"] != nil,
		"procs": host.Host["procs"].(float64) > 0,
	} {
		if !has {
			t.Errorf("%s is missing in %+v", name, host)
		}
	}
}
