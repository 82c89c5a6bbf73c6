package plugins

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins/message"
)

// instance is the process of a mount in one term, or what is known of the last one.
type instance struct {
	p      *Plugins
	made   time.Time
	ctx    context.Context // of what is asked of it; ends with the term
	cancel context.CancelFunc
	entry  atomic.Pointer[mount.Entry] // as it was set last

	turn    chan struct{} // held by who starts the process
	places  chan struct{} // of calls
	probing atomic.Bool   // somebody looks whether it hangs
	rolling atomic.Bool   // its periodic work is under way

	mu      sync.Mutex // guards what follows
	run     running
	paths   engine.Special
	failing failing
	stopped bool
}

// running is a process and when it began.
type running struct {
	Process
	since, rolled time.Time
}

// failing is how often in a row a process did not start, or died soon.
type failing struct {
	times int
	until time.Time // no other is started before
	err   error
}

func newInstance(p *Plugins, e *mount.Entry) *instance {
	i := &instance{p: p, made: p.Now(), turn: make(chan struct{}, 1), places: make(chan struct{}, maxCalls)}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.entry.Store(e)
	return i
}

// steadyAfter is how long a process lives that did not die soon.
const steadyAfter = time.Minute

// pause is how long nothing is started after so many failures in a row.
func pause(times int) time.Duration {
	if times < 2 {
		return 0
	}
	return min(time.Second<<min(times-2, 10), time.Minute)
}

// failed counts a failure. mu is held.
func (f *failing) failed(now time.Time, err error) {
	f.times++
	f.until, f.err = now.Add(pause(f.times)), err
}

var (
	errEnds = errkind.New(errkind.Unavailable, "the plug-in's process is being ended: try again")
	errLost = errkind.New(errkind.Unavailable,
		"the call of the plug-in was broken off: whether it did what was asked is not known; try again")
	errDied = errkind.New(errkind.Unavailable,
		"the plug-in's process died: whether it did what was asked is not known; the next request starts it again")
)

// current is the process that runs; nil where there is none.
func (i *instance) current() Process {
	i.mu.Lock()
	defer i.mu.Unlock()
	proc := i.run.Process
	if proc == nil {
		return nil
	}
	select {
	case <-proc.Ended():
	default:
		return proc
	}
	now := i.p.Now()
	if now.Sub(i.run.since) >= steadyAfter {
		i.failing = failing{}
	}
	i.failing.failed(now, errDied)
	i.run = running{}
	i.p.died.Add(1)
	e := i.entry.Load()
	i.p.Log.Warn("secrets: a plug-in died", "plugin", e.Type, "mount", e.Path)
	i.p.group.start(proc.Kill)
	return nil
}

// special is what the process said when it was started last.
func (i *instance) special() engine.Special {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.paths
}

// ensure gives the process, and starts it where there is none.
func (i *instance) ensure(ctx context.Context) (Process, error) {
	if proc := i.current(); proc != nil {
		return proc, nil
	}
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errkind.E(errkind.Unavailable, "", context.Cause(ctx))
	case <-i.ctx.Done():
		return nil, errEnds
	}
	defer func() { <-i.turn }()
	if proc := i.current(); proc != nil {
		return proc, nil
	}
	e := i.entry.Load()
	i.mu.Lock()
	failing, stopped := i.failing, i.stopped
	i.mu.Unlock()
	if stopped {
		return nil, errEnds
	}
	if left := failing.until.Sub(i.p.Now()); left > 0 {
		return nil, errkind.Errorf(errkind.Unavailable, "the plug-in %s of %s is not started again for %s: %w", e.Type,
			e.Path, left.Round(time.Second), failing.err)
	}
	proc, paths, err := i.start(e)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil && i.stopped {
		err = errEnds
		i.p.group.start(proc.Kill)
	}
	if err != nil {
		i.failing.failed(i.p.Now(), err)
		return nil, err
	}
	now := i.p.Now()
	i.run, i.paths = running{proc, now, now}, paths
	i.p.began.Add(1)
	return proc, nil
}

