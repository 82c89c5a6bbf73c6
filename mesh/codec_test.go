package mesh

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func upstreams(t testing.TB) []*Upstream {
	w := newWorld(t, `{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http"}}`,
		`{"Kind":"service-resolver","Name":"web","DefaultSubset":"v1","Subsets":{"v1":{"Filter":"Service.Meta.v == 1"}},`+
			`"ConnectTimeout":"3s","Failover":{"*":{"Datacenters":["dc2"]}},"LoadBalancer":{"Policy":"maglev"}}`,
		`{"Kind":"service-router","Name":"web","Routes":[{"Match":{"HTTP":{"PathPrefix":"/x"}},"Destination":{`+
			`"Service":"next","RequestTimeout":"2s"}}]}`,
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
	v := newWorld(t, `{"Kind":"service-defaults","Name":"web","Protocol":"grpc","MaxInboundConnections":7,"Expose":{`+
		`"Checks":true}}`).maker().Service("web")
	b, err := v.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v.Config["max_inbound_connections"] = 7.0 // as JSON has it
	if got, err := ReadService(b); err != nil || !reflect.DeepEqual(got, v) {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := ReadService([]byte("{}")); errkind.Of(err) != errkind.Corrupt {
		t.Errorf("a service without a name is taken: %v", err)
	}
}

func someRules() *RulesValue {
	return &RulesValue{Network: NewResource(TypeExtension, NetworkRules, "v1", []byte("a")),
		HTTP: NewResource(TypeExtension, HTTPRules, "v2", []byte("b")), Owners: OwnersOf([]string{"web", "api"})}
}

func TestRulesBody(t *testing.T) {
	v, at := someRules(), time.Unix(5, 0)
	b, tail := v.Encode()
	got, err := ReadRules(b, at)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{NetworkRules, HTTPRules} {
		r, want := got.Get(name), v.Get(name)
		if r.Name != name || r.Version != want.Version || !bytes.Equal(r.Body, want.Body) || !bytes.Equal(r.Any, want.Any) ||
			r.Changed != at {
			t.Errorf("%+v", r)
		}
	}
	if got.Get("another") != nil {
		t.Error("there are rules under another name")
	}
	if !got.Owners.Have("web") || !got.Owners.Have("api") || got.Owners.Have("db") {
		t.Error("the owners are others")
	}
	for n := range b {
		short, err := ReadRules(b[:n], at)
		if n == len(b)-tail { // what agents are sent that know of no owners
			if err != nil || short.Owners.Have("web") {
				t.Errorf("without the tail: %v", err)
			}
			continue
		}
		if errkind.Of(err) != errkind.Corrupt {
			t.Fatalf("%d bytes of %d are read: %v", n, len(b), err)
		}
	}
	swapped, _ := (&RulesValue{Network: v.HTTP, HTTP: v.Network}).Encode()
	for _, bad := range [][]byte{swapped, append(slices.Clone(b[:len(b)-tail]), b...)} {
		if _, err := ReadRules(bad, at); errkind.Of(err) != errkind.Corrupt {
			t.Errorf("%q is read: %v", bad, err)
		}
	}
}

// TestOwners: a service that has rules of its own is always found among the owners, another one hardly ever.
func TestOwners(t *testing.T) {
	name := func(i int) string { return fmt.Sprint("service-", i) }
	var list []string
	for i := range maxOwners {
		list = append(list, name(i))
	}
	owners := OwnersOf(list)
	if n := len(owners.append(nil)); n > 50<<10 {
		t.Errorf("%d bytes", n)
	}
	taken := 0
	for i := range 100_000 {
		have := owners.Have(name(i))
		if i < maxOwners && !have {
			t.Fatalf("%s is not found", name(i))
		}
		if i >= maxOwners && have {
			taken++
		}
	}
	if taken > 400 {
		t.Errorf("%d of 84,000 are taken for owners", taken)
	}
	if all := OwnersOf(append(list, "more")); !all.Have("any") || len(all.append(nil)) > 8 {
		t.Error("more than fit are not all")
	}
	if none := OwnersOf(nil); none.Have("") || len(none.append(nil)) != 0 {
		t.Error("nobody is somebody")
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
	body, _ := someRules().Encode()
	f.Add(body)
	f.Add([]byte(`{"Name":"web","OwnRules":true}`))
	f.Add([]byte(`{"TrustDomain":"td","List":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ReadService(b); err == nil && v.Name == "" {
			t.Error("a service without a name")
		}
		if v, err := ReadRules(b, time.Time{}); err == nil && (v.Network.Name != NetworkRules || v.HTTP.Name != HTTPRules) {
			t.Error("rules under other names")
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
