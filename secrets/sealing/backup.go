package sealing

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// Where encrypted shares are kept, inside the barrier, by kind.
var backupKeys = [rekeyKinds]string{RekeyBarrier: "core/unseal-keys-backup", RekeyRecovery: "core/recovery-keys-backup"}

// ShareBackup is encrypted shares that are kept for people who lost theirs.
type ShareBackup struct {
	Nonce  string              `json:"nonce"`  // of the rekey that made them
	Shares map[string][][]byte `json:"shares"` // by the fingerprint of their PGP key
}

// keepBackup stores new shares as they were encrypted, before the key that they make holds.
func (o *Rekeys) keepBackup(ctx context.Context, kind RekeyKind, r *rekey, locked [][]byte) error {
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
	return o.s.records.Commit(ctx, []storage.Op{op})
}

// Backup gives the encrypted shares of the last rekey that was asked to keep them. The error is of kind NotFound
// where there are none.
func (o *Rekeys) Backup(ctx context.Context, kind RekeyKind) (*ShareBackup, error) {
	defer o.s.lock()()
	if !o.s.Active() {
		return nil, o.s.gate.Idle()
	}
	out := &ShareBackup{}
	ok, err := o.s.records.GetJSON(ctx, backupKeys[kind], out)
	if err == nil && !ok {
		err = errkind.New(errkind.NotFound, "no backed-up keys found")
	}
	return out, err
}

// ForgetBackup ends it.
func (o *Rekeys) ForgetBackup(ctx context.Context, kind RekeyKind) error {
	defer o.s.lock()()
	if !o.s.Active() {
		return o.s.gate.Idle()
	}
	return o.s.records.Commit(ctx, []storage.Op{storage.Delete(backupKeys[kind])})
}
