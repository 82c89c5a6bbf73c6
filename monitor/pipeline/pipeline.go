// Package pipeline takes stored events through filters and mutators to handlers.
//
// Everything is compiled when the configuration changes: what an event goes through is looked up, never worked out.
// Expressions of the common form are Go, and are evaluated before anything waits; the others are JavaScript.
//
// Each handler has queues and workers of its own, so one that hangs, whose filter loops or whose sink stalls holds
// nobody else up. Events of one check on one entity reach a handler in order, one at a time. Queues are bounded: what
// a full one gives up is said at queue, and counted. Filters see every event before it may be merged with a newer
// one, except those in JavaScript when their queue is full.
//
// Wants and Publish never wait. All methods may be called from any goroutine; Run owns all workers.
package pipeline

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/monitor/fates"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/script"
)

// Defaults of Config.
const (
	DefaultQueue          = 1000 // the contract's pipelined-buffer-size, for each handler
	DefaultWorkers        = 8
	DefaultCommandTimeout = 10 * time.Minute
)

// Config of Pipelines.
type Config struct {
	Resources *resources.Resources
	Scripts   *script.Engine
	// Assets fetches what handlers, mutators and filters name; nil where that cannot be.
	Assets *asset.Fetcher
	// Secrets finds the variables of secrets; nil where nobody can. Errors name the secret, never its value.
	Secrets func(ctx context.Context, namespace string, list []*monitor.Secret) ([]string, error)
	// Entity is this server, for the filters of assets.
	Entity *monitor.Entity
	Log    *slog.Logger
	// Now is for filters' windows of time.
	Now func() time.Time
	// Env is the environment of commands; nil is this process's.
	Env []string
	// Queue bounds the events that wait for each handler, and Workers how many it gets at once; 0 are the defaults.
	Queue, Workers int
	// CommandTimeout ends commands whose definitions have no timeout; 0 is the default.
	CommandTimeout time.Duration
	// Took is told how long each handing over took; nil is nobody. It must not block.
	Took func(time.Duration)
	// Event finds an event for programs that ask for others than their own, errors of kind NotFound are none; nil finds
	// none.
	Event func(ctx context.Context, namespace, entity, check string) (*monitor.Event, error)
	// Fates remembers what became of events; nil is nobody.
	Fates *fates.Book
}

func (c *Config) complete() error {
	if c.Resources == nil || c.Scripts == nil || c.Log == nil {
		return errkind.Errorf(errkind.Invalid, "pipelines: Resources, Scripts and Log are needed")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Env == nil {
		c.Env = os.Environ()
	}
	if c.Entity == nil {
		c.Entity = &monitor.Entity{}
	}
	if c.Queue <= 0 {
		c.Queue = DefaultQueue
	}
	if c.Workers <= 0 {
		c.Workers = DefaultWorkers
	}
	if c.CommandTimeout <= 0 {
		c.CommandTimeout = DefaultCommandTimeout
	}
	return nil
}

// Pipelines are the pipelines of all namespaces.
type Pipelines struct {
	cfg  Config
	view atomic.Pointer[view]

	mu      sync.Mutex // guards runners and workers' start
	runners map[runnerName]*runner
	ctx     context.Context // of workers; nil before Run, and after it
	workers sync.WaitGroup

	quietMu sync.Mutex
	quiet   map[any]time.Time // when something may be said again

	compiled atomic.Uint64
}

// New makes Pipelines and compiles what is configured. Events are taken from then on, and handled once Run runs.
func New(cfg Config) (*Pipelines, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &Pipelines{cfg: cfg, runners: map[runnerName]*runner{}, quiet: map[any]time.Time{}}
	p.refresh()
	return p, nil
}

// Run compiles what changes and hands events over until ctx ends. What waits then is given up, and counted as shed;
// what is under way is cut.
func (p *Pipelines) Run(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	for _, r := range p.all() {
		r.wake(&r.scripts)
		r.wake(&r.sends)
	}
	for {
		changed := p.cfg.Resources.Changed()
		p.refresh()
		select {
		case <-changed:
			continue
		case <-ctx.Done():
		}
		p.mu.Lock()
		p.ctx = nil
		p.mu.Unlock()
		p.view.Load().closeStreams(nil)
		p.workers.Wait()
		for _, r := range p.all() {
			r.shed.Add(uint64(r.scripts.q.drop() + r.sends.q.drop()))
		}
		return nil
	}
}

// refresh compiles what changed.
func (p *Pipelines) refresh() {
	old := p.view.Load()
	next := p.compile(old, p.cfg.Resources.View())
	if next == old {
		return
	}
	p.view.Store(next)
	old.closeStreams(next)
	p.compiled.Add(1)
	p.forget(next)
}

// Compiled counts how often something was compiled.
func (p *Pipelines) Compiled() uint64 { return p.compiled.Load() }

// runner returns a handler's runner, making it when there is none.
func (p *Pipelines) runner(name runnerName) *runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runners[name]
	if r == nil {
		r = p.newRunner(name)
		p.runners[name] = r
	}
	return r
}

// forget drops runners of handlers that are gone, once they have nothing left to do. One that an event reaches at
// that moment still does its work.
func (p *Pipelines) forget(v *view) {
	for _, r := range p.all() {
		if n := v.namespaces[r.name.namespace]; (n == nil || n.handlers[r.name.handler] == nil) && r.idle() {
			p.mu.Lock()
			delete(p.runners, r.name)
			p.mu.Unlock()
		}
	}
}

