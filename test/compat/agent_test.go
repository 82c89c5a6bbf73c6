package compat

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// TestChecksOfEveryOtherKind: UDP, HTTP/2 ping, aliases, and the kinds that are taken without being run.
func TestChecksOfEveryOtherKind(t *testing.T) {
	t.Parallel()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer udp.Close()
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo([]byte("pong"), from)
		}
	}()
	h2 := httptest.NewUnstartedServer(http.NotFoundHandler())
	h2.EnableHTTP2 = true
	h2.StartTLS()
	defer h2.Close()
	withCheck(t, "kind-udp", &api.AgentServiceCheck{UDP: udp.LocalAddr().String(), Interval: "1s", Timeout: "5s"})
	withCheck(t, "kind-h2", &api.AgentServiceCheck{H2PING: h2.Listener.Addr().String(), TLSSkipVerify: true,
		Interval: "1s", Timeout: "5s"})
	withCheck(t, "kind-docker", &api.AgentServiceCheck{DockerContainerID: "f972c95ebf0e", Shell: "/bin/sh",
		Args: []string{"true"}, Interval: "1s", Status: api.HealthPassing})
	withCheck(t, "kind-target", &api.AgentServiceCheck{CheckID: "target-ttl", TTL: "10m", Status: api.HealthWarning})
	withCheck(t, "kind-alias", &api.AgentServiceCheck{CheckID: "alias", AliasService: "kind-target"})
	withCheck(t, "kind-far-alias", &api.AgentServiceCheck{AliasNode: server.name, AliasService: "kind-target"})
	seen(t, server, "kind-udp", api.HealthPassing)
	seen(t, server, "kind-h2", api.HealthPassing)
	seen(t, server, "kind-docker", api.HealthCritical)
	seen(t, server, "kind-alias", api.HealthWarning)
	seen(t, server, "kind-far-alias", api.HealthWarning)
	must(t, consul(t).Agent().UpdateTTL("target-ttl", "fine now", api.HealthPassing))
	seen(t, server, "kind-alias", api.HealthPassing)
	checks, err := consul(t).Agent().Checks()
	must(t, err)
	if c := checks["service:kind-docker"]; c == nil || !strings.Contains(c.Output, "not supported yet") {
		t.Errorf("docker check %+v", c)
	}
	if c := checks["alias"]; c == nil || c.Output != "All checks passing." {
		t.Errorf("alias %+v", c)
	}
}

// TestCheckRules: what a definition may not say, in the words that clients show.
func TestCheckRules(t *testing.T) {
	agent := consul(t).Agent()
	for want, c := range map[string]api.AgentServiceCheck{
		"Interval must be > 0":                    {TCP: "127.0.0.1:1"},
		"TTL must be > 0":                         {},
		"Interval cannot be set for Alias checks": {AliasService: "x", Interval: "1s"},
		"cannot both be specified":                {TTL: "1s", Interval: "1s", HTTP: "http://127.0.0.1"},
		"FailuresBeforeWarning can't be higher": {TCP: "127.0.0.1:1", Interval: "1s", FailuresBeforeWarning: 3,
			FailuresBeforeCritical: 2},
		"Request decode failed": {TCP: "127.0.0.1:1", Interval: "soon"},
	} {
		err := agent.CheckRegister(&api.AgentCheckRegistration{Name: "rule", AgentServiceCheck: c})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "400") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if err := agent.UpdateTTL("no-such-check", "", "passing"); err == nil ||
		!strings.Contains(err.Error(), `Unknown check ID "no-such-check"`) {
		t.Errorf("heartbeat of an unknown check: %v", err)
	}
}

func TestSidecar(t *testing.T) {
	t.Parallel()
	agent := consul(t).Agent()
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "meshed", Port: 8000, Tags: []string{"v1"},
		Connect: &api.AgentServiceConnect{SidecarService: &api.AgentServiceRegistration{
			Proxy: &api.AgentServiceConnectProxyConfig{
				Upstreams: []api.Upstream{{DestinationName: "db", LocalBindPort: 9191}}}}}}))
	services, err := agent.Services()
	must(t, err)
	p := services["meshed-sidecar-proxy"]
	if p == nil || p.Kind != api.ServiceKindConnectProxy || p.Port < 21000 || p.Port > 21255 || p.Tags[0] != "v1" ||
		p.Proxy.DestinationServiceID != "meshed" || p.Proxy.LocalServicePort != 8000 ||
		p.Proxy.Upstreams[0].LocalBindPort != 9191 {
		t.Fatalf("sidecar %+v", p)
	}
	eventually(t, "the sidecar among the connect instances", func() error {
		entries, _, err := consul(t).Health().Connect("meshed", "", false, nil)
		if err == nil && len(entries) != 1 {
			err = fmt.Errorf("%d entries", len(entries))
		}
		return err
	})
	must(t, agent.ServiceDeregister("meshed"))
	services, err = agent.Services()
	must(t, err)
	if services["meshed-sidecar-proxy"] != nil || services["meshed"] != nil {
		t.Errorf("left behind: %v", services)
	}
}

