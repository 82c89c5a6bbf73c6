package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
)

// Where the seal's own records are: outside the barrier, since they open it, but the last.
const (
	sealConfigKey     = "core/seal-config"
	sealedRootKey     = "core/root-key-sealed" // the root key under the unseal key, or wrapped by an automatic seal
	recoveryConfigKey = "core/recovery-config" // of an automatic seal: how its recovery key is split
	recoveryKeyKey    = "core/recovery-key"    // that key's hash: it opens nothing, and allows what else unseal shares do
	rootKeyKey        = "core/root-key"        // the root key inside the barrier: a standby follows a change of it
)

// SealRecords are the keys of the records that a server needs to show and to open the seal.
func SealRecords() []string {
	return []string{sealConfigKey, sealedRootKey, recoveryConfigKey, recoveryKeyKey}
}

// shamirType is the type of a seal that people open.
const shamirType = "shamir"

// SealConfig says how a key is split.
type SealConfig struct {
	Type      string `json:"type"`
	Shares    int    `json:"secret_shares"`
	Threshold int    `json:"secret_threshold"`
}

// InitConfig says how a new server's keys are to be.
type InitConfig struct {
	Shares, Threshold                 int      // of the unseal key; nothing with an automatic seal
	RecoveryShares, RecoveryThreshold int      // of the recovery key, with an automatic seal
	PGPKeys, RecoveryPGPKeys          []string // one for each share that is to be encrypted; none: shares are given out in plain
	RootPGPKey                        string   // the same for the root token
	RootToken                         string
	Epoch                             storage.Epoch // to write with, where others share the storage
}

// Initialized is what a first start gives, once. Where there were PGP keys, shares are messages for them (Locked),
// and so is the root token, in base64.
type Initialized struct {
	Shares         [][]byte
	RecoveryShares [][]byte
	RootToken      string
}

// Init is InitWith of an unseal key alone. rootToken "" draws one.
func (k *Keeper) Init(ctx context.Context, shares, threshold int, rootToken string) (*Initialized, error) {
	return k.InitWith(ctx, &InitConfig{Shares: shares, Threshold: threshold, RootToken: rootToken})
}

// InitWith makes the keyring, the first mounts and policies and a root token, as one commit. The server is sealed
// afterwards.
func (k *Keeper) InitWith(ctx context.Context, c *InitConfig) (*Initialized, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	root := random(barrier.KeyBytes)
	defer clear(root)
	out := &Initialized{}
	keys, err := k.initKeys(c)
	if err != nil {
		return nil, err
	}
	plain, err := k.firstSeal(ctx, c, root, out)
	if err != nil {
		return nil, err
	}
	if ok, err := k.records.Barrier.Initialized(ctx); err != nil || ok {
		return nil, cmp.Or(err, barrier.ErrInitialized)
	}
	ops, token, err := k.firstRecords(c.RootToken)
	if err != nil {
		return nil, err
	}
	out.RootToken = token
	if err := keys.lock(out); err != nil { // before anything is stored: what cannot be given out must not hold
		return nil, err
	}
	ops = append(ops, storage.Put(rootKeyKey, append([]byte(nil), root...)))
	if err := k.records.Barrier.Initialize(ctx, c.Epoch, root, plain, ops...); err != nil {
		return nil, err
	}
	k.records.Barrier.Seal() // it opens with the shares that are given out now, like ever after
	return out, nil
}

// firstSeal makes the seal's records, and the shares.
func (k *Keeper) firstSeal(ctx context.Context, c *InitConfig, root []byte, out *Initialized) ([]storage.Op, error) {
	if k.cfg.Seal == nil {
		if c.RecoveryShares > 0 || c.RecoveryThreshold > 0 {
			return nil, errkind.New(errkind.Invalid, "recovery_shares: are for an automatic seal, and this server's is shamir")
		}
		ops, shares, err := shamirSeal(root, c.Shares, c.Threshold)
		out.Shares = shares
		return ops, err
	}
	if c.Shares > 0 || c.Threshold > 0 {
		return nil, errkind.Errorf(errkind.Invalid, "secret_shares: this server's seal is %s, which nobody has shares of: use recovery_shares and recovery_threshold", k.cfg.Seal.Type())
	}
	recovery := random(barrier.KeyBytes)
	defer clear(recovery)
	ops, shares, err := recoveryRecords(recovery, c.RecoveryShares, c.RecoveryThreshold)
	if err != nil {
		return nil, err
	}
	out.RecoveryShares = shares
	more, err := autoSeal(ctx, k.cfg.Seal, root)
	return append(ops, more...), err
}

// shamirSeal are the records of a root key under a new unseal key, and that one's shares.
func shamirSeal(root []byte, shares, threshold int) ([]storage.Op, [][]byte, error) {
	unseal := random(barrier.KeyBytes)
	defer clear(unseal)
	if err := seal.CheckShares(shares, threshold); err != nil {
		return nil, nil, errkind.E(errkind.Invalid, "", err)
	}
	list, err := seal.Split(unseal, shares, threshold)
	if err != nil {
		return nil, nil, err
	}
	ops, err := shamirRecords(root, unseal, shares, threshold)
	return ops, list, err
}

