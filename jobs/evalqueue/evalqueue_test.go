package evalqueue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
)

var types = []string{jobs.Service, jobs.Batch}

const now = jobs.Time(1e18)

func eval(n, job, priority int) *jobs.Evaluation {
	e := &jobs.Evaluation{JobKey: jobs.JobKey{ID: fmt.Sprint(job)}, Type: jobs.Service, Priority: priority,
		Status: jobs.EvalPending}
	e.ID[0], e.ID[14], e.ID[15] = 1, byte(n>>8), byte(n)
	e.CreateIndex = uint64(n)
	return e
}

func next(t *testing.T, q *Queue, want int) jobs.ID {
	t.Helper()
	e, token := q.Next(types, now)
	switch {
	case e == nil && want != 0:
		t.Fatalf("nothing is ready, want %d", want)
	case e != nil && e.CreateIndex != uint64(want):
		t.Fatalf("got %d, want %d", e.CreateIndex, want)
	}
	return token
}

// TestNS1And2: priority, then age; one for each job; the newest waits; tokens.
func TestNS1And2(t *testing.T) {
	q := New(1)
	low, high, same := eval(1, 1, 50), eval(2, 2, 70), eval(3, 3, 50)
	for _, e := range []*jobs.Evaluation{low, high, same, low} {
		if c := q.Add(e, now); c != nil {
			t.Fatal("canceled", c)
		}
	}
	a, b, c := eval(4, 1, 50), eval(5, 1, 50), eval(6, 1, 90)
	for _, step := range []struct{ add, canceled *jobs.Evaluation }{{a, nil}, {c, a}, {b, b}} {
		if got := q.Add(step.add, now); len(got) != 0 && got[0] != step.canceled || len(got) == 0 && step.canceled != nil {
			t.Fatal(step.add.CreateIndex, got)
		}
	}
	next(t, q, 2)
	token := next(t, q, 1)
	next(t, q, 3)
	next(t, q, 0)
	if q.Ack(low.ID, jobs.ID{9}) || !q.Holds(low.ID, token) || !q.Ack(low.ID, token) || q.Ack(low.ID, token) {
		t.Fatal("tokens")
	}
	next(t, q, 6)
	if s := q.Stats(); s != (Stats{Unacked: 3}) {
		t.Error(s)
	}
}

// TestNS2Nack: an evaluation that comes back waits longer each time, and fails after three.
func TestNS2Nack(t *testing.T) {
	q, e, at := New(1), eval(1, 1, 50), now
	q.Add(e, now)
	behind := eval(2, 1, 50)
	q.Add(behind, now)
	for i, delay := range []jobs.Time{1e9, 20e9} {
		token := next(t, q, 1)
		if failed, _ := q.Nack(e.ID, token, at); failed != nil {
			t.Fatal("failed at", i)
		}
		q.Tick(at + delay - 1)
		next(t, q, 0)
		at += delay
		q.Tick(at)
	}
	if _, token := q.Next(types, at); token.IsZero() {
		t.Fatal("not ready again")
	}
	if s := q.Tick(at + jobs.Time(Silence) - 1); s != nil {
		t.Fatal("taken back too early")
	}
	store := q.Tick(at + jobs.Time(Silence)) // the scheduler is silent: the third time
	if len(store) != 2 || store[0].Status != jobs.EvalFailed || store[1].Trigger != jobs.TriggerFailedFollowUp ||
		store[1].WaitUntil < at+jobs.Time(Silence+followUpDelay) {
		t.Fatalf("%+v", store)
	}
	next(t, q, 2)
}

// TestNS3And4: delayed evaluations come in order of their time; a paused queue hands out nothing.
func TestNS3And4(t *testing.T) {
	q := New(1)
	for n, wait := range []jobs.Time{30, 10, 20} {
		e := eval(n+1, n+1, 50)
		e.WaitUntil = now + wait
		q.Add(e, now)
		q.Add(e, now)
	}
	if q.Due() != now+10 || q.Stats().Waiting != 3 {
		t.Fatal(q.Due(), q.Stats())
	}
	q.Tick(now + 20)
	q.Pause(true)
	next(t, q, 0)
	q.Pause(false)
	next(t, q, 2)
	next(t, q, 3)
	next(t, q, 0)
}

