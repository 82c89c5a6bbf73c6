package barrier

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// KeyringPath is where the keyring is kept, under the root key.
const KeyringPath = "core/keyring"

// rootTerm is the term that records under the root key state (contract 6.9).
const rootTerm = 1

// ring is all keys of an unsealed barrier. Immutable; a rotation makes the next.
type ring struct {
	root     *key
	keys     map[uint32]*key
	active   *key
	rotation Rotation
	record   []byte // that is stored of it
}

// storedRing is the keyring as it is stored, with the field names of the contract.
type storedRing struct {
	MasterKey      []byte
	Keys           []storedKey
	RotationConfig Rotation
}

type storedKey struct {
	Term        uint32
	Version     int
	Value       []byte
	InstallTime time.Time
	Encryptions uint64 `json:"encryptions"`
}

// Rotation says when a new term begins by itself. Nonces are counted, so safety never asks for one. Encryptions are
// counted since the keyring was last stored or read.
type Rotation struct {
	MaxOperations int64         // encryptions under one key
	Interval      time.Duration // 0 is none
	Disabled      bool
}

// The bounds of Rotation.MaxOperations; the most is the default (contract 6.9). An interval is a day at least.
const (
	LeastOperations = 1_000_000
	MostOperations  = 3_865_470_566
	LeastInterval   = 24 * time.Hour
)

// due tells whether the key in use has served its time.
func (r *ring) due(now time.Time) bool {
	rule, k := r.rotation, r.active
	return !rule.Disabled && (k.encryptions() >= uint64(rule.MaxOperations) ||
		rule.Interval > 0 && now.Sub(k.installed) >= rule.Interval)
}

// with is the ring under another rule.
func (r *ring) with(rule Rotation) *ring {
	next := *r
	next.rotation = rule
	return &next
}

func newRing(root []byte, now time.Time) (*ring, error) {
	rootKey, err := newKey(rootTerm, root, now, 0)
	if err != nil {
		return nil, err
	}
	return (&ring{root: rootKey, rotation: Rotation{MaxOperations: MostOperations}}).grown(now)
}

// grown is the ring with a further term, which is the active one.
func (r *ring) grown(now time.Time) (*ring, error) {
	next := &ring{root: r.root, keys: map[uint32]*key{}, rotation: r.rotation}
	term := uint32(1)
	for t, k := range r.keys {
		next.keys[t] = k
		term = max(term, t+1)
	}
	value := make([]byte, keyBytes)
	_, _ = rand.Read(value)
	k, err := newKey(term, value, now, 0)
	if err != nil {
		return nil, err
	}
	next.keys[term], next.active = k, k
	return next, nil
}

// under is the ring with another root key.
func (r *ring) under(root []byte, now time.Time) (*ring, error) {
	rootKey, err := newKey(rootTerm, root, now, 0)
	if err != nil {
		return nil, err
	}
	return &ring{root: rootKey, keys: r.keys, active: r.active, rotation: r.rotation}, nil
}

// keeping is the ring with the keys of old where they are the same: those know how often they were used.
func (r *ring) keeping(old *ring) *ring {
	if old == nil {
		return r
	}
	for term, k := range r.keys {
		if was := old.keys[term]; was != nil && bytes.Equal(was.value, k.value) {
			r.keys[term] = was
		}
	}
	r.active = r.keys[r.active.term]
	return r
}

func (r *ring) find(term uint32) *key { return r.keys[term] }

// sealed is the ring's record.
func (r *ring) sealed() ([]byte, error) {
	stored := storedRing{MasterKey: r.root.value, RotationConfig: r.rotation}
	for term := uint32(1); len(stored.Keys) < len(r.keys); term++ {
		if k := r.keys[term]; k != nil {
			stored.Keys = append(stored.Keys, storedKey{Term: k.term, Version: 1, Value: k.value, InstallTime: k.installed,
				Encryptions: k.encryptions()})
		}
	}
	plain, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	return r.root.seal(KeyringPath, plain), nil
}

func (k *key) encryptions() uint64 { return k.before + k.count.Load() }

// ErrWrongKey says that the keyring does not open under the key that was given.
var ErrWrongKey = errors.New("the unseal key is not the right one")

// openRing opens a stored ring. An error that is not ErrWrongKey says that the
// key is right and what it opened is not a keyring.
func openRing(root, record []byte, now time.Time) (*ring, error) {
	rootKey, err := newKey(rootTerm, root, now, 0)
	if err != nil {
		return nil, ErrWrongKey
	}
	plain, err := open(func(uint32) *key { return rootKey }, KeyringPath, record)
	if err != nil {
		return nil, ErrWrongKey
	}
	defer clear(plain)
	var stored storedRing
	if err := json.Unmarshal(plain, &stored); err != nil {
		return nil, damaged(KeyringPath, errors.New("it is not JSON"))
	}
	r := &ring{root: rootKey, keys: map[uint32]*key{}, rotation: stored.RotationConfig}
	if r.rotation.MaxOperations == 0 {
		r.rotation.MaxOperations = MostOperations
	}
	for _, s := range stored.Keys {
		k, err := newKey(s.Term, s.Value, s.InstallTime, s.Encryptions)
		if err != nil {
			return nil, damaged(KeyringPath, err)
		}
		if r.keys[s.Term] != nil || s.Term == 0 {
			return nil, damaged(KeyringPath, fmt.Errorf("term %d is doubled or zero", s.Term))
		}
		r.keys[s.Term] = k
		if r.active == nil || k.term > r.active.term {
			r.active = k
		}
	}
	if r.active == nil {
		return nil, damaged(KeyringPath, errors.New("it has no keys"))
	}
	return r, nil
}

// wipe zeroes the keys' bytes. What the ciphers made of them is left to the collector.
func (r *ring) wipe() {
	clear(r.root.value)
	for _, k := range r.keys {
		clear(k.value)
	}
}
