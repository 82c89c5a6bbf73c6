package feed

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

func TestValuesArrive(t *testing.T) {
	s, p := newSite(t), newPress()
	server := s.serve("s0", ServerConfig{Source: p})
	c := s.client("a", ClientConfig{})
	index := p.publish("small", body(1, 0))
	var small, large, none seen
	stop := c.Follow("small", "", small.set, small.failed)
	c.Follow("large", "", large.set, large.failed)
	c.Follow("none", "", none.set, none.failed)
	reaches(t, &small, index)
	reaches(t, &none, 1)
	if v := none.values[0]; v.Body != nil {
		t.Errorf("nothing arrived as %d bytes", len(v.Body))
	}
	p.publish("large", body(2, 3<<20+5))
	reaches(t, &large, 2)
	polltest.Until(t, func() bool { return c.Newest() == 2 && !c.Stale() }, "the client to know that it knows everything")
	stop()
	stop()
	polltest.Until(t, func() bool { return p.count() == 2 && server.Stats().Follows == 2 }, "the follow to end")
	p.publish("small", body(3, 0))
	p.publish("large", body(4, 100))
	reaches(t, &large, 4)
	if small.last() != index {
		t.Errorf("a value came after stop: %d", small.last())
	}
}

// TestResumeByIndex: after a reconnect only what changed is sent.
func TestResumeByIndex(t *testing.T) {
	s, p := newSite(t), newPress()
	server := s.serve("s0", ServerConfig{Source: p})
	c := s.client("a", ClientConfig{})
	list := make([]seen, 10)
	for i := range list {
		p.publish(fmt.Sprint(i), body(uint64(i+1), 100))
		c.Follow(fmt.Sprint(i), "", list[i].set, list[i].failed)
	}
	for i := range list {
		reaches(t, &list[i], uint64(i+1))
	}
	before := server.meters.values.Value()
	s.memory.Drop("a", "s0")
	p.publish("3", body(11, 100))
	reaches(t, &list[3], 11)
	polltest.Until(t, func() bool { return c.Newest() == 11 }, "all to be answered")
	if n := server.meters.values.Value() - before; n > 2 { // the one before the connection broke may have been written
		t.Errorf("%d values were sent for one change", n)
	}
	if server.meters.unchanged.Value() == 0 {
		t.Error("no answer was \"unchanged\"")
	}
	for i := range list {
		if n, _ := list[i].counts(); (i == 3 && n != 2) || (i != 3 && n != 1) {
			t.Errorf("follower %d was called %d times", i, n)
		}
	}
}

func TestDenialEndsAndComesBack(t *testing.T) {
	for _, hedge := range []bool{false, true} {
		t.Run(fmt.Sprint("hedge ", hedge), func(t *testing.T) {
			s, p := newSite(t), newPress()
			s.serve("s0", ServerConfig{Source: p})
			s.serve("s1", ServerConfig{Source: p})
			c := s.client("a", ClientConfig{Hedge: hedge, RetryDenied: 10 * time.Millisecond})
			p.publish("x", body(1, 0))
			p.deny("bad")
			var bad, good seen
			c.Follow("x", "bad", bad.set, bad.failed)
			c.Follow("x", "good", good.set, good.failed)
			reaches(t, &good, 1)
			refusals := func(n int) {
				t.Helper()
				polltest.Until(t, func() bool { _, errs := bad.counts(); return errs >= n }, "refusal %d", n)
			}
			refusals(1)
			if err := bad.errs[0]; !errkind.Is(err, errkind.Denied) || errkind.Text(err) != "Permission denied" {
				t.Errorf("refused with %v", err)
			}
			p.allow("bad")
			reaches(t, &bad, 1)
			p.deny("bad")
			refusals(2)
			p.publish("x", body(2, 0))
			reaches(t, &good, 2)
			if bad.last() != 1 {
				t.Error("a value came after the denial")
			}
			p.allow("bad")
			reaches(t, &bad, 2)
			if _, errs := good.counts(); errs > 0 {
				t.Errorf("the other token was refused: %v", good.errs)
			}
		})
	}
}

