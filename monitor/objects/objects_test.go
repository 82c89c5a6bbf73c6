package objects

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

func op(verb Verb, typ, namespace, name string, object monitor.Object) Op {
	o := Op{Verb: verb, Type: typ, Namespace: namespace, Name: name}
	if object != nil {
		o.Encoded = tagproto.Append(nil, object)
	}
	return o
}

func namespace(name string) Op {
	return op(Put, "namespaces", "", name, &monitor.Namespace{Name: name})
}

func handler(verb Verb, namespace, name, command string) Op {
	return op(verb, "handlers", namespace, name, &monitor.Handler{Meta: monitor.Meta{Name: name, Namespace: namespace},
		Type: "pipe", Command: command})
}

func must(t *testing.T, s State, ops ...Op) State {
	t.Helper()
	next, err := s.Apply(ops)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestApply(t *testing.T) {
	s := must(t, New(), namespace("default"))
	s = must(t, s, handler(Create, "default", "slack", "a"))
	for _, c := range []struct {
		name string
		op   Op
		want errkind.Kind
	}{
		{"create what is there", handler(Create, "default", "slack", "b"), errkind.Conflict},
		{"no such namespace", handler(Put, "dev", "slack", "b"), errkind.NotFound},
		{"no namespace", handler(Put, "", "slack", "b"), errkind.Invalid},
		{"delete what is not there", op(Delete, "handlers", "default", "x", nil), errkind.NotFound},
		{"unknown type", op(Put, "things", "default", "x", nil), errkind.Invalid},
		{"another name within", Op{Verb: Put, Type: "handlers", Namespace: "default", Name: "other",
			Encoded: handler(Put, "default", "slack", "b").Encoded}, errkind.Invalid},
		{"a namespace that is not empty", op(Delete, "namespaces", "", "default", nil), errkind.Conflict},
	} {
		if next, err := s.Apply([]Op{handler(Put, "default", "other", "x"), c.op}); errkind.Of(err) != c.want ||
			next.Get("handlers", "default", "other") != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	before := s.Get("handlers", "default", "slack")
	changed := handler(Put, "default", "slack", "b")
	changed.If = before.Index
	next := must(t, s, changed)
	if h := next.Get("handlers", "default", "slack").Object().(*monitor.Handler); h.Command != "b" ||
		before.Object().(*monitor.Handler).Command != "a" {
		t.Error("an object is replaced, never changed")
	}
	if _, err := next.Apply([]Op{changed}); !errors.Is(err, ErrPrecondition) {
		t.Error("an old index:", err)
	}
}

func TestNamespaces(t *testing.T) {
	s := must(t, New(), namespace("dev"))
	if s.Get("roles", "dev", pipelineRole) == nil || s.Get("rolebindings", "dev", pipelineRole) == nil {
		t.Fatal("a namespace has no role for its pipelines")
	}
	s = must(t, s, op(Delete, "namespaces", "", "dev", nil))
	if s.Len() != 0 {
		t.Fatalf("%d objects are left of it", s.Len())
	}
}

func TestListPages(t *testing.T) {
	s := must(t, New(), namespace("a"), namespace("b"))
	for i := range 5 {
		s = must(t, s, handler(Put, "a", fmt.Sprint("h", i), "x"), handler(Put, "b", fmt.Sprint("h", i), "x"))
	}
	for _, ns := range []string{"", "a", "b"} {
		var all, paged []string
		s.List("handlers", ns, "", "", func(i *Item) bool { all = append(all, i.Namespace+"/"+i.Name); return true })
		afterNS, after := "", ""
		for {
			n := 0
			s.List("handlers", ns, afterNS, after, func(i *Item) bool {
				paged = append(paged, i.Namespace+"/"+i.Name)
				afterNS, after = i.Namespace, i.Name
				n++
				return n < 3
			})
			if n == 0 {
				break
			}
		}
		if want := map[string]int{"": 10, "a": 5, "b": 5}[ns]; len(all) != want || !slices.Equal(all, paged) {
			t.Errorf("%q: %v, by pages %v", ns, all, paged)
		}
	}
}

// A member that read a snapshot goes on as one that applied all commands.
func TestSnapshotAndCommands(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := must(t, New(), namespace("a"), namespace("b"))
	copied := s
	for i := range 3000 {
		ns, name := []string{"a", "b", "c"}[rng.IntN(3)], fmt.Sprint("h", rng.IntN(30))
		ops := []Op{handler(Verb(1+rng.IntN(3)), ns, name, fmt.Sprint(i))}
		read, err := DecodeCommand(AppendCommand(nil, ops))
		if err != nil {
			t.Fatal(err)
		}
		var e1, e2 error
		s, e1 = s.Apply(ops)
		copied, e2 = copied.Apply(read)
		if fmt.Sprint(e1) != fmt.Sprint(e2) {
			t.Fatalf("%v and %v", e1, e2)
		}
		if i%500 == 0 {
			if copied, err = ReadSnapshot(copied.Snapshot()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !reflect.DeepEqual(s.Snapshot(), copied.Snapshot()) {
		t.Fatal("the states differ")
	}
}

func TestDamagedSnapshot(t *testing.T) {
	b := must(t, New(), namespace("a"), handler(Put, "a", "h", "x")).Snapshot()
	for i := range b {
		b[i] ^= 4
		if _, err := ReadSnapshot(b); errkind.Of(err) != errkind.Corrupt {
			t.Fatalf("byte %d: %v", i, err)
		}
		b[i] ^= 4
	}
}

func FuzzDecodeCommand(f *testing.F) {
	f.Add(AppendCommand(nil, []Op{namespace("a"), handler(Put, "a", "h", "x")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ops, err := DecodeCommand(b)
		if err != nil {
			return
		}
		if next, err := New().Apply(ops); err == nil {
			if _, err := ReadSnapshot(next.Snapshot()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What many entities have in common is kept once, and is the same as before.
func TestEntitiesShareWhatTheyHaveInCommon(t *testing.T) {
	s := New()
	redact := []string{"password", "passwd", "pass", "api_key", "api_token", "access_key", "secret_key",
		"private_key", "secret"}
	var got []*monitor.EntityConfig
	for _, name := range []string{"a", "b"} {
		c := &monitor.EntityConfig{Meta: monitor.Meta{Name: name, Namespace: "default"}, Class: "agent", User: "agent",
			Subscriptions: []string{"linux", "entity:" + name}, Redact: redact}
		next, err := s.Apply([]Op{namespace("default"), op(Put, "entities", "default", name, c)})
		if err != nil {
			t.Fatal(err)
		}
		s = next
		kept := s.Get("entities", "default", name).Object().(*monitor.EntityConfig)
		if !reflect.DeepEqual(kept, c) {
			t.Fatalf("%+v, want %+v", kept, c)
		}
		got = append(got, kept)
	}
	if unsafe.StringData(got[0].Subscriptions[0]) != unsafe.StringData(got[1].Subscriptions[0]) ||
		unsafe.StringData(got[0].User) != unsafe.StringData(got[1].User) ||
		&got[0].Redact[0] != &got[1].Redact[0] {
		t.Fatal("each has texts of its own")
	}
}

// BenchmarkEntityBytes tells what an entity's configuration takes on each server.
func BenchmarkEntityBytes(b *testing.B) {
	const many = 10_000
	redact := []string{"password", "passwd", "pass", "api_key", "api_token", "access_key", "secret_key",
		"private_key", "secret"}
	for range b.N {
		before := liveBytes()
		s, err := New().Apply([]Op{namespace("default")})
		if err != nil {
			b.Fatal(err)
		}
		for i := range many {
			name := fmt.Sprintf("agent-%05d", i)
			c := &monitor.EntityConfig{Meta: monitor.Meta{Name: name, Namespace: "default"}, Class: "agent", User: "agent",
				Subscriptions: []string{"linux", "entity:" + name}, Redact: redact}
			if s, err = s.Apply([]Op{op(Put, "entities", "default", name, c)}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(liveBytes()-before)/many, "B/entity")
		runtime.KeepAlive(s)
	}
}

func liveBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
