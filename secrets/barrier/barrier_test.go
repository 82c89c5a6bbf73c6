package barrier

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
)

var root = bytes.Repeat([]byte("k"), KeyBytes)

func opened(t testing.TB) (*Barrier, storage.Backend) {
	t.Helper()
	under := memstore.New()
	b := New(under, time.Now)
	must(t, b.Initialize(t.Context(), 0, root, nil))
	return b, under
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantGet(t *testing.T, b *Barrier, key, want string) {
	t.Helper()
	got, ok, err := b.Get(t.Context(), key)
	if err != nil || !ok || string(got) != want {
		t.Errorf("Get(%q) = %q, %t, %v; want %q", key, got, ok, err, want)
	}
}

func TestLife(t *testing.T) {
	ctx := t.Context()
	under := memstore.New()
	b := New(under, time.Now)
	if err := b.Unseal(ctx, root); !errors.Is(err, ErrUninitialized) {
		t.Errorf("Unseal before Initialize: %v", err)
	}
	must(t, b.Initialize(ctx, 0, root, nil, storage.Put("core/mounts", []byte("first"))))
	if err := b.Initialize(ctx, 0, root, nil); !errors.Is(err, ErrInitialized) {
		t.Errorf("Initialize twice: %v", err)
	}
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Put("a/b", []byte("plain")), storage.Put("empty", []byte{})}))
	b.Seal()
	_, _, err := b.Get(ctx, "a/b")
	for call, err := range map[string]error{"Get": err, "Commit": b.Commit(ctx, 0, nil), "Rotate": b.Rotate(ctx, 0),
		"Reload": b.Reload(ctx)} {
		if !errors.Is(err, ErrSealed) {
			t.Errorf("%s while sealed: %v", call, err)
		}
	}
	for _, wrong := range [][]byte{nil, []byte("short"), bytes.Repeat([]byte("x"), KeyBytes)} {
		if err := b.Unseal(ctx, wrong); !errors.Is(err, ErrWrongKey) {
			t.Errorf("Unseal with a wrong key: %v", err)
		}
	}
	must(t, b.Unseal(ctx, root))
	wantGet(t, b, "core/mounts", "first")
	wantGet(t, b, "a/b", "plain")
	wantGet(t, b, "empty", "")
	if !b.Holds(root) || b.Holds(bytes.Repeat([]byte("x"), KeyBytes)) {
		t.Error("Holds is wrong")
	}
}

func TestRotateAndRekey(t *testing.T) {
	ctx := t.Context()
	b, under := opened(t)
	standby := New(under, time.Now)
	must(t, standby.Unseal(ctx, root))
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Put("old", []byte("1"))}))
	must(t, b.Rotate(ctx, 0))
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Put("new", []byte("2"))}))
	if s, err := b.Status(); err != nil || s.Term != 2 || s.Encryptions != 1 {
		t.Errorf("status %+v, %v", s, err)
	}
	if _, _, err := standby.Get(ctx, "new"); !errkind.Is(err, errkind.Corrupt) {
		t.Errorf("a term that the other server does not know: %v", err)
	}
	must(t, standby.Reload(ctx))
	wantGet(t, standby, "new", "2")
	other := bytes.Repeat([]byte("o"), KeyBytes)
	must(t, b.Rekey(ctx, 0, other, nil))
	b.Seal()
	if err := b.Unseal(ctx, root); !errors.Is(err, ErrWrongKey) {
		t.Errorf("the former root key: %v", err)
	}
	must(t, b.Unseal(ctx, other))
	wantGet(t, b, "old", "1")
	wantGet(t, b, "new", "2")
	if s, _ := b.Status(); s.Encryptions != 1 {
		t.Errorf("encryptions were not kept: %+v", s)
	}
}

