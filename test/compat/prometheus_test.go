package compat

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

const prometheusConfig = `
global: { scrape_interval: 1s, scrape_timeout: 1s }
scrape_configs:
  - job_name: corbel
    %[1]s
    metrics_path: /v1/agent/metrics
    params: { format: [prometheus] }
    relabel_configs:
      - { source_labels: [__meta_consul_service], target_label: service }
      - { source_labels: [__meta_consul_node], target_label: node }
      - { source_labels: [__meta_consul_service_metadata_team], target_label: team }
`

type promTargets struct {
	Data struct {
		ActiveTargets []struct {
			Labels    map[string]string
			ScrapeURL string
			Health    string
			LastError string
		}
	}
}

// prometheus is a running stock Prometheus and its address.
type prometheus struct {
	*child
	listen string
}

func startPrometheus(t *testing.T, discovery string) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		notRun(t, "prometheus is not installed")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "p.yml"), fmt.Appendf(nil, prometheusConfig, discovery), 0o600))
	ports, err := freePorts(1)
	must(t, err)
	p := &prometheus{listen: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	p.child, err = launch(program, "--config.file="+filepath.Join(dir, "p.yml"), "--storage.tsdb.path="+
		filepath.Join(dir, "data"), "--web.listen-address="+p.listen)
	must(t, err)
	t.Cleanup(p.kill)
	return p
}

// targets are those that it scrapes; a process that ended is an error.
func (p *prometheus) targets() (got promTargets, err error) {
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + p.listen + "/api/v1/targets?state=active")
	if err != nil {
		return got, fmt.Errorf("%w\n%s", err, p.logs.String())
	}
	defer func() { _ = resp.Body.Close() }()
	return got, json.NewDecoder(resp.Body).Decode(&got)
}

// awaitUp waits for one target that is scraped without error and whose labels fit.
func (p *prometheus) awaitUp(t *testing.T, labels map[string]string) {
	t.Helper()
	eventually(t, "Prometheus to scrape the server", func() error {
		got, err := p.targets()
		if err != nil {
			return err
		}
		if len(got.Data.ActiveTargets) != 1 {
			return fmt.Errorf("%d targets\n%s", len(got.Data.ActiveTargets), p.logs.String())
		}
		target := got.Data.ActiveTargets[0]
		for k, v := range labels {
			if target.Labels[k] != v {
				return fmt.Errorf("target %+v", target)
			}
		}
		if target.Health != "up" || target.LastError != "" {
			return fmt.Errorf("target %+v", target)
		}
		return nil
	})
}

// A stock Prometheus understands the metrics.
func TestPrometheusScrapes(t *testing.T) {
	t.Parallel()
	startPrometheus(t, "static_configs: [ { targets: ['"+server.http+"'] } ]").awaitUp(t, nil)
}

// A stock Prometheus finds a registered target, scrapes it, and drops it when it is deregistered.
func TestPrometheusDiscovery(t *testing.T) {
	t.Parallel()
	agent := consul(t).Agent()
	var port int
	_, err := fmt.Sscanf(server.http, "127.0.0.1:%d", &port)
	must(t, err)
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: "prom-1", Name: "prom-target", Address: "127.0.0.1",
		Port: port,
		Tags: []string{"scrape"}, Meta: map[string]string{"team": "core"}}))
	t.Cleanup(func() { _ = agent.ServiceDeregister("prom-1") })
	prom := startPrometheus(t, "consul_sd_configs: [ { server: '"+server.http+
		"', services: [prom-target], tags: [scrape] } ]")
	eventually(t, "Prometheus to answer or to end", func() error {
		select {
		case <-prom.done:
			return nil
		default:
			_, err := prom.targets()
			return err
		}
	})
	if strings.Contains(prom.logs.String(), "field consul_sd_configs not found") {
		notRun(t, "this build of Prometheus has no consul_sd_configs")
	}
	prom.awaitUp(t, map[string]string{"service": "prom-target", "node": server.name, "team": "core"})
	must(t, agent.ServiceDeregister("prom-1"))
	eventually(t, "Prometheus to drop the target", func() error {
		got, err := prom.targets()
		if err == nil && len(got.Data.ActiveTargets) != 0 {
			err = fmt.Errorf("targets %+v", got.Data.ActiveTargets)
		}
		return err
	})
}
