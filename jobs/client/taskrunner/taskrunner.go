// Package taskrunner brings one task from its start to its end: it prepares it, starts it by its driver, restarts it by
// its policy, stops it when it is told, and notes what happened.
//
// What always holds:
//   - What the driver needs to find the task again is stored (Config.Changed) before anything else happens with it. A
//     Runner made with it goes on with the task that runs.
//   - When Run's ctx ends, the task goes on running. Only Kill ends it.
//   - Changed gets each state in order and is never called under a lock. A state that was given out never changes.
//   - Run returns when the task is dead, or with ctx. Other methods may be called by any goroutine, at any time.
package taskrunner

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/lifecycle"
	"corbel.dev/corbel/jobs/client/restartpolicy"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// maxEvents is how many events a task keeps (NK-3).
const maxEvents = 10

// stopSlack is how long beyond its kill timeout a driver may take to stop a task before it is asked again.
const stopSlack = 30 * time.Second

// recoverTries is how often, a second apart, a driver is asked for a task while what it stands on is away: an Engine
// that starts with the host.
const recoverTries = 60

// Config is what a Runner needs.
type Config struct {
	Name   string
	Driver driver.Driver // nil: the node has no such driver
	// Prepare makes ready what the driver starts. It may take long; Unavailable may pass.
	Prepare func(ctx context.Context, note func(kind, text string)) (*driver.Task, error)
	// Recovered is called when a task was found that outlived the agent; nil is not.
	Recovered func(ctx context.Context)
	// Known is the task as the driver finds it again.
	Known func() *driver.Task
	// Settings are those of now.
	Settings func() Settings
	// Leaving is called before a running task is stopped for good: its services go.
	Leaving func(ctx context.Context)
	Changed func(Saved)
	Saved   Saved
	Clock   clock.Clock
	Log     *slog.Logger
}

// Settings are what may change while a task runs.
type Settings struct {
	Policy      restartpolicy.Policy
	KillTimeout time.Duration
	KillSignal  string
	// ShutdownDelay passes between Leaving and the signal.
	ShutdownDelay time.Duration
}

// Saved is what survives the agent.
type Saved struct {
	State   jobwire.TaskState
	Handle  []byte // the driver's state; nil when it does not run
	History restartpolicy.History
}

// Runner runs a task.
type Runner struct {
	cfg     Config
	begin   chan struct{} // closed by Begin
	killed  chan struct{} // closed by Kill
	restart chan string   // why
	once    struct{ begin, kill sync.Once }

	mu      sync.Mutex // guards what follows; nothing is called out under it
	saved   Saved
	running driver.Running
	why     [2]string // the event's type and text of Kill
}

// New makes a Runner and starts nothing.
func New(cfg Config) *Runner {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{cfg: cfg, begin: make(chan struct{}), killed: make(chan struct{}), restart: make(chan string, 1),
		saved: cfg.Saved}
	if r.saved.State.State == "" {
		r.saved.State.State = lifecycle.Pending
	}
	return r
}

// State is what is known of the task.
func (r *Runner) State() jobwire.TaskState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved.State
}

// Begin lets the task start. It may be called again.
func (r *Runner) Begin() { r.once.begin.Do(func() { close(r.begin) }) }

// Kill ends the task for good, with an event. The first reason counts.
func (r *Runner) Kill(kind, text string) {
	r.once.kill.Do(func() {
		r.mu.Lock()
		r.why = [2]string{kind, text}
		r.mu.Unlock()
		close(r.killed)
	})
}

// Restart stops a running task and starts it again; its policy does not count that. NotFound when it does not run.
func (r *Runner) Restart(why string) error {
	if r.Running() == nil {
		return errkind.New(errkind.NotFound, "Task not running")
	}
	select {
	case r.restart <- why:
	default: // one is under way
	}
	return nil
}

// Running is the task as its driver has it, or nil.
func (r *Runner) Running() driver.Running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// Signal sends a signal, with an event.
func (r *Runner) Signal(name, why string) error {
	running := r.Running()
	if running == nil {
		return errkind.New(errkind.NotFound, "Task not running")
	}
	r.note("Signaling", "Task being sent signal "+name+why, map[string]string{"signal": name})
	return running.Signal(name)
}

// Note adds an event.
func (r *Runner) Note(kind, text string) { r.note(kind, text, nil) }

func (r *Runner) note(kind, text string, details map[string]string) {
	r.change(func(*Saved) {}, kind, text, details)
}

