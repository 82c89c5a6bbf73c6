package sealing

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/storage"
)

// gathering is the shares of a key that were given so far. Keeper.mu guards it.
type gathering struct {
	shares [][]byte
	nonce  string // of this attempt
}

// add takes a share, once. With enough of them it forgets them and gives the key that they make, which may be a wrong
// one.
func (g *gathering) add(share []byte, threshold int) (key []byte, err error) {
	held := false
	for _, s := range g.shares {
		held = held || subtle.ConstantTimeCompare(s, share) == 1
	}
	if !held {
		if g.nonce == "" {
			g.nonce = uuid.NewString()
		}
		g.shares = append(g.shares, append([]byte(nil), share...))
	}
	if len(g.shares) < threshold {
		return nil, nil
	}
	defer g.reset()
	key, err = seal.Combine(g.shares)
	return key, errkind.E(errkind.Invalid, "", err)
}

func (g *gathering) reset() {
	for _, s := range g.shares {
		clear(s)
	}
	g.shares, g.nonce = nil, ""
}

// A key of 32 random bytes needs no slow hash.
func hashOf(key []byte) []byte {
	sum := sha256.Sum256(append([]byte("corbel recovery key\x00"), key...))
	return sum[:]
}

func sameHash(hash, key []byte) bool { return subtle.ConstantTimeCompare(hash, hashOf(key)) == 1 }

// migration is a change of seal that the next term writes down.
type migration struct {
	key  []byte     // that the shares made: the unseal key or the recovery key
	from SealConfig // how it is split, and of which seal it was
}

// preflight makes sure that the seal to go over to works before anything depends on it.
func (s *Sealing) preflight(ctx context.Context) error {
	if s.cfg.Auto == nil {
		return nil
	}
	probe := random(32)
	wrapped, err := s.cfg.Auto.Wrap(ctx, probe)
	if err != nil {
		return errkind.Errorf(errkind.Of(err), "the seal %s does not work yet: %w", s.cfg.Auto.Type(), err)
	}
	opened, err := s.cfg.Auto.Unwrap(ctx, wrapped)
	if err != nil || subtle.ConstantTimeCompare(opened, probe) != 1 {
		return errkind.Errorf(errkind.Unavailable, "the seal %s does not open what it sealed: %w", s.cfg.Auto.Type(), err)
	}
	return nil
}

// staler is an automatic seal that knows when its key was changed since it wrapped something.
type staler interface{ Stale(wrapped []byte) bool }

// reseal writes the root key down under the seal that the configuration asks for, after a migration or a change of
// the seal's key. The old record stays good until the commit that replaces it.
func (s *Sealing) reseal(ctx context.Context) error {
	root, err := s.records.Barrier.Root()
	if err != nil {
		return err
	}
	defer clear(root)
	m := s.migrating
	if m == nil {
		of, ok := s.cfg.Auto.(staler)
		if !ok {
			return nil
		}
		record, _, err := s.records.Under.Get(ctx, sealedRootKey)
		if err != nil || !of.Stale(record) {
			return err
		}
		ops, err := autoSeal(ctx, s.cfg.Auto, root)
		if err != nil { // the former key opened it and still does: no reason not to lead
			s.cfg.Log.Warn("secrets: the seal's key was changed, and the root key is still under the former one: "+
				"keep it; the next start or change of leader tries again", "error", err)
			return nil
		}
		if err := s.records.Under.Commit(ctx, s.records.Epoch(), ops); err != nil {
			return err
		}
		s.cfg.Log.Info("secrets: the root key is under the seal's newest key", "seal", s.cfg.Auto.Type())
		return nil
	}
	var ops []storage.Op
	if s.cfg.Auto == nil {
		ops, err = shamirRecords(root, m.key, m.from.Shares, m.from.Threshold)
	} else if ops, err = autoSeal(ctx, s.cfg.Auto, root); err == nil && m.from.Type == shamirType {
		config, jsonErr := storage.PutJSON(recoveryConfigKey, SealConfig{shamirType, m.from.Shares, m.from.Threshold})
		ops, err = append(ops, config, storage.Put(recoveryKeyKey, hashOf(m.key))), jsonErr
	}
	if err != nil {
		return err
	}
	if err := s.records.Under.Commit(ctx, s.records.Epoch(), ops); err != nil {
		return err
	}
	clear(m.key)
	s.migrating = nil
	s.cfg.Log.Info("secrets: the seal was changed", "from", m.from.Type, "to", typeOf(s.cfg.Auto))
	return nil
}
