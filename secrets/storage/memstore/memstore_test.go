package memstore

import (
	"testing"

	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/storagetest"
)

func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Kit{Open: func(*testing.T) storage.Backend { return New() }})
}

func BenchmarkBackend(b *testing.B) {
	storagetest.Bench(b, func(*testing.B) storage.Backend { return New() })
}
