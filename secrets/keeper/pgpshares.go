package keeper

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pgp"
	"corbel.dev/corbel/secrets/storage"
)

// Where encrypted shares are kept, inside the barrier, by kind.
var backupKeys = [rekeyKinds]string{RekeyBarrier: "core/unseal-keys-backup", RekeyRecovery: "core/recovery-keys-backup"}

// shareKeys are the PGP keys that shares are encrypted for, in the order of the shares. None: shares are given out in
// plain.
type shareKeys []*pgp.Key

// parseShareKeys reads the keys of a field for a number of shares.
func parseShareKeys(field string, texts []string, shares int) (shareKeys, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	if len(texts) != shares {
		return nil, errkind.Errorf(errkind.Invalid, "%s: incorrect number of PGP keys: there are %d for %d shares", field, len(texts), shares)
	}
	out := make(shareKeys, len(texts))
	for i, text := range texts {
		key, err := pgp.Parse(text)
		if err != nil {
			return nil, errkind.Errorf(errkind.Invalid, "%s: key %d %w", field, i+1, err)
		}
		out[i] = key
	}
	return out, nil
}

func (s shareKeys) fingerprints() []string {
	var out []string
	for _, k := range s {
		out = append(out, k.Fingerprint())
	}
	return out
}

// lock gives messages in the place of shares: in each is the share in hexadecimal, as people will give it back.
func (s shareKeys) lock(shares [][]byte) ([][]byte, error) {
	if len(s) == 0 {
		return shares, nil
	}
	out := make([][]byte, len(shares))
	for i, share := range shares {
		message, err := s[i].Encrypt([]byte(hex.EncodeToString(share)))
		clear(share)
		if err != nil {
			return nil, err
		}
		out[i] = message
	}
	return out, nil
}

// firstKeys are the PGP keys of a first start.
type firstKeys struct{ shares, recovery, root shareKeys }

// initKeys reads them, before anything is made.
func (k *Keeper) initKeys(c *InitConfig) (out firstKeys, err error) {
	if k.cfg.Seal == nil && len(c.RecoveryPGPKeys) > 0 {
		return out, errkind.New(errkind.Invalid, "recovery_pgp_keys: are for an automatic seal, and this server's is shamir")
	}
	var errs [3]error
	out.shares, errs[0] = parseShareKeys("pgp_keys", c.PGPKeys, c.Shares)
	out.recovery, errs[1] = parseShareKeys("recovery_pgp_keys", c.RecoveryPGPKeys, c.RecoveryShares)
	if c.RootPGPKey != "" {
		out.root, errs[2] = parseShareKeys("root_token_pgp_key", []string{c.RootPGPKey}, 1)
	}
	return out, cmp.Or(errs[0], errs[1], errs[2])
}

func (f *firstKeys) lock(out *Initialized) (err error) {
	if out.Shares, err = f.shares.lock(out.Shares); err != nil {
		return err
	}
	if out.RecoveryShares, err = f.recovery.lock(out.RecoveryShares); err != nil || len(f.root) == 0 {
		return err
	}
	message, err := f.root[0].Encrypt([]byte(out.RootToken))
	out.RootToken = base64.StdEncoding.EncodeToString(message)
	return err
}

// ShareBackup is encrypted shares that are kept for people who lost theirs.
type ShareBackup struct {
	Nonce  string              `json:"nonce"`  // of the rekey that made them
	Shares map[string][][]byte `json:"shares"` // by the fingerprint of their PGP key
}

// keepBackup stores new shares as they were encrypted, before the key that they make holds.
func (k *Keeper) keepBackup(ctx context.Context, kind RekeyKind, r *rekey, locked [][]byte) error {
	if !r.backup {
		return nil
	}
	kept := ShareBackup{Nonce: r.nonce, Shares: map[string][][]byte{}}
	for i, print := range r.locks.fingerprints() {
		kept.Shares[print] = append(kept.Shares[print], locked[i])
	}
	op, err := storage.PutJSON(backupKeys[kind], kept)
	if err != nil {
		return err
	}
	return k.records.Commit(ctx, []storage.Op{op})
}

// Backup gives the encrypted shares of the last rekey that was asked to keep them. The error is of kind NotFound
// where there are none.
func (k *Keeper) Backup(ctx context.Context, kind RekeyKind) (*ShareBackup, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.Active() {
		return nil, k.gate.Idle()
	}
	raw, ok, err := k.records.Get(ctx, backupKeys[kind])
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errkind.New(errkind.NotFound, "no backed-up keys found")
	}
	out := &ShareBackup{}
	if json.Unmarshal(raw, out) != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "%s is not what was stored", backupKeys[kind])
	}
	return out, nil
}

// ForgetBackup ends it.
func (k *Keeper) ForgetBackup(ctx context.Context, kind RekeyKind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.Active() {
		return k.gate.Idle()
	}
	return k.records.Commit(ctx, []storage.Op{storage.Delete(backupKeys[kind])})
}
