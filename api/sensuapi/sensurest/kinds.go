package sensurest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
		k := &kind{Type: t, path: t.Name, resource: t.Name, fields: fieldsOf[t.Name]}
		switch t.Name {
		case "entities":
			states := &kind{Type: t, path: "entity-states", resource: t.Name, fields: k.fields, showAll: showStates,
				serve: (*request).entityStates}
			states.Kind = "EntityState"
			config := &kind{Type: t, path: "entity-configs", resource: t.Name, fields: k.fields, show: showConfig,
				admit: admitEntity, serve: (*request).entity}
			out = append(out, states, config)
			k.Type.Kind, k.Type.APIVersion = "Entity", "core/v2"
			k.show, k.showAll, k.decode, k.admit, k.serve = showEntity, showEntities, decodeEntity, admitEntity,
				(*request).entity
		case "silenced":
			k.show, k.admit, k.serve = showSilenced, admitSilenced, (*request).silenced
		case "users":
			k.show, k.admit, k.serve = showUser, admitUser, (*request).user
		case "apikeys":
			k.show, k.admit, k.serve = showAPIKey, admitAPIKey, (*request).apiKey
		case "providers":
			k.show = func(_ *request, o monitor.Object) (any, error) { return o.(*monitor.Provider).Shown(), nil }
			k.admit = admitProvider
		case "checks":
			k.serve = (*request).check
		case "namespaces":
			k.serve = (*request).namespaces
		}
		out = append(out, k)
	}
	return out
}

// admitProvider keeps a token that came back as it was shown.
func admitProvider(_ *request, old, o monitor.Object) error {
	if former, ok := old.(*monitor.Provider); ok {
		o.(*monitor.Provider).Keep(former)
	}
	return nil
}

// eventKind is what events are to selectors.
var eventKind = &kind{Type: monitor.Type{Name: "events", Kind: "Event", APIVersion: "core/v2", Scoped: true},
	path: "events", resource: "events", fields: fieldsOf["events"]}

func field[T monitor.Object](f func(T) string) func(monitor.Object) string {
	return func(o monitor.Object) string { return f(o.(T)) }
}

func join(list []string) string { return strings.Join(list, ",") }

// named are the fields that every object with a name has.
func named(prefix string, more map[string]func(monitor.Object) string) map[string]func(monitor.Object) string {
	out := map[string]func(monitor.Object) string{
		prefix + ".name":      func(o monitor.Object) string { _, name := o.Key(); return name },
		prefix + ".namespace": func(o monitor.Object) string { namespace, _ := o.Key(); return namespace },
	}
	for name, f := range more {
		out[prefix+"."+name] = f
	}
	return out
}

type fieldSet = map[string]func(monitor.Object) string

