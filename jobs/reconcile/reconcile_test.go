package reconcile

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
)

const now = jobs.Time(1e18)

func id(kind, n byte) (id jobs.ID) {
	id[0], id[15] = kind, n
	return id
}

func version(n uint64, change func(*jobs.Job, *jobs.TaskGroup)) *jobs.Job {
	g := &jobs.TaskGroup{Name: "g", Count: 3, Tasks: []*jobs.Task{{Name: "t", Driver: "docker", Config: "1"}},
		Reschedule: &jobs.ReschedulePolicy{Unlimited: true, Delay: 30 * time.Second, MaxDelay: time.Hour,
			Function: "exponential"}}
	j := &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: "web"}, Type: jobs.Service, Groups: []*jobs.TaskGroup{g},
		Revision: jobs.Revision{Version: n}}
	if change != nil {
		change(j, g)
	}
	return j
}

func running(j *jobs.Job, n int) (list []*jobs.Allocation) {
	for i := range n {
		list = append(list, &jobs.Allocation{ID: id(2, byte(i)), NodeID: id(1, byte(i)), Job: j, Group: "g", Index: i,
			Grant: &jobs.Grant{}, Desired: jobs.Desired{Status: jobs.Run}, Client: jobs.Client{Status: jobs.ClientRunning},
			Stamp: jobs.Stamp{ModifyTime: now}})
	}
	return list
}

// do decides with nodes that are ready, but for those given.
func do(j *jobs.Job, allocs []*jobs.Allocation, d *jobs.Deployment, nodes map[jobs.ID]jobs.Duty) *Result {
	return Do(Input{Key: jobs.JobKey{Namespace: "default", ID: "web"}, Job: j, Allocs: allocs, Deployment: d,
		EvalID: id(3, 1), Now: now, Dice: jobs.NewDice(1, 1), Node: func(n jobs.ID) *jobs.Node {
			duty, ok := nodes[n]
			if !ok {
				duty = jobs.Duty{Status: jobs.NodeReady}
			}
			return &jobs.Node{ID: n, Duty: duty}
		}})
}

// text is a result in one line: what is placed, replaced, stopped and updated, by index.
func text(r *Result) string {
	var parts []string
	for _, g := range r.Groups {
		for _, p := range g.Place {
			s := fmt.Sprintf("place %d v%d", p.Index, p.Job.Version)
			if p.Canary {
				s += " canary"
			}
			parts = append(parts, s)
		}
		for _, p := range g.Replace {
			s := fmt.Sprintf("replace %d v%d", p.Index, p.Job.Version)
			if p.Rescheduled {
				s += " failed"
			}
			parts = append(parts, s)
		}
	}
	for _, s := range r.Stop {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("stop %d %s", s.Alloc[15], s.Client)))
	}
	for _, a := range r.Update {
		s := fmt.Sprintf("update %d v%d", a.Index, a.Job.Version)
		if !a.Lineage.Followup.IsZero() {
			s += " later"
		}
		parts = append(parts, s)
	}
	for _, f := range r.Followups {
		parts = append(parts, fmt.Sprintf("follow up after %v", f.At.Sub(now)))
	}
	if r.Deployment != nil {
		parts = append(parts, "deploy "+r.Deployment.Status)
	}
	for _, s := range r.Statuses {
		parts = append(parts, "deployment "+s.Status)
	}
	return strings.Join(parts, ", ")
}

func rolling(canaries int) func(*jobs.Job, *jobs.TaskGroup) {
	return func(_ *jobs.Job, g *jobs.TaskGroup) {
		g.Tasks[0].Config = "2"
		g.Update = &jobs.UpdatePolicy{MaxParallel: 1, Canary: canaries, ProgressDeadline: 10 * time.Minute}
	}
}

func deployment(canaries int, promoted bool) *jobs.Deployment {
	return &jobs.Deployment{ID: id(4, 1), JobKey: jobs.JobKey{Namespace: "default", ID: "web"}, JobVersion: 1,
		Status: jobs.DeployRunning, Groups: map[string]*jobs.DeploymentGroup{"g": {DesiredTotal: 3, DesiredCanaries: canaries,
			Promoted: promoted, ProgressDeadline: int64(10 * time.Minute), RequireProgressBy: now + 5}}}
}

