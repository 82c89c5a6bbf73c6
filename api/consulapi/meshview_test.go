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
	"corbel.dev/corbel/catalog/statestore"
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
	case strings.HasPrefix(path, "/v1/internal/mesh/leaves"):
		return http.StatusOK, []byte(`[{"Node":"` + node + `","Service":"web","SerialNumber":"aa:` + node +
			`","RootID":"` + map[string]string{"n1": "r1", "n2": "gone"}[node] +
			`","ValidAfter":"2026-01-02T03:04:05Z","ValidBefore":"2126-01-02T03:04:05Z"}]`), nil
	case strings.HasPrefix(path, meshrows.MeshProxyPattern):
		if node != "n1" {
			return http.StatusNotFound, nil, nil
		}
		b, err := json.Marshal(m.proxy().Status)
		return http.StatusOK, b, err
	case node == "n1":
		return http.StatusOK,
			[]byte(`{"Proxies":1,"States":{"pending":1},"List":[{"Node":"n1","ID":"web-proxy","Service":"web",` +
				`"State":"pending"}]}`), nil
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
	if a := r.do("GET", "/v1/internal/mesh/status?services", ""); !strings.Contains(a.body, `"web":{"pending":1}`) {
		t.Errorf("the states of each service: %s", a.body)
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

// TestMeshCertificates: the hosts of a service tell of its certificate, the server judges them by the roots that there
// are, the worst first, and says who did not answer.
func TestMeshCertificates(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Mesh.CA = rootsOf("r1") })
	r.proxyOn("n1", "web-proxy", "web", "")
	r.proxyOn("n2", "a", "web", "")
	r.proxyOn("n3", "b", "web", "")
	for path, hosts := range map[string]int{"?service=web": 3, "?service=none": 1, "": 3} {
		var got struct {
			Hosts    int
			Services map[string]map[string]int
			List     []meshrows.HeldLeaf
			Silent   []struct{ Node, Error string }
		}
		a := r.do("GET", "/v1/internal/mesh/certificates"+path, "")
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.Hosts != hosts {
			t.Fatalf("%s: %v %s", path, err, a.body)
		}
		if hosts == 3 && (len(got.List) != 2 || got.List[0].State != meshrows.LeafStranger ||
			got.List[1].State != meshrows.LeafValid || got.Services["web"][meshrows.LeafValid] != 1 ||
			len(got.Silent) != 1 || got.Silent[0].Node != "n3") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// rootsOf is an authority whose one root is active.
type rootsOf string

// Roots implements meshrows.CA.
func (id rootsOf) Roots(*statestore.State) ([]meshrows.CARoot, error) {
	return []meshrows.CARoot{{ID: string(id), Active: true}}, nil
}

// Configuration implements meshrows.CA.
func (rootsOf) Configuration(*statestore.State) (meshrows.CAConfiguration, error) {
	return meshrows.CAConfiguration{}, errors.ErrUnsupported
}

// SetConfiguration implements meshrows.CA.
func (rootsOf) SetConfiguration(context.Context, []byte) error { return errors.ErrUnsupported }

// TestMeshTopology: who calls whom, and whether intentions let them.
func TestMeshTopology(t *testing.T) {
	r := newRig(t, nil)
	r.proxyOn("n1", "web-1", "web",
		`{"DestinationName":"api","LocalBindPort":1},{"DestinationName":"db","LocalBindPort":2}`)
	r.proxyOn("n2", "web-2", "web", `{"DestinationName":"api","LocalBindPort":1,"Datacenter":"DC1"},`+
		`{"DestinationName":"api","LocalBindPort":3,"Datacenter":"dc2"}`)
	r.want("PUT", "/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"deny"}`, 200, "true")
	r.want("GET", "/v1/internal/mesh/topology", "", 200, `{"Services":{"web":2},"Edges":[`+
		`{"Source":"web","Destination":"api","Proxies":2,"Allowed":true,"Reason":"default policy"},`+
		`{"Source":"web","Destination":"api","Datacenter":"dc2","Proxies":1,"Allowed":true,"Reason":"default policy"},`+
		`{"Source":"web","Destination":"db","Proxies":1,"Allowed":false,"Reason":"intention web =\u003e db"}]}`)
}
