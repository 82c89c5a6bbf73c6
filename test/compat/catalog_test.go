package compat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/miekg/dns"
)

func TestAgentServiceAndCheck(t *testing.T) {
	c := consul(t)
	agent := c.Agent()
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{
		ID: "web-1", Name: "web", Port: 8080, Address: "10.1.2.3", Tags: []string{"v1", "primary"},
		Meta:  map[string]string{"a": "b"},
		Check: &api.AgentServiceCheck{CheckID: "web-ttl", TTL: "1m"},
	}))
	t.Cleanup(func() { _ = agent.ServiceDeregister("web-1") })
	services, err := agent.Services()
	must(t, err)
	if s := services["web-1"]; s == nil || s.Service != "web" || s.Port != 8080 || s.Meta["a"] != "b" ||
		!slices.Equal(s.Tags, []string{"v1", "primary"}) {
		t.Fatalf("agent has %+v", s)
	}
	passing := func(want int) func() error {
		return func() error {
			entries, _, err := c.Health().Service("web", "v1", true, nil)
			if err == nil && len(entries) != want {
				err = fmt.Errorf("%d entries, want %d", len(entries), want)
			}
			return err
		}
	}
	eventually(t, "the critical service to stay out of passing", passing(0))
	must(t, agent.UpdateTTL("web-ttl", "fine", api.HealthPassing))
	eventually(t, "the service to pass", passing(1))
	entries, meta, err := c.Health().Service("web", "", true, nil)
	must(t, err)
	if e := entries[0]; e.Node.Node != server.name || e.Service.Address != "10.1.2.3" ||
		e.Checks.AggregatedStatus() != api.HealthPassing {
		t.Fatalf("entry %+v", e)
	}
	if meta.LastIndex == 0 || !meta.KnownLeader {
		t.Errorf("meta %+v", meta)
	}
	must(t, agent.EnableServiceMaintenance("web-1", "moving"))
	eventually(t, "maintenance to take it out", passing(0))
	must(t, agent.DisableServiceMaintenance("web-1"))
	eventually(t, "it to come back", passing(1))

	// A blocking query wakes on the change and not before.
	woken := make(chan error, 1)
	go func() {
		entries, next, err := c.Health().Service("web", "", true, &api.QueryOptions{WaitIndex: meta.LastIndex,
			WaitTime: 10 * time.Second})
		for err == nil && len(entries) > 0 {
			entries, next, err = c.Health().Service("web", "", true, &api.QueryOptions{WaitIndex: next.LastIndex,
				WaitTime: 10 * time.Second})
		}
		woken <- err
	}()
	must(t, agent.ServiceDeregister("web-1"))
	select {
	case err := <-woken:
		must(t, err)
	case <-time.After(12 * time.Second):
		t.Fatal("a blocking query did not see the deregistration")
	}
}

func TestAgentSelfAndMembers(t *testing.T) {
	c := consul(t)
	self, err := c.Agent().Self()
	must(t, err)
	if self["Config"]["NodeName"] != server.name || self["Member"] == nil {
		t.Errorf("self: %v", self["Config"])
	}
	version, err := exec.Command(bin, "consul", "version", "-format=json").Output()
	must(t, err)
	var printed struct{ Version string }
	must(t, json.Unmarshal(version, &printed))
	eventually(t, "the node's version in the catalog", func() error {
		node, _, err := c.Catalog().Node(server.name, nil)
		if err == nil && (node == nil || node.Node.Meta["consul-version"] != printed.Version) {
			err = fmt.Errorf("printed %q, catalog %+v", printed.Version, node)
		}
		return err
	})
	if self["Config"]["Version"] != printed.Version {
		t.Errorf("self says %v, the command %q", self["Config"]["Version"], printed.Version)
	}
	members, err := c.Agent().Members(false)
	must(t, err)
	if len(members) != 1 || members[0].Name != server.name || members[0].Status != 1 {
		t.Errorf("members: %+v", members)
	}
	name, err := c.Agent().NodeName()
	must(t, err)
	if name != server.name {
		t.Errorf("node name %q", name)
	}
}

