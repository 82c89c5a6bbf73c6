// Package script runs the JavaScript of operators: expressions of filters, bodies of mutators, filters of assets.
//
// Programs are compiled once; runtimes are kept and used again. What a program sees is what it is given:
// built-in objects and what libraries define are frozen, and a runtime in which
// a program left something of its own is thrown away, so no program sees what belongs to another event.
// (What a library keeps in variables of its own functions is its own doing.)
//
// Limits: a program is cut when its time is over (50 ms unless its caller says otherwise), or when
// the process allocated 256 MiB within the time that it ran; calls nest 512 deep; built-in functions that make something large, or walk
// through it, in one step refuse more than a million elements; at most one program a processor
// runs at once, others wait their turn. Somebody who can write programs on purpose can still waste a processor for a moment,
// but such a person may also write handlers, which are commands.
//
// All methods may be called from any goroutine; nothing runs after a call returned.
package script

import (
	"context"
	"errors"
	gort "runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/dop251/goja"

	"corbel.dev/corbel/kit/errkind"
)

const (
	// Limit is how long a program may run unless its caller says otherwise.
	Limit = 50 * time.Millisecond

	look       = 2 * time.Millisecond // how often a running program is looked at: most end sooner
	maxAlloc   = 256 << 20            // bytes that the process may allocate meanwhile
	maxCalls   = 512
	maxIdle    = 4 // runtimes kept for each library: each is about half a megabyte
	maxRepeat  = 1 << 20
	allocTotal = "/gc/heap/allocs:bytes"
)

// ErrTime is the cause of an error of kind Unavailable when a program ran too long, ErrMemory when it needed too much.
var (
	ErrTime   = errkind.New(errkind.Unavailable, "the script ran too long")
	ErrMemory = errkind.New(errkind.Unavailable, "the script needed too much memory")
)

// Var is a global variable that a program gets.
type Var struct {
	Name string
	JSON []byte // of an object of the plane (an event, an entity); nil is Text
	Text string
}

// Result is what a program came to.
type Result struct {
	Truth  bool   // as a condition
	Nil    bool   // undefined or null
	IsText bool   // a string
	Text   string // the string
	After  []byte // the first variable in JSON, as the program left it, where Task.After asked for it and the result is Nil
}

// Task is a program to be run.
type Task struct {
	Program *Program
	Library *Library // nil is none
	Vars    []Var
	Limit   time.Duration // 0 is Limit
	After   bool
}

// Engine runs programs. The zero value is not usable; New makes one.
type Engine struct {
	turns chan struct{}
	plain *Library

	runs, failed, cut atomic.Uint64
}

// regexps are bounded by a variable of their library, which is set before the first engine exists.
var regexps sync.Once

// New makes an engine.
func New() *Engine {
	regexps.Do(func() { regexp2.DefaultMatchTimeout = Limit })
	return &Engine{
		turns: make(chan struct{}, max(gort.GOMAXPROCS(0), 1)),
		plain: &Library{idle: make(chan *runtime, maxIdle)},
	}
}

// Stats counts programs that ran, that threw something, and that were cut.
type Stats struct{ Runs, Failed, Cut uint64 }

// Stats returns the counts.
func (e *Engine) Stats() Stats { return Stats{e.runs.Load(), e.failed.Load(), e.cut.Load()} }

// Run runs a program. ctx bounds the wait for a turn and the run. Errors: Invalid, what the program threw;
// ErrTime, ErrMemory; Unavailable when ctx ended.
func (e *Engine) Run(ctx context.Context, t Task) (Result, error) {
	select {
	case e.turns <- struct{}{}:
		defer func() { <-e.turns }()
	case <-ctx.Done():
		return Result{}, errkind.E(errkind.Unavailable, "JavaScript", ctx.Err())
	}
	lib := t.Library
	if lib == nil {
		lib = e.plain
	}
	var r *runtime
	select {
	case r = <-lib.idle:
	default:
		var err error
		if r, err = newRuntime(lib); err != nil {
			return Result{}, err
		}
	}
	e.runs.Add(1)
	out, err := r.run(ctx, t)
	switch {
	case errors.Is(err, ErrTime), errors.Is(err, ErrMemory):
		e.cut.Add(1)
	case err != nil:
		e.failed.Add(1)
	}
	if r.clean() {
		select {
		case lib.idle <- r:
		default:
		}
	}
	return out, err
}

// watch interrupts a program that runs too long or needs too much. It is a timer that sets itself again, so
// that the many programs that end within the first tick pay for nothing else.
type watch struct {
	vm    *goja.Runtime
	until time.Time
	ctx   context.Context

	mu     sync.Mutex
	over   bool
	timer  *time.Timer
	before uint64 // allocated at the first look
	cause  error
}

func (w *watch) start() {
	w.mu.Lock()
	w.timer = time.AfterFunc(min(look, time.Until(w.until)), w.look)
	w.mu.Unlock()
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	now := allocated()
	if w.before == 0 {
		w.before = now
	}
	left := time.Until(w.until)
	switch {
	case left <= 0:
		w.cause = ErrTime
	case now-w.before > maxAlloc:
		w.cause = ErrMemory
	case w.ctx.Err() != nil:
		w.cause = errkind.E(errkind.Unavailable, "JavaScript", w.ctx.Err())
	default:
		w.timer.Reset(min(look, left))
		return
	}
	w.vm.Interrupt(w.cause)
}

// stop ends the watching; afterwards nothing is interrupted any more. It returns why the program was cut, or nil.
func (w *watch) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	return w.cause
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: allocTotal}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
