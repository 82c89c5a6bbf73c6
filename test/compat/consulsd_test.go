package compat

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	metrics "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	consulsd "github.com/prometheus/prometheus/discovery/consul"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

// discoverer is Prometheus's own consul_sd and the newest targets of each group that it sent.
type discoverer struct {
	mu     sync.Mutex
	groups map[string][]model.LabelSet
}

// discover runs consul_sd, as Prometheus does, until the test ends.
func discover(t *testing.T, conf *consulsd.SDConfig) *discoverer {
	t.Helper()
	registry := metrics.NewRegistry()
	refresh := discovery.NewRefreshMetrics(registry)
	must(t, refresh.Register())
	counts := conf.NewDiscovererMetrics(registry, refresh)
	must(t, counts.Register())
	found, err := conf.NewDiscoverer(discovery.DiscovererOptions{Metrics: counts})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	updates := make(chan []*targetgroup.Group)
	d := &discoverer{groups: map[string][]model.LabelSet{}}
	var all sync.WaitGroup
	all.Go(func() { found.Run(ctx, updates) })
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case groups := <-updates:
				d.take(groups)
			}
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
	return d
}

func (d *discoverer) take(groups []*targetgroup.Group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range groups {
		if g == nil {
			continue
		}
		d.groups[g.Source] = nil
		for _, target := range g.Targets {
			d.groups[g.Source] = append(d.groups[g.Source], g.Labels.Merge(target))
		}
	}
}

// await waits until the targets are those of the given addresses, and returns the first.
func (d *discoverer) await(t *testing.T, addresses ...model.LabelValue) (first model.LabelSet) {
	t.Helper()
	eventually(t, fmt.Sprintf("targets %v", addresses), func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		have := map[model.LabelValue]model.LabelSet{}
		for _, targets := range d.groups {
			for _, target := range targets {
				have[target[model.AddressLabel]] = target
			}
		}
		for _, address := range addresses {
			if have[address] == nil {
				return fmt.Errorf("targets %v", d.groups)
			}
		}
		if len(have) != len(addresses) {
			return fmt.Errorf("targets %v", d.groups)
		}
		if len(addresses) > 0 {
			first = have[addresses[0]]
		}
		return nil
	})
	return first
}

// Prometheus's consul_sd, by named service and by tags and filters over the whole catalog: targets
// come with their labels, change and vanish. It is the module of Prometheus itself, as distributions
// build the program without it.
func TestConsulSD(t *testing.T) {
	t.Parallel()
	agent := consul(t).Agent()
	conf := func(change func(*consulsd.SDConfig)) *consulsd.SDConfig {
		c := consulsd.DefaultSDConfig
		c.Server, c.RefreshInterval, c.HTTPClientConfig = server.http, model.Duration(100*time.Millisecond),
			config.DefaultHTTPClientConfig
		change(&c)
		return &c
	}
	named := discover(t, conf(func(c *consulsd.SDConfig) { c.Services = []string{"sd-web"} }))
	tagged := discover(t, conf(func(c *consulsd.SDConfig) { c.ServiceTags = []string{"sd-scrape"} }))
	healthy := discover(t, conf(func(c *consulsd.SDConfig) {
		c.Services, c.HealthFilter = []string{"sd-web"}, `Service.Meta.team == "core"`
	}))
	register := func(id string, port int, team string, tags ...string) {
		t.Helper()
		must(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: id, Name: "sd-web", Address: "10.4.4.4", Port: port,
			Tags: tags, Meta: map[string]string{"team": team}}))
		t.Cleanup(func() { _ = agent.ServiceDeregister(id) })
	}
	register("sd-1", 91, "core", "sd-scrape", "blue")
	register("sd-2", 92, "edge")
	got := named.await(t, "10.4.4.4:91", "10.4.4.4:92")
	for label, want := range map[model.LabelName]model.LabelValue{
		"__meta_consul_node": model.LabelValue(server.name), "__meta_consul_dc": "dc1", "__meta_consul_service": "sd-web",
		"__meta_consul_service_id":   "sd-1",
		"__meta_consul_service_port": "91", "__meta_consul_service_address": "10.4.4.4", "__meta_consul_address": "127.0.0.1",
		"__meta_consul_health": "passing",
		"__meta_consul_tags":   ",sd-scrape,blue,", "__meta_consul_service_metadata_team": "core",
		"__meta_consul_tagged_address_lan": "127.0.0.1",
	} {
		if got[label] != want {
			t.Errorf("%s is %q, want %q", label, got[label], want)
		}
	}
	tagged.await(t, "10.4.4.4:91")
	healthy.await(t, "10.4.4.4:91")
	register("sd-2", 93, "core", "sd-scrape")
	tagged.await(t, "10.4.4.4:91", "10.4.4.4:93")
	healthy.await(t, "10.4.4.4:91", "10.4.4.4:93")
	must(t, agent.ServiceDeregister("sd-1"))
	named.await(t, "10.4.4.4:93")
	tagged.await(t, "10.4.4.4:93")
	must(t, agent.ServiceDeregister("sd-2"))
	for _, d := range []*discoverer{named, tagged, healthy} {
		d.await(t)
	}
}
