package keeper

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
)

const identityPath = "identity/"

// people answers identity/. Its writes are alone until they are committed: they and logins read what they change.
type people struct {
	engine.Tender
	k *Keeper
}

// Handle implements engine.Engine.
func (p people) Handle(ctx context.Context, v engine.View, r *secrets.Request) (*secrets.Response, error) {
	if !r.Op.Writes() || identity.OfTokens(r) {
		return p.Tender.Handle(ctx, v, r)
	}
	p.k.people.Lock()
	defer p.k.people.Unlock()
	resp, err := p.Tender.Handle(ctx, v, r)
	if err != nil {
		return nil, err
	}
	ops, err := taskOf(ctx).view.Ops(resp.Ops)
	if err != nil {
		return nil, err
	}
	resp.Ops = nil
	made := p.k.entitiesIn(ctx, taskOf(ctx).st, ops)
	if err = p.k.records.Commit(ctx, ops); err == nil {
		for range made {
			p.k.meters.entityMade(taskOf(ctx).entry)
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
func (k *Keeper) identify(ctx context.Context, t *task, a *secrets.Auth) (*whose, error) {
	w := &whose{entity: a.Entity, release: func() {}}
	if t.st.people == nil || (a.Alias == "" && a.Entity == "") {
		return w, nil
	}
	l := identity.Login{Mount: t.entry.Accessor, Name: a.Alias, Meta: a.AliasMeta, Groups: a.Groups}
	for held := ""; a.Alias != ""; {
		found, err := t.st.people.Login(ctx, l, t.Now)
		if err == nil && found.Entity.Disabled {
			err = errDenied
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
			w.ops, err = k.records.At(t.st.peoplePrefix).Ops(found.Ops)
			t.newcomer = found.Made
			return w, err
		}
		w.release() // it was found without the lock that it needs: once more with it
		give := k.uses.Take("who\x00" + found.Lock)
		k.people.RLock()
		held, w.release = found.Lock, func() { k.people.RUnlock(); give() }
	}
	p, err := k.persons.find(ctx, t.st, w.entity)
	if err == nil && !p.may() {
		err = errDenied
	}
	if err != nil {
		return nil, err
	}
	w.policies = p.Policies
	return w, nil
}

// persons keeps resolved entities. A commit that touches what one was made of makes it stale before
// the commit's caller is told; a change of groups makes all of them.
type persons struct {
	groups atomic.Uint64 // counts changes of groups
	seed   maphash.Seed
	shards [shardCount]personShard
}

type personShard struct {
	mu      sync.Mutex
	version uint64 // counts drops, as in shard
	known   map[string]*person
}

// person is an entity as of one moment.
type person struct {
	*identity.Persona        // nil: there is no such entity
	groups            uint64 // the count of changes of groups that it is of
	stale             atomic.Bool

	mu   sync.Mutex
	acls map[*policy.ACL]*policy.ACL // by what it shares with others
}

const (
	personsInShard = 1024
	aclsOfPerson   = 8
)

// may reports whether the person may do anything at all; who is no entity's may.
func (p *person) may() bool { return p == nil || (p.Persona != nil && !p.Entity.Disabled) }

// fresh reports whether what is known of the person still holds.
func (c *persons) fresh(p *person) bool {
	return p == nil || (!p.stale.Load() && p.groups == c.groups.Load())
}

func (c *persons) shard(id string) *personShard {
	return &c.shards[maphash.String(c.seed, id)%shardCount]
}

// find resolves an entity.
func (c *persons) find(ctx context.Context, st *state, id string) (*person, error) {
	s := c.shard(id)
	s.mu.Lock()
	p, version := s.known[id], s.version
	s.mu.Unlock()
	if p != nil && c.fresh(p) {
		return p, nil
	}
	p = &person{groups: c.groups.Load()}
	if st.people != nil {
		var err error
		if p.Persona, err = st.people.Resolve(ctx, id); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version != version || (p.Persona != nil && p.Entity.ID != id) { // one that was merged: the other's changes are not told by this id
		p.stale.Store(true)
		return p, nil
	}
	if s.known == nil || len(s.known) >= personsInShard {
		for _, old := range s.known { // whoever holds one learns of changes no more
			old.stale.Store(true)
		}
		s.known = map[string]*person{}
	}
	s.known[id] = p
	return p, nil
}

// committed drops whom a commit changed. prefix is where the records of identity are.
func (c *persons) committed(prefix string, ops []storage.Op) {
	if prefix == "" {
		return
	}
	for _, op := range ops {
		key, ok := strings.CutPrefix(op.Key, prefix)
		if !ok {
			continue
		}
		id, groups := identity.EntityOf(key)
		if groups {
			c.groups.Add(1)
		}
		if id != "" {
			s := c.shard(id)
			s.mu.Lock()
			s.version++
			if p := s.known[id]; p != nil {
				p.stale.Store(true)
				delete(s.known, id)
			}
			s.mu.Unlock()
		}
	}
}

// forget drops everybody.
func (c *persons) forget() {
	c.groups.Add(1)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.version++
		s.known = nil
		s.mu.Unlock()
	}
}

// acl is the set of rules that a token has, by its own policies and by those of its person.
func (st *state) acl(names []string, p *person) *policy.ACL {
	if p == nil || p.Persona == nil {
		base, _ := st.shared(names)
		return base
	}
	base, list := st.shared(slices.Concat(names, p.Policies))
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.acls[base]; own != nil {
		return own
	}
	if p.acls == nil || len(p.acls) >= aclsOfPerson {
		p.acls = map[*policy.ACL]*policy.ACL{}
	}
	own := base.With(list(), p.Variable)
	p.acls[base] = own
	return own
}

// aclOf is what a token may do that is not the request's own.
func (k *Keeper) aclOf(ctx context.Context, st *state, names []string, entity string) (*policy.ACL, error) {
	if entity == "" {
		return st.acl(names, nil), nil
	}
	p, err := k.persons.find(ctx, st, entity)
	if err != nil {
		return nil, err
	}
	if !p.may() {
		return nil, errkind.New(errkind.Invalid, "invalid token")
	}
	return st.acl(names, p), nil
}

// byIdentity are the policies that an entity gives, for show.
func (k *Keeper) byIdentity(ctx context.Context, st *state, entity string) ([]string, error) {
	if entity == "" {
		return nil, nil
	}
	p, err := k.persons.find(ctx, st, entity)
	if err != nil || p.Persona == nil {
		return nil, err
	}
	return p.Policies, nil
}
