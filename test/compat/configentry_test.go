package compat

import (
	"testing"

	"github.com/hashicorp/consul/api"
)

func TestConfigEntries(t *testing.T) {
	c := consul(t).ConfigEntries()
	for _, e := range []api.ConfigEntry{
		&api.ProxyConfigEntry{Kind: api.ProxyDefaults, Name: api.ProxyConfigGlobal,
			Config: map[string]interface{}{"protocol": "http"}},
		&api.ServiceConfigEntry{Kind: api.ServiceDefaults, Name: "ce-web", Protocol: "http",
			MeshGateway:    api.MeshGatewayConfig{Mode: api.MeshGatewayModeLocal},
			UpstreamConfig: &api.UpstreamConfiguration{Defaults: &api.UpstreamConfig{ConnectTimeoutMs: 7}}},
		&api.ServiceResolverConfigEntry{Kind: api.ServiceResolver, Name: "ce-web", DefaultSubset: "v1",
			Subsets: map[string]api.ServiceResolverSubset{"v1": {Filter: "Service.Meta.v == 1"}}},
		&api.ServiceSplitterConfigEntry{Kind: api.ServiceSplitter, Name: "ce-web",
			Splits: []api.ServiceSplit{{Weight: 90, ServiceSubset: "v1"}, {Weight: 10, Service: "other"}}},
		&api.ServiceRouterConfigEntry{Kind: api.ServiceRouter, Name: "ce-web",
			Routes: []api.ServiceRoute{{Match: &api.ServiceRouteMatch{HTTP: &api.ServiceRouteHTTPMatch{PathPrefix: "/a"}}}}},
		&api.ServiceIntentionsConfigEntry{Kind: api.ServiceIntentions, Name: "ce-web",
			Sources: []*api.SourceIntention{{Name: "x", Action: api.IntentionActionAllow}}},
		&api.MeshConfigEntry{TransparentProxy: api.TransparentProxyMeshConfig{MeshDestinationsOnly: true}},
		&api.IngressGatewayConfigEntry{Kind: api.IngressGateway, Name: "ce-in",
			Listeners: []api.IngressListener{{Port: 8, Protocol: "tcp", Services: []api.IngressService{{Name: "ce-db"}}}}},
		&api.TerminatingGatewayConfigEntry{Kind: api.TerminatingGateway, Name: "ce-out",
			Services: []api.LinkedService{{Name: "ce-db", CAFile: "/ca"}}},
		&api.ExportedServicesConfigEntry{Name: "default",
			Services: []api.ExportedService{{Name: "ce-web", Consumers: []api.ServiceConsumer{{Peer: "p"}}}}},
	} {
		if ok, _, err := c.Set(e, nil); err != nil || !ok {
			t.Fatalf("set %s: %v %v", e.GetKind(), ok, err)
		}
		got, _, err := c.Get(e.GetKind(), e.GetName(), nil)
		must(t, err)
		if got.GetKind() != e.GetKind() || got.GetName() != e.GetName() || got.GetModifyIndex() == 0 {
			t.Errorf("got %+v", got)
		}
		list, _, err := c.List(e.GetKind(), nil)
		must(t, err)
		if len(list) != 1 {
			t.Errorf("%s: %d entries", e.GetKind(), len(list))
		}
	}
	e, _, err := c.Get(api.ServiceDefaults, "ce-web", nil)
	must(t, err)
	if web := e.(*api.ServiceConfigEntry); web.Protocol != "http" || web.UpstreamConfig.Defaults.ConnectTimeoutMs != 7 ||
		web.MeshGateway.Mode != api.MeshGatewayModeLocal {
		t.Errorf("%+v", web)
	}
	if ok, _, err := c.CAS(&api.ServiceConfigEntry{Kind: api.ServiceDefaults, Name: "ce-web", Protocol: "grpc"},
		e.GetModifyIndex()+1, nil); err != nil || ok {
		t.Errorf("a stale index: %v %v", ok, err)
	}
	if ok, _, err := c.CAS(&api.ServiceConfigEntry{Kind: api.ServiceDefaults, Name: "ce-web", Protocol: "grpc"},
		e.GetModifyIndex(), nil); err != nil || !ok {
		t.Errorf("the right index: %v %v", ok, err)
	}
	for _, kind := range []string{api.ServiceRouter, api.ServiceSplitter, api.ServiceResolver, api.ServiceDefaults,
		api.ServiceIntentions} {
		_, err := c.Delete(kind, "ce-web", nil)
		must(t, err)
	}
	for kind, name := range map[string]string{api.ProxyDefaults: "global", api.MeshConfig: "mesh",
		api.IngressGateway: "ce-in", api.TerminatingGateway: "ce-out", api.ExportedServices: "default"} {
		_, err := c.Delete(kind, name, nil)
		must(t, err)
	}
	if _, _, err := c.Get(api.ServiceDefaults, "ce-web", nil); err == nil {
		t.Error("it is there still")
	}
}

func TestIntentions(t *testing.T) {
	c := consul(t).Connect()
	in := &api.Intention{SourceName: "in-web", DestinationName: "in-db", Action: api.IntentionActionAllow,
		Description: "first"}
	_, err := c.IntentionUpsert(in, nil)
	must(t, err)
	got, _, err := c.IntentionGetExact("in-web", "in-db", nil)
	must(t, err)
	if got == nil || got.Action != api.IntentionActionAllow || got.Precedence != 9 || got.Description != "first" ||
		got.CreatedAt.IsZero() {
		t.Fatalf("%+v", got)
	}
	allowed, _, err := c.IntentionCheck(&api.IntentionCheck{Source: "in-web", Destination: "in-db"}, nil)
	must(t, err)
	matches, _, err := c.IntentionMatch(&api.IntentionMatch{By: api.IntentionMatchDestination, Names: []string{"in-db"}},
		nil)
	must(t, err)
	list, _, err := c.Intentions(nil)
	must(t, err)
	if !allowed || len(matches["in-db"]) != 1 || len(list) != 1 {
		t.Errorf("allowed %v, matches %v, %d in all", allowed, matches, len(list))
	}
	_, err = c.IntentionDeleteExact("in-web", "in-db", nil)
	must(t, err)
	if got, _, err := c.IntentionGetExact("in-web", "in-db", nil); err != nil || got != nil {
		t.Errorf("it is there still: %+v %v", got, err)
	}
}

func TestDiscoveryChain(t *testing.T) {
	client := consul(t)
	got, _, err := client.DiscoveryChain().Get("dc-web", nil, nil)
	must(t, err)
	if c := got.Chain; c.Protocol != "tcp" || len(c.Nodes) != 1 || c.Targets["dc-web.default.default.dc1"] == nil ||
		c.Nodes[c.StartNode].Resolver.ConnectTimeout.Seconds() != 5 {
		t.Errorf("%+v", c)
	}
	got, _, err = client.DiscoveryChain().Get("dc-web", &api.DiscoveryChainOptions{OverrideProtocol: "http",
		EvaluateInDatacenter: "dc2"}, nil)
	must(t, err)
	if got.Chain.Protocol != "http" || got.Chain.CustomizationHash == "" ||
		got.Chain.Targets["dc-web.default.default.dc2"] == nil {
		t.Errorf("%+v", got.Chain)
	}
}
