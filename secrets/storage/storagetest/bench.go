package storagetest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/secrets/storage"
)

// Bench measures commits and reads from 16 goroutines, as the published comparison has connections.
func Bench(b *testing.B, open func(*testing.B) storage.Backend) {
	store := open(b)
	b.Cleanup(func() { _ = store.Close() })
	value := make([]byte, 130) // what the comparison's bodies come to
	var n atomic.Int64
	b.Run("commit", func(b *testing.B) {
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				key := fmt.Sprintf("logical/kv/write-random-test-%d", n.Add(1)%10_000)
				if err := store.Commit(b.Context(), 0, []storage.Op{storage.Put(key, value)}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.Run("get", func(b *testing.B) {
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				key := fmt.Sprintf("logical/kv/write-random-test-%d", n.Add(1)%10_000)
				if _, _, err := store.Get(b.Context(), key); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
