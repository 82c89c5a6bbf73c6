package groupfate

import (
	"iter"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
)

const now = jobs.Time(10 * time.Hour)

func ago(d time.Duration) jobs.Time { return now.Add(-d) }

// world is one job with a group g.
type world struct {
	job    *jobs.Job
	allocs []*jobs.Allocation
}

func (w *world) Job(jobs.JobKey) *jobs.Job                    { return w.job }
func (w *world) Allocations() iter.Seq[*jobs.Allocation]      { return slices.Values(w.allocs) }
func (w *world) OfJob(jobs.JobKey) iter.Seq[*jobs.Allocation] { return slices.Values(w.allocs) }
func (w *world) add(status string, change func(a *jobs.Allocation)) *world {
	a := &jobs.Allocation{ID: jobs.ID{byte(len(w.allocs) + 1)}, Job: w.job, Group: "g"}
	a.Desired.Status, a.Client.Status, a.Client.StartedAt = jobs.Run, status, ago(time.Hour)
	a.ModifyTime = ago(time.Hour)
	change(a)
	w.allocs = append(w.allocs, a)
	return w
}

func one() *world {
	return &world{job: &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: "web"},
		Groups: []*jobs.TaskGroup{{Name: "g"}}}}
}

func as(*jobs.Allocation)         {}
func replaced(a *jobs.Allocation) { a.Lineage.Next, a.Desired.Status = jobs.ID{99}, jobs.Stop }
func fresh(a *jobs.Allocation)    { replaced(a); a.Client.FinishedAt = ago(5 * time.Second) }
func young(a *jobs.Allocation)    { a.Client.StartedAt = ago(time.Second) }
func again(a *jobs.Allocation)    { a.ModifyTime = ago(time.Second) }

func TestJudge(t *testing.T) {
	stopped, healthy := one().add(jobs.ClientFailed, as), one().add(jobs.ClientFailed, replaced)
	stopped.job.Stop = true
	healthy.add(jobs.ClientRunning, func(a *jobs.Allocation) { young(a); a.Rollout.Health = jobs.Healthy })
	for _, row := range []struct {
		name    string
		w       *world
		status  uint32
		settled bool
		suspect bool
	}{
		{"runs", one().add(jobs.ClientRunning, as), Fine, true, false},
		{"failed, nothing replaces it", one().add(jobs.ClientFailed, as), Critical, true, true},
		{"failed, one runs beside it", one().add(jobs.ClientFailed, as).add(jobs.ClientRunning, as), Critical, true, true},
		{"just replaced", one().add(jobs.ClientFailed, fresh).add(jobs.ClientPending, as), Critical, true, true},
		{"just replaced, node lost", one().add(jobs.ClientLost, fresh).add(jobs.ClientRunning, as), Critical, true, true},
		{"replacement waits", one().add(jobs.ClientFailed, replaced).add(jobs.ClientPending, as), 0, false, true},
		{"replacement is young", one().add(jobs.ClientFailed, replaced).add(jobs.ClientRunning, young), 0, false, true},
		{"replacement is young and judged healthy", healthy, Fine, true, true},
		{"replacement runs", one().add(jobs.ClientFailed, replaced).add(jobs.ClientRunning, as), Fine, true, true},
		{"stopped", stopped, Fine, true, true},
		{"restarts", one().add(jobs.ClientRunning, again), Warning, true, true},
		{"completed", one().add(jobs.ClientComplete, as), Fine, true, false},
	} {
		restarted := func(a *jobs.Allocation) jobs.Time { return a.ModifyTime }
		v, settled := Judge(row.w, Group{"default", "web", "g"}, restarted, now)
		if v.Status != row.status || settled != row.settled {
			t.Errorf("%s: %d %v %q, want %d %v", row.name, v.Status, settled, v.Output, row.status, row.settled)
		}
		if list := Suspects(row.w, restarted, now, 10); (len(list) == 1) != row.suspect {
			t.Errorf("%s: suspects %v", row.name, list)
		}
	}
	if list := Suspects(one().add(jobs.ClientFailed, as), nil, now, 0); list != nil {
		t.Errorf("beyond the bound: %v", list)
	}
}
