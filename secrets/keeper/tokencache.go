package keeper

import (
	"context"
	"hash/maphash"
	"sync"

	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/token"
)

// tokenCache keeps decoded tokens with their compiled policies. A commit that
// touches a token's record drops it before the commit's caller is told.
type tokenCache struct {
	persons *persons
	batch   func(id string) (*token.Token, error) // the token that an id holds
	seed    maphash.Seed
	once    sync.Once
	shards  [shardCount]tokenShard
}

type tokenShard struct {
	mu      sync.RWMutex
	version uint64 // counts drops, as in shard
	tokens  map[string]*holder
}

// holder is a token with what its policies allow, as of one state. Immutable.
type holder struct {
	*token.Token
	acl    *policy.ACL
	of     *aclCache
	person *person // nil: nobody's
}

// shardCount is over how many locks the caches of tokens and of identities are spread.
const shardCount = 64

// tokensInShard bounds a shard; past it the shard begins anew.
const tokensInShard = 4096

func (c *tokenCache) shard(hash string) *tokenShard {
	c.once.Do(func() { c.seed = maphash.MakeSeed() })
	return &c.shards[maphash.String(c.seed, hash)%shardCount]
}

// find returns the holder of an id, or nil where there is no such token.
func (c *tokenCache) find(ctx context.Context, st *state, id string) (*holder, error) {
	hash := st.book.Hash(id)
	return c.byHash(ctx, st, hash, func() (*token.Token, error) {
		if token.IsBatch(id) {
			t, err := c.batch(id)
			if t != nil {
				t.Hash = hash
			}
			return t, err
		}
		return st.book.Find(ctx, hash)
	})
}

func (c *tokenCache) byHash(ctx context.Context, st *state, hash string, load func() (*token.Token, error)) (*holder, error) {
	s := c.shard(hash)
	s.mu.RLock()
	h, version := s.tokens[hash], s.version
	s.mu.RUnlock()
	if h != nil && h.of == st.acls && c.persons.fresh(h.person) {
		return h, nil
	}
	t, err := load()
	if err != nil || t == nil {
		return nil, err
	}
	h = &holder{Token: t, of: st.acls}
	if t.Entity != "" {
		if h.person, err = c.persons.find(ctx, st, t.Entity); err != nil {
			return nil, err
		}
	}
	h.acl = st.acl(t.Policies, h.person)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == version {
		if s.tokens == nil || len(s.tokens) >= tokensInShard {
			s.tokens = map[string]*holder{}
		}
		s.tokens[hash] = h
	}
	return h, nil
}

func (c *tokenCache) committed(ops []storage.Op) {
	for _, op := range ops {
		if hash, ok := token.HashOf(op.Key); ok {
			s := c.shard(hash)
			s.mu.Lock()
			s.version++
			delete(s.tokens, hash)
			s.mu.Unlock()
		}
	}
}

func (c *tokenCache) forget() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.version++
		s.tokens = nil
		s.mu.Unlock()
	}
}
