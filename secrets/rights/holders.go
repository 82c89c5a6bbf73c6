package rights

import (
	"context"
	"hash/maphash"
	"sync"

	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// tokenCache keeps decoded tokens with their compiled policies. A commit that
// touches a token's record drops it before the commit's caller is told.
type tokenCache struct {
	seed   maphash.Seed
	shards [shardCount]tokenShard
}

type tokenShard struct {
	mu      sync.RWMutex
	version uint64 // counts drops, as in shard
	tokens  map[string]*Holder
}

// Holder is a token with what its policies allow, as of one state. Immutable.
type Holder struct {
	*token.Token
	Space    string // the path of its namespace: what it may do is at and below it
	ACL      *policy.ACL
	of       *tables.ACLs
	Identity *resolved // nil: nobody's
}

// shardCount is over how many locks the caches of tokens and of identities are spread.
const shardCount = 64

// With is the holder of the same token as of another moment.
func (h *Holder) With(t *token.Token) *Holder {
	return &Holder{Token: t, Space: h.Space, ACL: h.ACL, of: h.of, Identity: h.Identity}
}

// At is what the rules of the token call a path of a namespace that it reaches: what they say is from its own.
func (h *Holder) At(st *tables.Tables, path string) string {
	if st.Space == nil {
		return path
	}
	return st.Space.Path[len(h.Space):] + path
}

// tokensInShard bounds a shard; past it the shard begins anew.
const tokensInShard = 4096

func (c *tokenCache) shard(hash string) *tokenShard {
	return &c.shards[maphash.String(c.seed, hash)%shardCount]
}

func (c *tokenCache) byHash(ctx context.Context, st *tables.Tables, hash string, who *identities,
	load func() (*token.Token, error)) (*Holder, error) {
	if st = st.Of(hash); st == nil {
		return nil, nil // its namespace has ended
	}
	s := c.shard(hash)
	s.mu.RLock()
	h, version := s.tokens[hash], s.version
	s.mu.RUnlock()
	if h != nil && h.of == st.ACLs && who.fresh(h.Identity) {
		return h, nil
	}
	t, err := load()
	if err != nil || t == nil {
		return nil, err
	}
	h = &Holder{Token: t, Space: st.Path(), of: st.ACLs}
	if t.Entity != "" {
		if h.Identity, err = who.find(ctx, st, t.Entity); err != nil {
			return nil, err
		}
	}
	h.ACL = ACLOf(st, t.Policies, h.Identity)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == version {
		if s.tokens == nil || len(s.tokens) >= tokensInShard {
			s.tokens = map[string]*Holder{}
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
