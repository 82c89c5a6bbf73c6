// Package allocrunner brings an allocation from its arrival at the node to its end: its folder, its tasks in the order
// of their lifecycle, its services, its health for deployments, and what the servers are told of it.
//
// What always holds:
//   - Save returned before anybody is told what it saved: a task's handle is durable before the task is reported.
//   - When Run's ctx ends, tasks go on running, and the next Runner of the same record finds them.
//   - Report gets the newest state after each change; it must not block.
//   - Run returns when all tasks are dead and nothing more will be reported, or with ctx.
package allocrunner

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/allocdir"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/lifecycle"
	"corbel.dev/corbel/jobs/client/nodestate"
	"corbel.dev/corbel/jobs/client/taskrunner"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/clock"
)

// Host is what allocations of a node share.
type Host struct {
	Node     func() *jobs.Node // as it is now
	Region   string
	AllocDir string // "" makes no folders: for simulated nodes
	StateDir string
	Drivers  map[string]driver.Driver
	Volumes  map[string]Volume
	// MaxKillTimeout bounds what jobs ask for.
	MaxKillTimeout time.Duration
	// Previous is an older allocation of this node, or nil.
	Previous func(jobs.ID) *Runner
	Steps    []Step
	Services Services                               // nil: none
	Networks Networks                               // nil: allocations have the host's
	Save     func(jobs.ID, *nodestate.Record) error // nil keeps nothing
	Report   func(noderpc.Update)
	Clock    clock.Clock
	Log      *slog.Logger
}

// Volume is a folder of the host that jobs may mount.
type Volume struct {
	Path     string
	ReadOnly bool
}

// Runner runs an allocation.
type Runner struct {
	host    *Host
	dir     *allocdir.Dir // nil without folders
	changed chan struct{} // capacity 1: something did
	tasks   []*task

	mu     sync.Mutex // guards what follows; nothing is called out under it
	load   *workload.Workload
	record nodestate.Record
	stop   bool
	since  time.Time // since when all is well; zero when it is not
	lives  time.Time // when this Runner began to look at the health
	told   []byte    // last report
	said   string    // its status

	saving sync.Mutex    // one Save at a time
	over   chan struct{} // closed when Run has ended with all tasks dead
}

// task is one of the group's.
type task struct {
	name   string
	runner *taskrunner.Runner
	steps  stepsOf
	away   atomic.Bool // it is being stopped: its services go before it does
}

func (t *task) leaves() bool { return t.away.Load() }

// New makes a Runner of a record, which is a new one's or that of a former life.
func New(host *Host, load *workload.Workload, record *nodestate.Record) *Runner {
	r := &Runner{host: host, load: load, changed: make(chan struct{}, 1), record: *record, over: make(chan struct{})}
	if record.Done {
		close(r.over)
	}
	r.record.Workload = r.host.kept(load)
	if r.record.Tasks == nil {
		r.record.Tasks = map[string]taskrunner.Saved{}
	}
	if host.AllocDir != "" {
		r.dir = &allocdir.Dir{Path: filepath.Join(host.AllocDir, load.ID.String())}
	}
	for _, t := range load.Group.Tasks {
		r.tasks = append(r.tasks, r.newTask(t.Name))
	}
	return r
}

// kept is load as a record has it.
func (h *Host) kept(load *workload.Workload) []byte {
	if h.Save == nil {
		return nil
	}
	return load.Bytes()
}

func (r *Runner) newTask(name string) *task {
	t := &task{name: name}
	given := r.now().Task(name)
	t.runner = taskrunner.New(taskrunner.Config{
		Name: name, Driver: r.host.Drivers[given.Driver], Clock: r.host.Clock, Log: r.host.Log,
		Saved: r.record.Tasks[name],
		Prepare: func(ctx context.Context, note func(string, string)) (*driver.Task, error) {
			return r.prepare(ctx, t, note)
		},
		Recovered: func(ctx context.Context) { resume(ctx, r, t) },
		Known:     func() *driver.Task { return r.known(name) },
		Settings:  func() taskrunner.Settings { return r.settings(name) },
		Leaving:   func(ctx context.Context) { r.leaving(ctx, name) },
		Changed:   func(s taskrunner.Saved) { r.taskChanged(name, s) },
	})
	return t
}

// now is the newest workload.
func (r *Runner) now() *workload.Workload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load
}

// Workload is what the servers sent last.
func (r *Runner) Workload() *workload.Workload { return r.now() }

// Dir is the allocation's folder; nil without folders.
func (r *Runner) Dir() *allocdir.Dir { return r.dir }

// Update takes a newer workload: it changes in place, or stops.
func (r *Runner) Update(load *workload.Workload) {
	r.mu.Lock()
	if load.ModifyIndex < r.load.ModifyIndex {
		r.mu.Unlock()
		return
	}
	if load.Rollout.Deployment != r.load.Rollout.Deployment { // the new deployment asks anew
		r.record.Health, r.record.HealthAt = jobs.Undecided, 0
		r.since, r.lives = time.Time{}, r.host.Clock.Now()
	}
	r.load, r.record.Workload = load, r.host.kept(load)
	r.mu.Unlock()
	r.save()
	r.notify()
}