func TestCatalogRegistration(t *testing.T) {
	c := consul(t).Catalog()
	_, err := c.Register(&api.CatalogRegistration{Node: "ext", Address: "10.9.9.9",
		NodeMeta: map[string]string{"external": "yes"},
		Service:  &api.AgentService{ID: "db", Service: "db", Port: 5432, Tags: []string{"rw"}},
		Check:    &api.AgentCheck{Node: "ext", CheckID: "db-up", Name: "up", Status: api.HealthPassing, ServiceID: "db"}},
		nil)
	must(t, err)
	nodes, _, err := c.Nodes(&api.QueryOptions{NodeMeta: map[string]string{"external": "yes"}})
	must(t, err)
	if len(nodes) != 1 || nodes[0].Node != "ext" {
		t.Fatalf("nodes: %+v", nodes)
	}
	services, _, err := c.Services(nil)
	must(t, err)
	if !slices.Equal(services["db"], []string{"rw"}) {
		t.Errorf("services: %v", services)
	}
	instances, _, err := c.Service("db", "rw", &api.QueryOptions{Filter: `ServicePort == 5432`})
	must(t, err)
	if len(instances) != 1 || instances[0].Address != "10.9.9.9" {
		t.Errorf("instances: %+v", instances)
	}
	checks, _, err := consul(t).Health().Node("ext", nil)
	must(t, err)
	if len(checks) != 1 || checks[0].ServiceName != "db" {
		t.Errorf("checks: %+v", checks)
	}
	_, err = c.Deregister(&api.CatalogDeregistration{Node: "ext"}, nil)
	must(t, err)
	node, _, err := c.Node("ext", nil)
	if err != nil || node != nil {
		t.Errorf("after deregistration: %+v, %v", node, err)
	}
}

func TestKV(t *testing.T) {
	kv := consul(t).KV()
	_, err := kv.Put(&api.KVPair{Key: "kv/a", Value: []byte("one"), Flags: 42}, nil)
	must(t, err)
	pair, meta, err := kv.Get("kv/a", nil)
	must(t, err)
	if string(pair.Value) != "one" || pair.Flags != 42 || pair.CreateIndex == 0 || meta.LastIndex < pair.ModifyIndex {
		t.Fatalf("pair %+v, meta %+v", pair, meta)
	}
	stale := *pair
	pair.Value = []byte("two")
	ok, _, err := kv.CAS(pair, nil)
	if err != nil || !ok {
		t.Fatalf("cas: %t, %v", ok, err)
	}
	if ok, _, err = kv.CAS(&stale, nil); err != nil || ok {
		t.Fatalf("cas on an old index: %t, %v", ok, err)
	}
	_, err = kv.Put(&api.KVPair{Key: "kv/b/c", Value: nil}, nil)
	must(t, err)
	keys, _, err := kv.Keys("kv/", "/", nil)
	must(t, err)
	if !slices.Equal(keys, []string{"kv/a", "kv/b/"}) {
		t.Errorf("keys: %q", keys)
	}
	pairs, _, err := kv.List("kv/", &api.QueryOptions{RequireConsistent: true})
	must(t, err)
	if len(pairs) != 2 {
		t.Errorf("list: %v", pairs)
	}
	changed := make(chan string, 1)
	go func() {
		p, _, err := kv.Get("kv/a", &api.QueryOptions{WaitIndex: meta.LastIndex + 1, WaitTime: 10 * time.Second})
		if err != nil || p == nil {
			changed <- fmt.Sprint(p, err)
			return
		}
		changed <- string(p.Value)
	}()
	_, err = kv.Put(&api.KVPair{Key: "kv/a", Value: []byte("three")}, nil)
	must(t, err)
	if got := <-changed; got != "three" && got != "two" {
		t.Errorf("blocking query got %q", got)
	}
	if _, err = kv.DeleteTree("kv/", nil); err != nil {
		t.Fatal(err)
	}
	if pair, _, err := kv.Get("kv/a", nil); err != nil || pair != nil {
		t.Errorf("after deletion: %v, %v", pair, err)
	}
}