// start starts a process for the mount, and makes it ready.
func (i *instance) start(e *mount.Entry) (proc Process, paths engine.Special, err error) {
	entry := i.p.Find(kindOf(e), e.Type, e.External.Version)
	if entry == nil {
		return nil, paths, i.logged(e, errNoPlugin(e))
	}
	free, err := i.p.slots.take(e.Space)
	if err != nil {
		return nil, paths, i.logged(e, err)
	}
	ctx, cancel := context.WithTimeout(i.ctx, startWithin)
	defer cancel()
	proc, err = i.p.Runner.Start(ctx, Launch{Entry: entry, Mount: e.Path, UUID: e.UUID, Version: i.p.Version,
		Serve: i.serve})
	if err != nil {
		free()
		return nil, paths, i.notStarted(e, err)
	}
	proc = &placed{proc, free}
	if paths, err = i.ready(ctx, proc, entry, e); err != nil {
		proc.Kill()
		return nil, paths, i.notStarted(e, err)
	}
	i.p.Log.Info("secrets: a plug-in was started", "plugin", e.Type, "version", entry.Version, "mount", e.Path)
	return proc, paths, nil
}

// logged is why nothing is started. It is written once for each try, and these have pauses.
func (i *instance) logged(e *mount.Entry, err error) error {
	i.p.Log.Warn("secrets: a plug-in cannot be started", "plugin", e.Type, "mount", e.Path, "error", err)
	return err
}

func (i *instance) notStarted(e *mount.Entry, err error) error {
	_ = i.logged(e, err)
	return errkind.Errorf(errkind.Unavailable, "the plug-in %s of %s cannot be started: %w", e.Type, e.Path, err)
}

// ready makes the mount's instance within a process.
func (i *instance) ready(ctx context.Context, proc Process, entry *Entry, e *mount.Entry) (s engine.Special,
	err error) {
	var kind message.TypeReply
	var setup message.SetupReply
	var paths message.PathsReply
	var begun message.InitializeReply
	config := map[string]string{}
	maps.Copy(config, e.Options)
	config["plugin_name"], config["plugin_type"], config["plugin_version"] = entry.Name, entry.Type, entry.Version
	if err := proc.Call(ctx, message.Setup, &message.SetupArgs{Broker: proc.Broker(), Config: config, UUID: e.UUID},
		&setup); err != nil {
		return s, err
	}
	if setup.Err != "" {
		return s, errors.New(setup.Err)
	}
	if err := proc.Call(ctx, message.Type, &message.Empty{}, &kind); err != nil {
		return s, err
	}
	if want := map[string]uint32{Secret: message.TypeSecret, Auth: message.TypeAuth}[entry.Type]; kind.Type != want {
		return s, errkind.Errorf(errkind.Invalid, "it is no plug-in of type %s: register it under its own", entry.Type)
	}
	if err := proc.Call(ctx, message.SpecialPaths, &message.Empty{}, &paths); err != nil {
		return s, err
	}
	if found := paths.Paths; found != nil {
		s.Open, s.Protected = found.Unauthenticated, found.Root
	}
	if err := proc.Call(ctx, message.Initialize, &message.Empty{}, &begun); err != nil {
		return s, err
	}
	if begun.Err != nil {
		return s, errors.New(begun.Err.Text)
	}
	return s, nil
}

// place takes one of those who ask the process, or wait for its start.
func (i *instance) place() (leave func(), err error) {
	select {
	case i.places <- struct{}{}:
		return func() { <-i.places }, nil
	default:
		return nil, errkind.Errorf(errkind.Overloaded, "%d requests wait for the plug-in already", maxCalls)
	}
}

// wake starts the process where it does not run, and gives what is special of its paths.
func (i *instance) wake(ctx context.Context) (engine.Special, error) {
	if i.current() == nil {
		leave, err := i.place()
		if err != nil {
			return engine.Special{}, err
		}
		defer leave()
		if _, err := i.ensure(ctx); err != nil {
			return engine.Special{}, err
		}
	}
	return i.special(), nil
}

