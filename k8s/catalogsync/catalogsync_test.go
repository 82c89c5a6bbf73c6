package catalogsync

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"corbel.dev/corbel/k8s"
)

func decode[T any](t testing.TB, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

func options() *Options {
	return &Options{Node: "k8s-sync", Tag: "k8s", Default: true, ClusterIPs: true, Allow: []string{"*"},
		Deny: []string{"kube-system"}}
}

const slice = `{"metadata":{"name":"%s","namespace":"shop","labels":{"kubernetes.io/service-name":"web"}},
"addressType":"IPv4","ports":[{"name":"http","port":8080},{"name":"admin","port":9090}],"endpoints":[%s]}`

const nodes = `[{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"10.1.0.1"},
{"type":"ExternalIP","address":"192.0.2.1"}]}},{"metadata":{"name":"n2"},"status":{"addresses":[
{"type":"InternalIP","address":"10.1.0.2"}]}}]`

// What a service and its slices become.
func TestDesired(t *testing.T) {
	const pod = `{"addresses":["10.0.0.1"],"conditions":{"ready":true},"nodeName":"n1","zone":"z1",
"targetRef":{"kind":"Pod","namespace":"shop","name":"web-1"}}`
	const unready = `{"addresses":["10.0.0.2"],"conditions":{"ready":false},"nodeName":"n2"}`
	const silent = `{"addresses":["10.0.0.3"],"conditions":{},"nodeName":"n1"}`
	const ports = `"ports":[{"name":"http","port":80,"nodePort":30080},{"name":"admin","port":81}]`
	for _, test := range []struct {
		name, annotations, spec, status string
		change                          func(*Options)
		want                            string // name address:port ready, for each
		problem                         string
	}{
		{name: "pods", spec: ports, want: "web 10.0.0.1:8080 true, web 10.0.0.2:8080 false, web 10.0.0.3:8080 true"},
		{name: "named and by another port", annotations: `"service-name":"front","service-port":"admin"`, spec: ports,
			want: "front 10.0.0.1:9090 true, front 10.0.0.2:9090 false, front 10.0.0.3:9090 true"},
		{name: "port by number", annotations: `"service-port":"81"`, spec: ports,
			want: "web 10.0.0.1:9090 true, web 10.0.0.2:9090 false, web 10.0.0.3:9090 true"},
		{name: "a port that only the annotation knows", annotations: `"service-port":"7000"`, spec: ports,
			want: "web 10.0.0.1:7000 true, web 10.0.0.2:7000 false, web 10.0.0.3:7000 true"},
		{name: "no such port", annotations: `"service-port":"grpc"`, spec: ports, problem: "no such port"},
		{name: "not asked for", annotations: `"service-sync":"false"`, spec: ports},
		{name: "asked for alone", spec: ports, change: func(o *Options) { o.Default = false }},
		{name: "asked for", annotations: `"service-sync":"true"`, spec: ports + `,"type":"LoadBalancer"`,
			change: func(o *Options) { o.Default = false }, status: `{"loadBalancer":{"ingress":[{"ip":"192.0.2.9"}]}}`,
			want: "web 192.0.2.9:80 true"},
		{name: "neither true nor false", annotations: `"service-sync":"yes please"`, spec: ports, problem: "true or false"},
		{name: "a weight that is none", annotations: `"service-weight":"0"`, spec: ports, problem: "service-weight"},
		{name: "cluster addresses are not for the catalog", spec: ports, change: func(o *Options) { o.ClusterIPs = false }},
		{name: "a namespace that is not allowed", spec: ports, change: func(o *Options) { o.Allow = []string{"other"} }},
		{name: "a namespace that is denied", spec: ports, change: func(o *Options) { o.Deny = []string{"shop"} }},
		{name: "prefix and suffix", spec: ports, change: func(o *Options) { o.Prefix, o.Suffix = "k-", true },
			want: "k-web-shop 10.0.0.1:8080 true, k-web-shop 10.0.0.2:8080 false, k-web-shop 10.0.0.3:8080 true"},
		{name: "nodes, external", spec: ports + `,"type":"NodePort"`, want: "web 192.0.2.1:30080 true", problem: "nodes n2"},
		{name: "nodes, internal", spec: ports + `,"type":"NodePort"`,
			change: func(o *Options) { o.NodePorts = InternalOnly }, want: "web 10.1.0.1:30080 true, web 10.1.0.2:30080 false"},
		{name: "nodes, external first", spec: ports + `,"type":"NodePort"`,
			change: func(o *Options) { o.NodePorts = ExternalFirst },
			want:   "web 10.1.0.2:30080 false, web 192.0.2.1:30080 true"},
		{name: "a balancer without an address", spec: ports + `,"type":"LoadBalancer"`, problem: "no address yet"},
		{name: "addresses from outside", spec: ports + `,"type":"LoadBalancer","externalIPs":["192.0.2.7"]`,
			status: `{"loadBalancer":{"ingress":[{"ip":"192.0.2.9"}]}}`, want: "web 192.0.2.7:80 true"},
		{name: "a name elsewhere", spec: `"type":"ExternalName","externalName":"example.com"`},
		{name: "the other family", spec: ports + `,"ipFamilies":["IPv6"]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			annotations := strings.ReplaceAll(test.annotations, `"service-`, `"consul.hashicorp.com/service-`)
			status := test.status
			if status == "" {
				status = "{}"
			}
			svc := decode[k8s.Service](t, fmt.Sprintf(`{"metadata":{"name":"web","namespace":"shop","annotations":{%s}},
"spec":{%s},"status":%s}`, annotations, test.spec, status))
			o := options()
			if test.change != nil {
				test.change(o)
			}
			c := &Cluster{Services: []k8s.Service{svc}, Nodes: decode[[]k8s.Node](t, nodes), Slices: []k8s.EndpointSlice{
				decode[k8s.EndpointSlice](t, fmt.Sprintf(slice, "b", unready+","+pod)),
				decode[k8s.EndpointSlice](t, fmt.Sprintf(slice, "a", pod+","+silent)),
			}}
			list, problems := Desired(c, o)
			var got []string
			for _, i := range list {
				got = append(got, fmt.Sprintf("%s %s:%d %t", i.Name, i.Address, i.Port, i.Ready))
			}
			slices.Sort(got)
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
			if test.problem == "" && len(problems) > 0 || test.problem != "" &&
				(len(problems) != 1 || !strings.Contains(problems[0].Why, test.problem)) {
				t.Errorf("problems %v, want %q", problems, test.problem)
			}
		})
	}
}

// Tags, metadata and the check are those of consul-k8s.
func TestDescribed(t *testing.T) {
	svc := decode[k8s.Service](t, `{"metadata":{"name":"web","namespace":"shop","annotations":{
"consul.hashicorp.com/service-tags":"a, b\\,c","consul.hashicorp.com/service-meta-team":"red",
"consul.hashicorp.com/service-meta-external-source":"mine","consul.hashicorp.com/service-weight":"7"}},
"spec":{"ports":[{"name":"http","port":80}]}}`)
	list, problems := Desired(&Cluster{Services: []k8s.Service{svc}, Slices: []k8s.EndpointSlice{
		decode[k8s.EndpointSlice](t, fmt.Sprintf(slice, "a", `{"addresses":["10.0.0.1"],"nodeName":"n1","targetRef":{"kind":"Pod","name":"web-1"}}`))}},
		options())
	if len(list) != 1 || len(problems) != 0 {
		t.Fatalf("%v %v", list, problems)
	}
	i := list[0]
	want := map[string]string{"external-source": "kubernetes", "external-k8s-ns": "shop", "team": "red", "port-http": "80",
		"external-k8s-ref-kind": "Pod", "external-k8s-ref-name": "web-1", "external-k8s-node-name": "n1"}
	if !reflect.DeepEqual(i.Meta, want) || !slices.Equal(i.Tags, []string{"k8s", "a", "b,c"}) || i.Weight != 7 ||
		i.CheckID != "shop/"+i.ID || !strings.HasPrefix(i.ID, "web-") {
		t.Errorf("%+v", i)
	}
}

func instance(t *rapid.T, name string) Instance {
	n := rapid.IntRange(0, 9).Draw(t, name)
	i := Instance{Name: fmt.Sprintf("s%d", n%3), Address: "10.0.0.1", Port: rapid.IntRange(1, 3).Draw(t, "port"),
		Meta: map[string]string{SourceKey: Source}, Weight: 1, Ready: rapid.Bool().Draw(t, "ready")}
	i.ID = fmt.Sprintf("%s-%d", i.Name, n)
	i.CheckID = "ns/" + i.ID
	return i
}

func catalogOf(t *rapid.T, name string, most int) *Catalog {
	now := map[string]bool{}
	c := &Catalog{HasNode: true}
	for range rapid.IntRange(0, most).Draw(t, name) {
		i := instance(t, name)
		if !now[i.ID] {
			now[i.ID] = true
			c.Instances = append(c.Instances, i)
		}
	}
	return c
}

// Whatever there is and is wanted: plans lead there, are small, and delete only after all was written.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, wanted := catalogOf(t, "have", 12), catalogOf(t, "want", 12)
		have.HasNode = len(have.Instances) > 0 || rapid.Bool().Draw(t, "node")
		held := map[string]bool{}
		if rapid.Bool().Draw(t, "held") {
			held["s1"] = true
		}
		txns := Plan(wanted.Instances, have, held)
		if again := Plan(wanted.Instances, have, held); !reflect.DeepEqual(txns, again) {
			t.Fatal("the same input has two plans")
		}
		deleting := false
		for n := range txns {
			cost := 0
			for _, op := range txns[n] {
				cost++
				name := ""
				switch {
				case op.Set != nil:
					cost++
					name = op.Set.Name
					if deleting {
						t.Fatalf("%s is written after something was deleted", op.Set.ID)
					}
				case op.Delete != nil:
					deleting, name = true, op.Delete.Name
				}
				if held[name] {
					t.Fatalf("%s is held and is touched", name)
				}
			}
			if cost > MaxOps || cost == 0 {
				t.Fatalf("a transaction of %d operations", cost)
			}
			// At each point between two transactions: a service with instances before and after has one.
			now := Apply(have, txns[:n+1])
			for _, s := range []string{"s0", "s1", "s2"} {
				if has(have.Instances, s) && has(wanted.Instances, s) && !has(now.Instances, s) {
					t.Fatalf("%s has no instance in between", s)
				}
			}
		}
		after := Apply(have, txns)
		if more := Plan(wanted.Instances, after, held); len(more) != 0 {
			t.Fatalf("a second plan of %v", more)
		}
		for i := range wanted.Instances {
			w := &wanted.Instances[i]
			if at := slices.IndexFunc(after.Instances, func(i Instance) bool { return i.ID == w.ID }); !held[w.Name] &&
				(at < 0 || !after.Instances[at].Equal(w)) {
				t.Fatalf("%s is not there", w.ID)
			}
		}
	})
}

func has(list []Instance, name string) bool {
	return slices.ContainsFunc(list, func(i Instance) bool { return i.Name == name })
}

// A large service is written in transactions of 64 operations, and the node first.
func TestPlanIsBatched(t *testing.T) {
	var want []Instance
	for n := range 100 {
		want = append(want, Instance{ID: fmt.Sprintf("web-%03d", n), Name: "web", Weight: 1})
	}
	txns := Plan(want, &Catalog{}, nil)
	if len(txns) != 4 || txns[0][0].Set != nil || txns[0][0].Delete != nil || len(txns[0]) != 32 {
		t.Errorf("%d transactions, the first of %d", len(txns), len(txns[0]))
	}
}

// Services of the catalog appear in the cluster; its own are left alone.
func TestMirrors(t *testing.T) {
	o := &MirrorOptions{Namespace: "corbel", Tag: "k8s", Domain: "consul"}
	have := decode[[]k8s.Service](t, `[{"metadata":{"name":"own"},"spec":{"type":"ClusterIP"}},
{"metadata":{"name":"old","labels":{"consul":"true"}},"spec":{"type":"ExternalName","externalName":"old.service.consul"}},
{"metadata":{"name":"same","labels":{"consul":"true"}},"spec":{"type":"ExternalName","externalName":"same.service.consul"}},
{"metadata":{"name":"moved","resourceVersion":"7","labels":{"consul":"true"}},"spec":{"type":"ExternalName","externalName":"x"}}]`)
	writes, problems := Mirrors(map[string][]string{"DB": nil, "own": nil, "same": {"a"}, "web": {"k8s"}, "moved": nil,
		"under_score": nil}, have, o)
	var got []string
	for _, w := range writes {
		switch {
		case w.Create != nil:
			got = append(got, "create "+w.Create.Metadata.Name+" "+w.Create.Spec.ExternalName)
		case w.Update != nil:
			got = append(got, "update "+w.Update.Metadata.Name+" at "+w.Update.Metadata.ResourceVersion)
		default:
			got = append(got, "delete "+w.Delete.Metadata.Name)
		}
	}
	if text := strings.Join(got, ", "); text != "create db db.service.consul, update moved at 7, delete old" {
		t.Error(text)
	}
	if len(problems) != 2 || problems[0].Service != "own" || problems[1].Service != "under_score" {
		t.Errorf("%v", problems)
	}
}
