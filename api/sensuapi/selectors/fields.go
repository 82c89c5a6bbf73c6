// Package selectors has what selectors of fields and labels can name of each type of object.
package selectors

import (
	"strconv"
	"strings"

	"corbel.dev/corbel/monitor"
)

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

// Fields are the fields of each type, with the contract's names.
var Fields = map[string]fieldSet{
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
	"authproviders":       named("authprovider", nil),
	"config":              named("global_config", nil), "search": named("search", nil),
	"rule-templates": named("rule_template", nil), "service-components": named("service_component", nil),
	"etcd-replicators": named("etcd_replicator", nil), "clusters": named("cluster", nil),
	"provider": named("provider", nil), "providers": named("provider", nil),
	"secrets": named("secret", fieldSet{"provider": field(func(o *monitor.SecretSource) string { return o.Provider })}),
}

func eventFields() fieldSet {
	event := field[*monitor.Event]
	check := func(f func(*monitor.Check) string) func(monitor.Object) string {
		return event(func(e *monitor.Event) string {
			if e.Check == nil {
				return ""
			}
			return f(e.Check)
		})
	}
	entity := func(f func(*monitor.Entity) string) func(monitor.Object) string {
		return event(func(e *monitor.Event) string { return f(e.Entity) })
	}
	silenced := func(c *monitor.Check) string { return strconv.FormatBool(c.IsSilenced) }
	return fieldSet{
		"event.name": event(func(e *monitor.Event) string {
			if e.Check == nil {
				return e.Entity.Name
			}
			return e.Entity.Name + "/" + e.Check.Name
		}),
		"event.namespace":            entity(func(e *monitor.Entity) string { return e.Namespace }),
		"event.is_silenced":          check(silenced),
		"event.check.is_silenced":    check(silenced),
		"event.check.handlers":       check(func(c *monitor.Check) string { return join(c.Handlers) }),
		"event.check.name":           check(func(c *monitor.Check) string { return c.Name }),
		"event.check.publish":        check(func(c *monitor.Check) string { return strconv.FormatBool(c.Publish) }),
		"event.check.round_robin":    check(func(c *monitor.Check) string { return strconv.FormatBool(c.RoundRobin) }),
		"event.check.runtime_assets": check(func(c *monitor.Check) string { return join(c.RuntimeAssets) }),
		"event.check.state":          check(func(c *monitor.Check) string { return c.State }),
		"event.check.status": check(func(c *monitor.Check) string {
			return strconv.FormatUint(uint64(c.Status), 10)
		}),
		"event.check.subscriptions":  check(func(c *monitor.Check) string { return join(c.Subscriptions) }),
		"event.entity.deregister":    entity(func(e *monitor.Entity) string { return strconv.FormatBool(e.Deregister) }),
		"event.entity.entity_class":  entity(func(e *monitor.Entity) string { return e.Class }),
		"event.entity.name":          entity(func(e *monitor.Entity) string { return e.Name }),
		"event.entity.subscriptions": entity(func(e *monitor.Entity) string { return join(e.Subscriptions) }),
	}
}

// Labels finds an object's labels; an event's are also those of its check and of its entity.
func Labels(o monitor.Object) func(string) (string, bool) {
	var sets []map[string]string
	switch o := o.(type) {
	case *monitor.Event:
		sets = append(sets, o.Labels)
		if o.Check != nil {
			sets = append(sets, o.Check.Labels)
		}
		if o.Entity != nil {
			sets = append(sets, o.Entity.Labels)
		}
	case interface{ ObjectMeta() *monitor.Meta }:
		sets = append(sets, o.ObjectMeta().Labels)
	}
	return func(name string) (string, bool) {
		for _, set := range sets {
			if v, ok := set[name]; ok {
				return v, true
			}
		}
		return "", false
	}
}
