package business

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/script"
)

// Bounds of the events that a program of somebody's gets. The built-in template gets numbers, and has none.
const (
	maxEvents = 10_000
	maxBytes  = 8 << 20
)

// classService is the class of the entities that services are.
const classService = "service"

// selected is what a component's query finds.
type selected struct {
	*planned
	texts  bool // some rule's program looks at the events themselves
	events []json.RawMessage
	bytes  int
	over   bool // there are more than programs get
	counts struct {
		All      int `json:"all"`
		OK       int `json:"ok"`
		Warning  int `json:"warning"`
		Critical int `json:"critical"`
		Unknown  int `json:"unknown"`
		NonZero  int `json:"non-zero"`
	}
}

// evaluate reads a namespace's events once for its components, and makes theirs.
func (s *Services) evaluate(ctx context.Context, namespace string, list []*planned) error {
	all := make([]*selected, len(list))
	for i, p := range list {
		all[i] = &selected{planned: p}
		for _, r := range p.Rules {
			if t, err := s.template(namespace, r.Template); err == nil && !t.builtin {
				all[i].texts = true
			}
		}
	}
	for p, err := range s.cfg.Events.List(ctx, ingest.Range{Namespace: namespace}) {
		if err != nil {
			return err
		}
		e, err := p.Event()
		if err != nil {
			return err
		}
		for _, x := range all {
			if s.matches(x.component, e) {
				if err := x.take(e); err != nil {
					return err
				}
			}
		}
	}
	var wrong []error
	for _, x := range all {
		for _, service := range x.Services {
			for i := range x.Rules {
				if ctx.Err() != nil { // one error, not one for each rule that is left
					return errors.Join(append(wrong, ctx.Err())...)
				}
				wrong = append(wrong, s.apply(ctx, x, service, &x.Rules[i]))
			}
		}
	}
	return errors.Join(wrong...)
}

func (s *Services) matches(c *component, e *monitor.Event) bool {
	if e.Check == nil || c.own(e.Entity.Name, e.Check.Name) {
		return false
	}
	for _, q := range c.fields {
		if !q.Matches(func(name string) (string, bool) { return s.cfg.Fields[name](e), true }) {
			return false
		}
	}
	for _, q := range c.labels {
		if !q.Matches(s.cfg.Labels(e)) {
			return false
		}
	}
	return true
}

// take adds an event to what is selected.
func (x *selected) take(e *monitor.Event) error {
	x.counts.All++
	switch e.Check.Status {
	case 0:
		x.counts.OK++
	case 1:
		x.counts.Warning++
	case 2:
		x.counts.Critical++
	default:
		x.counts.Unknown++
	}
	x.counts.NonZero = x.counts.All - x.counts.OK
	if !x.texts || x.over {
		return nil
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	x.events, x.bytes = append(x.events, text), x.bytes+len(text)
	if x.over = len(x.events) > maxEvents || x.bytes > maxBytes; x.over {
		x.events = nil
	}
	return nil
}

// apply makes the event of a rule on a service.
func (s *Services) apply(ctx context.Context, x *selected, service string, r *rule) error {
	namespace, now := x.item.Namespace, s.cfg.Clock.Now().Unix()
	entity, err := s.entity(ctx, namespace, service, x.item.Object().(*monitor.Provider).CreatedBy)
	if err != nil {
		return err
	}
	id := uuid.New()
	e := &monitor.Event{Timestamp: now, ID: id[:], Meta: monitor.Meta{Namespace: namespace}, Entity: entity,
		Check: &monitor.Check{Meta: monitor.Meta{Name: r.Name, Namespace: namespace}, Interval: x.Interval, Cron: x.Cron,
			Issued: now, Executed: now, Scheduler: "corbel"}}
	s.evaluated.Add(1)
	made, err := s.run(ctx, x, r, e)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		s.failed.Add(1)
		e.Check.Status, e.Check.Output = 3, fmt.Sprintf("UNKNOWN: rule %s, template %s: %s\n", r.Name, r.Template,
			errkind.Text(err))
		made = e
	case made == nil: // the program wants none
		return nil
	}
	if len(x.Handlers) > 0 {
		made.Check.Handlers = x.Handlers
	}
	made.Pipelines = append(made.Pipelines, x.Pipelines...)
	return s.cfg.Events.Frame(ctx, namespace, tagproto.Append(nil, made))
}

// entity is a service's, which is made where there is none.
func (s *Services) entity(ctx context.Context, namespace, name, by string) (*monitor.Entity, error) {
	item := s.cfg.Resources.View().Get("entities", namespace, name)
	if item == nil {
		c := &monitor.EntityConfig{Meta: monitor.Meta{Name: name, Namespace: namespace, CreatedBy: by}, Class: classService,
			Subscriptions: []string{monitor.EntitySubscription(name)}}
		err := s.cfg.Resources.Write(ctx, objects.Op{Verb: objects.Create, Type: "entities", Namespace: namespace, Name: name,
			Encoded: tagproto.Append(nil, c)})
		if err != nil && !errkind.Is(err, errkind.Conflict) {
			return nil, err
		}
		if item = s.cfg.Resources.View().Get("entities", namespace, name); item == nil {
			return monitor.Join(c, nil), nil
		}
	}
	return monitor.Join(item.Object().(*monitor.EntityConfig), nil), nil
}

