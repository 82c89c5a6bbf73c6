// Package script runs the JavaScript of operators: expressions of filters, bodies of mutators, filters of assets.
//
// Who may write a filter in one namespace is not trusted with the process that holds the others, so programs run in
// child processes: an Engine with a Command starts as many as there are processors, when they are first needed, and
// gives each one program at a time. A child has no files, no network and no secrets but what the task brings.
//
// Programs are compiled once in each child; runtimes are kept and used again. What a program sees is what it is given:
// built-in objects and what libraries define are frozen, and a runtime in which
// a program left something of its own is thrown away, so no program sees what belongs to another event.
// (What a library keeps in variables of its own functions is its own doing.)
//
// Limits: a program is cut when its time is over (50 ms unless its caller says otherwise) or when it allocated 256 MiB;
// calls nest 512 deep. Between two steps of the program the cut is an error of the runtime. A built-in function
// that does not end, or wants more than the 64 MiB of memory that the kernel grants a child beyond its own, costs the
// child, and the next program gets a new one. At most one program a processor runs at once, others wait their turn.
//
// All methods may be called from any goroutine; nothing runs after Close returned.
package script

import (
	"context"
	"errors"
	"maps"
	gort "runtime"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/procgroup"
)

const (
	// Limit is how long a program may run unless its caller says otherwise.
	Limit = 50 * time.Millisecond

	look       = 2 * time.Millisecond // how often a running program is looked at: most end sooner
	maxAlloc   = 256 << 20            // bytes that a program may allocate, all in all
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
	// JSON of an object of the plane (event, entity), of a list of events, or of anything else; nil is Text.
	JSON []byte
	Text string
}

// Result is what a program came to.
type Result struct {
	Truth  bool   // as a condition
	Nil    bool   // undefined or null
	IsText bool   // a string
	Text   string // the string
	// the first variable in JSON, as the program left it, where Task.After asked for it and the result
	// is Nil
	After []byte

	asks []string // what it asked for and was not fetched: the rest says nothing
}

// asked names an event that a program asks for.
func asked(entity, check string) string { return entity + "\x00" + check }

// Bounds of what one program may ask for.
const (
	maxAsks    = 32
	maxFetched = 4 << 20 // bytes
)

// Task is a program to be run.
type Task struct {
	Program *Program
	Library *Library // nil is none
	Vars    []Var
	Limit   time.Duration // 0 is Limit
	After   bool
	// Fetch finds the JSON of another event that the program asks for (sensu.FetchEvent); nil JSON is that there is none.
	// It is called while the program does not run: that is run again with what was found, so it does nothing but compute.
	// A nil Fetch finds nothing: asking throws.
	Fetch func(ctx context.Context, entity, check string) ([]byte, error)

	mayAsk  bool              // Fetch is there, in the process that runs the child
	fetched map[string]string // by entity and check, as asked has them; an empty text is that there is none

	check  bool   // compile only
	begins func() // is told when all is ready and the program's own time begins; nil is nobody
}

func (t *Task) limit() time.Duration {
	if t.Limit <= 0 {
		return Limit
	}
	return t.Limit
}

// ChildCommand is the command line's word that makes a process a child: it calls Serve.
const ChildCommand = "script-child"

// OwnCommand starts this process's own binary as a child, also after the file was replaced by a newer one.
func OwnCommand() []string { return procgroup.Own(ChildCommand) }

// Config says where an Engine runs programs.
type Config struct {
	// Command starts a child: a program that calls Serve with its standard input and output. Empty runs programs
	// in this process, where the limits hold between the steps of a program alone: for tests.
	Command []string
}

// Engine runs programs. The zero value is not usable; New makes one.
type Engine struct {
	turns    chan struct{}
	machine  *machine // where there is no command
	children *children

	runs, failed, cut atomic.Uint64
}

// New makes an engine. It starts nothing: the first program that runs does.
func New(cfg Config) *Engine {
	n := max(gort.GOMAXPROCS(0), 1)
	e := &Engine{turns: make(chan struct{}, n)}
	if len(cfg.Command) == 0 {
		e.machine = newMachine()
	} else {
		e.children = newChildren(cfg.Command, n)
	}
	return e
}

// Run owns the children: it ends them when ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	<-ctx.Done()
	e.Close()
	return nil
}

// Close ends the children. Programs that run meanwhile fail as Unavailable.
func (e *Engine) Close() {
	if e.children != nil {
		e.children.close()
	}
}

// Stats counts programs that ran, that threw something, that were cut, and children that started.
type Stats struct{ Runs, Failed, Cut, Children uint64 }

// Stats returns the counts.
func (e *Engine) Stats() Stats {
	s := Stats{Runs: e.runs.Load(), Failed: e.failed.Load(), Cut: e.cut.Load()}
	if e.children != nil {
		s.Children = e.children.started.Load()
	}
	return s
}

// Check reads a program without running it. It fails as Do does: Invalid is a mistake in the program.
func (e *Engine) Check(ctx context.Context, p *Program) error {
	_, err := e.run(ctx, Task{Program: p, Limit: libraryLimit, check: true})
	return err
}

// fetchTime bounds all that a program asks for together, with its runs in between: the worker that waits is the only
// one of its handler.
const fetchTime = 5 * time.Second

// Do runs a program. ctx bounds the wait for a turn and the run. Errors: Invalid, what the program threw, or that it is
// no JavaScript; ErrTime, ErrMemory; Unavailable when ctx ended or no child can be started.
func (e *Engine) Do(ctx context.Context, t Task) (Result, error) {
	e.runs.Add(1)
	out, err := e.run(ctx, t)
	if err == nil && len(out.asks) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, fetchTime)
		defer cancel()
	}
	for size := 0; err == nil && len(out.asks) > 0; {
		if size, err = t.fetch(ctx, out.asks, size); err == nil {
			out, err = e.run(ctx, t)
		}
	}
	switch {
	case errors.Is(err, ErrTime), errors.Is(err, ErrMemory):
		e.cut.Add(1)
	case err != nil:
		e.failed.Add(1)
	}
	return out, err
}

// fetch finds what a program asked for. size is of all that was found before, and with this.
func (t *Task) fetch(ctx context.Context, asks []string, size int) (int, error) {
	next := maps.Clone(t.fetched)
	if next == nil {
		next = map[string]string{}
	}
	for _, one := range asks {
		entity, check, _ := strings.Cut(one, "\x00")
		text, err := t.Fetch(ctx, entity, check)
		if err != nil {
			return size, errkind.E(errkind.Unavailable, "sensu.FetchEvent", err)
		}
		next[one] = string(text)
		size += len(text)
	}
	if len(next) > maxAsks || size > maxFetched {
		return size, errkind.Errorf(errkind.Invalid, "JavaScript: a program may ask for %d events and %d MiB of them",
			maxAsks, maxFetched>>20)
	}
	t.fetched = next
	return size, nil
}

func (e *Engine) run(ctx context.Context, t Task) (Result, error) {
	select {
	case e.turns <- struct{}{}:
		defer func() { <-e.turns }()
	case <-ctx.Done():
		return Result{}, errkind.E(errkind.Unavailable, "JavaScript", ctx.Err())
	}
	if e.machine != nil {
		return e.machine.run(ctx, t)
	}
	return e.children.run(ctx, t)
}
