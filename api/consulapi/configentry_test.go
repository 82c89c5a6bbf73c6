package consulapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestConfigEntries(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"GET", "/v1/config/service-defaults/web", "", 404, `Config entry not found for "service-defaults" / "web"`},
		{"GET", "/v1/config/service-defaults", "", 200, "[]"},
		{"GET", "/v1/config/nonsense", "", 400, "invalid config entry kind: nonsense"},
		{"PUT", "/v1/config",
			`{"kind":"service-defaults","name":"web","protocol":"HTTP","mesh_gateway":{"mode":"local"},"meta":{"a_b":"c"}}`, 200,
			"true"},
		{"GET", "/v1/config/service-defaults/web", "", 200,
			`{"Kind":"service-defaults","Name":"web","Meta":{"a_b":"c"},"Protocol":"http","MeshGateway":{"Mode":"local"},` +
				`"Expose":{},"TransparentProxy":{},"Hash":1610109786235589259,"CreateIndex":2,"ModifyIndex":2}`},
		{"PUT", "/v1/config?cas=1", `{"Kind":"service-defaults","Name":"web"}`, 200, "false"},
		{"PUT", "/v1/config?cas=0", `{"Kind":"service-defaults","Name":"web"}`, 200, "false"},
		{"PUT", "/v1/config?cas=x", `{"Kind":"service-defaults","Name":"web"}`, 400, "*"},
		{"PUT", "/v1/config",
			`{"Kind":"service-router","Name":"web","Routes":[{"Match":{"HTTP":{"PathPrefix":"/a"}},"Destination":{` +
				`"Service":"api","RequestTimeout":"3s"}}]}`, 200, "true"},
		{"GET", "/v1/config/service-router/web", "", 200,
			`{"Kind":"service-router","Name":"web","Routes":[{"Match":{"HTTP":{"PathPrefix":"/a"}},"Destination":{` +
				`"Service":"api","RequestTimeout":"3s"}}],"Hash":16156327770601551410,"CreateIndex":3,"ModifyIndex":3}`},
		// A protocol without requests would break the router.
		{"PUT", "/v1/config", `{"Kind":"service-defaults","Name":"web","Protocol":"tcp"}`, 500, "*"},
		{"DELETE", "/v1/config/service-defaults/web", "", 500, "*"},
		{"PUT", "/v1/config", `{"Kind":"service-splitter","Name":"db","Splits":[{"Weight":100}]}`, 500, "*"},
		{"PUT", "/v1/config",
			`{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http","local_connect_timeout_ms":1000}}`, 200,
			"true"},
		{"DELETE", "/v1/config/service-defaults/web?cas=1", "", 200, "false"},
		{"DELETE", "/v1/config/service-defaults/web?cas=2", "", 200, "true"},
		{"DELETE", "/v1/config/proxy-defaults/global", "", 500, "*"},
		{"DELETE", "/v1/config/service-router/web", "", 200, "{}"},
		{"DELETE", "/v1/config/proxy-defaults/global", "", 200, "{}"},
		{"DELETE", "/v1/config/service-router/web", "", 200, "{}"},
		{"PUT", "/v1/config", `{"Kind":"service-resolver","Name":"a","Redirect":{"Service":"b"}}`, 200, "true"},
		{"PUT", "/v1/config", `{"Kind":"service-resolver","Name":"b","Redirect":{"Service":"a"}}`, 500, "*"},
		{"GET", `/v1/config/service-resolver?filter=Name+==+"b"`, "", 200, "[]"},
		{"GET", `/v1/config/service-resolver?filter=Nope+==+"b"`, "", 400, "*"},
	})
}

