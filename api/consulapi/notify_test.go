package consulapi

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"corbel.dev/corbel/api/promapi"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/telemetry"
)

// notified reads from the metrics endpoint how often a timing of an endpoint was observed.
func (s *stage) notified(endpoint string) (woken, written string) {
	s.Helper()
	rec := httptest.NewRecorder()
	s.api.ServeHTTP(rec, httptest.NewRequest("GET", "/v1/agent/metrics?format=prometheus", nil))
	if rec.Code != 200 {
		s.Fatalf("metrics: %d %s", rec.Code, rec.Body)
	}
	value := func(name string) string {
		line := fmt.Sprintf("consul_notify_%s_count{endpoint=%q} ", name, endpoint)
		_, after, ok := strings.Cut(rec.Body.String(), line)
		if !ok {
			return "absent"
		}
		n, _, _ := strings.Cut(after, "\n")
		return n
	}
	return value("woken"), value("written")
}

func newMeteredStage(t *testing.T) *stage {
	metrics := telemetry.New(telemetry.Config{Settings: telemetry.Settings{PrometheusRetentionTime: 1}})
	return newStage(t, func(c *Config) { c.Metrics, c.Agent.MetricsHandler = metrics, promapi.New(metrics) })
}

func TestEachWokenWatcherIsTimedAtItsEndpoint(t *testing.T) {
	s := newMeteredStage(t)
	s.service("n1", "passing")
	put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/b", Value: []byte("1")}})
	kv := s.store.State().Index()
	for _, path := range []string{ // the hot path, and three that net/http serves
		fmt.Sprintf("/v1/health/service/web?wait=60s&index=%d", s.index()),
		fmt.Sprintf("/v1/kv/a/b?wait=60s&index=%d", kv),
		fmt.Sprintf("/v1/kv/a/?recurse&wait=60s&index=%d", kv),
		fmt.Sprintf("/v1/kv/a/?recurse&wait=60s&since=%d", kv),
	} {
		c := dialTo(t, s.addr)
		c.send(requestText("GET", path, "", ""))
		defer func() {
			if a := c.read(); a.status != 200 {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}()
	}
	// One whose time is over was woken by no change.
	dialTo(t, s.addr).ask("GET", fmt.Sprintf("/v1/catalog/nodes?wait=1ms&index=%d", s.store.State().Index()), "", "")
	s.parked(4)
	s.service("n2", "passing")
	put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/b", Value: []byte("2")}})
	for endpoint, want := range map[string]string{"health/service": "1", "kv": "1", "kv-prefix": "2"} {
		until(t, "timings of "+endpoint, func() bool {
			woken, written := s.notified(endpoint)
			return woken == want && written == want
		})
	}
	for _, endpoint := range []string{"catalog/nodes", "catalog/service", "config", "other", "watch"} {
		if woken, written := s.notified(endpoint); woken != "0" && woken != "absent" || written != woken {
			t.Errorf("%s: %s %s", endpoint, woken, written)
		}
	}
}
