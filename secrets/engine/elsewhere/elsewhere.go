// Package elsewhere is what engines have in common that make and change things on other systems.
//
// What is done there is written down before it is done: a request's first operations are committed, then its Step
// acts, and what that answers is committed with the lease. A crash between leaves an entry in an index by time
// (DueKey), which the engine finds once it is due and undoes or completes.
package elsewhere

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// Step is what follows once it was written down: Response.Then of engines that embed Stepper.
type Step func(ctx context.Context) (*secrets.Response, error)

// Stepper implements engine.Stepper by Step.
type Stepper struct{}

// Step implements engine.Stepper.
func (Stepper) Step(ctx context.Context, then any) (*secrets.Response, error) {
	return then.(Step)(ctx)
}

const (
	// Wait is when an entry is taken for one of a crash: no request takes as long.
	Wait      = 5 * time.Minute
	laterMost = time.Hour
)

// Later is when to try again what failed this often.
func Later(now time.Time, tries int) time.Time {
	return now.Add(min(time.Minute<<min(tries, 6), laterMost))
}

// DueKey is an entry of an index by time.
func DueKey(prefix string, at time.Time, name string) string {
	return fmt.Sprintf("%s%020d/%s", prefix, max(at.UnixNano(), 0), name)
}

// Due are the entries of an index that are due, the oldest first.
func Due(ctx context.Context, view engine.View, prefix string, now time.Time) ([]secrets.Record, error) {
	return view.Scan(ctx, prefix, DueKey(prefix, now.Add(1), ""), 16)
}

// What engines answer to what they have not or cannot do.
var (
	ErrUnsupported = errkind.New(errkind.Conflict, "unsupported operation")
	ErrNoPath      = errkind.New(errkind.NotFound, "unsupported path")
	ErrNotFound    = errkind.New(errkind.NotFound, "")
)

// Invalid is an error of the caller's.
func Invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// Answer answers with an object.
func Answer(v any) (*secrets.Response, error) {
	data, err := json.Marshal(v)
	return &secrets.Response{Data: data}, err
}

// Put is the operation that stores a record.
func Put(key string, v any) (secrets.Op, error) {
	raw, err := json.Marshal(v)
	return storage.Put(key, raw), err
}

// Store answers with the operations that store a record, and others.
func Store(key string, v any, more ...secrets.Op) (*secrets.Response, error) {
	op, err := Put(key, v)
	return &secrets.Response{Ops: append([]secrets.Op{op}, more...)}, err
}

// Find reads a record; nil is none. A name that cannot be one has none.
func Find[T any](ctx context.Context, view engine.View, key string) (*T, error) {
	if storage.CheckKey(key) != nil {
		return nil, ErrNoPath
	}
	raw, ok, err := view.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	out := new(T)
	if json.Unmarshal(raw, out) != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the record %s is not what was stored", key)
	}
	return out, nil
}

// List lists the names under a prefix that ends in '/', from f's "after" on; none are not found.
func List(ctx context.Context, view engine.View, prefix string, f *secrets.Fields) (*secrets.Response, error) {
	names, err := view.List(ctx, prefix, f.String("after"), max(f.Int("limit", 0), 0))
	if err == nil {
		err = f.Err()
	}
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, ErrNotFound
	}
	return Answer(map[string]any{"keys": names})
}

// Lifetimes of a lease: a role's where they are set, else the mount's, which bound all.
func Lifetimes(mount func() (standard, longest time.Duration), ttl, most time.Duration) (time.Duration, time.Duration) {
	standard, longest := mount()
	if ttl > 0 {
		standard = ttl
	}
	if most > 0 {
		longest = min(longest, most)
	}
	return min(standard, longest), longest
}
