package definition

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

const web = `{"ID":"web-1","Name":"web","Port":80,"Tags":["a"],"Check":{"TTL":"30s"}}`

func mustService(t testing.TB, body string) *Service {
	t.Helper()
	d, err := DecodeService([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustCheck(t testing.TB, body string) *Check {
	t.Helper()
	d, err := DecodeCheck([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSpellings: the same service in each spelling that clients use.
func TestSpellings(t *testing.T) {
	want := &Service{
		ID: "w", Name: "web", Tags: []string{"a"}, EnableTagOverride: true, Meta: map[string]string{"k": "v"},
		Endpoint: Endpoint{Port: 80,
			TaggedAddresses: map[string]catalog.ServiceAddress{"lan": {Address: "1.2.3.4", Port: 5}}},
		Weights: &catalog.Weights{Passing: 2, Warning: 1},
		Checks: []*Check{{Interval: 10 * time.Second, Timeout: time.Second,
			DeregisterCriticalServiceAfter: 90 * time.Minute, Probe: Probe{HTTP: "http://x",
				TLS: TLS{TLSSkipVerify: true}, Command: Command{ScriptArgs: []string{"a", "b"}}}}},
		Mesh: Mesh{Connect: &Connect{Native: true},
			Proxy: []byte(`{"Config":{"free_key":1},"DestinationServiceName":"db","Upstreams":[{"DestinationName":"x",` +
				`"LocalBindPort":9}]}`)},
	}
	for name, body := range map[string]string{
		"pascal": `{"ID":"w","Name":"web","Port":80,"Tags":["a"],"EnableTagOverride":true,"Meta":{"k":"v"},
			"TaggedAddresses":{"lan":{"Address":"1.2.3.4","Port":5}},"Weights":{"Passing":2,"Warning":1},
			"Checks":[{"HTTP":"http://x","Interval":"10s","Timeout":1000000000,"TLSSkipVerify":true,
			"DeregisterCriticalServiceAfter":"90m","ScriptArgs":["a","b"]}],"Connect":{"Native":true},"Surprise":1,"Check":null,
			"Proxy":{"DestinationServiceName":"db","Config":{"free_key":1},"Upstreams":[{"DestinationName":"x","LocalBindPort":9}]}}`,
		"snake": `{"id":"w","name":"web","port":"80","tags":["a"],"enable_tag_override":true,"meta":{"k":"v"},
			"tagged_addresses":{"lan":{"address":"1.2.3.4","port":5}},"weights":{"passing":2,"warning":1},
			"checks":[{"http":"http://x","interval":"10s","timeout":"1s","tls_skip_verify":true,
			"deregister_critical_service_after":"5400000000000","args":["a","b"]}],"connect":{"native":true},
			"proxy":{"destination_service_name":"db","config":{"free_key":1},"upstreams":[{"destination_name":"x","local_bind_port":"9"}]}}`,
		"mixed": `{"iD":"w","NAME":"web","port":80.0,"tags":["a"],"EnableTagOverride":"true","meta":{"k":"v"},
			"taggedaddresses":{"lan":{"Address":"1.2.3.4","Port":5}},"weights":{"passing":2},
			"checks":[{"Http":"http://x","interval":10000000000,"timeout":"1s","TlsSkipVerify":true,
			"DeregisterCriticalServiceAfter":"1h30m","args":["a","b"]}],"Connect":{"native":true},
			"Proxy":{"destinationServiceName":"db","CONFIG":{"free_key":1},"Upstreams":[{"destination_name":"x","LocalBindPort":9}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got := mustService(t, body); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v\nproxy %s", got, want, got.Proxy)
			}
		})
	}
}

func TestBodiesThatAreWrong(t *testing.T) {
	for _, body := range []string{``, `[]`, `{`, `{"Name":[1]}`, `{"Port":"x"}`, `{"Port":1.5}`,
		`{"Check":{"Interval":"10 parsecs"}}`,
		`{"Tags":{"a":1}}`, `{"Meta":[1]}`,
		`{"Connect":{"SidecarService":{"Connect":{"SidecarService":{"Connect":{"SidecarService":{}}}}}}}`} {
		_, err := DecodeService([]byte(body))
		if !errkind.Is(err, errkind.Invalid) || !strings.HasPrefix(err.Error(), "Request decode failed: ") {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

const file = `
service {
  name = "web"
  port = 80
  meta { version = 4 }
  tagged_addresses { wan { address = "1.2.3.4" port = 81 } }
  weights { passing = 5 warning = 2 }
  check { id = "one" http = "http://localhost/h" interval = "10s" header { X-A = ["1"] } }
  check { ttl = "30s" }
  connect {
    sidecar_service {
      proxy {
        upstreams { destination_name = "db" local_bind_port = 9000 }
        upstreams { destination_name = "mq" local_bind_port = 9001 }
        config { limits { max = 3 } }
      }
    }
  }
}
services { name = "other" }
check { name = "disk" args = ["/bin/true"] interval = "1m" }
node_name = "ignored"
`

func parseHCL(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := hcl.Decode(&m, text); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestHCLFile(t *testing.T) {
	services, checks, err := FileDefinitions(parseHCL(t, file))
	if err != nil {
		t.Fatal(err)
	}
	if len(services) != 2 || len(checks) != 1 || checks[0].ScriptArgs[0] != "/bin/true" {
		t.Fatalf("got %v %v", services, checks)
	}
	s := services[0]
	if s.Meta["version"] != "4" || s.TaggedAddresses["wan"].Port != 81 || s.Weights.Passing != 5 {
		t.Errorf("got %+v", s)
	}
	normal := s.NormaliseChecks()
	if len(normal) != 2 || normal[0].ID != "one" || normal[1].ID != "service:web:2" || normal[0].Header["X-A"][0] != "1" {
		t.Errorf("checks %+v", normal)
	}
	want := `{"Config":{"limits":{"max":3}},"Upstreams":[{"DestinationName":"db","LocalBindPort":9000},{` +
		`"DestinationName":"mq","LocalBindPort":9001}]}`
	if got := string(s.Connect.SidecarService.Proxy); got != want {
		t.Errorf("proxy %s", got)
	}
	for _, d := range services {
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestFilesNameUnknownKeys(t *testing.T) {
	for text, want := range map[string]string{
		`service { name = "a" prot = 80 }`:                          "invalid config key service.prot",
		`service { name = "a" check { intervall = "1s" } }`:         "invalid config key service.check[0].intervall",
		`check { name = "c" foo = 1 }`:                              "invalid config key check.foo",
		`service { name = "a" proxy { upstreams { dest = "x" } } }`: "invalid config key service.proxy.upstreams[0].dest",
		`services = [{name = "a"}, {name = "b" x = 1}]`:             "invalid config key services[1].x",
	} {
		_, _, err := FileDefinitions(parseHCL(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestValidate(t *testing.T) {
	long := strings.Repeat("x", 600)
	tests := []struct{ body, want string }{
		{`{"Name":"a"}`, ""},
		{`{"Name":"a","Check":{}}`, ""},
		{`{}`, "Missing service name"},
		{`{"Name":"a","Address":"0.0.0.0"}`, "Invalid service address"},
		{`{"Name":"a","Address":"::"}`, "Invalid service address"},
		{`{"Name":"a","Weights":{"Passing":0}}`, "Invalid Weights"},
		{`{"Name":"a","Weights":{"Passing":65536}}`, "Invalid Weights"},
		{`{"Name":"a","Weights":{"Passing":1,"Warning":-1}}`, "Invalid Weights"},
		{`{"Name":"a","Port":1,"SocketPath":"/x"}`, "exclusive"},
		{`{"Name":"a","Port":70000}`, "Invalid service port"},
		{`{"Name":"a","Meta":{"a b":"1"}}`, "invalid characters"},
		{`{"Name":"a","Meta":{"a":"` + long + `"}}`, "too long"},
		{`{"Name":"a","Meta":{"` + long + `":"1"}}`, "too long"},
		{`{"Name":"a","Check":{"Status":"great","TTL":"1s"}}`, "Status for checks must 'passing', 'warning', 'critical'"},
		{`{"Name":"a","Check":{"HTTP":"x"}}`, "Invalid check: Interval must be > 0"},
		{`{"Name":"a","Check":{"TTL":"1s","Interval":"1s"}}`, "Invalid check: Interval and TTL cannot both"},
		{`{"Name":"a","Check":{"Name":"x"}}`, "Invalid check: TTL must be > 0"},
		{`{"Name":"a","Check":{"AliasService":"b","Interval":"1s"}}`, "Invalid check: Interval cannot be set for Alias"},
		{`{"Name":"a","Check":{"TCP":"x:1","Interval":"1s","FailuresBeforeWarning":3,"FailuresBeforeCritical":2}}`,
			"Invalid check: FailuresBeforeWarning"},
		{`{"Name":"a","Checks":[{"CheckID":"x","TTL":"1s"},{"CheckID":"x","TTL":"1s"}]}`, "duplicate check id"},
		{`{"Name":"a","Kind":"connect-proxy","Port":1}`, "DestinationServiceName"},
		{`{"Name":"a","Kind":"connect-proxy","Proxy":{"DestinationServiceName":"b"}}`, "Port or SocketPath"},
		{`{"Name":"a","Kind":"mesh-gateway","Port":1}`, ""},
		{`{"Name":"a","Kind":"toaster"}`, "Invalid service kind"},
		{`{"Name":"a","Connect":{"Native":true,"SidecarService":{}}}`, "exclusive"},
	}
	for _, tc := range tests {
		err := mustService(t, tc.body).Validate()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%.80s: got %v, want %q", tc.body, err, tc.want)
		}
		if err != nil && !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%.80s: kind %v", tc.body, errkind.Of(err))
		}
	}
	many := map[string]string{}
	for i := range 65 {
		many["k"+strconv.Itoa(i)] = ""
	}
	if ValidateMeta(many) == nil {
		t.Error("65 pairs are too many")
	}
	for body, want := range map[string]string{`{"TTL":"1s"}`: "Missing check name",
		`{"Name":"a","TTL":"1s","Status":"x"}`: "Bad check status",
		`{"Name":"a"}`:                         "Invalid check: TTL must be > 0"} {
		if err := mustCheck(t, body).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

func TestWireJSON(t *testing.T) {
	w := Wire{Interval: Span(90 * time.Second), Timeout: Span(time.Second)}
	w.HTTP = "http://x"
	if got := string(w.JSON()); got != `{"HTTP":"http://x","Interval":"1m30s","Timeout":"1s"}` {
		t.Errorf("got %s", got)
	}
	if (&Wire{}).JSON() != nil {
		t.Error("an unset definition is nil")
	}
	if c := mustCheck(t, `{"Name":"c","HTTP":"http://x","Interval":"90s"}`).CatalogCheck("n", nil); c.Definition != nil ||
		c.Type != "http" || c.Interval != "1m30s" {
		t.Errorf("an agent's check: %+v", c)
	}
}

func TestTaggedByFamily(t *testing.T) {
	for body, want := range map[string]string{
		`{"Name":"w","Port":1}`:                      "map[]",
		`{"Name":"w","Address":"host.local"}`:        "map[]",
		`{"Name":"w","Port":1,"Address":"10.0.0.1"}`: "map[lan_ipv4:{10.0.0.1 1} wan_ipv4:{10.0.0.1 1}]",
		`{"Name":"w","Port":1,"Address":"10.0.0.1","TaggedAddresses":{"wan_ipv4":{"Address":"1.2.3.4","Port":9}}}`: "map[" +
			"lan_ipv4:{10.0.0.1 1} wan_ipv4:{1.2.3.4 9}]",
		`{"Name":"w","Address":"fd00::1"}`: "map[lan_ipv6:{fd00::1 0} wan_ipv6:{fd00::1 0}]",
	} {
		if got := fmt.Sprint(mustService(t, body).CatalogService("n").TaggedAddresses); got != want {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// FuzzDecodeService: decoding never panics, and what was decoded survives the disk.
func FuzzDecodeService(f *testing.F) {
	f.Add([]byte(web))
	f.Add(
		[]byte(`{"Name":"a","Checks":[{"TTL":"1s"}],"Proxy":{"Config":{"a":[{"b":1}]}},"connect":{"sidecar_service":{}}}`))
	f.Add([]byte(`{"port":1e3,"tags":null,"meta":{"a":null},"weights":[{"passing":1}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := DecodeService(body)
		if err != nil {
			return
		}
		_ = d.Validate()
		_ = d.NormaliseChecks()
		_ = d.CatalogService("n")
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back Service
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(&back); string(again) != string(data) {
			t.Fatalf("%s became %s", data, again)
		}
	})
}

func FuzzDecodeCheck(f *testing.F) {
	f.Add([]byte(`{"Name":"c","HTTP":"http://x","Interval":"90s","Header":{"A":["b"]}}`))
	f.Add([]byte(`{"TTL":"9223372036854775808","args":"x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := DecodeCheck(body)
		if err != nil {
			return
		}
		_ = d.Validate()
		_ = d.Spec(100)
		_ = d.CatalogCheck("n", nil)
	})
}

func FuzzFileDefinitions(f *testing.F) {
	f.Add(file)
	f.Add(`service = [{}]`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4<<10 {
			return
		}
		var m map[string]any
		if json.Unmarshal([]byte(text), &m) != nil {
			return
		}
		services, checks, err := FileDefinitions(m)
		if err != nil && !errkind.Is(err, errkind.Invalid) {
			t.Fatal(err)
		}
		for _, d := range services {
			_ = d.Validate()
		}
		for _, d := range checks {
			_ = d.Validate()
		}
	})
}
