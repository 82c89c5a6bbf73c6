package respapi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/remote"
	"corbel.dev/corbel/usage/remote/rediscache"
	"corbel.dev/corbel/usage/remote/remotetest"
	"corbel.dev/corbel/usage/slots"
)

// fleet is some hosts of the cache, as the catalog would list them.
type fleet struct {
	hosts []*rig
	now   *slots.Map
}

func startFleet(t *testing.T, n int, cluster bool) *fleet {
	f := &fleet{}
	var list []slots.Node
	for i := range n {
		cfg := Config{Node: strings.Repeat(fmt.Sprint(i), 40),
			Cache: cache.New(cache.Config{MaxBytes: 1 << 30, Clock: clock.Real{}})}
		if cluster {
			cfg.Cluster = func() *slots.Map { return f.now }
		}
		f.hosts = append(f.hosts, start(t, cfg))
	}
	for i, h := range f.hosts {
		node := slots.Node{ID: strings.Repeat(fmt.Sprint(i), 40), Host: "127.0.0.1"}
		_, _ = fmt.Sscanf(h.addr, "127.0.0.1:%d", &node.Port)
		list = append(list, node)
	}
	f.now = slots.Assign(list, 2)
	return f
}

func (f *fleet) client(t *testing.T, cfg remote.Config) *remote.Client {
	t.Helper()
	cfg.Hosts, cfg.Timeout = func() *slots.Map { return f.now }, 20*time.Second
	c := remote.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// TestRemote is the kit of remote caches with our own client: one host, three that know nothing of each other, and a
// cluster of three.
func TestRemote(t *testing.T) {
	for name, f := range map[string]*fleet{"one": startFleet(t, 1, false), "three": startFleet(t, 3, false),
		"cluster": startFleet(t, 3, true)} {
		t.Run(name, func(t *testing.T) {
			remotetest.Run(t, func(t *testing.T) remote.Store { return f.client(t, remote.Config{}) })
		})
	}
}

// TestRemoteOfRedis is the kit with the library that speaks to a Redis cluster: it takes ours for one.
func TestRemoteOfRedis(t *testing.T) {
	f := startFleet(t, 3, true)
	remotetest.Run(t, func(t *testing.T) remote.Store {
		s, err := rediscache.New(rediscache.Config{URLs: []string{"redis://" + f.hosts[1].addr + "?cluster=true"},
			Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}

// TestRemoteDrain: a host that drains gets nothing more from our client, no call fails, and what was written to it is
// at the replica.
func TestRemoteDrain(t *testing.T) {
	f := startFleet(t, 3, false)
	metrics := telemetry.New(telemetry.Config{})
	c := f.client(t, remote.Config{DrainLook: 5 * time.Millisecond, Metrics: metrics})
	var keys []string
	for i := range 200 {
		key := fmt.Sprint("drain:", i)
		keys = append(keys, key)
		if err := c.Set(t.Context(), remote.Item{Key: key, Value: []byte(key)}); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		got, err := c.Get(t.Context(), keys...)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if string(v) != keys[i] {
				t.Fatalf("%s is %q", keys[i], v)
			}
		}
	}
	check()
	leaves := f.hosts[1]
	leaves.Drain()
	polltest.Until(t, func() bool {
		check()
		before := leaves.commands.Load()
		check()
		return leaves.commands.Load()-before < uint64(len(keys)/10) // health checks go on
	}, "the host that drains gets no more keys")
	leaves.hand.Advance(time.Minute)
	polltest.Until(t, func() bool { return len(leaves.Waiting()) == 0 }, "both connections have seen the key")
	leaves.Undo()
	polltest.Until(t, func() bool {
		before := leaves.commands.Load()
		check()
		return leaves.commands.Load()-before > uint64(len(keys)/10)
	}, "the host is back")
}

// TestRemoteHedges: an owner that hangs does not hold up reads, for the replica answers.
func TestRemoteHedges(t *testing.T) {
	f := startFleet(t, 2, false)
	metrics := telemetry.New(telemetry.Config{})
	c := f.client(t, remote.Config{Metrics: metrics})
	if err := c.Set(t.Context(), remote.Item{Key: "k", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	owner, _ := f.now.Owner(slots.Of([]byte("k")))
	for _, h := range f.hosts {
		if h.addr != owner.Addr() {
			continue
		}
		release := make(chan struct{})
		defer close(release)
		go h.cfg.Cache.Together(func(func([]byte, func(*cache.Entry))) { <-release }) // all its keys wait
	}
	polltest.Until(t, func() bool {
		got, err := c.Get(t.Context(), "k")
		return err == nil && string(got[0]) == "v" && metrics.Counter("usage.cache.hedged_won").Value() > 0
	}, "an answer of the replica")
}
