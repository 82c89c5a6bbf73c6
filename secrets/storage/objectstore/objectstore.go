// Package objectstore keeps records in a place that stores whole objects and can refuse to overwrite one: a bucket of
// S3 or Google's Cloud Storage, or Consul's KV (packages s3store, gcsstore, consulstore give the Bucket).
//
// A commit is one object, journal/N, created on the condition that it does not exist: of all who
// would write after N-1, one does. That is the fence too. Commits that arrive while one is under way
// share the next, so their rate is not the bucket's. All records are in memory; now and then they are written as
// checkpoint/N, and what the journal said before goes.
//
// Invariants: a commit that was acknowledged is in the journal or in a checkpoint that follows it. Who
// wrote journal/N looks for a checkpoint of N or later before it believes so: there is one when N was removed
// meanwhile, and then what was written is in a past that nobody reads. An outcome that
// nobody knows is found out by asking again for the same object: it holds a number that its writer drew.
package objectstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/gather"
	"corbel.dev/corbel/secrets/storage/records"
)

// Bucket keeps objects. Errors have kinds: NotFound; Conflict, the condition did not hold and nothing was done;
// Unavailable and Overloaded, nothing was done; Unknown, nobody knows. Reads see every write that was acknowledged
// before.
type Bucket interface {
	// Get returns an object, and its tag, which changes with each write.
	Get(ctx context.Context, key string) (data []byte, tag string, err error)
	// Create writes an object that does not exist.
	Create(ctx context.Context, key string, data []byte) error
	// Replace writes an object that still has the tag.
	Replace(ctx context.Context, key string, data []byte, tag string) error
	// Delete removes an object; it is no error when there is none.
	Delete(ctx context.Context, key string) error
	// List returns keys with a prefix that are greater than after, in order, as many as the bucket gives at once; none
	// is the end.
	List(ctx context.Context, prefix, after string) ([]string, error)
	// Info says what the bucket is, in Name and Durability, and how large its objects may be, in ValueBytes; 0 is no
	// limit.
	Info() storage.Info
}

// Config of a Store. Zero values mean the defaults that are named.
type Config struct {
	Bucket Bucket
	Log    *slog.Logger
	// JournalBytes (16 MiB) is how much is written between checkpoints; where the records take more, it is as much as
	// they do.
	JournalBytes int
	// CommitTime (30 s) bounds how long a commit is tried while the bucket refuses, and Pause (50 ms) is what is waited
	// first.
	CommitTime time.Duration
	Pause      time.Duration
}

// valueBytes bounds a value, batchBytes a commit.
const (
	valueBytes = 8 << 20
	batchBytes = 32 << 20
)

// Store is the backend.
type Store struct {
	records.Reader
	cfg    Config
	queue  *gather.Queue
	state  atomic.Pointer[records.State]
	closed atomic.Bool
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	sequence uint64 // of the newest object in state; the queue's goroutine alone
	written  int    // bytes of the journal since the newest checkpoint

	checkpoints sync.WaitGroup
	writing     atomic.Bool
	once        sync.Once
}

var _ storage.Backend = (*Store)(nil)

// Open reads what the bucket holds.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.JournalBytes == 0 {
		cfg.JournalBytes = 16 << 20
	}
	if cfg.CommitTime == 0 {
		cfg.CommitTime = 30 * time.Second
	}
	if cfg.Pause == 0 {
		cfg.Pause = 50 * time.Millisecond
	}
	s := &Store{cfg: cfg}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.queue = gather.New(s.commit)
	s.At = func(ctx context.Context) (records.Set, error) { return s.state.Load().Set, s.ready(ctx) }
	return s, nil
}

var errClosed = errkind.New(errkind.Unavailable, "the storage is closed")

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return errkind.E(errkind.Unavailable, "storage", ctx.Err())
}

// Commit implements storage.Backend.
func (s *Store) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := storage.CheckOps(s.Info(), ops); err != nil {
		return err
	}
	if n := records.BatchBytes(ops); n > batchBytes {
		return errkind.Errorf(errkind.TooLarge, "%s storage: a commit of %d bytes, more than %d", s.Info().Name, n,
			batchBytes)
	}
	return s.queue.Do(ctx, records.Batch{Epoch: epoch, Ops: ops})
}

