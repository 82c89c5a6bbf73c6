package sketch

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"corbel.dev/corbel/kit/pack"
	"pgregory.net/rapid"
)

// someDistinct draws a Distinct with its model: which hash was seen in which slots.
func someDistinct(t *rapid.T, name string, limit, precision int) (*Distinct, map[uint64]uint64) {
	d, model := NewDistinct(limit, precision), map[uint64]uint64{}
	r := rand.New(rand.NewPCG(rapid.Uint64Range(0, 3).Draw(t, name+" seed"), 7)) // few seeds: parts overlap
	for range rapid.IntRange(0, 60).Draw(t, name+" count") {
		h, slot := r.Uint64(), r.IntN(MaxSlots)
		d.Add(h, slot)
		model[h] |= 1 << slot
	}
	return d, model
}

func modelCount(model map[uint64]uint64, slots uint64) (n uint64) {
	for _, s := range model {
		if s&slots != 0 {
			n++
		}
	}
	return n
}

// TestDistinctIsExactBelowItsLimit is the contract's `exact_below` (sections 2 and 10): exact, then a sketch for
// ever.
func TestDistinctIsExactBelowItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 80).Draw(t, "limit")
		d, model := someDistinct(t, "d", limit, 12)
		if d.Exact() != (len(model) <= limit) {
			t.Fatalf("%d hashes below a limit of %d: exact is %t", len(model), limit, d.Exact())
		}
		slots := rapid.Uint64().Draw(t, "slots")
		c, want := d.Count(slots), modelCount(model, slots)
		if d.Exact() && (c.Value != want || !c.Exact || c.Low != want || c.High != want) {
			t.Fatalf("%+v, want %d", c, want)
		}
		if !d.Exact() && (c.Exact || c.Low > want || want > c.High) {
			t.Fatalf("%+v does not hold %d", c, want)
		}
		d.Clear(^uint64(0))
		if d.Count(^uint64(0)).Value != 0 || !d.Empty() || d.Exact() != (len(model) <= limit) {
			t.Fatal("what was cleared is not empty, or a sketch became a set again")
		}
	})
}

// TestDistinctMerges: associative, commutative, idempotent, and the encoding is a function of the content.
func TestDistinctMerges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{10, 50, 200}).Draw(t, "limit")
		p := []int{rapid.IntRange(5, 8).Draw(t, "p"), rapid.IntRange(5, 8).Draw(t, "q"), 6}
		var parts [3][]byte
		for i := range parts {
			d, _ := someDistinct(t, string(rune('a'+i)), limit, p[i])
			parts[i] = d.Append(nil)
		}
		merged := func(order ...int) []byte {
			sum := read(t, parts[order[0]])
			for _, i := range order[1:] {
				sum.Merge(read(t, parts[i]), ^uint64(0), -1)
			}
			return sum.Append(nil)
		}
		want := merged(0, 1, 2)
		for _, order := range [][]int{{2, 1, 0}, {1, 0, 2}, {0, 1, 2, 0}, {2, 2, 1, 1, 0}} {
			if got := merged(order...); !bytes.Equal(got, want) {
				t.Fatalf("merged in the order %v: %x, want %x", order, got, want)
			}
		}
		right := read(t, parts[1])
		right.Merge(read(t, parts[2]), ^uint64(0), -1)
		left := read(t, parts[0])
		left.Merge(right, ^uint64(0), -1)
		if got := left.Append(nil); !bytes.Equal(got, want) {
			t.Fatal("a merge is not associative")
		}
	})
}

func read(t interface{ Fatal(...any) }, b []byte) *Distinct {
	r := pack.Read(b)
	d, err := ReadDistinct(r)
	if err != nil || r.Err() != nil || r.Len() != 0 {
		t.Fatal("what was written is not read: ", err)
	}
	return d
}

// TestPartDropAndMergeIsTheSame is what a hand-over of shards relies on: cut out, sent, merged, and nothing is lost.
func TestPartDropAndMergeIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const width = 4
		d, model := someDistinct(t, "d", rapid.SampledFrom([]int{5, 100}).Draw(t, "limit"), 6)
		before := d.Append(nil)
		moves := rapid.Uint64Range(0, 1<<16-1).Draw(t, "moves")
		in := func(part int) bool { return moves&(1<<part) != 0 }
		out := d.Part(width, in)
		if !bytes.Equal(d.Append(nil), before) {
			t.Fatal("a copy changes what it is of")
		}
		d.Drop(width, in)
		if d.Exact() != out.Exact() {
			t.Fatal("one of both became exact again")
		}
		if out.Exact() {
			for h := range model {
				if !in(int(h >> (64 - width))) {
					delete(model, h)
				}
			}
			if n := out.Count(^uint64(0)).Value; n != uint64(len(model)) {
				t.Fatalf("%d hashes moved, want %d", n, len(model))
			}
		}
		d.Merge(read(t, out.Append(nil)), ^uint64(0), -1)
		if !bytes.Equal(d.Append(nil), before) {
			t.Fatal("the parts together are not what was split")
		}
	})
}

// TestMergeIntoOneSlot is how minutes become hours.
func TestMergeIntoOneSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, model := someDistinct(t, "d", rapid.SampledFrom([]int{20, 100}).Draw(t, "limit"), 8)
		slots := rapid.Uint64().Draw(t, "slots")
		hour := NewDistinct(1000, 8)
		hour.Merge(d, slots, 3)
		got, want := hour.Count(1<<3), d.Count(slots)
		if got != want || hour.Count(^uint64(0)) != want || d.Exact() && got.Value != modelCount(model, slots) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func FuzzReadDistinct(f *testing.F) {
	d := NewDistinct(10, 3)
	f.Add(d.Append(nil))
	for i := range 8 {
		d.Add(uint64(i)*0x9E3779B97F4A7C15, i)
	}
	f.Add(d.Append(nil))
	for i := range 80 {
		d.Add(uint64(i)*0x9E3779B97F4A7C15, i%64)
	}
	f.Add(d.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ReadDistinct(pack.Read(b))
		if err != nil {
			return
		}
		once := d.Append(nil)
		if !bytes.Equal(read(t, once).Append(nil), once) {
			t.Fatal("what was read is not written the same way twice")
		}
		d.Count(^uint64(0))
		d.Drop(2, func(part int) bool { return part == 1 })
	})
}

func TestAddAllocatesOnlyToGrow(t *testing.T) {
	d, h := NewDistinct(1000, 12), uint64(0)
	add := func() {
		h += 0x9E3779B97F4A7C15
		d.Add(h, 1)
	}
	for range 800 {
		add()
	}
	if n := testing.AllocsPerRun(100, add); n != 0 {
		t.Errorf("%v allocations an exact hash", n)
	}
	for range 2000 {
		add()
	}
	if n := testing.AllocsPerRun(100, add); n != 0 {
		t.Errorf("%v allocations a sketched hash", n)
	}
}

// BenchmarkDistinctExact adds identities that are new half of the time, and prints the memory of one.
func BenchmarkDistinctExact(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	hashes := random(r, 3_000)
	b.ReportAllocs()
	bytes, n := 0, 0
	for i := 0; i < b.N; {
		d := NewDistinct(4096, 14)
		for j := 0; j < 2*len(hashes) && i < b.N; i, j = i+1, j+1 {
			d.Add(hashes[j%len(hashes)], j&63)
		}
		bytes, n = bytes+d.Bytes(), n+d.exact.count
	}
	b.ReportMetric(float64(bytes)/float64(n), "B/identity")
}
