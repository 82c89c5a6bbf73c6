package barrier

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// Barrier encrypts records on their way to a backend.
type Barrier struct {
	under storage.Backend
	now   func() time.Time
	ring  atomic.Pointer[ring] // nil: sealed

	storing sync.Mutex // who stores a keyring or replaces the storage; before mu
	mu      sync.Mutex // one change of the ring at a time; guards what follows
	doubt   bool       // a keyring may have been stored, or may yet be, that is not the ring
}

// New makes a sealed barrier over a backend, which it does not close.
func New(under storage.Backend, now func() time.Time) *Barrier {
	return &Barrier{under: under, now: now}
}

var (
	// ErrSealed says that the barrier has no keys.
	ErrSealed = errkind.New(errkind.Unavailable, "Vault is sealed")
	// ErrInitialized says that there is a keyring already.
	ErrInitialized = errkind.New(errkind.Invalid, "Vault is already initialized")
	// ErrUninitialized says that there is none.
	ErrUninitialized = errkind.New(errkind.Invalid, "Vault is not initialized")
)

// KeyBytes is the length of a root key.
const KeyBytes = keyBytes

// Initialized reports whether the backend holds a keyring.
func (b *Barrier) Initialized(ctx context.Context) (bool, error) {
	_, ok, err := b.under.Get(ctx, KeyringPath)
	return ok, err
}

// Initialize makes the first keyring under a root key, and commits it together
// with the given operations, which are encrypted like any other, and with plain ones,
// which are stored as they are. The barrier is unsealed afterwards.
func (b *Barrier) Initialize(ctx context.Context, epoch storage.Epoch, root []byte, plain []storage.Op,
	ops ...storage.Op) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok, err := b.Initialized(ctx); err != nil || ok {
		return cmp.Or(err, ErrInitialized)
	}
	r, err := newRing(append([]byte(nil), root...), b.now())
	if err != nil {
		return errkind.E(errkind.Invalid, "barrier", err)
	}
	return b.commitRing(ctx, epoch, r, plain, ops)
}

// commitRing stores a ring, with operations encrypted under it and plain ones, and puts it to use.
func (b *Barrier) commitRing(ctx context.Context, epoch storage.Epoch, r *ring, plain, ops []storage.Op) error {
	record, err := r.sealed()
	if err != nil {
		return err
	}
	batch := append(append(encrypt(r, ops), plain...), storage.Put(KeyringPath, record))
	if err := b.under.Commit(ctx, epoch, batch); err != nil {
		b.doubt = errkind.Is(err, errkind.Unknown)
		return err // the ring in use stays
	}
	r.record = record
	b.ring.Store(r) // before anybody can commit under it
	return nil
}

// Unseal opens the keyring with a root key. The error is ErrWrongKey when the key is another.
func (b *Barrier) Unseal(ctx context.Context, root []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ring.Load() != nil {
		return nil
	}
	return b.loadLocked(ctx, append([]byte(nil), root...))
}

// Reload reads the keyring again: another server may have begun a term.
func (b *Barrier) Reload(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.ring.Load()
	if r == nil {
		return ErrSealed
	}
	return b.loadLocked(ctx, r.root.value)
}

func (b *Barrier) loadLocked(ctx context.Context, root []byte) error {
	record, ok, err := b.under.Get(ctx, KeyringPath)
	if err != nil {
		return err
	}
	if !ok {
		return ErrUninitialized
	}
	r, err := openRing(root, record, b.now())
	if err != nil {
		return err
	}
	r.record, b.doubt = record, false
	b.ring.Store(r.keeping(b.ring.Load()))
	return nil
}

// Seal forgets all keys. Calls that are under way end with the key that they have.
func (b *Barrier) Seal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.ring.Swap(nil); r != nil {
		r.wipe()
	}
}

// Sealed reports whether there are no keys.
func (b *Barrier) Sealed() bool { return b.ring.Load() == nil }

// Rotate begins a new term: what is written from now on is under its key, what is there stays readable.
func (b *Barrier) Rotate(ctx context.Context, epoch storage.Epoch) error {
	return b.change(ctx, epoch, func(r *ring) (*ring, error) { return r.grown(b.now()) }, nil)
}

