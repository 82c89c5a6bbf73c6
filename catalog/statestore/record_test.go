package statestore

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

func record(kind catalog.RecordKind, key, name, value string) catalog.Record {
	return catalog.Record{Kind: kind, Key: key, Name: name, Value: []byte(value)}
}

func TestRecordsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	w.ok(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: record(catalog.RecordACLPolicy, "1",
		"one", "a")},
		{Verb: catalog.RecordSet, Record: record(catalog.RecordACLPolicy, "2", "two", "b")}}})
	before := w.s
	for name, c := range map[string]struct {
		ops  []catalog.RecordOp
		kind errkind.Kind
	}{
		"a name that another has": {[]catalog.RecordOp{{Verb: catalog.RecordSet, Record: record(catalog.RecordACLPolicy,
			"3", "three", "")},
			{Verb: catalog.RecordSet, Record: record(catalog.RecordACLPolicy, "4", "two", "")}}, errkind.Conflict},
		"no key": {[]catalog.RecordOp{{Verb: catalog.RecordSet, Record: record(catalog.RecordACLPolicy, "1", "x", "")},
			{Verb: catalog.RecordSet, Record: record(catalog.RecordACLPolicy, "", "", "")}}, errkind.Invalid},
		"no kind": {[]catalog.RecordOp{{Verb: catalog.RecordSet, Record: record(0, "1", "", "")}},
			errkind.Invalid},
		"a kind out of range": {[]catalog.RecordOp{{Verb: catalog.RecordSet, Record: record(200, "1", "", "")}},
			errkind.Invalid},
		"an unknown verb": {[]catalog.RecordOp{{Verb: 99, Record: record(catalog.RecordQuery, "1", "", "")}},
			errkind.Invalid},
		"a session that is not": {[]catalog.RecordOp{{Verb: catalog.RecordSet,
			Record: catalog.Record{Kind: catalog.RecordQuery, Key: "q", Session: "s"}}},
			errkind.Conflict},
		"a node that is not": {[]catalog.RecordOp{{Verb: catalog.RecordSet,
			Record: catalog.Record{Kind: catalog.RecordCoordinate, Key: "q", Node: "n"}}},
			errkind.Conflict},
	} {
		r, changes := w.do(&catalog.Records{Ops: c.ops})
		if r.OK || errkind.Of(r.Err) != c.kind || w.s != before || !changes.Empty() {
			t.Errorf("%s: %+v, state changed: %v", name, r, w.s != before)
		}
	}
	stale := record(catalog.RecordACLPolicy, "2", "two", "c")
	stale.ModifyIndex = 1
	r, _ := w.do(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordDelete,
		Record: record(catalog.RecordACLPolicy, "1", "", "")}, {Verb: catalog.RecordCAS, Record: stale}}})
	if r.OK || r.Err != nil || w.s != before {
		t.Errorf("a stale index: %+v", r)
	}
	if got := w.s.RecordByName(catalog.RecordACLPolicy, "two"); got == nil || got.Key != "2" || got.CreateIndex != 2 ||
		got.ModifyIndex != 2 {
		t.Errorf("by name: %+v", got)
	}
	w.ok(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: record(catalog.RecordACLPolicy, "2",
		"two", "b")}}})
	if w.s != before {
		t.Error("an equal record took an index")
	}
	// A name may move within one command.
	w.ok(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordDelete, Record: record(catalog.RecordACLPolicy,
		"1", "", "")},
		{Verb: catalog.RecordSet, Record: record(catalog.RecordACLPolicy, "2", "one", "b")}}})
	if got := w.s.RecordByName(catalog.RecordACLPolicy, "one"); got == nil || got.Key != "2" ||
		w.s.RecordByName(catalog.RecordACLPolicy, "two") != nil {
		t.Errorf("after the move: %+v", got)
	}
}

