package sealing

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
)

// paths answers what of the seal is a request like others.
type paths struct{ *Sealing }

// Rows are the paths of sys/ that it answers.
func (of *Sealing) Rows() []system.Row {
	s := paths{of}
	return []system.Row{
		{Path: "key-status", Read: s.keyStatus},
		{Path: "rotate", Write: s.rotate},
		{Path: "rotate/config", Read: s.rotation, Write: s.setRotation},
		{Path: "rotate/keyring", Write: s.rotate},
		{Path: "rotate/keyring/config", Read: s.rotation, Write: s.setRotation},
		{Path: "rotate/root", Write: s.rotateRoot},
		{Path: "seal", Write: s.seal},
		{Path: "step-down", Write: s.stepDown},
	}
}

// keyStatus is the state of the barrier's key.
func (s paths) keyStatus(*system.Call) (any, error) {
	st, err := s.records.Barrier.Status()
	return map[string]any{"term": st.Term, "install_time": st.Installed.UTC().Format(time.RFC3339Nano),
		"encryptions": st.Encryptions}, err
}

func (s paths) rotate(c *system.Call) (any, error) {
	return nil, s.records.Barrier.Rotate(c, s.records.Epoch())
}

// rotation is when the key is changed by itself.
func (s paths) rotation(*system.Call) (any, error) {
	rule, err := s.records.Barrier.Rotation()
	var interval any = 0
	if rule.Interval > 0 {
		interval = rule.Interval.String()
	}
	return map[string]any{"max_operations": rule.MaxOperations, "interval": interval, "enabled": !rule.Disabled}, err
}

// setRotation changes what is given, and keeps the rest.
func (s paths) setRotation(c *system.Call) (any, error) {
	rule, err := s.records.Barrier.Rotation()
	if err != nil {
		return nil, err
	}
	rule.MaxOperations = int64(c.F.Int("max_operations", int(rule.MaxOperations)))
	rule.Interval = c.F.Duration("interval", rule.Interval)
	rule.Disabled = !c.F.Bool("enabled", !rule.Disabled)
	switch {
	case c.F.Err() != nil:
		return nil, c.F.Err()
	case rule.MaxOperations < barrier.LeastOperations || rule.MaxOperations > barrier.MostOperations:
		return nil, errkind.Errorf(errkind.Invalid, "max_operations: must be %d to %d", barrier.LeastOperations,
			barrier.MostOperations)
	case rule.Interval != 0 && rule.Interval < barrier.LeastInterval:
		return nil, errkind.New(errkind.Invalid, "interval: must be 24h at least, or 0 for none")
	}
	return nil, s.records.Barrier.SetRotation(c, s.records.Epoch(), rule)
}

func (s paths) seal(*system.Call) (any, error) {
	s.Seal()
	return nil, nil
}

func (s paths) rotateRoot(c *system.Call) (any, error) { return nil, s.RotateRoot(c) }

// stepDown has another server become the active one; alone, it changes nothing, as in Vault.
func (s paths) stepDown(*system.Call) (any, error) {
	if s.cfg.StepDown != nil {
		s.cfg.StepDown()
	}
	return nil, nil
}

// RotateRoot gives an automatic seal's storage another root key. With shares, that is a rekey.
func (s *Sealing) RotateRoot(ctx context.Context) error {
	defer s.lock()()
	if !s.Active() {
		return s.gate.Idle()
	}
	if s.cfg.Auto == nil {
		return errkind.New(errkind.Invalid, "the root key of a shamir seal changes with its shares: rekey")
	}
	root := random(barrier.KeyBytes)
	defer clear(root)
	plain, err := autoSeal(ctx, s.cfg.Auto, root)
	if err != nil {
		return err
	}
	return s.records.Barrier.Rekey(ctx, s.records.Epoch(), root, plain,
		storage.Put(rootKeyKey, append([]byte(nil), root...)))
}

// checkKey tells whether a combined key is the one that the shares of now make: of the unseal key or the recovery key.
func (s *Sealing) checkKey(ctx context.Context, key []byte) error {
	config, err := s.sealConfig(ctx, sealConfigKey)
	if err != nil || config == nil {
		return orUninitialized(err)
	}
	if config.Type != shamirType {
		return s.checkRecovery(ctx, key)
	}
	root, err := s.rootFromShares(ctx, key)
	if err != nil {
		return err
	}
	defer clear(root)
	if !s.records.Barrier.Holds(root) {
		return errkind.E(errkind.Invalid, "", seal.ErrWrongKey)
	}
	return nil
}