// member makes an allocation part of the deployment.
func member(a *jobs.Allocation, j *jobs.Job, health jobs.Health, canary bool) *jobs.Allocation {
	next := *a
	next.Job, next.Rollout = j, jobs.Rollout{Deployment: id(4, 1), Health: health, Canary: canary}
	return &next
}

func TestPlaceAndStop(t *testing.T) {
	v0 := version(0, nil)
	count := func(n int) *jobs.Job { return version(1, func(_ *jobs.Job, g *jobs.TaskGroup) { g.Count = n }) }
	failed := running(v0, 5)
	failed[1].Client.Status, failed[1].Lineage.Followup = jobs.ClientFailed, id(3, 9)
	stop := version(1, func(j *jobs.Job, _ *jobs.TaskGroup) { j.Stop = true })
	gone := version(1, func(_ *jobs.Job, g *jobs.TaskGroup) { g.Name = "other"; g.Count = 0 })
	for _, test := range []struct {
		row    string
		job    *jobs.Job
		allocs []*jobs.Allocation
		want   string
	}{
		{"first", v0, nil, "place 0 v0, place 1 v0, place 2 v0"},
		{"nothing to do", v0, running(v0, 3), ""},
		{"trap 3: count 0", count(0), nil, ""},
		{"scale up", count(4), running(v0, 3), "place 3 v1, update 0 v1, update 1 v1, update 2 v1"},
		{"NS-32: highest index first", count(2), running(v0, 4), "stop 3, stop 2, update 0 v1, update 1 v1"},
		{"NS-32: failed ones before", count(4), failed, "stop 1, update 0 v1, update 2 v1, update 3 v1, update 4 v1"},
		{"holes are filled", v0, running(v0, 3)[1:], "place 0 v0"},
		{"NS-33: stopped", stop, running(v0, 2), "stop 0, stop 1"},
		{"NS-33: purged", nil, running(v0, 2), "stop 0, stop 1"},
		{"group gone", gone, running(v0, 2), "stop 0, stop 1"},
	} {
		if got := text(do(test.job, test.allocs, nil, nil)); got != test.want {
			t.Errorf("%s: %s, want %s", test.row, got, test.want)
		}
	}
}

// TestNS27: in place, destructive, so many at a time, canaries first.
func TestNS27(t *testing.T) {
	v0 := version(0, nil)
	v1 := version(1, rolling(0))
	blue := version(1, rolling(3))
	one := version(1, rolling(1))
	old := running(v0, 3)
	harmless := version(1, func(_ *jobs.Job, g *jobs.TaskGroup) { g.Parts = map[string]string{"services": "x"} })
	canary := member(old[0], one, jobs.Healthy, true)
	canary.ID = id(2, 9)
	promoted := member(old[0], one, jobs.Healthy, false)
	promoted.ID = id(2, 9)
	paused := deployment(0, false)
	paused.Status = jobs.DeployPaused
	failed := deployment(0, false)
	failed.Status = jobs.DeployFailed
	newer := deployment(0, false)
	newer.JobVersion = 0
	for _, test := range []struct {
		row    string
		job    *jobs.Job
		allocs []*jobs.Allocation
		d      *jobs.Deployment
		want   string
	}{
		{"in place", harmless, old, nil, "update 0 v1, update 1 v1, update 2 v1"},
		{"all at once without a policy", version(1, func(_ *jobs.Job, g *jobs.TaskGroup) { g.Tasks[0].Config = "2" }), old,
			nil, "replace 0 v1, replace 1 v1, replace 2 v1"},
		{"one at a time", v1, old, nil, "replace 0 v1, deploy running"},
		{"not before health", v1, []*jobs.Allocation{member(old[0], v1, 0, false), old[1], old[2]}, deployment(0, false), ""},
		{"next after health", v1, []*jobs.Allocation{member(old[0], v1, jobs.Healthy, false), old[1], old[2]},
			deployment(0, false), "replace 1 v1"},
		{"paused", v1, []*jobs.Allocation{member(old[0], v1, jobs.Healthy, false), old[1], old[2]}, paused, ""},
		{"failed", v1, []*jobs.Allocation{member(old[0], v1, jobs.Healthy, false), old[1], old[2]}, failed, ""},
		{"done", v1, []*jobs.Allocation{member(old[0], v1, jobs.Healthy, false), member(old[1], v1, jobs.Healthy, false),
			member(old[2], v1, jobs.Healthy, false)}, deployment(0, false), "deployment successful"},
		{"cancelled by a newer version", v1, old, newer, "replace 0 v1, deploy running, deployment cancelled"},
		{"a canary", one, old, nil, "place 0 v1 canary, deploy running"},
		{"waits for promotion", one, append(slices.Clone(old), canary), deployment(1, false), ""},
		{"after promotion", one, append(slices.Clone(old), promoted), deployment(1, true), "replace 1 v1, stop 0"},
		{"blue and green", blue, old, nil, "place 0 v1 canary, place 1 v1 canary, place 2 v1 canary, deploy running"},
		{"canaries of an older version go", version(2, rolling(1)), append(slices.Clone(old), canary), nil,
			"place 0 v2 canary, stop 9, deploy running"},
	} {
		if got := text(do(test.job, test.allocs, test.d, nil)); got != test.want {
			t.Errorf("%s: %s, want %s", test.row, got, test.want)
		}
	}
}

