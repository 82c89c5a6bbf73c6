package nodeclient

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/mockdriver"
	"corbel.dev/corbel/jobs/client/supervisor"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == supervisor.ChildCommand {
		os.Exit(supervisor.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

var a1, a2, a3 = jobs.ID{1}, jobs.ID{2}, jobs.ID{3}

// run runs a client until the returned function is called.
func run(t *testing.T, s *servers, dir string, edit func(*Config)) (*Client, func()) {
	t.Helper()
	cfg := Config{Node: Identity{ID: jobs.ID{9}, Name: "n", Datacenter: "dc1"}, Servers: s,
		RPCAddr: func() string { return "127.0.0.1:1" }, HTTPAddr: func() string { return "127.0.0.1:2" },
		Drivers: map[string]driver.Driver{"mock_driver": &mockdriver.Driver{Clock: clock.Real{}}}}
	addProcesses(cfg.Drivers)
	if dir != "" {
		cfg.AllocDir, cfg.StateDir = filepath.Join(dir, "allocs"), filepath.Join(dir, "state")
	}
	if edit != nil {
		edit(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return c, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestNodeOfMocks: registration, heartbeats, the ends of allocations, batches, stops and what the servers forget.
func TestNodeOfMocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		c, stop := run(t, s, "", nil)
		j := job(jobs.Batch, mock("t", map[string]any{"run_for": "10s"}))
		s.send(3, j, true, noderpc.Alloc{ID: a1}, noderpc.Alloc{ID: a2, Desired: jobs.Desired{Status: jobs.Stop}},
			noderpc.Alloc{ID: a3, Client: jobs.ClientComplete})
		time.Sleep(time.Second)
		synctest.Wait()
		if s.update(a1).Status != jobs.ClientRunning || s.update(a2).Status != jobs.ClientComplete ||
			s.update(a3).Status != "" || s.batches != 1 {
			t.Errorf("%+v in %d batches", s.updates, s.batches)
		}
		if n := s.register.Spec; n.Attributes["driver.mock_driver"] != "1" || !n.Drivers["mock_driver"].Healthy ||
			n.Capacity.Total.MemoryMB == 0 {
			t.Errorf("%+v", n)
		}
		s.set(true, true)
		time.Sleep(15 * time.Second) // the servers are away while the task ends
		synctest.Wait()
		s.set(false, false) // and come back without knowing the node
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if u := s.update(a1); u.Status != jobs.ClientComplete || u.FinishedAt-u.StartedAt != jobs.Time(10*time.Second) {
			t.Errorf("%+v", u)
		}
		if s.count(noderpc.MethodRegister) != 2 {
			t.Errorf("registered %d times", s.count(noderpc.MethodRegister))
		}
		long := job(jobs.Service, mock("t", nil))
		s.send(4, long, false, noderpc.Alloc{ID: a2})
		time.Sleep(time.Second)
		synctest.Wait()
		s.send(5, long, false, noderpc.Alloc{ID: a2, Desired: jobs.Desired{Status: jobs.Stop}})
		time.Sleep(time.Second)
		synctest.Wait()
		if u := s.update(a2); u.Status != jobs.ClientComplete || len(s.states(a2)["t"].Events) == 0 {
			t.Errorf("%+v", u)
		}
		s.send(3, long, true) // a server that is behind
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := c.find(a2); err != nil {
			t.Error("a server that is behind ends allocations:", err)
		}
		s.send(6, long, true) // the servers know nothing any more
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := c.find(a1); !errkind.Is(err, errkind.NotFound) {
			t.Error(err)
		}
		stop()
	})
}

// TestBehind: a server that reads its log again shows what is long over. Neither an agent that has just begun nor one
// that has seen and collected it begins it a second time; once the servers do not know the node, they began anew.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		s.index = 40
		c, stop := run(t, s, "", func(cfg *Config) { cfg.GC.MaxAllocs = 1 })
		short, long := job(jobs.Batch, mock("t", map[string]any{"run_for": "1s"})), job(jobs.Service, mock("t", nil))
		wait := func() {
			t.Helper()
			time.Sleep(30 * time.Second) // a stream that is refused is opened again by then
			synctest.Wait()
		}
		running := func(want int, when string) {
			t.Helper()
			wait()
			if n := len(c.Running()); n != want {
				t.Errorf("%s, %d allocations run, want %d", when, n, want)
			}
		}
		s.send(12, long, true, noderpc.Alloc{ID: a1})
		running(0, "before the server has all of the log")
		s.send(50, short, true, noderpc.Alloc{ID: a1}, noderpc.Alloc{ID: a2})
		running(0, "after all ended")
		time.Sleep(2 * time.Minute) // one of them is collected
		synctest.Wait()
		s.send(20, long, false, noderpc.Alloc{ID: a1}, noderpc.Alloc{ID: a2})
		running(0, "when a server reads its log again")
		s.send(51, long, false, noderpc.Alloc{ID: a3})
		running(1, "once there is something new")
		s.mu.Lock()
		s.index, s.knows = 3, false
		s.mu.Unlock()
		wait()
		s.send(4, long, false, noderpc.Alloc{ID: jobs.ID{4}})
		running(2, "when the servers began anew")
		stop()
	})
}

