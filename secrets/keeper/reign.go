package keeper

import (
	"context"
	"encoding/json"
	"errors"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
)

// Active reports whether requests are answered.
func (k *Keeper) Active() bool { return k.gate.Load() != nil }

// Standby reports whether this server has its keys and does not answer requests.
func (k *Keeper) Standby() bool { return k.gate.Load() == nil && !k.records.Sealed() }

// Changes returns a channel that is closed when the server is next sealed, unsealed, activated or
// deactivated. Take it, then look.
func (k *Keeper) Changes() <-chan struct{} { return k.gate.Changes() }

// Activate begins a reign: it raises the storage's epoch, so that nobody who reigned before writes any more,
// reads everything anew and answers requests from then on. It waits for the requests of a former reign. Its
// cost does not grow with the number of tokens, leases or secrets.
func (k *Keeper) Activate(ctx context.Context, epoch storage.Epoch) error {
	if st := k.gate.Set(nil); st != nil {
		closeAudits(st.Audits)
	}
	defer k.gate.Shut()() // before the lock that a request takes which rotates the root key
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records.Sealed() {
		return barrier.ErrSealed
	}
	k.forget()
	if err := k.records.Under.Fence(ctx, epoch); err != nil {
		return err
	}
	k.records.SetEpoch(epoch)
	if err := k.refreshLocked(ctx); err != nil {
		return err
	}
	if err := k.reseal(ctx); err != nil {
		return err
	}
	st, err := k.loadTimed(ctx)
	if err != nil {
		k.forget()
		return err
	}
	k.gate.Set(st)
	k.gate.Changed()
	return nil
}

// Deactivate ends a reign at once: requests that come find a standby, and those under way can write nothing more
// once the next reign has begun.
func (k *Keeper) Deactivate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.gate.Set(nil)
	if st == nil {
		return
	}
	defer lasting(k.meters.own.preSeal)()
	defer closeAudits(st.Audits)
	k.rekeys.forget()
	k.forgetRooting()
	k.forget()
	k.gate.Changed()
}

// ClusterInfo names the cluster: the same for all that share the storage, for ever.
type ClusterInfo struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

const clusterInfoKey = "core/cluster/local/info"

// Cluster is the cluster's name and id; empty while sealed.
func (k *Keeper) Cluster() ClusterInfo {
	if info := k.info.Load(); info != nil {
		return *info
	}
	return ClusterInfo{}
}

// meetCluster reads them, with the keys just come.
func (k *Keeper) meetCluster(ctx context.Context) error {
	raw, ok, err := k.records.Barrier.Get(ctx, clusterInfoKey)
	if err != nil || !ok {
		return err
	}
	info := &ClusterInfo{}
	if json.Unmarshal(raw, info) != nil {
		return errkind.Errorf(errkind.Corrupt, "%s is not what was stored", clusterInfoKey)
	}
	if k.cfg.ClusterName != "" {
		info.Name = k.cfg.ClusterName
	}
	k.info.Store(info)
	return nil
}

// forget drops everything that was read from storage.
func (k *Keeper) forget() {
	k.records.Forget()
	k.rights.Forget()
	k.reserves.forget()
}

// refreshLocked reads the keyring anew: another server may have begun a term, or put it under another root key,
// which is known then by a record that the keys of before open.
func (k *Keeper) refreshLocked(ctx context.Context) error {
	err := k.records.Barrier.Reload(ctx)
	if !errors.Is(err, barrier.ErrWrongKey) {
		return err
	}
	root, ok, err := k.records.Barrier.Get(ctx, rootKeyKey)
	if err == nil && ok {
		if err := k.records.Barrier.Reopen(ctx, root); !errors.Is(err, barrier.ErrWrongKey) {
			return err
		}
	}
	return ErrStale
}

// ErrStale says that the keyring is under another root key, and this server must be unsealed anew.
var ErrStale = errkind.New(errkind.Denied, "the root key was changed while this server was away: unseal it anew")

// Refresh reads the keyring anew on a standby.
func (k *Keeper) Refresh(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gate.Load() != nil || k.records.Sealed() {
		return nil
	}
	return k.refreshLocked(ctx)
}

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

// Authorise judges a request as Handle would, at a path that needs the sudo capability, and does nothing else: for
// answers that are streams. A use of a token with a limited number is counted.
func (k *Keeper) Authorise(ctx context.Context, r *secrets.Request) error {
	leave, err := k.gate.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	st := k.gate.Load()
	if st == nil {
		return k.gate.Idle()
	}
	if r.Now.IsZero() {
		r.Now = k.cfg.Now()
	}
	t := &task.Task{Request: r, Tables: st}
	t.Entry, r.Rest = st.Mounts.Route(r.Path)
	if err := k.admit(ctx, t); err != nil {
		return err
	}
	if t.Entry == nil {
		return k.audited(ctx, t, k.noRoute(ctx, t))
	}
	r.Mount = t.Entry.Path
	t.Engine, t.View = st.Engines[t.Entry.Accessor], k.records.At(t.Entry.Prefix())
	return k.audited(ctx, t, k.authorise(ctx, t, engine.Special{Protected: []string{"*"}}))
}

// Derive makes a key for a purpose of the root key.
func (k *Keeper) Derive(purpose string) ([]byte, error) { return k.records.Barrier.Derive(purpose) }

// Opens reports whether a keyring, as it is stored, is under the root key of now.
func (k *Keeper) Opens(keyring []byte) bool { return k.records.Barrier.Opens(keyring) }

// InFlight shows the requests that are under way on this server, by their ids.
func (k *Keeper) InFlight() map[string]any { return k.flying.Show() }
