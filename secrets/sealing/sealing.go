package sealing

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/telemetry"
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

// Config is what a Sealing is made of.
type Config struct {
	Now         func() time.Time
	Log         *slog.Logger
	Metrics     *telemetry.Registry
	ClusterName string
	// Auto opens the root key by itself; nil: people do, with shares. OldAuto is the one to go over from.
	Auto, OldAuto seal.Auto
	// Joining, where it is set, is told the root key before the keyring is read.
	Joining func(ctx context.Context, root []byte) error
	// StepDown is asked to have another server become the active one; nil where there is no other.
	StepDown func()
	// Load reads what requests go by; Forget drops everything that was read; Close ends audit devices.
	Load   func(ctx context.Context) (*tables.Tables, error)
	Forget func()
	Close  func([]*audit.Device)
}

// Sealing opens and closes the store of keys, and begins and ends leadership.
type Sealing struct {
	cfg     Config
	gate    *tables.Gate
	records *sealed.Store
	info    atomic.Pointer[ClusterInfo]
	closed  atomic.Uint64 // how often Seal was called
	timing  struct{ unseal, postUnseal, preSeal, seal *telemetry.Timing }

	mu        sync.Mutex // one change of the seal at a time; guards what follows
	opened    bool       // it was unsealed once since its start
	unsealing gathering
	rekeys    *Rekeys
	roots     *Roots
	migrating *migration
}

// New makes the owner of the seal, of changes of its shares, and of root tokens that are made with them.
func New(c Config, gate *tables.Gate, records *sealed.Store) (*Sealing, *Rekeys, *Roots) {
	s := &Sealing{cfg: c, gate: gate, records: records}
	s.timing.unseal, s.timing.postUnseal = c.Metrics.Timing("core.unseal"), c.Metrics.Timing("core.post_unseal")
	s.timing.preSeal, s.timing.seal = c.Metrics.Timing("core.pre_seal"), c.Metrics.Timing("core.seal-internal")
	s.rekeys, s.roots = &Rekeys{s: s}, &Roots{s: s}
	return s, s.rekeys, s.roots
}

// load is Load of a server that becomes the active one.
func (s *Sealing) load(ctx context.Context) (*tables.Tables, error) {
	defer s.timing.postUnseal.Lasting()()
	return s.cfg.Load(ctx)
}

// SealConfig says how a key is split.
type SealConfig struct {
	Type      string `json:"type"`
	Shares    int    `json:"secret_shares"`
	Threshold int    `json:"secret_threshold"`
}

// InitConfig says how a new server's keys are to be.
type InitConfig struct {
	Shares, Threshold                 int // of the unseal key; nothing with an automatic seal
	RecoveryShares, RecoveryThreshold int // of the recovery key, with an automatic seal
	// one for each share that is to be encrypted; none: shares are given out in plain
	PGPKeys, RecoveryPGPKeys []string
	RootPGPKey               string // the same for the root token
	RootToken                string
	Epoch                    storage.Epoch // to write with, where others share the storage
}

// Initialized is what a first start gives, once. Where there were PGP keys, shares are messages for them (Locked),
// and so is the root token, in base64.
type Initialized struct {
	Shares         [][]byte
	RecoveryShares [][]byte
	RootToken      string
}

// Init is InitWith of an unseal key alone. rootToken "" draws one.
func (s *Sealing) Init(ctx context.Context, shares, threshold int, rootToken string) (*Initialized, error) {
	return s.InitWith(ctx, &InitConfig{Shares: shares, Threshold: threshold, RootToken: rootToken})
}

// InitWith makes the keyring, the first mounts and policies and a root token, as one commit. The server is sealed
// afterwards.
func (s *Sealing) InitWith(ctx context.Context, c *InitConfig) (*Initialized, error) {
	defer s.lock()()
	root := random(barrier.KeyBytes)
	defer clear(root)
	out := &Initialized{}
	keys, err := s.initKeys(c)
	if err != nil {
		return nil, err
	}
	plain, err := s.firstSeal(ctx, c, root, out)
	if err != nil {
		return nil, err
	}
	if ok, err := s.records.Barrier.Initialized(ctx); err != nil || ok {
		return nil, cmp.Or(err, barrier.ErrInitialized)
	}
	ops, token, err := s.firstRecords(c.RootToken)
	if err != nil {
		return nil, err
	}
	out.RootToken = token
	if err := keys.lock(out); err != nil { // before anything is stored: what cannot be given out must not hold
		return nil, err
	}
	ops = append(ops, storage.Put(rootKeyKey, append([]byte(nil), root...)))
	if err := s.records.Barrier.Initialize(ctx, c.Epoch, root, plain, ops...); err != nil {
		return nil, err
	}
	s.records.Barrier.Seal() // it opens with the shares that are given out now, like ever after
	return out, nil
}