// Rekey puts the keyring under another root key, in one commit with the operations, as Initialize.
func (b *Barrier) Rekey(ctx context.Context, epoch storage.Epoch, root []byte, plain []storage.Op,
	ops ...storage.Op) error {
	return b.change(ctx, epoch, func(r *ring) (*ring, error) { return r.under(append([]byte(nil), root...), b.now()) },
		plain, ops...)
}

// Rotation is the rule by which terms begin by themselves.
func (b *Barrier) Rotation() (Rotation, error) {
	r := b.ring.Load()
	if r == nil {
		return Rotation{}, ErrSealed
	}
	return r.rotation, nil
}

// SetRotation gives another rule.
func (b *Barrier) SetRotation(ctx context.Context, epoch storage.Epoch, rule Rotation) error {
	return b.change(ctx, epoch, func(r *ring) (*ring, error) { return r.with(rule), nil }, nil)
}

// Tend begins a new term where the rule asks for one, and tells so.
func (b *Barrier) Tend(ctx context.Context, epoch storage.Epoch) (rotated bool, err error) {
	r := b.ring.Load()
	switch {
	case r == nil:
		return false, ErrSealed
	case !r.due(b.now()):
		return false, nil
	}
	return true, b.Rotate(ctx, epoch)
}

// Replacing calls do, which may replace the storage below, while nobody stores a keyring: a former one over that of a
// snapshot would make everything in it unreadable.
func (b *Barrier) Replacing(do func() error) error {
	b.storing.Lock()
	defer b.storing.Unlock()
	b.mu.Lock()
	doubt := b.doubt
	b.mu.Unlock()
	if doubt {
		return errDoubt
	}
	return do()
}

var (
	errDoubt = errkind.New(errkind.Unavailable, "the outcome of the last change of the keyring is not known: "+
		"have another term begin (operator step-down), or seal and unseal a server that is alone")
	errAnother = errkind.New(errkind.Unavailable, "the stored keyring is not the one that this server has: somebody "+
		"replaced the storage; seal and unseal this server")
)

// own reports whether the stored keyring is still the ring's, so that storing the next one loses no key.
func (b *Barrier) own(ctx context.Context, r *ring) error {
	if b.doubt {
		return errDoubt
	}
	record, ok, err := b.under.Get(ctx, KeyringPath)
	if err == nil && (!ok || !bytes.Equal(record, r.record)) {
		err = errAnother
	}
	return err
}

func (b *Barrier) change(ctx context.Context, epoch storage.Epoch, next func(*ring) (*ring, error), plain []storage.Op,
	ops ...storage.Op) error {
	b.storing.Lock()
	defer b.storing.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.ring.Load()
	if r == nil {
		return ErrSealed
	}
	if err := b.own(ctx, r); err != nil {
		return err
	}
	changed, err := next(r)
	if err != nil {
		return errkind.E(errkind.Invalid, "barrier", err)
	}
	return b.commitRing(ctx, epoch, changed, plain, ops)
}

// Reopen reads the keyring anew under a root key that another server put it under.
func (b *Barrier) Reopen(ctx context.Context, root []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ring.Load() == nil {
		return ErrSealed
	}
	return b.loadLocked(ctx, append([]byte(nil), root...))
}

// Derive makes a key for a purpose of the root key; who has it learns nothing of that.
func (b *Barrier) Derive(purpose string) ([]byte, error) {
	r := b.ring.Load()
	if r == nil {
		return nil, ErrSealed
	}
	return Derive(r.root.value, purpose), nil
}

// Derive is the barrier's of that name, of a root key at hand.
func Derive(root []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, root)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// Root is a copy of the root key, for who seals it anew.
func (b *Barrier) Root() ([]byte, error) {
	r := b.ring.Load()
	if r == nil {
		return nil, ErrSealed
	}
	return append([]byte(nil), r.root.value...), nil
}

// Opens reports whether a keyring, as it is stored, is under the root key of now.
func (b *Barrier) Opens(keyring []byte) bool {
	r := b.ring.Load()
	if r == nil {
		return false
	}
	_, err := openRing(append([]byte(nil), r.root.value...), keyring, b.now())
	return err == nil
}