func (p *Pipelines) all() []*runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*runner, 0, len(p.runners))
	for _, r := range p.runners {
		out = append(out, r)
	}
	return out
}

// start runs a worker while Run runs.
func (p *Pipelines) start(work func(context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx := p.ctx
	if ctx == nil || ctx.Err() != nil {
		return false
	}
	p.workers.Go(func() { work(ctx) })
	return true
}

// Wants says whether a result's event may be of interest to a handler. It looks the kind up, and nothing else.
//
// Pipelines that an event names itself, and its check does not, are looked for where something happened: an unchanged
// OK has its check's own only.
func (p *Pipelines) Wants(namespace string, kind *monitor.Kind, out monitor.Outcome) bool {
	n := p.view.Load().namespaces[namespace]
	if n == nil || len(n.handlers) == 0 {
		return false
	}
	if kind == nil || len(kind.Check.MetricHandlers) > 0 || len(n.pipelines) > 0 && !out.Steady {
		return true
	}
	pl := n.of(p, namespace, kind, nil, nil)
	return len(pl.workflows) > 0 && (!pl.incidents || out.Incident || out.Resolution)
}

// Publish takes an event to the handlers that are to have it.
func (p *Pipelines) Publish(e *ingest.Published) {
	n := p.view.Load().namespaces[e.Namespace]
	if n == nil {
		return
	}
	pipelines, err := e.Pipelines()
	var handlers []string
	if err == nil {
		handlers, err = e.MetricHandlers()
	}
	if err != nil {
		p.cfg.Log.Error("an event cannot be handled", "namespace", e.Namespace, "entity", e.Entity, "check", e.Check,
			"error", err)
		return
	}
	if e.Kind != nil { // agents repeat what the check says
		pipelines = slices.DeleteFunc(pipelines, func(ref *monitor.Ref) bool {
			return slices.ContainsFunc(e.Kind.Check.Pipelines, func(own *monitor.Ref) bool { return own.Name == ref.Name })
		})
	}
	pl := n.of(p, e.Namespace, e.Kind, pipelines, handlers)
	if len(pl.workflows) == 0 {
		return
	}
	i, now := &item{p: e}, p.cfg.Now()
	for _, w := range pl.workflows {
		by, rest := w.pass(i, now)
		if by != nil {
			w.filtered(i, by)
			continue
		}
		w.to.queued.Add(1)
		stage := &w.to.sends
		if rest {
			stage = &w.to.scripts
		}
		w.to.put(stage, &task{item: i, w: w})
	}
}

// quietFor is how long something is not said again.
const quietFor = 10 * time.Second

// maxQuiet bounds what is remembered of what was said.
const maxQuiet = 4096

// say writes to the log, the same thing now and then only.
func (p *Pipelines) say(what any, message string, args ...any) {
	now := time.Now()
	p.quietMu.Lock()
	if now.Before(p.quiet[what]) {
		p.quietMu.Unlock()
		return
	}
	if len(p.quiet) >= maxQuiet {
		clear(p.quiet)
	}
	p.quiet[what] = now.Add(quietFor)
	p.quietMu.Unlock()
	p.cfg.Log.Warn(message, args...)
}

// contractual are handlers that the contract's own events name whether or not there are any.
var contractual = []string{"keepalive", "registration", "deregistration"}

func (p *Pipelines) unknown(namespace string) func(handler, why string) {
	return func(handler, why string) {
		if !slices.Contains(contractual, handler) {
			p.say("handler "+namespace+"/"+handler, "a handler gets no events", "namespace", namespace, "handler", handler,
				"error", why)
		}
	}
}

func (p *Pipelines) missing(namespace, what, name string) {
	p.say(what+" "+namespace+"/"+name, "an event names what does not exist", "namespace", namespace, what, name)
}

func (p *Pipelines) took(d time.Duration) {
	if p.cfg.Took != nil {
		p.cfg.Took(d)
	}
}

// HandlerStats are the counts of one handler. Every event that reached the handler's filters is counted in Filtered,
// or in Queued and then, once it is not waiting or being done any more, in one of the others.
type HandlerStats struct {
	Namespace, Handler string
	Queued             uint64 // events that its quick filters let pass
	Done, Failed       uint64
	Filtered           uint64 // events that its filters kept away
	Merged, Shed       uint64 // events that gave way to a newer one of their check and entity, or to others
	Waiting, Busy      int
	Oldest             time.Duration // for how long the event that was begun first is being done; 0 without one
}

// Stats returns the counts of all handlers, by namespace and name.
func (p *Pipelines) Stats() []HandlerStats {
	var out []HandlerStats
	now := time.Now()
	for _, r := range p.all() {
		a, _ := r.scripts.q.waiting()
		b, _ := r.sends.q.waiting()
		out = append(out, HandlerStats{
			Namespace: r.name.namespace, Handler: r.name.handler, Queued: r.queued.Load(), Done: r.done.Load(),
			Failed: r.failed.Load(), Filtered: r.filtered.Load(),
			Merged: r.merged.Load(), Shed: r.shed.Load(), Waiting: a + b, Busy: int(r.scripts.busy.Load() + r.sends.busy.Load()),
			Oldest: max(r.scripts.oldest(now), r.sends.oldest(now)),
		})
	}
	slices.SortFunc(out, func(a, b HandlerStats) int {
		return strings.Compare(a.Namespace+"\x00"+a.Handler, b.Namespace+"\x00"+b.Handler)
	})
	return out
}