// TestReplaced: after a snapshot replaced what the servers know, allocations that it has run on and are reported again,
// also those that are over, and those that it does not have are stopped.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		c, stop := run(t, s, "", nil)
		long := job(jobs.Service, mock("t", nil))
		s.send(10, long, true, noderpc.Alloc{ID: a1}, noderpc.Alloc{ID: a3})
		time.Sleep(time.Second)
		synctest.Wait()
		s.send(11, job(jobs.Batch, mock("t", map[string]any{"run_for": "1s"})), false, noderpc.Alloc{ID: a2})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		began := s.update(a1).StartedAt
		s.mu.Lock()
		s.restored, s.updates = 1000, map[jobs.ID]noderpc.Update{}
		s.mu.Unlock()
		s.send(1000, long, true, noderpc.Alloc{ID: a1, Client: jobs.ClientPending}, noderpc.Alloc{ID: a2,
			Client: jobs.ClientRunning})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if u := s.update(a1); u.Status != jobs.ClientRunning || u.StartedAt != began || s.states(a1)["t"].Restarts != 0 {
			t.Errorf("what the snapshot has: %+v, began at %d", u, began)
		}
		if u := s.update(a2); u.Status != jobs.ClientComplete {
			t.Errorf("what is over: %+v", u)
		}
		if n := len(c.Running()); n != 1 {
			t.Errorf("%d run, want the one that the snapshot has", n)
		}
		select {
		case <-c.Replaced():
		default:
			t.Error("nobody is told that services are to be told again")
		}
		stop()
	})
}

// TestHealth: an allocation of a deployment becomes healthy when it has run for long enough, and unhealthy when it
// fails or takes too long.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		_, stop := run(t, s, "", nil)
		part := jobs.Rollout{Deployment: jobs.ID{7}}
		service := func(config map[string]any) *jobwire.Job {
			j := job(jobs.Service, mock("t", config))
			j.TaskGroups[0].Update = &jobwire.UpdateStrategy{MinHealthyTime: to(jobwire.Duration(10 * time.Second)),
				HealthyDeadline: to(jobwire.Duration(time.Minute))}
			j.TaskGroups[0].RestartPolicy = &jobwire.RestartPolicy{Attempts: to(100), Interval: to(jobwire.Duration(time.Hour)),
				Delay: to(jobwire.Duration(time.Second)), Mode: to("fail")}
			j.Canonicalize()
			return j
		}
		s.send(1, service(nil), true, noderpc.Alloc{ID: a1, Rollout: part})
		s.send(2, service(map[string]any{"start_error": "x"}), false, noderpc.Alloc{ID: a2, Rollout: part})
		s.send(3, service(map[string]any{"run_for": "5s"}), false, noderpc.Alloc{ID: a3, Rollout: part})
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if s.update(a1).Health != jobs.Undecided || s.update(a2).Health != jobs.Unhealthy {
			t.Errorf("%+v", s.updates)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s.update(a1).Health != jobs.Healthy || s.update(a3).Health != jobs.Undecided {
			t.Errorf("%+v", s.updates)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.update(a3).Health != jobs.Unhealthy {
			t.Errorf("%+v", s.update(a3))
		}
		stop()
	})
}

