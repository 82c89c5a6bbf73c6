package cacheblobs

import (
	"context"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/redistest"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/counterstate/blobstest"
	"corbel.dev/corbel/usage/remote"
	"corbel.dev/corbel/usage/remote/rediscache"
)

// memory is a cache in this process.
type memory struct {
	remote.Store // what is not asked here
	mu           sync.Mutex
	values       map[string][]byte
	claims       map[string]bool
}

func (m *memory) Get(_ context.Context, keys ...string) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([][]byte, len(keys))
	for i, k := range keys {
		out[i] = m.values[k]
	}
	return out, nil
}

func (m *memory) Set(_ context.Context, items ...remote.Item) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, it := range items {
		m.values[it.Key] = append([]byte{}, it.Value...)
	}
	return nil
}

func (m *memory) Delete(_ context.Context, keys ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		delete(m.values, k)
		delete(m.claims, k)
	}
	return nil
}

func (m *memory) Add(_ context.Context, key string, _ time.Duration, _ ...string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims[key] {
		return 0, nil
	}
	m.claims[key] = true
	return 1, nil
}

func TestBlobs(t *testing.T) {
	m := &memory{values: map[string][]byte{}, claims: map[string]bool{}}
	open := func(*testing.T) counterstate.Blobs { return New(Config{Store: m}) }
	blobstest.Run(t, open, open)
}

// TestGone: a piece that the cache let go takes the whole blob with it.
func TestGone(t *testing.T) {
	m := &memory{values: map[string][]byte{}, claims: map[string]bool{}}
	b := New(Config{Store: m})
	if err := b.Put(t.Context(), "a@1", make([]byte, 3*pieceBytes)); err != nil {
		t.Fatal(err)
	}
	delete(m.values, piece("a@1", 1))
	if _, err := b.Get(t.Context(), "a@1"); !errkind.Is(err, errkind.NotFound) {
		t.Error(err)
	}
}

// TestRedis is the kit against a real Redis.
func TestRedis(t *testing.T) {
	s, err := rediscache.New(rediscache.Config{URLs: []string{"redis://" + redistest.Start(t)}, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	open := func(*testing.T) counterstate.Blobs { return New(Config{Store: s}) }
	blobstest.Run(t, open, open)
}
