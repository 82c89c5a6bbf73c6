package keeper

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/telemetry"
)

// vault is the barrier with the decrypted records of late in front of it.
type vault struct {
	barrier *barrier.Barrier
	shards  [shardCount]shard
	seed    maphash.Seed
	limit   int // bytes of values in one shard
	// foreign counts what others changed, and what was forgotten: an own commit that began before is not known to be the
	// newest.
	foreign atomic.Uint64
	// committed is told the keys of each commit, after it, before its caller is.
	committed                 func(ops []storage.Op)
	hit, miss, wrote, dropped *telemetry.Counter
}

const shardCount = 64

// shard is a part of the cache. version counts the changes: a value that was
// read from storage is kept only if none came in the meantime.
type shard struct {
	mu      sync.RWMutex
	version uint64
	values  map[string][]byte
	bytes   int
}

func newVault(b *barrier.Barrier, cacheBytes int) *vault {
	return &vault{barrier: b, seed: maphash.MakeSeed(), limit: max(cacheBytes/shardCount, 1), committed: func([]storage.Op) {}}
}

func (v *vault) shard(key string) *shard { return &v.shards[maphash.String(v.seed, key)%shardCount] }

// Get returns the record under key.
func (v *vault) Get(ctx context.Context, key string) ([]byte, bool, error) {
	s := v.shard(key)
	s.mu.RLock()
	value, ok := s.values[key]
	version := s.version
	s.mu.RUnlock()
	if ok {
		if v.barrier.Sealed() {
			return nil, false, barrier.ErrSealed
		}
		v.hit.Add(1)
		return value, true, nil
	}
	v.miss.Add(1)
	value, ok, err := v.barrier.Get(ctx, key)
	if err == nil && ok {
		s.mu.Lock()
		if s.version == version {
			s.putLocked(key, value, v.limit)
			v.wrote.Add(1)
		}
		s.mu.Unlock()
	}
	return value, ok, err
}

// putLocked keeps a value, in the place of others when there are too many.
func (s *shard) putLocked(key string, value []byte, limit int) {
	size := len(key) + len(value)
	if size > limit/4 {
		return
	}
	if s.values == nil {
		s.values = map[string][]byte{}
	}
	if old, ok := s.values[key]; ok {
		s.bytes -= len(key) + len(old)
	}
	for other, old := range s.values { // of no particular order: cheap, and no key can keep others out
		if s.bytes+size <= limit {
			break
		}
		if other != key {
			s.bytes -= len(other) + len(old)
			delete(s.values, other)
		}
	}
	s.values[key] = value
	s.bytes += size
}

func (s *shard) dropLocked(key string) {
	if old, ok := s.values[key]; ok {
		s.bytes -= len(key) + len(old)
		delete(s.values, key)
	}
}

// List returns the children of a folder.
func (v *vault) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	return v.barrier.List(ctx, prefix, after, limit)
}

// Scan returns the records of a range; one that does not open fails the call.
func (v *vault) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	list, broken, err := v.barrier.Scan(ctx, from, to, limit)
	if err == nil && len(broken) > 0 {
		err = broken[0].Err
	}
	return list, err
}

// Commit stores operations, and keeps what it stored. After an outcome that is not known nothing of them is kept; nor
// where a reign ended meanwhile: whoever reigns next may have written, and been told of here, before this commit's
// caller goes on.
func (v *vault) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	if len(ops) == 0 {
		return nil
	}
	foreign := v.foreign.Load()
	err := v.barrier.Commit(ctx, epoch, ops)
	for _, op := range ops {
		s := v.shard(op.Key)
		s.mu.Lock()
		s.version++
		// Under the lock: who counts later drops what is put here.
		if err != nil || v.foreign.Load() != foreign || op.Value == nil || storage.IsMark(op) {
			s.dropLocked(op.Key)
			v.dropped.Add(1)
		} else {
			s.putLocked(op.Key, op.Value, v.limit)
			v.wrote.Add(1)
		}
		s.mu.Unlock()
	}
	v.committed(ops)
	return err
}

// drop forgets a record that somebody else changed.
func (v *vault) drop(key string) {
	v.foreign.Add(1)
	s := v.shard(key)
	s.mu.Lock()
	s.version++
	s.dropLocked(key)
	v.dropped.Add(1)
	s.mu.Unlock()
}

// Forget drops everything: the barrier was sealed.
func (v *vault) Forget() {
	v.foreign.Add(1)
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		s.version++
		s.values, s.bytes = nil, 0 // not zeroed: a request under way may hold a value
		s.mu.Unlock()
	}
}

// view is the part of the vault below a prefix.
type view struct {
	vault  *vault
	prefix string
}

// Get implements engine.View.
func (w view) Get(ctx context.Context, key string) ([]byte, bool, error) {
	return w.vault.Get(ctx, w.prefix+key)
}

// List implements engine.View.
func (w view) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	return w.vault.List(ctx, w.prefix+prefix, after, limit)
}

// Scan implements engine.View.
func (w view) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	end := storage.After(w.prefix)
	if to != "" {
		end = w.prefix + to
	}
	list, err := w.vault.Scan(ctx, w.prefix+from, end, limit)
	for i := range list {
		list[i].Key = strings.TrimPrefix(list[i].Key, w.prefix)
	}
	return list, err
}

// ops are an engine's operations under the view's prefix. A key that would leave it is a fault of the engine.
func (w view) ops(list []storage.Op) ([]storage.Op, error) {
	out := make([]storage.Op, len(list))
	for i, op := range list {
		if err := storage.CheckKey(op.Key); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
		out[i] = storage.Op{Key: w.prefix + op.Key, Value: op.Value}
	}
	return out, nil
}
