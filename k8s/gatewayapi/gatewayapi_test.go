package gatewayapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/k8s"
)

func decode[T any](t testing.TB, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

func input(t testing.TB, listener, route string) *Input {
	t.Helper()
	return &Input{
		Classes: decode[[]Class](t, fmt.Sprintf(`[{"metadata":{"name":"consul"},"spec":{"controllerName":%q}},
{"metadata":{"name":"other"},"spec":{"controllerName":"example.com/other"}}]`, Controller)),
		Gateways: decode[[]Gateway](t, `[{"metadata":{"name":"edge","namespace":"shop","generation":3},"spec":{
"gatewayClassName":"consul","listeners":[`+listener+`]}},
{"metadata":{"name":"theirs","namespace":"shop"},"spec":{"gatewayClassName":"other","listeners":[
{"name":"http","port":80,"protocol":"HTTP"}]}}]`),
		Routes: decode[[]Route](t, `[{"metadata":{"name":"web","namespace":"shop","generation":2},"spec":`+route+`}]`),
		Services: decode[[]k8s.Service](t, `[{"metadata":{"name":"web","namespace":"shop"}},
{"metadata":{"name":"new","namespace":"shop","annotations":{"consul.hashicorp.com/service-name":"web-v2"}}},
{"metadata":{"name":"far","namespace":"else"}}]`),
		Certificates: map[string]Certificate{"shop/tls": {"CERT", "KEY"}},
	}
}

const (
	plainListener = `{"name":"http","port":80,"protocol":"HTTP"}`
	plainRoute    = `{"parentRefs":[{"name":"edge"}],"rules":[{"backendRefs":[{"name":"web","port":80}]}]}`
)

// said is type=reason of each condition.
func said(list []Condition) string {
	var out []string
	for _, c := range list {
		if (c.Status == "True") != (c.Type == c.Reason) {
			out = append(out, "!")
		}
		out = append(out, c.Type+"="+c.Reason)
	}
	return strings.Join(out, " ")
}

// What a whole example becomes: entries that the catalog takes, and statuses.
func TestTranslate(t *testing.T) {
	in := input(t, plainListener+`,{"name":"https","hostname":"*.example.com","port":443,"protocol":"HTTPS","tls":{
"certificateRefs":[{"name":"tls"}]}}`, `{"parentRefs":[{"name":"edge"},{"name":"theirs"}],"hostnames":["a.example.com"],
"rules":[{"matches":[{"path":{"type":"PathPrefix","value":"/v1"},"method":"GET","headers":[{"name":"x","value":"1"}],
"queryParams":[{"type":"RegularExpression","name":"q","value":"a+"}]}],
"filters":[{"type":"RequestHeaderModifier","requestHeaderModifier":{"set":[{"name":"A","value":"1"}],"remove":["b"]}},
{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":"/"}}}],
"timeouts":{"request":"10s"},
"backendRefs":[{"name":"web","port":80,"weight":90},{"name":"new","port":80,"weight":10}]}]}`)
	if got := Secrets(in); !reflect.DeepEqual(got, []string{"shop/tls"}) {
		t.Errorf("secrets %v", got)
	}
	out := Translate(in)
	if !reflect.DeepEqual(out, Translate(in)) {
		t.Error("the same input has two translations")
	}
	var got []string
	for _, e := range out.Entries {
		text, err := json.Marshal(e.Body)
		if err != nil {
			t.Fatal(err)
		}
		taken, err := entry.Decode(text)
		if err != nil && e.Kind != "inline-certificate" { // that one holds no certificate here
			t.Fatalf("%s: %v", text, err)
		}
		got = append(got, e.Kind+"/"+e.Name)
		switch taken := taken.(type) {
		case *entry.API:
			if len(taken.Listeners) != 2 || taken.Listeners[1].TLS.Certificates[0].Name != "shop-tls" ||
				taken.Listeners[1].Hostname != "*.example.com" {
				t.Errorf("%s", text)
			}
		case *entry.HTTP:
			rule := taken.Rules[0]
			if len(taken.Parents) != 2 || taken.Parents[1].SectionName != "https" || rule.Services[1].Name != "web-v2" ||
				rule.Services[0].Weight != 90 || rule.Matches[0].Path.Match != "prefix" ||
				rule.Matches[0].Query[0].Match != "regex" ||
				rule.Filters.URLRewrite.Path != "/" || rule.Filters.Headers[0].Set["a"] != "1" {
				t.Errorf("%s", text)
			}
		}
	}
	if text := strings.Join(got, " "); text != "inline-certificate/shop-tls api-gateway/edge http-route/web" {
		t.Error(text)
	}
	g := out.Gateways["shop/edge"]
	if said(g.Conditions) != "Accepted=Accepted Programmed=Programmed" || g.Conditions[0].ObservedGeneration != 3 ||
		g.Listeners[1].AttachedRoutes != 1 || len(out.Gateways) != 1 || len(out.Classes) != 1 {
		t.Errorf("%+v", out.Gateways)
	}
	r := out.Routes["shop/web"]
	if len(r.Parents) != 1 || said(r.Parents[0].Conditions) != "Accepted=Accepted ResolvedRefs=ResolvedRefs" {
		t.Errorf("%+v", r)
	}
	out.Refuse("http-route/web", "because")
	out.Refuse("api-gateway/edge", "because")
	if said(out.Routes["shop/web"].Parents[0].Conditions) != "Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs" ||
		said(out.Gateways["shop/edge"].Conditions) != "Accepted=Accepted Programmed=Invalid" {
		t.Errorf("%+v", out)
	}
}

// Why a listener is refused.
func TestListeners(t *testing.T) {
	for listener, want := range map[string]string{
		`{"name":"a","port":80,"protocol":"TCP"}`:    "Accepted=UnsupportedProtocol ResolvedRefs=ResolvedRefs Programmed=Invalid",
		`{"name":"a","port":443,"protocol":"HTTPS"}`: "Accepted=Accepted ResolvedRefs=InvalidCertificateRef Programmed=Invalid",
		`{"name":"a","port":443,"protocol":"HTTPS","tls":{"certificateRefs":[{"name":"gone"}]}}`: "Accepted=Accepted " +
			"ResolvedRefs=InvalidCertificateRef Programmed=Invalid",
		`{"name":"a","port":443,"protocol":"HTTPS","tls":{"certificateRefs":[{"name":"tls","namespace":"else"}]}}`: "Accepted=" +
			"Accepted ResolvedRefs=RefNotPermitted Programmed=Invalid",
		`{"name":"a","port":443,"protocol":"HTTPS","tls":{"mode":"Passthrough","certificateRefs":[{"name":"tls"}]}}`: "Accepted=" +
			"UnsupportedValue ResolvedRefs=ResolvedRefs Programmed=Invalid",
		`{"name":"a","port":80,"protocol":"HTTP","allowedRoutes":{"namespaces":{"from":"Selector"}}}`: "Accepted=" +
			"UnsupportedValue ResolvedRefs=ResolvedRefs Programmed=Invalid",
	} {
		out := Translate(input(t, listener, plainRoute))
		g := out.Gateways["shop/edge"]
		if got := said(g.Listeners[0].Conditions); got != want {
			t.Errorf("%s: %s, want %s", listener, got, want)
		}
		if said(g.Conditions) != "Accepted=ListenersNotValid Programmed=Invalid" || len(out.Entries) != 0 {
			t.Errorf("%s: %+v", listener, out.Entries)
		}
		if got := said(out.Routes["shop/web"].Parents[0].Conditions); got != "Accepted=NoMatchingParent "+
			"ResolvedRefs=ResolvedRefs" {
			t.Errorf("%s: its route: %s", listener, got)
		}
	}
}

// What of a route is not taken, and what does not resolve.
func TestRoutes(t *testing.T) {
	for _, test := range []struct{ name, route, want string }{
		{"plain", plainRoute, "Accepted=Accepted ResolvedRefs=ResolvedRefs"},
		{"no such service", strings.Replace(plainRoute, `"name":"web"`, `"name":"gone"`, 1),
			"Accepted=Accepted ResolvedRefs=BackendNotFound"},
		{"another namespace", strings.Replace(plainRoute, `"name":"web"`, `"name":"far","namespace":"else"`, 1),
			"Accepted=Accepted ResolvedRefs=RefNotPermitted"},
		{"another kind", strings.Replace(plainRoute, `"name":"web"`, `"name":"web","kind":"Bucket"`, 1),
			"Accepted=Accepted ResolvedRefs=InvalidKind"},
		{"no such listener", strings.Replace(plainRoute, `"name":"edge"`, `"name":"edge","sectionName":"x"`, 1),
			"Accepted=NoMatchingParent ResolvedRefs=ResolvedRefs"},
		{"a redirect", `{"parentRefs":[{"name":"edge"}],"rules":[{"filters":[{"type":"RequestRedirect"}]}]}`,
			"Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"},
		{"a rewrite of an exact path", `{"parentRefs":[{"name":"edge"}],"rules":[{"matches":[{"path":{"type":"Exact",
"value":"/a"}}],"filters":[{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplacePrefixMatch"}}}]}]}`,
			"Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"},
	} {
		r := Translate(input(t, plainListener, test.route)).Routes["shop/web"]
		if len(r.Parents) != 1 || said(r.Parents[0].Conditions) != test.want {
			t.Errorf("%s: %+v, want %s", test.name, r, test.want)
		}
	}
	in := input(t, `{"name":"http","port":80,"protocol":"HTTP","hostname":"*.example.com"}`,
		strings.Replace(plainRoute, `{"parentRefs"`, `{"hostnames":["example.org"],"parentRefs"`, 1))
	if got := said(Translate(in).Routes["shop/web"].Parents[0].Conditions); !strings.HasPrefix(got,
		"Accepted=NoMatchingListenerHostname") {
		t.Error(got)
	}
	in = input(t, plainListener, strings.Replace(plainRoute, `"name":"edge"`, `"name":"edge","namespace":"shop"`, 1))
	in.Routes[0].Metadata.Namespace = "else"
	if got := said(Translate(in).Routes["else/web"].Parents[0].Conditions); !strings.HasPrefix(got,
		"Accepted=NotAllowedByListeners") {
		t.Error(got)
	}
	in = input(t, plainListener, strings.Replace(plainRoute, "edge", "theirs", 1))
	if out := Translate(in); len(out.Routes) != 0 {
		t.Errorf("a route of somebody else's gateway: %+v", out.Routes)
	}
}

// Times stay where a condition stays, and what others said of a route stays.
func TestStamp(t *testing.T) {
	old := GatewayStatus{Conditions: []Condition{{Type: "Accepted", Status: "True", LastTransitionTime: "then"},
		{Type: "Programmed", Status: "True", LastTransitionTime: "then"}}}
	s, ok := Stamp(GatewayStatus{Conditions: []Condition{{Type: "Accepted", Status: "True"},
		{Type: "Programmed", Status: "False"}}}, old, "now").(GatewayStatus)
	if !ok || s.Conditions[0].LastTransitionTime != "then" || s.Conditions[1].LastTransitionTime != "now" {
		t.Errorf("%+v", s)
	}
	both := RouteStatus{Parents: []ParentStatus{{ControllerName: "theirs"}, {ControllerName: Controller}}}
	if got := Beside(both, RouteStatus{}); len(got.Parents) != 1 || got.Parents[0].ControllerName != "theirs" {
		t.Errorf("%+v", got)
	}
	if got := Own(both); len(got.Parents) != 1 {
		t.Errorf("%+v", got)
	}
}

// Whatever is asked for: each gateway and route of ours has a status, and each entry is of a known kind.
func FuzzTranslate(f *testing.F) {
	f.Add(plainListener, plainRoute)
	f.Add(`{"protocol":"HTTPS","port":-1,"tls":{"certificateRefs":[{}]}}`, `{"parentRefs":[{"name":"edge"}],"rules":[{}]}`)
	f.Fuzz(func(t *testing.T, listener, route string) {
		in := &Input{Classes: []Class{{Metadata: k8s.Meta{Name: "consul"}}}}
		in.Classes[0].Spec.ControllerName = Controller
		var g Gateway
		var r Route
		var l Listener
		if json.Unmarshal([]byte(listener), &l) != nil || json.Unmarshal([]byte(route), &r.Spec) != nil {
			return
		}
		g.Metadata, r.Metadata = k8s.Meta{Name: "edge", Namespace: "shop"}, k8s.Meta{Name: "web", Namespace: "shop"}
		g.Spec.GatewayClassName, g.Spec.Listeners = "consul", []Listener{l, l}
		in.Gateways, in.Routes = []Gateway{g}, []Route{r}
		out := Translate(in)
		if len(out.Gateways["shop/edge"].Conditions) != 2 {
			t.Errorf("%+v", out.Gateways)
		}
		for _, e := range out.Entries {
			if _, err := json.Marshal(e.Body); err != nil || !entry.Known(e.Kind) {
				t.Errorf("%s %v: %v", e.Kind, e.Body, err)
			}
		}
	})
}
