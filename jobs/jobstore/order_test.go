package jobstore

import (
	"bytes"
	"testing"

	"corbel.dev/corbel/jobs"
)

// ordered does reports of one allocation, by their order or as they come, and says what is known of it afterwards.
func ordered(t *testing.T, by bool) (s *Store, report func(status, tasks string, order jobs.Order) string) {
	t.Helper()
	s, _, do := restoring(t)
	id := jobs.ID{2}
	return s, func(status, tasks string, order jobs.Order) string {
		t.Helper()
		if r := do(&Command{Allocs: AllocWrites{Ordered: by, Reports: []Report{{Alloc: id, Tasks: tasks, Order: order,
			Client: jobs.Client{Status: status}}}}}); r.Err != nil {
			t.Fatal(r.Err)
		}
		v := s.View()
		return v.State.Allocation(id).Client.Status + " " + v.AllocDetail(id).Tasks
	}
}

// TestLateReports: what a node said before it said something newer changes nothing, however late it comes; what it says
// after a new start of its agent is newer than all before.
func TestLateReports(t *testing.T) {
	s, report := ordered(t, true)
	for i, step := range []struct {
		status, tasks string
		order         jobs.Order
		want          string
	}{
		{jobs.ClientPending, "a", jobs.Order{Life: 5, Seq: 1}, "pending a"},
		{jobs.ClientRunning, "b", jobs.Order{Life: 5, Seq: 3}, "running b"},
		{jobs.ClientPending, "a", jobs.Order{Life: 5, Seq: 1}, "running b"}, // held by another server
		{jobs.ClientRunning, "x", jobs.Order{Life: 5, Seq: 2}, "running b"},
		{jobs.ClientRunning, "x", jobs.Order{Life: 4, Seq: 9}, "running b"},
		{jobs.ClientRunning, "b", jobs.Order{Life: 5, Seq: 3}, "running b"}, // the same once more
		{jobs.ClientPending, "c", jobs.Order{Life: 6, Seq: 1}, "pending c"}, // the agent lost its record, and begins anew
		{jobs.ClientRunning, "d", jobs.Order{Life: 6, Seq: 2}, "running d"},
	} {
		if got := report(step.status, step.tasks, step.order); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	var text bytes.Buffer
	if _, err := s.View().WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(&text); err != nil {
		t.Fatal(err)
	}
	if got := report(jobs.ClientPending, "a", jobs.Order{Life: 6, Seq: 1}); got != "running d" {
		t.Errorf("after a snapshot a late report made %q", got)
	}
}

// TestReportsWithoutOrder: agents of older releases, and such that call a server of one, do not say which update is the
// newer one. They are taken as they come, but that nothing that runs has not begun; and what is said again with its
// order is taken.
func TestReportsWithoutOrder(t *testing.T) {
	s, report := ordered(t, true)
	for i, step := range []struct {
		status, tasks string
		order         jobs.Order
		want          string
	}{
		{jobs.ClientPending, "a", jobs.Order{}, "pending a"},
		{jobs.ClientRunning, "b", jobs.Order{}, "running b"},
		{jobs.ClientPending, "a", jobs.Order{}, "running b"},
		{jobs.ClientRunning, "c", jobs.Order{}, "running c"},
		{jobs.ClientRunning, "d", jobs.Order{Life: 5, Seq: 2}, "running d"}, // the agent was upgraded
		{jobs.ClientRunning, "e", jobs.Order{}, "running e"},                // by way of an older server
		{jobs.ClientRunning, "x", jobs.Order{Life: 5, Seq: 1}, "running e"},
		{jobs.ClientComplete, "f", jobs.Order{}, "complete f"},
	} {
		if got := report(step.status, step.tasks, step.order); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	if n := s.View().AllocDetail(jobs.ID{2}).Order; n != (jobs.Order{Life: 5, Seq: 2}) {
		t.Errorf("the order is %+v", n)
	}
}

// TestSaidAgainIsNoChange: an update that only says again what is known wakes nobody.
func TestSaidAgainIsNoChange(t *testing.T) {
	s, report := ordered(t, true)
	report(jobs.ClientRunning, "a", jobs.Order{Life: 5, Seq: 1})
	before := s.View().State.Allocation(jobs.ID{2}).ModifyIndex
	report(jobs.ClientRunning, "a", jobs.Order{Life: 5, Seq: 2})
	if now := s.View().State.Allocation(jobs.ID{2}).ModifyIndex; now != before {
		t.Errorf("the allocation was changed at %d, and again at %d", before, now)
	}
}

// TestOrderIsNotKeptBefore: until all servers of the group leave late updates out, each takes them as an older release
// does, and none has an order that another lacks when they begin.
func TestOrderIsNotKeptBefore(t *testing.T) {
	s, report := ordered(t, false)
	for i, step := range []struct {
		status, tasks string
		order         jobs.Order
		want          string
	}{
		{jobs.ClientRunning, "b", jobs.Order{Life: 5, Seq: 3}, "running b"},
		{jobs.ClientPending, "a", jobs.Order{Life: 5, Seq: 1}, "pending a"},
		{jobs.ClientRunning, "c", jobs.Order{}, "running c"},
		{jobs.ClientPending, "d", jobs.Order{}, "pending d"},
	} {
		if got := report(step.status, step.tasks, step.order); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	if n := s.View().AllocDetail(jobs.ID{2}).Order; !n.IsZero() {
		t.Errorf("the order %+v was kept", n)
	}
}
