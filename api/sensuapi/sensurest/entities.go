package sensurest

import (
	"encoding/json"
	"net/http"

	"corbel.dev/corbel/api/sensuapi/envelope"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/objects"
)

// showEntity is an entity as core/v2 has it: what its operators decided and what its agent says, together.
func showEntity(q *request, o monitor.Object) (any, error) {
	c := o.(*monitor.EntityConfig)
	state, err := q.cfg.Events.EntityState(q.r.Context(), c.Namespace, c.Name)
	if err != nil {
		return nil, err
	}
	return monitor.Join(c, state), nil
}

// showEntities is showEntity of many.
func showEntities(q *request, items []*objects.Item) ([]any, error) {
	states, err := entities{q}.statesOf(items)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(items))
	for i, item := range items {
		out[i] = monitor.Join(item.Object().(*monitor.EntityConfig), states[i])
	}
	return out, nil
}

// showStates is what agents say of many entities; nil where they said nothing yet.
func showStates(q *request, items []*objects.Item) ([]any, error) {
	states, err := entities{q}.statesOf(items)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(items))
	for i, state := range states {
		if state != nil {
			out[i] = state
		}
	}
	return out, nil
}

// entities answers what is asked of entities, whose objects and states live apart.
type entities struct{ *request }

func (q entities) statesOf(items []*objects.Item) ([]*monitor.EntityState, error) {
	names := make([]ingest.EntityName, len(items))
	for i, item := range items {
		names[i] = ingest.EntityName{Namespace: item.Namespace, Name: item.Name}
	}
	states, err := q.cfg.Events.EntityStates(q.r.Context(), names)
	if err != nil && !errkind.Is(err, errkind.Unavailable) {
		err = errkind.E(errkind.Unavailable, "a part of the entities", err) // so that the list ends as one that is not whole
	}
	return states, err
}

// showConfig is the half that operators decide (core/v3).
func showConfig(_ *request, o monitor.Object) (any, error) {
	c := *o.(*monitor.EntityConfig)
	c.Meta = monitor.RedactMeta(c.Meta, c.Redact)
	return &c, nil
}

// decodeEntity reads an entity of core/v2. What an agent would say of its host is left out: its agent says it.
func decodeEntity(_ *request, b []byte) (monitor.Object, error) {
	e := new(monitor.Entity)
	if err := json.Unmarshal(b, e); err != nil {
		return nil, err
	}
	c, _ := monitor.Split(e)
	return c, nil
}

// admitEntity completes an entity: without a class it is a proxy, and hidden values that come back as they were shown
// stay what they are.
func admitEntity(_ *request, old, o monitor.Object) error {
	c := o.(*monitor.EntityConfig)
	if c.Class == "" {
		c.Class = monitor.ClassProxy
	}
	if former, ok := old.(*monitor.EntityConfig); ok {
		unhide(c.Labels, former.Labels)
		unhide(c.Annotations, former.Annotations)
	}
	return nil
}

func unhide(now, former map[string]string) {
	for name, value := range now {
		if v, ok := former[name]; ok && value == monitor.Redacted {
			now[name] = v
		}
	}
}

// one answers what is special about entities: those of core/v2 are answered with when they were written, and their
// events go with them.
func (q entities) one() error {
	if len(q.rest) > 0 {
		return errNotFound
	}
	if q.namespace == "" {
		return errCommon
	}
	switch {
	case q.r.Method == http.MethodDelete && q.name != "":
		if err := q.may("delete", q.kind.resource, q.namespace, q.name); err != nil {
			return err
		}
		return q.remove()
	case q.kind.wrapped():
		return errCommon
	case q.r.Method == http.MethodPost && q.name == "":
		return q.write(objects.Create)
	case q.r.Method == http.MethodPut && q.name != "":
		return q.write(objects.Put)
	}
	return errCommon
}

func (q entities) write(verb objects.Verb) error {
	if err := q.may(q.verb(), q.kind.resource, q.namespace, q.name); err != nil {
		return err
	}
	b, err := q.body()
	if err != nil {
		return err
	}
	o, err := q.read(b)
	if err != nil {
		return invalid(err)
	}
	if err := q.place(o); err != nil {
		return invalid(err)
	}
	_, q.name = o.Key()
	old := q.cfg.Resources.View().Get(q.kind.Name, q.namespace, q.name)
	if err := q.save(verb, o, old); err != nil {
		return err
	}
	v, err := q.view(o)
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, v) // not 201 without a body: as the reference does
}

// remove deletes an entity and its events; its agent's session ends, and makes the entity anew when it comes
// back.
func (q entities) remove() error {
	item := q.cfg.Resources.View().Get(q.kind.Name, q.namespace, q.name)
	op := objects.Op{Verb: objects.Drop, Type: q.kind.Name, Namespace: q.namespace, Name: q.name}
	if err := q.condition(&op, item); err != nil {
		return err
	}
	op.Verb = objects.Drop
	if item != nil {
		if err := q.cfg.Resources.Write(q.r.Context(), op); err != nil {
			return err
		}
	}
	found, err := q.cfg.Events.Delete(q.r.Context(), q.namespace, q.name, "")
	if err != nil {
		return err
	}
	if !found && item == nil {
		return errNotFound
	}
	return q.done()
}

// states answers with what agents say of their hosts (core/v3); nobody else can say it.
func (q entities) states() error {
	if len(q.rest) > 0 {
		return errNotFound
	}
	if err := q.may(q.verb(), q.kind.resource, q.namespace, q.name); err != nil {
		return err
	}
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead {
		return q.notAllowed("GET")
	}
	if q.name == "" {
		return lists(q).all()
	}
	item, err := q.find()
	if err != nil {
		return err
	}
	v, err := q.state(item)
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, v)
}

func (q entities) state(item *objects.Item) (any, error) {
	state, err := q.cfg.Events.EntityState(q.r.Context(), item.Namespace, item.Name)
	if err != nil {
		return nil, err
	}
	if state == nil {
		return nil, errkind.Errorf(errkind.NotFound, "nothing is known of entity %q yet", item.Name)
	}
	return envelope.Wrap(&q.kind.Type, state)
}
