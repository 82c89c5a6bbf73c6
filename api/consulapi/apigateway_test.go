package consulapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestAPIGatewayEntries: gateways and routes tell how they stand to each other, whatever comes first.
func TestAPIGatewayEntries(t *testing.T) {
	r := newRig(t, nil)
	put := func(body string) {
		t.Helper()
		if a := r.do("PUT", "/v1/config", body); a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
	}
	conditions := func(kind, name string) string {
		t.Helper()
		text := r.do("GET", "/v1/config/"+kind+"/"+name, "").body
		var e struct {
			Status struct {
				Conditions []struct {
					Type, Status, Reason string
					Resource             *struct{ Name, SectionName string }
				}
			}
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var list []string
		for _, c := range e.Status.Conditions {
			at := ""
			if c.Resource != nil && c.Resource.SectionName != "" {
				at = "@" + c.Resource.SectionName
			}
			list = append(list, c.Type+at+"="+c.Status+"/"+c.Reason)
		}
		return strings.Join(list, " ")
	}
	expect := func(kind, name, want string) {
		t.Helper()
		if got := conditions(kind, name); got != want {
			t.Errorf("%s %s: %s, want %s", kind, name, got, want)
		}
	}
	put(`{"Kind":"http-route","Name":"shop","Parents":[{"Name":"edge","SectionName":"web"}],"Rules":[{"Services":[{` +
		`"Name":"shop"}]}],"Status":{"Conditions":[{"Type":"Bound","Status":"True"}]}}`)
	expect("http-route", "shop", "Accepted=False/InvalidDiscoveryChain Bound@web=False/GatewayNotFound")
	put(`{"Kind":"service-defaults","Name":"shop","Protocol":"http"}`)
	put(`{"Kind":"api-gateway","Name":"edge","Listeners":[{"Name":"web","Port":8443,"Protocol":"http",` +
		`"Hostname":"*.example","TLS":{"Certificates":[{"Kind":"file-system-certificate","Name":"c"}]}},{"Name":"db",` +
		`"Port":5432,"Protocol":"tcp"}]}`)
	expect("api-gateway", "edge",
		"Accepted=False/InvalidCertificates ResolvedRefs@web=False/InvalidCertificateRef Conflicted@web=False/NoConflict "+
			"ResolvedRefs@db=True/ResolvedRefs Conflicted@db=False/NoConflict")
	expect("http-route", "shop", "Accepted=True/Accepted Bound@web=False/FailedToBind")
	put(`{"Kind":"file-system-certificate","Name":"c","Certificate":"/c.pem","PrivateKey":"/c.key"}`)
	expect("http-route", "shop", "Accepted=True/Accepted Bound@web=True/Bound")
	put(`{"Kind":"http-route","Name":"shop","Hostnames":["shop.test"],"Parents":[{"Name":"edge","SectionName":"web"},{` +
		`"Name":"edge","SectionName":"db"},{"Name":"edge","SectionName":"none"}],"Rules":[{"Services":[{"Name":"shop"}]}]}`)
	expect("http-route", "shop",
		"Accepted=True/Accepted Bound@web=False/FailedToBind Bound@db=False/FailedToBind Bound@none=False/FailedToBind")
	put(`{"Kind":"tcp-route","Name":"one","Parents":[{"Name":"edge"}],"Services":[{"Name":"db"}]}`)
	put(`{"Kind":"tcp-route","Name":"two","Parents":[{"Name":"edge","SectionName":"db"}],"Services":[]}`)
	expect("tcp-route", "one", "Accepted=True/Accepted Bound=True/Bound")
	expect("tcp-route", "two", "Accepted=False/NoUpstreamServicesTargeted Bound@db=True/Bound")
	if got := conditions("api-gateway", "edge"); !strings.Contains(got, "Accepted=True/Accepted") ||
		!strings.Contains(got, "Conflicted@db=True/RouteConflict") {
		t.Errorf("a listener with two routes: %s", got)
	}
	if list := r.do("GET", "/v1/config/tcp-route", "").body; strings.Count(list, `"Status":{`) != 2 {
		t.Errorf("the list has no status: %s", list)
	}
	for body, want := range map[string]string{
		`{"Kind":"inline-certificate","Name":"c","Certificate":"x","PrivateKey":"y"}`:             "Certificate and PrivateKey",
		`{"Kind":"file-system-certificate","Name":"c","Certificate":"x"}`:                         "required",
		`{"Kind":"api-gateway","Name":"e","Listeners":[{"Name":"a","Port":0,"Protocol":"http"}]}`: "Listeners[0].Port",
		`{"Kind":"api-gateway","Name":"e","Listeners":[{"Name":"a","Port":1,"Protocol":"udp"}]}`:  "Listeners[0].Protocol",
		`{"Kind":"api-gateway","Name":"e","Listeners":[{"Name":"a","Port":1,"Protocol":"http"},{"Name":"b","Port":1,` +
			`"Protocol":"tcp"}]}`: "Listeners[1].Port",
		`{"Kind":"api-gateway","Name":"e","Listeners":[{"Name":"a","Port":1,"Protocol":"http","Hostname":"a.*.b"}]}`: "Hostname",
		`{"Kind":"api-gateway","Name":"e","Listeners":[{"Name":"a","Port":1,"Protocol":"http","TLS":{"Certificates":[{` +
			`"Kind":"x","Name":"c"}]}}]}`: "Certificates[0].Kind",
		`{"Kind":"api-gateway","Name":"e","Listeners":[{"Name":"a","Port":1,"Protocol":"http","Override":{"JWT":{` +
			`"Providers":[{"Name":"p"}]}}}]}`: "Override.JWT",
		`{"Kind":"http-route","Name":"r","Parents":[{"Kind":"x","Name":"e"}]}`:                                          "Parents[0].Kind",
		`{"Kind":"http-route","Name":"r","Rules":[{"Services":[{"Name":""}]}]}`:                                         "Rules[0].Services[0].Name",
		`{"Kind":"http-route","Name":"r","Rules":[{"Matches":[{"Path":{"Match":"regex","Value":"("}}],"Services":[]}]}`: "Path.Value",
		`{"Kind":"http-route","Name":"r","Rules":[{"Matches":[{"Path":{"Match":"exact","Value":"x"}}],"Services":[]}]}`: "must begin with /",
		`{"Kind":"http-route","Name":"r","Rules":[{"Filters":{"JWT":{}},"Services":[]}]}`:                               "Filters.JWT",
		`{"Kind":"tcp-route","Name":"r","Services":[{"Name":"a"},{"Name":"b"}]}`:                                        "single service",
	} {
		if a := r.do("PUT", "/v1/config", body); a.status != http.StatusBadRequest || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %q", body, a.status, a.body, want)
		}
	}
}