// What is wrong is named, and nothing is stored.
func TestConfigEntriesRefused(t *testing.T) {
	r := newRig(t, nil)
	for body, want := range map[string]string{
		`{"Name":"web"}`: "kind",
		`{"Kind":"service-defaults","Name":"web","Protocl":"http"}`:                                     `invalid config key "Protocl"`,
		`{"Kind":"service-defaults","Name":"web","Expose":{"Paths":[{"Pth":"/"}]}}`:                     `invalid config key "Expose.Paths[0].Pth"`,
		`{"Kind":"service-defaults","Name":""}`:                                                         "Name is required",
		`{"Kind":"service-defaults","Name":"web","Protocol":7}`:                                         "Protocol: expected a string",
		`{"Kind":"service-defaults","Name":"web","MaxInboundConnections":1.5}`:                          "MaxInboundConnections",
		`{"Kind":"service-defaults","Name":"web","Protocol":"smtp"}`:                                    "Protocol",
		`{"Kind":"proxy-defaults","Name":"other"}`:                                                      `only "global" is supported`,
		`{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":50},{"Weight":49,"Service":"x"}]}`: "must be 100, not 99",
		`{"Kind":"service-router","Name":"web","Routes":[{"Match":{"HTTP":{"PathRegex":"("}}}]}`:        "Routes[0].PathRegex",
		`{"Kind":"service-resolver","Name":"web","DefaultSubset":"v9"}`:                                 "DefaultSubset",
		`{"Kind":"service-resolver","Name":"web","ConnectTimeout":"5 s"}`:                               "ConnectTimeout",
		`{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"a"}]}`:                           "Sources[0].Action",
		`{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"a","Action":"perhaps"}]}`:        "Sources[0].Action",
		`{"Kind":"ingress-gateway","Name":"in","Listeners":[{"Port":1,"Services":[]}]}`:                 "Listeners[0]",
		`{"Kind":"terminating-gateway","Name":"out","Services":[{"Name":"x","CertFile":"c"}]}`:          "CertFile",
		`{"Kind":"service-defaults","Name":"web","Namespace":"team"}`:                                   "Namespace",
		`[]`: "decode",
	} {
		if a := r.do("PUT", "/v1/config", body); a.status != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %q", body, a.status, a.body, want)
		}
	}
	if n := r.store.State().Counts().Records; n != 0 {
		t.Errorf("%d records", n)
	}
}

