package catalog

import (
	"bytes"
	"hash/crc32"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

func seedState(t testing.TB) *State {
	w := newWorld(t)
	w.ok(&Register{Node: Node{Name: "a", ID: "id", Address: "10.0.0.1", Meta: map[string]string{"k": "v"},
		Locality: &Locality{"r", "z"}},
		Service: &Service{ID: "x", Name: "Web", Tags: []string{"t"}, Kind: KindConnectProxy, Connect: Connect{
			ProxyDestination: "api",
			Proxy:            []byte("{}"),
		},
			TaggedAddresses: map[string]ServiceAddress{"lan": {"1.2.3.4", 80}}},
		Checks: []*Check{serf(Passing), {ID: "c", ServiceID: "x", Definition: []byte("{}")}}})
	w.ok(&SessionCreate{Session: Session{ID: "s", Node: "a", TTL: "10s", NodeChecks: []string{SerfHealthID},
		ServiceChecks: []ServiceCheckRef{{ID: "c"}}}})
	w.ok(&KV{Verb: KVLock, Pair: KVPair{Key: "f/k", Value: []byte("v"), Flags: 7, Session: "s"}})
	w.ok(&Records{Ops: []RecordOp{{RecordSet, Record{Kind: RecordQuery, Key: "q", Name: "n", Value: []byte("{}"),
		Session: "s", Node: "a"}}}})
	w.ok(set("gone", "v"))
	w.ok(&KV{Verb: KVDelete, Pair: KVPair{Key: "gone"}})
	return w.s
}

func FuzzDecodeCommand(f *testing.F) {
	n := node("a", "id")
	for _, c := range []Command{
		&Register{Node: n, Service: &Service{ID: "x", Name: "web"}, Checks: []*Check{serf(Warning)}}, &Deregister{Node: "a"},
		set("k", "v"),
		&RegisterBatch{Registrations: []*Register{{Node: n}}}, &SessionCreate{Session: Session{ID: "s", Node: "a"}},
		&SessionDestroy{ID: "s"},
		&Records{Ops: []RecordOp{{RecordCAS, record(RecordConfigEntry, "k", "n", "v")},
			{RecordDelete, record(RecordQuery, "q", "", "")}}},
		&ReapTombstones{Index: 7}, &Txn{Ops: []TxnOp{{KV: set("k", "v")}, {Verb: TxnSet, Node: &n},
			{Verb: TxnGet, Check: serf(Passing)}, {Verb: TxnCAS, Service: &Service{}}}},
	} {
		f.Add(EncodeCommand(nil, c))
	}
	base := seedState(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			if !errkind.Is(err, errkind.Corrupt) {
				t.Fatal("kind", err)
			}
			return
		}
		raw := EncodeCommand(nil, c)
		again, err := DecodeCommand(raw)
		if err != nil || !bytes.Equal(EncodeCommand(nil, again), raw) {
			t.Fatalf("%x does not come back: %v", raw, err)
		}
		one, _, _ := base.Apply([]Command{c})
		two, _, _ := base.Apply([]Command{again})
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
			head[4] == sectionEnd {
			return n
		}
	}
	return 0
}

// seal appends an end record with the right checksum.
func seal(b []byte) []byte {
	sum := crc32.Checksum(b, castagnoli)
	out, mark := pack.Begin(bytes.Clone(b))
	return pack.End(pack.Uint(pack.Uint(out, sectionEnd), uint64(sum)), mark)
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
		s, _, _ = s.Apply([]Command{&Register{Node: *n, SkipNodeUpdate: true, Checks: []*Check{serf(Critical)}},
			&Deregister{Node: n.Name}})
	}
	s, _, _ = s.Apply([]Command{&KV{Verb: KVDeleteTree}, &ReapTombstones{Index: 1 << 62}})
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
