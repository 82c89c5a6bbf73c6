package consulapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/api/consulapi/meshrows"
)

// keptMesh has one proxy on n1, and says of n3 that it does not answer.
type keptMesh struct{}

type keptStatus struct {
	Node, ID, Service, State string
	Streams                  int
}

func (keptMesh) proxy() meshrows.MeshProxy {
	s := keptStatus{"n1", "web-proxy", "web", "pending", 1}
	return meshrows.MeshProxy{Node: s.Node, ID: s.ID, Service: s.Service, State: s.State, Status: s}
}

func (m keptMesh) Proxies() []meshrows.MeshProxy { return []meshrows.MeshProxy{m.proxy()} }

func (m keptMesh) Proxy(node, id string) (meshrows.MeshProxy, bool) {
	return m.proxy(), id == "web-proxy" && (node == "" || node == "n1")
}

func (keptMesh) Settled(service string, index uint64) (bool, int, []string) {
	return index < 1000, 2, []string{"n1/" + service + "-proxy"}
}

func (keptMesh) Alive() []string { return []string{"n1", "n2", "n3"} }

func (keptMesh) Servers() []string { return []string{"n1"} }

func (m keptMesh) Reach(_ context.Context, node, path string) (int, []byte, error) {
	switch {
	case node == "n3":
		return 0, nil, errors.New("dial: no route")
	case strings.HasPrefix(path, meshrows.MeshProxyPattern):
		if node != "n1" {
			return http.StatusNotFound, nil, nil
		}
		b, err := json.Marshal(m.proxy().Status)
		return http.StatusOK, b, err
	case node == "n1":
		return http.StatusOK,
			[]byte(`{"Proxies":1,"States":{"pending":1},"List":[{"Node":"n1","ID":"web-proxy","State":"pending"}]}`), nil
	}
	return http.StatusOK,
		[]byte(`{"Proxies":2,"States":{"synced":2},"List":[{"Node":"n2","ID":"a","State":"synced"},{"Node":"n2","ID":"b",` +
			`"State":"synced"}]}`), nil
}

func (r *rig) proxyOn(node, id, service, upstreams string) {
	r.Helper()
	r.want("PUT", "/v1/catalog/register", `{"Node":"`+node+
		`","Address":"10.0.0.9","Service":{"Kind":"connect-proxy","ID":"`+id+`","Service":"`+id+`","Port":1,
		"Proxy":{"DestinationServiceName":"`+service+`","Upstreams":[`+upstreams+`]}}}`, 200, "true")
}

// TestMeshStatus: the hosts with proxies are asked, and it is said who did not answer.
func TestMeshStatus(t *testing.T) {
	r := newRig(t, nil)
	r.proxyOn("n1", "web-proxy", "web", `{"DestinationName":"api","LocalBindPort":1}`)
	r.proxyOn("n2", "a", "api", "")
	r.proxyOn("n3", "c", "api", "")
	r.proxyOn("far", "d", "api", "")
	var got struct {
		Proxies, Hosts int
		States         map[string]int
		List           []keptStatus
		Silent         []struct{ Node, Error string }
		Unattended     []string
	}
	if err := json.Unmarshal([]byte(r.do("GET", "/v1/internal/mesh/status", "").body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Proxies != 3 || got.Hosts != 3 || got.States["synced"] != 2 || len(got.List) != 1 || len(got.Silent) != 1 ||
		got.Silent[0].Node != "n3" || !slices.Equal(got.Unattended, []string{"far/d"}) {
		t.Errorf("%+v", got)
	}
	if err := json.Unmarshal([]byte(r.do("GET", "/v1/internal/mesh/status?all", "").body), &got); err != nil ||
		len(got.List) != 3 {
		t.Errorf("%+v %v", got, err)
	}
	r.want("GET", "/v1/internal/mesh/proxies", "", 200,
		`{"Proxies":1,"States":{"pending":1},"List":[{"Node":"n1","ID":"web-proxy","Service":"web","State":"pending",`+
			`"Streams":1}]}`)
	r.want("GET", "/v1/internal/mesh/proxy/none", "", 404, "*")
	r.want("GET", "/v1/internal/mesh/find/none", "", 404, "*")
	if a := r.do("GET", "/v1/internal/mesh/find/web", ""); a.status != 200 || !strings.Contains(a.body, `"web-proxy"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestMeshTopology: who calls whom, and whether intentions let them.
func TestMeshTopology(t *testing.T) {
	r := newRig(t, nil)
	r.proxyOn("n1", "web-1", "web",
		`{"DestinationName":"api","LocalBindPort":1},{"DestinationName":"db","LocalBindPort":2}`)
	r.proxyOn("n2", "web-2", "web", `{"DestinationName":"api","LocalBindPort":1}`)
	r.want("PUT", "/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"deny"}`, 200, "true")
	r.want("GET", "/v1/internal/mesh/topology", "", 200, `{"Services":{"web":2},"Edges":[`+
		`{"Source":"web","Destination":"api","Proxies":2,"Allowed":true,"Reason":"default policy"},`+
		`{"Source":"web","Destination":"db","Proxies":1,"Allowed":false,"Reason":"intention web =\u003e db"}]}`)
}
