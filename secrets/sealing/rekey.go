package sealing

import (
	"context"
	"crypto/subtle"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
)

// RekeyKind says which key gets new shares.
type RekeyKind int

// The kinds: the unseal key of a Shamir seal, or the recovery key of an automatic one.
const (
	RekeyBarrier RekeyKind = iota
	RekeyRecovery
	rekeyKinds
)

// rekeys are the changes of shares that are under way, by kind.
type rekeys [rekeyKinds]*rekey

func (r *rekeys) forget() {
	for i := range r {
		r[i].end()
		r[i] = nil
	}
}

// rekey is one of them.
type rekey struct {
	nonce     string
	want      SealConfig
	verify    bool
	locks     shareKeys // that new shares are encrypted for; none: they are given out in plain
	backup    bool      // the encrypted shares are kept too
	given     gathering // of the present key
	key       []byte    // the new one, until it was verified
	proof     gathering // shares of the new one
	proofID   string
	verifying bool
}

func (r *rekey) end() {
	if r != nil {
		r.given.reset()
		r.proof.reset()
		clear(r.key)
	}
}

// RekeyStatus is what may be known of a change of shares.
type RekeyStatus struct {
	Started      bool
	Nonce        string
	Shares       int
	Threshold    int
	Progress     int
	Required     int // shares of the present key that are needed
	Verification bool
	// VerificationNonce is set while new shares are to be given to show that they arrived; then ProofProgress counts them.
	VerificationNonce string
	ProofProgress     int
	Fingerprints      []string // of the PGP keys that new shares are encrypted for; nil: none
	Backup            bool

	Complete  bool
	NewShares [][]byte // of the update that completed: plain, or messages for the PGP keys
}

// Rekeying says how new shares are to be.
type Rekeying struct {
	Shares, Threshold int
	Verify            bool     // they hold once enough of them were given back
	PGPKeys           []string // one for each share; none: shares are given out in plain
	Backup            bool     // keep the encrypted shares, too: see Backup
}

// ErrNoRekey says that none is under way.
var ErrNoRekey = errkind.New(errkind.Invalid, "no rekey in progress")

// Rekeys changes shares, one change of each kind at a time. The seal's lock guards it; what is under way ends with
// the term.
type Rekeys struct {
	s     *Sealing
	under rekeys
}

// rekeyConfig is how the key is split now; an error where the seal has no such key.
func (o *Rekeys) rekeyConfig(ctx context.Context, kind RekeyKind) (*SealConfig, error) {
	config, err := o.s.sealConfig(ctx, sealConfigKey)
	if err != nil || config == nil {
		return nil, orUninitialized(err)
	}
	auto := config.Type != shamirType
	switch {
	case kind == RekeyBarrier && auto:
		return nil, errkind.Errorf(errkind.Invalid, "the seal is %s, which has no shares: rekey the recovery key",
			config.Type)
	case kind == RekeyRecovery && !auto:
		return nil, errkind.New(errkind.Invalid, "recovery rekeying not supported: the seal has no recovery key")
	case kind == RekeyBarrier:
		return config, nil
	}
	recovery, err := o.s.sealConfig(ctx, recoveryConfigKey)
	if err != nil || recovery == nil {
		return nil, sealed.OrMissing(err, recoveryConfigKey)
	}
	return recovery, nil
}

func orUninitialized(err error) error {
	if err != nil {
		return err
	}
	return barrier.ErrUninitialized
}

// Rekey tells of the change of a key that is under way.
func (o *Rekeys) Rekey(ctx context.Context, kind RekeyKind) (st RekeyStatus, err error) {
	defer o.s.lock()()
	return o.rekeyStatus(ctx, kind)
}

func (o *Rekeys) rekeyStatus(ctx context.Context, kind RekeyKind) (st RekeyStatus, err error) {
	if !o.s.Active() {
		return st, o.s.gate.Idle()
	}
	config, err := o.rekeyConfig(ctx, kind)
	if err != nil {
		return st, err
	}
	st.Required = config.Threshold
	r := o.under[kind]
	if r == nil {
		return st, nil
	}
	st.Started, st.Nonce, st.Shares, st.Threshold, st.Verification = true, r.nonce, r.want.Shares,
		r.want.Threshold, r.verify
	st.Progress, st.Fingerprints, st.Backup = len(r.given.shares), r.locks.fingerprints(), r.backup
	if r.verifying {
		st.VerificationNonce, st.ProofProgress = r.proofID, len(r.proof.shares)
	}
	return st, nil
}

// StartRekey begins a change. One at a time; nothing changes before enough of the present shares were given.
func (o *Rekeys) StartRekey(ctx context.Context, kind RekeyKind, want Rekeying) (st RekeyStatus, err error) {
	defer o.s.lock()()
	if _, err := o.rekeyStatus(ctx, kind); err != nil {
		return st, err
	}
	if o.under[kind] != nil {
		return st, errkind.New(errkind.Invalid, "rekey already in progress")
	}
	if err := seal.CheckShares(want.Shares, want.Threshold); err != nil {
		return st, errkind.E(errkind.Invalid, "", err)
	}
	locks, err := parseShareKeys("pgp_keys", want.PGPKeys, want.Shares)
	switch {
	case err != nil:
		return st, err
	case want.Backup && len(locks) == 0:
		return st, errkind.New(errkind.Invalid,
			"backup: cannot request a backup of the new keys without providing PGP keys for encryption")
	}
	o.under[kind] = &rekey{nonce: uuid.NewString(), want: SealConfig{shamirType, want.Shares, want.Threshold},
		verify: want.Verify, locks: locks, backup: want.Backup}
	return o.rekeyStatus(ctx, kind)
}