func TestIntentions(t *testing.T) {
	r := newRig(t, func(c *Config) { c.DefaultACLPolicy = "deny" })
	r.run([]step{
		{"GET", "/v1/connect/intentions", "", 200, "[]"},
		{"GET", "/v1/connect/intentions/exact?source=a&destination=b", "", 404, "Intention not found"},
		{"GET", "/v1/connect/intentions/exact?source=a", "", 400, "*"},
		{"PUT", "/v1/connect/intentions/exact?source=web&destination=db",
			`{"SourceType":"consul","Action":"allow","Description":"d"}`, 200, "true"},
		{"PUT", "/v1/connect/intentions/exact?source=*&destination=db", `{"Action":"deny"}`, 200, "true"},
		{"PUT", "/v1/connect/intentions/exact?source=default/web&destination=*", `{"Action":"deny"}`, 200, "true"},
		{"PUT", "/v1/connect/intentions/exact?source=team/web&destination=db", `{"Action":"deny"}`, 400, "*"},
		{"PUT", "/v1/connect/intentions/exact?source=web&destination=api",
			`{"Permissions":[{"Action":"allow","HTTP":{"PathPrefix":"/v1"}}]}`, 200, "true"},
		{"PUT", "/v1/connect/intentions/exact?source=web&destination=bad", `{"Action":"perhaps"}`, 400, "*"},
		{"GET", "/v1/connect/intentions/check?source=web&destination=db", "", 200, `{"Allowed":true}`},
		{"GET", "/v1/connect/intentions/check?source=other&destination=db", "", 200, `{"Allowed":false}`},
		{"GET", "/v1/connect/intentions/check?source=web&destination=cache", "", 200, `{"Allowed":false}`},
		{"GET", "/v1/connect/intentions/check?source=web&destination=api", "", 200, `{"Allowed":false}`},
		{"GET", "/v1/connect/intentions/check?source=x&destination=y", "", 200, `{"Allowed":false}`},
		{"DELETE", "/v1/connect/intentions/exact?source=web&destination=api", "", 200, "true"},
		{"GET", "/v1/config/service-intentions/api", "", 404, "*"},
	})
	a := r.do("GET", "/v1/connect/intentions/match?by=destination&name=db", "")
	web, any, wild := strings.Index(a.body, `"SourceName":"web"`), strings.Index(a.body, `"SourceName":"*"`),
		strings.Index(a.body, `"DestinationName":"*"`)
	if web < 0 || web > any || any > wild || !strings.Contains(a.body, `"Precedence":9`) {
		t.Errorf("order of evaluation: %s", a.body)
	}
	// The same again changes nothing; a change wakes who waits.
	index := r.do("GET", "/v1/connect/intentions/match?by=destination&name=db", "").header.Get("X-Consul-Index")
	r.want("PUT", "/v1/connect/intentions/exact?source=web&destination=db",
		`{"SourceType":"consul","Action":"allow","Description":"d"}`, 200, "true")
	if now := r.do("GET", "/v1/connect/intentions/match?by=destination&name=db",
		"").header.Get("X-Consul-Index"); now != index {
		t.Errorf("an equal intention moved the index from %s to %s", index, now)
	}
	done := make(chan response, 1)
	go func() {
		done <- r.do("GET", "/v1/connect/intentions/match?by=destination&name=db&wait=5m&index="+index, "")
	}()
	until(t, "the query to park", func() bool { return r.api.Blocking() == 1 })
	r.want("PUT", "/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"deny"}`, 200, "true")
	select {
	case a := <-done:
		if a.status != http.StatusOK || strings.Contains(a.body, `"allow"`) {
			t.Errorf("after the change: %d %s", a.status, a.body)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody was woken")
	}
}

func TestDiscoveryChain(t *testing.T) {
	r := newRig(t, nil)
	a := r.want("GET", "/v1/discovery-chain/web", "", 200, "*")
	if !strings.HasPrefix(a.body,
		`{"Chain":{"ServiceName":"web","Namespace":"default","Partition":"default","Datacenter":"dc1","Default":true`) {
		t.Errorf("%s", a.body)
	}
	done := make(chan response, 1)
	go func() {
		done <- r.do("GET", "/v1/discovery-chain/web?wait=5m&index="+a.header.Get("X-Consul-Index"), "")
	}()
	until(t, "the query to park", func() bool { return r.api.Blocking() == 1 })
	r.want("PUT", "/v1/config", `{"Kind":"service-resolver","Name":"web","Redirect":{"Service":"api"}}`, 200, "true")
	if a := <-done; !strings.Contains(a.body, `"StartNode":"resolver:api.default.default.dc1"`) {
		t.Errorf("%s", a.body)
	}
	a = r.want("POST", "/v1/discovery-chain/web?compile-dc=dc2",
		`{"OverrideConnectTimeout":"7s","OverrideMeshGateway":{"Mode":"local"}}`, 200, "*")
	if !strings.Contains(a.body, `"CustomizationHash"`) || !strings.Contains(a.body, `"ConnectTimeout":"7s"`) {
		t.Errorf("%s", a.body)
	}
	r.want("GET", "/v1/discovery-chain/", "", 400, "*")
}

// What stands behind gateways and what is exported is read from the config entries.
func TestGatewayAndExportedServices(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"GET", "/v1/catalog/gateway-services/edge", "", 200, "[]"},
		{"GET", "/v1/catalog/gateway-services/", "", 400, "Missing gateway name"},
		{"GET", "/v1/exported-services", "", 200, "[]"},
		{"GET", "/v1/peerings", "", 200, "[]"},
		{"PUT", "/v1/config", `{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http"}}`, 200, "true"},
		{"PUT", "/v1/config",
			`{"Kind":"ingress-gateway","Name":"edge","Listeners":[{"Port":8080,"Protocol":"http","Services":[{"Name":"web",` +
				`"Hosts":["web.example"]},{"Name":"api"}]}]}`, 200, "true"},
		{"PUT", "/v1/config",
			`{"Kind":"terminating-gateway","Name":"out","Services":[{"Name":"db","SNI":"db.example","CAFile":"/ca.pem"},{` +
				`"Name":"*"}]}`, 200, "true"},
		{"GET", "/v1/catalog/gateway-services/edge", "", 200,
			`[{"Gateway":{"Name":"edge"},"Service":{"Name":"web"},"GatewayKind":"ingress-gateway","Port":8080,` +
				`"Protocol":"http","Hosts":["web.example"],"CreateIndex":3,"ModifyIndex":3},` +
				`{"Gateway":{"Name":"edge"},"Service":{"Name":"api"},"GatewayKind":"ingress-gateway","Port":8080,` +
				`"Protocol":"http","CreateIndex":3,"ModifyIndex":3}]`},
		{"GET", "/v1/catalog/gateway-services/out", "", 200,
			`[{"Gateway":{"Name":"out"},"Service":{"Name":"db"},"GatewayKind":"terminating-gateway","CAFile":"/ca.pem",` +
				`"SNI":"db.example","CreateIndex":4,"ModifyIndex":4},` +
				`{"Gateway":{"Name":"out"},"Service":{"Name":"*"},"GatewayKind":"terminating-gateway","FromWildcard":true,` +
				`"CreateIndex":4,"ModifyIndex":4}]`},
		{"PUT", "/v1/config",
			`{"Kind":"exported-services","Name":"default","Services":[{"Name":"web","Consumers":[{"Peer":"west"},{` +
				`"Peer":"east"}]}]}`, 200, "true"},
		{"GET", "/v1/exported-services", "", 200, `[{"Service":"web","Consumers":{"Peers":["east","west"]}}]`},
	})
}