// Stop ends all tasks, as when the servers want it.
func (r *Runner) Stop() {
	r.mu.Lock()
	r.stop = true
	r.mu.Unlock()
	r.notify()
}

// Retell reports again what was reported before: the servers may have lost it.
func Retell(r *Runner) {
	r.mu.Lock()
	r.told = nil
	done := r.record.Done
	r.mu.Unlock()
	if done { // nobody looks at it any more
		r.report()
		return
	}
	r.notify()
}

// Said is the status that was reported last, "" before the first report.
func Said(r *Runner) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

// Look has the Runner look again: what it depends on changed.
func (r *Runner) Look() { r.notify() }

func (r *Runner) notify() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// taskChanged stores what a task's runner says.
func (r *Runner) taskChanged(name string, s taskrunner.Saved) {
	r.mu.Lock()
	old := r.record.Tasks[name]
	fresh := make(map[string]taskrunner.Saved, len(r.record.Tasks))
	for k, v := range r.record.Tasks {
		fresh[k] = v
	}
	fresh[name] = s
	r.record.Tasks = fresh
	r.mu.Unlock()
	if old.State.State != s.State.State || string(old.Handle) != string(s.Handle) {
		r.save() // events alone may be lost with the machine
	}
	r.notify()
}

func (r *Runner) save() {
	if r.host.Save == nil {
		return
	}
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	record, id := r.record, r.load.ID
	r.mu.Unlock()
	if err := r.host.Save(id, &record); err != nil {
		r.host.Log.Error("the state of an allocation cannot be stored", "alloc", id.String(), "error", err)
	}
}

