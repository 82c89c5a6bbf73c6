package business

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/script"
)

// classService is the class of the entities that services are.
const classService = "service"

// madeBy is the annotation of an event's check that says which component made it: it replaces no other event.
const madeBy = "corbel.dev/service-component"

// evaluate reads a namespace's events for its components, and makes theirs. It reads them again for those whose events
// did not fit beside those of others.
func (s *Services) evaluate(ctx context.Context, namespace string, list []*planned) error {
	var wrong []error
	left := s.selections(namespace, list)
	for len(left) > 0 {
		now, later, err := s.read(ctx, namespace, left)
		if err != nil {
			return errors.Join(append(wrong, err)...)
		}
		for _, x := range now {
			for _, service := range x.Services {
				for i := range x.Rules {
					if ctx.Err() != nil { // one error, not one for each rule that is left
						s.drop(now...)
						return errors.Join(append(wrong, ctx.Err())...)
					}
					wrong = append(wrong, s.apply(ctx, x, service, &x.Rules[i]))
				}
			}
			x.done = s.cfg.Clock.Now()
			s.drop(x)
		}
		if left = later; len(left) > 0 {
			s.again.Add(1)
		}
	}
	return errors.Join(wrong...)
}

// apply makes the event of a rule on a service.
func (s *Services) apply(ctx context.Context, x *selected, service string, r *rule) error {
	namespace, now := x.item.Namespace, s.cfg.Clock.Now().Unix()
	entity, err := s.entity(ctx, namespace, service, x.item.Object().(*monitor.Provider).CreatedBy)
	if err == nil {
		err = s.mine(x, entity, r.Name)
	}
	if err != nil {
		return fmt.Errorf("component %s: rule %s: %w", x.item.Name, r.Name, err)
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
	if made.Check.Annotations == nil {
		made.Check.Annotations = map[string]string{}
	}
	made.Check.Annotations[madeBy] = x.item.Name
	return s.cfg.Events.Frame(ctx, namespace, tagproto.Append(nil, made))
}

// mine refuses to replace what somebody else said: an event of an agent, of the API or of another component.
func (s *Services) mine(x *selected, entity *monitor.Entity, rule string) error {
	name := entity.Name + "/" + rule
	owner, there := x.found[name]
	other := s.plan[x.item.Namespace+"/"+owner]
	switch {
	case entity.Class != classService:
		s.refused.Add(1)
		return errkind.Errorf(errkind.Conflict, "entity %q is of class %q, and a service's is %q: name another one in "+
			"services", entity.Name, entity.Class, classService)
	case !there || owner == x.item.Name || owner != "" && (other == nil || !other.own(entity.Name, rule)):
		return nil
	case owner == "":
		s.refused.Add(1)
		return errkind.Errorf(errkind.Conflict, "the event %s was made by no component, and stays: give the rule another "+
			"name, or delete the event", name)
	}
	s.refused.Add(1)
	return errkind.Errorf(errkind.Conflict, "component %q makes the event %s: give the rule another name", owner, name)
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
	if err := s.free(p, c); err != nil {
		return nil, err
	}
	for i, name := range c.Handlers {
		if s.cfg.Resources.View().Get("handlers", p.Namespace, name) == nil {
			warnings = append(warnings, fmt.Sprintf("spec: handlers[%d]: handler %q does not exist", i, name))
		}
	}
	return warnings, nil
}

// free tells whether the services and the events of a component are its own.
func (s *Services) free(p *monitor.Provider, c *component) (err error) {
	view := s.cfg.Resources.View()
	for i, name := range c.Services {
		item := view.Get("entities", p.Namespace, name)
		if item == nil {
			continue
		}
		if class := item.Object().(*monitor.EntityConfig).Class; class != classService {
			return fmt.Errorf("spec: services[%d]: entity %q is of class %q, and a service's is %q", i, name, class,
				classService)
		}
	}
	view.List(Components, p.Namespace, p.Namespace, "", func(item *objects.Item) bool {
		other, wrong := readComponent(item.Object().(*monitor.Provider), s.cfg.Fields)
		if wrong != nil || item.Name == p.Name {
			return true
		}
		for _, name := range c.results() {
			if slices.Contains(other.results(), name) {
				err = fmt.Errorf("spec: rules: component %q makes the event %s already: give the rule another name", item.Name,
					name)
			}
		}
		return err == nil
	})
	return err
}

// Results names the events that an object of a type that this package knows has made, as ENTITY/CHECK: whoever writes
// it decides what they say. None are of one that cannot be read.
func (s *Services) Results(typ string, o monitor.Object) []string {
	if p, ok := o.(*monitor.Provider); ok && typ == Components {
		if c, err := readComponent(p, s.cfg.Fields); err == nil {
			return c.results()
		}
	}
	return nil
}

// Builtin is an object that is there without having been stored; nil is none.
func (s *Services) Builtin(typ, name string) *monitor.Provider {
	if typ == Templates && name == Aggregate {
		return builtinTemplate()
	}
	return nil
}