// firstSeal makes the seal's records, and the shares.
func (s *Sealing) firstSeal(ctx context.Context, c *InitConfig, root []byte, out *Initialized) ([]storage.Op, error) {
	if s.cfg.Auto == nil {
		if c.RecoveryShares > 0 || c.RecoveryThreshold > 0 {
			return nil, errkind.New(errkind.Invalid, "recovery_shares: are for an automatic seal, and this server's is shamir")
		}
		ops, shares, err := shamirSeal(root, c.Shares, c.Threshold)
		out.Shares = shares
		return ops, err
	}
	if c.Shares > 0 || c.Threshold > 0 {
		return nil, errkind.Errorf(errkind.Invalid,
			"secret_shares: this server's seal is %s, which nobody has shares of: use recovery_shares and recovery_threshold",
			s.cfg.Auto.Type())
	}
	recovery := random(barrier.KeyBytes)
	defer clear(recovery)
	ops, shares, err := recoveryRecords(recovery, c.RecoveryShares, c.RecoveryThreshold)
	if err != nil {
		return nil, err
	}
	out.RecoveryShares = shares
	more, err := autoSeal(ctx, s.cfg.Auto, root)
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
	return []storage.Op{config, storage.Put(sealedRootKey, wrapped), storage.Delete(recoveryConfigKey),
		storage.Delete(recoveryKeyKey)}, err
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
func (s *Sealing) SealStatus(ctx context.Context) (SealStatus, error) {
	defer s.lock()()
	return s.sealStatusLocked(ctx)
}

func (s *Sealing) sealStatusLocked(ctx context.Context) (st SealStatus, err error) {
	st.Sealed, st.Progress, st.Nonce = s.Sealed(), len(s.unsealing.shares), s.unsealing.nonce
	st.Config.Type = shamirType
	if s.cfg.Auto != nil {
		st.Config.Type, st.Recovery = s.cfg.Auto.Type(), true
	}
	config, err := s.sealConfig(ctx, sealConfigKey)
	if err != nil || config == nil {
		return st, err
	}
	if config.Type != shamirType {
		recovery, err := s.sealConfig(ctx, recoveryConfigKey)
		if err != nil || recovery == nil {
			return st, sealed.OrMissing(err, recoveryConfigKey)
		}
		st.Recovery, st.Config = true, *recovery
		st.Config.Type = config.Type
	} else {
		st.Recovery, st.Config = false, *config
	}
	st.Migration = typeOf(s.cfg.Auto) != config.Type
	st.Initialized, err = s.records.Barrier.Initialized(ctx)
	return st, err
}

// typeOf is the type of the seal that the configuration asks for: auto's, or of shares where that is nil.
func typeOf(auto seal.Auto) string {
	if auto == nil {
		return shamirType
	}
	return auto.Type()
}

// sealConfig reads one of the two; nil where there is none.
func (s *Sealing) sealConfig(ctx context.Context, key string) (*SealConfig, error) {
	raw, ok, err := s.records.Under.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	c := &SealConfig{}
	return c, sealed.ReadJSON(key, raw, c)
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
func (s *Sealing) Unseal(ctx context.Context, share []byte) (SealStatus, error) {
	return s.unseal(ctx, share, false)
}

// Migrate is Unseal that goes over to another seal: see Unseal.
func (s *Sealing) Migrate(ctx context.Context, share []byte) (SealStatus, error) {
	return s.unseal(ctx, share, true)
}

func (s *Sealing) unseal(ctx context.Context, share []byte, migrate bool) (SealStatus, error) {
	defer s.lock()()
	st, err := s.sealStatusLocked(ctx)
	switch {
	case err != nil:
		return st, err
	case !st.Initialized:
		return st, barrier.ErrUninitialized
	case !st.Sealed:
		return st, nil
	case st.Migration != migrate:
		return st, migrationError(st, typeOf(s.cfg.Auto))
	}
	key, err := s.unsealing.add(share, st.Config.Threshold)
	if err != nil {
		return st, err
	}
	if key == nil {
		return s.sealStatusLocked(ctx)
	}
	defer clear(key)
	root, err := s.rootFromShares(ctx, key)
	if err != nil {
		return st, err
	}
	defer clear(root)
	if migrate {
		if err := s.preflight(ctx); err != nil {
			return st, err
		}
		s.migrating = &migration{key: append([]byte(nil), key...), from: st.Config}
	}
	if err := s.openRootLocked(ctx, root); err != nil {
		s.migrating = nil
		return st, err
	}
	return s.sealStatusLocked(ctx)
}

func migrationError(st SealStatus, want string) error {
	if st.Migration {
		return errkind.Errorf(errkind.Invalid,
			"the configuration asks for the seal %s and the storage is sealed with %s: unseal with migrate=true to go over",
			want, st.Config.Type)
	}
	return errkind.Errorf(errkind.Invalid, "migrate: there is nothing to go over to: configuration and storage both "+
		"have the seal %s", want)
}

// rootFromShares finds the root key by a combined key: the one that sealed it, or the recovery key, which
// allows the automatic seal to be asked.
func (s *Sealing) rootFromShares(ctx context.Context, key []byte) ([]byte, error) {
	config, err := s.sealConfig(ctx, sealConfigKey)
	if err != nil || config == nil {
		return nil, sealed.OrMissing(err, sealConfigKey)
	}
	if config.Type == shamirType {
		record, ok, err := s.records.Under.Get(ctx, sealedRootKey)
		if err != nil || !ok {
			return nil, sealed.OrMissing(err, sealedRootKey)
		}
		root, err := seal.Unwrap(key, record, sealedRootKey)
		return root, errkind.E(errkind.Invalid, "", err)
	}
	if err := s.checkRecovery(ctx, key); err != nil {
		return nil, err
	}
	return s.autoRoot(ctx, config.Type)
}

// checkRecovery tells whether a key is the recovery key.
func (s *Sealing) checkRecovery(ctx context.Context, key []byte) error {
	hash, ok, err := s.records.Under.Get(ctx, recoveryKeyKey)
	if err != nil || !ok {
		return sealed.OrMissing(err, recoveryKeyKey)
	}
	if !sameHash(hash, key) {
		return errkind.E(errkind.Invalid, "", errors.New("the recovery key is not the right one"))
	}
	return nil
}

// autoRoot has an automatic seal open the root key: the configured one, or the one that is gone from.
func (s *Sealing) autoRoot(ctx context.Context, kind string) ([]byte, error) {
	by := s.cfg.Auto
	if by == nil || by.Type() != kind {
		by = s.cfg.OldAuto
	}
	if by == nil || by.Type() != kind {
		return nil, errkind.Errorf(errkind.Invalid, "the storage is sealed with %s, and the configuration has no such seal",
			kind)
	}
	record, ok, err := s.records.Under.Get(ctx, sealedRootKey)
	if err != nil || !ok {
		return nil, sealed.OrMissing(err, sealedRootKey)
	}
	return by.Unwrap(ctx, record)
}

// AutoUnseal unseals with the automatic seal. It does nothing where there is none, where the server is not
// initialized, and where the storage is sealed with another seal than the configuration asks for.
func (s *Sealing) AutoUnseal(ctx context.Context) error {
	defer s.lock()()
	return s.autoUnsealLocked(ctx)
}

// FirstUnseal is AutoUnseal of a server that has been sealed since its start. done says that it has been unsealed
// meanwhile, by whomever: what an operator sealed then stays sealed.
func (s *Sealing) FirstUnseal(ctx context.Context) (done bool, err error) {
	defer s.lock()()
	if !s.opened {
		err = s.autoUnsealLocked(ctx)
	}
	return s.opened, err
}

func (s *Sealing) autoUnsealLocked(ctx context.Context) error {
	if s.cfg.Auto == nil || !s.Sealed() {
		return nil
	}
	st, err := s.sealStatusLocked(ctx)
	if err != nil || !st.Initialized || st.Migration {
		return err
	}
	root, err := s.autoRoot(ctx, st.Config.Type)
	if err != nil {
		return err
	}
	defer clear(root)
	return s.openRootLocked(ctx, root)
}

// ResetUnseal forgets the shares that were given so far.
func (s *Sealing) ResetUnseal(ctx context.Context) (SealStatus, error) {
	defer s.lock()()
	s.unsealing.reset()
	return s.sealStatusLocked(ctx)
}

// openRootLocked unseals with the root key and loads what requests need.
func (s *Sealing) openRootLocked(ctx context.Context, root []byte) error {
	defer s.timing.unseal.Lasting()()
	if s.cfg.Joining != nil {
		if err := s.cfg.Joining(ctx, root); err != nil {
			return err
		}
	}
	if err := s.records.Barrier.Unseal(ctx, root); err != nil {
		return err
	}
	if err := s.meetCluster(ctx); err != nil {
		s.records.Barrier.Seal()
		return err
	}
	defer s.gate.Changed()
	if s.gate.Leads != nil {
		s.opened = true
		return nil // a standby, until Activate
	}
	st, err := s.load(ctx)
	if err != nil {
		s.records.Barrier.Seal()
		s.records.Forget()
		return err
	}
	s.gate.Set(st)
	s.opened = true
	return s.reseal(ctx)
}

// Seal forgets all keys and everything that they opened.
func (s *Sealing) Seal() {
	defer s.lock()()
	defer s.timing.seal.Lasting()()
	if st := s.gate.Set(nil); st != nil {
		defer s.timing.preSeal.Lasting()()
		defer s.cfg.Close(st.Audits)
	}
	s.records.Barrier.Seal()
	s.closed.Add(1)
	s.info.Store(nil)
	s.cfg.Forget()
	s.unsealing.reset()
	s.rekeys.under.forget()
	s.roots.forget()
	s.migrating = nil
	s.gate.Changed()
}

// Closed is how often the seal was closed: who looks late sees a seal that was opened again at once.
func (s *Sealing) Closed() uint64 { return s.closed.Load() }

// Sealed reports whether there are no keys: every request is refused.
func (s *Sealing) Sealed() bool { return s.records.Sealed() }
