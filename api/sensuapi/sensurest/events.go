package sensurest

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/objects"
)

// serve answers requests for events. An event is named by its entity and its check.
func (q events) serve() error {
	entity, check, name := q.name, "", q.name
	if len(q.rest) > 1 {
		return errNotFound
	}
	if len(q.rest) == 1 {
		check, name = q.rest[0], q.name+"/"+q.rest[0]
	}
	verb := q.verb()
	if verb == "get" && check == "" {
		verb = "list"
	}
	if q.namespace == "" && entity != "" {
		return errNotFound
	}
	if err := q.may(verb, "events", q.namespace, name); err != nil {
		return err
	}
	switch q.r.Method {
	case http.MethodGet, http.MethodHead:
		if check == "" {
			return q.list(entity)
		}
		e, err := q.covered(q.cfg.Events.Get(q.r.Context(), q.namespace, entity, check))
		if errkind.Is(err, errkind.NotFound) {
			return errNotFound
		}
		if err != nil {
			return err
		}
		return q.answer(http.StatusOK, e)
	case http.MethodPost, http.MethodPut:
		if q.namespace == "" {
			return q.notAllowed("GET")
		}
		return q.take(entity, check)
	case http.MethodDelete:
		if check == "" {
			return q.notAllowed("GET, POST, PUT")
		}
		found, err := q.cfg.Events.Delete(q.r.Context(), q.namespace, entity, check)
		if err != nil {
			return err
		}
		if !found {
			return errNotFound
		}
		return q.done()
	}
	return q.notAllowed("GET, POST, PUT, DELETE")
}

// covered is the event with the silences of now.
func (q events) covered(e *monitor.Event, err error) (*monitor.Event, error) {
	return e.Under(q.cfg.Resources.View().Silences, q.cfg.Now().Unix()), err
}

// stored is an event as it is kept, and the whole of it.
type stored struct {
	*ingest.Published
	event *monitor.Event
}

// at is the event's place in lists.
func (s stored) at() string { return s.Namespace + "\x00" + s.Entity + "\x00" + s.Check }

