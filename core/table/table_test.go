package table

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

type item struct {
	key   int
	value int
}

func newTable() Table[item] {
	return New(func(a, b item) int { return cmp.Compare(a.key, b.key) })
}

func content(t Table[item]) []item { return slices.Collect(t.All()) }

func sorted(m map[int]int) []item {
	var out []item
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, item{k, m[k]})
	}
	return out
}

// Every version that was published must keep its content whatever happens later.
func TestVersionsStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			table Table[item]
			want  []item
		}
		edit, model := newTable().Edit(), map[int]int{}
		var versions []version
		for i := range rapid.IntRange(1, 400).Draw(t, "ops") {
			key := rapid.IntRange(0, 120).Draw(t, "key")
			switch rapid.IntRange(0, 6).Draw(t, "op") {
			case 0, 1, 2:
				_, had := model[key]
				if _, replaced := edit.Set(item{key, i}); replaced != had {
					t.Fatalf("set %d: replaced %v, want %v", key, replaced, had)
				}
				model[key] = i
			case 3:
				_, had := model[key]
				if _, deleted := edit.Delete(item{key: key}); deleted != had {
					t.Fatalf("delete %d: %v, want %v", key, deleted, had)
				}
				delete(model, key)
			case 4:
				versions = append(versions, version{edit.Done(), sorted(model)})
			case 5: // an excursion that is taken back
				saved := edit
				edit.Fork()
				edit.Set(item{key, -1})
				edit.Delete(item{key: key + 1})
				edit = saved
			case 6:
				if len(versions) > 0 { // a branch from an old version
					branch := versions[len(versions)/2].table.Edit()
					branch.Set(item{key, -2})
				}
			}
			if next, ok := edit.Next(item{key: key}); ok && next.key < key {
				t.Fatalf("next of %d is %d", key, next.key)
			}
			checkAround(t, edit.Table, model, key)
		}
		versions = append(versions, version{edit.Done(), sorted(model)})
		for i, v := range versions {
			if !slices.Equal(content(v.table), v.want) || v.table.Len() != len(v.want) {
				t.Fatalf("version %d changed: %v, want %v", i, content(v.table), v.want)
			}
		}
	})
}

// checkAround compares Around with the plain list of keys.
func checkAround(t *rapid.T, table Table[item], model map[int]int, key int) {
	before, hasBefore, after, hasAfter := table.Around(func(i item) int { return cmp.Compare(key, i.key) })
	wantBefore, wantAfter := -1, -1
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if k <= key {
			wantBefore = k
		} else if wantAfter < 0 {
			wantAfter = k
		}
	}
	if hasBefore != (wantBefore >= 0) || hasBefore && before.key != wantBefore || hasAfter != (wantAfter >= 0) ||
		hasAfter && after.key != wantAfter {
		t.Fatalf("around %d: %v %v and %v %v, want %d and %d", key, before, hasBefore, after, hasAfter, wantBefore, wantAfter)
	}
}

// sound checks the invariants of a node and of all below it, and returns the depth.
func sound(t *testing.T, n *node[item], root bool) int {
	if n == nil {
		return 0
	}
	if n.count < 1 || n.count > maxItems || !root && n.count == 0 {
		t.Fatalf("a node of %d items", n.count)
	}
	for _, free := range n.items[n.count:] {
		if free != (item{}) {
			t.Fatal("an item that is gone is still held")
		}
	}
	if n.kids == nil {
		return 1
	}
	depth := sound(t, n.kids[0], false)
	for i, kid := range n.kids[1:] {
		if (kid != nil) != (i < n.count) {
			t.Fatalf("child %d of a node of %d items: %v", i+1, n.count, kid)
		}
		if kid != nil && sound(t, kid, false) != depth {
			t.Fatal("leaves at different depths")
		}
	}
	return depth + 1
}