func TestTxn(t *testing.T) {
	c := consul(t)
	ok, resp, _, err := c.Txn().Txn(api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVSet, Key: "txn/a", Value: []byte("1")}},
		{KV: &api.KVTxnOp{Verb: api.KVSet, Key: "txn/b", Value: []byte("2")}},
		{KV: &api.KVTxnOp{Verb: api.KVGet, Key: "txn/a"}},
	}, nil)
	must(t, err)
	if !ok || len(resp.Results) != 3 || string(resp.Results[2].KV.Value) != "1" {
		t.Fatalf("%t %+v", ok, resp)
	}
	ok, resp, _, err = c.Txn().Txn(api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVSet, Key: "txn/a", Value: []byte("changed")}},
		{KV: &api.KVTxnOp{Verb: api.KVCheckNotExists, Key: "txn/b"}},
	}, nil)
	must(t, err)
	if ok || len(resp.Errors) != 1 || resp.Errors[0].OpIndex != 1 {
		t.Fatalf("a failing transaction: %t %+v", ok, resp)
	}
	pair, _, err := c.KV().Get("txn/a", nil)
	must(t, err)
	if string(pair.Value) != "1" {
		t.Errorf("half of a failed transaction was applied: %q", pair.Value)
	}
}

func TestSession(t *testing.T) {
	c := consul(t)
	id, _, err := c.Session().Create(&api.SessionEntry{Name: "s", TTL: "15s", Behavior: api.SessionBehaviorDelete,
		LockDelay: time.Millisecond}, nil)
	must(t, err)
	info, _, err := c.Session().Info(id, nil)
	must(t, err)
	if info == nil || info.Name != "s" || info.Node != server.name || info.TTL != "15s" {
		t.Fatalf("session %+v", info)
	}
	renewed, _, err := c.Session().Renew(id, nil)
	if err != nil || renewed.ID != id {
		t.Fatalf("renew: %+v, %v", renewed, err)
	}
	ok, _, err := c.KV().Acquire(&api.KVPair{Key: "session/k", Value: []byte("mine"), Session: id}, nil)
	if err != nil || !ok {
		t.Fatalf("acquire: %t, %v", ok, err)
	}
	_, err = c.Session().Destroy(id, nil)
	must(t, err)
	if pair, _, err := c.KV().Get("session/k", nil); err != nil || pair != nil {
		t.Errorf("the session's key outlived it: %+v, %v", pair, err)
	}
	if info, _, err := c.Session().Info(id, nil); err != nil || info != nil {
		t.Errorf("after destroying: %+v, %v", info, err)
	}
}

func TestLock(t *testing.T) {
	c := consul(t)
	first, err := c.LockOpts(&api.LockOptions{Key: "lock/l", LockDelay: time.Millisecond})
	must(t, err)
	lost, err := first.Lock(nil)
	must(t, err)
	second, err := c.LockOpts(&api.LockOptions{Key: "lock/l", LockTryOnce: true, LockWaitTime: 100 * time.Millisecond})
	must(t, err)
	if held, err := second.Lock(nil); err != nil || held != nil {
		t.Fatalf("two holders: %v, %v", held, err)
	}
	select {
	case <-lost:
		t.Fatal("the lock was lost")
	default:
	}
	must(t, first.Unlock())
	waiting, err := c.LockOpts(&api.LockOptions{Key: "lock/l"})
	must(t, err)
	lost, err = waiting.Lock(nil)
	must(t, err)
	pair, _, err := c.KV().Get("lock/l", nil)
	must(t, err)
	_, err = c.Session().Destroy(pair.Session, nil)
	must(t, err)
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Fatal("the holder did not hear that its session is gone")
	}
}

func TestSemaphore(t *testing.T) {
	c := consul(t)
	var held []*api.Semaphore
	for range 2 {
		s, err := c.SemaphorePrefix("sema/s", 2)
		must(t, err)
		_, err = s.Acquire(nil)
		must(t, err)
		held = append(held, s)
	}
	third, err := c.SemaphoreOpts(&api.SemaphoreOptions{Prefix: "sema/s", Limit: 2, SemaphoreTryOnce: true,
		SemaphoreWaitTime: 100 * time.Millisecond})
	must(t, err)
	if got, err := third.Acquire(nil); err != nil || got != nil {
		t.Fatalf("three holders of two: %v, %v", got, err)
	}
	must(t, held[0].Release())
	if got, err := third.Acquire(nil); err != nil || got == nil {
		t.Fatalf("after a release: %v, %v", got, err)
	}
	must(t, third.Release())
	must(t, held[1].Release())
	must(t, held[1].Destroy())
}

