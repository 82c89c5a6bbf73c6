package shardrouter

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor/ingest"
)

// send has a server take one failing result of each entity.
func (s *server) send(t *testing.T, entities int, at int64) {
	t.Helper()
	for e := range entities {
		if err := s.Frame(t.Context(), "default", failing(fmt.Sprint("e", e), at)); err != nil {
			t.Fatal(err)
		}
	}
}

// counted waits until each entity has so many results, as every server tells it.
func (c *cluster) counted(t *testing.T, entities int, runs int64) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		for _, s := range c.servers {
			for e := range entities {
				ev, err := s.Get(t.Context(), "default", fmt.Sprint("e", e), "c")
				if err != nil {
					return err
				}
				if ev.Check.Occurrences != runs {
					return fmt.Errorf("%s: e%d has %d results", s.id, e, ev.Check.Occurrences)
				}
			}
		}
		return nil
	}, "%d results of each entity", runs)
}

// without waits until a server owns nothing, as all see it.
func (c *cluster) without(t *testing.T, gone *server) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		for _, s := range c.servers {
			for i, one := range s.table.Load() {
				if one.Owner == gone.id {
					return fmt.Errorf("%s has shard %d as %+v", s.id, i, one)
				}
			}
		}
		return nil
	}, "others to have everything")
}

// TestStalledStore: a server whose disk does not answer hands its shards to others, with all that it took and could
// not store; it gets its part again when the disk answers.
func TestStalledStore(t *testing.T) {
	t.Parallel()
	const entities = 100
	c := newImpatient(t, 3, 500*time.Millisecond)
	c.even(t, 3)
	at, runs := time.Now().Unix()-1000, int64(0)
	send := func(s *server) {
		t.Helper()
		runs++
		s.send(t, entities, at+runs)
	}
	send(c.servers[0])
	polltest.Until(t, c.replicated, "the replicas to have everything")
	bad := c.servers[1]
	bad.disk.Inject(vfs.Rule{Name: "hangs", Ops: vfs.OpWrite | vfs.OpSync, Stall: true})
	defer bad.disk.LiftAll()
	for range 5 {
		send(bad)
	}
	polltest.Until(t, bad.in.Stalled, "the stall to be noticed")
	send(bad)
	c.without(t, bad)
	send(bad)
	c.counted(t, entities, runs)
	bad.disk.LiftAll()
	c.even(t, 3)
	send(bad)
	c.counted(t, entities, runs)
	polltest.Until(t, c.replicated, "the replicas to have everything again")
}

// TestStalledEverywhere: where every disk is slow there is nobody to hand anything to; all goes on, and nothing is
// lost.
func TestStalledEverywhere(t *testing.T) {
	t.Parallel()
	const entities = 20
	c := newImpatient(t, 2, 200*time.Millisecond)
	c.even(t, 2)
	before := *c.servers[0].table.Load()
	for _, s := range c.servers {
		s.disk.Inject(vfs.Rule{Name: "hangs", Ops: vfs.OpWrite | vfs.OpSync, Stall: true})
		defer s.disk.LiftAll()
	}
	at := time.Now().Unix() - 1000
	for run := range int64(3) {
		c.servers[0].send(t, entities, at+run)
	}
	for _, s := range c.servers {
		polltest.Until(t, s.in.Stalled, "the stall to be noticed")
	}
	for _, s := range c.servers {
		s.disk.LiftAll()
	}
	c.counted(t, entities, 3)
	for i, one := range c.servers[0].table.Load() {
		if one.Owner == "" || one.Epoch < before[i].Epoch {
			t.Fatalf("shard %d: %+v", i, one)
		}
	}
	polltest.Until(t, c.replicated, "the replicas to have everything")
}

// TestFailedStore: a server that can store nothing any more is one that is gone.
func TestFailedStore(t *testing.T) {
	t.Parallel()
	const entities = 50
	c := newCluster(t, 2)
	c.even(t, 2)
	at := time.Now().Unix() - 1000
	c.servers[0].send(t, entities, at)
	c.counted(t, entities, 1)
	polltest.Until(t, func() bool {
		for n := range uint16(ingest.Shards) {
			if !c.servers[0].in.Settled(n) || !c.servers[1].in.Settled(n) {
				return false
			}
		}
		return c.replicated()
	}, "the replicas to have everything")
	bad := c.servers[0] // it leads, too
	bad.disk.Inject(vfs.Rule{Name: "broken", Ops: vfs.OpSync, Err: syscall.EIO})
	c.servers[1].send(t, entities, at+1)
	polltest.Until(t, bad.in.Failed, "the store to be given up")
	c.without(t, bad)
	for e := range entities {
		if _, err := c.servers[1].Get(t.Context(), "default", fmt.Sprint("e", e), "c"); err != nil {
			t.Error(err)
		}
	}
}
