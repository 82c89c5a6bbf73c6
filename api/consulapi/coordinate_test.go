package consulapi

import (
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/queryrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/vivaldi"
)

// places keeps what was staged.
type places struct{ staged map[string]vivaldi.Coord }

func (p *places) Own() vivaldi.Coord { return lyingAt(7 * time.Millisecond) }

func (p *places) Stage(node string, c vivaldi.Coord) { p.staged[node] = c }

func (p *places) Datacenters() map[string][]operatorrows.NodeCoordinate {
	return map[string][]operatorrows.NodeCoordinate{"dc2": {{Node: "s2", Coord: lyingAt(80 * time.Millisecond)}},
		"dc1": {{Node: "s1", Coord: vivaldi.New()}}}
}

// lyingAt is that far from the origin.
func lyingAt(d time.Duration) vivaldi.Coord {
	c := vivaldi.New()
	c.Vec[0] = d.Seconds()
	return c
}

func (r *rig) lies(node string, d time.Duration) {
	r.Helper()
	c := lyingAt(d)
	key := strings.ToLower(node)
	res, err := r.store.Apply(r.Context(), &catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet,
		Record: catalog.Record{Kind: catalog.RecordCoordinate, Key: key, Node: key, Value: c.Append(nil)}}}})
	if err != nil || res.Err != nil {
		r.Fatal(err, res.Err)
	}
}

var nodeNames = regexp.MustCompile(`"Node":"([^"]+)"`)

// order is the nodes of a list as they come.
func order(body string) string {
	var names []string
	for _, m := range nodeNames.FindAllStringSubmatch(body, -1) {
		if len(names) == 0 || names[len(names)-1] != m[1] {
			names = append(names, m[1])
		}
	}
	return strings.Join(names, " ")
}

func TestCoordinates(t *testing.T) {
	p := &places{map[string]vivaldi.Coord{}}
	r := newRig(t, func(c *Config) { c.Operator.Coordinates, c.Agent.Place = p, p.Own })
	r.want("GET", "/v1/coordinate/nodes", "", 200, "[]")
	r.want("GET", "/v1/coordinate/node/Far", "", 404, "")
	for _, name := range []string{"Far", "mid", "near", "unknown"} {
		r.want("PUT", "/v1/catalog/register",
			`{"Node":"`+name+`","Address":"10.0.0.1","Service":{"Service":"web"},"Check":{"Name":"c","Status":"passing"}}`, 200,
			"true")
	}
	r.lies("Far", 80*time.Millisecond)
	r.lies("mid", 20*time.Millisecond)
	r.lies("near", 0)
	const far = `{"Node":"Far","Segment":"","Coord":{"Vec":[0.08,0,0,0,0,0,0,0],"Error":1.5,"Adjustment":0,` +
		`"Height":0.00001}}`
	r.want("GET", "/v1/coordinate/node/far", "", 200, "["+far+"]")
	if a := r.want("GET", "/v1/coordinate/nodes", "", 200, "*"); !strings.HasPrefix(a.body, "["+far) ||
		order(a.body) != "Far mid near" || a.header.Get("X-Consul-Index") == "" {
		t.Errorf("%s %v", a.body, a.header)
	}
	a := r.want("GET", "/v1/coordinate/datacenters", "", 200, "*")
	if !strings.HasPrefix(a.body,
		`[{"Datacenter":"dc1","AreaID":"wan","Coordinates":[{"Node":"s1","Segment":"","Coord":{"Vec":[0,`) ||
		!strings.Contains(a.body, `"Node":"s2"`) {
		t.Error(a.body)
	}
	if a := r.want("GET", "/v1/agent/self", "", 200, "*"); !strings.Contains(a.body, `"Coord":{"Vec":[0.007,0`) {
		t.Error(a.body)
	}
	r.want("PUT", "/v1/coordinate/update",
		`{"Node":"mid","Coord":{"Vec":[0.5,0,0,0,0,0,0,0],"Error":1,"Adjustment":0,"Height":0.001}}`, 200, "")
	if c := p.staged["mid"]; c.Vec[0] != 0.5 || c.Height != 0.001 {
		t.Errorf("staged %v", p.staged)
	}
	for _, body := range []string{`{}`, `{"Node":"mid"}`, `{"Node":"mid","Coord":{"Vec":[1]}}`,
		`{"Node":"mid","Coord":{"Vec":[0,0,0,0,0,0,0,0],"Error":-1}}`} {
		r.want("PUT", "/v1/coordinate/update", body, 400, "*")
	}
}

