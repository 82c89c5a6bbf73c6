// Package s3blobs keeps the snapshots of counters as objects of a bucket of the S3 protocol.
//
// What always holds: an object is whole or not there, and Put returns when the service has acknowledged it; a name that
// is taken is never overwritten, for which the service has to keep to If-None-Match. Check finds that out.
package s3blobs

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/s3bucket"
	"corbel.dev/corbel/usage/counterstate"
)

// Blobs are objects of a bucket.
type Blobs struct{ bucket *s3bucket.Bucket }

var _ counterstate.Blobs = (*Blobs)(nil)

// New makes Blobs. It does no network.
func New(cfg s3bucket.Config) (*Blobs, error) {
	b, err := s3bucket.New(cfg)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "usage.state.s3", err)
	}
	return &Blobs{b}, nil
}

// Check finds out whether the service takes writes and keeps to their conditions.
func (b *Blobs) Check(ctx context.Context) error { return b.bucket.Check(ctx) }

// Close drops idle connections.
func (b *Blobs) Close() { b.bucket.Close() }

// Put implements counterstate.Blobs. A write whose answer was lost meets its own first try when it is asked again: that
// is a Conflict, and the caller takes the next number.
func (b *Blobs) Put(ctx context.Context, name string, data []byte) error {
	err := b.bucket.Create(ctx, name, data)
	if errkind.Is(err, errkind.Unknown) {
		return errkind.E(errkind.Unavailable, "snapshots", err)
	}
	return err
}

// Get implements counterstate.Blobs.
func (b *Blobs) Get(ctx context.Context, name string) ([]byte, error) {
	data, _, err := b.bucket.Get(ctx, name)
	return data, err
}

// List implements counterstate.Blobs.
func (b *Blobs) List(ctx context.Context, prefix string) (names []string, err error) {
	for after := ""; ; {
		page, err := b.bucket.List(ctx, prefix, after)
		if err != nil || len(page) == 0 {
			return names, err
		}
		names, after = append(names, page...), page[len(page)-1]
	}
}

// Delete implements counterstate.Blobs.
func (b *Blobs) Delete(ctx context.Context, name string) error { return b.bucket.Delete(ctx, name) }
