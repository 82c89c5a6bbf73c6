package kvstore

import (
	"fmt"
	"testing"

	"corbel.dev/corbel/catalog"
)

// The walk through a prefix passes over the folders that did not change.
func TestWalkPassesOverFolders(t *testing.T) {
	empty := Empty()
	e := empty.Edit(1)
	e.Begin(2)
	put := func(key, value string) {
		if ok, err := e.Apply(&catalog.KV{Verb: catalog.KVSet,
			Pair: catalog.KVPair{Key: key, Value: []byte(value)}}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	for i := range 2000 {
		put(fmt.Sprintf("big/%04d/%05d", i/100, i), "v")
	}
	e.Begin(3)
	put("big/0003/00300", "new")
	s := e.Done()
	w := walk[*catalog.KVPair]{table: s.pairs, folders: s.folders, since: 2, steps: 1 << 20, of: pairKey}
	if !w.under("big/") || len(w.found) != 1 || w.found[0].Key != "big/0003/00300" {
		t.Fatalf("walked to %v", w.found)
	}
	if steps := 1<<20 - w.steps; steps > 250 { // 20 folders, and the 100 keys of one
		t.Errorf("the walk took %d steps", steps)
	}
}
