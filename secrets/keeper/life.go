package keeper

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/storage"
)

// Where the seal's own records are: outside the barrier, since they open it.
const (
	sealConfigKey = "core/seal-config"
	sealedRootKey = "core/root-key-sealed" // the root key under the unseal key
)

// SealConfig says how the unseal key is split.
type SealConfig struct {
	Type      string `json:"type"`
	Shares    int    `json:"secret_shares"`
	Threshold int    `json:"secret_threshold"`
}

// Initialized is what a first start gives, once.
type Initialized struct {
	Shares    [][]byte
	RootToken string
}

// Init makes the keyring, the first mounts and policies and a root token, as one commit each of
// the barrier and of what it holds. rootToken "" draws one.
func (k *Keeper) Init(ctx context.Context, shares, threshold int, rootToken string) (*Initialized, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := seal.CheckShares(shares, threshold); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	root, unseal := random(barrier.KeyBytes), random(barrier.KeyBytes)
	defer clear(root)
	defer clear(unseal)
	out := &Initialized{}
	var err error
	if out.Shares, err = seal.Split(unseal, shares, threshold); err != nil {
		return nil, err
	}
	if ok, err := k.barrier.Initialized(ctx); err != nil || ok {
		return nil, cmp.Or(err, barrier.ErrInitialized)
	}
	config, err := json.Marshal(SealConfig{"shamir", shares, threshold})
	if err != nil {
		return nil, err
	}
	wrapped, err := wrap(unseal, root)
	if err != nil {
		return nil, err
	}
	plain := []storage.Op{storage.Put(sealConfigKey, config), storage.Put(sealedRootKey, wrapped)}
	if err := k.cfg.Storage.Commit(ctx, k.epoch, plain); err != nil {
		return nil, err
	}
	ops, token, err := k.firstRecords(rootToken)
	if err != nil {
		return nil, err
	}
	out.RootToken = token
	if err := k.barrier.Initialize(ctx, k.epoch, root, ops...); err != nil {
		return nil, err
	}
	k.barrier.Seal() // it opens with the shares that are given out now, like ever after
	return out, nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func wrap(key, plain []byte) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil {
		return nil, err
	}
	nonce := random(aead.NonceSize())
	return aead.Seal(nonce, nonce, plain, []byte(sealedRootKey)), nil
}

func unwrap(key, record []byte) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil || len(record) < aead.NonceSize() {
		return nil, barrier.ErrWrongKey
	}
	plain, err := aead.Open(nil, record[:aead.NonceSize()], record[aead.NonceSize():], []byte(sealedRootKey))
	if err != nil {
		return nil, barrier.ErrWrongKey
	}
	return plain, nil
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// SealStatus is what anybody may know of the seal.
type SealStatus struct {
	Initialized bool
	Sealed      bool
	Config      SealConfig
	Progress    int
	Nonce       string
}

// SealStatus returns the state of the seal.
func (k *Keeper) SealStatus(ctx context.Context) (SealStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sealStatusLocked(ctx)
}

func (k *Keeper) sealStatusLocked(ctx context.Context) (st SealStatus, err error) {
	st.Sealed, st.Progress, st.Nonce = k.Sealed(), len(k.progress), k.nonce
	raw, ok, err := k.cfg.Storage.Get(ctx, sealConfigKey)
	if err != nil || !ok {
		return st, err
	}
	if err := json.Unmarshal(raw, &st.Config); err != nil {
		return st, errkind.Errorf(errkind.Corrupt, "%s is not what was stored", sealConfigKey)
	}
	st.Initialized, err = k.barrier.Initialized(ctx)
	return st, err
}

// ParseShare reads a share as people paste it: hexadecimal or base64.
func ParseShare(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if b, err := hex.DecodeString(text); err == nil && len(b) > 1 {
		return b, nil
	}
	if b, err := base64.StdEncoding.DecodeString(text); err == nil && len(b) > 1 {
		return b, nil
	}
	return nil, errkind.New(errkind.Invalid, "'key' must be a valid hex or base64 string")
}

// Unseal takes one share. With enough of them it unseals; when they give no
// right key all are forgotten and the error is of kind Invalid.
func (k *Keeper) Unseal(ctx context.Context, share []byte) (SealStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st, err := k.sealStatusLocked(ctx)
	if err != nil {
		return st, err
	}
	if !st.Initialized {
		return st, barrier.ErrUninitialized
	}
	if !st.Sealed {
		return st, nil
	}
	if !k.heldLocked(share) {
		if len(k.progress) == 0 {
			k.nonce = newUUID()
		}
		k.progress = append(k.progress, append([]byte(nil), share...))
	}
	if len(k.progress) < st.Config.Threshold {
		return k.sealStatusLocked(ctx)
	}
	shares := k.progress
	k.resetLocked()
	key, err := seal.Combine(shares)
	if err != nil {
		return st, errkind.E(errkind.Invalid, "", err)
	}
	if err := k.openLocked(ctx, key); err != nil {
		return st, err
	}
	return k.sealStatusLocked(ctx)
}

func (k *Keeper) heldLocked(share []byte) bool {
	for _, held := range k.progress {
		if string(held) == string(share) {
			return true
		}
	}
	return false
}

// ResetUnseal forgets the shares that were given so far.
func (k *Keeper) ResetUnseal(ctx context.Context) (SealStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resetLocked()
	return k.sealStatusLocked(ctx)
}

func (k *Keeper) resetLocked() { k.progress, k.nonce = nil, "" }

// openLocked unseals with the unseal key and loads what requests need.
func (k *Keeper) openLocked(ctx context.Context, key []byte) error {
	defer clear(key)
	record, ok, err := k.cfg.Storage.Get(ctx, sealedRootKey)
	if err != nil {
		return err
	}
	if !ok {
		return errkind.Errorf(errkind.Corrupt, "%s is missing", sealedRootKey)
	}
	root, err := unwrap(key, record)
	if err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	defer clear(root)
	if err := k.barrier.Unseal(ctx, root); err != nil {
		return err
	}
	st, err := k.load(ctx)
	if err != nil {
		k.barrier.Seal()
		k.vault.Forget()
		return err
	}
	k.state.Store(st)
	return nil
}

// Seal forgets all keys and everything that they opened.
func (k *Keeper) Seal() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if st := k.state.Swap(nil); st != nil {
		defer closeAudits(st.audits)
	}
	k.barrier.Seal()
	k.vault.Forget()
	k.tokens.forget()
	k.persons.forget()
	k.resetLocked()
}

// Sealed reports whether requests are refused.
func (k *Keeper) Sealed() bool { return k.state.Load() == nil }
