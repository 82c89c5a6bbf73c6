package review

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/monitor"
)

func TestUnknown(t *testing.T) {
	for _, c := range []struct {
		o    monitor.Object
		body string
		want []string
	}{
		{new(monitor.CheckConfig), `{"metadata":{"name":"cpu","labels":{"any":"thing"}},"handlrs":["a"],"tiemout":10,` +
			`"command":"x"}`,
			[]string{`unknown key "handlrs"; did you mean "handlers"?`, `unknown key "tiemout"; did you mean "timeout"?`}},
		{new(monitor.CheckConfig), `{"metadata":{"nmae":"cpu"},"name":"cpu","proxy_requests":{"entity_atributes":[]}}`,
			[]string{`unknown key "metadata.nmae"; did you mean "name"?`, `unknown key "name"`,
				`unknown key "proxy_requests.entity_atributes"; did you mean "entity_attributes"?`}},
		{new(monitor.CheckConfig),
			`{"check_hooks":[{"non-zero":["ps"]}],"subdues":[],"pipelines":[{"nam":"x"}],"Interval":5}`,
			[]string{`unknown key "pipelines[0].nam"; did you mean "name"?`}},
		{new(monitor.Handler), `{"type":"udp","socket":{"host":"a","prot":1}}`,
			[]string{`unknown key "socket.prot"; did you mean "port"?`}},
		{new(monitor.EventFilter), `{"action":"allow","expressions":["1"],"whatever_it_is":true}`,
			[]string{`unknown key "whatever_it_is"`}},
		{new(monitor.Provider), `{"anything":1}`, nil},
		{new(monitor.Role), `{"rules":[{"verbs":["get"],"resource":["checks"]}]}`,
			[]string{`unknown key "rules[0].resource"; did you mean "resources"?`}},
		{new(monitor.CheckConfig), `[`, nil},
	} {
		var got []string
		for _, k := range Unknown([]byte(c.body), c.o) {
			got = append(got, k.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s", c.body, strings.Join(got, "\n"))
		}
	}
}

// Whatever an object is shown as is known when it comes back.
func TestOwnJSONIsKnown(t *testing.T) {
	for _, typ := range monitor.Types {
		o := typ.New()
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(typ.Name, err)
		}
		if got := Unknown(b, typ.New()); len(got) > 0 {
			t.Errorf("%s: %v", typ.Name, got)
		}
	}
}

// names are "type/namespace/name".
type names []string

func (n names) Has(typ, namespace, name string) bool {
	return slices.Contains(n, typ+"/"+namespace+"/"+name)
}

func (n names) HasPrefix(typ, namespace, prefix string) bool {
	return slices.ContainsFunc(n, func(s string) bool { return strings.HasPrefix(s, typ+"/"+namespace+"/"+prefix) })
}

func TestMissing(t *testing.T) {
	there := names{"namespaces//a", "handlers/a/pager", "filters/a/hours", "mutators/a/short", "assets/a/sensu/cpu:1.0",
		"hooks/a/ps", "secrets/a/key", "pipelines/a/p", "clusterroles//admin"}
	meta := monitor.Meta{Name: "x", Namespace: "a"}
	for _, c := range []struct {
		o    monitor.Object
		want string
	}{
		{&monitor.CheckConfig{Meta: meta, Handlers: []string{"pager", "pagre"}, MetricHandlers: []string{"influx"},
			RuntimeAssets: []string{"sensu/cpu", "sensu/disk"},
			CheckHooks:    []monitor.HookList{{Type: "ok", Hooks: []string{"ps", "top"}}},
			Secrets:       []*monitor.Secret{{Name: "K", Secret: "key"}, {Name: "L", Secret: "lock"}},
			Pipelines:     []*monitor.Ref{{Name: "p", Type: "Pipeline"}, {Name: "q", Type: "Pipeline"}}},
			`handlers[1]: handler "pagre" does not exist; output_metric_handlers[0]: handler "influx" does not exist; ` +
				`pipelines[1]: pipeline "q" does not exist; ` +
				`runtime_assets[1]: asset "sensu/disk" does not exist; check_hooks[0].hooks[1]: hook "top" does not exist; ` +
				`secrets[1]: secret "lock" does not exist`},
		{&monitor.Handler{Meta: meta, Filters: []string{"is_incident", "hours", "days"}, Mutator: "only_check_output"},
			`filters[2]: filter "days" does not exist`},
		{&monitor.Handler{Meta: meta, Mutator: "shrot"}, `mutator: mutator "shrot" does not exist`},
		{&monitor.Pipeline{Meta: meta, Workflows: []*monitor.Workflow{{Name: "w",
			Mutator: &monitor.Ref{Name: "short", Type: "Mutator"},
			Handler: &monitor.Ref{Name: "none", Type: "TCPStreamHandler"}}}},
			`workflows[0].handler: TCP stream handler "none" does not exist`},
		{&monitor.SecretSource{Meta: meta, Provider: "env"}, ""},
		{&monitor.SecretSource{Meta: meta, Provider: "vault"}, `provider: provider "vault" does not exist`},
		{&monitor.ClusterRoleBinding{Meta: monitor.Meta{Name: "x"}, RoleRef: monitor.RoleRef{Type: "ClusterRole",
			Name: "admin"}}, ""},
		{&monitor.HookConfig{Meta: monitor.Meta{Name: "x", Namespace: "b"}},
			`metadata.namespace: namespace "b" does not exist`},
	} {
		if got := strings.Join(Missing(c.o, there), "; "); got != c.want {
			t.Errorf("%T: %s", c.o, got)
		}
	}
}

func TestPrograms(t *testing.T) {
	for want, o := range map[string]monitor.Object{
		"expressions[0] expressions[1]": &monitor.EventFilter{Expressions: []string{"1", "2"}},
		"eval":                          &monitor.Mutator{Type: monitor.MutatorJavaScript, Eval: "return 1"},
		"":                              &monitor.Mutator{Command: "cat"},
		"proxy_requests.entity_attributes[0]": &monitor.CheckConfig{
			ProxyRequests: &monitor.ProxyRequests{EntityAttributes: []string{"1"}},
		},
		"filters[0] builds[0].filters[0]": &monitor.Asset{Filters: []string{"1"},
			Builds: []*monitor.AssetBuild{{Filters: []string{"2"}}}},
	} {
		var got []string
		for _, p := range Programs(o) {
			got = append(got, p.Field)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%T: %v, want %s", o, got, want)
		}
	}
}
