package keeper

import (
	"context"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
)

const identityPath = "identity/"

// people answers identity/. Its writes are alone until they are committed: they and logins read what they change.
type people struct {
	engine.Tender
	k *Keeper
}

// Answer implements Handler.
func (p people) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	if !r.Op.Writes() || identity.OfTokens(r) {
		return p.Tender.Handle(ctx, t.View, r)
	}
	p.k.people.Lock()
	defer p.k.people.Unlock()
	resp, err := p.Tender.Handle(ctx, t.View, r)
	if err != nil {
		return nil, err
	}
	ops, err := t.View.Ops(resp.Ops)
	if err != nil {
		return nil, err
	}
	resp.Ops = nil
	made := p.k.entitiesIn(ctx, t.Tables, ops)
	if err = p.k.records.Commit(ctx, ops); err == nil {
		for range made {
			p.k.meters.entityMade(t.Entry)
		}
	}
	return resp, err
}

// whose is who a token in the making is of.
type whose struct {
	entity   string
	policies []string // by identity
	ops      []storage.Op
	release  func()
}

// identify finds the entity of a login, and what the login changes of it. Until release is called
// nobody else changes that.
func (k *Keeper) identify(ctx context.Context, t *task.Task, a *secrets.Auth) (*whose, error) {
	w := &whose{entity: a.Entity, release: func() {}}
	if t.Tables.People == nil || (a.Alias == "" && a.Entity == "") {
		return w, nil
	}
	l := identity.Login{Mount: t.Entry.Accessor, Name: a.Alias, Meta: a.AliasMeta, Groups: a.Groups}
	for held := ""; a.Alias != ""; {
		found, err := t.Tables.People.Login(ctx, l, t.Now)
		if err == nil && found.Entity.Disabled {
			err = rights.ErrDenied
		}
		if err != nil {
			w.release()
			return nil, err
		}
		if w.entity = found.Entity.ID; len(found.Ops) == 0 {
			w.release()
			w.release = func() {}
			break
		}
		if found.Lock == held {
			w.policies = found.Persona.Policies
			w.ops, err = k.records.At(t.Tables.PeoplePrefix).Ops(found.Ops)
			t.Newcomer = found.Made
			return w, err
		}
		w.release() // it was found without the lock that it needs: once more with it
		give := k.uses.Take("who\x00" + found.Lock)
		k.people.RLock()
		held, w.release = found.Lock, func() { k.people.RUnlock(); give() }
	}
	p, err := k.rights.Person(ctx, t.Tables, w.entity)
	if err == nil && !p.May() {
		err = rights.ErrDenied
	}
	if err != nil {
		return nil, err
	}
	w.policies = p.Policies
	return w, nil
}
