//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
)

const sidecar = `{"Kind":"connect-proxy","ID":"web-sidecar-proxy","Service":"web-sidecar-proxy","Datacenter":"dc1",
	"Proxy":{"DestinationServiceName":"web","DestinationServiceID":"web","Config":{"envoy_prometheus_bind_addr":"0.0.0.0:9102","envoy_statsd_url":"udp://127.0.0.1:8125",
	"envoy_dogstatsd_url":"unix:///run/statsd","envoy_stats_tags":["team=red"],"envoy_stats_flush_interval":"10s"}}}`

// envoyRun runs `consul connect envoy` against an agent that answers so.
func envoyRun(t *testing.T, answers map[string]string, args ...string) (int, string) {
	t.Helper()
	s := httptest.NewServer(&recorder{answers: answers})
	defer s.Close()
	var out bytes.Buffer
	e := &command.Env{In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(string) string { return "" }}
	code := dispatch(t.Context(), e, append([]string{"consul", "connect", "envoy", "-http-addr", s.URL}, args...))
	return code, out.String()
}

// TestEnvoyBootstrap: Nomad's own call of the command gives a configuration with the contract's parts.
func TestEnvoyBootstrap(t *testing.T) {
	answers := map[string]string{"GET /v1/agent/service/web-sidecar-proxy": sidecar}
	code, text := envoyRun(t, answers, "-grpc-addr", "127.0.0.1:8502", "-admin-bind", "127.0.0.2:19001", "-address",
		"127.0.0.1:19101",
		"-proxy-id", "web-sidecar-proxy", "-bootstrap", "-token", "secret", "-prometheus-backend-port", "9901",
		"-prometheus-scrape-path", "/scrape")
	if code != 0 {
		t.Fatal(text)
	}
	var b struct {
		Admin struct {
			Address struct {
				Socket struct {
					Address string
					Port    int `json:"port_value"`
				} `json:"socket_address"`
			}
		}
		Node   struct{ Cluster, ID string }
		Static struct {
			Clusters  []struct{ Name string }
			Listeners []struct{ Name string }
		} `json:"static_resources"`
		Dynamic struct {
			ADS struct {
				API  string `json:"api_type"`
				GRPC struct {
					Metadata []struct{ Key, Value string } `json:"initial_metadata"`
				} `json:"grpc_services"`
			} `json:"ads_config"`
		} `json:"dynamic_resources"`
		Stats struct {
			Tags []struct {
				Name  string `json:"tag_name"`
				Regex string
				Fixed string `json:"fixed_value"`
			} `json:"stats_tags"`
		} `json:"stats_config"`
		Flush string                  `json:"stats_flush_interval"`
		Sinks []struct{ Name string } `json:"stats_sinks"`
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	if b.Admin.Address.Socket.Address != "127.0.0.2" || b.Admin.Address.Socket.Port != 19001 || b.Node.Cluster != "web" ||
		b.Node.ID != "web-sidecar-proxy" ||
		b.Static.Clusters[0].Name != "local_agent" || b.Static.Listeners[0].Name != "envoy_prometheus_metrics_listener" ||
		b.Dynamic.ADS.API != "DELTA_GRPC" || b.Dynamic.ADS.GRPC.Metadata[0].Value != "secret" {
		t.Errorf("bootstrap:\n%s", text)
	}
	if b.Flush != "10s" || len(b.Sinks) != 2 || b.Sinks[1].Name != "envoy.stat_sinks.dog_statsd" ||
		!strings.Contains(text, `"path": "/run/statsd"`) ||
		!strings.Contains(text, `"cluster": "prometheus_backend"`) || !strings.Contains(text, `"path": "/scrape"`) {
		t.Errorf("what the registration sets:\n%s", text)
	}
	const stat = "cluster.v1.db.default.dc1.internal.11111111-2222-3333-4444-555555555555.consul.upstream_cx_total"
	want := map[string]string{"consul.destination.service": "db", "consul.destination.service_subset": "v1",
		"consul.destination.datacenter": "dc1", "consul.destination.routing_type": "internal"}
	want["team"] = "red"
	for _, tag := range b.Stats.Tags {
		if tag.Fixed == want[tag.Name] {
			delete(want, tag.Name)
			continue
		}
		if value, ok := want[tag.Name]; ok {
			if m := regexp.MustCompile(tag.Regex).FindStringSubmatch(stat); m == nil || m[2] != value {
				t.Errorf("%s of %s: %q, want %s (%s)", tag.Name, stat, m, value, tag.Regex)
			}
			delete(want, tag.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("no tags for %v", want)
	}
}

// TestEnvoyFindsItsProxy: by the service, with the agent's port; and what is said when something lacks.
func TestEnvoyFindsItsProxy(t *testing.T) {
	answers := map[string]string{"GET /v1/agent/services": `{"web-sidecar-proxy":` + sidecar + `}`,
		"GET /v1/agent/service/web-sidecar-proxy": sidecar,
		"GET /v1/agent/self":                      `{"xDS":{"Port":8502,"Ports":{"Plaintext":8502,"TLS":-1}}}`}
	if code, text := envoyRun(t, answers, "-sidecar-for=web", "-bootstrap"); code != 0 ||
		!strings.Contains(text, `"port_value": 8502`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := envoyRun(t, answers, "-sidecar-for=db", "-bootstrap"); code != 1 ||
		!strings.Contains(text, "no sidecar proxy registered for db") {
		t.Errorf("%d %s", code, text)
	}
	answers["GET /v1/catalog/node-services/far"] = `{"Node":{"Node":"far","Datacenter":"dc1"},"Services":[` +
		sidecar + `]}`
	if code, text := envoyRun(t, answers, "-proxy-id=web-sidecar-proxy", "-node-name=far", "-bootstrap"); code != 0 ||
		!strings.Contains(text, `"node_name": "far"`) {
		t.Errorf("on a node of the catalog: %d %s", code, text)
	}
	if code, text := envoyRun(t, answers, "-proxy-id=none", "-node-name=far", "-bootstrap"); code != 1 ||
		!strings.Contains(text, "no service none") {
		t.Errorf("on a node without it: %d %s", code, text)
	}
	answers["GET /v1/agent/self"] = "!403Permission denied"
	if code, text := envoyRun(t, answers, "-sidecar-for=web", "-bootstrap"); code != 0 ||
		!strings.Contains(text, `"port_value": 8502`) || !strings.Contains(text, "name it with --grpc-addr") {
		t.Errorf("without agent:read: %d %s", code, text)
	}
	if code, text := envoyRun(t, answers, "-sidecar-for=web", "-bootstrap", "-grpc-addr", "127.0.0.1:9502"); code != 0 ||
		strings.Contains(text, "--grpc-addr") {
		t.Errorf("with the address: %d %s", code, text)
	}
	answers["GET /v1/agent/self"] = `{}`
	if code, text := envoyRun(t, answers, "-sidecar-for=web", "-bootstrap"); code != 1 ||
		!strings.Contains(text, "serves no xDS") {
		t.Errorf("%d %s", code, text)
	}
}

// TestEnvoyRuns: Envoy gets its configuration on a pipe, its arguments, and its exit code comes out.
func TestEnvoyRuns(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho \"$*\"\ncat /dev/fd/3 | head -c 1\nexit 5\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{"GET /v1/agent/service/p": sidecar}
	code, text := envoyRun(t, answers, "-proxy-id=p", "-grpc-addr=127.0.0.1:1", "-envoy-binary", fake, "--", "-l")
	if code != 5 || text != "--config-path /dev/fd/3 --disable-hot-restart -l\n{" {
		t.Errorf("%d %q", code, text)
	}
	code, text = envoyRun(t, answers, "-proxy-id=p", "-grpc-addr=127.0.0.1:1", "-envoy-binary", fake, "--", "--base-id=7")
	if code != 5 || text != "--config-path /dev/fd/3 --base-id=7\n{" {
		t.Errorf("%d %q", code, text)
	}
}
