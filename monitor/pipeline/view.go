package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/expression"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

// view is everything compiled, by namespace. It is replaced when the configuration changes, never changed.
type view struct{ namespaces map[string]*namespace }

// namespace is a namespace's pipelines.
type namespace struct {
	items     []*objects.Item // what it was made of
	filters   map[string]*filter
	mutators  map[string]*mutator
	handlers  map[string]*handler
	pipelines map[string]*route
	legacy    map[string]*workflow // by handler
	refused   map[string]error     // handlers that get no events, and why

	mu    sync.Mutex
	plans map[planKey]*plan
}

// route is a pipeline: workflows in order. err is what is wrong with the workflow behind the last one: there the
// route ends.
type route struct {
	name      string
	workflows []*workflow
	err       error
}

// workflow is one way of an event to a handler.
type workflow struct {
	id      string // pipeline/workflow, or the handler's name for one that a check names
	filters []*filter
	mutator *mutator
	handler *handler
	to      *runner
	quick   bool // no filter needs JavaScript
	events  bool // its handler gets what is_incident lets pass, and nothing else
}

// plan is what becomes of events that name the same pipelines and handlers.
type plan struct {
	workflows []*workflow
	incidents bool // all of them want incidents and their ends alone
}

// relevant are the types of objects that pipelines are made of.
var relevant = []string{"assets", "filters", "handlers", "mutators", "pipelines", "tcp-stream-handlers"}

// compile makes a view of the configuration. What did not change since the former view is taken from it.
func (p *Pipelines) compile(old *view, v *resources.View) *view {
	items := map[string][]*objects.Item{}
	for _, typ := range relevant {
		v.List(typ, "", "", "", func(i *objects.Item) bool {
			items[i.Namespace] = append(items[i.Namespace], i)
			return true
		})
	}
	next, changed := &view{namespaces: map[string]*namespace{}}, old == nil || len(old.namespaces) != len(items)
	for name, list := range items {
		if old != nil && old.namespaces[name] != nil && slices.Equal(old.namespaces[name].items, list) {
			next.namespaces[name] = old.namespaces[name]
			continue
		}
		changed = true
		var before *namespace
		if old != nil {
			before = old.namespaces[name]
		}
		next.namespaces[name] = p.compileNamespace(name, list, before)
	}
	if !changed {
		return old
	}
	return next
}

func (p *Pipelines) compileNamespace(name string, items []*objects.Item, old *namespace) *namespace {
	n := &namespace{items: items, filters: map[string]*filter{}, mutators: map[string]*mutator{},
		handlers:  map[string]*handler{},
		pipelines: map[string]*route{}, legacy: map[string]*workflow{}, refused: map[string]error{},
		plans: map[planKey]*plan{}}
	if old == nil {
		old = &namespace{}
	}
	for _, i := range items {
		switch def := i.Object().(type) {
		case *monitor.EventFilter:
			assets := assetsOf(items, def.RuntimeAssets)
			if f := old.filters[i.Name]; f != nil && f.item == i && f.lib.is(assets) {
				n.filters[i.Name] = f
			} else {
				n.filters[i.Name] = p.compileFilter(i, assets)
			}
		case *monitor.Mutator:
			assets := assetsOf(items, def.RuntimeAssets)
			if m := old.mutators[i.Name]; m != nil && m.item == i && slices.Equal(m.assets, assets) {
				n.mutators[i.Name] = m
			} else {
				n.mutators[i.Name] = compileMutator(i, assets)
			}
		case *monitor.Handler:
			n.handlers[i.Name] = compileHandler(i, assetsOf(items, def.RuntimeAssets))
		case *monitor.TCPStreamHandler:
			n.handlers[streamName(i.Name)] = p.compileStream(i, old.handlers[streamName(i.Name)])
		}
	}
	p.link(name, n)
	return n
}

// is reports whether the library is made of these assets.
func (l *library) is(assets []*objects.Item) bool {
	if l == nil {
		return len(assets) == 0
	}
	return slices.Equal(l.assets, assets)
}

// assetsOf returns the assets whose names begin with one of names, in the order of names.
func assetsOf(items []*objects.Item, names []string) (out []*objects.Item) {
	for _, name := range names {
		for _, i := range items {
			if i.Type == "assets" && strings.HasPrefix(i.Name, name) && !slices.Contains(out, i) {
				out = append(out, i)
			}
		}
	}
	return out
}

// link makes the workflows of a namespace.
func (p *Pipelines) link(name string, n *namespace) {
	for _, h := range n.handlers {
		def := h.def
		if def.Type == monitor.HandlerSet || def.Type == monitor.StreamHandlerKind { // pipelines alone refer to these
			continue
		}
		w, err := n.workflow(def.Name, refs(def.Filters, "EventFilter"), &monitor.Ref{Name: def.Mutator, Type: "Mutator"}, h)
		if err != nil {
			p.cfg.Log.Warn("a handler gets no events", "namespace", name, "handler", def.Name, "error", err)
			w = &workflow{id: def.Name, handler: h, filters: []*filter{refuse}, quick: true}
			n.refused[def.Name] = err
		}
		w.to = p.runner(runnerName{name, def.Name})
		n.legacy[def.Name] = w
	}
	for _, i := range n.items {
		def, ok := i.Object().(*monitor.Pipeline)
		if !ok {
			continue
		}
		r := &route{name: def.Name}
		for _, w := range def.Workflows {
			if r.err = p.route(name, n, r, w); r.err != nil {
				r.err = fmt.Errorf("workflow %s: %w", w.Name, r.err)
				p.cfg.Log.Warn("a pipeline ends early", "namespace", name, "pipeline", def.Name, "error", r.err)
				break
			}
		}
		n.pipelines[def.Name] = r
	}
}

