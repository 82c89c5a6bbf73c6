package nodemap

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

func TestOf(t *testing.T) {
	nodes := []Node{{"a", map[string]string{"rack": "r1"}, 0}, {"b", map[string]string{"rack": "r2"}, 2},
		{"c", map[string]string{"rack": "r1", "os": "linux"}, 1}, {"d", nil, 0}}
	keys := []string{"os", "rack"}
	for by, want := range map[string]*Map{
		"": {Groups: []Group{{"", "cwpp", []string{"b", "c", "a", "d"}}}, Keys: keys},
		"rack": {Groups: []Group{{"", "p", []string{"d"}}, {"r1", "wp", []string{"c", "a"}}, {"r2", "c", []string{"b"}}},
			Keys: keys},
		"none": {Groups: []Group{{"", "cwpp", []string{"b", "c", "a", "d"}}}, Keys: keys},
	} {
		if got := Of(by, slices.Values(nodes)); !reflect.DeepEqual(got, want) {
			t.Errorf("by %q: %+v, want %+v", by, got, want)
		}
	}
	if got := Of("rack", slices.Values([]Node{})); len(got.Groups) != 0 || got.Keys == nil {
		t.Errorf("of no node: %+v", got)
	}
}

// TestBounds: whatever a fleet writes into its metadata, groups, keys and names stay few, and no node is left out.
func TestBounds(t *testing.T) {
	var nodes []Node
	for i := range 10_000 {
		nodes = append(nodes, Node{fmt.Sprint("n", i), map[string]string{"own": fmt.Sprint(i % 1000),
			fmt.Sprint("k", i): ""}, i % 3})
	}
	got := Of("own", slices.Values(nodes))
	all := 0
	for _, g := range got.Groups {
		all += len(g.States)
		if len(g.Names) > maxNames || !slices.IsSortedFunc([]byte(g.States), func(a, b byte) int {
			return slices.Index([]byte("cwp"), a) - slices.Index([]byte("cwp"), b)
		}) {
			t.Errorf("%s: %d names, states %.40s", g.Name, len(g.Names), g.States)
		}
	}
	if all != len(nodes) || len(got.Groups) > maxGroups+1 || len(got.Keys) > maxKeys {
		t.Errorf("%d nodes in %d groups, %d keys", all, len(got.Groups), len(got.Keys))
	}
}