// walk goes through events in order, beginning behind a place.
func (q events) walk(c *choice, only string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for s, err := range q.walkStored(c, only, "") {
			e := entry{}
			if s.Published != nil {
				e = entry{s.at(), s.event}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// walkStored goes through the events of an entity and a check ("" is all). After an error of kind Unavailable there
// is nothing more.
func (q events) walkStored(c *choice, entity, check string) iter.Seq2[stored, error] {
	r := ingest.Range{Namespace: q.namespace, Check: check}
	r.After.Namespace, r.After.Entity, r.After.Check = c.begin()
	if c.limit > 0 && c.labels.Empty() && c.fields.Empty() {
		r.Most = c.limit + 1 // the page tells whether there are more
	}
	events := q.cfg.Events.List(q.r.Context(), r)
	if entity != "" {
		events = q.of(r, entity)
	}
	return func(yield func(stored, error) bool) {
		for p, err := range events {
			if err != nil {
				yield(stored{}, err)
				return
			}
			e, err := q.covered(p.Event())
			if err == nil && !(lists(q)).takes(c, e) {
				continue
			}
			if !yield(stored{p, e}, err) {
				return
			}
		}
	}
}

// of goes through one entity's events of a range.
func (q events) of(r ingest.Range, entity string) iter.Seq2[*ingest.Published, error] {
	return func(yield func(*ingest.Published, error) bool) {
		list, err := q.cfg.Events.Events(q.r.Context(), q.namespace, entity)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, p := range list {
			if p.At().Compare(r.After) > 0 && (r.Check == "" || p.Check == r.Check) && !yield(p, nil) {
				return
			}
		}
	}
}

func (q events) list(entity string) error {
	c, err := lists(q).chosen()
	if err != nil {
		return err
	}
	lists(q).last(&c)
	return lists(q).write(c, q.walk(&c, entity))
}

// take takes an event that somebody sends over the API.
func (q events) take(entity, check string) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	e := new(monitor.Event)
	if err := json.Unmarshal(b, e); err != nil {
		return invalid(err)
	}
	if err := q.fill(e, entity, check); err != nil {
		return invalid(err)
	}
	if err := e.Validate(); err != nil {
		return invalid(err)
	}
	if q.cfg.Resources.View().Get("namespaces", "", q.namespace) == nil {
		return errkind.Errorf(errkind.NotFound, "namespace %q does not exist", q.namespace)
	}
	if err := q.settle(e); err != nil {
		return err
	}
	if err := q.cfg.Events.Frame(q.r.Context(), q.namespace, tagproto.Append(nil, e)); err != nil {
		return err
	}
	return q.done()
}

// fill completes an event with what the path, the caller and the clock say.
func (q events) fill(e *monitor.Event, entity, check string) error {
	if e.Entity == nil {
		if entity == "" {
			return errors.New("event must contain an entity")
		}
		e.Entity = &monitor.Entity{}
	}
	if e.Entity.Class == "" {
		e.Entity.Class = monitor.ClassProxy
	}
	now := q.cfg.Now().Unix()
	if e.Timestamp == 0 {
		e.Timestamp = now
	}
	if len(e.ID) == 0 {
		id := uuid.New()
		e.ID = id[:]
	}
	e.CreatedBy, e.Entity.CreatedBy = q.who.User, q.who.User
	for _, f := range []struct {
		name        string
		value, path *string
	}{{"entity.metadata.name", &e.Entity.Name, &entity}, {"entity.metadata.namespace", &e.Entity.Namespace, &q.namespace},
		{"metadata.namespace", &e.Namespace, &q.namespace}} {
		if err := same(f.name, f.value, *f.path); err != nil {
			return err
		}
	}
	if e.Check == nil {
		if check != "" {
			return fmt.Errorf("event must contain check %q, which the path names", check)
		}
		return nil
	}
	e.Check.CreatedBy = q.who.User
	if e.Check.Executed == 0 {
		e.Check.Executed = e.Timestamp
	}
	if e.Check.Issued == 0 {
		e.Check.Issued = e.Check.Executed
	}
	if err := same("check.metadata.namespace", &e.Check.Namespace, q.namespace); err != nil {
		return err
	}
	return same("check.metadata.name", &e.Check.Name, check)
}

// settle decides whose event it is. One of a check with a proxy entity, or of an entity without an agent, belongs to
// an entity that is made when there is none, and is stored with what is known of that one.
func (q events) settle(e *monitor.Event) error {
	if e.Check != nil && e.Check.ProxyEntityName != "" && e.Check.ProxyEntityName != e.Entity.Name {
		e.Check.ProcessedBy = e.Entity.Name
		e.Entity = &monitor.Entity{Meta: monitor.Meta{Name: e.Check.ProxyEntityName, Namespace: q.namespace},
			Class: monitor.ClassProxy}
	} else if e.Entity.Class == monitor.ClassAgent {
		return nil
	}
	e.Entity.Subscriptions = withOwn(e.Entity.Subscriptions, e.Entity.Name)
	item := q.cfg.Resources.View().Get("entities", q.namespace, e.Entity.Name)
	if item == nil {
		c, _ := monitor.Split(e.Entity)
		c.CreatedBy = q.who.User
		op := objects.Op{Verb: objects.Create, Type: "entities", Namespace: q.namespace, Name: c.Name,
			Encoded: tagproto.Append(nil, c)}
		if err := q.cfg.Resources.Write(q.r.Context(), op); err != nil && !errkind.Is(err, errkind.Conflict) {
			return err
		}
		return nil
	}
	state, err := q.cfg.Events.EntityState(q.r.Context(), q.namespace, e.Entity.Name)
	if err != nil {
		return err
	}
	if state == nil {
		_, state = monitor.Split(e.Entity)
	}
	e.Entity = monitor.Join(item.Object().(*monitor.EntityConfig), state)
	return nil
}

// withOwn adds the subscription that every entity has to itself.
func withOwn(list []string, entity string) []string {
	own := monitor.EntitySubscription(entity)
	for _, s := range list {
		if s == own {
			return list
		}
	}
	return append(list, own)
}
