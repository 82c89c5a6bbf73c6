package shardrouter

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func TestKnown(t *testing.T) {
	var k known
	if k.has(0) || k.has(7) {
		t.Error("an empty table knows something")
	}
	k.drop(7)
	const n = 100_000
	r := rand.New(rand.NewPCG(1, 1))
	list := make([]uint64, n)
	for i := range list {
		list[i] = r.Uint64()
		k.add(list[i])
	}
	held := 0
	for _, sum := range list {
		if k.has(sum) {
			held++
		}
	}
	if held < n*98/100 {
		t.Errorf("%d of %d are known", held, n)
	}
	if k.has(r.Uint64()) || k.has(0) {
		t.Error("what was never added is known")
	}
	if k.drop(list[n-1]); k.has(list[n-1]) {
		t.Error("what was dropped is known")
	}
}

// It may forget while many use it, and fill up, and stays as large as it may be.
func TestKnownTogether(t *testing.T) {
	var k known
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range 50_000 {
				sum := r.Uint64()
				k.add(sum)
				k.has(sum)
				if sum%3 == 0 {
					k.drop(sum)
				}
			}
		})
	}
	all.Wait()
	if lines := len(*k.table.Load()); lines > knownMost || lines < 1<<14 {
		t.Errorf("%d lines", lines)
	}
}
