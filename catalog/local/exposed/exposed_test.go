package exposed

import (
	"encoding/json"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/entry"
)

// TestPathsAndWays: what a proxy lets through for a check, and where the check goes then.
func TestPathsAndWays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec    check.Spec
		path    string
		port    int
		through string
	}{
		{check.Spec{Kind: check.KindHTTP, Target: "http://10.0.0.1:8080/a%20b?x=1"}, "/a%20b", 8080,
			"http://127.0.0.1:21500/a%20b?x=1"},
		{check.Spec{Kind: check.KindHTTP, Target: "http://localhost"}, "/", 80, "http://127.0.0.1:21500"},
		{check.Spec{Kind: check.KindHTTP, Target: "https://localhost/health"}, "", 0, ""},
		{check.Spec{Kind: check.KindHTTP, Target: "http://[::1]:9/h"}, "/h", 9, "http://127.0.0.1:21500/h"},
		{check.Spec{Kind: check.KindGRPC, Target: "127.0.0.1:50051/echo"}, grpcPath, 50051, "127.0.0.1:21500/echo"},
		{check.Spec{Kind: check.KindGRPC, Target: "127.0.0.1:50051"}, grpcPath, 50051, "127.0.0.1:21500"},
		{check.Spec{Kind: check.KindGRPC, Target: "127.0.0.1:50051", UseTLS: true}, "", 0, ""},
		{check.Spec{Kind: check.KindTCP, Target: "127.0.0.1:1"}, "", 0, ""},
		{check.Spec{Kind: check.KindTTL}, "", 0, ""},
	} {
		p, ok := Path(c.spec)
		if ok != (c.path != "") || ok && (p.Path != c.path || p.LocalPathPort != c.port || !p.ParsedFromCheck) {
			t.Errorf("%+v: %+v, %v", c.spec, p, ok)
		}
		if got := (Way{"127.0.0.1", 21500}).Through(c.spec).Target; ok && got != c.through {
			t.Errorf("%s goes to %s", c.spec.Target, got)
		}
		if got := (Way{}).Through(c.spec).Target; got != c.spec.Target {
			t.Errorf("without a way %s goes to %s", c.spec.Target, got)
		}
	}
}

func TestPortsAreOfOneCheck(t *testing.T) {
	t.Parallel()
	p := Ports{Low: 10, High: 12}
	used := func(port int) bool { return port == 11 }
	take := func(check string, want int) {
		t.Helper()
		if got := p.Take(check, used); got != want {
			t.Errorf("%s has %d, want %d", check, got, want)
		}
	}
	take("a", 10)
	take("b", 12)
	take("a", 10)
	take("c", 0)
	p.Free("a")
	p.Free("nobody")
	take("c", 10)
}

func TestProxiesAndWhatTheyLetThrough(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Proxy{
		`{"DestinationServiceID":"web","Expose":{"Checks":true}}`:                                {"web", "10.0.0.2", true},
		`{"DestinationServiceID":"web"}`:                                                         {"web", "10.0.0.2", false},
		`{"DestinationServiceID":"web","Config":{"bind_address":"127.0.0.9"}}`:                   {"web", "127.0.0.9", false},
		`{"DestinationServiceID":"web","Config":{"bind_address":"0.0.0.0"}}`:                     {"web", "127.0.0.1", false},
		`{"DestinationServiceID":"web","Config":{"bind_address":"::"}}`:                          {"web", "::1", false},
		`{"DestinationServiceName":"web","Expose":{"Checks":true}}`:                              {},
		`{"DestinationServiceID":"web","Expose":{"Checks":true},"Config":{"bind_address":null}}`: {"web", "10.0.0.2", true},
	} {
		s := &catalog.Service{Kind: catalog.KindConnectProxy, Address: "10.0.0.2"}
		s.Proxy = []byte(text)
		if got := ReadProxy(s); got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
	no := &catalog.Service{Connect: catalog.Connect{Proxy: []byte(`{"DestinationServiceID":"web"}`)}}
	if got := ReadProxy(no); got != (Proxy{}) {
		t.Errorf("no proxy: %+v", got)
	}
	s := &catalog.Service{Address: "10.0.0.2", Connect: catalog.Connect{Proxy: []byte(
		`{"DestinationServiceID":"web","Config":{"a":1}}`)}}
	out := With(s, []entry.ExposePath{{Path: "/h", ListenerPort: 21500}}, "10.0.0.1")
	var got struct {
		DestinationServiceID string
		Config               map[string]any
		ExposedChecks        entry.ExposedChecks
	}
	if err := json.Unmarshal(out.Proxy, &got); err != nil || got.DestinationServiceID != "web" || got.Config["a"] != 1.0 ||
		len(got.ExposedChecks.Paths) != 1 || len(got.ExposedChecks.From) != 4 || got.ExposedChecks.From[2] != "10.0.0.1/32" {
		t.Errorf("%s %v", out.Proxy, err)
	}
	if string(s.Proxy) != `{"DestinationServiceID":"web","Config":{"a":1}}` {
		t.Error("the registration itself was changed")
	}
}
