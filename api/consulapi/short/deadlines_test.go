package short

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDeadlinesHeap compares the heap with a plain list.
func TestDeadlinesHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var heap deadlines
		var all []*parked
		epoch := time.Unix(0, 0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				m := &parked{deadline: epoch.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "deadline"))),
					index: rapid.Uint64Range(0, 3).Draw(t, "index")}
				heap.push(m)
				all = append(all, m)
			},
			"remove": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				heap.remove(all[i])
				if all[i].place != -1 {
					t.Fatal("a removed member has a place")
				}
				all = append(all[:i:i], all[i+1:]...)
			},
			"split": func(t *rapid.T) {
				index := rapid.Uint64Range(0, 4).Draw(t, "index")
				due := heap.split(nil, func(m *parked) bool { return m.index < index })
				var kept []*parked
				for _, m := range all {
					if m.index >= index {
						kept = append(kept, m)
					} else if m.place != -1 {
						t.Fatal("a due member has a place")
					}
				}
				if len(due)+len(kept) != len(all) {
					t.Fatalf("%d due and %d kept of %d", len(due), len(kept), len(all))
				}
				all = kept
			},
			"": func(t *rapid.T) {
				if len(heap) != len(all) {
					t.Fatalf("%d in the heap, %d in the list", len(heap), len(all))
				}
				for i, m := range heap {
					if m.place != i || i > 0 && m.deadline.Before(heap[(i-1)/2].deadline) {
						t.Fatalf("member %d is out of place", i)
					}
				}
			},
		})
	})
}
