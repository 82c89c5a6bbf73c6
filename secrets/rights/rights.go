package rights

import (
	"context"
	"hash/maphash"
	"net/netip"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// ErrDenied is the one answer to who may not, whatever the reason.
var ErrDenied = errkind.New(errkind.Denied, "permission denied")

// OrDenied is why something was not found without which nobody may.
func OrDenied(err error) error {
	if err != nil {
		return err
	}
	return ErrDenied
}

// Rights finds tokens with what they allow, and keeps them.
type Rights struct {
	store      *sealed.Store
	tokens     tokenCache
	identities identities
}

// NewRights makes one over the records.
func NewRights(store *sealed.Store) *Rights {
	return &Rights{store: store, tokens: tokenCache{seed: maphash.MakeSeed()},
		identities: identities{seed: maphash.MakeSeed()}}
}

// Committed drops what a commit changed, before its caller is told. st are the tables that are gone by.
func (r *Rights) Committed(st *tables.Tables, ops []storage.Op) {
	if st != nil {
		r.identities.committed(st.Top().IdentitiesPrefix, ops)
	}
	r.tokens.committed(ops)
}

// Forget drops everything.
func (r *Rights) Forget() {
	r.tokens.forget()
	r.identities.forget()
}

// Count is how many tokens are kept.
func (r *Rights) Count() (n int) {
	for i := range r.tokens.shards {
		s := &r.tokens.shards[i]
		s.mu.RLock()
		n += len(s.tokens)
		s.mu.RUnlock()
	}
	return n
}

// Identity resolves an entity.
func (r *Rights) Identity(ctx context.Context, st *tables.Tables, id string) (*resolved, error) {
	return r.identities.find(ctx, st, id)
}

// Known finds the token of an id, or says that there is none that counts, for whoever asks from an address: it is of
// the tables' namespace, or of one above.
func (r *Rights) Known(ctx context.Context, st *tables.Tables, id string, now time.Time, from netip.Addr) (*Holder,
	error) {
	if id == "" {
		return nil, ErrDenied
	}
	h, err := r.find(ctx, st, id)
	if err != nil {
		return nil, err
	}
	if h == nil || !strings.HasPrefix(st.Path(), h.Space) || h.Expired(now) || !h.Identity.May() ||
		!auth.Within(h.CIDRs, from) {
		return nil, ErrDenied
	}
	if ok, err := r.parentLives(ctx, st, h, now); err != nil || !ok {
		return nil, OrDenied(err)
	}
	return h, nil
}

// find returns the holder of an id, or nil where there is no such token.
func (r *Rights) find(ctx context.Context, st *tables.Tables, id string) (*Holder, error) {
	hash := st.TokenName(id)
	return r.tokens.byHash(ctx, st, hash, &r.identities, func() (*token.Token, error) { return r.load(ctx, st, id, hash) })
}

// Token finds a token, also one that is stored nowhere; nil for none. It may have expired.
func (r *Rights) Token(ctx context.Context, st *tables.Tables, id string) (*token.Token, error) {
	return r.load(ctx, st, id, st.TokenName(id))
}

func (r *Rights) load(ctx context.Context, st *tables.Tables, id, hash string) (*token.Token, error) {
	if !token.IsBatch(id) {
		return st.Book.Find(ctx, hash)
	}
	t, err := token.ReadBatch(id, func(text []byte) ([]byte, error) {
		return r.store.Barrier.OpenText(token.BatchName, text)
	})
	if t != nil {
		t.Hash = hash
		if token.Space(hash) != token.SpaceOf(id) {
			return nil, nil // of a namespace that has ended
		}
	}
	return t, err
}

// parentLives reports whether what a batch token was made below is there: nobody tells the token when that ends.
func (r *Rights) parentLives(ctx context.Context, st *tables.Tables, h *Holder, now time.Time) (bool, error) {
	if !h.Batch || h.Parent == "" {
		return true, nil
	}
	parent, err := r.tokens.byHash(ctx, st, h.Parent, &r.identities, func() (*token.Token, error) {
		return st.Book.Find(ctx,
			h.Parent)
	})
	return parent != nil && !parent.Expired(now) && parent.Uses >= 0, err
}

// ACL is what a token may do that is not the request's own; st are the tables of its namespace.
func (r *Rights) ACL(ctx context.Context, st *tables.Tables, names []string, entity string) (*policy.ACL, error) {
	if entity == "" {
		return ACLOf(st, names, nil), nil
	}
	p, err := r.identities.find(ctx, st, entity)
	if err != nil {
		return nil, err
	}
	if !p.May() {
		return nil, errkind.New(errkind.Invalid, "invalid token")
	}
	return ACLOf(st, names, p), nil
}

// ByIdentity are the policies that an entity gives, for show; st are the tables of its namespace.
func (r *Rights) ByIdentity(ctx context.Context, st *tables.Tables, entity string) ([]string, error) {
	if entity == "" {
		return nil, nil
	}
	p, err := r.identities.find(ctx, st, entity)
	if err != nil || p.Persona == nil {
		return nil, err
	}
	return p.Policies, nil
}
