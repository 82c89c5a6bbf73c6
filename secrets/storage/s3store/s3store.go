// Package s3store gives a bucket of the S3 protocol (kit/s3bucket) to objectstore. A service that ignores conditions on
// writes would make two servers active at once, so whoever opens one asks Check first.
package s3store

import (
	"corbel.dev/corbel/kit/s3bucket"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/objectstore"
)

// Config says where.
type Config = s3bucket.Config

// Bucket is one.
type Bucket struct{ *s3bucket.Bucket }

var _ objectstore.Bucket = (*Bucket)(nil)

// New makes a bucket. It does no network.
func New(cfg Config) (*Bucket, error) {
	b, err := s3bucket.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Bucket{b}, nil
}

// Info implements objectstore.Bucket.
func (b *Bucket) Info() storage.Info {
	return storage.Info{Name: "s3", Durability: "a commit is an object that the service acknowledged before it " +
		"returns: it outlives what the bucket outlives"}
}
