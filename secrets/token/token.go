// Package token is what a token is, where its records are, and which operations
// make and end it. It reads what it is given and writes nothing itself.
//
// A token has one record, under its accessor, which is the keyed hash of its id:
// one look-up finds it by either. Its end, the path that made it and its place under
// its parent are entries of indexes, committed in the same batch. The id itself is
// stored nowhere, and nobody without the key comes from one to the other.
package token

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"hash"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

// Where records are kept (contract 6.2).
const (
	idPrefix = "sys/token/id/"
	// ParentPrefix is where tokens are below their parents: a parent's hash, '/', a child's.
	ParentPrefix = "sys/token/parent/"
	// LeasePrefix is where leases are by their ids; a token's is the path that made it, "/h" and its hash.
	LeasePrefix = "sys/lease/id/"
	// LeasesOf is where leases are by the tokens that made them: a token's hash, '/', the hash of a lease's id.
	LeasesOf = "sys/lease/token/"
	// WorkloadPrefix is where the index of tokens by what they follow is: accessor of the mount, hash of the workload's
	// name, token.
	WorkloadPrefix = "sys/token/workload/"
	// SaltKey is where the key of the hashes is.
	SaltKey = "sys/token/salt"
)

// Token is a token as it is stored (see codec.go). Times are UTC.
type Token struct {
	Hash     string // of the id: its name in storage
	Accessor string // the same: what it may be told by, and opens nothing
	Origin
	DisplayName string
	Policies    []string
	Meta        map[string]string
	Times
	secrets.Lifetime
	Uses     int // left; 0: not limited
	Entity   string
	Role     string
	CIDRs    []string
	Batch    bool   // stored nowhere
	Login    []byte // what the auth method wants to know at a renewal
	Workload string // whose life it follows: the mount's accessor, '/', the hash of its name
}

// Origin is what made a token.
type Origin struct {
	Parent string // hash; "" is an orphan
	Path   string // that made it
}

// Times are the moments of a token's life.
type Times struct {
	Created time.Time
	Expires time.Time // zero: never
	Indexed time.Time // where its entry in the expiry index is: not after Expires
	Renewed time.Time
}

// Expired reports whether the token has ended by now.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Left is how long it lives on; 0 for one that does not end.
func (t *Token) Left(now time.Time) time.Duration {
	if t.Expires.IsZero() {
		return 0
	}
	return max(t.Expires.Sub(now), 0)
}

// Root reports whether it holds the root policy.
func (t *Token) Root() bool { return slices.Contains(t.Policies, "root") }

// Reader is what the package reads from.
type Reader interface {
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
	Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error)
}

// Book finds tokens. The salt keys its hashes: who reads the storage learns no token from guessing.
// It must not be copied once it is in use.
type Book struct {
	Reader Reader
	Salt   []byte
	macs   sync.Pool // keyed hashes that were used
}

// NewSalt draws a salt.
func NewSalt() []byte {
	salt := make([]byte, 32)
	_, _ = rand.Read(salt)
	return salt
}

// hashChars is the length of a hash: 142 bits of it.
const hashChars = 24

// Name is the name of a token in storage: the hash of its id, and behind a dot its namespace, "" the root one. The hash
// is of the whole id, which ends with the namespace too, so nobody moves a token to another one.
func (b *Book) Name(id, space string) string {
	if space == "" {
		return b.Hash(id)
	}
	return b.Hash(id) + "." + space
}

// Hash is letters and digits of an id's keyed hash: its name in storage, in the root namespace.
func (b *Book) Hash(id string) string {
	m, _ := b.macs.Get().(*keyed)
	if m == nil {
		m = &keyed{mac: hmac.New(sha256.New, b.Salt)}
	}
	m.mac.Reset()
	m.buf = append(m.buf[:0], id...)
	m.mac.Write(m.buf)
	var out [hashChars]byte
	for n := 0; ; { // one round, but in one of a million cases
		sum := m.mac.Sum(m.sum[:0])
		for _, c := range sum {
			if c < 248 && n < hashChars { // 4 * 62
				out[n] = letters[c%62]
				n++
			}
		}
		if n == hashChars {
			clear(m.buf)
			b.macs.Put(m)
			return string(out[:])
		}
		m.mac.Write(sum)
	}
}

// keyed is a keyed hash with what it works in.
type keyed struct {
	mac hash.Hash
	buf []byte
	sum [sha256.Size]byte
}

// isHash reports whether a text can be one.
func isHash(text string) bool {
	name, space, _ := strings.Cut(text, ".")
	return len(name) == hashChars && plain(name) && (len(name) == len(text) || isSpace(space))
}

func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > 'z' || !strings.ContainsRune(letters, r) })
}

// spaceChars is the length of a namespace's id.
const spaceChars = 6

func isSpace(text string) bool { return len(text) == spaceChars && plain(text) }

// NewSpace draws the id of a namespace.
func NewSpace() string { return draw(spaceChars) }

// Space is the id of the namespace that a token is of, by its name; "" is the root one.
func Space(hash string) string {
	if len(hash) == hashChars {
		return ""
	}
	_, space, _ := strings.Cut(hash, ".")
	return space
}

// SpaceOf is the id of the namespace that the id of a token or lease ends with; "" where it ends with none.
func SpaceOf(id string) string {
	at := len(id) - spaceChars - 1
	if at <= 0 || id[at] != '.' || !isSpace(id[at+1:]) || id[:at] == "hvs" || id[:at] == "hvb" {
		return ""
	}
	return id[at+1:]
}

const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewID draws the id of a service token: 160 bits and more.
func NewID() string { return "hvs." + draw(28) }