// TestNS29 has failures: now, later, never; and traps 14 and 15.
func TestNS29(t *testing.T) {
	fail := func(change func(*jobs.Job, *jobs.TaskGroup), alloc func(*jobs.Allocation)) string {
		j := version(0, change)
		list := running(j, 3)
		list[1].Client = jobs.Client{Status: jobs.ClientFailed, FinishedAt: now - 10e9}
		if alloc != nil {
			alloc(list[1])
		}
		return text(do(j, list, nil, nil))
	}
	past := func(delays ...time.Duration) func(*jobs.Allocation) {
		return func(a *jobs.Allocation) {
			for _, d := range delays {
				a.Lineage.Reschedules = append(a.Lineage.Reschedules, jobs.Rescheduled{At: now - 60e9, Delay: int64(d)})
			}
		}
	}
	policy := func(p jobs.ReschedulePolicy) func(*jobs.Job, *jobs.TaskGroup) {
		return func(_ *jobs.Job, g *jobs.TaskGroup) { g.Reschedule = &p }
	}
	constant := jobs.ReschedulePolicy{Attempts: 2, Interval: time.Hour, Delay: 5 * time.Second, Function: "constant"}
	fibonacci := jobs.ReschedulePolicy{Unlimited: true, Delay: 30 * time.Second, MaxDelay: time.Hour,
		Function: "fibonacci"}
	for _, test := range []struct{ row, got, want string }{
		{"later", fail(nil, nil), "update 1 v0 later, follow up after 20s"},
		{"now", fail(policy(constant), nil), "replace 1 v0 failed"},
		{"no attempt left", fail(policy(constant), past(5e9, 5e9)), ""},
		{"never", fail(func(_ *jobs.Job, g *jobs.TaskGroup) { g.Reschedule = nil }, nil), ""},
		{"exponential", fail(nil, past(30e9, 60e9)), "update 1 v0 later, follow up after 1m50s"},
		{"fibonacci", fail(policy(fibonacci), past(60e9, 90e9)), "update 1 v0 later, follow up after 2m20s"},
		{"the follow-up is here", fail(nil, func(a *jobs.Allocation) { a.Lineage.Followup = id(3, 1) }),
			"replace 1 v0 failed"},
		{"it waits already", fail(nil, func(a *jobs.Allocation) { a.Lineage.Followup = id(3, 8) }), ""},
		{"forced", fail(nil, func(a *jobs.Allocation) { a.Desired.Reschedule = true }), "replace 1 v0 failed"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %s, want %s", test.row, test.got, test.want)
		}
	}
	batch := version(0, func(j *jobs.Job, _ *jobs.TaskGroup) { j.Type = jobs.Batch })
	list := running(batch, 3)
	list[0].Client.Status = jobs.ClientComplete
	list[0].Desired.Migrate = true
	if got := text(do(batch, list, nil, nil)); got != "" {
		t.Errorf("trap 15: a batch allocation that is complete: %s", got)
	}
	again := version(1, func(j *jobs.Job, _ *jobs.TaskGroup) { j.Type = jobs.Batch })
	list[1].Client.Status, list[2].Client.Status = jobs.ClientComplete, jobs.ClientComplete
	if got := text(do(again, list, nil, nil)); got != "place 0 v1, place 1 v1, place 2 v1" {
		t.Errorf("a new version of a batch job runs again: %s", got)
	}
}

