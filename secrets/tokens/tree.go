package tokens

import (
	"context"
	"strings"
	"time"

	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// goingPrefix names tokens that ended and have children that have not: whoever finds one goes on.
const goingPrefix = "sys/token/going/"

// End ends a token at once, and then all below it in bounded commits: nothing is made below a token
// that ended, and no request waits for more than one of them.
func (o *Tokens) End(ctx context.Context, st *tables.Tables, tok *token.Token) error {
	b := o.flying.Bulk()
	below, err := o.EndTokens(ctx, b, st, func() ([]storage.Op, []string, error) {
		return token.End(tok),
			[]string{tok.Hash}, nil
	})
	if err != nil {
		return err
	}
	return o.EndBelow(ctx, b, st, below)
}

// EndTokens ends the tokens that find names, with what they keep in their cubbyholes, as one commit; their leases
// become due in it. It gives those that have children, which are written down as going.
func (o *Tokens) EndTokens(ctx context.Context, b *flight.Bulk, st *tables.Tables,
	find func() ([]storage.Op, []string, error)) (below []string, err error) {
	o.tree.Lock()
	defer o.tree.Unlock()
	ops, ended, err := find()
	if err != nil {
		return nil, err
	}
	return o.CommitEnd(ctx, b, st, ops, ended, false)
}

// CommitEnd is endTokens with Keeper.tree held. alone says that ops make orphans of the children.
func (o *Tokens) CommitEnd(ctx context.Context, b *flight.Bulk, st *tables.Tables, ops []storage.Op, ended []string,
	alone bool) (below []string, err error) {
	for _, hash := range ended {
		o.reserves.drop(hash)
	}
	leases, err := o.Leases.DueOf(ctx, st, ended)
	if err != nil {
		return nil, err
	}
	ops = append(ops, leases...)
	// a damaged record goes like any other
	err = o.records.Hop(ctx, st.Mounts.Get("cubbyhole/").Prefix(), ended, func(_, key string) error {
		ops = append(ops, storage.Delete(key))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if alone {
		ended = nil
	}
	err = o.records.Hop(ctx, token.ParentPrefix, ended, func(hash, _ string) error {
		below = append(below, hash)
		ops = append(ops, storage.Mark(goingPrefix+hash))
		return sealed.ErrNextHash
	})
	if err != nil {
		return nil, err
	}
	gone, err := o.quotas.Going(ctx, st, ops)
	if err != nil {
		return nil, err
	}
	b.Waits()
	if err := o.records.Commit(ctx, ops); err != nil {
		return below, err
	}
	for _, id := range gone {
		o.quotas.Gone(st, id)
	}
	return below, nil
}

// EndBelow ends what is below tokens that ended. When it fails what is left is dealt with later.
func (o *Tokens) EndBelow(ctx context.Context, b *flight.Bulk, st *tables.Tables, going []string) (err error) {
	defer func() {
		if err != nil {
			o.unfinished.Store(true)
		}
	}()
	for len(going) > 0 {
		b.Rest(ctx)
		hash := going[len(going)-1]
		done := false
		below, err := o.EndTokens(ctx, b, st, func() (ops []storage.Op, ended []string, err error) {
			ops, ended, err = o.childrenOf(ctx, hash, b.Size)
			if done = len(ended) < b.Size; done && err == nil {
				ops = append(ops, storage.Delete(goingPrefix+hash))
			}
			return ops, ended, err
		})
		if err != nil {
			return err
		}
		if done {
			going = going[:len(going)-1]
		}
		going = append(going, below...)
	}
	return nil
}

// childrenOf gives the operations that end the next of a token's children, most of them at most.
func (o *Tokens) childrenOf(ctx context.Context, hash string, most int) (ops []storage.Op, ended []string, err error) {
	prefix := token.Children(hash)
	records, damaged, err := o.records.Barrier.Scan(ctx, prefix, storage.After(prefix), most)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range damaged {
		records = append(records, storage.Record{Key: d.Key}) // whatever made it: it ends
	}
	for _, r := range records {
		child := strings.TrimPrefix(r.Key, prefix)
		ops, ended = append(ops, token.EndChild(hash, child, string(r.Value))...), append(ended, child)
	}
	return ops, ended, nil
}

// finish ends what is below tokens that ended when nobody could go on: after a crash, or an error.
func (o *Tokens) finish(ctx context.Context, st *tables.Tables) error {
	if !o.unfinished.Swap(false) {
		return nil
	}
	records, err := o.records.Under.Scan(ctx, goingPrefix, storage.After(goingPrefix), 0)
	if err != nil {
		o.unfinished.Store(true)
		return err
	}
	for _, r := range records {
		if err := o.EndBelow(ctx, o.flying.Bulk(), st, []string{strings.TrimPrefix(r.Key, goingPrefix)}); err != nil {
			return err
		}
	}
	return nil
}

// TokenOfLease is the token that a lease id is of, or nil where it is no token's.
func (o *Tokens) TokenOfLease(ctx context.Context, st *tables.Tables, id string, now time.Time) (*token.Token, error) {
	hash, ok := token.OfLease(id)
	if !ok {
		return nil, nil
	}
	tok, err := st.Book.Find(ctx, hash)
	if err != nil || tok == nil || tok.LeaseID() != id || tok.Expired(now) {
		return nil, err
	}
	return tok, nil
}
