package objectstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// The lock is an object that its holder replaces again and again. Nobody compares clocks: who wants the lock watches
// the object, and takes it when it did not change for lockTTL by the watcher's own clock. Its holder believes in it
// for a shorter time after it began a renewal that succeeded. Its number is the epoch of the term, and grows with
// each holder.
const (
	lockKey   = "lock"
	lockTTL   = 15 * time.Second // how long a holder that is gone keeps it
	lockTrust = 10 * time.Second // how long a holder believes in a renewal
	lockRenew = 3 * time.Second
	lockTry   = time.Second
	lockCall  = 4 * time.Second // bounds one request of it
)

// Locker is the lock of servers that share a bucket.
type Locker struct {
	bucket Bucket
	id     string
	ttl    time.Duration // lockTTL; shorter in tests, and all else in proportion
}

var _ storage.Lock = (*Locker)(nil)

// Locker returns the lock for a server called id.
func (s *Store) Locker(id string) *Locker { return &Locker{s.cfg.Bucket, id, lockTTL} }

// scale is a time in proportion to ttl; nanoseconds times nanoseconds are too many for an integer.
func (l *Locker) scale(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (float64(l.ttl) / float64(lockTTL)))
}

// heldBy is what the lock's object says.
type heldBy struct {
	Holder string `json:"holder"` // "" is nobody
	Epoch  uint64 `json:"epoch"`
	Number string `json:"number"` // drawn at each write: renewals differ, and an outcome that nobody knew is found out
}

func (l *Locker) read(ctx context.Context) (h heldBy, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockCall)
	defer cancel()
	data, tag, err := l.bucket.Get(ctx, lockKey)
	if err != nil {
		return h, "", err
	}
	_, body, err := unwrap(lockKey, data)
	if err == nil {
		err = json.Unmarshal(body, &h)
	}
	return h, tag, err
}

// write replaces what has the tag, or ("") creates; an outcome that is unknown is found out by reading.
func (l *Locker) write(ctx context.Context, holder string, epoch uint64, tag string) error {
	call, cancel := context.WithTimeout(ctx, lockCall)
	defer cancel()
	var number [12]byte
	_, _ = rand.Read(number[:])
	want := heldBy{holder, epoch, hex.EncodeToString(number[:])}
	body, err := json.Marshal(want)
	if err != nil {
		return err
	}
	if tag == "" {
		err = l.bucket.Create(call, lockKey, wrap('D', body))
	} else {
		err = l.bucket.Replace(call, lockKey, wrap('D', body), tag)
	}
	if errkind.Is(err, errkind.Unknown) {
		if got, _, readErr := l.read(ctx); readErr == nil && got == want {
			return nil
		}
	}
	return err
}

// Acquire implements storage.Lock.
func (l *Locker) Acquire(ctx context.Context) (storage.Leadership, error) {
	var seen string
	since := time.Now()
	for {
		h, tag, err := l.read(ctx)
		sent := time.Now()
		switch {
		case errkind.Is(err, errkind.NotFound):
			err = l.write(ctx, l.id, 1, "")
			h.Epoch = 0
		case err != nil:
		case h.Holder == "" || h.Holder == l.id || tag == seen && time.Since(since) >= l.ttl:
			// A server that comes back takes its own lock at once: its former self is fenced by the epoch.
			err = l.write(ctx, l.id, h.Epoch+1, tag)
		default:
			if tag != seen {
				seen, since = tag, time.Now()
			}
			err = errWait
		}
		if err == nil {
			return l.leadership(h.Epoch+1, sent), nil
		}
		if err != errWait && !errkind.Is(err, errkind.Conflict) && ctx.Err() == nil {
			return nil, errkind.E(errkind.Unavailable, "storage: lock", err)
		}
		if !storage.Pause(ctx, nil, l.scale(lockTry)) {
			return nil, ctx.Err()
		}
	}
}

var errWait = errkind.New(errkind.Conflict, "another server has the lock")

// Holder implements storage.Lock.
func (l *Locker) Holder(ctx context.Context) (string, error) {
	h, _, err := l.read(ctx)
	if errkind.Is(err, errkind.NotFound) {
		return "", nil
	}
	return h.Holder, err
}

// leadership is a lock that is held and renewed.
type leadership struct {
	l     *Locker
	epoch uint64
	began time.Time
	until atomic.Int64 // nanoseconds since began up to which it surely holds
	stop  chan struct{}
	once  sync.Once
	done  chan struct{}
}

func (l *Locker) leadership(epoch uint64, sent time.Time) *leadership {
	r := &leadership{l: l, epoch: epoch, began: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	r.until.Store(int64(sent.Add(l.scale(lockTrust)).Sub(r.began)))
	go r.renew()
	return r
}

// renew keeps the lock until it is lost or Release is called.
func (r *leadership) renew() {
	defer close(r.done)
	for storage.Pause(context.Background(), r.stop, r.l.scale(lockRenew)) {
		left := time.Duration(r.until.Load()) - time.Since(r.began)
		if left <= 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), left)
		sent := time.Now()
		h, tag, err := r.l.read(ctx)
		if err == nil && (h.Holder != r.l.id || h.Epoch != r.epoch) {
			cancel()
			return
		}
		if err == nil {
			err = r.l.write(ctx, r.l.id, r.epoch, tag)
		}
		cancel()
		if err == nil {
			r.until.Store(int64(sent.Add(r.l.scale(lockTrust)).Sub(r.began)))
		}
	}
}

// Epoch implements storage.Leadership.
func (r *leadership) Epoch() storage.Epoch { return storage.Epoch(r.epoch) }

// Held implements storage.Leadership.
func (r *leadership) Held(context.Context) error {
	select {
	case <-r.done:
		return errkind.New(errkind.NotLeader, "the lock was lost")
	default:
	}
	if int64(time.Since(r.began)) >= r.until.Load() {
		return errkind.New(errkind.NotLeader, "the lock could not be renewed in time")
	}
	return nil
}

// Done implements storage.Leadership.
func (r *leadership) Done() <-chan struct{} { return r.done }

// Release implements storage.Leadership.
func (r *leadership) Release(ctx context.Context) {
	r.once.Do(func() { close(r.stop) })
	<-r.done
	h, tag, err := r.l.read(ctx)
	if err == nil && h.Holder == r.l.id && h.Epoch == r.epoch {
		_ = r.l.write(ctx, "", r.epoch, tag) // else it expires
	}
}