func blocked(n, job int, classes map[uint64]bool, least, all int64) Blocked {
	e := eval(n, job, 50)
	e.Status, e.Trigger, e.SnapshotIndex = jobs.EvalBlocked, jobs.TriggerQueued, 10
	e.Outcome.Classes = classes
	return Blocked{Eval: e, Least: jobs.Vector{CPU: least}, All: jobs.Vector{CPU: all}}
}

func gain(class uint64, free jobs.Vector, index uint64) jobs.Gain {
	return jobs.Gain{Class: class, Free: free, Index: index}
}

// TestNS6To11: one blocked evaluation for each job, woken by what could serve it, and by no more.
func TestNS6To11(t *testing.T) {
	q := New(1)
	q.Block(blocked(1, 1, map[uint64]bool{1: true, 2: false}, 100, 100), now)
	canceled, woken := q.Block(blocked(2, 1, map[uint64]bool{1: true, 2: false}, 100, 100), now)
	if canceled == nil || canceled.CreateIndex != 1 || canceled.Status != jobs.EvalCanceled || woken != nil {
		t.Fatal(canceled, woken)
	}
	if c, _ := q.Block(blocked(1, 1, nil, 1, 1), now); c == nil || c.CreateIndex != 1 {
		t.Fatal("an older one replaces a newer one")
	}
	big := jobs.Vector{CPU: 1000}
	if w := q.Wake([]jobs.Gain{gain(2, big, 11)}, now); w != nil {
		t.Fatal("NS-7: woken by a class that cannot serve it", w)
	}
	if w := q.Wake([]jobs.Gain{gain(1, jobs.Vector{CPU: 99}, 12)}, now); w != nil {
		t.Fatal("woken by too little")
	}
	if w := q.Wake([]jobs.Gain{gain(3, big, 13)}, now); len(w) != 1 || w[0].Status != jobs.EvalPending {
		t.Fatal("NS-7: a class that it has not seen", w)
	}
	// NS-9: class 3 gained at 13, what looked at 10 has missed it; what looked at 13 has not.
	if _, woken := q.Block(blocked(4, 4, nil, 1, 1), now); woken == nil {
		t.Fatal("a gain was missed")
	}
	late := blocked(5, 5, nil, 1, 1)
	late.Eval.SnapshotIndex = 13
	if _, woken := q.Block(late, now); woken != nil {
		t.Fatal("woken by what it knew")
	}
	if c := q.Forget(late.Eval.JobKey, now); c == nil || q.Stats().Blocked != 0 {
		t.Fatal("not forgotten")
	}
	// NS-10: no more than what fits; what escapes classes is woken by any.
	for n := range 100 {
		b := blocked(10+n, 10+n, nil, 100, 1000)
		b.Eval.SnapshotIndex = 13
		q.Block(b, now)
	}
	three := []jobs.Gain{gain(1, big, 14), gain(1, big, 15), gain(7, big, 15)}
	if w := q.Wake(three, now); len(w) != 3 || w[0].CreateIndex != 10 {
		t.Errorf("woke %d of 100, there is room for 3", len(w))
	}
	if w := q.Wake([]jobs.Gain{gain(1, jobs.Vector{}, 16)}, now); len(w) != 97 {
		t.Errorf("woke %d for unknown room", len(w))
	}
	// What is larger than all that a new class brought is tried once, to say what it lacks.
	for i, seen := range []map[uint64]bool{{}, {5: true}, {}, {5: true}} {
		large := blocked(200+i, 200+i, seen, 2000, 2000)
		large.Eval.SnapshotIndex, large.Eval.Outcome.Escaped = 16+uint64(i), i > 1
		q.Block(large, now)
		if w := q.Wake([]jobs.Gain{gain(5, big, 17+uint64(i))}, now); len(w) != 1-len(seen) {
			t.Errorf("class 5 was seen: %v, escaped: %v; woke %d", seen, i > 1, len(w))
		}
		q.Forget(large.Eval.JobKey, now)
	}
	// NS-11
	gave := blocked(300, 300, map[uint64]bool{1: false}, 1, 1)
	gave.Eval.Trigger, gave.Eval.SnapshotIndex = jobs.TriggerMaxPlans, 20
	q.Block(gave, now)
	if w := q.Wake([]jobs.Gain{gain(1, big, 21)}, now); len(w) != 1 {
		t.Error("work that gave up is not tried again")
	}
	quota := blocked(400, 400, map[uint64]bool{}, 1, 1)
	quota.Eval.Quota, quota.Eval.SnapshotIndex = "team", 30
	q.Block(quota, now)
	if w := q.WakeQuota("other", 31, now); w != nil {
		t.Error("another quota")
	}
	if w := q.WakeQuota("team", 31, now); len(w) != 1 {
		t.Error("the quota rose")
	}
	q.Prune(31)
	if len(q.classes)+len(q.quotas) != 0 {
		t.Error("not pruned")
	}
}

