package consumption

import (
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
)

const second = jobs.Time(time.Second)

func alloc(id byte, job, group, status string, from, to jobs.Time) *jobs.Allocation {
	return &jobs.Allocation{ID: jobs.ID{id}, Job: &jobs.Job{JobKey: jobs.JobKey{Namespace: "team", ID: job}}, Group: group,
		Grant:  &jobs.Grant{Vector: jobs.Vector{CPU: 500, MemoryMB: 256}},
		Client: jobs.Client{Status: status, StartedAt: from * second, FinishedAt: to * second}}
}

func TestBetween(t *testing.T) {
	lost := alloc(9, "web", "g", jobs.ClientLost, 10, 0)
	lost.ModifyTime = 70 * second
	for _, row := range []struct {
		name     string
		a        *jobs.Allocation
		mhz, mbs uint64
	}{
		{"runs throughout", alloc(1, "web", "g", jobs.ClientRunning, 10, 0), 30000, 15360},
		{"begins within", alloc(1, "web", "g", jobs.ClientRunning, 100, 0), 10000, 5120},
		{"ends within", alloc(1, "web", "g", jobs.ClientComplete, 10, 61), 500, 256},
		{"begins and fails within", alloc(1, "web", "g", jobs.ClientFailed, 70, 80), 5000, 2560},
		{"was over", alloc(1, "web", "g", jobs.ClientComplete, 10, 60), 0, 0},
		{"begins at the end", alloc(1, "web", "g", jobs.ClientRunning, 120, 0), 0, 0},
		{"has not begun", alloc(1, "web", "g", jobs.ClientPending, 0, 0), 0, 0},
		{"ends after the span", alloc(1, "web", "g", jobs.ClientComplete, 119, 500), 500, 256},
		{"cannot be reached", alloc(1, "web", "g", jobs.ClientUnknown, 10, 0), 30000, 15360},
		{"went with its node", lost, 5000, 2560},
	} {
		var want []Row
		if row.mhz > 0 {
			want = []Row{{"team", "web", "g", row.mhz, row.mbs, []jobs.ID{row.a.ID}}}
		}
		got := Between(slices.Values([]*jobs.Allocation{row.a}), 60*second, 120*second)
		if !slices.EqualFunc(got, want, equal) {
			t.Errorf("%s: %+v, want %+v", row.name, got, want)
		}
	}
}

func equal(a, b Row) bool {
	allocs := slices.Equal(a.Allocs, b.Allocs)
	return allocs && a.Namespace == b.Namespace && a.Job == b.Job && a.Group == b.Group &&
		a.MHzSeconds == b.MHzSeconds && a.MBSeconds == b.MBSeconds
}

// TestOrder: groups add up, and come in their order whatever that of the allocations.
func TestOrder(t *testing.T) {
	list := []*jobs.Allocation{alloc(3, "web", "g", jobs.ClientRunning, 1, 0),
		alloc(2, "db", "z", jobs.ClientRunning, 1, 0),
		alloc(1, "web", "g", jobs.ClientRunning, 1, 0), alloc(4, "db", "a", jobs.ClientRunning, 1, 0)}
	want := []Row{{"team", "db", "a", 5000, 2560, []jobs.ID{{4}}}, {"team", "db", "z", 5000, 2560, []jobs.ID{{2}}},
		{"team", "web", "g", 10000, 5120, []jobs.ID{{1}, {3}}}}
	for range list {
		if got := Between(slices.Values(list), 10*second, 20*second); !slices.EqualFunc(got, want, equal) {
			t.Errorf("%+v, want %+v", got, want)
		}
		list = append(list[1:], list[0])
	}
}
