package consulapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestQueries(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"GET", "/v1/query", "", 200, "[]"},
		{"POST", "/v1/query", `{"Name":"q"}`, 400, "Must provide a Service name to query"},
		{"POST", "/v1/query", `{"ID":"x","Service":{"Service":"web"}}`, 400, "*"},
		{"POST", "/v1/query", `{"Name":"q","Session":"none","Service":{"Service":"web"}}`, 500, `invalid session "none"`},
		{"GET", "/v1/query/none", "", 404, "Query not found"},
		{"GET", "/v1/query/none/execute", "", 404, "Query not found"},
		{"GET", "/v1/query/none/explain", "", 404, "Query not found"},
		{"PUT", "/v1/query/none", `{"Service":{"Service":"web"}}`, 404, "Query not found"},
		{"DELETE", "/v1/query/none", "", 404, "Query not found"},
		{"PUT", "/v1/catalog/register",
			`{"Node":"n1","Address":"10.0.0.1","Service":{"Service":"web","Port":80,"Tags":["v1"]},"Check":{"CheckID":"c",` +
				`"ServiceID":"web","Status":"passing"}}`, 200, "true"},
		{"PUT", "/v1/catalog/register",
			`{"Node":"n2","Address":"10.0.0.2","Service":{"Service":"web","Port":80},"Check":{"CheckID":"c",` +
				`"ServiceID":"web","Status":"critical"}}`, 200, "true"},
	})
	a := r.do("POST", "/v1/query", `{"Name":"q","Token":"secret","Service":{"Service":"web"},"DNS":{"TTL":"7s"}}`)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || len(made.ID) != 36 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.want("POST", "/v1/query", `{"Name":"Q","Service":{"Service":"web"}}`, 500, "name 'Q' aliases an existing query name")
	for _, name := range []string{"q", made.ID} {
		a := r.do("GET", "/v1/query/"+name+"/execute", "")
		if a.status != 200 || !strings.HasPrefix(a.body, `{"Service":"web","Nodes":[{"Node":{`) ||
			strings.Contains(a.body, "n2") ||
			!strings.HasSuffix(a.body, `"DNS":{"TTL":"7s"},"Datacenter":"dc1","Failovers":0`+readMeta) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	r.run([]step{
		{"GET", "/v1/query/q/execute?limit=x", "", 400, "*"},
		{"GET", "/v1/query/q/execute?connect=true", "", 200,
			`{"Service":"web","Nodes":[],"DNS":{"TTL":"7s"},"Datacenter":"dc1","Failovers":0` + readMeta},
		{"PUT", "/v1/query/" + made.ID,
			`{"Name":"geo-","Template":{"Type":"name_prefix_match","Regexp":"^geo-(.+)$"},"Service":{"Service":"${match(1)}"}}`,
			200, ""},
		{"GET", "/v1/query/q/execute", "", 404, "Query not found"},
	})
	if a := r.do("GET", "/v1/query/geo-web/execute", ""); !strings.Contains(a.body, `"Node":"n1"`) {
		t.Errorf("by template: %d %s", a.status, a.body)
	}
	if a := r.do("GET", "/v1/query/geo-web/explain", ""); !strings.Contains(a.body, `"Service":{"Service":"web"`) {
		t.Errorf("explained: %d %s", a.status, a.body)
	}
	r.want("DELETE", "/v1/query/"+made.ID, "", 200, "")
	r.want("GET", "/v1/query", "", 200, "[]")
}

func TestQueriesSortByDistance(t *testing.T) {
	r := newRig(t, nil)
	me := r.api.Identity.NodeName
	for i, name := range []string{"a-far", "b-mid", "c-near", "d-lost"} {
		r.want("PUT", "/v1/catalog/register", fmt.Sprintf(`{"Node":%q,"Address":"10.0.0.%d","Service":{"Service":"web"}}`,
			name, i+1), 200, "true")
	}
	// httptest's client
	r.want("PUT", "/v1/catalog/register", fmt.Sprintf(`{"Node":%q,"Address":"192.0.2.1"}`, me), 200, "true")
	for name, d := range map[string]time.Duration{"a-far": 80, "b-mid": 20, "c-near": 0, me: 75} {
		r.lies(name, d*time.Millisecond)
	}
	for _, near := range []string{"", "b-mid", "_agent", "_ip"} {
		r.want("POST", "/v1/query", fmt.Sprintf(`{"Name":"by-%s","Service":{"Service":"web","Near":%q}}`, near, near), 200,
			"*")
	}
	for path, want := range map[string]string{
		"by-/execute?near=c-near": "c-near b-mid a-far d-lost", "by-b-mid/execute": "b-mid c-near a-far d-lost",
		"by-b-mid/execute?near=_agent": "a-far b-mid c-near d-lost", "by-_agent/execute": "a-far b-mid c-near d-lost",
		"by-_agent/execute?asked-agent=c-near": "c-near b-mid a-far d-lost", "by-_ip/execute": "a-far b-mid c-near d-lost",
		"by-b-mid/execute?limit=2": "b-mid c-near",
	} {
		if a := r.want("GET", "/v1/query/"+path, "", 200, "*"); order(a.body) != want {
			t.Errorf("%s: %s, want %s", path, order(a.body), want)
		}
	}
}
