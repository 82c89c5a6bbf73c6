package tables

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/token"
)

// ErrStandby says that this server has its keys and another one is the active one.
var ErrStandby = errkind.New(errkind.NotLeader, "Vault is in standby mode")

// Gate owns the tables that requests go by, and lets requests in while there are any.
type Gate struct {
	Store *sealed.Store
	// Leads, where several servers share the storage, is whether this one is still the active one.
	Leads func(ctx context.Context) error
	TTLs  token.Limits // of mounts that say nothing

	now        atomic.Pointer[Tables] // nil: sealed, or a standby
	leadership sync.RWMutex           // held for reading by each request where Leads is set
	mu         sync.Mutex             // one change of the tables at a time

	turnMu sync.Mutex // guards turn
	turn   chan struct{}
}

// Load gives the tables of now; nil while sealed, and on a standby.
func (g *Gate) Load() *Tables { return g.now.Load() }

// Set puts others in their place, and gives the former ones. It waits for a change that is under way.
func (g *Gate) Set(next *Tables) (old *Tables) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now.Swap(next)
}

// Idle is why a request is refused that finds no tables.
func (g *Gate) Idle() error {
	if g.Store.Sealed() {
		return barrier.ErrSealed
	}
	return ErrStandby
}

// Enter lets a request in while there are tables, which it is given; where several servers share the storage, only
// while this one leads. No request of one term is under way in the next, so none commits what it read before somebody
// else wrote. leave is to be called at its end.
func (g *Gate) Enter(ctx context.Context) (st *Tables, leave func(), err error) {
	if st = g.Load(); st == nil {
		return nil, nil, g.Idle() // and does not wait for a term that begins
	}
	if g.Leads == nil {
		return st, func() {}, nil
	}
	g.leadership.RLock()
	if st = g.Load(); st == nil {
		err = g.Idle()
	} else {
		err = g.Leads(ctx)
	}
	if err != nil {
		g.leadership.RUnlock()
		return nil, nil, err
	}
	return st, g.leadership.RUnlock, nil
}

// Hold keeps the next term from beginning until release is called, also where there are no tables.
func (g *Gate) Hold() (release func()) {
	g.leadership.RLock()
	return g.leadership.RUnlock
}

// Shut waits for the requests of a former term, and lets none in until release is called. There must be no tables.
func (g *Gate) Shut() (release func()) {
	g.leadership.Lock()
	return g.leadership.Unlock
}

// Change makes the next tables, after its operations were committed.
func (g *Gate) Change(ctx context.Context, next func(st Tables) (*Tables, []storage.Op, error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.Load()
	if st == nil {
		return g.Idle()
	}
	changed, ops, err := next(*st)
	if err != nil {
		return err
	}
	if err := g.Store.Commit(ctx, ops); err != nil {
		return err
	}
	g.now.Store(changed)
	return nil
}

// ErrSpaceGone refuses a change in a namespace that ends.
var ErrSpaceGone = errkind.New(errkind.NotFound, "the namespace is being deleted")

// ChangeIn is Change for what is of one namespace alone; next is given the tables of in's namespace, and of what it
// gives the scope counts.
func (g *Gate) ChangeIn(ctx context.Context, in *Tables, next func(st Tables) (*Tables, []storage.Op, error)) error {
	if in.Space == nil {
		return g.Change(ctx, next)
	}
	return g.Change(ctx, func(st Tables) (*Tables, []storage.Op, error) {
		space := st.Spaces.ByID(in.Space.ID)
		if space == nil || space.Going {
			return nil, nil, ErrSpaceGone
		}
		changed, ops, err := next(*st.In(space.ID))
		if err != nil {
			return nil, nil, err
		}
		scope := changed.Scope
		st.Spaces = st.Spaces.With(space, &scope)
		return &st, ops, nil
	})
}

// Limits are the lifetimes that hold at a mount.
func (g *Gate) Limits(e *mount.Entry) token.Limits {
	l := g.TTLs
	l.Max = cmp.Or(max(e.Config.MaxLeaseTTL, 0), l.Max)
	l.Default = min(cmp.Or(max(e.Config.DefaultLeaseTTL, 0), l.Default), l.Max)
	return l
}

// Changes returns a channel that is closed when the server is next sealed, unsealed, activated or
// deactivated. Take it, then look.
func (g *Gate) Changes() <-chan struct{} {
	g.turnMu.Lock()
	defer g.turnMu.Unlock()
	if g.turn == nil {
		g.turn = make(chan struct{})
	}
	return g.turn
}

// Changed closes that channel.
func (g *Gate) Changed() {
	g.turnMu.Lock()
	defer g.turnMu.Unlock()
	if g.turn != nil {
		close(g.turn)
		g.turn = nil
	}
}
