package nodeclient

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/noderpc"
)

// tells sets what the leader answers to heartbeats that compare.
func (s *servers) tells(list ...noderpc.KnownAlloc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = list
	s.compares = true
}

// TestComparesWithServers: what the servers know otherwise is said again once it differs twice, not while an update is
// on its way; an allocation that was never told is asked for, rarely; one that ended here and was deleted does not
// begin again, but its end is said again.
func TestComparesWithServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		c, stop := run(t, s, "", func(cfg *Config) { cfg.GC.MaxAllocs = 1; cfg.GC.Every = time.Hour })
		defer stop()
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		long := job(jobs.Service, mock("t", nil))
		s.send(3, long, true, noderpc.Alloc{ID: a1}, noderpc.Alloc{ID: a2})
		wait(30 * time.Second) // they are healthy by then
		first, said := s.update(a1).Order, s.count(noderpc.MethodUpdate)
		if first.Life == 0 || first.Seq == 0 || first == s.update(a2).Order {
			t.Fatalf("updates have the orders %+v and %+v", first, s.update(a2).Order)
		}
		running := func(id jobs.ID) noderpc.KnownAlloc { return noderpc.KnownAlloc{ID: id, Status: jobs.ClientRunning} }
		s.tells(running(a1), running(a2))
		wait(5 * time.Minute)
		if n := s.count(noderpc.MethodUpdate) - said; n != 0 || s.compared == 0 {
			t.Errorf("%d updates where both are the same, after %d comparisons", n, s.compared)
		}
		s.tells(noderpc.KnownAlloc{ID: a1, Status: jobs.ClientPending}, running(a2))
		wait(2 * time.Minute)
		if u := s.update(a1); !first.Before(u.Order) || u.Status != jobs.ClientRunning || s.batches-said > 3 {
			t.Errorf("an allocation that the servers take for pending: %+v, in %d batches", u, s.batches)
		}
		s.tells(running(a1), running(a2), running(a3))
		wait(5 * time.Minute)
		if n := len(s.watches); n != 2 || s.watches[1] != 0 {
			t.Errorf("an allocation that was never told: streams from %v", s.watches)
		}

		s.send(9, long, false, noderpc.Alloc{ID: a1, Desired: jobs.Desired{Status: jobs.Stop}})
		wait(time.Second)
		if err := c.Collect(a1); err != nil {
			t.Fatal(err)
		}
		ended := s.update(a1)
		s.tells(running(a1), running(a2))
		wait(3 * time.Minute) // what differed before makes the second look wait for its minute
		if u := s.update(a1); !ended.Order.Before(u.Order) || u.Status != jobs.ClientComplete ||
			u.FinishedAt != ended.FinishedAt {
			t.Errorf("an allocation that ended and was deleted: %+v, was %+v", u, ended)
		}
		s.send(12, long, false, noderpc.Alloc{ID: a1})
		wait(time.Second)
		if _, err := c.find(a1); err == nil {
			t.Error("an allocation that ended begins a second time")
		}
	})
}

// TestWholeIsAskedUntilItComes: a stream that is to tell everything and fails before it told anything is followed by
// another one that is.
func TestWholeIsAskedUntilItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		_, stop := run(t, s, "", nil)
		defer stop()
		long := job(jobs.Service, mock("t", nil))
		s.send(3, long, true, noderpc.Alloc{ID: a1})
		time.Sleep(30 * time.Second)
		s.mu.Lock()
		s.refuses = 2
		s.mu.Unlock()
		s.tells(noderpc.KnownAlloc{ID: a1, Status: jobs.ClientRunning},
			noderpc.KnownAlloc{ID: a2, Status: jobs.ClientPending})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		s.send(4, long, true, noderpc.Alloc{ID: a1}, noderpc.Alloc{ID: a2})
		s.send(5, long, true, noderpc.Alloc{ID: a1}, noderpc.Alloc{ID: a2})
		time.Sleep(time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.Equal(s.watches, []uint64{0, 0, 0, 0}) {
			t.Errorf("streams from %v, want one from the beginning until it came", s.watches)
		}
	})
}

// TestEndsAreBounded: of the allocations that were deleted the newest are remembered.
func TestEndsAreBounded(t *testing.T) {
	var k compares
	for i := range maxEnds + 10 {
		k.keepEnd(noderpc.Update{Alloc: jobs.ID{byte(i), byte(i >> 8)}, TaskStates: []byte("{}")})
	}
	if _, ok := k.ends[jobs.ID{}]; ok || len(k.ends) != maxEnds || len(k.order) != maxEnds {
		t.Errorf("%d ends are remembered in order %d", len(k.ends), len(k.order))
	}
	if u, ok := k.ends[jobs.ID{byte((maxEnds + 9) & 255), byte((maxEnds + 9) >> 8)}]; !ok || u.TaskStates != nil {
		t.Errorf("%+v", u)
	}
}