// Fence implements storage.Backend. What others wrote before is in the records afterwards.
func (s *Store) Fence(ctx context.Context, epoch storage.Epoch) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.queue.Do(ctx, records.Batch{Epoch: epoch, Fence: true})
}

// Info implements storage.Backend.
func (s *Store) Info() storage.Info {
	info := s.cfg.Bucket.Info()
	info.ValueBytes, info.HA = valueBytes, true
	return info
}

func journalKey(sequence uint64) string { return fmt.Sprintf("journal/%016x", sequence) }

func checkpointKey(sequence uint64) string { return fmt.Sprintf("checkpoint/%016x", sequence) }

const nonceBytes = 16

// entry is what a journal object holds.
func entry(nonce [nonceBytes]byte, batches []records.Batch, outcomes []error) []byte {
	body := append([]byte(nil), nonce[:]...)
	for i, b := range batches {
		if outcomes[i] == nil {
			body = pack.Bytes(body, b.Append(nil))
		}
	}
	return body
}

func readEntry(body []byte) (nonce [nonceBytes]byte, batches []records.Batch, err error) {
	if len(body) < nonceBytes {
		return nonce, nil, errkind.New(errkind.Corrupt, "it is too short")
	}
	copy(nonce[:], body)
	r := pack.Read(body[nonceBytes:])
	for r.More() {
		b, err := records.DecodeBatch(r.Bytes())
		if err != nil {
			return nonce, nil, err
		}
		batches = append(batches, b)
	}
	if r.Err() != nil {
		return nonce, nil, errkind.E(errkind.Corrupt, "it is cut", r.Err())
	}
	return nonce, batches, nil
}

// commit writes what gathered as one object. The queue calls it.
func (s *Store) commit(batches []records.Batch) []error {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.CommitTime)
	defer cancel()
	for {
		next, outcomes := s.state.Load().Fold(batches)
		if !someDone(outcomes) {
			return outcomes
		}
		var nonce [nonceBytes]byte
		_, _ = rand.Read(nonce[:])
		body := entry(nonce, batches, outcomes)
		sequence := s.sequence + 1
		err := s.create(ctx, sequence, nonce, body)
		if err == nil {
			var past bool
			if past, err = s.past(ctx, sequence); err == nil && !past {
				s.state.Store(&next)
				s.sequence = sequence
				if s.written += len(body); s.written >= max(s.cfg.JournalBytes, next.Bytes()) && !s.writing.Load() {
					s.checkpoint(records.Image{State: next, Sequence: sequence})
				}
				return outcomes
			}
			if err != nil { // it is written, and nobody knows whether anybody will read it
				err = errkind.E(errkind.Unknown, "storage commit: outcome unknown", err)
			} else {
				err = s.load(ctx)
			}
		} else if errkind.Is(err, errkind.Conflict) {
			err = s.follow(ctx)
		}
		if err != nil {
			for i := range outcomes { // also those refused: the epoch they lost to may be in what failed
				outcomes[i] = err
			}
			return outcomes
		}
	}
}

func someDone(outcomes []error) bool {
	for _, err := range outcomes {
		if err == nil {
			return true
		}
	}
	return false
}

// create writes a journal object, and asks again while the bucket cannot say what came of it.
func (s *Store) create(ctx context.Context, sequence uint64, nonce [nonceBytes]byte, body []byte) error {
	pause := backoff.Backoff{Min: s.cfg.Pause, Max: 40 * s.cfg.Pause}
	unknown := false
	for {
		err := s.put(ctx, journalKey(sequence), body)
		switch {
		case err == nil:
			return nil
		case errkind.Is(err, errkind.Conflict) && unknown:
			mine, err := s.mine(ctx, sequence, nonce)
			if err == nil && !mine {
				return errkind.Errorf(errkind.Conflict, "%s was written by another", journalKey(sequence))
			}
			if err == nil {
				return nil
			}
		case errkind.Is(err, errkind.Conflict):
			return err
		case errkind.Is(err, errkind.Unknown):
			unknown = true
		case !errkind.Is(err, errkind.Unavailable) && !errkind.Is(err, errkind.Overloaded):
			return errkind.E(errkind.Unavailable, "storage commit", err) // it refuses us: trying again is of no use
		}
		timer := time.NewTimer(pause.Next())
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
			timer.Stop()
		}
		if unknown {
			return errkind.E(errkind.Unknown, "storage commit: outcome unknown", err)
		}
		return errkind.E(errkind.Unavailable, "storage commit", err)
	}
}

