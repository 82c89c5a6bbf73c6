package sealing

import (
	"context"
	"errors"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
)

// Active reports whether requests are answered.
func (s *Sealing) Active() bool { return s.gate.Load() != nil }

// Standby reports whether this server has its keys and does not answer requests.
func (s *Sealing) Standby() bool { return s.gate.Load() == nil && !s.records.Sealed() }

// Changes returns a channel that is closed when the server is next sealed, unsealed, activated or
// deactivated. Take it, then look.
func (s *Sealing) Changes() <-chan struct{} { return s.gate.Changes() }

// Activate begins a term: it raises the storage's epoch, so that nobody who led before writes any more,
// reads everything anew and answers requests from then on. It waits for the requests of a former term. Its
// cost does not grow with the number of tokens, leases or secrets.
func (s *Sealing) Activate(ctx context.Context, epoch storage.Epoch) error {
	if st := s.gate.Set(nil); st != nil {
		s.cfg.Close(st.Audits)
	}
	defer s.gate.Shut()() // before the lock that a request takes which rotates the root key
	defer s.lock()()
	if s.records.Sealed() {
		return barrier.ErrSealed
	}
	s.cfg.Forget()
	if err := s.records.Under.Fence(ctx, epoch); err != nil {
		return err
	}
	s.records.SetEpoch(epoch)
	if err := s.refreshLocked(ctx); err != nil {
		return err
	}
	if err := s.reseal(ctx); err != nil {
		return err
	}
	st, err := s.load(ctx)
	if err != nil {
		s.cfg.Forget()
		return err
	}
	s.gate.Set(st)
	s.gate.Changed()
	return nil
}

// Deactivate ends a term at once: requests that come find a standby, and those under way can write nothing more
// once the next term has begun.
func (s *Sealing) Deactivate() {
	defer s.lock()()
	st := s.gate.Set(nil)
	if st == nil {
		return
	}
	defer s.timing.preSeal.Lasting()()
	defer s.cfg.Close(st.Audits)
	s.rekeys.under.forget()
	s.roots.forget()
	s.cfg.Forget()
	s.gate.Changed()
}

// ClusterInfo names the cluster: the same for all that share the storage, for ever.
type ClusterInfo struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

const clusterInfoKey = "core/cluster/local/info"

// Cluster is the cluster's name and id; empty while sealed.
func (s *Sealing) Cluster() ClusterInfo {
	if info := s.info.Load(); info != nil {
		return *info
	}
	return ClusterInfo{}
}

// meetCluster reads them, with the keys just come.
func (s *Sealing) meetCluster(ctx context.Context) error {
	raw, ok, err := s.records.Barrier.Get(ctx, clusterInfoKey)
	if err != nil || !ok {
		return err
	}
	info := &ClusterInfo{}
	if err := sealed.ReadJSON(clusterInfoKey, raw, info); err != nil {
		return err
	}
	if s.cfg.ClusterName != "" {
		info.Name = s.cfg.ClusterName
	}
	s.info.Store(info)
	return nil
}

// refreshLocked reads the keyring anew: another server may have begun a term, or put it under another root key,
// which is known then by a record that the keys of before open.
func (s *Sealing) refreshLocked(ctx context.Context) error {
	err := s.records.Barrier.Reload(ctx)
	if !errors.Is(err, barrier.ErrWrongKey) {
		return err
	}
	root, ok, err := s.records.Barrier.Get(ctx, rootKeyKey)
	if err == nil && ok {
		if err := s.records.Barrier.Reopen(ctx, root); !errors.Is(err, barrier.ErrWrongKey) {
			return err
		}
	}
	return ErrStale
}

// ErrStale says that the keyring is under another root key, and this server must be unsealed anew.
var ErrStale = errkind.New(errkind.Denied, "the root key was changed while this server was away: unseal it anew")

// Refresh reads the keyring anew on a standby.
func (s *Sealing) Refresh(ctx context.Context) error {
	defer s.lock()()
	if s.gate.Load() != nil || s.records.Sealed() {
		return nil
	}
	return s.refreshLocked(ctx)
}

func (s *Sealing) lock() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Alone calls do while the seal does not change, and nobody makes this server the active one.
func (s *Sealing) Alone(do func() error) error {
	defer s.lock()()
	return do()
}

// Refreshed calls do on a standby with the keyring of now, as Alone does.
func (s *Sealing) Refreshed(ctx context.Context, do func() error) error {
	return s.Alone(func() error {
		if !s.Standby() {
			return tables.ErrStandby
		}
		if err := s.refreshLocked(ctx); err != nil {
			return err
		}
		return do()
	})
}
