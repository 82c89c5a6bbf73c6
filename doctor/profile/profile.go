package profile

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/doctor"
	"github.com/google/pprof/profile"
)

const (
	// every is how often a CPU profile is taken, cpuTime how long it lasts: a thirtieth of the time, at about one percent.
	every   = time.Minute
	cpuTime = 2 * time.Second
	// looks is how often goroutines are looked at when something is slow, lookEvery the time between, and restEvery the
	// least between two rounds.
	looks     = 10
	lookEvery = 200 * time.Millisecond
	restEvery = 20 * time.Second
	// maxGoroutines bounds the stop of the world of a look to some ten milliseconds.
	maxGoroutines = 20000
	// blockRate and mutexRate are the runtime's: one event for each ten milliseconds blocked, one contention of a
	// hundred. While blockRate is set each wait costs two looks at the clock and some a stack, 0.7 % of a write's CPU;
	// the mutexes' is paid by one in a hundred of those that had to wait.
	blockRate = 10_000_000
	mutexRate = 100
	// staleAfter is for how long what was seen tells about now.
	staleAfter = 3 * time.Minute
)

// Kept is how many profiles of each kind are kept: the newest, and others at least Spacing apart, so that they go back
// for more than an hour. MaxBytes is how large one may be, compressed.
const (
	Kept     = 10
	Spacing  = 8 * time.Minute
	MaxBytes = 1 << 20
)

// Config of a Profiler.
type Config struct {
	Log *slog.Logger
}

// Profiler takes profiles. Its methods may be called from any goroutine.
type Profiler struct {
	cfg  Config
	slow chan struct{} // one token: something is slow
	cpu  sync.Mutex    // held while the runtime's CPU profiler is in use

	mu      sync.Mutex // guards what follows
	yield   func()     // ends the CPU profile that runs; nil when none does
	kept    map[doctor.StackKind][]Taken
	stacks  map[doctor.StackKind][]doctor.Stack
	stamped map[doctor.StackKind]time.Time
}

// Taken is a profile as pprof writes it.
type Taken struct {
	At    time.Time
	Bytes []byte
}

// New makes a Profiler.
func New(cfg Config) *Profiler {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Profiler{cfg: cfg, slow: make(chan struct{}, 1), kept: map[doctor.StackKind][]Taken{},
		stacks: map[doctor.StackKind][]doctor.Stack{}, stamped: map[doctor.StackKind]time.Time{}}
}

// Run takes profiles until ctx ends.
func (p *Profiler) Run(ctx context.Context) error {
	oldMutex := runtime.SetMutexProfileFraction(mutexRate)
	var before counted
	defer func() {
		before.ignoreBlocked()
		runtime.SetMutexProfileFraction(oldMutex)
	}()
	before.read(doctor.StackBlocked)
	before.read(doctor.StackMutex)
	timer := time.NewTimer(every / 4)
	defer timer.Stop()
	var looked, slow time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(every)
			p.round(ctx, &before)
			if time.Since(slow) > restEvery {
				before.ignoreBlocked()
			}
		case <-p.slow:
			slow = time.Now()
			before.watchBlocked()
			if time.Since(looked) < restEvery {
				continue
			}
			looked = time.Now()
			p.look(ctx)
			p.round(ctx, &before)
		}
	}
}

// Slow asks for a closer look: something is slow.
func (p *Profiler) Slow() {
	select {
	case p.slow <- struct{}{}:
	default:
	}
}

// Yield gives the runtime's CPU profiler to the caller, who calls the result when done with it.
func (p *Profiler) Yield() (done func()) {
	p.mu.Lock()
	if p.yield != nil {
		p.yield()
	}
	p.mu.Unlock()
	p.cpu.Lock()
	return p.cpu.Unlock
}

// Stacks are what the newest profiles say.
func (p *Profiler) Stacks() []doctor.Stack {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []doctor.Stack
	for _, kind := range []doctor.StackKind{doctor.StackWaiting, doctor.StackBlocked, doctor.StackMutex, doctor.StackCPU,
		doctor.StackHeap} {
		if time.Since(p.stamped[kind]) < staleAfter {
			out = append(out, p.stacks[kind]...)
		}
	}
	return out
}

// Before is the newest profile of a kind that is at least so old, or the oldest when none is; false when there is none
// yet.
func (p *Profiler) Before(kind doctor.StackKind, ago time.Duration) (Taken, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return before(p.kept[kind], time.Now().Add(-ago))
}

func before(all []Taken, at time.Time) (Taken, bool) {
	for _, t := range slices.Backward(all) {
		if !t.At.After(at) {
			return t, true
		}
	}
	if len(all) == 0 {
		return Taken{}, false
	}
	return all[0], true
}

// with is all with a newest one. The one before it stays if it is Spacing from its own former.
func with(all []Taken, newest Taken) []Taken {
	if n := len(all); n > 1 && all[n-1].At.Sub(all[n-2].At) < Spacing {
		all = all[:n-1]
	}
	all = append(all, newest)
	return slices.Delete(all, 0, max(0, len(all)-Kept))
}

// round takes one profile of each kind but waiting.
func (p *Profiler) round(ctx context.Context, before *counted) {
	before.watchBlocked()
	p.takeCPU(ctx)
	for _, kind := range []doctor.StackKind{doctor.StackBlocked, doctor.StackMutex} {
		if prof := before.read(kind); prof != nil {
			p.keep(kind, prof)
		}
	}
	var b bytes.Buffer
	if err := pprof.Lookup("heap").WriteTo(&b, 0); err == nil {
		if prof, err := profile.Parse(&b); err == nil {
			p.keep(doctor.StackHeap, prof)
		}
	}
}

func (p *Profiler) takeCPU(ctx context.Context) {
	p.cpu.Lock()
	defer p.cpu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, cpuTime)
	defer cancel()
	p.mu.Lock()
	p.yield = cancel
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.yield = nil
		p.mu.Unlock()
	}()
	var b bytes.Buffer
	if pprof.StartCPUProfile(&b) != nil {
		return // somebody else profiles: the next minute is as good
	}
	<-ctx.Done()
	pprof.StopCPUProfile()
	if prof, err := profile.Parse(&b); err == nil && len(prof.Sample) > 0 {
		p.keep(doctor.StackCPU, prof)
	}
}

// keep stores a profile and what it says.
func (p *Profiler) keep(kind doctor.StackKind, prof *profile.Profile) {
	stacks := Summarize(kind, prof)
	prof.TimeNanos = time.Now().UnixNano()
	for _, s := range prof.Sample {
		s.Label, s.NumLabel, s.NumUnit = nil, nil, nil
	}
	var b bytes.Buffer
	err := prof.Write(&b)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stacks[kind], p.stamped[kind] = stacks, time.Now()
	if err != nil || b.Len() > MaxBytes {
		return
	}
	p.kept[kind] = with(p.kept[kind], Taken{time.Now(), bytes.Clone(b.Bytes())})
}
