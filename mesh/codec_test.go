package mesh

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func upstreams(t testing.TB) []*Upstream {
	w := newWorld(t, `{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http"}}`,
		`{"Kind":"service-resolver","Name":"web","DefaultSubset":"v1","Subsets":{"v1":{"Filter":"Service.Meta.v == 1"}},"ConnectTimeout":"3s","Failover":{"*":{"Datacenters":["dc2"]}},"LoadBalancer":{"Policy":"maglev"}}`,
		`{"Kind":"service-router","Name":"web","Routes":[{"Match":{"HTTP":{"PathPrefix":"/x"}},"Destination":{"Service":"next","RequestTimeout":"2s"}}]}`,
		`{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":90},{"Weight":10,"Service":"next"}]}`)
	var list []*Upstream
	for _, text := range []string{"upstream/dc1/web///", "upstream/dc1/next/tcp/7/local", "upstream/dc2/none///"} {
		s, err := ParseSubject(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, w.maker().Upstream(s))
	}
	return list
}

func TestUpstreamBody(t *testing.T) {
	for _, u := range upstreams(t) {
		b, err := u.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadUpstream(b)
		if err != nil || !reflect.DeepEqual(got, u) {
			t.Errorf("%s\n%+v\n%+v %v", b, got, u, err)
		}
	}
}

func TestServiceBody(t *testing.T) {
	v := newWorld(t, `{"Kind":"service-defaults","Name":"web","Protocol":"grpc","MaxInboundConnections":7,"Expose":{"Checks":true}}`).maker().Service("web")
	rules := NewResource(TypeExtension, "rbac", "v1", []byte("rules"))
	b, err := AppendService(nil, v, []*Resource{rules})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(5, 0)
	v.Config["max_inbound_connections"] = 7.0 // as JSON has it
	got, err := ReadService(b, at)
	if err != nil || !reflect.DeepEqual(&got.Service, v) || len(got.Authorization) != 1 {
		t.Fatalf("%+v %v", got, err)
	}
	if r := got.Authorization[0]; r.Name != "rbac" || r.Version != "v1" || !bytes.Equal(r.Body, rules.Body) || !bytes.Equal(r.Any, rules.Any) || r.Changed != at {
		t.Errorf("%+v", r)
	}
	for n := range b {
		if _, err := ReadService(b[:n], at); err == nil || errkind.Of(err) != errkind.Corrupt {
			t.Fatalf("%d bytes of %d are read: %v", n, len(b), err)
		}
	}
}

func TestRootsBody(t *testing.T) {
	v := &Roots{TrustDomain: "td", ActiveID: "b", List: []Root{{ID: "b", PEM: "pem", Active: true}, {ID: "a"}}}
	b, err := v.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadRoots(b); err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := ReadRoots([]byte("{}")); err == nil {
		t.Error("roots without a trust domain are taken")
	}
}

func FuzzReadValues(f *testing.F) {
	for _, u := range upstreams(f) {
		b, _ := u.Encode()
		f.Add(b)
	}
	b, _ := AppendService(nil, &Service{Name: "web"}, []*Resource{NewResource(TypeExtension, "rbac", "v1", []byte("rules"))})
	f.Add(b)
	f.Add([]byte(`{"TrustDomain":"td","List":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ReadService(b, time.Time{}); err == nil && v.Name == "" {
			t.Error("a service without a name")
		}
		if _, err := ReadRoots(b); err != nil && errkind.Of(err) != errkind.Corrupt {
			t.Error(err)
		}
		u, err := ReadUpstream(b)
		if err != nil {
			return
		}
		for _, n := range u.Chain.Nodes { // whoever walks the chain finds what it names
			if n.Resolver != nil {
				_ = EndpointsOf(u.Chain.Targets[n.Resolver.Target]).String()
			}
		}
		if _, err := u.Encode(); err != nil {
			t.Error(err)
		}
	})
}

// A value whose settings are those of the one before shares them; its rules are its own.
func TestServiceAfter(t *testing.T) {
	v := &Service{Name: "web", Protocol: "http"}
	rules := func(version string) *Resource { return NewResource(TypeExtension, "rules", version, []byte{}) }
	read := func(before *ServiceValue, v *Service, version string) *ServiceValue {
		t.Helper()
		b, err := AppendService(nil, v, []*Resource{rules(version)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadServiceAfter(before, b, time.Time{})
		if err != nil || got.Name != v.Name || got.Protocol != v.Protocol || got.Authorization[0].Version != version {
			t.Fatalf("read %+v, %v", got, err)
		}
		return got
	}
	one := read(nil, v, "1")
	two := read(one, v, "2")
	three := read(two, &Service{Name: "web", Protocol: "tcp"}, "2")
	if !two.SameSettings(one) || three.SameSettings(two) || one.SameSettings(nil) || new(ServiceValue).SameSettings(new(ServiceValue)) {
		t.Error("settings that are the same were told apart, or others were not")
	}
}
