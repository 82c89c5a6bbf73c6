package sealing

import (
	"encoding/base64"
	"encoding/hex"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pgp"
)

// shareKeys are the PGP keys that shares are encrypted for, in the order of the shares. None: shares are given out in
// plain.
type shareKeys []*pgp.Key

// parseShareKeys reads the keys of a field for a number of shares.
func parseShareKeys(field string, texts []string, shares int) (shareKeys, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	if len(texts) != shares {
		return nil, errkind.Errorf(errkind.Invalid, "%s: incorrect number of PGP keys: there are %d for %d shares", field,
			len(texts), shares)
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