// fieldsOf are the fields of each type, with the contract's names.
var fieldsOf = map[string]fieldSet{
	"assets": named("asset", fieldSet{"filters": field(func(o *monitor.Asset) string { return join(o.Filters) })}),
	"checks": named("check", fieldSet{
		"handlers":       field(func(o *monitor.CheckConfig) string { return join(o.Handlers) }),
		"publish":        field(func(o *monitor.CheckConfig) string { return strconv.FormatBool(o.Publish) }),
		"round_robin":    field(func(o *monitor.CheckConfig) string { return strconv.FormatBool(o.RoundRobin) }),
		"runtime_assets": field(func(o *monitor.CheckConfig) string { return join(o.RuntimeAssets) }),
		"subscriptions":  field(func(o *monitor.CheckConfig) string { return join(o.Subscriptions) }),
	}),
	"entities": named("entity", fieldSet{
		"deregister":    field(func(o *monitor.EntityConfig) string { return strconv.FormatBool(o.Deregister) }),
		"entity_class":  field(func(o *monitor.EntityConfig) string { return o.Class }),
		"subscriptions": field(func(o *monitor.EntityConfig) string { return join(o.Subscriptions) }),
	}),
	"events": eventFields(),
	"filters": named("filter", fieldSet{
		"action":         field(func(o *monitor.EventFilter) string { return o.Action }),
		"runtime_assets": field(func(o *monitor.EventFilter) string { return join(o.RuntimeAssets) }),
	}),
	"handlers": named("handler", fieldSet{
		"filters":  field(func(o *monitor.Handler) string { return join(o.Filters) }),
		"handlers": field(func(o *monitor.Handler) string { return join(o.Handlers) }),
		"mutator":  field(func(o *monitor.Handler) string { return o.Mutator }),
		"type":     field(func(o *monitor.Handler) string { return o.Type }),
	}),
	"hooks": named("hook", nil),
	"mutators": named("mutator", fieldSet{"runtime_assets": field(func(o *monitor.Mutator) string {
		return join(o.RuntimeAssets)
	})}),
	"pipelines": named("pipeline", nil),
	"silenced": named("silenced", fieldSet{
		"check":             field(func(o *monitor.Silenced) string { return o.Check }),
		"creator":           field(func(o *monitor.Silenced) string { return o.Creator }),
		"expire_on_resolve": field(func(o *monitor.Silenced) string { return strconv.FormatBool(o.ExpireOnResolve) }),
		"subscription":      field(func(o *monitor.Silenced) string { return o.Subscription }),
	}),
	"namespaces": named("namespace", nil),
	"users": {
		"user.username": field(func(o *monitor.User) string { return o.Username }),
		"user.disabled": field(func(o *monitor.User) string { return strconv.FormatBool(o.Disabled) }),
		"user.groups":   field(func(o *monitor.User) string { return join(o.Groups) }),
	},
	"apikeys":      named("api_key", fieldSet{"username": field(func(o *monitor.APIKey) string { return o.Username })}),
	"roles":        named("role", nil),
	"clusterroles": named("clusterrole", nil),
	"rolebindings": named("rolebinding", fieldSet{
		"role_ref.name": field(func(o *monitor.RoleBinding) string { return o.RoleRef.Name }),
		"role_ref.type": field(func(o *monitor.RoleBinding) string { return o.RoleRef.Type }),
	}),
	"clusterrolebindings": named("clusterrolebinding", fieldSet{
		"role_ref.name": field(func(o *monitor.ClusterRoleBinding) string { return o.RoleRef.Name }),
		"role_ref.type": field(func(o *monitor.ClusterRoleBinding) string { return o.RoleRef.Type }),
	}),
	"tcp-stream-handlers": named("tcp_stream_handler", nil),
	"etcd-replicators":    named("etcd_replicator", nil), "clusters": named("cluster", nil),
	"provider": named("provider", nil), "providers": named("provider", nil),
	"secrets": named("secret", fieldSet{"provider": field(func(o *monitor.SecretSource) string { return o.Provider })}),
}

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
	return wrap(q.kind, v)
}

// envelope is a wrapped object.
type envelope struct {
	Type       string                     `json:"type"`
	APIVersion string                     `json:"api_version"`
	Metadata   json.RawMessage            `json:"metadata"`
	Spec       map[string]json.RawMessage `json:"spec"`
}

func wrap(k *kind, o any) (*envelope, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	out := &envelope{Type: k.Kind, APIVersion: k.APIVersion}
	if p, ok := o.(*monitor.Provider); ok {
		out.Type = p.Kind
	}
	if err := json.Unmarshal(b, &out.Spec); err != nil {
		return nil, err
	}
	out.Metadata = out.Spec["metadata"]
	delete(out.Spec, "metadata")
	return out, nil
}

// unwrap reads a wrapped object into o, and returns it as it would stand unwrapped.
func unwrap(k *kind, b []byte, o monitor.Object) (spec []byte, err error) {
	var in envelope
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, err
	}
	p, provider := o.(*monitor.Provider)
	switch {
	case in.Type == "":
		return nil, errors.New("type is missing: the body has type, api_version, metadata and spec")
	case in.Type != k.Kind && !provider:
		return nil, fmt.Errorf("type %q is not %q", in.Type, k.Kind)
	case in.APIVersion != k.APIVersion:
		return nil, fmt.Errorf("api_version %q is not %q", in.APIVersion, k.APIVersion)
	case in.Spec == nil:
		in.Spec = map[string]json.RawMessage{}
	}
	delete(in.Spec, "metadata")
	if len(in.Metadata) > 0 {
		in.Spec["metadata"] = in.Metadata
	}
	whole, err := json.Marshal(in.Spec)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(whole, o); err != nil {
		return nil, err
	}
	if provider {
		p.Kind = in.Type
	}
	return whole, nil
}

// read decodes a body into an object of the request's kind.
func (q *request) read(b []byte) (monitor.Object, error) {
	if q.kind.decode != nil {
		return q.kind.decode(q, b)
	}
	o := q.kind.New()
	if q.kind.wrapped() {
		var err error
		if b, err = unwrap(q.kind, b, o); err != nil {
			return o, err
		}
	} else if err := json.Unmarshal(b, o); err != nil {
		return o, err
	}
	return o, q.known(b, o)
}
