package records

import (
	"context"

	"corbel.dev/corbel/secrets/storage"
)

// Reader is the reading half of storage.Backend over Sets: backends that keep all records in memory embed one.
type Reader struct {
	// At returns the set that a read which begins now is to see, or why there is none.
	At func(ctx context.Context) (Set, error)
}

// Get implements storage.Backend.
func (r Reader) Get(ctx context.Context, key string) ([]byte, bool, error) {
	set, err := r.At(ctx)
	if err != nil {
		return nil, false, err
	}
	value, ok := set.Get(key)
	return value, ok, nil
}

// List implements storage.Backend.
func (r Reader) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if err := storage.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	set, err := r.At(ctx)
	if err != nil {
		return nil, err
	}
	return set.List(prefix, after, limit), nil
}

// Scan implements storage.Backend.
func (r Reader) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	set, err := r.At(ctx)
	if err != nil {
		return nil, err
	}
	return set.Scan(from, to, limit), nil
}
