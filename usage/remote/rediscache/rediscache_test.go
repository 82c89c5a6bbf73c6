package rediscache

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/redistest"
	"corbel.dev/corbel/test/fetch"
	"corbel.dev/corbel/usage/remote"
	"corbel.dev/corbel/usage/remote/remotetest"
)

func open(t *testing.T, urls ...string) *Store {
	t.Helper()
	s, err := New(Config{URLs: urls, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSingle is the kit against a real redis-server with a password.
func TestSingle(t *testing.T) {
	addr := redistest.Start(t)
	redistest.Say(t, addr, "+OK", "ACL SETUSER counter on >s3cret ~* &* +@all")
	remotetest.Run(t, func(t *testing.T) remote.Store { return open(t, "redis://counter:s3cret@"+addr) })
}

// TestCluster is the kit against a real cluster of three.
func TestCluster(t *testing.T) {
	addrs := redistest.Cluster(t, 3)
	remotetest.Run(t, func(t *testing.T) remote.Store { return open(t, "redis://"+addrs[0]+"?cluster=true") })
}

// TestValkey is the kit against Valkey, alone and as a cluster of three.
func TestValkey(t *testing.T) {
	program := fetch.Need(t, "valkey")
	t.Run("single", func(t *testing.T) {
		addr := redistest.StartOf(t, program)
		redistest.Say(t, addr, "+OK", "ACL SETUSER counter on >s3cret ~* &* +@all")
		remotetest.Run(t, func(t *testing.T) remote.Store { return open(t, "redis://counter:s3cret@"+addr) })
	})
	t.Run("cluster", func(t *testing.T) {
		addrs := redistest.ClusterOf(t, program, 3)
		remotetest.Run(t, func(t *testing.T) remote.Store { return open(t, "redis://"+addrs[0]+"?cluster=true") })
	})
}

// TestWrong: bad URLs name the key and show no password, and a server that does not answer is an error in time.
func TestWrong(t *testing.T) {
	for _, urls := range [][]string{nil, {"http://x"}, {"redis://"}, {"redis://u:s3cret@"}, {"redis://u:s3cret@%zz"}} {
		if _, err := New(Config{URLs: urls}); !errkind.Is(err, errkind.Invalid) || strings.Contains(err.Error(), "s3cret") ||
			!strings.Contains(err.Error(), "usage.cache.redis") {
			t.Errorf("%q: %v", urls, err)
		}
	}
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	s, err := New(Config{URLs: []string{"redis://" + deaf.Addr().String()}, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Get(context.Background(), "a"); !errkind.Is(err, errkind.Unavailable) {
		t.Error(err)
	}
}
