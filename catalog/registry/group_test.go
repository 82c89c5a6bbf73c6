package registry

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
)

// peer is one server: a Registry over a Raft group on a real disk and a real network.
type peer struct {
	*Registry
	t        *testing.T
	g        *group.Group
	id, addr string
	dir      string
	boot     []group.Server
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

func (m *peer) start() {
	m.t.Helper()
	l, err := net.Listen("tcp", m.addr)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.Registry, err = New(Config{NodeName: m.id}); err != nil {
		m.t.Fatal(err)
	}
	m.g, err = group.Open(group.Config{Name: "catalog", Dir: m.dir, LocalID: m.id, LocalAddr: m.addr, Listener: l,
		Machine:   m.Registry,
		Bootstrap: m.boot, Compaction: group.Compaction{TrailingLogs: 1}, SegmentBytes: 1 << 16,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.SetProposer(m.g)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.wg.Go(func() { _ = m.g.Run(ctx) })
	m.wg.Go(func() { _ = m.Registry.Run(ctx) })
}

func (m *peer) stop() {
	m.cancel()
	m.wg.Wait()
}

// three starts three members and stops them at the end of the test.
func three(t *testing.T) []*peer {
	t.Helper()
	return several(t, 3)
}

func several(t *testing.T, n int) []*peer {
	t.Helper()
	ports, err := testport.Free(n)
	if err != nil {
		t.Fatal(err)
	}
	var members []*peer
	var boot []group.Server
	for i, port := range ports {
		m := &peer{t: t, id: fmt.Sprint("s", i), addr: fmt.Sprint("127.0.0.1:", port), dir: t.TempDir()}
		boot = append(boot, group.Server{ID: m.id, Address: m.addr, Voter: true})
		members = append(members, m)
	}
	for _, m := range members {
		m.boot = boot
		m.start()
	}
	t.Cleanup(func() {
		for _, m := range members {
			m.stop()
		}
	})
	return members
}

func leaderOf(t *testing.T, members []*peer) *peer {
	t.Helper()
	var found *peer
	polltest.Until(t, func() bool {
		for _, m := range members {
			if m.g.LeaseHeld() {
				found = m
			}
		}
		return found != nil
	}, "a leader")
	return found
}

// insistOn applies at whoever leads until it is acknowledged; the command may come twice.
func insistOn(t *testing.T, members []*peer, c catalog.Command) {
	t.Helper()
	polltest.NoError(t, polltest.Deadline, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := leaderOf(t, members).Apply(ctx, c)
		return err
	}, "an acknowledged write")
}

func setKey(key, value string) catalog.Command {
	return &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: key, Value: []byte(value)}}
}

// sameEverywhere waits until all members hold the same State, and returns its hash.
func sameEverywhere(t *testing.T, members []*peer, want *statestore.State) {
	t.Helper()
	for _, m := range members {
		polltest.Until(t, func() bool { return m.State().Index() >= want.Index() && m.State().Hash() == want.Hash() },
			"%s to hold the leader's state of index %d", m.id, want.Index())
	}
}

// TestOverARealGroup: what the Registry promises, over consensus, disks and a network instead of a fake.
func TestOverARealGroup(t *testing.T) {
	members := three(t)
	lead := leaderOf(t, members)
	insistOn(t, members, register("n1"))
	session, err := lead.CreateSession(t.Context(), catalog.Session{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	insistOn(t, members, &catalog.KV{Verb: catalog.KVLock, Pair: catalog.KVPair{Key: "lock", Session: session}})
	var follower *peer
	for _, m := range members {
		if m != lead {
			follower = m
		}
	}

	// A watcher of a follower is woken by what the leader takes.
	sameEverywhere(t, members, lead.State())
	subject := Subject{Topic: TopicKV, Key: "watched"}
	index := func(s *statestore.State) uint64 {
		if pair := s.KV("watched"); pair != nil {
			return pair.ModifyIndex
		}
		return 0
	}
	woken := make(chan uint64, 1)
	go func() { woken <- index(follower.Await(t.Context(), subject, 0, time.Hour, index)) }()
	insistOn(t, members, setKey("watched", "x"))
	if got := polltest.Get(t, woken, "the follower's watcher to be woken"); got == 0 {
		t.Error("it was woken without the key")
	}

	// A member that was away gets a snapshot, and lets its watchers go.
	follower.stop()
	for i := range 40 {
		insistOn(t, members, setKey(fmt.Sprint("away/", i), "y"))
	}
	lead = leaderOf(t, members)
	if err := lead.g.SnapshotNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	insistOn(t, members, setKey("after", "z"))
	follower.start()
	sameEverywhere(t, members, leaderOf(t, members).State())
	if follower.State().Session(session) == nil || follower.State().KV("lock").Session != session {
		t.Error("the snapshot lost a session or its lock")
	}

	// Everybody stops and starts: nothing acknowledged is lost, nothing deleted comes back.
	insistOn(t, members, &catalog.KV{Verb: catalog.KVDelete, Pair: catalog.KVPair{Key: "away/0"}})
	before := leaderOf(t, members).State()
	for _, m := range members {
		m.stop()
	}
	for _, m := range members {
		m.start()
	}
	sameEverywhere(t, members, before)
	if s := leaderOf(t, members).State(); s.KV("away/0") != nil || s.KV("after") == nil || s.Index() != before.Index() {
		t.Errorf("after the restart of all: index %d, was %d", s.Index(), before.Index())
	}
}