// change edits what is known, with an event, and stores it.
func (r *Runner) change(edit func(*Saved), kind, text string, details map[string]string) {
	if details == nil {
		details = map[string]string{}
	}
	event := &jobwire.TaskEvent{Type: kind, Time: r.cfg.Clock.Now().UnixNano(), DisplayMessage: text, Details: details}
	r.mu.Lock()
	s := r.saved
	edit(&s)
	events := append(slices.Clone(s.State.Events), event)
	s.State.Events = events[max(0, len(events)-maxEvents):]
	r.saved = s
	r.mu.Unlock()
	r.cfg.Changed(s)
}

// Run runs the task.
func (r *Runner) Run(ctx context.Context) error {
	if r.State().State == lifecycle.Dead {
		return nil
	}
	if len(r.State().Events) == 0 {
		r.note("Received", "Task received by client", nil)
	}
	running := r.recover(ctx)
	if running == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-r.killed:
			r.dead(false)
			return nil
		case <-r.begin:
		}
	}
	for ctx.Err() == nil {
		var end restartpolicy.End
		if running == nil {
			running, end = r.start(ctx)
		}
		if running != nil {
			end = r.watch(ctx, running)
			running = nil
		}
		if ctx.Err() != nil || !r.again(ctx, end) {
			return nil
		}
	}
	return nil
}

// recover finds the task that a former life of the agent left running.
func (r *Runner) recover(ctx context.Context) driver.Running {
	handle := r.cfg.Saved.Handle
	if handle == nil || r.cfg.Driver == nil {
		return nil
	}
	running, err := r.cfg.Driver.Recover(ctx, r.cfg.Known(), handle)
	for range recoverTries {
		if !errkind.Is(err, errkind.Unavailable) || !r.pause(ctx, time.Second, r.killed) {
			break
		}
		running, err = r.cfg.Driver.Recover(ctx, r.cfg.Known(), handle)
	}
	if ctx.Err() != nil {
		return nil // the next life looks again
	}
	if err != nil {
		r.cfg.Log.Warn("a task did not outlive the agent", "task", r.cfg.Name, "error", err)
		r.change(func(s *Saved) { s.Handle, s.State.State = nil, lifecycle.Pending }, "Driver Failure",
			"the task is gone since the agent stopped: "+err.Error(), nil)
		r.Begin() // it had
		return nil
	}
	r.mu.Lock()
	r.running = running
	r.mu.Unlock()
	if r.cfg.Recovered != nil {
		r.cfg.Recovered(ctx)
	}
	return running
}

// start prepares and starts the task. Kill stops it from both.
func (r *Runner) start(ctx context.Context) (driver.Running, restartpolicy.End) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-r.killed:
			cancel()
		case <-ctx.Done():
		}
	}()
	if r.cfg.Driver == nil {
		r.note("Driver Failure", "the node has no driver for the task", nil)
		return nil, restartpolicy.Hopeless
	}
	r.note("Task Setup", "Building Task Directory", nil)
	task, err := r.cfg.Prepare(ctx, r.Note)
	if err != nil {
		return nil, r.failed(ctx, "Setup Failure", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, restartpolicy.NotStarted
	}
	running, err := r.cfg.Driver.Start(ctx, task)
	if err != nil {
		return nil, r.failed(ctx, "Driver Failure", err)
	}
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	r.running = running
	r.mu.Unlock()
	r.change(func(s *Saved) {
		s.Handle = running.State()
		s.State.State = lifecycle.Running
		if s.State.StartedAt.IsZero() {
			s.State.StartedAt = now
		}
	}, "Started", "Task started by client", nil)
	return running, restartpolicy.Succeeded
}

func (r *Runner) failed(ctx context.Context, kind string, err error) restartpolicy.End {
	if ctx.Err() != nil {
		return restartpolicy.NotStarted // killed, or the agent stops
	}
	r.note(kind, err.Error(), map[string]string{"message": err.Error()})
	if errkind.Is(err, errkind.Unavailable) || errors.Is(err, context.DeadlineExceeded) {
		return restartpolicy.NotStarted
	}
	return restartpolicy.Hopeless
}

// watch waits for the end of a running task, or makes it end.
func (r *Runner) watch(ctx context.Context, running driver.Running) restartpolicy.End {
	type result struct {
		exit driver.Exit
		err  error
	}
	ended := make(chan result, 1)
	waiting, cancel := context.WithCancel(ctx)
	var waiter sync.WaitGroup
	defer waiter.Wait()
	defer cancel()
	waiter.Go(func() {
		exit, err := running.Wait(waiting)
		ended <- result{exit, err}
	})
	asked := false
	var res result
	select {
	case res = <-ended:
	case <-ctx.Done():
		return restartpolicy.Succeeded
	case why := <-r.restart:
		asked = true
		r.note("Restart Signaled", why, nil)
		r.stop(ctx, running)
		res = <-ended
	case <-r.killed:
		r.kill(ctx, running)
		res = <-ended
	}
	if ctx.Err() != nil {
		return restartpolicy.Succeeded
	}
	return r.ended(running, res.exit, res.err, asked)
}