// Intentions by ID and by name are two views of the same entries.
func TestIntentionsByID(t *testing.T) {
	r := newRig(t, nil)
	made := r.want("POST", "/v1/connect/intentions",
		`{"SourceName":"web","DestinationName":"db","SourceType":"consul","Action":"allow","Description":"old","Meta":{`+
			`"a":"b"}}`, 200, "*")
	var id struct{ ID string }
	if err := json.Unmarshal([]byte(made.body), &id); err != nil || len(id.ID) != 36 {
		t.Fatalf("created %s: %v", made.body, err)
	}
	path := "/v1/connect/intentions/" + id.ID
	for _, p := range []string{path, "/v1/connect/intentions/exact?source=web&destination=db"} {
		a := r.want("GET", p, "", 200, "*")
		if !strings.Contains(a.body, `"ID":"`+id.ID+`","Description":"old"`) ||
			!strings.Contains(a.body, `"Action":"allow","Meta":{"a":"b"},"Precedence":9`) {
			t.Errorf("%s: %s", p, a.body)
		}
	}
	r.run([]step{
		{"GET", "/v1/config/service-intentions/db", "", 200, "*"},
		{"POST", "/v1/connect/intentions", `{"SourceName":"web","DestinationName":"db","Action":"deny"}`, 500,
			"duplicate intention found: web => db"},
		{"POST", "/v1/connect/intentions", `{"ID":"` + id.ID + `","SourceName":"x","DestinationName":"db","Action":"deny"}`,
			400, "*"},
		{"POST", "/v1/connect/intentions", `{"SourceName":"x","Action":"deny"}`, 400, "DestinationName must be set"},
		{"POST", "/v1/connect/intentions", `{"SourceName":"x","SourceNS":"team","DestinationName":"db","Action":"deny"}`, 400,
			"*"},
		{"POST", "/v1/connect/intentions", `{"SourceName":"x","DestinationName":"db","Action":"perhaps"}`, 400, "*"},
		{"POST", "/v1/connect/intentions", `{"SourceName":"x","DestinationName":"db","Action":"deny"}`, 200, "*"},
		{"PUT", path, `{"SourceName":"x","DestinationName":"db","Action":"deny"}`, 500, "duplicate intention found: x => db"},
		{"PUT", path, `{"SourceName":"web","DestinationName":"other","Action":"deny"}`, 400, "*"},
		{"PUT", path, `{"SourceName":"web","DestinationName":"db","Action":"deny"}`, 200, `{"ID":"` + id.ID + `"}`},
		{"GET", "/v1/connect/intentions/check?source=web&destination=db", "", 200, `{"Allowed":false}`},
		{"DELETE", path, "", 200, "true"},
		{"GET", path, "", 404, "Intention not found"},
		{"PUT", path, `{"SourceName":"web","DestinationName":"db","Action":"deny"}`, 404, "Intention not found"},
		{"DELETE", path, "", 404, "Intention not found"},
		{"GET", "/v1/connect/intentions/none", "", 400, "*"},
		{"GET", "/v1/connect/intentions/exact?source=web&destination=db", "", 404, "Intention not found"},
	})
}
