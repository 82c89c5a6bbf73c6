package chain

import (
	"encoding/json"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog/entry"
)

func getter(t *testing.T, raws ...string) entry.Getter {
	t.Helper()
	all := map[string]entry.Entry{}
	for _, raw := range raws {
		e, err := entry.Decode([]byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		all[entry.Key(e.Base().Kind, e.Base().Name)] = e
	}
	return func(kind, name string) entry.Entry {
		if e, ok := all[entry.Key(kind, name)]; ok {
			return e
		}
		return nil
	}
}

func compile(t *testing.T, service string, raws ...string) *Chain {
	t.Helper()
	c, err := Compile(Request{Service: service, Datacenter: "dc1", TrustDomain: "td.consul", Get: getter(t, raws...)})
	if err != nil {
		t.Fatal(err)
	}
	// Whatever it is, it holds together.
	for id, n := range c.Nodes {
		if n.ID() != id {
			t.Errorf("node %s is under %s", n.ID(), id)
		}
		for _, r := range n.Routes {
			if c.Nodes[r.NextNode] == nil {
				t.Errorf("%s leads to %s, which is not there", id, r.NextNode)
			}
		}
		sum := float32(0)
		for _, s := range n.Splits {
			if next := c.Nodes[s.NextNode]; next == nil || next.Type == KindSplitter {
				t.Errorf("%s leads to %s", id, s.NextNode)
			}
			sum += s.Weight
		}
		if n.Type == KindSplitter && (sum < 99.9 || sum > 100.1) {
			t.Errorf("%s has weights of %v", id, sum)
		}
		if n.Resolver != nil && c.Targets[n.Resolver.Target] == nil {
			t.Errorf("%s resolves to %s, which is not there", id, n.Resolver.Target)
		}
	}
	return c
}

func TestDefaultChain(t *testing.T) {
	c := compile(t, "web")
	got, err := json.Marshal(c)
	want := `{"ServiceName":"web","Namespace":"default","Partition":"default","Datacenter":"dc1","Default":true,` +
		`"Protocol":"tcp","StartNode":"resolver:web.default.default.dc1",` +
		`"Nodes":{"resolver:web.default.default.dc1":{"Type":"resolver","Name":"web.default.default.dc1","Resolver":{` +
		`"Default":true,"ConnectTimeout":"5s","Target":"web.default.default.dc1"}}},` +
		`"Targets":{"web.default.default.dc1":{"ID":"web.default.default.dc1","Service":"web","Namespace":"default",` +
		`"Partition":"default","Datacenter":"dc1","ConnectTimeout":"5s",` +
		`"SNI":"web.default.dc1.internal.td.consul","Name":"web.default.dc1.internal.td.consul"}}}`
	if err != nil || string(got) != strings.Replace(want, `"ConnectTimeout":"5s","Target"`,
		`"ConnectTimeout":"5s","RequestTimeout":"0s","Target"`, 1) && string(got) != want {
		t.Errorf("%s %v", got, err)
	}
}

const httpAll = `{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http"}}`

func TestWholeChain(t *testing.T) {
	c := compile(t, "web", httpAll,
		`{"Kind":"service-resolver","Name":"web","DefaultSubset":"v1","Subsets":{"v1":{"Filter":"Service.Meta.v == 1"},`+
			`"v2":{"OnlyPassing":true}},"ConnectTimeout":"3s","Failover":{"v2":{"Datacenters":["dc2","dc3"]},"*":{`+
			`"Service":"backup"}}}`,
		`{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":60,"ServiceSubset":"v1"},{"Weight":40,"Service":"api"}]}`,
		`{"Kind":"service-splitter","Name":"api","Splits":[{"Weight":50},{"Weight":50,"Service":"other"}]}`,
		`{"Kind":"service-router","Name":"web","Routes":[{"Match":{"HTTP":{"PathPrefix":"/v2"}},"Destination":{`+
			`"ServiceSubset":"v2"}},{"Match":{"HTTP":{"PathExact":"/x"}},"Destination":{"Service":"moved"}}]}`,
		`{"Kind":"service-resolver","Name":"moved","Redirect":{"Service":"new","Datacenter":"dc9"}}`)
	if c.StartNode != "router:web.default.default" || c.Default || c.Protocol != "http" {
		t.Fatalf("start %s", c.StartNode)
	}
	routes := c.Nodes[c.StartNode].Routes
	if len(routes) != 3 || routes[0].NextNode != "resolver:v2.web.default.default.dc1" ||
		routes[1].NextNode != "resolver:new.default.default.dc9" || routes[2].NextNode != "splitter:web.default.default" {
		t.Errorf("%+v %+v %+v", routes[0], routes[1], routes[len(routes)-1])
	}
	splits := c.Nodes["splitter:web.default.default"].Splits
	if len(splits) != 3 || splits[1].Weight != 20 || splits[1].NextNode != "resolver:api.default.default.dc1" ||
		c.Nodes["splitter:api.default.default"] != nil {
		t.Errorf("%d splits", len(splits))
	}
	v2 := c.Nodes["resolver:v2.web.default.default.dc1"].Resolver
	if strings.Join(v2.Failover.Targets, " ") != "v2.web.default.default.dc2 v2.web.default.default.dc3" {
		t.Errorf("%+v", v2.Failover)
	}
	v1 := c.Nodes["resolver:v1.web.default.default.dc1"].Resolver
	if strings.Join(v1.Failover.Targets, " ") != "backup.default.default.dc1" ||
		c.Targets[v1.Target].ConnectTimeout.String() != "3s" {
		t.Errorf("%+v", v1.Failover)
	}
	if got := c.Targets["v2.web.default.default.dc1"].SNI; got != "v2.web.default.dc1.internal.td.consul" {
		t.Error(got)
	}
}

func TestOverrides(t *testing.T) {
	get := getter(t, `{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":100,"Service":"api"}]}`)
	c, err := Compile(Request{Service: "web", Datacenter: "dc1", TrustDomain: "td", Get: get, Protocol: "http",
		ConnectTimeout: 7})
	if err != nil || c.CustomizationHash == "" || c.Nodes[c.StartNode].Type != KindSplitter ||
		c.Targets["api.default.default.dc1"].ConnectTimeout != 7 {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := Compile(Request{Service: "web", Datacenter: "dc1", Get: get}); err != nil || c.CustomizationHash != "" ||
		c.Nodes[c.StartNode].Type != KindResolver {
		t.Errorf("a splitter on tcp counts: %+v %v", c, err)
	}
}

func TestRefusedChains(t *testing.T) {
	for want, raws := range map[string][]string{
		"circular": {`{"Kind":"service-resolver","Name":"web","Redirect":{"Service":"a"}}`,
			`{"Kind":"service-resolver","Name":"a","Redirect":{"Service":"web"}}`},
		"subset": {`{"Kind":"service-resolver","Name":"web","Redirect":{"Service":"a","ServiceSubset":"v9"}}`},
	} {
		if _, err := Compile(Request{Service: "web", Datacenter: "dc1", Get: getter(t, raws...)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	// Splitters that name each other end somewhere.
	_, _ = Compile(Request{Service: "web", Datacenter: "dc1",
		Get: getter(t, httpAll, `{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":100,"Service":"a"}]}`,
			`{"Kind":"service-splitter","Name":"a","Splits":[{"Weight":100,"Service":"web"}]}`)})
}
