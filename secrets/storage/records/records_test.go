package records

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"corbel.dev/corbel/secrets/storage"
)

// sound checks the invariants of a set's blocks.
func sound(t interface{ Fatalf(string, ...any) }, s Set) {
	last, count, bytes := "", 0, 0
	for b := range s.blocks.All() {
		n := 0
		for r := b.cursor(); r.next(); n++ {
			key := r.key()
			if key <= last {
				t.Fatalf("%q stands behind %q", key, last)
			}
			if n > 0 && r.shared != common(key, b.first()) {
				t.Fatalf("%q shares %d bytes with %q", key, r.shared, b.first())
			}
			last, count, bytes = key, count+1, bytes+r.size()
		}
		if n == 0 || n > 1 && len(b) > blockBytes+16 {
			t.Fatalf("a block of %d records and %d bytes", n, len(b))
		}
	}
	if count != s.Len() || bytes != s.Bytes() {
		t.Fatalf("%d records of %d bytes, the set says %d of %d", count, bytes, s.Len(), s.Bytes())
	}
}

// A set answers as a plain map does, whatever was done to it, and older sets stay as they were.
func TestSetIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", "a/", "a/b/", "b/", "aa"}).Draw(t, "folder") +
				fmt.Sprint(rapid.IntRange(0, 60).Draw(t, "n"))
		})
		type version struct {
			set  Set
			want map[string]string
		}
		model := map[string]string{}
		set := New()
		var versions []version
		for range rapid.IntRange(1, 30).Draw(t, "commits") {
			var ops []storage.Op
			for range rapid.IntRange(1, 30).Draw(t, "ops") {
				key := keys.Draw(t, "key")
				if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
					ops = append(ops, storage.Delete(key))
					delete(model, key)
					continue
				}
				size := rapid.SampledFrom([]int{0, 1, 50, 130, 300, 2000, 5000}).Draw(t, "size")
				value := strings.Repeat(string(rune('a'+len(ops))), size)
				ops = append(ops, storage.Put(key, []byte(value)))
				model[key] = value
			}
			before := slices.Clone(ops)
			set = set.Apply(ops)
			if !slices.EqualFunc(before, ops, func(a, b storage.Op) bool { return a.Key == b.Key }) {
				t.Fatalf("the caller's operations were moved")
			}
			for _, op := range ops {
				for i := range op.Value {
					op.Value[i] = '!' // the set must keep nothing of them
				}
			}
			versions = append(versions, version{set, maps.Clone(model)})
		}
		for _, v := range versions {
			sound(t, v.set)
			same(t, v.set, v.want)
		}
		askAbout(t, set, model, keys)
	})
}

func same(t *rapid.T, s Set, want map[string]string) {
	all := s.Scan("", "", 0)
	names := slices.Sorted(maps.Keys(want))
	if len(all) != len(names) {
		t.Fatalf("%d records, want %d", len(all), len(names))
	}
	for i, name := range names {
		if all[i].Key != name || string(all[i].Value) != want[name] {
			t.Fatalf("record %d is %q, want %q", i, all[i].Key, name)
		}
		if v, ok := s.Get(name); !ok || string(v) != want[name] {
			t.Fatalf("get %q: %.20q, %v", name, v, ok)
		}
	}
}

// askAbout compares reads at places that need not be in the set.
func askAbout(t *rapid.T, s Set, model map[string]string, keys *rapid.Generator[string]) {
	names := slices.Sorted(maps.Keys(model))
	for range 20 {
		from, to, limit := keys.Draw(t, "from"), keys.Draw(t, "to"), rapid.IntRange(0, 5).Draw(t, "limit")
		if _, ok := model[from]; !ok {
			if v, ok := s.Get(from); ok {
				t.Fatalf("get %q, which is not there: %q", from, v)
			}
		}
		var want []string
		for _, name := range names {
			if name >= from && name < to && (limit == 0 || len(want) < limit) {
				want = append(want, name)
			}
		}
		var got []string
		for _, r := range s.Scan(from, to, limit) {
			got = append(got, r.Key)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("scan from %q to %q, %d at most: %q, want %q", from, to, limit, got, want)
		}
		prefix := rapid.SampledFrom([]string{"", "a/", "a/b/", "c/"}).Draw(t, "prefix")
		want = nil
		for _, name := range names {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				if folder, _, deep := strings.Cut(rest, "/"); deep {
					rest = folder + "/"
				}
				if !slices.Contains(want, rest) {
					want = append(want, rest)
				}
			}
		}
		slices.Sort(want)
		if got := s.List(prefix, "", 0); !slices.Equal(got, want) {
			t.Fatalf("list %q: %q, want %q", prefix, got, want)
		}
	}
}

// leases are the records of tokens, some three for each as the keeper has them, in no order.
func leases(n int, seed uint64) []storage.Op {
	source := rand.New(rand.NewPCG(seed, 2))
	draw := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[source.IntN(62)]
		}
		return string(b)
	}
	var ops []storage.Op
	for i := range n {
		hash := draw(24)
		ops = append(ops, storage.Put("sys/token/id/"+hash, []byte(draw(133))),
			storage.Mark("sys/lease/id/auth/token/create/h"+hash),
			storage.Mark(fmt.Sprintf("sys/expire/at/%020d/%s", 1767225600_000000000+i*83_123_457, hash)))
	}
	return ops
}

// What a record costs beside its value is little: that of a million leases is counted on. Records of tokens take 243
// bytes here, of which the keys and values alone are 285: keys that stand beside each other share their beginning.
func TestBytesOfALease(t *testing.T) {
	const n = 5000
	set, ops := New(), leases(n, 1)
	for part := range slices.Chunk(ops, 30) {
		set = set.Apply(part)
	}
	sound(t, set)
	total := 0
	for b := range set.blocks.All() {
		total += len(b) + 16
	}
	if a := total / n; a > 250 {
		t.Errorf("a lease takes %d bytes", a)
	}
	var image bytes.Buffer
	if _, err := (Image{State: State{Set: set}}).WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	loaded, err := ReadImage(&image)
	if err != nil {
		t.Fatal(err)
	}
	sound(t, loaded.Set)
	for _, op := range ops {
		set = set.Apply([]storage.Op{storage.Delete(op.Key)})
	}
	if sound(t, set); set.Len() != 0 || set.blocks.Len() != 0 {
		t.Errorf("%d records in %d blocks are left of none", set.Len(), set.blocks.Len())
	}
}

// BenchmarkApply: a login's commit, and what a log's replay hands over at once, in a set of a million records.
func BenchmarkApply(b *testing.B) {
	set := New()
	for part := range slices.Chunk(leases(300_000, 1), 3000) { // blocks are as full as they come to be
		set = set.Apply(part)
	}
	for _, n := range []int{3, 100, 3000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			batches := slices.Collect(slices.Chunk(leases(10_000, 2), n))
			i := 0
			for b.Loop() {
				_ = set.Apply(batches[i%len(batches)])
				i++
			}
		})
	}
}

func BenchmarkImage(b *testing.B) {
	var raw bytes.Buffer
	set := New().Apply(leases(200_000, 1))
	if _, err := (Image{State: State{Set: set}}).WriteTo(&raw); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(raw.Len()))
	for b.Loop() {
		if _, err := ReadImage(bytes.NewReader(raw.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}