// TestRefresh: work that is too large for the nodes that come says the same of them for half a minute, and is then
// looked at again: one a call, and never because of room that comes free on nodes that it knows.
func TestRefresh(t *testing.T) {
	q, known := New(1), map[uint64]bool{5: true}
	large := func(n, job int) *jobs.Evaluation {
		b := blocked(n, job, known, 2000, 2000)
		b.Eval.Outcome.Escaped, b.Eval.SnapshotIndex = job%2 == 1, 20
		b.Eval.CreateTime, b.Eval.ModifyTime = now+jobs.Time(n), now+jobs.Time(n)
		if _, woken := q.Block(b, now); woken != nil {
			t.Fatal("woken by what it knew")
		}
		return b.Eval
	}
	first := large(1, 1)
	room := gain(5, jobs.Vector{CPU: 1000}, 12)
	wake := func(node bool) {
		t.Helper()
		room.Node = node
		if w := q.Wake([]jobs.Gain{room}, now); w != nil {
			t.Fatal("woken by too little", w)
		}
	}
	wake(false)
	if e := q.Tick(now.Add(time.Hour)); e != nil {
		t.Fatal("room on a node that it knows made it stale", e)
	}
	wake(true)
	wake(true)
	if e := q.Tick(first.ModifyTime.Add(refreshAfter) - 1); e != nil {
		t.Fatal("looked at again too early", e)
	}
	q.Pause(true)
	if e := q.Tick(first.ModifyTime.Add(refreshAfter)); e != nil {
		t.Fatal("looked at again while nothing is handed out", e)
	}
	q.Pause(false)
	if e := q.Tick(first.ModifyTime.Add(refreshAfter)); len(e) != 1 || e[0].ID != first.ID ||
		e[0].Status != jobs.EvalPending {
		t.Fatal("not looked at again", e)
	}
	for n := range 3 { // the first of them again, by its next evaluation
		large(2+n, 1+n)
	}
	q.EachBlocked(func(e *jobs.Evaluation, since jobs.Time) {
		if e.CreateIndex == 2 && since != first.CreateTime {
			t.Errorf("a job that was tried waits since %d, want %d", since, first.CreateTime)
		}
	})
	wake(true)
	at := now.Add(time.Hour)
	for n := range uint64(3) {
		if e := q.Tick(at); len(e) != 1 || e[0].CreateIndex != 2+n {
			t.Errorf("call %d: %v", n, e)
		}
	}
	if e := q.Tick(at); e != nil || q.Stats().Blocked != 0 {
		t.Error("more than there was", e)
	}
}

// TestOrder judges random runs: never two of a job at once, never a lower priority before a higher one,
// and nothing is lost.
func TestOrder(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := New(seed)
		out := map[jobs.ID]jobs.ID{}
		evals := map[jobs.ID]*jobs.Evaluation{}
		busy := map[jobs.JobKey]bool{}
		open, at := 0, now
		for n := range 200 {
			if r.IntN(2) == 0 {
				e := eval(n+1, r.IntN(10), 10*r.IntN(10))
				evals[e.ID] = e
				open += 1 - len(q.Add(e, at))
			}
			if e, token := q.Next(types, at); e != nil && r.IntN(2) == 0 {
				if busy[e.JobKey] {
					t.Fatalf("seed %d: two of job %s", seed, e.JobKey.ID)
				}
				busy[e.JobKey], out[e.ID] = true, token
			} else if e != nil {
				q.Ack(e.ID, token)
				open--
			}
			for id, token := range out {
				if r.IntN(3) == 0 && q.Ack(id, token) {
					delete(out, id)
					delete(busy, evals[id].JobKey)
					open--
				}
			}
			s := q.Stats()
			if s.Ready+s.Pending+s.Unacked != open || s.Ready+s.Pending+s.Unacked > 20 {
				t.Fatalf("seed %d: %+v, want %d in all", seed, s, open)
			}
		}
	}
}
