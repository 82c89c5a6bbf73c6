package consulapi

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestHealthRows: which instances and checks each row of sections 6 and 7 gives, and in which order.
func TestHealthRows(t *testing.T) {
	r := newRig(t, nil)
	for _, body := range []string{
		`{"Node":"b","Address":"10.0.0.2","NodeMeta":{"rack":"1","os":"x"},"Service":{"ID":"web-3","Service":"web","Tags":["v1","edge"]},
			"Checks":[{"CheckID":"serfHealth","Name":"s","Status":"passing"},{"CheckID":"c3","Name":"c","ServiceID":"web-3","Status":"warning"}]}`,
		`{"Node":"a","Address":"10.0.0.1","NodeMeta":{"rack":"1"},"Service":{"ID":"web-2","Service":"web","Tags":["v1"]},
			"Checks":[{"CheckID":"serfHealth","Name":"s","Status":"passing"},{"CheckID":"c2","Name":"c","ServiceID":"web-2","Status":"passing"}]}`,
		`{"Node":"a","Address":"10.0.0.1","NodeMeta":{"rack":"1"},"Service":{"ID":"web-1","Service":"web","Tags":["v2"]},
			"Checks":[{"CheckID":"c1","Name":"c","ServiceID":"web-1","Status":"critical"}]}`,
		`{"Node":"c","Address":"10.0.0.3","Service":{"ID":"db","Service":"db"},"Checks":[{"CheckID":"serfHealth",` +
			`"Name":"s","Status":"critical"}]}`,
		`{"Node":"a","Address":"10.0.0.1","NodeMeta":{"rack":"1"},"Service":{"ID":"proxy","Service":"web-proxy",` +
			`"Kind":"connect-proxy","Proxy":{"DestinationServiceName":"web"}}}`,
		`{"Node":"a","Address":"10.0.0.1","NodeMeta":{"rack":"1"},"Service":{"ID":"native","Service":"web","Tags":["v3"],` +
			`"Connect":{"Native":true}}}`,
	} {
		r.want("PUT", "/v1/catalog/register", body, 200, "true")
	}
	// seen is what a row gives: instances with their checks behind them, or the names of what is listed.
	seen := func(path string) string {
		a := r.want("GET", "/v1/"+path, "", 200, "*")
		var entries []struct {
			Service         *struct{ ID string }
			Checks          []struct{ CheckID string }
			ServiceID, Node any
			CheckID         string
		}
		if err := json.Unmarshal([]byte(a.body), &entries); err != nil {
			t.Fatalf("%s: %v: %s", path, err, a.body)
		}
		var out []string
		for _, e := range entries {
			switch {
			case e.Service != nil:
				ids := []string{}
				for _, c := range e.Checks {
					ids = append(ids, c.CheckID)
				}
				out = append(out, e.Service.ID+"("+strings.Join(ids, ",")+")")
			case e.CheckID != "":
				out = append(out, e.Node.(string)+":"+e.CheckID)
			case e.ServiceID != nil:
				out = append(out, e.ServiceID.(string))
			default:
				out = append(out, e.Node.(string))
			}
		}
		return strings.Join(out, " ")
	}
	for path, want := range map[string]string{
		"health/service/web": "native(serfHealth) web-1(serfHealth,c1) web-2(serfHealth,c2) web-3(serfHealth,c3)",
		// all checks pass: a warning does not
		"health/service/web?passing":   "native(serfHealth) web-2(serfHealth,c2)",
		"health/service/web?passing=1": "native(serfHealth) web-2(serfHealth,c2)",
		"health/service/web?passing=false": "native(serfHealth) web-1(serfHealth,c1) web-2(serfHealth,c2) " +
			"web-3(serfHealth,c3)",
		"health/service/WEB?tag=V1":          "web-2(serfHealth,c2) web-3(serfHealth,c3)", // in any case
		"health/service/web?tag=v1&tag=edge": "web-3(serfHealth,c3)",                      // all of the tags
		"health/service/web?node-meta=rack:1": "native(serfHealth) web-1(serfHealth,c1) web-2(serfHealth,c2) " +
			"web-3(serfHealth,c3)",
		"catalog/service/web?node-meta=os:x":            "web-3",
		"catalog/nodes?node-meta=rack:1&node-meta=os:x": "b",
		"health/connect/web":                            "native(serfHealth) proxy(serfHealth)",
		"catalog/connect/web":                           "native proxy",
		"health/checks/web":                             "a:c1 a:c2 b:c3", // none of the node's
		"health/node/a":                                 "a:c1 a:c2 a:serfHealth",
		"health/state/critical":                         "a:c1 c:serfHealth",
		"health/state/warning":                          "b:c3",
		"health/state/any?node-meta=os:x":               "b:c3 b:serfHealth",
		`health/state/any?filter=ServiceName==web`:      "a:c1 a:c2 b:c3",
		"catalog/service/web":                           "native web-1 web-2 web-3",
		"catalog/nodes":                                 "a b c",
	} {
		if got := seen(path); got != want {
			t.Errorf("%s\n got %s\nwant %s", path, got, want)
		}
	}
	r.want("GET", "/v1/health/counts/services", "", 200, `[{"Name":"db","Tags":[],"Instances":1,"Passing":0,"Warning":0,`+
		`"Critical":1},{"Name":"web","Tags":["edge","v1","v2","v3"],"Instances":4,"Passing":2,"Warning":1,"Critical":1},`+
		`{"Name":"web-proxy","Tags":[],"Instances":1,"Passing":1,"Warning":0,"Critical":0}]`)
	r.want("GET", "/v1/health/counts/nodes", "", 200, `[{"Node":"a","Status":"passing","Instances":4,"Passing":3,`+
		`"Warning":0,"Critical":1},{"Node":"b","Status":"passing","Instances":1,"Passing":0,"Warning":1,"Critical":0},`+
		`{"Node":"c","Status":"critical","Instances":1,"Passing":0,"Warning":0,"Critical":1}]`)
	r.want("GET", "/v1/catalog/services", "", 200, `{"db":[],"web":["edge","v1","v2","v3"],"web-proxy":[]}`)
	r.want("GET", "/v1/catalog/services?node-meta=os:x", "", 200, `{"web":["edge","v1"]}`)
	for path, part := range map[string]string{"catalog/node/a?filter=Service==%22web-proxy%22": `"Services":{"proxy":{"Kind":"connect-proxy"`,
		"catalog/node-services/a?filter=Service==%22web-proxy%22": `"Services":[{"Kind":"connect-proxy","ID":"proxy"`} {
		if a := r.do("GET", "/v1/"+path, ""); !strings.Contains(a.body, part) || strings.Contains(a.body, "web-1") ||
			!strings.Contains(a.body, `{"Node":{"ID":""`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