// What is stored shows nothing of what went in, and any change of it is noticed.
func TestNothingInPlainAndNoChangeUnnoticed(t *testing.T) {
	ctx := t.Context()
	b, under := opened(t)
	const marked = "a-marked-secret-that-nobody-may-see"
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Put("x", []byte(marked)), storage.Put("y", []byte(marked))}))
	all, err := under.Scan(ctx, "", "", 0)
	must(t, err)
	for _, r := range all {
		for _, plain := range []string{marked, string(root), base64.StdEncoding.EncodeToString(root)} {
			if bytes.Contains(r.Value, []byte(plain)) {
				t.Errorf("%s holds %q in plain", r.Key, plain)
			}
		}
	}
	x, _, _ := under.Get(ctx, "x")
	for at := range x {
		changed := bytes.Clone(x)
		changed[at] ^= 1 << (at % 8)
		must(t, under.Commit(ctx, 0, []storage.Op{storage.Put("x", changed)}))
		if got, _, err := b.Get(ctx, "x"); !errkind.Is(err, errkind.Corrupt) || !strings.Contains(err.Error(), "x: ") ||
			got != nil {
			t.Fatalf("with bit %d of byte %d changed: %q, %v", at%8, at, got, err)
		}
	}
	must(t, under.Commit(ctx, 0, []storage.Op{storage.Put("y", x)}))
	if _, _, err := b.Get(ctx, "y"); !errkind.Is(err, errkind.Corrupt) {
		t.Errorf("a record under another key: %v", err)
	}
	list, broken, err := b.Scan(ctx, "", "", 0)
	if err != nil || len(list) != 0 || len(broken) != 2 {
		t.Errorf("Scan over damage: %d records, %v, %v", len(list), broken, err)
	}
}

