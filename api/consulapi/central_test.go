package consulapi

import (
	"encoding/json"
	"strings"
	"testing"
)

// proxied registers a service and its proxy on a node of the catalog.
func proxied(r *rig) {
	r.Helper()
	r.want("PUT", "/v1/catalog/register",
		`{"Node":"n2","Address":"10.0.0.2","Service":{"ID":"web1","Service":"web","Port":80}}`, 200, "true")
	r.want("PUT", "/v1/catalog/register",
		`{"Node":"n2","Address":"10.0.0.2","Service":{"ID":"web1-proxy","Service":"web-proxy","Kind":"connect-proxy","Port":21000,
		"Proxy":{"DestinationServiceName":"web","Config":{"local_connect_timeout_ms":7},"Upstreams":[{"DestinationName":"db","LocalBindPort":9191}]}}}`, 200, "true")
	r.want("PUT", "/v1/config",
		`{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http","local_connect_timeout_ms":1000}}`, 200, "true")
	r.want("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"db","Protocol":"tcp"}`, 200, "true")
}

func TestMergeCentralConfig(t *testing.T) {
	r := newRig(t, nil)
	proxied(r)
	const merged = `{"Config":{"local_connect_timeout_ms":7,"protocol":"http"},"DestinationServiceName":"web",` +
		`"Expose":{},"MeshGateway":{},"Mode":"",` +
		`"Upstreams":[{"Config":{"protocol":"tcp"},"DestinationName":"db","LocalBindPort":9191}]}`
	for _, path := range []string{"health/connect/web", "health/service/web-proxy", "catalog/connect/web",
		"catalog/service/web-proxy", "catalog/node/n2", "catalog/node-services/n2"} {
		with, without := r.do("GET", "/v1/"+path+"?merge-central-config", ""), r.do("GET", "/v1/"+path, "")
		if !strings.Contains(with.body, `Proxy":`+merged) {
			t.Errorf("%s: %s\nlacks %s", path, with.body, merged)
		}
		if strings.Contains(without.body, `"protocol":"http"`) {
			t.Errorf("%s without the parameter is merged: %s", path, without.body)
		}
		if again := r.do("GET", "/v1/"+path+"?merge-central-config", ""); again.body != with.body {
			t.Errorf("%s: the second answer differs: %s", path, again.body)
		}
	}
	// Services that are no proxies stay as they are, and filters look at what is answered.
	if a := r.do("GET", "/v1/health/service/web?merge-central-config", ""); strings.Contains(a.body, "protocol") {
		t.Errorf("a plain service was merged: %s", a.body)
	}
	r.want("GET", "/v1/health/service/web?since=0&merge-central-config", "", 400,
		"since and merge-central-config exclude each other: what config entries change is no change of an instance")
}

// A change of a config entry ends a blocking query that asked for the merge.
func TestMergeCentralConfigBlocks(t *testing.T) {
	r := newRig(t, nil)
	proxied(r)
	first := r.do("GET", "/v1/health/connect/web?merge-central-config", "")
	index := first.header.Get("X-Consul-Index")
	done := make(chan response, 1)
	go func() {
		done <- r.do("GET", "/v1/health/connect/web?merge-central-config&wait=60s&index="+index, "")
	}()
	until(t, "the query to wait", func() bool { return r.store.waits() > 0 })
	r.want("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"web","Protocol":"grpc"}`, 200, "true")
	second := <-done
	var entries []struct {
		Service struct {
			Proxy struct{ Config map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(second.body), &entries); err != nil || len(entries) != 1 {
		t.Fatalf("%v: %s", err, second.body)
	}
	if got := entries[0].Service.Proxy.Config["protocol"]; got != "grpc" {
		t.Errorf("protocol %v after the change, want grpc", got)
	}
	if second.header.Get("X-Consul-Index") == index {
		t.Errorf("the index did not move from %s", index)
	}
}

func TestHealthIngress(t *testing.T) {
	r := newRig(t, nil)
	names := func() (ids string) {
		var entries []struct{ Service struct{ ID string } }
		if err := json.Unmarshal([]byte(r.do("GET", "/v1/health/ingress/web", "").body), &entries); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			ids += e.Service.ID + " "
		}
		return ids
	}
	r.want("GET", "/v1/health/ingress/", "", 400, "Missing service name")
	r.want("GET", "/v1/health/ingress/web", "", 200, "[]")
	r.want("PUT", "/v1/config",
		`{"Kind":"ingress-gateway","Name":"edge","Listeners":[{"Port":80,"Protocol":"http","Services":[{"Name":"*"}]}]}`, 200,
		"true")
	r.want("PUT", "/v1/catalog/register",
		`{"Node":"n2","Address":"10.0.0.2","Service":{"Kind":"ingress-gateway","ID":"edge-1","Service":"edge","Port":8443},
		"Checks":[{"CheckID":"c","Name":"c","ServiceID":"edge-1","Status":"warning"}]}`, 200, "true")
	if got := names(); got != "" {
		t.Errorf("a service that does not speak http is reached through %s", got)
	}
	index := r.do("GET", "/v1/health/ingress/web", "").header.Get("X-Consul-Index")
	done := make(chan response, 1)
	go func() { done <- r.do("GET", "/v1/health/ingress/web?wait=60s&index="+index, "") }()
	until(t, "the query to wait", func() bool { return r.store.waits() > 0 })
	r.want("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"web","Protocol":"http"}`, 200, "true")
	if a := <-done; !strings.Contains(a.body, `"ID":"edge-1"`) {
		t.Errorf("after the change: %s", a.body)
	}
	r.want("GET", "/v1/health/ingress/web?passing", "", 200, "[]")
}