// What belongs to a session or a node goes with it.
func TestRecordsAreTied(t *testing.T) {
	w := newWorld(t)
	w.ok(&catalog.Register{Node: node("Host", "id"), Checks: []*catalog.Check{serf(catalog.Passing)}})
	w.ok(&catalog.SessionCreate{Session: catalog.Session{ID: "s", Node: "host"}})
	w.ok(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet,
		Record: catalog.Record{Kind: catalog.RecordQuery, Key: "q", Session: "s"}},
		{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordCoordinate, Key: "host", Node: "HOST"}},
		{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordQuery, Key: "free"}}}})
	w.ok(&catalog.SessionDestroy{ID: "s"})
	if w.s.Record(catalog.RecordQuery, "q") != nil || w.s.Record(catalog.RecordCoordinate, "host") == nil ||
		w.s.RecordsIndex(catalog.RecordQuery) != w.s.Index() {
		t.Error("after the session's end")
	}
	w.ok(&catalog.Deregister{Node: "host"})
	if w.s.Record(catalog.RecordCoordinate, "host") != nil || w.s.Record(catalog.RecordQuery, "free") == nil ||
		w.s.Counts().Records != 1 {
		t.Error("after the node's end")
	}
}

// Records do what a map does, indexes grow exactly with what they stand for, and snapshots keep all.
func TestRecordsModel(t *testing.T) {
	kinds := []catalog.RecordKind{catalog.RecordACLToken, catalog.RecordQuery, catalog.RecordKinds - 1}
	rapid.Check(t, func(t *rapid.T) {
		s, model, index := Empty(), map[string]catalog.Record{}, map[catalog.RecordKind]uint64{}
		text := func(kind catalog.RecordKind, key string) string { return fmt.Sprint(kind, "/", key) }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			next := maps.Clone(model)
			var ops []catalog.RecordOp
			good, changed := true, map[catalog.RecordKind]bool{}
			for range rapid.IntRange(1, 3).Draw(t, "ops") {
				in := record(rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.SampledFrom([]string{"a", "ab", "b"}).Draw(t, "key"),
					rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "name"), rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"))
				old, here := next[text(in.Kind, in.Key)]
				in.ModifyIndex = rapid.SampledFrom([]uint64{0, old.ModifyIndex}).Draw(t, "index")
				verb := catalog.RecordVerb(rapid.IntRange(int(catalog.RecordSet), int(catalog.RecordCheck)).Draw(t, "verb"))
				ops = append(ops, catalog.RecordOp{Verb: verb, Record: in})
				if (verb == catalog.RecordCAS || verb == catalog.RecordDeleteCAS || verb == catalog.RecordCheck) &&
					in.ModifyIndex != old.ModifyIndex {
					good = false
				}
				switch verb {
				case catalog.RecordSet, catalog.RecordCAS:
					for _, other := range next {
						good = good && (in.Name == "" || other.Kind != in.Kind || other.Key == in.Key || other.Name != in.Name)
					}
					if !here || !old.Same(&in) {
						in.CreateIndex, in.ModifyIndex = s.Index()+1, s.Index()+1
						if here {
							in.CreateIndex = old.CreateIndex
						}
						next[text(in.Kind, in.Key)], changed[in.Kind] = in, true
					}
				case catalog.RecordDelete, catalog.RecordDeleteCAS:
					delete(next, text(in.Kind, in.Key))
					if here {
						changed[in.Kind] = true
					}
				}
			}
			after, results, _ := s.Apply([]catalog.Command{&catalog.Records{Ops: ops}})
			if results[0].OK != good {
				t.Fatalf("%+v: %+v, want %v", ops, results[0], good)
			}
			if good {
				model = next
				for kind := range changed {
					index[kind] = s.Index() + 1
				}
			}
			s = after
		}
		if reloaded := reload(t, s); reloaded.Hash() != s.Hash() {
			t.Fatal("the snapshot is another state")
		} else {
			s = reloaded
		}
		var got []string
		for _, kind := range kinds {
			if s.RecordsIndex(kind) != max(index[kind], 1) {
				t.Fatalf("index of kind %d: %d, want %d", kind, s.RecordsIndex(kind), index[kind])
			}
			for r := range s.Records(kind, "") {
				got = append(got, text(kind, r.Key))
				want := model[text(kind, r.Key)]
				if !r.Same(&want) || r.CreateIndex != want.CreateIndex || r.ModifyIndex != want.ModifyIndex ||
					r.Name != "" && s.RecordByName(kind, r.Name) != r || s.Record(kind, r.Key) != r {
					t.Fatalf("%+v, want %+v", *r, want)
				}
			}
		}
		slices.Sort(got)
		if want := slices.Sorted(maps.Keys(model)); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