// mine reports whether a journal object is the one with the number.
func (s *Store) mine(ctx context.Context, sequence uint64, nonce [nonceBytes]byte) (bool, error) {
	body, err := s.get(ctx, journalKey(sequence))
	if err != nil {
		return false, err
	}
	got, _, err := readEntry(body)
	return got == nonce, err
}

// past reports whether there is a checkpoint of the sequence or later: then its journal object means nothing.
func (s *Store) past(ctx context.Context, sequence uint64) (bool, error) {
	keys, err := s.cfg.Bucket.List(ctx, "checkpoint/", checkpointKey(sequence-1))
	return len(keys) > 0, err
}

// follow takes what others wrote to the state.
func (s *Store) follow(ctx context.Context) error {
	found := false
	for {
		body, err := s.get(ctx, journalKey(s.sequence+1))
		if errkind.Is(err, errkind.NotFound) {
			if found {
				return nil
			}
			return s.load(ctx) // it was there, and went: a checkpoint says what it said
		}
		if err != nil {
			return err
		}
		if err := s.apply(body); err != nil {
			return err
		}
		found = true
	}
}

func (s *Store) apply(body []byte) error {
	at := loaded{*s.state.Load(), s.sequence, s.written}
	if err := at.apply(body); err != nil {
		return err
	}
	s.show(at)
	return nil
}

// loaded is a state in the making.
type loaded struct {
	state    records.State
	sequence uint64
	written  int
}

func (l *loaded) apply(body []byte) error {
	_, batches, err := readEntry(body)
	if err != nil {
		return errkind.E(errkind.Corrupt, journalKey(l.sequence+1), err)
	}
	next, outcomes := l.state.Fold(batches)
	if err := errors.Join(outcomes...); err != nil {
		return errkind.E(errkind.Corrupt, journalKey(l.sequence+1), err)
	}
	*l = loaded{next, l.sequence + 1, l.written + len(body)}
	return nil
}

func (s *Store) show(l loaded) {
	s.state.Store(&l.state)
	s.sequence, s.written = l.sequence, l.written
}

// loadTries is how often reading begins anew when a checkpoint overtakes it.
const loadTries = 5

// load reads the newest checkpoint and what the journal says since.
func (s *Store) load(ctx context.Context) error {
	for range loadTries {
		again, err := s.loadOnce(ctx)
		if !again || err != nil {
			return err
		}
	}
	return errkind.Errorf(errkind.Corrupt, "the journal's objects are not in one piece: one is missing between the "+
		"newest checkpoint and the newest object")
}

func (s *Store) loadOnce(ctx context.Context) (again bool, err error) {
	checkpoints, err := s.all(ctx, "checkpoint/", "")
	if err != nil {
		return false, err
	}
	image := records.Image{State: records.State{Set: records.New()}}
	if n := len(checkpoints); n > 0 {
		body, err := s.get(ctx, checkpoints[n-1])
		if errkind.Is(err, errkind.NotFound) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if image, err = records.ReadImage(strings.NewReader(string(body))); err != nil {
			return false, fmt.Errorf("%s: %w", checkpoints[n-1], err)
		}
	}
	l := loaded{image.State, image.Sequence, 0} // readers see all of it, or nothing
	keys, err := s.all(ctx, "journal/", journalKey(image.Sequence))
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		if key != journalKey(l.sequence+1) {
			return true, nil
		}
		body, err := s.get(ctx, key)
		if errkind.Is(err, errkind.NotFound) {
			return true, nil
		}
		if err == nil {
			err = l.apply(body)
		}
		if err != nil {
			return false, err
		}
	}
	s.show(l)
	return false, nil
}

func (s *Store) all(ctx context.Context, prefix, after string) (keys []string, err error) {
	for {
		page, err := s.cfg.Bucket.List(ctx, prefix, after)
		if err != nil || len(page) == 0 {
			return keys, err
		}
		keys = append(keys, page...)
		after = page[len(page)-1]
	}
}

// Close waits for what is under way. It is idempotent.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.queue.Close()
		s.cancel()
		s.checkpoints.Wait()
	})
	return nil
}