func TestNearSortsByDistance(t *testing.T) {
	r := newRig(t, nil)
	me := r.api.Identity.NodeName
	for _, name := range []string{"a-far", "b-mid", "c-near", "d-lost"} {
		r.want("PUT", "/v1/catalog/register",
			`{"Node":"`+name+
				`","Address":"10.0.0.1","Service":{"Service":"web","Proxy":{"DestinationServiceName":"db"},`+
				`"Kind":"connect-proxy"},"Check":{"Name":"c","Status":"passing","ServiceID":"web"}}`, 200, "true")
	}
	r.want("PUT", "/v1/catalog/register", `{"Node":"`+me+`","Address":"10.0.0.1"}`, 200, "true")
	const before = "a-far b-mid c-near d-lost"
	paths := []string{"/v1/catalog/service/web", "/v1/catalog/connect/db", "/v1/health/service/web",
		"/v1/health/connect/db", "/v1/health/checks/web", "/v1/health/state/any"}
	for _, path := range paths {
		if a := r.want("GET", path+"?near=c-near", "", 200, "*"); order(a.body) != before {
			t.Errorf("%s: nobody knows where anybody lies, yet %s", path, order(a.body))
		}
	}
	r.lies("a-far", 80*time.Millisecond)
	r.lies("b-mid", 20*time.Millisecond)
	r.lies("c-near", 0)
	r.lies(me, 70*time.Millisecond)
	for _, path := range paths {
		if a := r.want("GET", path, "", 200, "*"); order(a.body) != before {
			t.Errorf("%s: %s", path, order(a.body))
		}
		if a := r.want("GET", path+"?near=c-near", "", 200, "*"); order(a.body) != "c-near b-mid a-far d-lost" {
			t.Errorf("%s near c-near: %s", path, order(a.body))
		}
		if a := r.want("GET", path+"?near=_agent", "", 200, "*"); order(a.body) != "a-far b-mid c-near d-lost" {
			t.Errorf("%s near _agent: %s", path, order(a.body))
		}
		if a := r.want("GET", path+"?near=nobody", "", 200, "*"); order(a.body) != before {
			t.Errorf("%s near nobody: %s", path, order(a.body))
		}
	}
	if a := r.want("GET", "/v1/catalog/nodes?near=b-mid", "", 200, "*"); !strings.HasPrefix(order(a.body),
		"b-mid c-near") || !strings.HasSuffix(order(a.body), "d-lost") {
		t.Error(order(a.body))
	}
}

func TestQueriesKnowWhoAsks(t *testing.T) {
	r := newRig(t, nil)
	for i, name := range []string{"a-far", "b-mid", "c-near"} {
		address := "10.0.0." + string(rune('1'+i))
		r.want("PUT", "/v1/catalog/register", `{"Node":"`+name+`","Address":"`+address+`","Service":{"Service":"web"}}`, 200,
			"true")
	}
	r.want("PUT", "/v1/catalog/register", `{"Node":"n1","Address":"10.0.0.9"}`, 200, "true")
	r.lies("a-far", 80*time.Millisecond)
	r.lies("b-mid", 20*time.Millisecond)
	r.lies("c-near", 0)
	r.lies("n1", 90*time.Millisecond)
	r.want("POST", "/v1/query", `{"Name":"plain","Service":{"Service":"web"}}`, 200, "*")
	r.want("POST", "/v1/query", `{"Name":"agent","Service":{"Service":"web","Near":"_agent"}}`, 200, "*")
	r.want("POST", "/v1/query", `{"Name":"ip","Service":{"Service":"web","Near":"_ip"}}`, 200, "*")
	run := func(path, agent, from string) string {
		t.Helper()
		req := httptest.NewRequest("GET", path, nil)
		req.RemoteAddr = from
		if agent != "" {
			req.URL.RawQuery += "&" + rows.AskedParam + "=" + agent
		}
		return order(r.send(req).body)
	}
	const nearFirst, farFirst = "c-near b-mid a-far", "a-far b-mid c-near"
	for range 5 { // without an order they are shuffled
		for _, c := range []struct{ path, agent, from, want string }{
			{"/v1/query/plain/execute?near=c-near", "", "192.0.2.1:1", nearFirst},
			{"/v1/query/plain/execute?near=_agent", "", "192.0.2.1:1", farFirst},
			{"/v1/query/agent/execute", "", "192.0.2.1:1", farFirst},
			{"/v1/query/agent/execute", "c-near", "192.0.2.1:1", nearFirst},
			{"/v1/query/agent/execute?near=a-far", "c-near", "192.0.2.1:1", farFirst},
			{"/v1/query/ip/execute", "", "10.0.0.3:5", nearFirst},
			{"/v1/query/ip/execute?limit=1", "", "10.0.0.1:5", "a-far"},
		} {
			if got := run(c.path, c.agent, c.from); got != c.want {
				t.Errorf("%s by %q from %s: %s, want %s", c.path, c.agent, c.from, got, c.want)
			}
		}
	}
	got, err := r.api.Queries.ExecuteQuery(t.Context(),
		queryrows.QueryCall{Name: "ip", Source: netip.MustParseAddr("10.0.0.3")})
	if err != nil || len(got.Instances) != 3 || got.Instances[0].Node.Name != "c-near" {
		t.Errorf("%v, %v", got, err)
	}
}
