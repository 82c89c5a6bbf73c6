package roundrobin

import (
	"reflect"
	"testing"
	"time"
)

func TestMessages(t *testing.T) {
	in := &told{server: "s1", boot: 7, seq: 3, full: true, changes: []change{{Ring{"default", "linux"}, "a", 5},
		{Ring{"default", "linux"}, "b", 0}}}
	if out, err := decodeTold(in.encode()); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%+v, %v", out, err)
	}
	p := promise{ok: true, promised: ballot{4, "s2"}, runs: time.Minute, noted: []note{{name{"default", "cpu"}, 9, "s2"}}}
	if out, err := decodePromise(p.encode()); err != nil || !reflect.DeepEqual(p, out) {
		t.Errorf("%+v, %v", out, err)
	}
	hands := []*Hand{{Namespace: "default", Check: "cpu", Due: -1, Over: time.Second, Total: 2,
		Shares: []Share{{"linux", "a", []Proxy{{0, "p0"}, {1, "p1"}}}}}}
	if out, err := decodeHands(encodeHands(hands)); err != nil || !reflect.DeepEqual(hands, out) {
		t.Errorf("%+v, %v", out, err)
	}
	for i := range encodeHands(hands) { // nothing at all is a record without fields
		if _, err := decodeHands(encodeHands(hands)[:i]); err == nil && i > 0 {
			t.Errorf("%d bytes of hands are read", i)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add((&told{server: "s", changes: []change{{Ring{"d", "l"}, "a", 5}}}).encode())
	f.Add((&promise{noted: []note{{name{"d", "c"}, 9, "s"}}}).encode())
	f.Add(encodeHands([]*Hand{{Shares: []Share{{"l", "a", []Proxy{{1, "p"}}}}}}))
	f.Add(encodeRefused([][]string{{"a"}, nil}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if in, err := decodeTold(b); err == nil {
			if out, err := decodeTold(in.encode()); err != nil || !reflect.DeepEqual(in, out) {
				t.Fatal(err)
			}
			newTable := newTable()
			newTable.take(in, 1)
			for _, c := range in.changes {
				newTable.ring(c.Ring)
			}
		}
		if p, err := decodePromise(b); err == nil {
			if out, err := decodePromise(p.encode()); err != nil || !reflect.DeepEqual(p, out) {
				t.Fatal(err)
			}
		}
		if hands, err := decodeHands(b); err == nil {
			if out, err := decodeHands(encodeHands(hands)); err != nil || !reflect.DeepEqual(hands, out) {
				t.Fatal(err)
			}
		}
		_, _ = decodeRefused(b)
	})
}

// Ticks whose time is long over do not fill the book, and a clock that was wrong holds nothing up.
func TestBookForgets(t *testing.T) {
	b := book{noted: map[name]note{}}
	now := time.Unix(1_800_000_000, 0)
	for i := range 10_000 {
		at := now.Add(time.Duration(i) * time.Second)
		if !b.note(ballot{1, "s"}, []note{{name: name{"d", string(rune(i))}, due: at.UnixNano()}}, at) {
			t.Fatal(i)
		}
	}
	if len(b.noted) > 200 {
		t.Errorf("%d ticks are kept", len(b.noted))
	}
	if b.note(ballot{0, "s"}, nil, now) {
		t.Error("a lesser ballot notes")
	}
	key := name{"d", "cpu"}
	r := newLeadership(ballot{2, "s"}, [][]note{{{key, now.Add(time.Hour).UnixNano(), "x"}}}, nil, time.Hour, now, 0)
	if !r.may(key, now.UnixNano()) {
		t.Error("a note of the far future holds a tick up")
	}
	r = newLeadership(ballot{2, "s"}, [][]note{{{key, now.UnixNano(), "x"}}}, nil, time.Hour, now, 0)
	if r.may(key, now.UnixNano()) || !r.may(key, now.Add(time.Second).UnixNano()) {
		t.Error("a tick that was noted is dealt, or the next one is not")
	}
	r = newLeadership(ballot{2, "s"}, nil, nil, time.Minute, now, 0)
	if r.may(key, now.Add(-2*time.Minute).UnixNano()) {
		t.Error("a tick from before the servers' start is dealt")
	}
}
