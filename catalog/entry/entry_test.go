package entry

import (
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

var examples = []string{
	`{"Kind":"service-defaults","Name":"web","Protocol":"http","UpstreamConfig":{"Defaults":{"ConnectTimeoutMs":5,` +
		`"Limits":{"MaxConnections":3}},"Overrides":[{"Name":"db","PassiveHealthCheck":{"Interval":"2s",` +
		`"MaxFailures":3}}]},"RateLimits":{"InstanceLevel":{"RequestsPerSecond":7}},"EnvoyExtensions":[{` +
		`"Name":"builtin/lua","Arguments":{"Script":"x","N":1}}]}`,
	`{"kind":"proxy-defaults","name":"global","config":{"protocol":"http","n":1.5,"deep":{"a":[1,"b",null]}},` +
		`"access_logs":{"enabled":true,"type":"file","path":"/x"}}`,
	`{"Kind":"service-resolver","Name":"web","DefaultSubset":"v1","Subsets":{"v1":{"Filter":"Service.Meta.version == ` +
		`v1"}},"Failover":{"*":{"Datacenters":["dc2"]}},"ConnectTimeout":5000000000,"LoadBalancer":{"Policy":"ring_hash",` +
		`"HashPolicies":[{"Field":"header","FieldValue":"x"}]}}`,
	`{"Kind":"service-router","Name":"web","Routes":[{"Match":{"HTTP":{"PathExact":"/x","Methods":["get"],"Header":[{` +
		`"Name":"a","Present":true}]}},"Destination":{"PrefixRewrite":"/y","RetryOnStatusCodes":[503]}}]}`,
	`{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":33.333,"ServiceSubset":"v1"},{"Weight":66.67,` +
		`"ServiceSubset":"v2"}]}`,
	`{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"*","Action":"deny"},{"Name":"web","Permissions":[{` +
		`"Action":"allow","HTTP":{"PathPrefix":"/","Methods":["GET"]}}]}]}`,
	`{"Kind":"mesh","TLS":{"Incoming":{"TLSMinVersion":"TLSv1_2"}},"TransparentProxy":{"MeshDestinationsOnly":true}}`,
	`{"Kind":"ingress-gateway","Name":"in","Listeners":[{"Port":80,"Protocol":"http","Services":[{"Name":"*"}]}]}`,
	`{"Kind":"terminating-gateway","Name":"out","Services":[{"Name":"x","CAFile":"/ca"}]}`,
	`{"Kind":"exported-services","Name":"default","Services":[{"Name":"x","Consumers":[{"Peer":"p"}]}]}`,
	`{"Kind":"jwt-provider","Name":"okta","Issuer":"i","JSONWebKeySet":{"Local":{"JWKS":"e30="}}}`,
}

// stable fails unless what was decoded comes back equal from disk, and from its own JSON.
func stable(t *testing.T, e Entry) {
	t.Helper()
	raw, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(e.Base().Kind, raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	if again, _ := Encode(loaded); string(again) != string(raw) {
		t.Fatalf("%s comes back as %s", raw, again)
	}
	decoded, err := Decode(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	if again, _ := Encode(decoded); string(again) != string(raw) {
		t.Fatalf("%s is read as %s", raw, again)
	}
}

func TestExamples(t *testing.T) {
	for _, raw := range examples {
		e, err := Decode([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		stable(t, e)
	}
}

func TestPrecedence(t *testing.T) {
	e, err := Decode([]byte(examples[5]))
	if err != nil {
		t.Fatal(err)
	}
	sources := e.(*Intentions).Sources
	if sources[0].Name != "web" || sources[0].Precedence != 6 || sources[1].Precedence != 5 ||
		sources[0].Type != "consul" {
		t.Errorf("%+v %+v", sources[0], sources[1])
	}
	if Precedence("a", "b") != 9 || Precedence("*", "b") != 8 {
		t.Error("exact destinations")
	}
}

func FuzzDecode(f *testing.F) {
	for _, raw := range examples {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := Decode(raw)
		if err != nil {
			if errkind.Of(err) != errkind.Invalid {
				t.Fatalf("kind of %v", err)
			}
			return
		}
		stable(t, e)
	})
}

func TestCookieTTLInNanoseconds(t *testing.T) {
	e, err := Decode([]byte(`{"Kind":"service-resolver","Name":"w","LoadBalancer":{"Policy":"ring_hash","HashPolicies":[` +
		`{"Field":"cookie","FieldValue":"x","CookieConfig":{"TTL":"10s"}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := Encode(e)
	if err != nil || !strings.Contains(string(raw), `"CookieConfig":{"TTL":10000000000}`) {
		t.Errorf("%s, %v", raw, err)
	}
	// As former versions stored it.
	old, err := Load(ServiceResolver, []byte(strings.Replace(string(raw), "10000000000", `"10s"`, 1)))
	if err != nil || old.(*Resolver).LoadBalancer.HashPolicies[0].CookieConfig.TTL != 10e9 {
		t.Error(err)
	}
}
