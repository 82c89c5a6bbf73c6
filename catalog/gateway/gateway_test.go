package gateway

import (
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
)

// world is a State with these config entries, and a node with these services.
func world(t *testing.T, entries []string, services ...*catalog.Service) *statestore.State {
	t.Helper()
	st := statestore.Empty()
	apply := func(c catalog.Command) {
		next, results, _ := st.Apply([]catalog.Command{c})
		if results[0].Err != nil {
			t.Fatal(results[0].Err)
		}
		st = next
	}
	for _, body := range entries {
		e, err := entry.Decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := entry.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		apply(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet,
			Record: catalog.Record{Kind: catalog.RecordConfigEntry, Key: entry.Key(e.Base().Kind, e.Base().Name), Value: raw}}}})
	}
	for _, s := range services {
		apply(&catalog.Register{Node: catalog.Node{Name: "n", Address: "10.0.0.1"}, Service: s})
	}
	return st
}

func TestIngress(t *testing.T) {
	t.Parallel()
	st := world(t, []string{
		`{"Kind":"ingress-gateway","Name":"edge","Listeners":[{"Port":80,"Protocol":"http","Services":[{"Name":"*"}]},{` +
			`"Port":5432,"Protocol":"tcp","Services":[{"Name":"db"}]}]}`,
		`{"Kind":"ingress-gateway","Name":"second","Listeners":[{"Port":81,"Protocol":"tcp","Services":[{"Name":"db"}]}]}`,
		`{"Kind":"service-defaults","Name":"web","Protocol":"http"}`},
		&catalog.Service{ID: "edge-1", Name: "edge", Kind: catalog.KindIngressGateway, Port: 8443},
		&catalog.Service{ID: "edge-2", Name: "edge", Kind: catalog.KindIngressGateway, Port: 8444},
		&catalog.Service{ID: "impostor", Name: "edge", Port: 1},
		&catalog.Service{ID: "second", Name: "second", Kind: catalog.KindIngressGateway, Port: 8445},
		&catalog.Service{ID: "web", Name: "web", Port: 80})
	for service, want := range map[string]string{"web": "edge-1 edge-2 ", "DB": "edge-1 edge-2 second ",
		"db": "edge-1 edge-2 second ", "other": ""} {
		got := ""
		for s := range Ingress(st, service) {
			got += s.ID + " "
		}
		if got != want {
			t.Errorf("%s is reached through %q, want %q", service, got, want)
		}
	}
	if got, want := IngressIndex(st, "web"), st.ServiceIndex("edge"); got != want {
		t.Errorf("index %d, want that of the gateway's instances %d", got, want)
	}
	if got, want := IngressIndex(st, "other"), st.RecordsIndex(catalog.RecordConfigEntry); got != want {
		t.Errorf("index %d of what no gateway exposes, want that of the config entries %d", got, want)
	}
}
