package sensurest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"corbel.dev/corbel/api/sensuapi/envelope"
	"corbel.dev/corbel/api/sensuapi/selectors"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// kind is a type of objects as the API has it.
type kind struct {
	monitor.Type
	path     string // in URLs
	resource string // in rules of roles
	// fields are what field selectors may ask about.
	fields map[string]func(monitor.Object) string
	// show makes what is answered of an object; nil is the object itself.
	show func(q *request, o monitor.Object) (any, error)
	// showAll is show for lists, where other servers are asked once for many objects; nil is each by itself, and a nil
	// value is left out.
	showAll func(q *request, items []*objects.Item) ([]any, error)
	// decode reads a body; nil is JSON of the object itself.
	decode func(q *request, b []byte) (monitor.Object, error)
	// admit completes an object before it is validated and written; old is what it replaces, or nil.
	admit func(q *request, old, o monitor.Object) error
	// serve answers in place of the common functions; it returns errCommon to leave it to them.
	serve func(q *request) error
}

// errCommon is how a kind's serve leaves a request to the common functions.
var errCommon = errors.New("not special")

// wrapped says that bodies have type, api_version, metadata and spec.
func (k *kind) wrapped() bool { return k.APIVersion != "core/v2" }

// kinds are all types of objects that the API has, but events.
var kinds = makeKinds()

func makeKinds() (out []*kind) {
	for _, t := range monitor.Types {
		if t.APIVersion == "" {
			continue
		}
		k := &kind{Type: t, path: t.Name, resource: t.Name, fields: selectors.Fields[t.Name]}
		switch t.Name {
		case "entities":
			states := &kind{Type: t, path: "entity-states", resource: t.Name, fields: k.fields, showAll: showStates,
				serve: by(entities.states)}
			states.Kind = "EntityState"
			config := &kind{Type: t, path: "entity-configs", resource: t.Name, fields: k.fields, show: showConfig,
				admit: admitEntity, serve: by(entities.one)}
			out = append(out, states, config)
			k.Type.Kind, k.Type.APIVersion = "Entity", "core/v2"
			k.show, k.showAll, k.decode, k.admit, k.serve = showEntity, showEntities, decodeEntity, admitEntity,
				by(entities.one)
		case "silenced":
			k.show, k.admit, k.serve = showSilenced, admitSilenced, by(silences.one)
		case "users":
			k.show, k.admit, k.serve = showUser, admitUser, by(userRequest.one)
		case "apikeys":
			k.show, k.admit, k.serve = showAPIKey, admitAPIKey, (*request).apiKey
		case "providers":
			k.show = func(_ *request, o monitor.Object) (any, error) { return o.(*monitor.Provider).Shown(), nil }
			k.admit = admitProvider
		case "authproviders":
			k.show = func(_ *request, o monitor.Object) (any, error) { return o.(*monitor.AuthProvider).Shown(), nil }
			k.admit = admitAuthProvider
		case "checks":
			k.serve = by(checks.one)
		case "search":
			k.resource = "searches"
		case "rule-templates":
			k.serve = (*request).builtin
		case "service-components":
			k.admit = admitComponent
		case "namespaces":
			k.serve = by(scopes.one)
		}
		out = append(out, k)
	}
	return out
}

// builtin answers with an object that nobody stored, where there is one of that name.
func (q *request) builtin() error {
	if q.cfg.Documents == nil || q.r.Method != http.MethodGet || q.name == "" || len(q.rest) > 0 ||
		q.cfg.Resources.View().Get(q.kind.Name, q.namespace, q.name) != nil {
		return errCommon
	}
	o := q.cfg.Documents.Builtin(q.kind.Name, q.name)
	if o == nil {
		return errCommon
	}
	if err := q.may("get", q.kind.resource, q.namespace, q.name); err != nil {
		return err
	}
	v, err := q.view(o)
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, v)
}

// admitProvider keeps a token that came back as it was shown.
func admitProvider(_ *request, old, o monitor.Object) error {
	if former, ok := old.(*monitor.Provider); ok {
		o.(*monitor.Provider).Keep(former)
	}
	return nil
}

// admitAuthProvider keeps a secret that came back as it was shown.
func admitAuthProvider(_ *request, old, o monitor.Object) error {
	if former, ok := old.(*monitor.AuthProvider); ok {
		o.(*monitor.AuthProvider).Keep(former)
	}
	return nil
}

// admitComponent refuses who may not write the events that a service component has made.
func admitComponent(q *request, _, o monitor.Object) error {
	if q.cfg.Documents == nil {
		return nil
	}
	namespace, _ := o.Key()
	for _, name := range q.cfg.Documents.Results(q.kind.Name, o) {
		for _, verb := range []string{"create", "update"} {
			if q.may(verb, "events", namespace, name) != nil {
				return &apiError{http.StatusForbidden, codeDenied, fmt.Sprintf("unauthorized to perform action: a rule makes the "+
					"event %s, which takes the right to %s events", name, verb)}
			}
		}
	}
	return nil
}

// eventKind is what events are to selectors.
var eventKind = &kind{Type: monitor.Type{Name: "events", Kind: "Event", APIVersion: "core/v2", Scoped: true},
	path: "events", resource: "events", fields: selectors.Fields["events"]}

// view is what is answered of an object.
func (q *request) view(o monitor.Object) (any, error) {
	var v any = o
	if q.kind.show != nil {
		var err error
		if v, err = q.kind.show(q, o); err != nil {
			return nil, err
		}
	}
	if !q.kind.wrapped() {
		return v, nil
	}
	return envelope.Wrap(&q.kind.Type, v)
}

// read decodes a body into an object of the request's kind.
func (q *request) read(b []byte) (monitor.Object, error) {
	if q.kind.decode != nil {
		return q.kind.decode(q, b)
	}
	o := q.kind.New()
	if q.kind.wrapped() {
		var err error
		if b, err = envelope.Unwrap(&q.kind.Type, b, o); err != nil {
			return o, err
		}
	} else if err := json.Unmarshal(b, o); err != nil {
		return o, err
	}
	return o, q.known(b, o)
}
