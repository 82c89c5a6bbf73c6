// Package cacheblobs keeps copies of the snapshots of counters in the remote cache, by the seam of usage/remote: in a
// Redis or Valkey of somebody's own, mostly.
//
// What always holds: a blob is whole or not there, for each has the checksum of its pieces; of many who put the same
// name at once, one does, but for pieces of snapshots, whose names are one owner's and which are not listed. It is a
// cache: a blob may be gone at any time, and goes by itself after Life, so that what is here is a copy and never the
// only one.
package cacheblobs

import (
	"cmp"
	"context"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/remote"
)

// Config says where.
type Config struct {
	Store remote.Store
	// Life is how long a blob stays; zero means a week.
	Life time.Duration
}

// Blobs are keys of a cache.
type Blobs struct{ cfg Config }

var _ counterstate.Blobs = (*Blobs)(nil)

// pieceBytes is what one value has at most; pieces of one call are fewer than what a cache takes at once.
const (
	pieceBytes = 256 << 10
	atOnce     = 8
)

// New makes Blobs.
func New(cfg Config) *Blobs {
	cfg.Life = cmp.Or(cfg.Life, 7*24*time.Hour)
	return &Blobs{cfg}
}

// The keys: who claims a name, what it has, and the names that there are.
const index = "usage-snapshots:index"

func claim(name string) string { return "usage-snapshots:claim:" + name }

func piece(name string, n int) string { return "usage-snapshots:data:" + name + ":" + strconv.Itoa(n) }

func head(name string) string { return "usage-snapshots:head:" + name }

// names are those of the index.
func (b *Blobs) names(ctx context.Context) ([]string, error) {
	got, err := b.cfg.Store.Get(ctx, index)
	if err != nil || len(got) == 0 || len(got[0]) == 0 {
		return nil, err
	}
	return strings.Split(string(got[0]), "\n"), nil
}

// list changes the index. Two that change it at once may lose a name of each other's: the next Put of it finds it.
func (b *Blobs) list(ctx context.Context, change func([]string) []string) error {
	names, err := b.names(ctx)
	if err != nil {
		return err
	}
	names = change(names)
	slices.Sort(names)
	text := strings.Join(slices.Compact(names), "\n")
	return b.cfg.Store.Set(ctx, remote.Item{Key: index, Value: []byte(text), Life: b.cfg.Life})
}

// Put implements counterstate.Blobs.
func (b *Blobs) Put(ctx context.Context, name string, data []byte) error {
	fresh, part := 1, counterstate.IsPiece(name) // nobody else puts a piece of that name
	if !part {
		var err error
		if fresh, err = b.cfg.Store.Add(ctx, claim(name), b.cfg.Life, "1"); err != nil {
			return err
		}
	}
	if fresh == 0 {
		taken := errkind.Errorf(errkind.Conflict, "snapshot %s: is there already", name)
		return cmp.Or(b.list(ctx, func(names []string) []string { return append(names, name) }), taken)
	}
	pieces := (len(data) + pieceBytes - 1) / pieceBytes
	items := make([]remote.Item, 0, atOnce)
	for n := range pieces {
		end := min(len(data), (n+1)*pieceBytes)
		items = append(items, remote.Item{Key: piece(name, n), Value: data[n*pieceBytes : end], Life: b.cfg.Life})
		if len(items) == atOnce || n == pieces-1 {
			if err := b.cfg.Store.Set(ctx, items...); err != nil {
				return err
			}
			items = items[:0]
		}
	}
	first := pack.Uint(pack.Uint(pack.Uint(nil, uint64(pieces)), uint64(len(data))), uint64(crc32.ChecksumIEEE(data)))
	if err := b.cfg.Store.Set(ctx, remote.Item{Key: head(name), Value: first, Life: b.cfg.Life}); err != nil {
		return err
	}
	if part { // it is found by the snapshot that it belongs to, or goes by itself
		return nil
	}
	return b.list(ctx, func(names []string) []string { return append(names, name) })
}

// maxPieces bounds what Get believes: 2 GiB.
const maxPieces = 2 << 30 / pieceBytes

// Get implements counterstate.Blobs. One of which a piece is gone, or that is being put, is not there.
func (b *Blobs) Get(ctx context.Context, name string) ([]byte, error) {
	missing := errkind.Errorf(errkind.NotFound, "snapshot %s: is not in the cache", name)
	got, err := b.cfg.Store.Get(ctx, head(name))
	if err != nil {
		return nil, err
	}
	r := pack.Read(got[0])
	pieces, size, sum := r.Uint(), r.Uint(), r.Uint()
	if got[0] == nil || r.Err() != nil || pieces > maxPieces {
		return nil, missing
	}
	data := []byte{}
	for n := 0; n < int(pieces); {
		var keys []string
		for ; n < int(pieces) && len(keys) < atOnce; n++ {
			keys = append(keys, piece(name, n))
		}
		list, err := b.cfg.Store.Get(ctx, keys...)
		if err != nil {
			return nil, err
		}
		for _, value := range list {
			data = append(data, value...)
		}
	}
	if uint64(len(data)) != size || uint64(crc32.ChecksumIEEE(data)) != sum {
		return nil, missing
	}
	return data, nil
}

// List implements counterstate.Blobs.
func (b *Blobs) List(ctx context.Context, prefix string) (list []string, err error) {
	names, err := b.names(ctx)
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			list = append(list, name)
		}
	}
	return list, err
}

// Delete implements counterstate.Blobs. The pieces go first: a name without them is not there.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	got, err := b.cfg.Store.Get(ctx, head(name))
	if err != nil {
		return err
	}
	keys := []string{head(name), claim(name)}
	if r := pack.Read(got[0]); got[0] != nil {
		for n := range min(r.Uint(), maxPieces) {
			keys = append(keys, piece(name, int(n)))
		}
	}
	if err := b.cfg.Store.Delete(ctx, keys...); err != nil || counterstate.IsPiece(name) {
		return err
	}
	return b.list(ctx, func(names []string) []string {
		return slices.DeleteFunc(names, func(n string) bool { return n == name })
	})
}
