// Package token is what a token is, where its records are, and which operations
// make and end it. It reads what it is given and writes nothing itself.
//
// A token has one record, under the keyed hash of its id; its accessor and its
// place under its parent are entries of indexes, committed in the same batch
// (one commit makes a token, one ends it with all below it). The id itself is
// stored nowhere.
package token

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

// Where records are kept (contract 6.2).
const (
	idPrefix       = "sys/token/id/"
	accessorPrefix = "sys/token/accessor/"
	parentPrefix   = "sys/token/parent/"
	// SaltKey is where the key of the hashes is.
	SaltKey = "sys/token/salt"
)

// Token is a token as it is stored. Times are UTC.
type Token struct {
	Hash        string            `json:"-"` // of the id: its name in storage
	Accessor    string            `json:"accessor"`
	Parent      string            `json:"parent,omitempty"` // hash; "" is an orphan
	Path        string            `json:"path"`             // that made it
	DisplayName string            `json:"display_name"`
	Policies    []string          `json:"policies"`
	Meta        map[string]string `json:"meta,omitempty"`
	Created     time.Time         `json:"creation_time"`
	TTL         time.Duration     `json:"ttl"`                  // at creation
	Expires     time.Time         `json:"expire_time,omitzero"` // zero: never
	Indexed     time.Time         `json:"indexed,omitzero"`     // where its entry in the expiry index is: not after Expires
	Renewed     time.Time         `json:"last_renewal,omitzero"`
	MaxTTL      time.Duration     `json:"max_ttl,omitempty"`
	ExplicitMax time.Duration     `json:"explicit_max_ttl,omitempty"`
	Period      time.Duration     `json:"period,omitempty"`
	Renewable   bool              `json:"renewable,omitempty"`
	Uses        int               `json:"num_uses,omitempty"` // left; 0: not limited
	Entity      string            `json:"entity_id,omitempty"`
	Role        string            `json:"role,omitempty"`
	CIDRs       []string          `json:"bound_cidrs,omitempty"`
	Batch       bool              `json:"-"` // stored nowhere
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
type Book struct {
	Reader Reader
	Salt   []byte
}

// NewSalt draws a salt.
func NewSalt() []byte {
	salt := make([]byte, 32)
	_, _ = rand.Read(salt)
	return salt
}

// Hash is the name of an id, or of an accessor, in storage.
func (b *Book) Hash(id string) string {
	mac := hmac.New(sha256.New, b.Salt)
	mac.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewID draws the id of a service token: 160 bits and more.
func NewID() string { return "hvs." + draw(28) }

// NewAccessor draws an accessor.
func NewAccessor() string { return draw(24) }

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
	t := &Token{}
	if err := json.Unmarshal(raw, t); err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the record of a token (%s) is not what was stored", hash)
	}
	t.Hash = hash
	return t, nil
}

// ByAccessor returns the token with the accessor, or nil.
func (b *Book) ByAccessor(ctx context.Context, accessor string) (*Token, error) {
	hash, ok, err := b.Reader.Get(ctx, accessorPrefix+b.Hash(accessor))
	if err != nil || !ok {
		return nil, err
	}
	return b.Find(ctx, string(hash))
}

// Accessors lists the accessors of all tokens, in pages: after is the last key of the page before.
func (b *Book) Accessors(ctx context.Context, after string, limit int) (list []string, last string, err error) {
	from := accessorPrefix
	if after != "" {
		from = after + "\x00"
	}
	records, err := b.Reader.Scan(ctx, from, storage.After(accessorPrefix), limit)
	for _, r := range records {
		t, err := b.Find(ctx, string(r.Value))
		if err != nil {
			return nil, "", err
		}
		if t != nil {
			list = append(list, t.Accessor)
		}
		last = r.Key
	}
	return list, last, err
}

// Make gives the operations that store a new token under id.
func (b *Book) Make(id string, t *Token) ([]secrets.Op, error) {
	t.Hash = b.Hash(id)
	ops, err := stored(t, true)
	if err != nil {
		return nil, err
	}
	ops = append(ops, storage.Put(accessorPrefix+b.Hash(t.Accessor), []byte(t.Hash)))
	if t.Parent != "" {
		ops = append(ops, storage.Put(parentPrefix+t.Parent+"/"+t.Hash, []byte(b.Hash(t.Accessor))))
	}
	return ops, nil
}

// Store gives the operation that stores a token again after a change.
func Store(t *Token) (secrets.Op, error) {
	raw, err := json.Marshal(t)
	return storage.Put(idPrefix+t.Hash, raw), err
}

// HashOf returns the token that a storage key is the record of.
func HashOf(key string) (hash string, ok bool) { return strings.CutPrefix(key, idPrefix) }

// child is a token as its parent's index tells it.
type child struct{ hash, accessor string }

func (b *Book) children(ctx context.Context, hash string) ([]child, error) {
	prefix := parentPrefix + hash + "/"
	records, err := b.Reader.Scan(ctx, prefix, storage.After(prefix), 0)
	list := make([]child, 0, len(records))
	for _, r := range records {
		list = append(list, child{strings.TrimPrefix(r.Key, prefix), string(r.Value)})
	}
	return list, err
}

// End gives the operations that end a token and all below it, those first that
// are furthest down, and the hashes that end. The index alone is read, not the tokens, so those below keep
// their entries in the expiry index, which go when their time comes.
func (b *Book) End(ctx context.Context, t *Token) (ops []secrets.Op, ended []string, err error) {
	var below func(parent string) error
	below = func(parent string) error {
		list, err := b.children(ctx, parent)
		if err != nil {
			return err
		}
		for _, c := range list {
			if err := below(c.hash); err != nil {
				return err
			}
			ops = append(ops, storage.Delete(idPrefix+c.hash), storage.Delete(accessorPrefix+c.accessor), storage.Delete(parentPrefix+parent+"/"+c.hash))
			ended = append(ended, c.hash)
		}
		return nil
	}
	if err := below(t.Hash); err != nil {
		return nil, nil, err
	}
	return append(ops, b.endOne(t)...), append(ended, t.Hash), nil
}

// EndAlone gives the operations that end a token and make its children orphans.
func (b *Book) EndAlone(ctx context.Context, t *Token) ([]secrets.Op, error) {
	list, err := b.children(ctx, t.Hash)
	if err != nil {
		return nil, err
	}
	ops := b.endOne(t)
	for _, c := range list {
		orphan, err := b.Find(ctx, c.hash)
		if err != nil {
			return nil, err
		}
		ops = append(ops, storage.Delete(parentPrefix+t.Hash+"/"+c.hash))
		if orphan != nil {
			orphan.Parent = ""
			op, err := Store(orphan)
			if err != nil {
				return nil, err
			}
			ops = append(ops, op)
		}
	}
	return ops, nil
}

func (b *Book) endOne(t *Token) []secrets.Op {
	ops := []secrets.Op{storage.Delete(idPrefix + t.Hash), storage.Delete(accessorPrefix + b.Hash(t.Accessor))}
	if t.Parent != "" {
		ops = append(ops, storage.Delete(parentPrefix+t.Parent+"/"+t.Hash))
	}
	if !t.Indexed.IsZero() {
		ops = append(ops, storage.Delete(DueKey(t.Indexed, t.Hash)))
	}
	return ops
}
