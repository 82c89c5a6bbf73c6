package rights

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
)

// identities keeps resolved entities. A commit that touches what one was made of makes it stale before
// the commit's caller is told; a change of groups makes all of them.
type identities struct {
	groups atomic.Uint64 // counts changes of groups
	seed   maphash.Seed
	shards [shardCount]identityShard
}

type identityShard struct {
	mu      sync.Mutex
	version uint64 // counts drops, as in shard
	known   map[string]*resolved
}

// resolved is an entity as of one moment.
type resolved struct {
	*identity.Persona        // nil: there is no such entity
	groups            uint64 // the count of changes of groups that it is of
	stale             atomic.Bool

	mu   sync.Mutex
	acls map[*policy.ACL]*policy.ACL // by what it shares with others
}

const (
	identitiesInShard = 1024
	aclsOfIdentity    = 8
)

// May reports whether the identity may do anything at all; who is no entity's may.
func (p *resolved) May() bool { return p == nil || (p.Persona != nil && !p.Entity.Disabled) }

// fresh reports whether what is known of the identity still holds.
func (c *identities) fresh(p *resolved) bool {
	return p == nil || (!p.stale.Load() && p.groups == c.groups.Load())
}

func (c *identities) shard(id string) *identityShard {
	return &c.shards[maphash.String(c.seed, id)%shardCount]
}

// find resolves an entity.
func (c *identities) find(ctx context.Context, st *tables.Tables, id string) (*resolved, error) {
	s := c.shard(id)
	s.mu.Lock()
	p, version := s.known[id], s.version
	s.mu.Unlock()
	if p != nil && c.fresh(p) {
		return p, nil
	}
	p = &resolved{groups: c.groups.Load()}
	if st.Identities != nil {
		var err error
		if p.Persona, err = st.Identities.Resolve(ctx, id); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version != version || (p.Persona != nil &&
		p.Entity.ID != id) { // one that was merged: the other's changes are not told by this id
		p.stale.Store(true)
		return p, nil
	}
	if s.known == nil || len(s.known) >= identitiesInShard {
		for _, old := range s.known { // whoever holds one learns of changes no more
			old.stale.Store(true)
		}
		s.known = map[string]*resolved{}
	}
	s.known[id] = p
	return p, nil
}

// committed drops whom a commit changed. prefix is where the records of identity are.
func (c *identities) committed(prefix string, ops []storage.Op) {
	if prefix == "" {
		return
	}
	for _, op := range ops {
		key, ok := strings.CutPrefix(op.Key, prefix)
		if !ok {
			key, ok = tables.IdentityKey(op.Key)
		}
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
func (c *identities) forget() {
	c.groups.Add(1)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.version++
		s.known = nil
		s.mu.Unlock()
	}
}

// ACLOf is the set of rules that a token has, by its own policies and by those of its identity.
func ACLOf(st *tables.Tables, names []string, p *resolved) *policy.ACL {
	if p == nil || p.Persona == nil {
		base, _ := st.Shared(names)
		return base
	}
	base, list := st.Shared(slices.Concat(names, p.Policies))
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.acls[base]; own != nil {
		return own
	}
	if p.acls == nil || len(p.acls) >= aclsOfIdentity {
		p.acls = map[*policy.ACL]*policy.ACL{}
	}
	own := base.With(list(), p.Variable)
	p.acls[base] = own
	return own
}