// TestCachedReads: on a server and on a client agent, where one background query keeps the answer.
func TestCachedReads(t *testing.T) {
	t.Parallel()
	ends := run(t, "agent", "cacher", "-data-dir="+t.TempDir(), "-hcl", open, "-retry-join="+server.gossip)
	must(t, ends.await())
	must(t, consul(t).Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "cached-1", Name: "cached", Port: 1}))
	t.Cleanup(func() { _ = consul(t).Agent().ServiceDeregister("cached-1") })
	for _, n := range []*node{server, ends} {
		health := n.client(t).Health()
		var meta *api.QueryMeta
		eventually(t, n.name+" to answer from its cache", func() error {
			entries, m, err := health.Service("cached", "", false, &api.QueryOptions{UseCache: true})
			if meta = m; err == nil && (len(entries) != 1 || !m.CacheHit || m.CacheAge > time.Second) {
				err = fmt.Errorf("%d entries, %+v", len(entries), m)
			}
			return err
		})
		if meta.LastIndex == 0 {
			t.Errorf("%s: meta %+v", n.name, meta)
		}
		if n == ends && meta.QueryBackend != api.QueryBackendStreaming {
			t.Errorf("the agent's backend is %q", meta.QueryBackend)
		}
	}
	must(t, consul(t).Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "cached-2", Name: "cached", Port: 2}))
	t.Cleanup(func() { _ = consul(t).Agent().ServiceDeregister("cached-2") })
	eventually(t, "the change in the agent's cache", func() error {
		entries, m, err := ends.client(t).Health().Service("cached", "", false, &api.QueryOptions{UseCache: true})
		if err == nil && (len(entries) != 2 || !m.CacheHit) {
			err = fmt.Errorf("%d entries, %+v", len(entries), m)
		}
		return err
	})
	if _, _, err := consul(t).Catalog().Service("cached", "", &api.QueryOptions{UseCache: true, MaxAge: time.Minute,
		StaleIfError: time.Minute}); err != nil {
		t.Error(err)
	}
}

// TestServiceHash blocks on the content of a registration.
func TestServiceHash(t *testing.T) {
	t.Parallel()
	agent := consul(t).Agent()
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "hashed", Port: 1}))
	t.Cleanup(func() { _ = agent.ServiceDeregister("hashed") })
	s, meta, err := agent.Service("hashed", nil)
	must(t, err)
	if s.ContentHash == "" || meta.LastContentHash != s.ContentHash {
		t.Fatalf("hash %q, meta %+v", s.ContentHash, meta)
	}
	same, _, err := agent.Service("hashed", &api.QueryOptions{WaitHash: s.ContentHash, WaitTime: 100 * time.Millisecond})
	if err != nil || same.ContentHash != s.ContentHash {
		t.Errorf("a wait that ran out: %+v, %v", same, err)
	}
	changed := make(chan error, 1)
	go func() {
		fresh, _, err := agent.Service("hashed", &api.QueryOptions{WaitHash: s.ContentHash, WaitTime: time.Minute})
		if err == nil && fresh.Port != 2 {
			err = fmt.Errorf("woke with %+v", fresh)
		}
		changed <- err
	}()
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "hashed", Port: 2}))
	select {
	case err := <-changed:
		must(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the query did not wake")
	}
	if _, _, err := agent.Service("nobody", nil); err == nil ||
		!strings.Contains(err.Error(), "unknown service ID: nobody") {
		t.Errorf("an unknown service: %v", err)
	}
}

