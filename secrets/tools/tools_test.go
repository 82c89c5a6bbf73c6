package tools

import (
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/tables/tablestest"
)

// Rows that ask nobody answer by their body and path.
func TestRandomAndHash(t *testing.T) {
	d := tablestest.New(t)
	o := &Tools{Gate: d.Gate, Records: d.Store, Flying: d.Flying, Now: d.Now}
	const sum = `{"sum":"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}`
	if r, err := d.Ask(t.Context(), o.Rows(), secrets.Update, "tools/hash", `{"input":"YQ=="}`); err != nil ||
		string(r.Data) != sum {
		t.Errorf("hash: %+v, %v", r, err)
	}
	if r, err := d.Ask(t.Context(), o.Rows(), secrets.Update, "tools/random/4", `{"format":"hex"}`); err != nil ||
		len(r.Data) != len(`{"random_bytes":"01234567"}`) {
		t.Errorf("random: %+v, %v", r, err)
	}
	if _, err := d.Ask(t.Context(), o.Rows(), secrets.Update, "tools/random/0", ""); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("no bytes: %v", err)
	}
	if _, err := d.Ask(t.Context(), o.Rows(), secrets.Read, "metrics", ""); !errkind.Is(err, errkind.NotFound) {
		t.Errorf("metrics of a process that gives none: %v", err)
	}
}

// Each type of mounts without a table of its own lists its paths.
func TestRoutesOfTypes(t *testing.T) {
	d := tablestest.New(t)
	for kind := range engineRoutes {
		e := d.Mount("x/", kind, nil)
		if list, ok := RoutesOf(e, nil); !ok || len(list) == 0 {
			t.Errorf("%s lists no paths", kind)
		}
	}
}
