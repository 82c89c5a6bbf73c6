package jobsched

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/dispatch"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/state"
)

func TestServiceRuns(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		out := w.register(job("web", 5))
		if len(out.Evals) != 1 || out.JobModifyIndex != out.Index {
			t.Fatalf("registered: %+v", out)
		}
		w.wantRunning(2*time.Second, "web", 5)
		if e := w.store.View().State.Evaluation(out.Evals[0]); e.Status != jobs.EvalComplete {
			t.Errorf("the evaluation is %s", e.Status)
		}
		again := w.register(job("web", 5))
		if again.Version != 0 || again.JobModifyIndex != out.JobModifyIndex || len(again.Evals) != 1 {
			t.Errorf("registered again: %+v", again)
		}
		w.register(job("web", 2))
		w.wantRunning(2*time.Second, "web", 2)
		w.do(&jobstore.Command{Head: w.head(jobstore.JobDeregistered), Jobs: jobstore.JobWrites{
			Stop: []jobstore.JobStop{{JobKey: jobs.JobKey{Namespace: "default", ID: "web"}}}}})
		w.wantRunning(2*time.Second, "web", 0)
	})
}

// TestQueuedBeforeCapacity: what is registered first runs as nodes come (NZ-1).
func TestQueuedBeforeCapacity(t *testing.T) {
	inWorld(t, 0, func(w *world) {
		for _, id := range []string{"a", "b", "c"} {
			w.register(job(id, 8)) // 8 fit on a node
		}
		w.within(2*time.Second, "three jobs are blocked", func() bool { q, _ := w.Stats(); return q.Blocked == 3 })
		w.addNodes(0, 1)
		w.within(3*time.Second, "one node is full", func() bool {
			n := 0
			for _, id := range []string{"a", "b", "c"} {
				got, _ := w.running(id)
				n += got
			}
			return n == 8
		})
		w.addNodes(1, 3)
		for _, id := range []string{"a", "b", "c"} {
			w.wantRunning(3*time.Second, id, 8)
		}
		if q, _ := w.Stats(); q.Blocked != 0 {
			t.Errorf("still blocked: %+v", q)
		}
	})
}

// TestNewLeader: what one leader left is done by the next, and nobody is down since the first went.
func TestNewLeader(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.held.Store(false)
		w.within(3*time.Second, "the term ends", func() bool { return !w.Leads() })
		w.register(job("web", 4))
		pass(time.Minute)
		if n, _ := w.running("web"); n != 0 {
			t.Fatalf("%d run without a leader", n)
		}
		w.held.Store(true)
		w.wantRunning(3*time.Second, "web", 4)
		for u := range w.store.View().State.Uses() {
			if u.Node.Duty.Status != jobs.NodeReady {
				t.Errorf("%s is %s", u.Node.Name, u.Node.Duty.Status)
			}
		}
	})
}

// TestBlockedWorkSurvivesLeaders: what waits for room waits with the next leader too, whatever was evaluated before it.
func TestBlockedWorkSurvivesLeaders(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		for _, id := range []string{"a", "b", "c", "d"} {
			w.register(job(id, 1))
			w.wantRunning(2*time.Second, id, 1)
		}
		for _, id := range []string{"a", "b", "c", "d"} { // 8 of the 12 fit
			w.register(job(id, 3))
		}
		w.within(2*time.Second, "what does not fit waits", func() bool { q, _ := w.Stats(); return q.Blocked == 2 })
		for range 3 {
			w.held.Store(false)
			w.within(3*time.Second, "the term ends", func() bool { return !w.Leads() })
			w.held.Store(true)
			w.within(3*time.Second, "the next term", w.Leads)
			pass(time.Second)
		}
		w.addNodes(1, 3)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.wantRunning(3*time.Second, id, 3)
		}
	})
}

func TestDeadNode(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.register(job("web", 6))
		w.wantRunning(2*time.Second, "web", 6)
		w.setMute(nodeID(0), true)
		w.within(15*time.Second, "the node is down", func() bool {
			return w.store.View().State.Node(nodeID(0)).Node.Duty.Status == jobs.NodeDown
		})
		w.within(2*time.Second, "what was on the dead node is lost", func() bool {
			for a := range w.store.View().State.OnNode(nodeID(0)) {
				if a.Client.Status != jobs.ClientLost {
					return false
				}
			}
			return true
		})
		w.wantRunning(2*time.Second, "web", 6)
		w.setMute(nodeID(0), false)
		w.within(5*time.Second, "the node is back", func() bool { return w.store.View().State.Node(nodeID(0)).Ready })
	})
}

func rolling(canary int, promote, revert bool) func(*jobs.Job) {
	return func(j *jobs.Job) {
		j.Groups[0].Update = &jobs.UpdatePolicy{MaxParallel: 2, HealthCheck: "task_states", MinHealthyTime: time.Second,
			HealthyDeadline: time.Minute, ProgressDeadline: 2 * time.Minute, Canary: canary, AutoPromote: promote,
			AutoRevert: revert}
	}
}