// CancelRekey forgets it.
func (o *Rekeys) CancelRekey(kind RekeyKind) error {
	defer o.s.lock()()
	if !o.s.Active() {
		return o.s.gate.Idle()
	}
	o.under[kind].end()
	o.under[kind] = nil
	return nil
}

// UpdateRekey takes a share of the present key. With enough of them it makes the new key and gives its shares:
// they hold from then on, or once VerifyRekey had enough of them.
func (o *Rekeys) UpdateRekey(ctx context.Context, kind RekeyKind, share []byte, nonce string) (st RekeyStatus,
	err error) {
	defer o.s.lock()()
	if st, err = o.rekeyStatus(ctx, kind); err != nil {
		return st, err
	}
	r := o.under[kind]
	switch {
	case r == nil:
		return st, ErrNoRekey
	case nonce != r.nonce:
		return st, errkind.Errorf(errkind.Invalid, "incorrect nonce supplied; nonce for this rekey operation is %q", r.nonce)
	case r.verifying:
		return st, errkind.New(errkind.Invalid, "the new shares wait for their verification")
	}
	key, err := r.given.add(share, st.Required)
	if err != nil {
		return st, err
	}
	if key == nil {
		return o.rekeyStatus(ctx, kind)
	}
	defer clear(key)
	if err := o.s.checkKey(ctx, key); err != nil {
		return st, err
	}
	fresh := random(barrier.KeyBytes)
	list, err := seal.Split(fresh, r.want.Shares, r.want.Threshold)
	if err != nil {
		return st, err
	}
	if list, err = r.locks.lock(list); err != nil {
		return st, err
	}
	if err := o.keepBackup(ctx, kind, r, list); err != nil {
		return st, err
	}
	r.key = fresh
	if r.verify {
		r.verifying, r.proofID = true, uuid.NewString()
	} else if err := o.finishRekey(ctx, kind, r); err != nil {
		return st, err
	}
	st, err = o.rekeyStatus(ctx, kind)
	st.Nonce, st.Verification, st.Fingerprints, st.Backup = r.nonce, r.verify, r.locks.fingerprints(), r.backup
	st.Complete, st.NewShares = true, list
	return st, err
}

// VerifyRekey takes a share of the new key; with enough of them the new key holds.
func (o *Rekeys) VerifyRekey(ctx context.Context, kind RekeyKind, share []byte, nonce string) (st RekeyStatus,
	err error) {
	defer o.s.lock()()
	if st, err = o.rekeyStatus(ctx, kind); err != nil {
		return st, err
	}
	r := o.under[kind]
	switch {
	case r == nil || !r.verifying:
		return st, errkind.New(errkind.Invalid, "no rekey verification in progress")
	case nonce != r.proofID:
		return st, errkind.Errorf(errkind.Invalid, "incorrect nonce supplied; nonce for this verify operation is %q",
			r.proofID)
	}
	key, err := r.proof.add(share, r.want.Threshold)
	if err != nil {
		return st, err
	}
	if key == nil {
		return o.rekeyStatus(ctx, kind)
	}
	defer clear(key)
	if subtle.ConstantTimeCompare(key, r.key) != 1 {
		return st, errkind.New(errkind.Invalid, "the new shares do not give the new key: some of them are wrong")
	}
	if err := o.finishRekey(ctx, kind, r); err != nil {
		return st, err
	}
	st.Complete, st.VerificationNonce = true, r.proofID
	return st, nil
}

// RestartVerification forgets the new shares that were given, under another nonce.
func (o *Rekeys) RestartVerification(ctx context.Context, kind RekeyKind) (st RekeyStatus, err error) {
	defer o.s.lock()()
	if r := o.under[kind]; r != nil && r.verifying {
		r.proof.reset()
		r.proofID = uuid.NewString()
	}
	return o.rekeyStatus(ctx, kind)
}

// finishRekey puts the new key to use, in one commit. With the unseal key the root key changes too, so that old shares
// open nothing that is written from then on.
func (o *Rekeys) finishRekey(ctx context.Context, kind RekeyKind, r *rekey) error {
	var err error
	if kind == RekeyRecovery {
		var config storage.Op
		if config, err = storage.PutJSON(recoveryConfigKey, r.want); err == nil {
			err = o.s.records.Under.Commit(ctx, o.s.records.Epoch(),
				[]storage.Op{config, storage.Put(recoveryKeyKey, hashOf(r.key))})
		}
	} else {
		root := random(barrier.KeyBytes)
		defer clear(root)
		var plain []storage.Op
		if plain, err = shamirRecords(root, r.key, r.want.Shares, r.want.Threshold); err == nil {
			err = o.s.records.Barrier.Rekey(ctx, o.s.records.Epoch(), root, plain,
				storage.Put(rootKeyKey, append([]byte(nil), root...)))
		}
	}
	if err != nil {
		return err
	}
	r.end()
	o.under[kind] = nil
	return nil
}

// TendKeys changes the barrier's key where its rule asks for it, on the active server.
func (r *Rekeys) TendKeys(ctx context.Context) (int, error) {
	s := r.s
	if !s.Active() {
		return 0, nil
	}
	rotated, err := s.records.Barrier.Tend(ctx, s.records.Epoch())
	if rotated && err == nil {
		s.cfg.Log.Info("secrets: the barrier has a new key by its rule (sys/rotate/config)")
		return 1, nil
	}
	return 0, err
}