// TestReattach: a process outlives two lives of the agent; its log, its folder and its end are there after each.
func TestReattach(t *testing.T) {
	dir := t.TempDir()
	s := newServers(t)
	_, stop := run(t, s, dir, nil)
	task := &jobwire.Task{Name: "web", Driver: "raw_exec", Config: map[string]any{"command": "sh",
		"args": []any{"-c", "echo $$ $NOMAD_ALLOC_INDEX; echo x > ${NOMAD_TASK_DIR}/made; while :; do sleep 0.05; done"}}}
	s.send(1, job(jobs.Service, task), true, noderpc.Alloc{ID: a1, Index: 4})
	polltest.Until(t, func() bool { return s.update(a1).Status == jobs.ClientRunning }, "the task")
	stop()

	s = newServers(t)
	c, stop := run(t, s, dir, nil)
	polltest.Until(t, func() bool { return s.update(a1).Status == jobs.ClientRunning }, "the task again")
	if n := s.states(a1)["web"].Restarts; n != 0 {
		t.Errorf("%d restarts", n)
	}
	var log strings.Builder
	follow, end := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() {
		ask := &noderpc.LogAsk{Alloc: a1, Task: "web", Follow: true}
		followed <- answers{c}.logs(follow, noderpc.Bytes(ask), func(b []byte) error {
			m, err := noderpc.Read[noderpc.Chunk](b)
			log.Write(m.Data)
			return err
		})
	}()
	list, err := answers{c}.list(t.Context(), noderpc.Bytes(&noderpc.FileAsk{Alloc: a1, Path: "web/local"}))
	if err != nil || !strings.Contains(string(list), `"made"`) {
		t.Error(string(list), err)
	}
	s.send(2, job(jobs.Service, task), true, noderpc.Alloc{ID: a1, Index: 4, Desired: jobs.Desired{Status: jobs.Stop}})
	polltest.Until(t, func() bool { return s.update(a1).Status == jobs.ClientComplete }, "the end")
	if err := <-followed; err != nil {
		t.Error(err)
	}
	end()
	pid, index, _ := strings.Cut(strings.TrimSpace(log.String()), " ")
	if index != "4" {
		t.Errorf("the log is %q", log.String())
	}
	if _, err := os.Stat("/proc/" + pid); err == nil {
		t.Error("the process lives")
	}
	stop()

	s = newServers(t)
	c, stop = run(t, s, dir, nil)
	<-c.ready
	s.send(2, job(jobs.Service, task), true, noderpc.Alloc{ID: a1, Index: 4, Client: jobs.ClientComplete})
	polltest.Until(t, func() bool { // the life before may have ended before it knew that all is over
		if err := c.Collect(jobs.ID{}); err != nil {
			t.Fatal(err)
		}
		list, _ := os.ReadDir(filepath.Join(dir, "allocs"))
		return len(list) == 0
	}, "the folder of a collected allocation goes")
	stop()
}