func image(name string) func(*jobs.Job) {
	return func(j *jobs.Job) { j.Groups[0].Tasks[0].Config = name }
}

// latest is the status of a job's newest deployment.
func (w *world) latest(id string) *jobs.Deployment {
	return w.store.View().State.LatestDeployment(jobs.JobKey{Namespace: "default", ID: id})
}

func (w *world) wantDeployment(d time.Duration, id string, version uint64, status string) {
	w.t.Helper()
	w.within(d, "deployment is not "+status, func() bool {
		got := w.latest(id)
		return got != nil && got.JobVersion == version && got.Status == status
	})
}

func TestRollingUpdate(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.register(job("web", 6, rolling(0, false, false), image("1")))
		w.wantDeployment(10*time.Second, "web", 0, jobs.DeploySuccessful)
		w.register(job("web", 6, rolling(0, false, false), image("2")))
		w.wantDeployment(20*time.Second, "web", 1, jobs.DeploySuccessful)
		if n, by := w.running("web"); n != 6 || by[1] != 6 {
			t.Errorf("%d run: %v", n, by)
		}
		if j := w.store.View().State.Job(jobs.JobKey{Namespace: "default", ID: "web"}); !j.Stable {
			t.Error("the version is not stable")
		}
	})
}

func TestCanaryPromotes(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.register(job("web", 4, rolling(1, true, false), image("1")))
		w.wantDeployment(10*time.Second, "web", 0, jobs.DeploySuccessful)
		w.register(job("web", 4, rolling(1, true, false), image("2")))
		w.wantDeployment(30*time.Second, "web", 1, jobs.DeploySuccessful)
		if n, by := w.running("web"); n != 4 || by[1] != 4 {
			t.Errorf("%d run: %v", n, by)
		}
	})
}

// TestBadVersionIsReverted: a version that stays unhealthy fails its deployment, and the stable one is back (NS-28).
func TestBadVersionIsReverted(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.health = func(a *jobs.Allocation) jobs.Health {
			if a.Job.Groups[0].Tasks[0].Config == "bad" {
				return jobs.Unhealthy
			}
			return jobs.Healthy
		}
		w.register(job("web", 4, rolling(0, false, true), image("good")))
		w.wantDeployment(10*time.Second, "web", 0, jobs.DeploySuccessful)
		w.register(job("web", 4, rolling(0, false, true), image("bad")))
		w.wantDeployment(5*time.Minute, "web", 2, jobs.DeploySuccessful)
		if n, by := w.running("web"); n != 4 || by[0]+by[2] != 4 {
			t.Errorf("%d run: %v", n, by)
		}
		for d := range w.store.View().State.Deployments() {
			if d.JobVersion == 1 && d.Status != jobs.DeployFailed {
				t.Errorf("the bad one is %s", d.Status)
			}
		}
	})
}

func TestDrain(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.register(job("web", 6))
		w.wantRunning(2*time.Second, "web", 6)
		w.do(&jobstore.Command{Head: w.head(jobstore.NodeDrain), Nodes: jobstore.NodeWrites{Duty: []jobstore.DutyWrite{
			{ID: nodeID(0), Drain: &jobs.Drain{Deadline: w.now().Add(time.Hour)}}}}})
		w.within(3*time.Minute, "the node is drained", func() bool {
			u := w.store.View().State.Node(nodeID(0))
			return u.Node.Duty.Drain == nil && u.Node.Duty.Ineligible
		})
		w.wantRunning(time.Second, "web", 6)
		for a := range w.store.View().State.OnNode(nodeID(0)) {
			if !a.Terminal() {
				t.Errorf("%s is still there", a.Name())
			}
		}
	})
}

// TestDeadlineOfDrain: where nothing else has room, the deadline stops what is left; it runs again once there is room.
func TestDeadlineOfDrain(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.register(job("web", 2))
		w.wantRunning(2*time.Second, "web", 2)
		w.do(&jobstore.Command{Head: w.head(jobstore.NodeDrain), Nodes: jobstore.NodeWrites{Duty: []jobstore.DutyWrite{
			{ID: nodeID(0), Drain: &jobs.Drain{Deadline: w.now().Add(time.Minute)}}}}})
		pass(50 * time.Second)
		if n, _ := w.running("web"); n != 2 {
			t.Errorf("%d run before the deadline", n)
		}
		w.within(20*time.Second, "the node is drained", func() bool {
			return w.store.View().State.Node(nodeID(0)).Node.Duty.Drain == nil
		})
		w.wantRunning(time.Second, "web", 0)
		w.addNodes(1, 2)
		w.wantRunning(2*time.Second, "web", 2)
	})
}

