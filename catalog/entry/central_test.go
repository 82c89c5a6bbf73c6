package entry

import (
	"encoding/json"
	"reflect"
	"testing"
)

// stored makes a Getter of entries as clients write them.
func stored(t *testing.T, bodies ...string) Getter {
	t.Helper()
	all := map[string]Entry{}
	for _, body := range bodies {
		e, err := Decode([]byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		all[Key(e.Base().Kind, e.Base().Name)] = e
	}
	return func(kind, name string) Entry {
		if e := all[Key(kind, name)]; e != nil {
			return e
		}
		return nil
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	get := stored(t,
		`{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http","envoy_prometheus_bind_addr":"0.0.0.0:9102","nested":{"a":1,"b":2}},
		  "MeshGateway":{"Mode":"local"},"AccessLogs":{"Enabled":true},"Expose":{"Checks":true}}`,
		`{"Kind":"service-defaults","Name":"web","Protocol":"grpc","MaxInboundConnections":7,"LocalConnectTimeoutMs":900,"MutualTLSMode":"permissive",
		  "UpstreamConfig":{"Defaults":{"ConnectTimeoutMs":1500,"Limits":{"MaxConnections":3}},
		  "Overrides":[{"Name":"db","Protocol":"tcp","MeshGateway":{"Mode":"none"}},{"Name":"cache","ConnectTimeoutMs":10}]}}`,
		`{"Kind":"service-defaults","Name":"api","Protocol":"http2"}`)
	tests := []struct{ name, service, proxy, want string }{
		{"nothing registered, nothing central but proxy-defaults", "other", ``,
			`{"AccessLogs":{"Enabled":true},"Config":{"envoy_prometheus_bind_addr":"0.0.0.0:9102","nested":{"a":1,"b":2},"protocol":"http"},
			  "Expose":{"Checks":true},"MeshGateway":{"Mode":"local"},"Mode":""}`},
		{"the registration wins at every depth", "web",
			`{"Mode":"direct","MeshGateway":{"Mode":"remote"},"Expose":{"Paths":[{"Path":"/x"}]},"MutualTLSMode":"strict","AccessLogs":{"Enabled":false,"Type":"stderr"},
			  "Config":{"protocol":"tcp","nested":{"b":9}},"LocalServicePort":8080}`,
			`{"AccessLogs":{"Enabled":false,"Type":"stderr"},"Config":{"envoy_prometheus_bind_addr":"0.0.0.0:9102","local_connect_timeout_ms":900,"max_inbound_connections":7,
			  "nested":{"a":1,"b":9},"protocol":"tcp"},"Expose":{"Paths":[{"Path":"/x"}]},"LocalServicePort":8080,"MeshGateway":{"Mode":"remote"},"Mode":"direct","MutualTLSMode":"strict"}`},
		{"upstreams: own protocol, defaults, overrides, registration", "web",
			`{"Mode":"","MeshGateway":{},"Expose":{},"Upstreams":[
			  {"DestinationName":"api","LocalBindPort":1},
			  {"DestinationName":"db","LocalBindPort":2,"Config":{"connect_timeout_ms":1,"limits":{"max_pending_requests":4}}},
			  {"DestinationType":"prepared_query","DestinationName":"near","LocalBindPort":3}]}`,
			`{"AccessLogs":{"Enabled":true},"Config":{"envoy_prometheus_bind_addr":"0.0.0.0:9102","local_connect_timeout_ms":900,"max_inbound_connections":7,
			  "nested":{"a":1,"b":2},"protocol":"grpc"},"Expose":{"Checks":true},"MeshGateway":{"Mode":"local"},"Mode":"","MutualTLSMode":"permissive","Upstreams":[
			  {"DestinationName":"api","LocalBindPort":1,"MeshGateway":{"Mode":"local"},"Config":{"protocol":"http2","connect_timeout_ms":1500,"limits":{"max_connections":3}}},
			  {"DestinationName":"db","LocalBindPort":2,"MeshGateway":{"Mode":"none"},"Config":{"protocol":"tcp","connect_timeout_ms":1,"limits":{"max_connections":3,"max_pending_requests":4}}},
			  {"DestinationType":"prepared_query","DestinationName":"near","LocalBindPort":3}]}`},
		{"a transparent proxy gets the upstreams that entries name", "web",
			`{"Mode":"transparent","MeshGateway":{},"Expose":{},"Upstreams":[{"DestinationName":"db","LocalBindPort":2}]}`,
			`{"AccessLogs":{"Enabled":true},"Config":{"envoy_prometheus_bind_addr":"0.0.0.0:9102","local_connect_timeout_ms":900,"max_inbound_connections":7,
			  "nested":{"a":1,"b":2},"protocol":"grpc"},"Expose":{"Checks":true},"MeshGateway":{"Mode":"local"},"Mode":"transparent","MutualTLSMode":"permissive","Upstreams":[
			  {"DestinationName":"db","LocalBindPort":2,"MeshGateway":{"Mode":"none"},"Config":{"protocol":"tcp","connect_timeout_ms":1500,"limits":{"max_connections":3}}},
			  {"DestinationType":"service","DestinationName":"cache","CentrallyConfigured":true,"MeshGateway":{"Mode":"local"},
			   "Config":{"protocol":"http","connect_timeout_ms":10,"limits":{"max_connections":3}}}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before any
			if tt.proxy != "" {
				if err := json.Unmarshal([]byte(tt.proxy), &before); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Merge(get, tt.service, []byte(tt.proxy))
			if err != nil {
				t.Fatal(err)
			}
			var g, w any
			if err := json.Unmarshal(got, &g); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tt.want), &w); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(g, w) {
				want, _ := json.Marshal(w)
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestMergeKeepsEntries merges twice from the same entries: neither may see what the other filled in.
func TestMergeKeepsEntries(t *testing.T) {
	t.Parallel()
	get := stored(t, `{"Kind":"proxy-defaults","Name":"global","Config":{"nested":{"a":1}}}`)
	for range 2 {
		if _, err := Merge(get, "web", []byte(`{"Config":{"nested":{"b":2}}}`)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Merge(get, "web", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"Config":{"nested":{"a":1}},"Expose":{},"MeshGateway":{},"Mode":""}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err = Merge(func(string, string) Entry { return nil }, "web", nil); err != nil ||
		string(got) != `{"Expose":{},"MeshGateway":{},"Mode":""}` {
		t.Errorf("without entries: %s, %v", got, err)
	}
}
