package compat

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/miekg/dns"
)

// open is the configuration of servers and agents that ask for no tokens.
const open = `acl { enabled = false }`

// threeServers starts a cluster on loopback and waits until all know each other.
func threeServers(t *testing.T) []*node {
	t.Helper()
	var nodes []*node
	for i := range 3 {
		args := []string{"-data-dir=" + t.TempDir(), "-bootstrap-expect=3", "-hcl", open}
		for _, other := range nodes {
			args = append(args, "-retry-join="+other.gossip)
		}
		nodes = append(nodes, run(t, "server", fmt.Sprintf("srv-%d", i+1), args...))
	}
	for _, n := range nodes {
		must(t, n.await())
	}
	for _, n := range nodes {
		eventually(t, n.name+" to see three servers", func() error {
			peers, err := n.client(t).Status().Peers()
			if err == nil && len(peers) != 3 {
				err = fmt.Errorf("peers %v", peers)
			}
			if err != nil {
				return err
			}
			entries, _, err := n.client(t).Health().Service("consul", "", true, nil)
			if err == nil && len(entries) != 3 {
				err = fmt.Errorf("%d entries of consul", len(entries))
			}
			return err
		})
	}
	return nodes
}

func TestClusterLosesItsLeader(t *testing.T) {
	nodes := threeServers(t)
	agent := run(t, "agent", "host-1", "-data-dir="+t.TempDir(), "-hcl", open, "-retry-join="+nodes[0].gossip,
		"-retry-join="+nodes[1].gossip)
	must(t, agent.await())
	must(t, agent.client(t).Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "roaming", Port: 7000,
		Address: "10.3.3.3",
		Check:   &api.AgentServiceCheck{CheckID: "roaming", TTL: "10m", Status: api.HealthPassing}}))
	for _, n := range append(nodes, agent) {
		seen(t, n, "roaming", api.HealthPassing)
	}
	leader, rest := split(t, nodes)
	client := rest[0].client(t)
	_, err := client.KV().Put(&api.KVPair{Key: "before", Value: []byte("1")}, nil)
	must(t, err)
	_, meta, err := client.KV().Get("before", nil)
	must(t, err)
	woken := make(chan error, 1)
	go func() { woken <- watchAcross(client, meta.LastIndex) }()
	leader.kill()
	// The client keeps asking the same follower: writes fail for the election and then go on.
	eventually(t, "writes to go on", func() error {
		_, err := client.KV().Put(&api.KVPair{Key: "before", Value: []byte("2")}, nil)
		return err
	})
	pair, _, err := client.KV().Get("before", &api.QueryOptions{RequireConsistent: true})
	must(t, err)
	if string(pair.Value) != "2" {
		t.Errorf("the new leader has %q", pair.Value)
	}
	select {
	case err := <-woken:
		must(t, err)
	case <-time.After(20 * time.Second):
		t.Error("a blocking query did not survive the election")
	}
	for _, n := range append(rest, agent) {
		seen(t, n, "roaming", api.HealthPassing)
		eventually(t, n.name+" to know the dead server", func() error {
			checks, _, err := n.client(t).Health().Node(leader.name, nil)
			if err == nil && checks.AggregatedStatus() != api.HealthCritical {
				err = fmt.Errorf("checks of %s: %s", leader.name, checks.AggregatedStatus())
			}
			return err
		})
	}
	must(t, agent.client(t).Agent().UpdateTTL("roaming", "broken", api.HealthCritical))
	for _, n := range append(rest, agent) {
		seen(t, n, "roaming", api.HealthCritical)
	}
	if m, err := ask(t, agent, "udp", "host-1.node.consul.", dns.TypeA); err != nil || len(m.Answer) != 1 {
		t.Errorf("the agent's own name: %v, %v", m, err)
	}
}

// watchAcross blocks on the key until it holds 2, through errors, as watching clients do.
func watchAcross(client *api.Client, index uint64) error {
	begin := time.Now()
	var last error
	for time.Since(begin) < 18*time.Second {
		pair, meta, err := client.KV().Get("before", &api.QueryOptions{WaitIndex: index, WaitTime: 5 * time.Second})
		if last = err; err != nil {
			timer := time.NewTimer(50 * time.Millisecond)
			<-timer.C
			continue
		}
		if string(pair.Value) == "2" {
			return nil
		}
		index = meta.LastIndex
	}
	return fmt.Errorf("never saw the change; last: %v", last)
}

// split finds the leader.
func split(t *testing.T, nodes []*node) (leader *node, rest []*node) {
	t.Helper()
	raft, err := nodes[0].client(t).Operator().RaftGetConfiguration(nil)
	must(t, err)
	for _, s := range raft.Servers {
		for _, n := range nodes {
			if n.name == s.Node && s.Leader {
				leader = n
			}
		}
	}
	if leader == nil {
		t.Fatalf("no leader in %+v", raft.Servers)
	}
	for _, n := range nodes {
		if n != leader {
			rest = append(rest, n)
		}
	}
	return leader, rest
}

func TestRegistrationsSurviveKill(t *testing.T) {
	t.Parallel()
	n := run(t, "dev", "keeper", "-data-dir="+t.TempDir())
	must(t, n.await())
	agent := n.client(t).Agent()
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: "kept-1", Name: "kept", Port: 9, Address: "10.2.2.2",
		Tags: []string{"a", "b"},
		Meta: map[string]string{"m": "1"}, Check: &api.AgentServiceCheck{CheckID: "kept-ttl", TTL: "10m"}}))
	must(t, agent.CheckRegister(&api.AgentCheckRegistration{ID: "alone", Name: "alone",
		AgentServiceCheck: api.AgentServiceCheck{TTL: "10m"}}))
	must(t, agent.UpdateTTL("kept-ttl", "good", api.HealthPassing))
	must(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: "gone-1", Name: "gone"}))
	must(t, agent.ServiceDeregister("gone-1"))
	_, err := n.client(t).KV().Put(&api.KVPair{Key: "kept", Value: []byte("value")}, nil)
	must(t, err)
	n.kill()
	must(t, n.start())
	must(t, n.await())
	services, err := agent.Services()
	must(t, err)
	if s := services["kept-1"]; s == nil || s.Port != 9 || len(s.Tags) != 2 || s.Meta["m"] != "1" ||
		services["gone-1"] != nil {
		t.Errorf("after kill -9: %+v", services)
	}
	checks, err := agent.Checks()
	must(t, err)
	if checks["alone"] == nil || checks["kept-ttl"] == nil {
		t.Errorf("after kill -9: %+v", checks)
	}
	pair, _, err := n.client(t).KV().Get("kept", nil)
	if err != nil || pair == nil || string(pair.Value) != "value" {
		t.Errorf("acknowledged value: %+v, %v", pair, err)
	}
	eventually(t, "the instance in the catalog", func() error {
		entries, _, err := n.client(t).Health().Service("kept", "a", false, nil)
		if err == nil && (len(entries) != 1 || entries[0].Service.ID != "kept-1") {
			err = fmt.Errorf("entries %v", entries)
		}
		return err
	})
	if left, _, err := n.client(t).Health().Service("gone", "", false, nil); err != nil || len(left) != 0 {
		t.Errorf("what was deregistered came back: %v, %v", left, err)
	}
}
