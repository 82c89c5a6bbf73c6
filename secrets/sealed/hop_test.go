package sealed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// Hop finds just what a look at every key finds, whatever is in the index.
func TestHopAgainstAWalk(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		store := memstore.New()
		var keys []string
		hashes := make([]string, 1+r.IntN(40))
		for i := range hashes {
			hashes[i] = fmt.Sprintf("%c%02d", 'a'+rune(r.IntN(3)), r.IntN(30))
		}
		for range r.IntN(200) {
			keys = append(keys, fmt.Sprintf("p/%c%02d/%03d", 'a'+rune(r.IntN(3)), r.IntN(30), r.IntN(100)))
		}
		keys = append(keys, "o/a00/1", "q/a00/1")
		var ops []storage.Op
		for _, k := range keys {
			ops = append(ops, storage.Mark(k))
		}
		if err := store.Commit(t.Context(), 0, ops); err != nil {
			t.Fatal(err)
		}
		asked := hashes[:r.IntN(len(hashes)+1)]
		most := r.IntN(40) // of one hash that each wants to see
		var got, want []string
		seen := map[string]int{}
		v := &Store{Under: store}
		err := v.Hop(t.Context(), "p/", asked, func(hash, key string) error {
			if seen[hash]++; seen[hash] > most {
				return ErrNextHash
			}
			got = append(got, key)
			if seen[hash] == most {
				return ErrNextHash
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		sort.Strings(keys)
		of := map[string]int{}
		for _, key := range slices.Compact(keys) {
			hash, _, _ := strings.Cut(strings.TrimPrefix(key, "p/"), "/")
			if strings.HasPrefix(key, "p/") && slices.Contains(asked, hash) {
				if of[hash]++; of[hash] <= most {
					want = append(want, key)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: found %v, want %v", seed, got, want)
		}
	}
}
