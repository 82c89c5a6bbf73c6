package sealed

import (
	"context"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// View is the part of the store below a prefix: what an engine reads.
type View struct {
	store  *Store
	prefix string
}

// At is the part of the store below a prefix.
func (s *Store) At(prefix string) View { return View{s, prefix} }

// Below is the part of the view below a prefix.
func (w View) Below(prefix string) View { return View{w.store, w.prefix + prefix} }

// Get implements engine.View.
func (w View) Get(ctx context.Context, key string) ([]byte, bool, error) {
	return w.store.Get(ctx, w.prefix+key)
}

// List implements engine.View.
func (w View) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	return w.store.List(ctx, w.prefix+prefix, after, limit)
}

// Scan implements engine.View.
func (w View) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	end := storage.After(w.prefix)
	if to != "" {
		end = w.prefix + to
	}
	list, err := w.store.Scan(ctx, w.prefix+from, end, limit)
	for i := range list {
		list[i].Key = strings.TrimPrefix(list[i].Key, w.prefix)
	}
	return list, err
}

// Ops are an engine's operations under the view's prefix. A key that would leave it is a fault of the engine.
func (w View) Ops(list []storage.Op) ([]storage.Op, error) {
	out := make([]storage.Op, len(list))
	for i, op := range list {
		if err := storage.CheckKey(op.Key); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
		out[i] = storage.Op{Key: w.prefix + op.Key, Value: op.Value}
	}
	return out, nil
}
