package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/monitor/expression"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/script"
)

// filter decides whether an event passes. It never changes.
type filter struct {
	item    *objects.Item // nil where it is built in
	name    string
	deny    bool
	when    *monitor.Windows
	exprs   []condition
	builtin func(*expression.Subject) bool
	lib     *library
}

// condition is one expression: in Go where it is of the common form, else a program. One that does not compile has
// neither: it counts for nothing.
type condition struct {
	common  *expression.Expression
	program *script.Program
	breaker *breaker
}

// builtins are the contract's own filters; no filter of that name is looked for.
var builtins = map[string]*filter{
	"is_incident": {name: "is_incident", builtin: func(s *expression.Subject) bool {
		if s.Check == nil {
			return false
		}
		n := s.State.History.Len()
		if s.State.Status != 0 || n < 2 {
			return s.State.Status != 0
		}
		before, _ := s.State.History.At(n - 2)
		return before != 0
	}},
	"not_silenced": {name: "not_silenced", builtin: func(s *expression.Subject) bool {
		return s.Check == nil ||
			len(s.State.Silenced) == 0
	}},
	"has_metrics": {name: "has_metrics", builtin: func(s *expression.Subject) bool { return s.HasMetrics }},
}

// compileFilter makes a filter; expressions that are no JavaScript are named in the log.
func (p *Pipelines) compileFilter(i *objects.Item, assets []*objects.Item) *filter {
	def := i.Object().(*monitor.EventFilter)
	f := &filter{item: i, name: def.Name, deny: def.Action == monitor.FilterDeny, when: def.When, lib: newLibrary(assets)}
	for n, source := range def.Expressions {
		c := condition{breaker: new(breaker)}
		// A script may define what it likes, so with one only JavaScript can tell what an expression means.
		if common, ok := expression.Compile(source); ok && len(def.RuntimeAssets) == 0 {
			c.common = common
		} else if program, err := script.NewProgram(source); err == nil {
			c.program = program
		} else {
			p.cfg.Log.Warn("ignoring a filter expression", "namespace", i.Namespace, "filter", i.Name, "expression", n+1,
				"error", err)
		}
		f.exprs = append(f.exprs, c)
	}
	return f
}

// quick reports whether the filter needs no JavaScript.
func (f *filter) quick() bool {
	return !slices.ContainsFunc(f.exprs, func(c condition) bool { return c.program != nil })
}

// passes decides on an event. eval evaluates programs; quick filters have none.
func (f *filter) passes(s *expression.Subject, now time.Time, eval func(condition) (holds, ok bool)) bool {
	if f.builtin != nil {
		return f.builtin(s)
	}
	if f.when != nil && !f.when.Holds(now) {
		return f.deny
	}
	held := false
	for _, c := range f.exprs {
		holds, ok := false, false
		switch {
		case c.common != nil:
			holds, ok = c.common.Holds(s)
		case c.program != nil:
			holds, ok = eval(c)
		}
		if !ok { // one that throws counts for nothing, so that a mistake in a filter silences nobody
			continue
		}
		if !holds {
			return f.deny
		}
		held = true
	}
	return !f.deny || !held
}

// slow is passes with JavaScript.
func (f *filter) slow(ctx context.Context, p *Pipelines, i *item, s *expression.Subject, now time.Time) bool {
	return f.passes(s, now, func(c condition) (bool, bool) {
		if c.breaker.open(now) {
			return false, false
		}
		lib, err := f.lib.ready(ctx, p)
		if err == nil {
			var text []byte
			if text, err = i.text(); err == nil {
				var r script.Result
				r, err = p.cfg.Scripts.Do(ctx, script.Task{Program: c.program, Library: lib, Fetch: p.others(i.p.Namespace),
					Vars: []script.Var{{Name: "event", JSON: text}}})
				if err == nil {
					c.breaker.fine()
					return r.Truth, true
				}
				c.breaker.failed(err, now)
			}
		}
		if ctx.Err() == nil {
			p.say(f, "an expression of a filter failed, and counts for nothing", "namespace", i.p.Namespace, "filter", f.name,
				"entity", i.p.Entity, "check", i.p.Check, "error", err)
		}
		return false, false
	})
}

// breaker lets a program rest that was cut again and again, so that it does not take the processor from others. While
// it rests it counts as one that throws.
type breaker struct {
	cuts  atomic.Int32
	until atomic.Int64 // Unix nanoseconds
}

const (
	maxCuts = 3
	rest    = 10 * time.Second
)

func (b *breaker) open(now time.Time) bool { return now.UnixNano() < b.until.Load() }

func (b *breaker) fine() { b.cuts.Store(0) }

func (b *breaker) failed(err error, now time.Time) {
	if errors.Is(err, script.ErrTime) || errors.Is(err, script.ErrMemory) {
		if b.cuts.Add(1) >= maxCuts {
			b.until.Store(now.Add(rest).UnixNano())
		}
	}
}

// library is the scripts of the assets that a filter or a mutator names. They are fetched when first asked for; what
// goes wrong then is tried again later.
type library struct {
	assets []*objects.Item

	mu    sync.Mutex
	made  *script.Library
	err   error
	again time.Time
}

// libraryRetry is how long a library that could not be had is not asked for.
const libraryRetry = 10 * time.Second

func newLibrary(assets []*objects.Item) *library {
	if len(assets) == 0 {
		return nil
	}
	return &library{assets: assets}
}

// ready returns the library, nil where there is none.
func (l *library) ready(ctx context.Context, p *Pipelines) (*script.Library, error) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock() // those who wait are the handler's own workers
	defer l.mu.Unlock()
	if l.made != nil || time.Now().Before(l.again) {
		return l.made, l.err
	}
	l.made, l.err = l.load(ctx, p)
	l.again = time.Now().Add(libraryRetry)
	return l.made, l.err
}

func (l *library) load(ctx context.Context, p *Pipelines) (*script.Library, error) {
	list, err := p.fetch(ctx, l.assets)
	if err != nil {
		return nil, err
	}
	var sources []string
	for _, u := range list {
		more, err := scriptsOf(u)
		if err != nil {
			return nil, err
		}
		sources = append(sources, more...)
	}
	return script.NewLibrary(sources)
}

// scriptsOf reads an asset's JavaScript: the .js files of its lib folder, or of its topmost one, by name.
func scriptsOf(u *asset.Unpacked) (out []string, err error) {
	for _, folder := range []string{"lib", "."} {
		entries, err := os.ReadDir(filepath.Join(u.Dir, folder))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errkind.E(errkind.Unavailable, "the scripts of an asset", err)
		}
		for _, e := range entries {
			if e.IsDir() || !strings.HasSuffix(e.Name(), ".js") {
				continue
			}
			b, err := os.ReadFile(filepath.Join(u.Dir, folder, e.Name()))
			if err != nil {
				return nil, errkind.E(errkind.Unavailable, "the scripts of an asset", err)
			}
			out = append(out, string(b))
		}
	}
	if len(out) == 0 {
		return nil, errkind.E(errkind.Invalid, "asset "+u.Name, fmt.Errorf("it holds no JavaScript"))
	}
	return out, nil
}
