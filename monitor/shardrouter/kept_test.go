package shardrouter

import (
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/monitor/shards"
)

// TestKeepers: who keeps shards that are to go is told of after a while, and again each minute; who gives some away,
// is gone or may keep them is not.
func TestKeepers(t *testing.T) {
	var table shards.Table
	for i := range table {
		table[i] = shards.Shard{Owner: []string{"a", "b", "c", "d"}[i%4], Replica: "e"}
	}
	list := []shards.Server{{ID: "a", Leaving: true}, {ID: "b", Leaving: true}, {ID: "c"},
		{ID: "d", Leaving: true, Gone: true}, {ID: "e", Leaving: true}}
	whole := func(i int) bool { return i >= 8 }
	var all map[string]*kept
	now := time.Unix(1, 0)
	look := func(after time.Duration, stuck int, want ...string) {
		t.Helper()
		now = now.Add(after)
		next, tell, n := keepers(all, now, &table, list, whole)
		if all = next; !slices.Equal(tell, want) || n != stuck {
			t.Errorf("told of %v with %d shards, not of %v with %d", tell, n, want, stuck)
		}
	}
	look(0, 0)
	table[1].Owner = "a" // b gives one away, and a gets one
	look(keptAfter-1, 0)
	look(1, 65, "a")
	if k := all["a"]; k.shards != 65 || k.behind != 3 {
		t.Errorf("%+v", k)
	}
	look(keptAfter, 65+63, "b")
	look(keptAgain-keptAfter, 65+63, "a")
	list[0].Leaving = false
	look(1, 63)
	list[0].Leaving = true
	look(keptAfter-1, 63, "b")
}
