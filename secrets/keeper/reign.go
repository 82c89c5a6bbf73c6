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
)

// ErrStandby says that this server has its keys and another one is the active one.
var ErrStandby = errkind.New(errkind.NotLeader, "Vault is in standby mode")

// Active reports whether requests are answered.
func (k *Keeper) Active() bool { return k.state.Load() != nil }

// Standby reports whether this server has its keys and does not answer requests.
func (k *Keeper) Standby() bool { return k.state.Load() == nil && !k.records.Barrier.Sealed() }

// Changes returns a channel that is closed when the server is next sealed, unsealed, activated or
// deactivated. Take it, then look.
func (k *Keeper) Changes() <-chan struct{} {
	k.turnMu.Lock()
	defer k.turnMu.Unlock()
	if k.turn == nil {
		k.turn = make(chan struct{})
	}
	return k.turn
}

func (k *Keeper) changed() {
	k.turnMu.Lock()
	defer k.turnMu.Unlock()
	if k.turn != nil {
		close(k.turn)
		k.turn = nil
	}
}

// idle is why a request is refused that finds no state.
func (k *Keeper) idle() error {
	if k.records.Barrier.Sealed() {
		return barrier.ErrSealed
	}
	return ErrStandby
}

// enter lets a request in, where several servers share the storage: only while this one reigns. No
// request of one reign is under way in the next, so none commits what it read before somebody else wrote.
// leave is to be called at its end.
func (k *Keeper) enter(ctx context.Context) (leave func(), err error) {
	if k.cfg.Reigns == nil {
		return func() {}, nil
	}
	if k.state.Load() == nil {
		return nil, k.idle() // and does not wait for a reign that begins
	}
	k.reign.RLock()
	if k.state.Load() == nil {
		k.reign.RUnlock()
		return nil, k.idle()
	}
	if err := k.cfg.Reigns(ctx); err != nil {
		k.reign.RUnlock()
		return nil, err
	}
	return k.reign.RUnlock, nil
}

// Activate begins a reign: it raises the storage's epoch, so that nobody who reigned before writes any more,
// reads everything anew and answers requests from then on. It waits for the requests of a former reign. Its
// cost does not grow with the number of tokens, leases or secrets.
func (k *Keeper) Activate(ctx context.Context, epoch storage.Epoch) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records.Barrier.Sealed() {
		return barrier.ErrSealed
	}
	if st := k.state.Swap(nil); st != nil {
		closeAudits(st.audits)
	}
	k.reign.Lock()
	defer k.reign.Unlock()
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
	k.state.Store(st)
	k.changed()
	return nil
}

// Deactivate ends a reign at once: requests that come find a standby, and those under way can write nothing more
// once the next reign has begun.
func (k *Keeper) Deactivate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.state.Swap(nil)
	if st == nil {
		return
	}
	defer lasting(k.meters.own.preSeal)()
	defer closeAudits(st.audits)
	k.rekeys.forget()
	k.forgetRooting()
	k.forget()
	k.changed()
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
	k.tokens.forget()
	k.persons.forget()
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
	if k.state.Load() != nil || k.records.Barrier.Sealed() {
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
	k.reign.RLock()
	defer k.reign.RUnlock()
	if k.state.Load() == nil {
		return k.idle()
	}
	return k.records.Commit(ctx, []storage.Op{{Key: key, Value: value}})
}

// Authorise judges a request as Handle would, at a path that needs the sudo capability, and does nothing else: for
// answers that are streams. A use of a token with a limited number is counted.
func (k *Keeper) Authorise(ctx context.Context, r *secrets.Request) error {
	leave, err := k.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	st := k.state.Load()
	if st == nil {
		return k.idle()
	}
	if r.Now.IsZero() {
		r.Now = k.cfg.Now()
	}
	t := &task{Request: r, st: st}
	t.entry, r.Rest = st.mounts.Route(r.Path)
	if err := k.admit(ctx, t); err != nil {
		return err
	}
	if t.entry == nil {
		return k.audited(ctx, t, k.noRoute(ctx, t))
	}
	r.Mount = t.entry.Path
	t.engine, t.view = st.engines[t.entry.Accessor], k.records.At(t.entry.Prefix())
	return k.audited(ctx, t, k.authorise(context.WithValue(ctx, taskKey{}, t), t, engine.Special{Protected: []string{"*"}}))
}

// Derive makes a key for a purpose of the root key.
func (k *Keeper) Derive(purpose string) ([]byte, error) { return k.records.Barrier.Derive(purpose) }

// Opens reports whether a keyring, as it is stored, is under the root key of now.
func (k *Keeper) Opens(keyring []byte) bool { return k.records.Barrier.Opens(keyring) }