// Holds reports whether root is the root key, in a time that does not depend on where they differ.
func (b *Barrier) Holds(root []byte) bool {
	r := b.ring.Load()
	return r != nil && subtle.ConstantTimeCompare(r.root.value, root) == 1
}

// KeyStatus is the state of the key in use.
type KeyStatus struct {
	Term        uint32
	Installed   time.Time
	Encryptions uint64
}

// Status returns the state of the active key.
func (b *Barrier) Status() (KeyStatus, error) {
	r := b.ring.Load()
	if r == nil {
		return KeyStatus{}, ErrSealed
	}
	return KeyStatus{r.active.term, r.active.installed, r.active.encryptions()}, nil
}

// Get returns what was committed under the key.
func (b *Barrier) Get(ctx context.Context, key string) (plain []byte, ok bool, err error) {
	if b.Sealed() {
		return nil, false, ErrSealed
	}
	if key == KeyringPath {
		return nil, false, errReserved
	}
	record, ok, err := b.under.Get(ctx, key)
	if err != nil || !ok {
		return nil, false, err
	}
	r := b.ring.Load() // not sooner: the record may be of a term that began meanwhile
	if r == nil {
		return nil, false, ErrSealed
	}
	plain, err = open(r.find, key, record)
	return plain, err == nil, err
}

// List is the backend's: names are not encrypted. It fails while sealed all the same.
func (b *Barrier) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if b.Sealed() {
		return nil, ErrSealed
	}
	return b.under.List(ctx, prefix, after, limit)
}

// Damage is a record that did not open.
type Damage struct {
	Key string
	Err error
}

// Scan returns the records of a range and, apart from them, those that did not
// open: one damaged record takes nothing else with it.
func (b *Barrier) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, []Damage, error) {
	if b.Sealed() {
		return nil, nil, ErrSealed
	}
	list, err := b.under.Scan(ctx, from, to, limit)
	if err != nil {
		return nil, nil, err
	}
	r := b.ring.Load() // as in Get
	if r == nil {
		return nil, nil, ErrSealed
	}
	plain := make([]storage.Record, 0, len(list))
	var broken []Damage
	for _, record := range list {
		if record.Key == KeyringPath {
			continue
		}
		value, err := open(r.find, record.Key, record.Value)
		if err != nil {
			broken = append(broken, Damage{record.Key, err})
			continue
		}
		plain = append(plain, storage.Record{Key: record.Key, Value: value})
	}
	return plain, broken, nil
}

var errReserved = errkind.New(errkind.Invalid, fmt.Sprintf("key %q: is the barrier's own", KeyringPath))

// Commit encrypts the operations and commits them as one.
func (b *Barrier) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	r := b.ring.Load()
	if r == nil {
		return ErrSealed
	}
	for _, op := range ops {
		if strings.EqualFold(op.Key, KeyringPath) {
			return errReserved
		}
	}
	return b.under.Commit(ctx, epoch, encrypt(r, ops))
}

// SealText encrypts what is given out and comes back. name is what it is good for; no record has it as its key.
func (b *Barrier) SealText(name string, plain []byte) ([]byte, error) {
	r := b.ring.Load()
	if r == nil {
		return nil, ErrSealed
	}
	return r.active.seal(name, plain), nil
}

// OpenText gives what SealText encrypted for the name, also under an earlier key; else an error of kind Corrupt.
func (b *Barrier) OpenText(name string, text []byte) ([]byte, error) {
	r := b.ring.Load()
	if r == nil {
		return nil, ErrSealed
	}
	return open(r.find, name, text)
}

// Term is the term whose key encrypted a text, 0 where it says none.
func Term(text []byte) uint32 {
	if len(text) < headBytes {
		return 0
	}
	return binary.BigEndian.Uint32(text)
}

func encrypt(r *ring, ops []storage.Op) []storage.Op {
	sealed := make([]storage.Op, len(ops), len(ops)+1)
	for i, op := range ops {
		sealed[i] = op
		if op.Value != nil && !storage.IsMark(op) {
			sealed[i] = storage.Put(op.Key, r.active.seal(op.Key, op.Value))
		}
	}
	return sealed
}
