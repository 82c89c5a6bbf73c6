package registry

import (
	"bytes"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/polltest"
)

// After an older snapshot came back the index passes all that were given away before,
// and nobody is told changes since one of them.
func TestIndexPassesARestoredSnapshot(t *testing.T) {
	r, _ := newRegistry(t, Config{}, true)
	stop := start(r)
	defer stop()
	set := func(value string) {
		apply(t, r, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "k", Value: []byte(value)}})
	}
	set("old")
	var saved bytes.Buffer
	if _, err := r.State().WriteTo(&saved); err != nil {
		t.Fatal(err)
	}
	set("newer")
	set("newest")
	was := r.State().Index()
	if err := r.Restore(&saved); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return r.State().Index() > was }, "the index to pass those of before the restore")
	if st := r.State(); st.Horizon() <= was || string(st.KV("k").Value) != "old" {
		t.Errorf("horizon %d after index %d, value %s", st.Horizon(), was, st.KV("k").Value)
	}
	if h := r.State().Record(catalog.RecordSystem, catalog.HistoryKey); h == nil {
		t.Error("the new history has no name")
	}
}

func TestOnApply(t *testing.T) {
	r, _ := newRegistry(t, Config{}, true)
	var seen []string
	r.OnApply(func(next *statestore.State, c *catalog.Changes) {
		if next != r.State() {
			t.Error("told before readers find the State")
		}
		switch {
		case c == nil:
			seen = append(seen, "restore")
		case len(c.KV) == 1:
			seen = append(seen, string(c.KV[0].After.Value))
		}
	})
	apply(t, r, set("k", "a"))
	apply(t, r, set("k", "a")) // changes nothing
	saved := snapshotOf(t, r)
	apply(t, r, set("k", "b"))
	if err := r.Restore(saved); err != nil {
		t.Fatal(err)
	}
	apply(t, r, set("k", "c"))
	if got := strings.Join(seen, " "); got != "a b restore c" {
		t.Errorf("told %s", got)
	}
}
