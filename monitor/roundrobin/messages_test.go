package roundrobin

import (
	"reflect"
	"testing"
	"time"
)

// again is what is read of what m says.
func again[T any, M interface {
	*T
	message
}](m M) (M, error) {
	out := M(new(T))
	return out, decode("test", encode(m), out)
}

func TestMessages(t *testing.T) {
	in := &told{server: "s1", boot: 7, seq: 3, full: true, changes: []change{{Ring{"default", "linux"}, "a", 5},
		{Ring{"default", "linux"}, "b", 0}}}
	if out, err := again(in); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%+v, %v", out, err)
	}
	p := &promise{ok: true, promised: ballot{4, "s2"}, runs: time.Minute, noted: []note{{name{"default", "cpu"}, 9, "s2"}}}
	if out, err := again(p); err != nil || !reflect.DeepEqual(p, out) {
		t.Errorf("%+v, %v", out, err)
	}
	list := &hands{{Namespace: "default", Check: "cpu", Due: -1, Over: time.Second, Total: 2,
		Shares: []Share{{"linux", "a", []Proxy{{0, "p0"}, {1, "p1"}}}}}}
	if out, err := again(list); err != nil || !reflect.DeepEqual(list, out) {
		t.Errorf("%+v, %v", out, err)
	}
	for i := range encode(list) { // nothing at all is a record without fields
		if err := decode("test", encode(list)[:i], &hands{}); err == nil && i > 0 {
			t.Errorf("%d bytes of hands are read", i)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(encode(&told{server: "s", changes: []change{{Ring{"d", "l"}, "a", 5}}}))
	f.Add(encode(&promise{noted: []note{{name{"d", "c"}, 9, "s"}}}))
	f.Add(encode(&hands{{Shares: []Share{{"l", "a", []Proxy{{1, "p"}}}}}}))
	f.Add(encode(&refused{{"a"}, nil}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if in := (&told{}); decode("test", b, in) == nil {
			if out, err := again(in); err != nil || !reflect.DeepEqual(in, out) {
				t.Fatal(err)
			}
			newTable := newTable()
			newTable.take(in, 1)
			for _, c := range in.changes {
				newTable.ring(c.Ring)
			}
		}
		if p := (&promise{}); decode("test", b, p) == nil {
			if out, err := again(p); err != nil || !reflect.DeepEqual(p, out) {
				t.Fatal(err)
			}
		}
		if list := (&hands{}); decode("test", b, list) == nil {
			if out, err := again(list); err != nil || !reflect.DeepEqual(list, out) {
				t.Fatal(err)
			}
		}
		_ = decode("test", b, &refused{})
	})
}