// TestSilentStall: a connection on which nothing comes any more, and which is not closed
// either, is left in time, and costs a hedged client nothing at all.
func TestSilentStall(t *testing.T) {
	for _, hedge := range []bool{false, true} {
		t.Run(fmt.Sprint("hedge ", hedge), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := newSite(t), newPress()
				for i := range 3 {
					s.serve(fmt.Sprint("s", i), ServerConfig{Source: p})
				}
				c := s.client("a", ClientConfig{Hedge: hedge})
				var got seen
				c.Follow("x", "", got.set, got.failed)
				p.publish("x", body(1, 0))
				reaches(t, &got, 1)
				synctest.Wait()
				list := c.Connected()
				if len(list) != map[bool]int{false: 1, true: 2}[hedge] {
					t.Fatalf("connected to %v", list)
				}
				s.memory.Stall(hostOf(list[0]), "a")
				began := time.Now()
				p.publish("x", body(2, 0))
				limit := 3 * time.Second
				if hedge {
					limit = time.Second
				}
				reaches(t, &got, 2)
				if took := time.Since(began); took > limit {
					t.Errorf("it took %s", took)
				}
				if c.Lag() > 3500*time.Millisecond {
					t.Errorf("lag %s", c.Lag())
				}
				polltest.Until(t, func() bool { return c.meters.missed.Value() == 1 }, "the stalled connection to be left")
				s.memory.HealAll()
				polltest.Until(t, func() bool { return len(c.Connected()) == len(list) }, "the connections to be back")
			})
		})
	}
}

// TestLaggingServer: a server that is alive and knows nothing new is left for one that does.
func TestLaggingServer(t *testing.T) {
	for _, evidence := range []string{"hedge", "before", "leader"} {
		t.Run(evidence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ahead, behind := newSite(t), newPress(), newPress()
				var lag atomic.Int64
				var shown atomic.Value // of []string
				use := func(addrs ...string) { shown.Store(addrs) }
				s.serve("s0", ServerConfig{Source: behind, Lag: func() time.Duration { return time.Duration(lag.Load()) }})
				use("s0:1")
				cfg := ClientConfig{Hedge: evidence == "hedge", Servers: func() []string { return shown.Load().([]string) }}
				if evidence == "before" { // it was told more before it came to the lagging server
					s.serve("s1", ServerConfig{Source: ahead})
					use("s1:1")
				}
				behind.publish("x", body(1, 0))
				ahead.publish("x", body(1, 0))
				c := s.client("a", cfg)
				var got seen
				c.Follow("x", "", got.set, got.failed)
				reaches(t, &got, 1)
				switch evidence {
				case "hedge":
					s.serve("s1", ServerConfig{Source: ahead})
					s.serve("s2", ServerConfig{Source: ahead})
					use(s.list()...)
				case "leader":
					s.serve("s1", ServerConfig{Source: ahead})
					use(s.list()...)
					lag.Store(int64(time.Minute))
				}
				ahead.publish("x", body(2, 0))
				if evidence == "before" {
					reaches(t, &got, 2)
					polltest.Until(t, func() bool { return c.Newest() == 2 }, "the heartbeat")
					use("s0:1")
					polltest.Until(t, func() bool { return slices.Equal(c.Connected(), []string{"s0:1"}) }, "the other server")
					s.serve("s2", ServerConfig{Source: ahead})
					use("s0:1", "s2:1")
					ahead.publish("x", body(3, 0))
				}
				reaches(t, &got, ahead.newest)
				polltest.Until(t, func() bool {
					list := c.Connected()
					return len(list) > 0 && !slices.Contains(list, "s0:1")
				}, "the lagging server to be left")
			})
		})
	}
}