// TestNS30And31: nodes that are down, away, back, or being drained.
func TestNS30And31(t *testing.T) {
	down := map[jobs.ID]jobs.Duty{id(1, 1): {Status: jobs.NodeDown}}
	away := map[jobs.ID]jobs.Duty{id(1, 1): {Status: jobs.NodeDisconnected, Since: now - 10e9}}
	v0 := version(0, nil)
	patient := func(reconcile string) *jobs.Job {
		return version(0, func(_ *jobs.Job, g *jobs.TaskGroup) {
			g.Disconnect = &jobs.Disconnect{LostAfter: time.Minute, Replace: true, Reconcile: reconcile}
		})
	}
	drained := running(v0, 3)
	drained[1].Desired.Migrate = true
	late := map[jobs.ID]jobs.Duty{id(1, 1): {Status: jobs.NodeReady, Drain: &jobs.Drain{Deadline: now - 1}}}
	early := map[jobs.ID]jobs.Duty{id(1, 1): {Status: jobs.NodeReady, Drain: &jobs.Drain{Deadline: now + 1}}}
	back := func(reconcile string) (*jobs.Job, []*jobs.Allocation) {
		j := patient(reconcile)
		list := running(j, 4)
		list[1].Client.Status, list[1].Client.UnknownSince = jobs.ClientUnknown, now-20e9
		list[3].Index, list[3].Lineage.Previous = 1, list[1].ID
		return j, list
	}
	original, originals := back("keep_original")
	replacement, replacements := back("keep_replacement")
	waiting, waitings := back("")
	for _, test := range []struct {
		row    string
		job    *jobs.Job
		allocs []*jobs.Allocation
		nodes  map[jobs.ID]jobs.Duty
		want   string
	}{
		{"lost", v0, running(v0, 3), down, "place 1 v0, stop 1 lost"},
		{"lost at once without a policy", v0, running(v0, 3), away, "place 1 v0, stop 1 lost"},
		{"unknown", patient(""), running(patient(""), 3), away, "place 1 v0, stop 1 unknown, follow up after 50s"},
		{"still away", waiting, waitings, away, ""},
		{"back: original", original, originals, nil, "stop 3"},
		{"back: replacement", replacement, replacements, nil, "stop 1"},
		{"drain", v0, drained, early, "replace 1 v0"},
		{"drain is over", v0, drained, late, "place 1 v0, stop 1"},
	} {
		if got := text(do(test.job, test.allocs, nil, test.nodes)); got != test.want {
			t.Errorf("%s: %s, want %s", test.row, got, test.want)
		}
	}
}

// TestNS28: what becomes of deployments.
func TestNS28(t *testing.T) {
	v1 := version(1, rolling(1))
	stable := version(0, nil)
	list := func(h ...jobs.Health) (allocs []*jobs.Allocation) {
		for i, a := range running(v1, len(h)) {
			allocs = append(allocs, member(a, v1, h[i], i == 0))
		}
		return allocs
	}
	with := func(canaries int, change func(*jobs.DeploymentGroup)) *jobs.Deployment {
		d := deployment(canaries, false)
		if change != nil {
			change(d.Groups["g"])
		}
		return d
	}
	auto := func(g *jobs.DeploymentGroup) { g.AutoPromote = true }
	late := func(g *jobs.DeploymentGroup) { g.RequireProgressBy = now - 1 }
	revert := func(g *jobs.DeploymentGroup) { g.RequireProgressBy, g.AutoRevert = now-1, true }
	none := func(g *jobs.DeploymentGroup) { g.ProgressDeadline = 0 }
	for _, test := range []struct {
		row    string
		d      *jobs.Deployment
		allocs []*jobs.Allocation
		stable *jobs.Job
		want   string
	}{
		{"waits", with(1, nil), list(jobs.Undecided), nil, "again"},
		{"manual promotion has no deadline", with(1, late), list(jobs.Healthy), nil, ""},
		{"automatic promotion", with(1, auto), list(jobs.Healthy), nil, "promote"},
		{"unhealthy is replaced in time", with(0, nil), list(jobs.Unhealthy), nil, "reschedule 1 again"},
		{"unhealthy without a deadline", with(0, none), list(jobs.Unhealthy), nil,
			"failed: Failed due to unhealthy allocations"},
		{"no progress", with(0, late), list(jobs.Undecided), nil, "failed: Failed due to progress deadline"},
		{"rolled back", with(0, revert), list(jobs.Undecided), stable,
			"failed: Failed due to progress deadline - rolling back to job version 0 revert 0"},
		{"nothing to roll back to", with(0, revert), list(jobs.Undecided), nil,
			"failed: Failed due to progress deadline - no stable job version to auto revert to"},
		{"all healthy", with(0, late), list(jobs.Healthy, jobs.Healthy, jobs.Healthy), nil, ""},
	} {
		v := Rollout(test.d, test.allocs, test.stable, now)
		var parts []string
		if v.Status != "" {
			parts = append(parts, v.Status+": "+v.Description)
		}
		if v.Promote {
			parts = append(parts, "promote")
		}
		if v.Revert != nil {
			parts = append(parts, fmt.Sprint("revert ", v.Revert.Version))
		}
		if len(v.Reschedule) > 0 {
			parts = append(parts, fmt.Sprint("reschedule ", len(v.Reschedule)))
		}
		if v.Again > 0 {
			parts = append(parts, "again")
		}
		if got := strings.Join(parts, " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.row, got, test.want)
		}
	}
}