func TestFailedAllocationIsReplaced(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		tries := 0
		w.end = func(a *jobs.Allocation) string {
			if tries++; tries <= 2 {
				return jobs.ClientFailed
			}
			return jobs.ClientRunning
		}
		w.register(job("web", 1))
		w.wantRunning(time.Minute, "web", 1)
		if tries != 3 {
			t.Errorf("%d tries", tries)
		}
	})
}

func TestPeriodic(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.register(job("nightly", 1, func(j *jobs.Job) {
			j.Type = jobs.Batch
			j.Periodic = &jobs.Periodic{Enabled: true, Specs: []string{"* * * * *"}}
		}))
		pass(5 * time.Minute)
		children := 0
		for j := range w.store.View().State.Jobs() {
			if j.Origin.ParentID == "nightly" {
				children++
				if s, _ := w.store.View().State.JobStatus(j); s != state.JobDead && children < 5 {
					t.Errorf("%s is %s", j.ID, s)
				}
			}
		}
		if children < 4 || children > 5 {
			t.Errorf("%d children in 5 minutes", children)
		}
		pass(20 * time.Minute)
		kept := 0
		for j := range w.store.View().State.Jobs() {
			kept++
			if age := w.now().Sub(j.SubmitTime); j.Origin.ParentID == "nightly" && age > 12*time.Minute {
				t.Errorf("%s of %v ago is kept", j.ID, age)
			}
		}
		if kept < 9 || kept > 13 {
			t.Errorf("%d jobs are kept", kept)
		}
	})
}

func TestSystemJobFollowsNodes(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.register(job("everywhere", 1, func(j *jobs.Job) { j.Type = jobs.System }))
		w.wantRunning(2*time.Second, "everywhere", 2)
		w.addNodes(2, 5)
		w.wantRunning(2*time.Second, "everywhere", 5)
	})
}

// TestSameOnEveryServer: the commands of a whole story make the same View again, and so does its snapshot.
func TestSameOnEveryServer(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.register(job("web", 6, rolling(1, true, true), image("1")))
		w.wantDeployment(10*time.Second, "web", 0, jobs.DeploySuccessful)
		w.register(job("web", 4, rolling(1, true, true), image("2")))
		w.register(job("much", 50))
		w.wantDeployment(30*time.Second, "web", 1, jobs.DeploySuccessful)
		w.setMute(nodeID(1), true)
		pass(20 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		other := jobstore.New(jobstore.Config{})
		other.ApplyBatch(w.log[:len(w.log)/2])
		for _, raw := range w.log[len(w.log)/2:] {
			other.ApplyBatch([][]byte{raw})
		}
		one, two, three := written(t, w.store.View()), written(t, other.View()), bytes.Buffer{}
		if !bytes.Equal(one, two) {
			t.Fatal("the same commands made another View")
		}
		back, err := jobstore.ReadView(bytes.NewReader(one))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := back.WriteTo(&three); err != nil || !bytes.Equal(one, three.Bytes()) {
			t.Fatalf("the snapshot reads as another View: %v", err)
		}
		for u := range w.store.View().State.Uses() {
			if got := back.State.Node(u.Node.ID); got.Room.Free != u.Room.Free {
				t.Errorf("%s: %v is free, was %v", u.Node.Name, got.Room.Free, u.Room.Free)
			}
		}
		for i := 0; i < len(one); i += 97 { // damage is noticed
			bad := bytes.Clone(one)
			bad[i] ^= 0x40
			if _, err := jobstore.ReadView(bytes.NewReader(bad)); err == nil {
				t.Fatalf("damage at %d of %d was not noticed", i, len(one))
			}
		}
	})
}

func written(t *testing.T, v *jobstore.View) []byte {
	var b bytes.Buffer
	if _, err := v.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestDispatchesShareCommits: what many dispatches need beyond their own commands is shared: plans and evaluations of
// hundreds are decided in one pass and committed together.
func TestDispatchesShareCommits(t *testing.T) {
	inWorld(t, 20, func(w *world) {
		parent := parameterized("parent")
		w.register(parent)
		before := len(w.log)
		const n = 400
		var clients sync.WaitGroup
		for range 16 {
			clients.Go(func() {
				for range n / 16 {
					now := w.now()
					w.register(dispatch.Child(parent, dispatch.Request{}, now, jobs.NewDice(Seed(), uint64(now))))
				}
			})
		}
		clients.Wait()
		w.within(time.Minute, "not all dispatches are over", func() bool {
			done := 0
			for a := range w.store.View().State.Allocations() {
				if a.Client.Status == jobs.ClientComplete {
					done++
				}
			}
			return done == n
		})
		kinds := map[string]int{}
		for _, raw := range w.log[before:] {
			c, err := jobstore.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			kinds[c.Kind]++
		}
		// 25 rounds of 16 clients: a pass can have what came while the last one was committed.
		if kinds[jobstore.JobRegistered] != n || kinds[jobstore.PlanResult] > n/4 ||
			kinds[jobstore.EvaluationUpdated] > n/16 {
			t.Errorf("commits of %d dispatches: %v", n, kinds)
		}
	})
}