// shamirRecords are the records of a root key under an unseal key.
func shamirRecords(root, unseal []byte, shares, threshold int) ([]storage.Op, error) {
	wrapped, err := seal.Wrap(unseal, root, sealedRootKey)
	if err != nil {
		return nil, err
	}
	config, err := storage.PutJSON(sealConfigKey, SealConfig{shamirType, shares, threshold})
	return []storage.Op{config, storage.Put(sealedRootKey, wrapped), storage.Delete(recoveryConfigKey), storage.Delete(recoveryKeyKey)}, err
}

// autoSeal are the records of a root key under an automatic seal.
func autoSeal(ctx context.Context, a seal.Auto, root []byte) ([]storage.Op, error) {
	wrapped, err := a.Wrap(ctx, root)
	if err != nil {
		return nil, err
	}
	config, err := storage.PutJSON(sealConfigKey, SealConfig{a.Type(), 1, 1})
	return []storage.Op{config, storage.Put(sealedRootKey, wrapped)}, err
}

// recoveryRecords are the records of a recovery key, and its shares.
func recoveryRecords(key []byte, shares, threshold int) ([]storage.Op, [][]byte, error) {
	if err := seal.CheckShares(shares, threshold); err != nil {
		return nil, nil, errkind.Errorf(errkind.Invalid, "%s", strings.ReplaceAll(err.Error(), "secret_", "recovery_"))
	}
	list, err := seal.Split(key, shares, threshold)
	if err != nil {
		return nil, nil, err
	}
	config, err := storage.PutJSON(recoveryConfigKey, SealConfig{shamirType, shares, threshold})
	return []storage.Op{config, storage.Put(recoveryKeyKey, hashOf(key))}, list, err
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// SealStatus is what anybody may know of the seal.
type SealStatus struct {
	Initialized bool
	Sealed      bool
	Config      SealConfig // with an automatic seal, of the recovery key; its Type is the seal's all the same
	Recovery    bool       // the shares are of a recovery key
	Migration   bool       // the configuration asks for another seal than the storage has
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
	st.Sealed, st.Progress, st.Nonce = k.Sealed(), len(k.unsealing.shares), k.unsealing.nonce
	st.Config.Type = shamirType
	if k.cfg.Seal != nil {
		st.Config.Type, st.Recovery = k.cfg.Seal.Type(), true
	}
	config, err := k.sealConfig(ctx, sealConfigKey)
	if err != nil || config == nil {
		return st, err
	}
	if config.Type != shamirType {
		recovery, err := k.sealConfig(ctx, recoveryConfigKey)
		if err != nil || recovery == nil {
			return st, sealed.OrMissing(err, recoveryConfigKey)
		}
		st.Recovery, st.Config = true, *recovery
		st.Config.Type = config.Type
	} else {
		st.Recovery, st.Config = false, *config
	}
	st.Migration = k.sealType() != config.Type
	st.Initialized, err = k.records.Barrier.Initialized(ctx)
	return st, err
}

// sealType is the type of the seal that the configuration asks for.
func (k *Keeper) sealType() string {
	if k.cfg.Seal == nil {
		return shamirType
	}
	return k.cfg.Seal.Type()
}

// sealConfig reads one of the two; nil where there is none.
func (k *Keeper) sealConfig(ctx context.Context, key string) (*SealConfig, error) {
	raw, ok, err := k.records.Under.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	c := &SealConfig{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "%s is not what was stored", key)
	}
	return c, nil
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

// Unseal takes one share of the unseal key, or of the recovery key of an automatic seal. With enough of them it
// unseals; when they give no right key all are forgotten and the error is of kind Invalid. With migrate it also
// puts the root key under the seal that the configuration asks for.
func (k *Keeper) Unseal(ctx context.Context, share []byte) (SealStatus, error) {
	return k.unseal(ctx, share, false)
}

// Migrate is Unseal that goes over to another seal: see Unseal.
func (k *Keeper) Migrate(ctx context.Context, share []byte) (SealStatus, error) {
	return k.unseal(ctx, share, true)
}

func (k *Keeper) unseal(ctx context.Context, share []byte, migrate bool) (SealStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st, err := k.sealStatusLocked(ctx)
	switch {
	case err != nil:
		return st, err
	case !st.Initialized:
		return st, barrier.ErrUninitialized
	case !st.Sealed:
		return st, nil
	case st.Migration != migrate:
		return st, migrationError(st, k.sealType())
	}
	key, err := k.unsealing.add(share, st.Config.Threshold)
	if err != nil {
		return st, err
	}
	if key == nil {
		return k.sealStatusLocked(ctx)
	}
	defer clear(key)
	root, err := k.rootFromShares(ctx, key)
	if err != nil {
		return st, err
	}
	defer clear(root)
	if migrate {
		if err := k.preflight(ctx); err != nil {
			return st, err
		}
		k.migrating = &migration{key: append([]byte(nil), key...), from: st.Config}
	}
	if err := k.openRootLocked(ctx, root); err != nil {
		k.migrating = nil
		return st, err
	}
	return k.sealStatusLocked(ctx)
}

func migrationError(st SealStatus, want string) error {
	if st.Migration {
		return errkind.Errorf(errkind.Invalid, "the configuration asks for the seal %s and the storage is sealed with %s: unseal with migrate=true to go over", want, st.Config.Type)
	}
	return errkind.Errorf(errkind.Invalid, "migrate: there is nothing to go over to: configuration and storage both have the seal %s", want)
}

// rootFromShares finds the root key by a combined key: the one that sealed it, or the recovery key, which
// allows the automatic seal to be asked.
func (k *Keeper) rootFromShares(ctx context.Context, key []byte) ([]byte, error) {
	config, err := k.sealConfig(ctx, sealConfigKey)
	if err != nil || config == nil {
		return nil, sealed.OrMissing(err, sealConfigKey)
	}
	if config.Type == shamirType {
		record, ok, err := k.records.Under.Get(ctx, sealedRootKey)
		if err != nil || !ok {
			return nil, sealed.OrMissing(err, sealedRootKey)
		}
		root, err := seal.Unwrap(key, record, sealedRootKey)
		return root, errkind.E(errkind.Invalid, "", err)
	}
	if err := k.checkRecovery(ctx, key); err != nil {
		return nil, err
	}
	return k.autoRoot(ctx, config.Type)
}

// checkRecovery tells whether a key is the recovery key.
func (k *Keeper) checkRecovery(ctx context.Context, key []byte) error {
	hash, ok, err := k.records.Under.Get(ctx, recoveryKeyKey)
	if err != nil || !ok {
		return sealed.OrMissing(err, recoveryKeyKey)
	}
	if !sameHash(hash, key) {
		return errkind.E(errkind.Invalid, "", errors.New("the recovery key is not the right one"))
	}
	return nil
}

// autoRoot has an automatic seal open the root key: the configured one, or the one that is gone from.
func (k *Keeper) autoRoot(ctx context.Context, kind string) ([]byte, error) {
	by := k.cfg.Seal
	if by == nil || by.Type() != kind {
		by = k.cfg.OldSeal
	}
	if by == nil || by.Type() != kind {
		return nil, errkind.Errorf(errkind.Invalid, "the storage is sealed with %s, and the configuration has no such seal", kind)
	}
	record, ok, err := k.records.Under.Get(ctx, sealedRootKey)
	if err != nil || !ok {
		return nil, sealed.OrMissing(err, sealedRootKey)
	}
	return by.Unwrap(ctx, record)
}

// AutoUnseal unseals with the automatic seal. It does nothing where there is none, where the server is not
// initialized, and where the storage is sealed with another seal than the configuration asks for.
func (k *Keeper) AutoUnseal(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cfg.Seal == nil || !k.Sealed() {
		return nil
	}
	st, err := k.sealStatusLocked(ctx)
	if err != nil || !st.Initialized || st.Migration {
		return err
	}
	root, err := k.autoRoot(ctx, st.Config.Type)
	if err != nil {
		return err
	}
	defer clear(root)
	return k.openRootLocked(ctx, root)
}

// ResetUnseal forgets the shares that were given so far.
func (k *Keeper) ResetUnseal(ctx context.Context) (SealStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unsealing.reset()
	return k.sealStatusLocked(ctx)
}

// openRootLocked unseals with the root key and loads what requests need.
func (k *Keeper) openRootLocked(ctx context.Context, root []byte) error {
	defer lasting(k.meters.own.unseal)()
	if k.cfg.Joining != nil {
		if err := k.cfg.Joining(ctx, root); err != nil {
			return err
		}
	}
	if err := k.records.Barrier.Unseal(ctx, root); err != nil {
		return err
	}
	if err := k.meetCluster(ctx); err != nil {
		k.records.Barrier.Seal()
		return err
	}
	defer k.gate.Changed()
	if k.cfg.Reigns != nil {
		return nil // a standby, until Activate
	}
	st, err := k.loadTimed(ctx)
	if err != nil {
		k.records.Barrier.Seal()
		k.records.Forget()
		return err
	}
	k.gate.Set(st)
	return k.reseal(ctx)
}

// Seal forgets all keys and everything that they opened.
func (k *Keeper) Seal() {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer lasting(k.meters.own.seal)()
	if st := k.gate.Set(nil); st != nil {
		defer lasting(k.meters.own.preSeal)()
		defer closeAudits(st.Audits)
	}
	k.records.Barrier.Seal()
	k.info.Store(nil)
	k.forget()
	k.unsealing.reset()
	k.rekeys.forget()
	k.forgetRooting()
	k.migrating = nil
	k.gate.Changed()
}

// Sealed reports whether there are no keys: every request is refused.
func (k *Keeper) Sealed() bool { return k.records.Sealed() }
