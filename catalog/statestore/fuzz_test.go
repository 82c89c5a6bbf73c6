package statestore

import (
	"bytes"
	"hash/crc32"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/sections"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

func seedState(t testing.TB) *State {
	w := newWorld(t)
	w.ok(&catalog.Register{Node: catalog.Node{Name: "a", ID: "id", Address: "10.0.0.1", Meta: map[string]string{"k": "v"},
		Locality: &catalog.Locality{Region: "r", Zone: "z"}},
		Service: &catalog.Service{ID: "x", Name: "Web", Tags: []string{"t"}, Kind: catalog.KindConnectProxy,
			Connect: catalog.Connect{
				ProxyDestination: "api",
				Proxy:            []byte("{}"),
			},
			TaggedAddresses: map[string]catalog.ServiceAddress{"lan": {Address: "1.2.3.4", Port: 80}}},
		Checks: []*catalog.Check{serf(catalog.Passing), {ID: "c", ServiceID: "x", Definition: []byte("{}")}}})
	w.ok(&catalog.SessionCreate{Session: catalog.Session{ID: "s", Node: "a", TTL: "10s",
		NodeChecks:    []string{catalog.SerfHealthID},
		ServiceChecks: []catalog.ServiceCheckRef{{ID: "c"}}}})
	w.ok(&catalog.KV{Verb: catalog.KVLock, Pair: catalog.KVPair{Key: "f/k", Value: []byte("v"), Flags: 7, Session: "s"}})
	w.ok(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet,
		Record: catalog.Record{Kind: catalog.RecordQuery, Key: "q", Name: "n", Value: []byte("{}"),
			Session: "s", Node: "a"}}}})
	w.ok(set("gone", "v"))
	w.ok(&catalog.KV{Verb: catalog.KVDelete, Pair: catalog.KVPair{Key: "gone"}})
	return w.s
}

func FuzzDecodeCommand(f *testing.F) {
	n := node("a", "id")
	for _, c := range []catalog.Command{
		&catalog.Register{Node: n, Service: &catalog.Service{ID: "x", Name: "web"},
			Checks: []*catalog.Check{serf(catalog.Warning)}}, &catalog.Deregister{Node: "a"},
		set("k", "v"),
		&catalog.RegisterBatch{Registrations: []*catalog.Register{{Node: n}}},
		&catalog.SessionCreate{Session: catalog.Session{ID: "s", Node: "a"}},
		&catalog.SessionDestroy{ID: "s"},
		&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordCAS, Record: record(catalog.RecordConfigEntry, "k",
			"n", "v")},
			{Verb: catalog.RecordDelete, Record: record(catalog.RecordQuery, "q", "", "")}}},
		&catalog.ReapTombstones{Index: 7}, &catalog.Txn{Ops: []catalog.TxnOp{{KV: set("k", "v")}, {Verb: catalog.TxnSet,
			Node: &n},
			{Verb: catalog.TxnGet, Check: serf(catalog.Passing)}, {Verb: catalog.TxnCAS, Service: &catalog.Service{}}}},
	} {
		f.Add(catalog.EncodeCommand(nil, c))
	}
	base := seedState(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := catalog.DecodeCommand(b)
		if err != nil {
			if !errkind.Is(err, errkind.Corrupt) {
				t.Fatal("kind", err)
			}
			return
		}
		raw := catalog.EncodeCommand(nil, c)
		again, err := catalog.DecodeCommand(raw)
		if err != nil || !bytes.Equal(catalog.EncodeCommand(nil, again), raw) {
			t.Fatalf("%x does not come back: %v", raw, err)
		}
		one, _, _ := base.Apply([]catalog.Command{c})
		two, _, _ := base.Apply([]catalog.Command{again})
		if one.Hash() != two.Hash() {
			t.Fatal("applied differently after encoding")
		}
		if reload(t, one).Hash() != one.Hash() {
			t.Fatal("the snapshot is another state")
		}
	})
}

func FuzzReadState(f *testing.F) {
	for _, s := range []*State{Empty(), seedState(f)} {
		var b bytes.Buffer
		if _, err := s.WriteTo(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		// Without its end: the fuzz function adds one that fits, so that the checksum hides nothing.
		f.Add(b.Bytes()[:b.Len()-endBytes(b.Bytes())])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, input := range [][]byte{b, seal(b)} {
			readAny(t, input)
		}
	})
}

// endBytes is the length of the end record.
func endBytes(b []byte) int {
	for n := 6; n < len(b); n++ {
		if head := b[len(b)-n:]; int(head[0]) == n-4 && head[1] == 0 && head[2] == 0 && head[3] == 0 &&
			head[4] == sections.End {
			return n
		}
	}
	return 0
}

// seal appends an end record with the right checksum.
func seal(b []byte) []byte {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	out, mark := pack.Begin(bytes.Clone(b))
	return pack.End(pack.Uint(pack.Uint(out, sections.End), uint64(sum)), mark)
}

func readAny(t *testing.T, b []byte) {
	s, err := ReadState(bytes.NewReader(b))
	if err != nil {
		if s != nil || !errkind.Is(err, errkind.Corrupt) {
			t.Fatal("damage must give an error of kind Corrupt and no state", err)
		}
		return
	}
	if reload(t, s).Hash() != s.Hash() {
		t.Fatal("a state that was read does not come back")
	}
	// A State that was let in must also bear changes.
	for n := range s.Nodes() {
		s, _, _ = s.Apply([]catalog.Command{&catalog.Register{Node: *n, SkipNodeUpdate: true,
			Checks: []*catalog.Check{serf(catalog.Critical)}},
			&catalog.Deregister{Node: n.Name}})
	}
	s, _, _ = s.Apply([]catalog.Command{&catalog.KV{Verb: catalog.KVDeleteTree}, &catalog.ReapTombstones{Index: 1 << 62}})
	if c := s.Counts(); c.Nodes+c.Instances+c.Services+c.Checks+c.Sessions+c.KV != 0 {
		t.Fatalf("not empty after everything was removed: %+v", c)
	}
}

// Every cut and every flipped bit must be noticed.
func TestSnapshotDamage(t *testing.T) {
	var b bytes.Buffer
	if _, err := seedState(t).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for i := range whole {
		if _, err := ReadState(bytes.NewReader(whole[:i])); err == nil {
			t.Fatalf("cut at %d of %d not noticed", i, len(whole))
		}
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x10
		if _, err := ReadState(bytes.NewReader(damaged)); err == nil {
			t.Fatalf("damage at %d not noticed", i)
		}
	}
}
