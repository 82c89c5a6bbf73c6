package review

import (
	"fmt"

	"corbel.dev/corbel/monitor"
)

// Names tells which objects there are.
type Names interface {
	// Has reports whether there is an object: typ is as in monitor.Types.
	Has(typ, namespace, name string) bool
	// HasPrefix reports whether there is one whose name begins so: assets are named by their beginning.
	HasPrefix(typ, namespace, prefix string) bool
}

// builtinProvider finds secrets in the servers' own environment.
const builtinProvider = "env"

// What the plane has of its own.
var (
	builtinFilters  = map[string]bool{"is_incident": true, "not_silenced": true, "has_metrics": true}
	builtinMutators = map[string]bool{"json": true, "only_check_output": true}
	// typesOf are the types that a reference of a pipeline may have.
	typesOf = map[string]string{"EventFilter": "filters", "Mutator": "mutators", "Handler": "handlers",
		"Pipeline": "pipelines", "TCPStreamHandler": "tcp-stream-handlers"}
)

// words are what the types are called in warnings.
var words = map[string]string{
	"filters": "filter", "mutators": "mutator", "handlers": "handler", "pipelines": "pipeline",
	"tcp-stream-handlers": "TCP stream handler",
	"assets":              "asset", "secrets": "secret", "hooks": "hook", "roles": "role", "clusterroles": "cluster role",
	"providers": "provider", "namespaces": "namespace",
}

// missing collects what an object names and nobody has.
type missing struct {
	names     Names
	namespace string
	out       []string
}

func (m *missing) want(field, typ, name string) {
	switch {
	case name == "", typ == "filters" && builtinFilters[name], typ == "mutators" && builtinMutators[name]:
	case typ == "assets" && m.names.HasPrefix(typ, m.namespace, name):
	case m.names.Has(typ, m.namespace, name):
	default:
		m.out = append(m.out, fmt.Sprintf("%s: %s %q does not exist", field, words[typ], name))
	}
}

func (m *missing) all(field, typ string, list []string) {
	for i, name := range list {
		m.want(fmt.Sprintf("%s[%d]", field, i), typ, name)
	}
}

func (m *missing) secrets(list []*monitor.Secret) {
	for i, s := range list {
		m.want(fmt.Sprintf("secrets[%d]", i), "secrets", s.Secret)
	}
}

func (m *missing) ref(field string, r *monitor.Ref) {
	if r != nil && typesOf[r.Type] != "" {
		m.want(field, typesOf[r.Type], r.Name)
	}
}

func (m *missing) refs(field string, list []*monitor.Ref) {
	for i, r := range list {
		m.ref(fmt.Sprintf("%s[%d]", field, i), r)
	}
}

// Missing lists what an object names and what is not there: its handlers, filters, mutators, assets, hooks, secrets,
// roles. The order in which objects are created is their author's affair, so none of it makes an object wrong.
func Missing(o monitor.Object, names Names) []string {
	namespace, _ := o.Key()
	m := &missing{names: names, namespace: namespace}
	if namespace != "" && !names.Has("namespaces", "", namespace) {
		m.out = append(m.out, fmt.Sprintf("metadata.namespace: namespace %q does not exist", namespace))
	}
	switch o := o.(type) {
	case *monitor.CheckConfig:
		m.check(o)
	case *monitor.HookConfig:
		m.all("runtime_assets", "assets", o.RuntimeAssets)
	case *monitor.Handler:
		m.all("handlers", "handlers", o.Handlers)
		m.all("filters", "filters", o.Filters)
		m.want("mutator", "mutators", o.Mutator)
		m.all("runtime_assets", "assets", o.RuntimeAssets)
		m.secrets(o.Secrets)
	case *monitor.Mutator:
		m.all("runtime_assets", "assets", o.RuntimeAssets)
		m.secrets(o.Secrets)
	case *monitor.EventFilter:
		m.all("runtime_assets", "assets", o.RuntimeAssets)
	case *monitor.Pipeline:
		for i, w := range o.Workflows {
			at := fmt.Sprintf("workflows[%d].", i)
			m.refs(at+"filters", w.Filters)
			m.ref(at+"mutator", w.Mutator)
			m.ref(at+"handler", w.Handler)
		}
	case *monitor.SecretSource:
		if o.Provider != builtinProvider {
			m.global("provider", "providers", o.Provider)
		}
	case *monitor.RoleBinding:
		m.role(o.RoleRef)
	case *monitor.ClusterRoleBinding:
		m.role(o.RoleRef)
	}
	return m.out
}

func (m *missing) check(c *monitor.CheckConfig) {
	m.all("handlers", "handlers", c.Handlers)
	m.all("output_metric_handlers", "handlers", c.MetricHandlers)
	m.refs("pipelines", c.Pipelines)
	m.all("runtime_assets", "assets", c.RuntimeAssets)
	for i, l := range c.CheckHooks {
		m.all(fmt.Sprintf("check_hooks[%d].hooks", i), "hooks", l.Hooks)
	}
	m.secrets(c.Secrets)
}

func (m *missing) role(r monitor.RoleRef) {
	switch r.Type {
	case "Role":
		m.want("role_ref", "roles", r.Name)
	case "ClusterRole":
		m.global("role_ref", "clusterroles", r.Name)
	}
}

// global is want for what belongs to no namespace.
func (m *missing) global(field, typ, name string) {
	namespace := m.namespace
	m.namespace = ""
	m.want(field, typ, name)
	m.namespace = namespace
}