// Large tables grow and shrink again, in order and at random, and stay sound.
func TestGrowAndShrink(t *testing.T) {
	const n = 30_000
	for name, order := range map[string][]int{"random": rand.Perm(n), "up": upTo(n), "down": downFrom(n)} {
		edit, half := newTable().Edit(), Table[item]{}
		for i, key := range order {
			if name == "up" {
				edit.Load(item{key, key})
			} else {
				edit.Set(item{key, key})
			}
			if i == n/2 {
				half = edit.Done()
			}
		}
		sound(t, edit.root, true)
		if edit.Len() != n || half.Len() != n/2+1 {
			t.Fatal(name, edit.Len(), half.Len())
		}
		gone := map[int]bool{}
		for i, key := range rand.Perm(n) {
			if old, ok := edit.Delete(item{key: key}); !ok || old.value != key {
				t.Fatalf("%s: delete %d: %v %v", name, key, old, ok)
			}
			gone[key] = true
			if i%3000 != 0 {
				continue
			}
			sound(t, edit.root, true)
			want := -1
			for it := range edit.All() {
				for want++; gone[want]; want++ {
				}
				if it.key != want {
					t.Fatalf("%s: found %d, want %d", name, it.key, want)
				}
			}
			edit.Done()
		}
		if edit.Len() != 0 || edit.root != nil {
			t.Fatal("not empty")
		}
		sound(t, half.root, true)
		if got := len(content(half)); got != n/2+1 {
			t.Fatalf("%s: the older table has %d items", name, got)
		}
	}
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

func downFrom(n int) []int {
	out := upTo(n)
	slices.Reverse(out)
	return out
}

func TestSeekAndFind(t *testing.T) {
	edit := newTable().Edit()
	for i := range 5000 {
		edit.Set(item{key: 2 * i, value: i})
	}
	table := edit.Done()
	for _, key := range []int{-1, 0, 1, 777, 778, 9997, 9998, 9999} {
		at := func(it item) int { return cmp.Compare(key, it.key) }
		byPivot, ok1 := table.Get(item{key: key})
		byFunc, ok2 := table.Find(at)
		if byPivot != byFunc || ok1 != ok2 || ok1 != (key >= 0 && key%2 == 0 && key < 9999) {
			t.Fatal(key, byPivot, byFunc, ok1, ok2)
		}
		if !slices.Equal(slices.Collect(table.From(item{key: key})), slices.Collect(table.Seek(at))) {
			t.Fatalf("From and Seek differ at %d", key)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		key := rand.IntN(10_000)
		table.Find(func(it item) int { return cmp.Compare(key, it.key) })
	}); n != 0 {
		t.Fatalf("Find allocates %v times", n)
	}
}

func TestFromMinMax(t *testing.T) {
	edit := newTable().Edit()
	for i := range 1000 {
		edit.Load(item{key: 2 * i})
	}
	table := edit.Done()
	var got []int
	for it := range table.From(item{key: 1501}) {
		if got = append(got, it.key); len(got) == 3 {
			break
		}
	}
	if !slices.Equal(got, []int{1502, 1504, 1506}) {
		t.Fatal(got)
	}
	low, _ := table.Min()
	high, _ := table.Max()
	if low.key != 0 || high.key != 1998 {
		t.Fatal(low, high)
	}
	if _, ok := table.Next(item{key: 1999}); ok {
		t.Fatal("an item after the last")
	}
}

// Readers of a published Table run beside the writer; the race detector judges.
func TestReadersBesideWriter(t *testing.T) {
	edit := newTable().Edit()
	for i := range 2000 {
		edit.Set(item{key: i})
	}
	table := edit.Done()
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for i := range 2000 {
				if got, ok := table.Get(item{key: i}); !ok || got.value != 0 {
					t.Errorf("key %d: %v %v", i, got, ok)
					return
				}
			}
			if table.Len() != 2000 {
				t.Error("length changed")
			}
		})
	}
	for i := range 4000 {
		edit.Set(item{key: i, value: 1})
		if i%50 == 0 {
			edit.Done()
		}
	}
	group.Wait()
}

func BenchmarkSetBatch100(b *testing.B) {
	edit := newTable().Edit()
	for i := range 100_000 {
		edit.Set(item{key: i})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		edit.Set(item{key: rand.IntN(100_000), value: i})
		if i%100 == 0 {
			edit.Done()
		}
	}
}

// BenchmarkSetPointers is what the catalog does: items are pointers to what has its key within.
func BenchmarkSetPointers(b *testing.B) {
	edit := New(func(a, b *item) int { return cmp.Compare(a.key, b.key) }).Edit()
	for i := range 100_000 {
		edit.Set(&item{key: i})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		edit.Set(&item{key: rand.IntN(100_000), value: i})
		if i%100 == 0 {
			edit.Done()
		}
	}
}