// TestBoundAPIGateway: what is bound to a gateway is read like an entry, follows the entries that it is made of, and
// cannot be written.
func TestBoundAPIGateway(t *testing.T) {
	r := newRig(t, nil)
	put := func(body string) {
		t.Helper()
		if a := r.do("PUT", "/v1/config", body); a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
	}
	expect := func(path string, status int, want string) {
		t.Helper()
		if a := r.do("GET", path, ""); a.status != status || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %d with %s", path, a.status, a.body, status, want)
		}
	}
	expect("/v1/config/bound-api-gateway", 200, "[]")
	expect("/v1/config/bound-api-gateway/edge", 404, `Config entry not found for "bound-api-gateway" / "edge"`)
	put(`{"Kind":"api-gateway","Name":"edge","Meta":{"k":"v"},"Listeners":[{"Name":"web","Port":8443,"Protocol":"http",` +
		`"TLS":{"Certificates":[{"Kind":"file-system-certificate","Name":"c"}]}},` +
		`{"Name":"db","Port":5432,"Protocol":"tcp"}]}`)
	put(`{"Kind":"http-route","Name":"shop","Parents":[{"Name":"edge"}],"Rules":[{"Services":[{"Name":"shop"}]}]}`)
	put(`{"Kind":"tcp-route","Name":"one","Parents":[{"Name":"edge"}],"Services":[{"Name":"db"}]}`)
	put(`{"Kind":"tcp-route","Name":"two","Parents":[{"Name":"edge"}],"Services":[{"Name":"db"}]}`)
	const one = "/v1/config/bound-api-gateway/edge"
	expect(one, 200, `"Listeners":[{"Name":"web","Routes":[],"Certificates":[]},{"Name":"db","Routes":[`+
		`{"Kind":"tcp-route","Name":"one"}],"Certificates":[]}]`)
	put(`{"Kind":"file-system-certificate","Name":"c","Certificate":"/c.pem","PrivateKey":"/c.key"}`)
	expect(one, 200, `{"Name":"web","Routes":[{"Kind":"http-route","Name":"shop"}],"Certificates":[{`+
		`"Kind":"file-system-certificate","Name":"c"}]}`)
	expect(one, 200, `{"Kind":"bound-api-gateway","Name":"edge","Meta":{"k":"v"},`)
	expect("/v1/config/bound-api-gateway", 200, `[{"Kind":"bound-api-gateway"`)
	expect("/v1/config/bound-api-gateway?filter=Name==other", 200, "[]")
	put(`{"Kind":"http-route","Name":"shop","Parents":[{"Name":"other"}],"Rules":[{"Services":[{"Name":"shop"}]}]}`)
	expect(one, 200, `{"Name":"web","Routes":[],`)
	for _, a := range []response{r.do("PUT", "/v1/config", `{"Kind":"bound-api-gateway","Name":"edge"}`),
		r.do("DELETE", one, "")} {
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, "write the api-gateway and the routes") {
			t.Errorf("a write: %d %s", a.status, a.body)
		}
	}
	if a := r.do("DELETE", "/v1/config/api-gateway/edge", ""); a.status != http.StatusOK {
		t.Fatal(a.body)
	}
	expect(one, 404, "not found")
}