// call asks the process for something, which is started where it does not run.
func (i *instance) call(ctx context.Context, method string, in, out any) error {
	leave, err := i.place()
	if err != nil {
		return err
	}
	defer leave()
	proc, err := i.ensure(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	defer context.AfterFunc(i.ctx, cancel)()
	err = proc.Call(within, method, in, out)
	switch {
	case err == nil:
		return nil
	case i.ctx.Err() != nil:
		return errEnds
	case ctx.Err() != nil:
		i.probe(proc)
		return errkind.E(errkind.Unavailable, "", context.Cause(ctx))
	case within.Err() != nil:
		i.probe(proc)
		return errkind.Errorf(errkind.Unavailable, "the plug-in did not answer within %s", callWithin)
	case errkind.Is(err, errkind.Unavailable):
		seen := time.NewTimer(time.Second) // its end is known a moment after its connection's
		defer seen.Stop()
		select {
		case <-proc.Ended():
			return errDied
		case <-seen.C:
		case <-within.Done():
		}
		i.probe(proc) // it lives, and may be out of reach
		return errLost
	}
	return err
}

// probeWithin is how long a process may take to say what it is, which costs nothing, until it is taken to hang.
const probeWithin = 5 * time.Second

// probe kills a process that hangs. It does not wait.
func (i *instance) probe(proc Process) {
	if !i.probing.CompareAndSwap(false, true) {
		return
	}
	i.p.group.start(func() {
		defer i.probing.Store(false)
		ctx, cancel := context.WithTimeout(i.ctx, probeWithin)
		defer cancel()
		var kind message.TypeReply
		if err := proc.Call(ctx, message.Type, &message.Empty{}, &kind); err != nil && i.ctx.Err() == nil {
			e := i.entry.Load()
			i.p.Log.Warn("secrets: a plug-in hangs and is killed", "plugin", e.Type, "mount", e.Path, "error", err)
			proc.Kill()
		}
	})
}

// cleanupWithin is how long a process may take to tidy up before it is killed.
const cleanupWithin = time.Second

// stop ends the process for good, once what is asked of it is answered, or its time is over. Without any it is killed
// as it is: the next term waits for its end.
func (i *instance) stop(grace time.Duration) {
	i.mu.Lock()
	i.stopped = true
	proc := i.run.Process
	i.run = running{}
	i.mu.Unlock()
	if proc == nil || grace == 0 {
		i.cancel()
		if proc != nil {
			proc.Kill()
		}
		return
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for range maxCalls { // all places are free: nobody asks any more
		select {
		case i.places <- struct{}{}:
			continue
		case <-timer.C:
		}
		break
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupWithin)
	defer cancel()
	_ = proc.Call(ctx, message.Cleanup, &message.Empty{}, &message.Empty{}) // it is killed all the same
	i.cancel()
	proc.Kill()
}

// rollbackEvery is how often a plug-in is asked for its periodic work.
const rollbackEvery = time.Minute

// tend starts the process where it does not run, and asks it for its periodic work. It does not wait.
func (i *instance) tend() {
	now := i.p.Now()
	i.mu.Lock()
	idle := i.run.Process == nil && now.Before(i.failing.until) || i.stopped
	due := i.run.Process == nil || now.Sub(i.run.rolled) >= rollbackEvery
	select {
	case <-ended(i.run.Process):
		due = true
	default:
	}
	i.mu.Unlock()
	if idle || !due || !i.rolling.CompareAndSwap(false, true) {
		return
	}
	i.p.group.start(func() {
		defer i.rolling.Store(false)
		if _, err := i.ensure(i.ctx); err != nil {
			return // it was logged, and is tried again
		}
		i.mu.Lock()
		due := now.Sub(i.run.rolled) >= rollbackEvery
		i.run.rolled = now
		i.mu.Unlock()
		if !due {
			return
		}
		var reply message.RequestReply
		e := i.entry.Load()
		err := i.call(i.ctx, message.HandleRequest, &message.RequestArgs{Request: about(e, opRollback, "")}, &reply)
		if err == nil && reply.Err != nil && reply.Err.Kind != message.ErrUnsupportedOperation {
			err = errors.New(reply.Err.Text)
		}
		if err != nil && i.ctx.Err() == nil {
			i.p.Log.Warn("secrets: a plug-in's periodic work failed", "plugin", e.Type, "mount", e.Path, "error", err)
		}
	})
}

// ended is closed when a process is no more; nil, which never is, where there is none.
func ended(proc Process) <-chan struct{} {
	if proc == nil {
		return nil
	}
	return proc.Ended()
}