// refuse lets nothing pass: the filter of a handler that names what does not exist.
var refuse = &filter{name: "refuse", builtin: func(*expression.Subject) bool { return false }}

func refs(names []string, typ string) (out []*monitor.Ref) {
	for _, name := range names {
		out = append(out, &monitor.Ref{Name: name, Type: typ})
	}
	return out
}

// route adds a workflow of a pipeline to it: one for each handler, where the handler is a set.
func (p *Pipelines) route(name string, n *namespace, r *route, def *monitor.Workflow) error {
	first := def.Handler.Name
	switch def.Handler.Type {
	case "Handler":
	case monitor.StreamHandlerKind:
		first = streamName(first)
	default:
		return fmt.Errorf("handlers of type %s.%s are not supported", def.Handler.APIVersion, def.Handler.Type)
	}
	if n.handlers[first] == nil {
		return fmt.Errorf("handler %q does not exist", first)
	}
	for _, handler := range n.expand([]string{first}, p.unknown(name)) {
		w, err := n.workflow(r.name+"/"+def.Name, def.Filters, def.Mutator, n.handlers[handler])
		if err != nil {
			return err
		}
		w.to = p.runner(runnerName{name, handler})
		r.workflows = append(r.workflows, w)
	}
	return nil
}

// workflow finds what a workflow is made of.
func (n *namespace) workflow(id string, filters []*monitor.Ref, mutator *monitor.Ref, h *handler) (*workflow, error) {
	w := &workflow{id: id, handler: h, quick: true}
	for _, ref := range filters {
		f := builtins[ref.Name]
		if f == nil {
			f = n.filters[ref.Name]
		}
		if f == nil {
			return nil, fmt.Errorf("filter %q does not exist", ref.Name)
		}
		w.filters = append(w.filters, f)
		w.quick = w.quick && f.quick()
		w.events = w.events || f == builtins["is_incident"]
	}
	switch {
	case mutator == nil || mutator.Name == "" || mutator.Name == mutatorJSON:
		w.mutator = builtinMutators[mutatorJSON]
	case builtinMutators[mutator.Name] != nil:
		w.mutator = builtinMutators[mutator.Name]
	default:
		if w.mutator = n.mutators[mutator.Name]; w.mutator == nil {
			return nil, fmt.Errorf("mutator %q does not exist", mutator.Name)
		}
	}
	if w.mutator.err != nil {
		return nil, fmt.Errorf("mutator %q: %w", mutator.Name, w.mutator.err)
	}
	return w, h.err
}

// maxNesting is how deep sets of handlers may be in sets.
const maxNesting = 3

// expand returns the handlers that names and the sets among them come to, by name. complain is told of what cannot be
// followed.
func (n *namespace) expand(names []string, complain func(handler, why string)) []string {
	found := map[string]bool{}
	var follow func(names []string, level int)
	follow = func(names []string, level int) {
		for _, name := range names {
			h := n.handlers[name]
			switch {
			case h == nil:
				complain(name, "it does not exist")
			case h.def.Type != monitor.HandlerSet:
				found[name] = true
			case level > maxNesting:
				complain(name, "sets of handlers are nested too deep")
			default:
				follow(h.def.Handlers, level+1)
			}
		}
	}
	follow(names, 1)
	out := make([]string, 0, len(found))
	for name := range found {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// maxPlans bounds the plans that are kept for a namespace.
const maxPlans = 1 << 16

// planKey is what decides where an event goes. more are the pipelines and the handlers of metrics that the event itself
// names.
type planKey struct {
	kind *monitor.Kind // nil without a check
	more string
}

// of returns what becomes of the events of a kind; pipelines and handlers are those that an event names beside.
func (n *namespace) of(p *Pipelines, name string, k *monitor.Kind, pipelines []*monitor.Ref, handlers []string) *plan {
	key := planKey{kind: k}
	if len(pipelines)+len(handlers) > 0 {
		var b strings.Builder
		for _, ref := range pipelines {
			b.WriteString(ref.Name + "\n")
		}
		b.WriteString("\n" + strings.Join(handlers, "\n"))
		key.more = b.String()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if pl := n.plans[key]; pl != nil {
		return pl
	}
	if k != nil {
		for _, ref := range k.Check.Pipelines {
			if !slices.ContainsFunc(pipelines, func(r *monitor.Ref) bool { return r.Name == ref.Name }) {
				pipelines = append(pipelines[:len(pipelines):len(pipelines)], ref)
			}
		}
		handlers = append(handlers[:len(handlers):len(handlers)], k.Check.Handlers...)
	}
	pl := &plan{workflows: n.route(p, name, pipelines, handlers), incidents: true}
	for _, w := range pl.workflows {
		pl.incidents = pl.incidents && w.events
	}
	if len(n.plans) >= maxPlans {
		clear(n.plans)
	}
	n.plans[key] = pl
	return pl
}

// route returns the workflows of pipelines and of handlers that an event names.
func (n *namespace) route(p *Pipelines, name string, pipelines []*monitor.Ref, handlers []string) (out []*workflow) {
	for _, ref := range pipelines {
		if r := n.pipelines[ref.Name]; r != nil {
			out = append(out, r.workflows...)
		} else {
			p.missing(name, "pipeline", ref.Name)
		}
	}
	for _, h := range n.expand(handlers, p.unknown(name)) {
		out = append(out, n.legacy[h])
	}
	return out
}
