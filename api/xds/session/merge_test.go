package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMergeIsEntryForMany: many names at once give the entries that one after the other gives.
func TestMergeIsEntryForMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var one, many kind
		for range 3 {
			var names []string
			for range rng.IntN(40) {
				names = append(names, []string{"*", "", fmt.Sprint("x", rng.IntN(60))}[rng.IntN(3)])
			}
			for _, name := range names {
				if name != "*" {
					one.entry(name).named = true
				}
			}
			many.merge(slices.Clone(names))
			for _, name := range names {
				if name != "*" {
					many.entry(name).named = true
				}
			}
			if !slices.Equal(one.entries, many.entries) {
				t.Fatalf("%v: %v, want %v", names, many.entries, one.entries)
			}
		}
	}
}