// Run runs the allocation.
func (r *Runner) Run(ctx context.Context) error {
	if r.dir != nil {
		if _, err := allocdir.Build(r.host.AllocDir, r.load.ID.String(), r.load.TaskNames()); err != nil {
			r.host.Log.Error("the folder of an allocation cannot be made", "alloc", r.load.ID.String(), "error", err)
			return r.lost(err)
		}
		if err := r.inherit(ctx); err != nil {
			r.host.Log.Warn("the data of the previous allocation is not there", "alloc", r.load.ID.String(), "error", err)
		}
	}
	r.save()
	if err := (ownNetwork{r}).join(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if !alive(&r.record) {
			ownNetwork{r}.leave(ctx)
			return r.lost(err)
		}
		r.host.Log.Error("the network of an allocation that runs on cannot be looked after", "alloc", r.load.ID.String(),
			"error", err)
	}
	r.mu.Lock()
	r.lives = r.host.Clock.Now()
	r.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, t := range r.tasks {
		running.Go(func() {
			dead := t.runner.State().State == lifecycle.Dead
			_ = t.runner.Run(ctx)
			t.steps.stop()
			if !dead && ctx.Err() == nil {
				ended(ctx, r, t)
			}
		})
	}
	for {
		wait, done := r.look()
		if done {
			running.Wait()
			r.finish(ctx)
			if ctx.Err() == nil {
				close(r.over)
			}
			return nil
		}
		var timer *clock.Timer
		var after <-chan time.Time
		if wait > 0 {
			timer = r.host.Clock.NewTimer(wait)
			after = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		case <-after:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// alive reports whether a task outlived the agent, as far as the record says.
func alive(record *nodestate.Record) bool {
	for _, s := range record.Tasks {
		if s.Handle != nil {
			return true
		}
	}
	return false
}

// lost reports an allocation that cannot begin.
func (r *Runner) lost(err error) error {
	now := r.host.Clock.Now()
	for _, name := range r.load.TaskNames() {
		r.record.Tasks[name] = taskrunner.Saved{State: jobwire.TaskState{State: lifecycle.Dead, Failed: true,
			FinishedAt: now, Events: []*jobwire.TaskEvent{{Type: "Setup Failure", Time: now.UnixNano(),
				DisplayMessage: err.Error(), Details: map[string]string{}}}}}
	}
	r.record.Done = true
	r.save()
	r.report()
	return err
}

// States are the states of the tasks, by their names.
func (r *Runner) States() map[string]jobwire.TaskState {
	all := make(map[string]jobwire.TaskState, len(r.tasks))
	for _, t := range r.tasks {
		all[t.name] = t.runner.State()
	}
	return all
}

// look does what the states of the tasks ask for. It returns when to look again, and whether all is over.
func (r *Runner) look() (wait time.Duration, done bool) {
	load, list := r.views()
	orders := lifecycle.Decide(list, r.stopping(load))
	for _, t := range r.tasks {
		if why := orders.Kill[t.name]; why != "" {
			t.runner.Kill(killEvent(why))
		}
	}
	for _, name := range orders.Begin {
		r.task(name).runner.Begin()
	}
	if r.host.Services != nil {
		r.host.Services.Set(load.ID, r.wanted(load, list))
	}
	wait = r.judge(load, list)
	if left := r.timeLeft(load); left > 0 && (wait == 0 || left < wait) {
		wait = left
	}
	r.report()
	return wait, lifecycle.Done(list)
}

// timeLeft is how long the allocation may still run; 0 is for ever, and one whose time is up is stopped.
func (r *Runner) timeLeft(load *workload.Workload) time.Duration {
	most := time.Duration(jobwire.Get(load.Group.MaxRunDuration))
	if most <= 0 {
		return 0
	}
	var began time.Time
	for _, t := range r.tasks {
		if at := t.runner.State().StartedAt; !at.IsZero() && (began.IsZero() || at.Before(began)) {
			began = at
		}
	}
	if began.IsZero() {
		return 0
	}
	left := began.Add(most).Sub(r.host.Clock.Now())
	if left <= 0 {
		r.Stop()
		return 0
	}
	return left
}

// inherit waits for the allocation that this one replaces on the node, and takes its data over where the group's disk
// is sticky. What was begun once has its data.
func (r *Runner) inherit(ctx context.Context) error {
	load := r.now()
	disk := load.Group.EphemeralDisk
	if r.host.Previous == nil || load.Previous.IsZero() || disk == nil || !jobwire.Get(disk.Sticky) ||
		len(r.record.Tasks) > 0 {
		return nil
	}
	old := r.host.Previous(load.Previous)
	if old == nil || old.dir == nil {
		return nil
	}
	select {
	case <-old.over:
	case <-ctx.Done():
		return nil
	}
	return r.dir.TakeOver(old.dir, load.TaskNames())
}

// killEvent is the event of a reason.
func killEvent(why string) (kind, text string) {
	switch why {
	case lifecycle.SiblingFailed:
		return "Sibling Task Failed", why
	case lifecycle.LeaderDead:
		return "Leader Task Dead", "Leader Task in Group dead"
	case lifecycle.MainsDead:
		return "Main Tasks Dead", why
	}
	return "Killing", why
}

func (r *Runner) stopping(load *workload.Workload) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop || !load.Wanted()
}

// finish is after the end of all tasks.
func (r *Runner) finish(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	if r.host.Services != nil {
		r.host.Services.Set(r.now().ID, nil)
	}
	ownNetwork{r}.leave(ctx)
	r.mu.Lock()
	r.record.Done = true
	r.mu.Unlock()
	r.save()
	r.report()
}

func (r *Runner) task(name string) *task {
	for _, t := range r.tasks {
		if t.name == name {
			return t
		}
	}
	return nil
}

// views are the tasks as lifecycle sees them.
func (r *Runner) views() (*workload.Workload, []lifecycle.Task) {
	load := r.now()
	var list []lifecycle.Task
	for _, t := range r.tasks {
		s := t.runner.State()
		v := lifecycle.Task{Name: t.name, State: s.State, Failed: s.Failed, Begun: !s.StartedAt.IsZero()}
		if given := load.Task(t.name); given != nil {
			v.Leader = given.Leader
			if l := given.Lifecycle; l != nil {
				v.Hook, v.Sidecar = l.Hook, l.Sidecar
			}
		}
		list = append(list, v)
	}
	return load, list
}

// Says is what there is to tell of the allocation now.
func Says(r *Runner) noderpc.Update {
	load, list := r.views()
	r.mu.Lock()
	u := noderpc.Update{Alloc: load.ID, Status: lifecycle.Status(list), Health: r.record.Health,
		HealthAt: r.record.HealthAt}
	states := map[string]*jobwire.TaskState{}
	done := true
	for name, s := range r.record.Tasks {
		state := s.State
		states[name] = &state
		if at := jobs.Time(state.StartedAt.UnixNano()); !state.StartedAt.IsZero() {
			if u.StartedAt == 0 || at < u.StartedAt {
				u.StartedAt = at
			}
		}
		if !state.FinishedAt.IsZero() {
			u.FinishedAt = max(u.FinishedAt, jobs.Time(state.FinishedAt.UnixNano()))
		}
		done = done && state.State == lifecycle.Dead
	}
	r.mu.Unlock()
	if !done {
		u.FinishedAt = 0
	}
	u.Description, u.Network = description(u.Status), ownNetwork{r}.status(load.ID)
	u.TaskStates, _ = json.Marshal(states)
	return u
}

// report tells the servers, when there is something new.
func (r *Runner) report() {
	u := Says(r)
	text := u.Append(nil)
	r.mu.Lock()
	same := string(text) == string(r.told)
	r.told, r.said = text, u.Status
	r.mu.Unlock()
	if !same {
		r.host.Report(u)
	}
}

func description(status string) string {
	switch status {
	case jobs.ClientPending:
		return "No tasks have started"
	case jobs.ClientRunning:
		return "Tasks are running"
	case jobs.ClientComplete:
		return "All tasks have completed"
	case jobs.ClientFailed:
		return "Failed tasks"
	}
	return ""
}