func TestAgentTellsAboutItself(t *testing.T) {
	t.Parallel()
	agent := consul(t).Agent()
	host, err := agent.Host()
	must(t, err)
	if host["Memory"] == nil || host["CPU"] == nil || host["Host"] == nil || host["Disk"] == nil {
		t.Errorf("host %v", host)
	}
	metrics, err := agent.Metrics()
	must(t, err)
	if metrics.Timestamp == "" || len(metrics.Gauges) == 0 {
		t.Errorf("metrics %+v", metrics)
	}
	stop := make(chan struct{})
	defer close(stop)
	lines, err := agent.Monitor("debug", stop, nil)
	must(t, err)
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "logged", Port: 1}))
	t.Cleanup(func() { _ = agent.ServiceDeregister("logged") })
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case line := <-lines:
		if !strings.Contains(line, "[DEBUG]") && !strings.Contains(line, "[INFO]") {
			t.Errorf("the log says %q", line)
		}
	case <-timer.C:
		t.Error("no line came")
	}
	stream, err := http.Get("http://" + server.http + "/v1/agent/metrics/stream")
	must(t, err)
	defer stream.Body.Close()
	if line, err := bufio.NewReader(stream.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"Gauges"`) {
		t.Errorf("the stream begins with %.80q, %v", line, err)
	}
	self, err := agent.Self()
	must(t, err)
	for section, names := range map[string][]string{
		"agent": {"check_monitors", "check_ttls", "checks", "services"}, "build": {"prerelease", "revision", "version",
			"version_metadata"},
		"consul": {"acl", "bootstrap", "known_datacenters", "leader", "leader_addr", "server"},
		"raft": {"applied_index", "commit_index", "fsm_pending", "last_contact", "last_log_index", "last_log_term",
			"last_snapshot_index",
			"num_peers", "protocol_version", "state", "term"},
		"runtime":  {"arch", "cpu_count", "goroutines", "max_procs", "os", "version"},
		"serf_lan": {"members", "failed", "left", "encrypted"},
	} {
		got, _ := self["Stats"][section].(map[string]any)
		for _, name := range names {
			if _, ok := got[name].(string); !ok {
				t.Errorf("Stats.%s.%s is %v", section, name, got[name])
			}
		}
	}
	if addr, ok := self["DebugConfig"]["SerfAdvertiseAddrLAN"].(string); !ok ||
		agent.Join(strings.TrimPrefix(addr, "tcp://"), false) != nil {
		t.Errorf("joining %v, itself, failed", addr)
	}
	if _, err := agent.UpdateDefaultACLToken("root", nil); err != nil { // the token of dev, which has all rights
		t.Errorf("setting a token: %v", err)
	}
	if _, err := agent.UpdateDefaultACLToken("", nil); err != nil {
		t.Errorf("taking it back: %v", err)
	}
	if err := agent.ForceLeave("nobody"); err == nil ||
		!strings.Contains(err.Error(), "agent: No node found with name 'nobody'") {
		t.Errorf("force-leave of nobody: %v", err)
	}
}

// TestFilters: quantifiers, and errors in the words that clients know.
func TestFilters(t *testing.T) {
	t.Parallel()
	agent := consul(t).Agent()
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "filtered", Port: 1, Tags: []string{"a", "b"},
		Meta: map[string]string{"k": "v"}}))
	t.Cleanup(func() { _ = agent.ServiceDeregister("filtered") })
	for expression, want := range map[string]int{
		`Service == filtered and a in Tags`:                     1,
		`Service == filtered or any Tags as t { t == "never" }`: 1,
		`any Meta as k, v { k == "k" and v == "v" }`:            1,
		`all Tags as t { t == a } `:                             -1, // whatever: services without tags match too
		`"/Meta/k" == v`:                                        1,
		`Service == filtered and not (Meta.k == v)`:             0,
	} {
		services, err := agent.ServicesWithFilter(expression)
		if err != nil || want >= 0 && len(services) != want {
			t.Errorf("%s: %d services, %v", expression, len(services), err)
		}
	}
	if _, err := agent.ServicesWithFilter("Service ="); err == nil ||
		!strings.Contains(err.Error(), "Failed to create boolean expression evaluator") {
		t.Errorf("a broken filter: %v", err)
	}
}

// TestLeaveIsKnownWhenItAnswers: the others see the member as left once the call returns.
func TestLeaveIsKnownWhenItAnswers(t *testing.T) {
	t.Parallel()
	guest := run(t, "agent", "guest", "-data-dir="+t.TempDir(), "-hcl", open, "-retry-join="+server.gossip)
	must(t, guest.await())
	must(t, guest.client(t).Agent().Leave())
	eventually(t, "guest to be seen as left", func() error {
		members, err := consul(t).Agent().Members(false)
		for _, m := range members {
			if m.Name == "guest" && m.Status != 3 {
				err = fmt.Errorf("its status is %d", m.Status)
			}
		}
		return err
	})
	<-guest.done
}

// TestMaintenanceSurvivesKill: of the node and of a service.
func TestMaintenanceSurvivesKill(t *testing.T) {
	t.Parallel()
	n := run(t, "dev", "tired", "-data-dir="+t.TempDir())
	must(t, n.await())
	agent := n.client(t).Agent()
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "worn", Port: 1}))
	must(t, agent.EnableNodeMaintenance("new disk"))
	must(t, agent.EnableServiceMaintenance("worn", "new belt"))
	n.kill()
	must(t, n.start())
	must(t, n.await())
	checks, err := agent.Checks()
	must(t, err)
	if c := checks["_node_maintenance"]; c == nil || c.Notes != "new disk" || c.Status != api.HealthCritical {
		t.Errorf("node maintenance %+v", c)
	}
	if c := checks["_service_maintenance:worn"]; c == nil || c.Notes != "new belt" {
		t.Errorf("service maintenance %+v", c)
	}
	if status, info, err := agent.AgentHealthServiceByID("worn"); err != nil || status != api.HealthCritical ||
		info.AggregatedStatus != api.HealthMaint {
		t.Errorf("aggregate %s, %+v, %v", status, info, err)
	}
	must(t, agent.DisableNodeMaintenance())
	must(t, agent.DisableServiceMaintenance("worn"))
	eventually(t, "the service to pass again", func() error {
		entries, _, err := n.client(t).Health().Service("worn", "", true, nil)
		if err == nil && len(entries) != 1 {
			err = fmt.Errorf("%d pass", len(entries))
		}
		return err
	})
}
