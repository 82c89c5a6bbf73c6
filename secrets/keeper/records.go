package keeper

import (
	"context"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
)

// Record reads one of the plane's own records, on a standby too, where it may be old.
func (k *Keeper) Record(ctx context.Context, key string) ([]byte, bool, error) {
	return k.records.Barrier.Get(ctx, key)
}

// SetRecord stores one on the active server. A nil value deletes it.
func (k *Keeper) SetRecord(ctx context.Context, key string, value []byte) error {
	defer k.gate.Hold()()
	if k.gate.Load() == nil {
		return k.gate.Idle()
	}
	return k.records.Commit(ctx, []storage.Op{{Key: key, Value: value}})
}

// Authorise judges a request as Handle would, at a path that needs the sudo capability, and does nothing else; holds
// judges again, while something is streamed. A use of a token with a limited number is counted.
func (k *Keeper) Authorise(ctx context.Context, r *secrets.Request) (holds func() error, err error) {
	st, leave, err := k.gate.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	t := k.newTask(st, r)
	if err := k.admit(ctx, t); err != nil {
		return nil, err
	}
	if t.Entry == nil {
		return nil, k.audited(ctx, t, k.noRoute(ctx, t))
	}
	return func() error { return k.holds(ctx, t, "*") }, k.audited(ctx, t, k.authorise(ctx, t, engine.Sudo))
}

// Derive makes a key for a purpose of the root key.
func (k *Keeper) Derive(purpose string) ([]byte, error) { return k.records.Barrier.Derive(purpose) }

// Keyring is what a restore needs of the barrier: whether a keyring opens, and that none is stored meanwhile.
type Keyring interface {
	Opens(keyring []byte) bool
	Replacing(do func() error) error
}

// Keyring is the barrier's.
func (k *Keeper) Keyring() Keyring { return k.records.Barrier }

// InFlight shows the requests that are under way on this server, by their ids.
func (k *Keeper) InFlight() map[string]any { return k.flying.Show() }

// ReopenAudits closes and opens what audit devices write to: logs were moved away.
func (k *Keeper) ReopenAudits() error { return k.audits.Reopen() }

// DeclareAudits puts other devices in the place of those that the configuration declared. What stays as it is keeps
// its file open; on a server that is not the active one they are known for its next term. Wrong ones change nothing.
func (k *Keeper) DeclareAudits(ctx context.Context, list []audit.Config) error {
	return k.Alone(func() error { return k.audits.Redeclare(ctx, list) })
}

// CORS returns the settings for browsers; off while sealed.
func (k *Keeper) CORS() tables.CORS {
	if st := k.gate.Load(); st != nil {
		return st.CORS
	}
	return tables.CORS{}
}

// forget drops everything that was read from storage.
func (k *Keeper) forget() {
	k.records.Forget()
	k.rights.Forget()
	k.owners.plugins.Forget()
	k.tokens.Forget()
	k.owners.factors.Forget()
	k.owners.identities.Providers.Forget()
}

// EndWorkloads ends the tokens of workloads that have been away for a while, and says how many.
func (k *Keeper) EndWorkloads(ctx context.Context) (int, error) { return k.tokens.EndWorkloads(ctx) }
