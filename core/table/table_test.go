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
		}
		versions = append(versions, version{edit.Done(), sorted(model)})
		for i, v := range versions {
			if !slices.Equal(content(v.table), v.want) || v.table.Len() != len(v.want) {
				t.Fatalf("version %d changed: %v, want %v", i, content(v.table), v.want)
			}
		}
	})
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
