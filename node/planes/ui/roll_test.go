package uiplane

import (
	"fmt"
	"net/url"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

const (
	fleetNodes  = 10_000
	fleetOnNode = 6
)

// fleetState has nodes of six instances and one check each.
func fleetState(t testing.TB, nodes int) *statestore.State {
	t.Helper()
	st := statestore.Empty()
	var batch []catalog.Command
	for n := range nodes {
		node := catalog.Node{Name: fmt.Sprintf("n%05d", n), Address: "10.0.0.1"}
		for i := range fleetOnNode {
			name := fmt.Sprintf("app-%04d", (n+i*331)%2000)
			batch = append(batch, &catalog.Register{Node: node, SkipNodeUpdate: i > 0,
				Service: &catalog.Service{ID: fmt.Sprint(name, "-", i), Name: name, Port: 80}})
		}
	}
	st, results, _ := st.Apply(batch)
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return flip(t, st, 0, catalog.Passing)
}

// flip sets the check of a node.
func flip(t testing.TB, st *statestore.State, n int, to catalog.Health) *statestore.State {
	t.Helper()
	name := fmt.Sprintf("n%05d", n)
	st, results, _ := st.Apply([]catalog.Command{&catalog.Register{Node: catalog.Node{Name: name, Address: "10.0.0.1"},
		Checks: []*catalog.Check{{Node: name, ID: "c", Name: "c", Status: to, Output: "it was " + to.String()}}}})
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	return st
}

func ask(t testing.TB, f *fleet, g *acl.Grant, st *statestore.State, query string) rowlists.Page[instanceRow] {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	v, err := f.instancesTopic(t.Context(), g, st, q)
	if err != nil {
		t.Fatal(err)
	}
	return v.(rowlists.Page[instanceRow])
}

var looks = []string{"rows=200", "rows=200&from=3000", "q=-state:passing", "service=app-0007",
	"service=app-0007&q=n000"}

// TestChangeOfManyRows: a change of one check among 60,000 instances makes the rows of its node anew and no others,
// whichever filters are looked at.
func TestChangeOfManyRows(t *testing.T) {
	st, f := fleetState(t, fleetNodes), newFleet(nil, nil)
	g := &acl.Grant{Authorizer: acl.Compile(acl.Write)}
	for _, q := range looks {
		ask(t, f, g, st, q)
	}
	if f.instances.Made() != fleetNodes*fleetOnNode {
		t.Fatalf("%d rows were made at first", f.instances.Made())
	}
	for n := range 10 {
		st = flip(t, st, 900*n, catalog.Warning)
		for _, q := range looks {
			ask(t, f, g, st, q)
		}
	}
	if made := f.instances.Made() - fleetNodes*fleetOnNode; made != 10*fleetOnNode {
		t.Errorf("%d rows were made for changes of ten nodes", made)
	}
	if got := ask(t, f, g, st, "q=-state:passing"); got.Matching != 10*fleetOnNode || got.All != fleetNodes*fleetOnNode {
		t.Errorf("unhealthy: %d of %d", got.Matching, got.All)
	}
}

// TestRollIsTheList: what is shown after changes is what a list made anew would show.
func TestRollIsTheList(t *testing.T) {
	st, f := fleetState(t, 600), newFleet(nil, nil)
	g := &acl.Grant{Authorizer: acl.Compile(acl.Write)}
	for step, change := range []struct {
		node int
		to   catalog.Health
	}{{7, catalog.Critical}, {500, catalog.Warning}, {7, catalog.Warning}, {4, catalog.Critical}, {7, catalog.Passing},
		{599, catalog.Warning}, {500, catalog.Critical}} {
		st = flip(t, st, change.node, change.to)
		if step == 3 {
			st, _, _ = st.Apply([]catalog.Command{&catalog.Deregister{Node: "n00008"},
				&catalog.Deregister{Node: "n00009", ServiceID: "app-0009-0"}})
		}
		anew := newFleet(nil, nil)
		for _, q := range looks {
			got, want := ask(t, f, g, st, q), ask(t, anew, g, st, q)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("step %d: %s shows\n%.600v\nwant\n%.600v", step, q, got, want)
			}
		}
	}
	got := ask(t, f, g, st, "q=-state:passing")
	if got.Matching != 3*fleetOnNode || got.All != 600*fleetOnNode-fleetOnNode-1 || got.Rows[0].State != "critical" ||
		got.Rows[0].Output != "it was critical" {
		t.Errorf("unhealthy: %+v", got)
	}
}

// BenchmarkChangeOfManyRows is what a change costs that five pages look at.
func BenchmarkChangeOfManyRows(b *testing.B) {
	st, f := fleetState(b, fleetNodes), newFleet(nil, nil)
	g := &acl.Grant{Authorizer: acl.Compile(acl.Write)}
	for _, q := range looks {
		ask(b, f, g, st, q)
	}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		st = flip(b, st, i%fleetNodes, catalog.Health(i%3))
		b.StartTimer()
		for _, q := range looks {
			ask(b, f, g, st, q)
		}
	}
}