func TestStatusAndOperator(t *testing.T) {
	c := consul(t)
	peers, err := c.Status().Peers()
	if err != nil || len(peers) != 1 {
		t.Errorf("peers: %v, %v", peers, err)
	}
	raft, err := c.Operator().RaftGetConfiguration(nil)
	must(t, err)
	if len(raft.Servers) != 1 || !raft.Servers[0].Leader || !raft.Servers[0].Voter {
		t.Errorf("raft: %+v", raft.Servers)
	}
	// Autopilot looks every few seconds: what it says of the first one is from before the server led.
	eventually(t, "a healthy server", func() error {
		health, err := c.Operator().AutopilotServerHealth(nil)
		if err == nil && (!health.Healthy || len(health.Servers) != 1) {
			err = fmt.Errorf("autopilot: %+v", health)
		}
		return err
	})
	before, err := c.Operator().AutopilotGetConfiguration(nil)
	must(t, err)
	// A client sends only what it changes.
	must(t, c.Operator().AutopilotSetConfiguration(&api.AutopilotConfiguration{CleanupDeadServers: false}, nil))
	got, err := c.Operator().AutopilotGetConfiguration(nil)
	must(t, err)
	if got.CleanupDeadServers {
		t.Errorf("autopilot configuration: %+v", got)
	}
	must(t, c.Operator().AutopilotSetConfiguration(before, nil))
	must(t, c.Agent().ForceLeave(server.name)) // alive: accepted, and not moved
	members, err := c.Agent().Members(false)
	if err != nil || len(members) != 1 || members[0].Status != 1 {
		t.Errorf("members: %+v, %v", members, err)
	}
}

func TestDNS(t *testing.T) {
	c := consul(t)
	must(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "dns-1", Name: "named", Port: 4321,
		Address: "10.7.7.7", Tags: []string{"blue"}}))
	t.Cleanup(func() { _ = c.Agent().ServiceDeregister("dns-1") })
	ask := func(network, name string, kind uint16) (*dns.Msg, error) {
		m := new(dns.Msg)
		m.SetQuestion(name, kind)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		answer, _, err := (&dns.Client{Net: network}).ExchangeContext(ctx, m, server.dns)
		return answer, err
	}
	for _, network := range []string{"udp", "tcp"} {
		eventually(t, "the service in DNS over "+network, func() error {
			m, err := ask(network, "blue.named.service.consul.", dns.TypeA)
			if err != nil {
				return err
			}
			if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "10.7.7.7" {
				return fmt.Errorf("answer %v", m.Answer)
			}
			return nil
		})
	}
	m, err := ask("udp", "named.service.consul.", dns.TypeSRV)
	must(t, err)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.SRV).Port != 4321 {
		t.Errorf("SRV: %v", m.Answer)
	}
	if m, err = ask("udp", "nothing-here.service.consul.", dns.TypeA); err != nil || m.Rcode != dns.RcodeNameError {
		t.Errorf("unknown name: %v, %v", m, err)
	}
	if m, err = ask("udp", server.name+".node.consul.", dns.TypeA); err != nil || len(m.Answer) == 0 {
		t.Errorf("node: %v, %v", m, err)
	}
}

func TestErrorsReadAsTheClientExpects(t *testing.T) {
	c := consul(t)
	_, _, err := c.Catalog().Nodes(&api.QueryOptions{Datacenter: "nowhere"})
	var status api.StatusError
	if !errors.As(err, &status) || status.Code != 500 {
		t.Errorf("unknown datacenter: %v", err)
	}
	err = c.Agent().ServiceRegister(&api.AgentServiceRegistration{})
	if !errors.As(err, &status) || status.Code != 400 {
		t.Errorf("a service without a name: %v", err)
	}
	if err := c.Agent().CheckDeregister("no-such-check"); !errors.As(err, &status) || status.Code != 404 {
		t.Errorf("an unknown check: %v", err)
	}
}