// A ring made by hand with the contract's form opens, and so do records of both versions.
func TestFormOfTheContract(t *testing.T) {
	ctx := t.Context()
	under := memstore.New()
	rootKey, err := newKey(rootTerm, root, time.Time{}, 0)
	must(t, err)
	data := bytes.Repeat([]byte("d"), KeyBytes)
	text, err := json.Marshal(map[string]any{"MasterKey": root, "Keys": []map[string]any{
		{"Term": 3, "Version": 1, "Value": data, "InstallTime": "2024-01-02T03:04:05Z"}},
		"RotationConfig": map[string]any{"MaxOperations": 1000000}})
	must(t, err)
	dataKey, err := newKey(3, data, time.Time{}, 0)
	must(t, err)
	bare := append([]byte{0, 0, 0, 3, versionBare}, make([]byte, nonceBytes)...)
	bare = dataKey.aead.Seal(bare, bare[5:headBytes], []byte("without a path"), nil)
	must(t, under.Commit(ctx, 0, []storage.Op{storage.Put(KeyringPath, rootKey.seal(KeyringPath, text)),
		storage.Put("bare", bare),
		storage.Put("bound", dataKey.seal("bound", []byte("with its path")))}))
	b := New(under, time.Now)
	must(t, b.Unseal(ctx, root))
	wantGet(t, b, "bare", "without a path")
	wantGet(t, b, "bound", "with its path")
	for name, plain := range map[string]string{"not JSON": "x", "no keys": "{}",
		"doubled": `{"Keys":[{"Term":1,"Value":"` +
			base64.StdEncoding.EncodeToString(data) + `"},{"Term":1,"Value":"` + base64.StdEncoding.EncodeToString(data) +
			`"}]}`, "short key": `{"Keys":[{"Term":1,"Value":"AAAA"}]}`} {
		must(t, under.Commit(ctx, 0, []storage.Op{storage.Put(KeyringPath, rootKey.seal(KeyringPath, []byte(plain)))}))
		if err := New(under, time.Now).Unseal(ctx, root); !errkind.Is(err, errkind.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoncesAreUsedOnce(t *testing.T) {
	k, err := newKey(1, root, time.Time{}, 0)
	must(t, err)
	k.nonces.Load().used.Store(1<<32 - 500) // passes the end of a prefix on the way
	const each = 2000
	lists := make([][]string, 4)
	var wg sync.WaitGroup
	for i := range lists {
		wg.Go(func() {
			for range each {
				lists[i] = append(lists[i], string(k.nonce(nil)))
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, list := range lists {
		for _, n := range list {
			if seen[n] {
				t.Fatalf("the nonce %x was used twice", n)
			}
			seen[n] = true
		}
	}
}

// Sealing and rotating beside traffic: every read gives what was written or says that it is sealed.
func TestSealUnderTraffic(t *testing.T) {
	b, _ := opened(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := b.Commit(t.Context(), 0, []storage.Op{storage.Put("k", []byte("v"))})
				if err != nil && !errors.Is(err, ErrSealed) {
					t.Errorf("Commit: %v", err)
				}
				got, ok, err := b.Get(t.Context(), "k")
				if (err != nil && !errors.Is(err, ErrSealed)) || (ok && string(got) != "v") {
					t.Errorf("Get: %q, %v", got, err)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		switch rng.IntN(3) {
		case 0:
			b.Seal()
			must(t, b.Unseal(t.Context(), root))
		case 1:
			must(t, b.Rotate(t.Context(), 0))
		case 2:
			_, err := b.Tend(t.Context(), 0)
			must(t, err)
		}
	}
	cancel()
	wg.Wait()
}

// A key ends by number and by age.
func TestTermsBeginByTheRule(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	under := memstore.New()
	b := New(under, func() time.Time { return now })
	must(t, b.Initialize(ctx, 0, root, nil))
	if rule, err := b.Rotation(); err != nil || rule != (Rotation{MaxOperations: MostOperations}) {
		t.Errorf("at first: %+v, %v", rule, err)
	}
	tend := func(want bool, what string) {
		t.Helper()
		if rotated, err := b.Tend(ctx, 0); err != nil || rotated != want {
			t.Errorf("%s: rotated %v, %v", what, rotated, err)
		}
	}
	must(t, b.SetRotation(ctx, 0, Rotation{MaxOperations: 3, Interval: LeastInterval}))
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Put("a", []byte("1"))}))
	tend(false, "one encryption")
	must(t, b.Commit(ctx, 0, []storage.Op{storage.Put("a", []byte("2")), storage.Put("b", []byte("3"))}))
	tend(true, "three encryptions")
	tend(false, "at once again")
	b = New(under, func() time.Time { return now })
	must(t, b.Unseal(ctx, root))
	now = now.Add(LeastInterval)
	tend(true, "another process, after a day")
	if st, err := b.Status(); err != nil || st.Term != 3 {
		t.Errorf("%+v, %v: want the third term", st, err)
	}
	must(t, b.SetRotation(ctx, 0, Rotation{MaxOperations: 3, Interval: LeastInterval, Disabled: true}))
	now = now.Add(2 * LeastInterval)
	tend(false, "turned off")
	b.Seal()
	if _, err := b.Tend(ctx, 0); !errors.Is(err, ErrSealed) {
		t.Errorf("sealed: %v", err)
	}
}

// A keyring is not stored over another than the ring's: of a snapshot, or of a change whose outcome nobody knows.
func TestKeyringOverAnother(t *testing.T) {
	ctx := t.Context()
	under := &unclear{Backend: memstore.New()}
	b, other := New(under, time.Now), New(under, time.Now)
	must(t, b.Initialize(ctx, 0, root, nil))
	must(t, other.Unseal(ctx, root))
	must(t, other.Rotate(ctx, 0))
	must(t, other.Commit(ctx, 0, []storage.Op{storage.Put("a", []byte("1"))}))
	rule := Rotation{MaxOperations: LeastOperations}
	if err := b.SetRotation(ctx, 0, rule); !errors.Is(err, errAnother) {
		t.Fatalf("a keyring was stored over another: %v", err)
	}
	must(t, b.Reload(ctx))
	must(t, b.SetRotation(ctx, 0, rule))

	under.lost = true // what is stored is not known to be
	if err := b.Rotate(ctx, 0); !errkind.Is(err, errkind.Unknown) {
		t.Fatal(err)
	}
	under.lost = false
	for what, do := range map[string]func() error{
		"another change": func() error { return b.Rotate(ctx, 0) },
		"a replacement":  func() error { return b.Replacing(func() error { return nil }) },
	} {
		if err := do(); !errors.Is(err, errDoubt) {
			t.Errorf("%s after an unknown outcome: %v", what, err)
		}
	}
	must(t, b.Reload(ctx))
	must(t, b.Rotate(ctx, 0))
	if got, _, err := b.Get(ctx, "a"); err != nil || string(got) != "1" {
		t.Fatal(string(got), err)
	}
}

// Who replaces the storage has no keyring stored meanwhile, and what comes after finds another.
func TestKeyringBesideAReplacement(t *testing.T) {
	ctx := t.Context()
	under := memstore.New()
	b := New(under, time.Now)
	must(t, b.Initialize(ctx, 0, root, nil))
	inside, rotated := make(chan struct{}), make(chan error, 1)
	must(t, b.Replacing(func() error {
		go func() {
			close(inside)
			rotated <- b.Rotate(ctx, 0)
		}()
		<-inside
		return under.Commit(ctx, 0, []storage.Op{storage.Put(KeyringPath, []byte("of a snapshot"))})
	}))
	if err := <-rotated; !errors.Is(err, errAnother) {
		t.Fatal(err)
	}
	if got, _, err := under.Get(ctx, KeyringPath); err != nil || string(got) != "of a snapshot" {
		t.Fatal("the snapshot's keyring is gone:", err)
	}
}

// unclear is a storage whose commits happen, and lose their answer.
type unclear struct {
	storage.Backend
	lost bool
}

func (u *unclear) Commit(ctx context.Context, e storage.Epoch, ops []storage.Op) error {
	err := u.Backend.Commit(ctx, e, ops)
	if err == nil && u.lost {
		return errkind.New(errkind.Unknown, "the answer was lost")
	}
	return err
}

// FuzzOpen: stored bytes never panic and never open unless they are what was sealed.
func FuzzOpen(f *testing.F) {
	k, err := newKey(1, root, time.Time{}, 0)
	if err != nil {
		f.Fatal(err)
	}
	good := k.seal("at", []byte("plain"))
	f.Add(good)
	f.Add([]byte{})
	f.Add(good[:headBytes])
	f.Fuzz(func(t *testing.T, record []byte) {
		plain, err := open(func(uint32) *key { return k }, "at", record)
		if err == nil && !bytes.Equal(record, good) && string(plain) != "plain" {
			t.Errorf("%x opened to %q", record, plain)
		}
	})
}

func TestAllocations(t *testing.T) {
	k, err := newKey(1, root, time.Time{}, 0)
	must(t, err)
	plain := make([]byte, 130)
	record := k.seal("logical/kv/key", plain)
	if n := testing.AllocsPerRun(100, func() { k.seal("logical/kv/key", plain) }); n > 2 {
		t.Errorf("seal allocates %v times", n)
	}
	find := func(uint32) *key { return k }
	if n := testing.AllocsPerRun(100, func() { _, _ = open(find, "logical/kv/key", record) }); n > 2 {
		t.Errorf("open allocates %v times", n)
	}
}

func BenchmarkSeal(b *testing.B) {
	k, _ := newKey(1, root, time.Time{}, 0)
	plain := make([]byte, 130)
	b.ReportAllocs()
	for b.Loop() {
		k.seal("logical/kv/write-random-test-1234", plain)
	}
}

func BenchmarkOpen(b *testing.B) {
	k, _ := newKey(1, root, time.Time{}, 0)
	record := k.seal("logical/kv/write-random-test-1234", make([]byte, 130))
	find := func(uint32) *key { return k }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := open(find, "logical/kv/write-random-test-1234", record); err != nil {
			b.Fatal(err)
		}
	}
}
