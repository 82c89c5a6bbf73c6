package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// Unreached is a check or a handler whose events reach nobody, though somebody named where they are to go.
type Unreached struct {
	Kind            string // check, handler
	Namespace, Name string
	Reason          string
}

// Unreached lists them, by namespace, kind and name: handlers that get no events, and published checks none of whose
// handlers and pipelines takes any. A check that names neither is wanted so: its state is all that is asked for.
func (p *Pipelines) Unreached() (out []Unreached) {
	v := p.view.Load()
	if v == nil {
		return nil
	}
	for name, n := range v.namespaces {
		for handler, err := range n.refused {
			out = append(out, Unreached{"handler", name, handler, err.Error()})
		}
	}
	p.cfg.Resources.View().List("checks", "", "", "", func(i *objects.Item) bool {
		c := i.Object().(*monitor.CheckConfig)
		if !c.Publish || len(c.Handlers)+len(c.Pipelines) == 0 {
			return true
		}
		if reason := v.namespaces[i.Namespace].deaf(c); reason != "" {
			out = append(out, Unreached{"check", i.Namespace, i.Name, reason})
		}
		return true
	})
	slices.SortFunc(out, func(a, b Unreached) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// deaf says why nobody takes a check's events; "" is that somebody does. n is nil in a namespace without handlers.
func (n *namespace) deaf(c *monitor.CheckConfig) (reason string) {
	if n == nil {
		return "there are no handlers in its namespace"
	}
	note := func(format string, args ...any) {
		if reason == "" {
			reason = fmt.Sprintf(format, args...)
		}
	}
	for _, name := range n.expand(c.Handlers, func(handler, why string) { note("handler %q: %s", handler, why) }) {
		err := n.refused[name]
		if err == nil {
			return ""
		}
		note("handler %q: %v", name, err)
	}
	for _, ref := range c.Pipelines {
		r := n.pipelines[ref.Name]
		switch {
		case r == nil:
			note("pipeline %q does not exist", ref.Name)
		case len(r.workflows) > 0:
			return ""
		case r.err != nil:
			note("pipeline %q: %v", ref.Name, r.err)
		default:
			note("pipeline %q has no workflows", ref.Name)
		}
	}
	if reason == "" {
		reason = "its sets of handlers are empty"
	}
	return reason
}