// TestDrain: NS-31: what leaves a node, and when.
func TestDrain(t *testing.T) {
	web := version(0, func(_ *jobs.Job, g *jobs.TaskGroup) {
		g.Count, g.Migrate = 4, &jobs.MigratePolicy{MaxParallel: 2}
	})
	batch := version(0, func(j *jobs.Job, _ *jobs.TaskGroup) { j.ID, j.Type = "batch", jobs.Batch })
	system := version(0, func(j *jobs.Job, _ *jobs.TaskGroup) { j.ID, j.Type = "system", jobs.System })
	drain := func(deadline jobs.Time, ignore bool, jobsOnNode string, marked, unhealthy int) string {
		var all, here []*jobs.Allocation
		for n, kind := range jobsOnNode {
			j := map[rune]*jobs.Job{'w': web, 'b': batch, 's': system}[kind]
			a := running(j, 1)[0]
			a.ID = id(2, byte(n))
			here, all = append(here, a), append(all, a)
		}
		for n := range marked {
			here[n].Desired.Migrate = true
		}
		for n := strings.Count(jobsOnNode, "w"); n < 4; n++ {
			a := running(web, 1)[0]
			a.ID, a.NodeID = id(3, byte(n)), id(1, 9)
			if n >= 4-unhealthy {
				a.Client.StartedAt = now
			}
			all = append(all, a)
		}
		duty := jobs.Duty{Drain: &jobs.Drain{Deadline: deadline, IgnoreSystemJobs: ignore}}
		r := Drain(DrainInput{Node: &jobs.Node{Duty: duty},
			OnNode: slices.Values(here), Now: now, OfJob: func(key jobs.JobKey) iter.Seq[*jobs.Allocation] {
				return func(yield func(*jobs.Allocation) bool) {
					for _, a := range all {
						if a.Job.JobKey == key && !yield(a) {
							return
						}
					}
				}
			}})
		var list []string
		for _, m := range r.Migrate {
			list = append(list, fmt.Sprint(m[15]))
		}
		if r.Done {
			list = append(list, "done")
		}
		return strings.Join(list, " ")
	}
	web.Groups[0].Migrate.MinHealthyTime = time.Second
	for _, test := range []struct{ row, got, want string }{
		{"two may be missing", drain(0, false, "www", 0, 0), "0 1"},
		{"two are on their way", drain(0, false, "www", 2, 0), ""},
		{"one elsewhere is not healthy yet", drain(0, false, "www", 0, 1), "0"},
		{"the deadline has come", drain(now, false, "wwwbs", 1, 1), "1 2 3 4"},
		{"batch may finish", drain(now+1, false, "b", 0, 0), ""},
		{"system jobs last", drain(0, false, "bs", 0, 0), ""},
		{"system jobs", drain(0, false, "s", 0, 0), "0"},
		{"system jobs stay", drain(0, true, "s", 0, 0), "done"},
		{"empty", drain(0, false, "", 0, 0), "done"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %q, want %q", test.row, test.got, test.want)
		}
	}
}

// TestCountsOfCanaries: a plan that only starts a canary creates nothing beside it, as stock counts.
func TestCountsOfCanaries(t *testing.T) {
	r := do(version(1, rolling(1)), running(version(0, nil), 3), nil, nil)
	if got, want := r.Groups[0].Counts, (Counts{Ignore: 3, Canary: 1}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}
