package tokens

import (
	"context"
	"sync"

	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// A token with a limited number of uses gives some of them to memory at a time: they are taken off its
// record, durably, before the first of them counts. So most uses write nothing, a crash or a seal loses at
// most one in eight of what was left, and none is ever had twice. The last use is always written by itself:
// the record says that there is one left until it is taken.
const (
	useShare = 8
	useMost  = 64
)

// reserves are the uses that were taken off records and not used yet.
type reserves struct {
	mu   sync.Mutex
	left map[string]reserve // by hash
}

type reserve struct {
	here   int // in memory
	stored int // in the record
}

// take takes one use from memory, and gives how many the token has left after it.
func (r *reserves) take(hash string) (left int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.left[hash]
	if have.here == 0 {
		return 0, false
	}
	if have.here--; have.here == 0 {
		delete(r.left, hash)
	} else {
		r.left[hash] = have
	}
	return have.here + have.stored, true
}

func (r *reserves) put(hash string, have reserve) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = map[string]reserve{}
	}
	r.left[hash] = have
}

// of is how many uses of a token are in memory.
func (r *reserves) of(hash string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left[hash].here
}

func (r *reserves) drop(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.left, hash)
}

func (r *reserves) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = nil
}

// spent is the number of uses of a token that has none left: not 0, which is no limit.
const spent = -1

// Use counts one use of a token that has a limited number, durably, before the
// request is judged. The last one leaves a record that opens nothing.
func (o *Tokens) Use(ctx context.Context, t *task.Task) (err error) {
	defer func() { t.Used = err == nil }()
	hash := t.Bearer.Hash
	defer o.names.Take("use\x00" + hash)()
	o.tree.RLock() // a token that ends meanwhile must not be stored again
	defer o.tree.RUnlock()
	if left, ok := o.reserves.take(hash); ok {
		tok := *t.Bearer.Token
		tok.Uses = left
		t.Bearer = t.Bearer.With(&tok)
		return nil
	}
	tok, err := t.Tables.Book.Find(ctx, hash)
	if err != nil {
		return err
	}
	if tok == nil || tok.Uses <= 0 {
		return rights.ErrDenied
	}
	taken := min(max((tok.Uses-1)/useShare, 1), useMost)
	if tok.Uses -= taken; tok.Uses == 0 {
		tok.Uses, t.Last = spent, true
	}
	if err := o.records.Commit(ctx, []storage.Op{token.Store(tok)}); err != nil {
		return err
	}
	if taken > 1 {
		o.reserves.put(hash, reserve{here: taken - 1, stored: tok.Uses})
		tok.Uses += taken - 1
	}
	t.Bearer = t.Bearer.With(tok)
	return nil
}

// Unuse gives a use back: of a request that was not recorded nothing was done, and its client may try again. What
// cannot be given back is lost, as by a crash.
func (o *Tokens) Unuse(ctx context.Context, t *task.Task) {
	hash := t.Bearer.Hash
	defer o.names.Take("use\x00" + hash)()
	o.tree.RLock()
	defer o.tree.RUnlock()
	tok, err := t.Tables.Book.Find(ctx, hash)
	switch {
	case err != nil || tok == nil || t.Last != (tok.Uses == spent): // it ended meanwhile
	case !t.Last:
		o.reserves.put(hash, reserve{here: o.reserves.of(hash) + 1, stored: tok.Uses})
	default:
		tok.Uses = 1
		if o.records.Commit(ctx, []storage.Op{token.Store(tok)}) == nil {
			t.Last = false // it goes on
		}
	}
	t.Used = false
}

// EndLast ends a token after its last use. It opens nothing any more, so a
// failure leaves a record behind and is no reason to take the answer back.
func (o *Tokens) EndLast(ctx context.Context, t *task.Task) {
	_ = o.End(context.WithoutCancel(ctx), t.Tables, t.Bearer.Token)
}
