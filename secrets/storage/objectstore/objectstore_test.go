package objectstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/storagetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bucket is one in memory that breaks when it is told to.
type bucket struct {
	mu      sync.Mutex
	objects map[string]object
	writes  int
	limit   int
	// fault says what becomes of a write: whether it is done, and what the caller hears.
	fault func(key string) (done bool, err error)
}

type object struct {
	data []byte
	tag  string
}

func newBucket() *bucket { return &bucket{objects: map[string]object{}} }

func (b *bucket) setFault(f func(string) (bool, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
}

func (b *bucket) Info() storage.Info {
	return storage.Info{Name: "test", Durability: "none", ValueBytes: b.limit}
}

func (b *bucket) Get(_ context.Context, key string) ([]byte, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok {
		return nil, "", errkind.Errorf(errkind.NotFound, "%s", key)
	}
	return o.data, o.tag, nil
}

func (b *bucket) write(key string, data []byte, holds func(object, bool) bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	done, fault := true, error(nil)
	if b.fault != nil {
		done, fault = b.fault(key)
	}
	if !done {
		return fault
	}
	old, ok := b.objects[key]
	if !holds(old, ok) {
		return errkind.Errorf(errkind.Conflict, "%s", key)
	}
	if b.limit > 0 && len(data) > b.limit {
		return errkind.Errorf(errkind.TooLarge, "%s has %d bytes", key, len(data))
	}
	b.writes++
	b.objects[key] = object{slices.Clone(data), fmt.Sprint(b.writes)}
	return fault
}

func (b *bucket) Create(_ context.Context, key string, data []byte) error {
	return b.write(key, data, func(_ object, ok bool) bool { return !ok })
}

func (b *bucket) Replace(_ context.Context, key string, data []byte, tag string) error {
	return b.write(key, data, func(o object, ok bool) bool { return ok && o.tag == tag })
}

func (b *bucket) Delete(_ context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, key)
	return nil
}

func (b *bucket) List(_ context.Context, prefix, after string) (out []string, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		if strings.HasPrefix(key, prefix) && key > after && len(out) < 7 {
			out = append(out, key)
		}
	}
	return out, nil
}

func open(t testing.TB, b *bucket, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Bucket: b, JournalBytes: 1 << 10, CommitTime: 5 * time.Second, Pause: 100 * time.Microsecond}
	for _, c := range change {
		c(&cfg)
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	for name, limit := range map[string]int{"whole": 0, "parts": 2000} {
		t.Run(name, func(t *testing.T) {
			var b *bucket
			reopen := func(t *testing.T) storage.Backend { return open(t, b) }
			storagetest.Run(t, storagetest.Kit{
				Open: func(t *testing.T) storage.Backend {
					b = newBucket()
					b.limit = limit
					return reopen(t)
				},
				Reopen: reopen, Second: reopen,
			})
		})
	}
}

func put(s *Store, epoch storage.Epoch, key, value string) error {
	return s.Commit(context.Background(), epoch, []storage.Op{storage.Put(key, []byte(value))})
}