// ended notes the end of a run.
func (r *Runner) ended(running driver.Running, exit driver.Exit, err error, asked bool) restartpolicy.End {
	if err != nil {
		exit = driver.Exit{Code: -1, Text: err.Error()}
	}
	if err := running.Remove(); err != nil {
		r.cfg.Log.Warn("a task left something behind", "task", r.cfg.Name, "error", err)
	}
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	text, details := terminated(exit)
	r.change(func(s *Saved) { s.Handle = nil }, "Terminated", text, details)
	switch {
	case asked:
		return restartpolicy.Asked
	case exit.OK():
		return restartpolicy.Succeeded
	}
	return restartpolicy.Failed
}

// kill ends a task for good.
func (r *Runner) kill(ctx context.Context, running driver.Running) {
	s := r.cfg.Settings()
	if r.cfg.Leaving != nil {
		r.cfg.Leaving(ctx)
	}
	if s.ShutdownDelay > 0 {
		r.note("Waiting for shutdown delay", "Waiting for shutdown_delay of "+s.ShutdownDelay.String()+
			" before killing the task.", nil)
		r.pause(ctx, s.ShutdownDelay, nil)
	}
	r.mu.Lock()
	why := r.why
	r.mu.Unlock()
	r.note("Killing", "Sent interrupt. Waiting "+s.KillTimeout.String()+" before force killing",
		map[string]string{"kill_reason": why[1], "kill_timeout": s.KillTimeout.String()})
	r.stop(ctx, running)
}

// stop asks the driver until the task is gone.
func (r *Runner) stop(ctx context.Context, running driver.Running) {
	s := r.cfg.Settings()
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, s.KillTimeout+stopSlack)
		err := running.Stop(limited, s.KillSignal, s.KillTimeout)
		cancel()
		if err == nil {
			return
		}
		r.note("Killing", "the driver could not stop the task: "+err.Error(), nil)
		r.pause(ctx, 5*time.Second, nil)
	}
}

// again decides what follows a run, waits for it, and reports whether another begins.
func (r *Runner) again(ctx context.Context, end restartpolicy.End) bool {
	select {
	case <-r.killed:
		r.dead(false)
		return false
	default:
	}
	r.mu.Lock()
	history := r.saved.History
	r.mu.Unlock()
	d, history := restartpolicy.Decide(r.cfg.Settings().Policy, history, end, r.cfg.Clock.Now(), rand.Float64())
	if !d.Restart {
		r.change(func(s *Saved) { s.History = history }, "Not Restarting", d.Why, nil)
		r.dead(d.Failed)
		return false
	}
	now := r.cfg.Clock.Now()
	edit := func(s *Saved) {
		s.History = history
		s.State.State, s.State.LastRestart = lifecycle.Pending, now
		s.State.Restarts++
	}
	if end == restartpolicy.Asked {
		r.change(edit, "Restarting", "Task restarting in 0s", nil)
		return ctx.Err() == nil
	}
	r.change(edit, "Restarting", d.Why, map[string]string{"restart_reason": d.Why})
	if r.pause(ctx, d.After, r.killed) {
		return true
	}
	if ctx.Err() == nil {
		r.dead(false)
	}
	return false
}

// pause waits; false when ctx or stop ended it.
func (r *Runner) pause(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
	timer := r.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	return false
}

// dead notes that the task will not run again.
func (r *Runner) dead(failed bool) {
	r.mu.Lock()
	why := r.why
	r.mu.Unlock()
	kind, text := "Killed", "Task successfully killed"
	if why[0] != "" && why[0] != "Killing" {
		r.note(why[0], why[1], nil)
	}
	now := r.cfg.Clock.Now()
	edit := func(s *Saved) {
		s.Handle = nil
		s.State.State, s.State.Failed = lifecycle.Dead, failed
		if s.State.FinishedAt.IsZero() {
			s.State.FinishedAt = now
		}
	}
	if why[0] == "" {
		r.silently(edit)
		return
	}
	r.change(edit, kind, text, nil)
}

// silently is change without an event.
func (r *Runner) silently(edit func(*Saved)) {
	r.mu.Lock()
	s := r.saved
	edit(&s)
	r.saved = s
	r.mu.Unlock()
	r.cfg.Changed(s)
}