// TestSuccessor: a sticky disk goes from an allocation to the one that replaces it on the node, once that has ended;
// and an allocation whose time is up ends.
func TestSuccessor(t *testing.T) {
	dir := t.TempDir()
	s := newServers(t)
	_, stop := run(t, s, dir, nil)
	j := job(jobs.Service, mock("t", map[string]any{"stdout_string": "x"}))
	j.TaskGroups[0].EphemeralDisk.Sticky = to(true)
	s.send(1, j, true, noderpc.Alloc{ID: a1})
	polltest.Until(t, func() bool { return s.update(a1).Status == jobs.ClientRunning }, "the first")
	if err := os.WriteFile(filepath.Join(dir, "allocs", a1.String(), "alloc", "data", "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.send(2, j, false, noderpc.Alloc{ID: a2, Previous: a1})
	s.send(3, j, false, noderpc.Alloc{ID: a1, Desired: jobs.Desired{Status: jobs.Stop}})
	polltest.Until(t, func() bool { return s.update(a2).Status == jobs.ClientRunning }, "the second")
	if _, err := os.Stat(filepath.Join(dir, "allocs", a2.String(), "alloc", "data", "f")); err != nil {
		t.Error(err)
	}
	short := job(jobs.Batch, mock("t", nil))
	short.TaskGroups[0].MaxRunDuration = to(jobwire.Duration(10 * time.Millisecond))
	s.send(4, short, false, noderpc.Alloc{ID: a3})
	polltest.Until(t, func() bool { return s.update(a3).Status == jobs.ClientComplete }, "the end of its time")
	s.send(5, j, false, noderpc.Alloc{ID: a2, Desired: jobs.Desired{Status: jobs.Stop}})
	polltest.Until(t, func() bool { return s.update(a2).Status == jobs.ClientComplete }, "the end")
	stop()
}

// TestStopsWithTheProcess: what runs by dev goes with it.
func TestStopsWithTheProcess(t *testing.T) {
	s := newServers(t)
	_, stop := run(t, s, t.TempDir(), func(c *Config) { c.StopTasks = true })
	task := &jobwire.Task{Name: "web", Driver: "raw_exec", Config: map[string]any{"command": "sleep",
		"args": []any{"1000"}}}
	s.send(1, job(jobs.Service, task), true, noderpc.Alloc{ID: a1})
	polltest.Until(t, func() bool { return s.update(a1).Status == jobs.ClientRunning }, "the task")
	stop()
	if u := s.update(a1); u.Status != jobs.ClientComplete {
		t.Errorf("%+v", u)
	}
}

// TestHostGauges: a node shows its host and what of it is given away, in the names that dashboards know.
func TestHostGauges(t *testing.T) {
	s := newServers(t)
	r := telemetry.New(telemetry.Config{})
	c, stop := run(t, s, t.TempDir(), func(cfg *Config) { cfg.Metrics = r })
	defer stop()
	s.send(1, job(jobs.Service, mock("t", nil)), true, noderpc.Alloc{ID: a1,
		Grant: jobs.Grant{Vector: jobs.Vector{CPU: 120, MemoryMB: 64}}})
	polltest.Until(t, func() bool { return s.update(a1).Status == jobs.ClientRunning }, "the allocation runs")
	g := newHostGauges(c)
	g.host()
	g.given()
	all := map[string]float64{}
	for _, series := range r.Series() {
		if v, ok := series.GaugeValue(); ok {
			all[r.Naming().Plain(series)] = v
		}
	}
	if all["nomad.client.allocated.cpu"] != 120 || all["nomad.client.allocated.memory"] != 64 ||
		all["nomad.client.unallocated.memory"] <= 0 || all["nomad.client.allocations.pending"] != 0 {
		t.Errorf("%v", all)
	}
	for _, name := range []string{"host.memory.total", "host.disk.size", "host.disk.used_percent"} {
		if all["nomad.client."+name] <= 0 {
			t.Errorf("%s is %v", name, all["nomad.client."+name])
		}
	}
}

// TestBeatsAgainSoon: a node whose beat was lost with a server does not wait for the next one's time.
func TestBeatsAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		_, stop := run(t, s, "", nil)
		time.Sleep(20 * time.Second)
		for range 20 {
			s.set(true, true)
			time.Sleep(7 * time.Second)
			s.set(false, true)
			before := s.count(noderpc.MethodHeartbeat)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if s.count(noderpc.MethodHeartbeat) == before {
				t.Fatal("the servers are back for 2 s, and the node has not said that it lives")
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if n := s.count(noderpc.MethodHeartbeat) - before; n > 5 {
				t.Fatalf("%d beats in 12 s of servers that take them", n)
			}
		}
		stop()
	})
}

// count is how often a method was called.
func (s *servers) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}
