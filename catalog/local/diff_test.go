package local

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"corbel.dev/corbel/catalog"
	"pgregory.net/rapid"
)

func TestDiff(t *testing.T) {
	node := &catalog.Node{Name: "n", Address: "1"}
	a := &catalog.Service{ID: "a", Name: "a", Tags: []string{"x"}}
	overridden := &catalog.Service{ID: "a", Name: "a", Tags: []string{"x"}, EnableTagOverride: true}
	theirs := &catalog.Service{ID: "a", Name: "a", Tags: []string{"y"}, EnableTagOverride: true}
	up := &catalog.Check{ID: "c", ServiceID: "a", Output: "1"}
	newer := &catalog.Check{ID: "c", ServiceID: "a", Output: "2"}
	tests := []struct {
		name   string
		own    Own
		stored Stored
		want   Plan
	}{
		{"nothing there", Own{Node: node}, Stored{}, Plan{Node: true}},
		{"in sync", Own{Node: node, Services: services(a), Checks: checks(up)},
			Stored{node, list(services(a)), list(checks(up))},
			Plan{ServicesInSync: []string{"a"}, ChecksInSync: []string{"c"}}},
		{"node moved", Own{Node: node}, Stored{Node: &catalog.Node{Name: "n", Address: "2"}}, Plan{Node: true}},
		{"unknown service goes with its checks", Own{Node: node}, Stored{node, list(services(a)), list(checks(up))},
			Plan{RemoveServices: []string{"a"}}},
		{"unknown check", Own{Node: node, Services: services(a)}, Stored{node, list(services(a)), list(checks(up))},
			Plan{ServicesInSync: []string{"a"}, RemoveChecks: []string{"c"}}},
		{"what others own stays", Own{Node: node}, Stored{node, list(services(&catalog.Service{ID: "consul"})),
			list(checks(&catalog.Check{ID: "serfHealth"}, &catalog.Check{ID: "monitor:disk"}))}, Plan{}},
		{"tags of the catalog win", Own{Node: node, Services: services(overridden)},
			Stored{Node: node, Services: list(services(theirs))},
			Plan{Tags: map[string][]string{"a": {"y"}}, ServicesInSync: []string{"a"}}},
		{"output differs", Own{Node: node, Services: services(a), Checks: checks(newer)},
			Stored{node, list(services(a)), list(checks(up))},
			Plan{ServicesInSync: []string{"a"}, Checks: []string{"c"}}},
		{"output held back", Own{Node: node, Services: services(a), Checks: checks(newer),
			HeldBack: map[string]bool{"c": true}},
			Stored{node, list(services(a)), list(checks(up))}, Plan{ServicesInSync: []string{"a"}, ChecksInSync: []string{"c"}}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := fmt.Sprintf("%+v", Diff(tc.own, tc.stored)); got != fmt.Sprintf("%+v", tc.want) {
				t.Errorf("got  %s\nwant %+v", got, tc.want)
			}
		})
	}
}

func services(all ...*catalog.Service) map[string]*catalog.Service {
	m := map[string]*catalog.Service{}
	for _, s := range all {
		m[s.ID] = s
	}
	return m
}

func checks(all ...*catalog.Check) map[string]*catalog.Check {
	m := map[string]*catalog.Check{}
	for _, c := range all {
		m[c.ID] = c
	}
	return m
}

func list[V any](m map[string]V) []V {
	var all []V
	for _, k := range sorted(m) {
		all = append(all, m[k])
	}
	return all
}

// TestDiffConverges: carrying out a plan leaves a catalog that needs no further plan.
func TestDiffConverges(t *testing.T) {
	id := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	service := rapid.Custom(func(t *rapid.T) *catalog.Service {
		return &catalog.Service{ID: id.Draw(t, "id"), Name: id.Draw(t, "name"), Port: rapid.IntRange(0, 2).Draw(t, "port"),
			Tags: rapid.SliceOfN(id, 0, 2).Draw(t, "tags"), EnableTagOverride: rapid.Bool().Draw(t, "override")}
	})
	chk := rapid.Custom(func(t *rapid.T) *catalog.Check {
		return &catalog.Check{ID: id.Draw(t, "id"), ServiceID: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "service"),
			Status: catalog.Health(rapid.IntRange(0, 2).Draw(t, "status")), Output: id.Draw(t, "output")}
	})
	rapid.Check(t, func(t *rapid.T) {
		own := Own{Node: &catalog.Node{Name: "n", Address: "1"}, Services: services(rapid.SliceOf(service).Draw(t, "own")...),
			Checks: checks(rapid.SliceOf(chk).Draw(t, "own checks")...)}
		maps.DeleteFunc(own.Checks, func(_ string, c *catalog.Check) bool {
			return c.ServiceID != "" && own.Services[c.ServiceID] == nil
		})
		gotServices := services(rapid.SliceOf(service).Draw(t, "stored")...)
		gotChecks := checks(rapid.SliceOf(chk).Draw(t, "stored checks")...)
		p := Diff(own, Stored{Services: list(gotServices), Checks: list(gotChecks)})
		for _, id := range p.RemoveServices {
			delete(gotServices, id)
			maps.DeleteFunc(gotChecks, func(_ string, c *catalog.Check) bool { return c.ServiceID == id })
		}
		for _, id := range p.RemoveChecks {
			delete(gotChecks, id)
		}
		for id, tags := range p.Tags {
			s := *own.Services[id]
			s.Tags = tags
			own.Services[id] = &s
		}
		for _, id := range p.Services {
			gotServices[id] = own.Services[id]
		}
		for _, id := range p.Checks {
			gotChecks[id] = own.Checks[id]
		}
		again := Diff(own, Stored{own.Node, list(gotServices), list(gotChecks)})
		if again.Node || len(again.Services)+len(again.Checks)+len(again.RemoveServices)+len(again.RemoveChecks)+
			len(again.Tags) > 0 {
			t.Fatalf("after %+v there is still %+v", p, again)
		}
		if !slices.Equal(sorted(gotChecks), sorted(own.Checks)) {
			t.Fatalf("checks %v, want %v", sorted(gotChecks), sorted(own.Checks))
		}
	})
}
