package tokens

import (
	"context"
	"time"

	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// Expire takes away the tokens that have ended by now, with all below them and
// what they kept, and says how many entries of the index it dealt with. It
// reads what is due and nothing else, in bounded batches.
func (o *Tokens) Expire(ctx context.Context) (done int, err error) {
	o.sweep.Lock()
	defer o.sweep.Unlock()
	now := o.now()
	b := o.flying.Bulk()
	for from := token.DuePrefix; ; b.Rest(ctx) {
		n, next, err := o.expireSome(ctx, b, from, now)
		done, from = done+n, next
		if err != nil || n == 0 {
			return done, err
		}
	}
}

// expireSome deals with the entries that are due from a key on, some at a time, and says from where to go on.
func (o *Tokens) expireSome(ctx context.Context, b *flight.Bulk, from string, now time.Time) (n int, next string,
	err error) {
	st, leave, err := o.gate.Enter(ctx)
	if err != nil {
		return 0, from, nil // sealed, or a standby
	}
	defer leave()
	if err := o.finish(ctx, st); err != nil {
		return 0, from, err
	}
	records, err := o.records.Under.Scan(ctx, from, token.DueEnd(now), b.Size) // keys alone
	if err != nil || len(records) == 0 {
		return 0, from, err
	}
	below, err := o.EndTokens(ctx, b, st, func() ([]storage.Op, []string, error) {
		return o.dueTokens(ctx, st, records, now)
	})
	if err != nil {
		o.meters.Failed()
		return 0, from, err
	}
	return len(records), records[len(records)-1].Key + "\x00", o.EndBelow(ctx, b, st, below)
}

// dueTokens gives the operations that deal with due entries, and the tokens that end. Keeper.tree is held.
func (o *Tokens) dueTokens(ctx context.Context, st *tables.Tables, due []storage.Record,
	now time.Time) (ops []storage.Op, ended []string, err error) {
	for _, entry := range due {
		tok, err := st.Book.Find(ctx, token.DueName(entry.Key))
		switch {
		case sealed.Damaged(err):
			o.records.Skip(entry.Key, err)
			continue
		case err != nil:
			return nil, nil, err
		}
		ops = append(ops, storage.Delete(entry.Key))
		switch {
		case tok == nil:
		case tok.Expired(now):
			o.meters.Expired(now.Sub(tok.Expires))
			ops, ended = append(ops, token.End(tok)...), append(ended, tok.Hash)
		default: // it was renewed
			ops = append(ops, token.Move(tok)...)
		}
	}
	return ops, ended, nil
}
