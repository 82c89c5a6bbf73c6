package sealed

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/telemetry"
)

// Config is what a Vault is made of.
type Config struct {
	Under      storage.Backend
	Now        func() time.Time
	CacheBytes int // of decrypted records in memory; negative: none
	Log        *slog.Logger
	Metrics    *telemetry.Registry
	// Committed is told of each commit, after it and before its caller is.
	Committed func(ops []storage.Op)
}

// Store is the barrier with the decrypted records of late in front of it.
type Store struct {
	Under   storage.Backend  // ciphertext: for keys, and for what stands outside the barrier
	Barrier *barrier.Barrier // past the cache
	// Committed is Config's. It is not changed while there are commits.
	Committed func(ops []storage.Op)

	Log    *slog.Logger
	epoch  atomic.Uint64
	shards [shardCount]shard
	seed   maphash.Seed
	limit  int // bytes of values in one shard
	// foreign counts what others changed, and what was forgotten: an own commit that began before is not known to be the
	// newest.
	foreign                   atomic.Uint64
	skipped                   skipped
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

// New makes a Store over a storage; its barrier is sealed.
func New(c Config) *Store {
	return &Store{Under: c.Under, Barrier: barrier.New(c.Under, c.Now), Committed: c.Committed, Log: c.Log,
		seed:  maphash.MakeSeed(),
		limit: max(c.CacheBytes/shardCount, 1), hit: c.Metrics.Counter("cache.hit"), miss: c.Metrics.Counter("cache.miss"),
		wrote: c.Metrics.Counter("cache.write"), dropped: c.Metrics.Counter("cache.delete")}
}

// Sealed reports whether there are no keys.
func (s *Store) Sealed() bool { return s.Barrier.Sealed() }

// Epoch is what commits are made with.
func (s *Store) Epoch() storage.Epoch { return storage.Epoch(s.epoch.Load()) }

// SetEpoch begins another term.
func (s *Store) SetEpoch(epoch storage.Epoch) { s.epoch.Store(uint64(epoch)) }

func (s *Store) shard(key string) *shard { return &s.shards[maphash.String(s.seed, key)%shardCount] }

// Get returns the record under key.
func (s *Store) Get(ctx context.Context, key string) ([]byte, bool, error) {
	in := s.shard(key)
	in.mu.RLock()
	value, ok := in.values[key]
	version := in.version
	in.mu.RUnlock()
	if ok {
		if s.Barrier.Sealed() {
			return nil, false, barrier.ErrSealed
		}
		s.hit.Add(1)
		return value, true, nil
	}
	s.miss.Add(1)
	value, ok, err := s.Barrier.Get(ctx, key)
	if err == nil && ok {
		in.mu.Lock()
		if in.version == version {
			in.putLocked(key, value, s.limit)
			s.wrote.Add(1)
		}
		in.mu.Unlock()
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
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	return s.Barrier.List(ctx, prefix, after, limit)
}

// Scan returns the records of a range; one that does not open fails the call.
func (s *Store) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	list, broken, err := s.Barrier.Scan(ctx, from, to, limit)
	if err == nil && len(broken) > 0 {
		err = broken[0].Err
	}
	return list, err
}

// Commit stores operations, and keeps what it stored. After an outcome that is not known nothing of them is kept; nor
// where a term ended meanwhile: whoever leads next may have written, and been told of here, before this commit's
// caller goes on.
func (s *Store) Commit(ctx context.Context, ops []storage.Op) error {
	if len(ops) == 0 {
		return nil
	}
	foreign := s.foreign.Load()
	err := s.Barrier.Commit(ctx, s.Epoch(), ops)
	for _, op := range ops {
		in := s.shard(op.Key)
		in.mu.Lock()
		in.version++
		// Under the lock: who counts later drops what is put here.
		if err != nil || s.foreign.Load() != foreign || op.Value == nil || storage.IsMark(op) {
			in.dropLocked(op.Key)
			s.dropped.Add(1)
		} else {
			in.putLocked(op.Key, op.Value, s.limit)
			s.wrote.Add(1)
		}
		in.mu.Unlock()
	}
	s.Committed(ops)
	return err
}

// Drop forgets a record that somebody else changed.
func (s *Store) Drop(key string) {
	s.foreign.Add(1)
	in := s.shard(key)
	in.mu.Lock()
	in.version++
	in.dropLocked(key)
	s.dropped.Add(1)
	in.mu.Unlock()
}

// Forget drops everything: the barrier was sealed.
func (s *Store) Forget() {
	s.foreign.Add(1)
	for i := range s.shards {
		in := &s.shards[i]
		in.mu.Lock()
		in.version++
		in.values, in.bytes = nil, 0 // not zeroed: a request under way may hold a value
		in.mu.Unlock()
	}
}

// GetJSON reads the record under key into a value, and reports whether there is one.
func (s *Store) GetJSON(ctx context.Context, key string, into any) (ok bool, err error) {
	raw, ok, err := s.Get(ctx, key)
	if err != nil || !ok {
		return false, err
	}
	return true, ReadJSON(key, raw, into)
}

// ReadJSON is GetJSON of a record that was read.
func ReadJSON(key string, raw []byte, into any) error {
	if json.Unmarshal(raw, into) != nil {
		return errkind.Errorf(errkind.Corrupt, "%s is not what was stored", key)
	}
	return nil
}

// EachKey calls each with the part of every key below a prefix that stands behind it. Only keys are read.
func (s *Store) EachKey(ctx context.Context, prefix string, each func(rest string) error) error {
	for from := prefix; ; {
		records, err := s.Under.Scan(ctx, from, storage.After(prefix), ScanAtOnce)
		if err != nil || len(records) == 0 {
			return err
		}
		for _, r := range records {
			if err := each(r.Key[len(prefix):]); err != nil {
				return err
			}
		}
		from = records[len(records)-1].Key + "\x00"
	}
}

// ScanAtOnce is how many records a walk over all of a kind reads at a time.
const ScanAtOnce = 1000