// NewName draws a name that nobody guesses, of an accessor's length.
func NewName() string { return draw(24) }

// draw makes a random text of letters and digits, each as likely as the others.
func draw(n int) string {
	out := make([]byte, 0, n)
	var raw [64]byte
	for {
		_, _ = rand.Read(raw[:])
		for _, b := range raw {
			if b < 248 { // 4 * 62
				out = append(out, letters[b%62])
			}
			if len(out) == n {
				return string(out)
			}
		}
	}
}

// Find returns the token with the hash, or nil. It may have expired.
func (b *Book) Find(ctx context.Context, hash string) (*Token, error) {
	raw, ok, err := b.Reader.Get(ctx, idPrefix+hash)
	if err != nil || !ok {
		return nil, err
	}
	return Decode(storage.Record{Key: idPrefix + hash, Value: raw})
}

// Decode reads the record of a token.
func Decode(r storage.Record) (*Token, error) {
	hash := strings.TrimPrefix(r.Key, idPrefix)
	t, err := decode(r.Value)
	if err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the record of a token (%s) is not what was stored", hash)
	}
	t.Hash, t.Accessor = hash, hash
	return t, nil
}

// ByAccessor returns the token with the accessor, or nil.
func (b *Book) ByAccessor(ctx context.Context, accessor string) (*Token, error) {
	if !isHash(accessor) {
		return nil, nil
	}
	return b.Find(ctx, accessor)
}

// Records is where the tokens' records are, for a scan of their keys.
const Records = idPrefix

// Make gives the operations that store a new token of the root namespace under id.
func (b *Book) Make(id string, t *Token) []secrets.Op { return b.MakeIn(id, "", t) }

// MakeIn is Make for a namespace, which the id ends with.
func (b *Book) MakeIn(id, space string, t *Token) []secrets.Op {
	t.Hash = b.Name(id, space)
	t.Accessor = t.Hash
	ops := stored(t, true)
	if key := t.leaseKey(); key != "" {
		ops = append(ops, storage.Mark(key))
	}
	if t.Workload != "" {
		ops = append(ops, storage.Mark(WorkloadPrefix+t.Workload+"/"+t.Hash))
	}
	if t.Parent != "" {
		ops = append(ops, storage.Put(childKey(t.Parent, t.Hash), []byte(t.Path)))
	}
	return ops
}

// Store gives the operation that stores a token again after a change.
func Store(t *Token) secrets.Op { return storage.Put(idPrefix+t.Hash, t.encode()) }

// HashOf returns the token that a storage key is the record of.
func HashOf(key string) (hash string, ok bool) { return strings.CutPrefix(key, idPrefix) }

// LeaseID is the id of the token's lease, "" of one that does not end, or whose path is too long for a key.
func (t *Token) LeaseID() string {
	if t.Expires.IsZero() {
		return ""
	}
	id := leaseID(t.Path, t.Hash)
	if storage.CheckKey(LeasePrefix+id) != nil {
		return ""
	}
	return id
}

func leaseID(path, hash string) string { return path + "/h" + hash }

func (t *Token) leaseKey() string {
	if id := t.LeaseID(); id != "" {
		return LeasePrefix + id
	}
	return ""
}

// OfLease returns the token that a lease is, by the lease's id.
func OfLease(id string) (hash string, ok bool) {
	i := strings.LastIndexByte(id, '/')
	hash, ok = strings.CutPrefix(id[i+1:], "h")
	return hash, ok && i > 0 && isHash(hash)
}

// Children is where a token's children are, for a scan; what follows in a key is the child's hash.
func Children(hash string) string { return ParentPrefix + hash + "/" }

func childKey(parent, hash string) string { return Children(parent) + hash }

// EndChild gives the operations that end a token of which only its parent's entry was read; path is the entry's
// value. Its entry in the expiry index stays until its time comes.
func EndChild(parent, hash, path string) []secrets.Op {
	ops := []secrets.Op{storage.Delete(idPrefix + hash), storage.Delete(childKey(parent, hash))}
	if key := LeasePrefix + leaseID(path, hash); storage.CheckKey(key) == nil {
		ops = append(ops, storage.Delete(key))
	}
	return ops
}

// EndAlone gives the operations that end a token and make its children orphans.
func (b *Book) EndAlone(ctx context.Context, t *Token) ([]secrets.Op, error) {
	prefix := Children(t.Hash)
	records, err := b.Reader.Scan(ctx, prefix, storage.After(prefix), 0)
	if err != nil {
		return nil, err
	}
	ops := End(t)
	for _, r := range records {
		orphan, err := b.Find(ctx, strings.TrimPrefix(r.Key, prefix))
		if err != nil {
			return nil, err
		}
		ops = append(ops, storage.Delete(r.Key))
		if orphan != nil {
			orphan.Parent = ""
			ops = append(ops, Store(orphan))
		}
	}
	return ops, nil
}

// End gives the operations that end a token, without what is below it.
func End(t *Token) []secrets.Op {
	ops := []secrets.Op{storage.Delete(idPrefix + t.Hash)}
	if key := t.leaseKey(); key != "" {
		ops = append(ops, storage.Delete(key))
	}
	if t.Workload != "" {
		ops = append(ops, storage.Delete(WorkloadPrefix+t.Workload+"/"+t.Hash))
	}
	if t.Parent != "" {
		ops = append(ops, storage.Delete(childKey(t.Parent, t.Hash)))
	}
	if !t.Indexed.IsZero() {
		ops = append(ops, storage.Delete(DueKey(t.Indexed, t.Hash)))
	}
	return ops
}
