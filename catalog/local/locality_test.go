package local

import (
	"testing"
	"testing/synctest"

	"corbel.dev/corbel/catalog"
)

func TestServicesAreWhereTheirHostIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		here := &catalog.Locality{Region: "north", Zone: "a"}
		l, stop := running(t, Config{Node: catalog.Node{Locality: here}, Servers: f,
			SidecarMinPort: 21000, SidecarMaxPort: 21001})
		defer stop()
		for _, body := range []string{withSidecar, `{"Name":"away","Locality":{"Region":"south"}}`} {
			if err := l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if f.node.Locality == nil || *f.node.Locality != *here {
			t.Errorf("the node is in %v", f.node.Locality)
		}
		for id, want := range map[string]catalog.Locality{"web-1": *here, "web-1-sidecar-proxy": *here,
			"away": {Region: "south"}} {
			if s := f.service(id); s == nil || s.Locality == nil || *s.Locality != want {
				t.Errorf("%s is %+v, want it in %v", id, s, want)
			}
		}
	})
}