// run has a rule's template make an event of e; nil is none.
func (s *Services) run(ctx context.Context, x *selected, r *rule, e *monitor.Event) (*monitor.Event, error) {
	t, err := s.template(x.item.Namespace, r.Template)
	if err != nil {
		return nil, err
	}
	args, err := t.args(r.Arguments)
	if err != nil {
		return nil, err
	}
	if x.over && !t.builtin {
		return nil, fmt.Errorf("the query selects %d events: a program gets at most %d, and %d MiB of them", x.counts.All,
			maxEvents, maxBytes>>20)
	}
	vars, err := x.vars(t, e)
	if err != nil {
		return nil, err
	}
	out, err := s.cfg.Scripts.Do(ctx, script.Task{Program: t.program,
		Vars: append(vars, script.Var{Name: "args", JSON: args})})
	if err != nil || out.Text == "" {
		return nil, err
	}
	return settled(e, []byte(out.Text))
}

// vars are what a program finds.
func (x *selected) vars(t *template, e *monitor.Event) ([]script.Var, error) {
	event, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	counts, err := json.Marshal(x.counts)
	if err != nil {
		return nil, err
	}
	events := fmt.Appendf(nil, `{"length":%d}`, x.counts.All) // all that the built-in template asks
	if !t.builtin {
		if events, err = json.Marshal(x.events); err != nil {
			return nil, err
		}
		if x.events == nil {
			events = []byte("[]")
		}
	}
	return []script.Var{{Name: "event", JSON: event}, {Name: "events", JSON: events}, {Name: "counts", JSON: counts}}, nil
}

// settled takes over what a program made, and leaves what is not its own to say: whose event it is, and when.
func settled(e *monitor.Event, text []byte) (*monitor.Event, error) {
	made := new(monitor.Event)
	if err := json.Unmarshal(text, made); err != nil {
		return nil, fmt.Errorf("what it returns is no event: %w", err)
	}
	if made.Check == nil {
		return nil, errors.New("what it returns is an event without a check")
	}
	made.Entity, made.ID, made.Timestamp, made.Namespace, made.Name = e.Entity, e.ID, e.Timestamp, e.Namespace, ""
	c := made.Check
	c.Name, c.Namespace, c.Issued, c.Executed, c.Scheduler = e.Check.Name, e.Check.Namespace, e.Check.Issued,
		e.Check.Executed, e.Check.Scheduler
	c.History, c.ProxyEntityName = nil, ""
	if err := made.Validate(); err != nil {
		return nil, fmt.Errorf("what it returns: %w", err)
	}
	return made, nil
}

// templates are those that were read, by item.
type templates struct {
	mu   sync.Mutex
	read map[*objects.Item]*template
}

// maxTemplates bounds those that are kept; beyond that all are read anew.
const maxTemplates = 1024

// template is the one of a name in a namespace, or the built-in one.
func (s *Services) template(namespace, name string) (*template, error) {
	item := s.cfg.Resources.View().Get(Templates, namespace, name)
	switch {
	case item == nil && name == Aggregate:
		return aggregate, nil
	case item == nil:
		return nil, errkind.Errorf(errkind.NotFound, "rule template %q does not exist", name)
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if t := s.known.read[item]; t != nil {
		return t, nil
	}
	t, err := readTemplate(item.Object().(*monitor.Provider))
	if err != nil {
		return nil, err
	}
	if len(s.known.read) >= maxTemplates || s.known.read == nil {
		s.known.read = map[*objects.Item]*template{}
	}
	s.known.read[item] = t
	return t, nil
}

// Review says what is wrong with an object of a type that this package knows, and what its author should know. Kinds of
// errors: Invalid.
func (s *Services) Review(ctx context.Context, typ string, o monitor.Object) (warnings []string, err error) {
	p, ok := o.(*monitor.Provider)
	if !ok {
		return nil, nil
	}
	switch typ {
	case Components:
		warnings, err = s.reviewComponent(p)
	case Templates:
		var t *template
		if t, err = readTemplate(p); err != nil {
			break
		}
		if err = t.check(ctx, s.cfg.Scripts); errkind.Is(err, errkind.Unavailable) {
			// nobody could read it now: who wrote it is not to blame
			return []string{"spec: eval was not read: " + errkind.Text(err)}, nil
		}
		if err != nil {
			err = fmt.Errorf("spec: eval: %w", err)
		}
	}
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "%w", err)
	}
	return warnings, nil
}

func (s *Services) reviewComponent(p *monitor.Provider) (warnings []string, err error) {
	c, err := readComponent(p, s.cfg.Fields)
	if err != nil {
		return nil, err
	}
	for i, r := range c.Rules {
		t, err := s.template(p.Namespace, r.Template)
		if err != nil { // it may come later
			warnings = append(warnings, fmt.Sprintf("spec: rules[%d]: %s", i, errkind.Text(err)))
			continue
		}
		if _, err := t.args(r.Arguments); err != nil {
			return nil, fmt.Errorf("spec: rules[%d]: %w", i, err)
		}
	}
	for i, name := range c.Handlers {
		if s.cfg.Resources.View().Get("handlers", p.Namespace, name) == nil {
			warnings = append(warnings, fmt.Sprintf("spec: handlers[%d]: handler %q does not exist", i, name))
		}
	}
	return warnings, nil
}

// Builtin is an object that is there without having been stored; nil is none.
func (s *Services) Builtin(typ, name string) *monitor.Provider {
	if typ == Templates && name == Aggregate {
		return builtinTemplate()
	}
	return nil
}