func value(t testing.TB, s *Store, key string) string {
	t.Helper()
	v, _, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

// A writer that slept while the journal went far beyond it, and what it would write was swept away, writes nothing.
func TestAWriterFromThePast(t *testing.T) {
	b := newBucket()
	old := open(t, b)
	if err := errors.Join(old.Fence(t.Context(), 1), put(old, 1, "a", "old")); err != nil {
		t.Fatal(err)
	}
	slept := open(t, b) // knows what old knows, and then sleeps
	young := open(t, b)
	if err := young.Fence(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if err := put(young, 2, "a", fmt.Sprint(i, strings.Repeat("x", 100))); err != nil {
			t.Fatal(err)
		}
	}
	if err := young.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Get(t.Context(), journalKey(3)); !errkind.Is(err, errkind.NotFound) {
		t.Fatal("the journal was not swept; the test proves nothing")
	}
	for _, s := range []*Store{old, slept} {
		if err := put(s, 1, "a", "from the past"); !errors.Is(err, storage.ErrFenced) {
			t.Fatalf("the commit of a former writer: %v", err)
		}
		if got := value(t, s, "a"); !strings.HasPrefix(got, "199") {
			t.Errorf("it has caught up with %q", got)
		}
	}
	if got := value(t, open(t, b), "a"); !strings.HasPrefix(got, "199") {
		t.Fatalf("%q", got)
	}
}

// Whatever the bucket answers, what was acknowledged is there, what was refused is not, and one of two writers writes.
func TestFaultyBucketAndTwoWriters(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := newBucket()
		b.fault = func(string) (bool, error) {
			switch rng.IntN(8) {
			case 0:
				return false, errkind.New(errkind.Unavailable, "503")
			case 1:
				return true, errkind.New(errkind.Unknown, "timeout")
			case 2:
				return false, errkind.New(errkind.Unknown, "timeout")
			}
			return true, nil
		}
		patient := func(c *Config) { c.CommitTime = 30 * time.Second }
		writers := []*Store{open(t, b, patient), open(t, b, patient)}
		epochs := []storage.Epoch{0, 0}
		var newest storage.Epoch
		want, maybe := "", map[string]bool{}
		for step := range 12 {
			w := rng.IntN(2)
			if rng.IntN(4) == 0 {
				next := newest + 1
				if err := writers[w].Fence(t.Context(), next); err != nil {
					t.Fatal(seed, err)
				}
				newest, epochs[w] = next, next
				maybe = map[string]bool{} // what hung before is done or void by now
				continue
			}
			text := fmt.Sprint(step)
			err := put(writers[w], epochs[w], "key", text)
			switch {
			case err == nil && epochs[w] != newest:
				t.Fatalf("seed %d: a former writer wrote", seed)
			case err == nil:
				want, maybe = text, map[string]bool{}
			case errkind.Is(err, errkind.Unknown):
				maybe[text] = true
			case errors.Is(err, storage.ErrFenced) && epochs[w] == newest:
				t.Fatalf("seed %d: the newest writer is fenced", seed)
			}
		}
		b.setFault(nil)
		if got := value(t, open(t, b), "key"); got != want && !maybe[got] {
			t.Fatalf("seed %d: %q, acknowledged was %q", seed, got, want)
		}
		for _, w := range writers {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAnUnreachableBucket(t *testing.T) {
	b := newBucket()
	s := open(t, b, func(c *Config) { c.CommitTime = 300 * time.Millisecond })
	if err := put(s, 0, "a", "1"); err != nil {
		t.Fatal(err)
	}
	b.setFault(func(string) (bool, error) { return false, errkind.New(errkind.Unavailable, "503") })
	if err := put(s, 0, "a", "2"); !errkind.Is(err, errkind.Unavailable) {
		t.Fatal(err)
	}
	if got := value(t, s, "a"); got != "1" {
		t.Fatal("reads go on:", got)
	}
	b.setFault(nil)
	if err := put(s, 0, "a", "3"); err != nil {
		t.Fatal("it goes on by itself:", err)
	}
}

func TestDamageIsNamed(t *testing.T) {
	b := newBucket()
	s := open(t, b)
	for i := range 3 {
		if err := put(s, 0, "a", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	key := journalKey(2)
	good := b.objects[key].data
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 1
		b.objects[key] = object{bad, "x"}
		if _, err := Open(t.Context(), Config{Bucket: b}); !errkind.Is(err, errkind.Corrupt) ||
			!strings.Contains(err.Error(), key) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	delete(b.objects, key)
	if _, err := Open(t.Context(), Config{Bucket: b}); !errkind.Is(err, errkind.Corrupt) {
		t.Fatal("an object is missing:", err)
	}
}

// The times of a lock in use are those that are written down: a product of two of them does not fit into an integer.
func TestLockTimes(t *testing.T) {
	whole, tenth := &Locker{ttl: lockTTL}, &Locker{ttl: lockTTL / 10}
	for _, d := range []time.Duration{lockTTL, lockTrust, lockRenew, lockTry} {
		if whole.scale(d) != d || tenth.scale(d) != d/10 {
			t.Errorf("%v is %v, and %v in a tenth of the time", d, whole.scale(d), tenth.scale(d))
		}
	}
}

// One at a time leads, whatever becomes of the others; who was lost is followed by another.
func TestLock(t *testing.T) {
	b := newBucket()
	s := open(t, b)
	lock := func(id string) *Locker {
		l := s.Locker(id)
		l.ttl = 600 * time.Millisecond
		return l
	}
	a, c := lock("a"), lock("c")
	first, err := a.Acquire(t.Context())
	if err != nil || first.Held(t.Context()) != nil {
		t.Fatal(err)
	}
	got := make(chan storage.Leadership, 1)
	go func() {
		r, err := c.Acquire(context.Background())
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	if id, err := c.Holder(t.Context()); err != nil || id != "a" {
		t.Fatal(id, err)
	}
	// a cannot reach the bucket any more: it stops believing before c takes over.
	b.setFault(func(string) (bool, error) { return false, errkind.New(errkind.Unavailable, "gone") })
	<-first.Done()
	if first.Held(t.Context()) == nil {
		t.Fatal("a lock that is lost is held")
	}
	select {
	case <-got:
		t.Fatal("nobody could have written")
	default:
	}
	b.setFault(nil)
	second := polltest.Get(t, got, "another takes over")
	if second.Epoch() <= first.Epoch() || second.Held(t.Context()) != nil {
		t.Fatal(second.Epoch(), first.Epoch())
	}
	second.Release(t.Context())
	if id, err := a.Holder(t.Context()); err != nil || id != "" || second.Held(t.Context()) == nil {
		t.Fatal(id, err)
	}
	third, err := a.Acquire(t.Context())
	if err != nil || third.Epoch() <= second.Epoch() {
		t.Fatal(err)
	}
	third.Release(t.Context())
}

func FuzzReadEntry(f *testing.F) {
	b := newBucket()
	s, err := Open(context.Background(), Config{Bucket: b})
	if err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(put(s, 0, "a", "b"), s.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.objects[journalKey(1)].data[headBytes:])
	f.Fuzz(func(_ *testing.T, b []byte) { _, _, _ = readEntry(b) })
}
