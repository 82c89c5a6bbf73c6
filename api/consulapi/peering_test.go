package consulapi

import (
	"context"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/peering"
)

// keptPeers takes every token and changes nothing.
type keptPeers struct{}

func (keptPeers) GenerateToken(context.Context, peering.TokenRequest) (string, error) {
	return "token", nil
}
func (keptPeers) Establish(context.Context, peering.EstablishRequest) error { return nil }
func (keptPeers) Delete(context.Context, string) error                      { return nil }
func (keptPeers) Stands(p *peering.Peering) (peering.State, peering.Status) {
	return p.State, peering.Status{}
}

// peer stores a peering and what is imported from it: web on the node n9, at 10.9.0.1.
func (r *rig) peer(name string) {
	r.Helper()
	p := &peering.Peering{ID: "id-" + name, Name: name, State: peering.Active}
	s := &peering.Service{Name: "web", Instances: []peering.Instance{{
		Node:    &catalog.Node{Name: "n9", Address: "10.9.0.1", Datacenter: "dc9"},
		Service: &catalog.Service{Node: "n9", ID: "web-1", Name: "web", Port: 80, Tags: []string{"far"}}}}}
	res, err := r.store.Apply(r.Context(), &catalog.Records{Ops: []catalog.RecordOp{p.Put(), {Verb: catalog.RecordSet,
		Record: catalog.Record{Kind: catalog.RecordImported, Key: peering.Key(name, "web"), Value: s.Encode()}}}})
	if err != nil || res.Err != nil || !res.OK {
		r.Fatal(res, err)
	}
}

// TestImportedServicesAnswerByPeer: what was imported shows by ?peer= alone, and what is of this cluster never does so.
func TestImportedServicesAnswerByPeer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.peer("east")
	const node = `{"ID":"","Node":"n9","Address":"10.9.0.1","Datacenter":"dc9","TaggedAddresses":null,"Meta":null,` +
		`"PeerName":"east"`
	for target, want := range map[string][]string{
		"/v1/health/service/web?peer=east": {`"Node":` + node, `"PeerName":"east"`, `"CheckID":"web-1:overall-check"`,
			`"Status":"passing"`},
		"/v1/health/service/WEB?peer=east&passing&tag=far":                {`"web-1"`},
		`/v1/health/service/web?peer=east&filter=Node.PeerName+==+"east"`: {`"web-1"`},
		"/v1/catalog/service/web?peer=east":                               {`"ServiceID":"web-1"`, `"PeerName":"east"`},
		"/v1/catalog/nodes?peer=east":                                     {node},
		"/v1/catalog/services?peer=east":                                  {`{"web":["far"]}`},
		"/v1/peering/east":                                                {`"ImportedServices":["web"]`},
	} {
		a := r.do("GET", target, "")
		for _, part := range want {
			if a.status != 200 || !strings.Contains(a.body, part) {
				t.Errorf("%s: %d %s lacks %s", target, a.status, a.body, part)
			}
		}
	}
	r.run([]step{
		{"GET", "/v1/health/service/web", "", 200, "[]"},
		{"GET", "/v1/catalog/services", "", 200, "{}"},
		{"GET", "/v1/health/service/web?peer=west", "", 200, "[]"},
		{"GET", "/v1/health/service/web?peer=east&tag=near", "", 200, "[]"},
		{"GET", "/v1/health/connect/web?peer=east", "", 200, "[]"},
		{"GET", "/v1/catalog/nodes?peer=west", "", 200, "[]"},
		{"GET", "/v1/peering/west", "", 404, `Peering not found for "west"`},
		{"POST", "/v1/peering/token", `{"PeerName":"a","Partition":"b"}`, 400,
			`Invalid Partition "b": Partitions are a Consul Enterprise feature`},
		{"POST", "/v1/peering/token", `{"PeerName":"a"}`, 200, `{"PeeringToken":"token"}`},
		{"POST", "/v1/peering/establish", `{"PeerName":"a","PeeringToken":"t"}`, 200, "{}"},
		{"DELETE", "/v1/peering/east", "", 200, ""},
	})
	for _, target := range []string{"/v1/health/node/n9?peer=east", "/v1/catalog/node/n9?peer=east",
		"/v1/health/state/any?peer=east", "/v1/health/checks/web?peer=east", "/v1/catalog/nodes?peer=east&since=1"} {
		if a := r.do("GET", target, ""); a.status != 400 || !strings.Contains(a.body, "peer: ") {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
}

// TestImportedServicesAskForRights: instances of a peer are seen by who may read services and nodes of their names.
func TestImportedServicesAskForRights(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for rules, seen := range map[string]bool{"": false, ruleWeb: false, ruleWeb + `node "n9" { policy = "read" }`: true} {
		token := g.token(rules, "")
		if a := g.as(token, "GET", "/v1/health/service/web?peer=east", ""); (a.body != "[]") != seen {
			t.Errorf("%q: %d %s", rules, a.status, a.body)
		}
	}
}
