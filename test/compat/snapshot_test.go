package compat

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// TestSnapshot saves and restores through a client agent and a follower, with more state than one message carries.
func TestSnapshot(t *testing.T) {
	nodes := threeServers(t)
	agent := run(t, "agent", "host-1", "-data-dir="+t.TempDir(), "-hcl", open, "-retry-join="+nodes[0].gossip)
	must(t, agent.await())
	leader, rest := split(t, nodes)
	client := agent.client(t)
	noise := make([]byte, 400<<10) // it does not compress
	for i := range 8 {
		_, _ = rand.Read(noise)
		_, err := client.KV().Put(&api.KVPair{Key: fmt.Sprintf("noise/%d", i), Value: noise}, nil)
		must(t, err)
	}
	_, err := client.KV().Put(&api.KVPair{Key: "word", Value: []byte("before"), Flags: 42}, nil)
	must(t, err)
	saved := map[string][]byte{}
	for name, c := range map[string]*api.Client{"agent": client, "follower": rest[0].client(t),
		"leader": leader.client(t)} {
		r, meta, err := c.Snapshot().Save(nil)
		must(t, err)
		saved[name], err = io.ReadAll(r)
		must(t, err)
		must(t, r.Close())
		if meta.LastIndex < 9 || !meta.KnownLeader || len(saved[name]) < 3<<20 {
			t.Errorf("%s: index %d, known leader %v, %d bytes", name, meta.LastIndex, meta.KnownLeader, len(saved[name]))
		}
	}
	_, err = client.KV().Put(&api.KVPair{Key: "word", Value: []byte("after")}, nil)
	must(t, err)
	_, meta, err := client.KV().Get("word", nil)
	must(t, err)
	parked := make(chan error, 1)
	go func() {
		pair, _, err := client.KV().Get("word", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 2 * time.Minute})
		if err == nil && string(pair.Value) != "before" {
			err = fmt.Errorf("the parked query got %q", pair.Value)
		}
		parked <- err
	}()
	must(t, client.Snapshot().Restore(nil, bytes.NewReader(saved["follower"])))
	select {
	case err := <-parked:
		must(t, err)
	case <-time.After(time.Minute):
		t.Error("the restore did not end a blocked query")
	}
	for _, n := range append(nodes, agent) {
		eventually(t, n.name+" to have the state that was saved", func() error {
			pair, _, err := n.client(t).KV().Get("word", &api.QueryOptions{AllowStale: true})
			if err == nil && (pair == nil || string(pair.Value) != "before" || pair.Flags != 42) {
				err = fmt.Errorf("got %+v", pair)
			}
			return err
		})
	}
	// What is damaged is refused, and changes nothing.
	cut := saved["leader"][:len(saved["leader"])-100]
	for name, c := range map[string]*api.Client{"agent": client, "leader": leader.client(t)} {
		for what, raw := range map[string][]byte{"cut": cut, "empty": nil, "text": []byte("no archive")} {
			if err := c.Snapshot().Restore(nil, bytes.NewReader(raw)); err == nil || !strings.Contains(err.Error(), "400") {
				t.Errorf("%s took a snapshot that is %s: %v", name, what, err)
			}
		}
	}
	_, err = client.KV().Put(&api.KVPair{Key: "word", Value: []byte("later")}, nil)
	must(t, err)
}
