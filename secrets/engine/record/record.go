// Package record is what engines have in common about what they store: records that are
// kept parsed while their bytes stay the same, and sets of parameters that are read,
// stored and shown by one table.
package record

import (
	"bytes"
	"context"
	"sync"
	"unsafe"

	"corbel.dev/corbel/secrets/engine"
)

// Cache keeps records parsed. What it gives is always of the bytes that the view gives
// now, so it needs no news of changes, and gives nothing while the view refuses.
// It goes with its engine, when its mount is sealed or taken away.
//
// The zero value keeps up to 1,024 records. Safe for concurrent use.
type Cache[T any] struct {
	mu   sync.RWMutex
	kept map[string]entry[T]
}

type entry[T any] struct {
	raw   []byte // held, so that its address is nobody else's meanwhile
	value T
}

const cacheMost = 1024

// Get returns the record under key, parsed; ok is false when there is none. The value is
// shared: nobody may change it.
func (c *Cache[T]) Get(ctx context.Context, view engine.View, key string, parse func(raw []byte) (T, error)) (value T,
	ok bool, err error) {
	raw, ok, err := view.Get(ctx, key)
	if err != nil || !ok {
		return value, false, err
	}
	c.mu.RLock()
	e, kept := c.kept[key]
	c.mu.RUnlock()
	if kept && len(e.raw) == len(raw) && (unsafe.SliceData(e.raw) == unsafe.SliceData(raw) || bytes.Equal(e.raw, raw)) {
		return e.value, true, nil
	}
	if value, err = parse(raw); err != nil {
		return value, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= cacheMost {
		c.kept = map[string]entry[T]{}
	}
	c.kept[key] = entry[T]{raw, value}
	return value, true, nil
}