// TestNewHistory: indexes that begin again do not keep followers on what was before. While one
// server speaks of another history and one still of the old, the old one counts.
func TestNewHistory(t *testing.T) {
	for _, hedge := range []bool{false, true} {
		t.Run(fmt.Sprint("hedge ", hedge), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, one, two := newSite(t), newPress(), newPress()
				s.serve("s0", ServerConfig{Source: one})
				s.serve("s1", ServerConfig{Source: two})
				c := s.client("a", ClientConfig{Hedge: hedge})
				both := func(f func(p *press)) {
					f(one)
					f(two)
				}
				both(func(p *press) {
					p.restart(3)
					p.publishAt("x", body(10, 0), 10)
				})
				var got, nothing seen
				c.Follow("x", "", got.set, got.failed)
				c.Follow("y", "", nothing.set, nothing.failed)
				reaches(t, &got, 10)
				if hedge {
					one.restart(7)
					one.publish("x", body(2, 0))
					two.publish("x", body(11, 0))
					reaches(t, &got, 11)
					two.restart(7)
					two.publish("x", body(2, 0))
				} else {
					both(func(p *press) {
						p.restart(7)
						p.publish("x", body(2, 0))
					})
				}
				reaches(t, &got, 2)
				both(func(p *press) { p.restart(8) }) // and again
				reaches(t, &got, 1)
				both(func(p *press) { p.publish("x", body(2, 0)) })
				reaches(t, &got, 2)
				polltest.Until(t, func() bool { return c.Newest() == 2 && nothing.last() == 1 }, "the client to be complete")
				nothing.mu.Lock()
				if v := nothing.values[len(nothing.values)-1]; v.Generation != 8 {
					t.Errorf("the other subject is of generation %d", v.Generation)
				}
				nothing.mu.Unlock()
			})
		})
	}
}

// TestBackToAnEarlierHistory: when all servers speak of a history that was left, it is taken again.
func TestBackToAnEarlierHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		s.serve("s0", ServerConfig{Source: p})
		c := s.client("a", ClientConfig{})
		var got seen
		c.Follow("x", "", got.set, got.failed)
		for _, generation := range []uint64{3, 5, 3, 0, 5} {
			p.restart(generation)
			index := p.publish("x", body(2, 0))
			polltest.Until(t, func() bool {
				got.mu.Lock()
				defer got.mu.Unlock()
				n := len(got.values)
				return n > 0 && got.values[n-1].Generation == generation && got.values[n-1].Index == index
			}, "generation %d", generation)
		}
	})
}

// TestServerWithoutState: one that has only just begun and knows nothing takes nothing away, and is left for others.
func TestServerWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		s.serve("s0", ServerConfig{Source: blank{}})
		p.restart(3)
		index := p.publish("x", body(2, 0))
		for i := range 6 {
			c := s.client(fmt.Sprint("a", i), ClientConfig{Hedge: i%2 == 0})
			var got seen
			c.Follow("x", "", got.set, got.failed)
			if i == 0 {
				polltest.Until(t, func() bool { return len(c.Connected()) == 1 }, "a connection")
				s.serve("s1", ServerConfig{Source: p})
				s.serve("s2", ServerConfig{Source: p})
			}
			reaches(t, &got, index)
			pause(10_000)
			if slices.Contains(c.Connected(), "s0:1") {
				t.Errorf("client %d stays with the server that knows nothing", i)
			}
			if n, _ := got.counts(); n != 1 || c.Newest() != index {
				t.Errorf("client %d was told %d times, newest is %d", i, n, c.Newest())
			}
		}
	})
}

// blank is a Source that knows nothing yet.
type blank struct{}

func (blank) Follow(Identity, string, func(Value), func(error)) (func(), error) {
	return func() {}, nil
}

func (blank) Newest() (uint64, uint64) { return 0, 0 }

// TestFollowedBeforeALeaderIsHeard: values that came while the server heard no leader count once it does, although it
// does not send them again by itself.
func TestFollowedBeforeALeaderIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		p.generation = 7
		p.publish("x", body(1, 100))
		var lag atomic.Int64
		lag.Store(int64(time.Hour))
		s.serve("s0", ServerConfig{Source: p, Lag: func() time.Duration { return time.Duration(lag.Load()) }})
		c := s.client("a0", ClientConfig{})
		var x seen
		defer c.Follow("x", "", x.set, x.failed)()
		pause(2500)
		if x.last() != 0 || c.Newest() != 0 {
			t.Errorf("told %d of %d although nobody knows whether it is the newest", x.last(), c.Newest())
		}
		lag.Store(0)
		pause(2500)
		if x.last() != 1 || c.Newest() != 1 {
			t.Errorf("told %d of %d", x.last(), c.Newest())
		}
	})
}
