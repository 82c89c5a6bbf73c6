package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// jobPrefix is where prefixes are that are to be revoked later, in the order in which they were asked for.
const jobPrefix = "sys/lease/job/"

// queuePrefix writes down that all leases below a folder are to be revoked. It is durable when it returns.
func (o *Leases) queuePrefix(ctx context.Context, folder string) error {
	raw, err := json.Marshal(folder)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%s%020d-%s", jobPrefix, o.now().UnixNano(), token.NewName())
	return o.records.Commit(ctx, []storage.Op{storage.Put(key, raw)})
}

// RunJobs revokes the prefixes that wait, and says how many there were.
func (o *Leases) RunJobs(ctx context.Context) (done int, err error) {
	o.jobs.Lock()
	defer o.jobs.Unlock()
	st, leave, err := o.gate.Enter(ctx)
	if err != nil {
		return 0, nil // sealed, or a standby
	}
	defer leave()
	records, damaged, err := o.records.Barrier.Scan(ctx, jobPrefix, storage.After(jobPrefix), 0)
	for _, d := range damaged {
		o.records.Skip(d.Key, d.Err)
	}
	for _, r := range records {
		var folder string
		if err := sealed.ReadJSON(r.Key, r.Value, &folder); err != nil {
			o.records.Skip(r.Key, err)
			continue
		}
		if err := o.revokePrefix(ctx, st, folder, false, true); err != nil {
			return done, err
		}
		if err := o.records.Commit(ctx, []storage.Op{storage.Delete(r.Key)}); err != nil {
			return done, err
		}
		done++
	}
	return done, err
}

// revokePrefix ends all leases below a folder, in bounded commits. Where it is queued, leases
// of engines become due at once, and the first try of each is made in its turn; else it waits for them, as many at a
// time as their target bears. force takes leases away whose engine fails.
func (o *Leases) revokePrefix(ctx context.Context, st *tables.Tables, folder string, force, queued bool) error {
	prefix := leasePrefix + folder + "/"
	b := o.flying.Bulk()
	for from := prefix; ; b.Rest(ctx) {
		records, err := o.records.Under.Scan(ctx, from, storage.After(prefix), b.Size) // keys alone are read
		if err != nil || len(records) == 0 {
			return err
		}
		var tokens, leases []string
		for _, r := range records {
			id := strings.TrimPrefix(r.Key, leasePrefix)
			if _, ok := token.OfLease(id); ok {
				tokens = append(tokens, id)
			} else {
				leases = append(leases, id)
			}
		}
		if err := o.endLogins(ctx, b, st, tokens); err != nil {
			return err
		}
		if queued {
			err = o.endLeases(ctx, b, st, leases)
		} else {
			err = o.revokeAll(ctx, b, st, leases, force)
		}
		if err != nil {
			return err
		}
		from = records[len(records)-1].Key + "\x00"
	}
}

// endLogins ends the tokens that leases are of, and what is below them.
func (o *Leases) endLogins(ctx context.Context, b *flight.Bulk, st *tables.Tables, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	below, err := o.tokens.EndTokens(ctx, b, st, func() (ops []storage.Op, ended []string, err error) {
		for _, id := range ids {
			hash, _ := token.OfLease(id)
			tok, err := st.Book.Find(ctx, hash)
			switch {
			case sealed.Damaged(err):
				o.records.Skip(leasePrefix+id, err)
			case err != nil:
				return nil, nil, err
			case tok != nil:
				ops, ended = append(ops, token.End(tok)...), append(ended, hash)
			}
			ops = append(ops, storage.Delete(leasePrefix+id))
		}
		return ops, ended, nil
	})
	if err != nil {
		return err
	}
	return o.tokens.EndBelow(ctx, b, st, below)
}

// endLeases makes leases due now, as one commit.
func (o *Leases) endLeases(ctx context.Context, b *flight.Bulk, st *tables.Tables, ids []string) error {
	defer o.tokens.LockTree()() // none is renewed meanwhile
	var ops []storage.Op
	for _, id := range ids {
		l, err := o.findLease(ctx, id)
		if sealed.Damaged(err) {
			o.records.Skip(leasePrefix+id, err)
			continue
		}
		if err != nil {
			return err
		}
		if l == nil || l.irrevocable() { // which has its own time
			continue
		}
		l.Renewable = false
		more, err := l.end(st.Book, o.now().UTC())
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	b.Waits()
	return o.records.Commit(ctx, ops)
}

// revokeAll asks the engines to revoke leases, and returns what went wrong first.
func (o *Leases) revokeAll(ctx context.Context, b *flight.Bulk, st *tables.Tables, ids []string, force bool) error {
	var workers sync.WaitGroup
	var mu sync.Mutex
	var first error
	failed := func(err error) bool {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
		}
		return first != nil
	}
	for i, id := range ids {
		if failed(nil) {
			break
		}
		if i%flight.AskBeside == flight.AskBeside-1 {
			b.Waits()
			b.Rest(ctx)
		}
		t := o.target(st, id)
		if !force && !o.place(ctx, t) {
			failed(errors.Join(ctx.Err(), errResting))
			break
		}
		if force { // an operator's last word waits for no circuit
			failed(o.revokeLease(ctx, st, id, true, time.Time{}))
			continue
		}
		workers.Go(func() {
			within, cancel := context.WithTimeout(ctx, revokeWithin)
			defer cancel()
			begun := time.Now()
			err := o.revokeLease(within, st, id, false, time.Time{})
			o.targets.end(t, o.now(), time.Since(begun), err)
			failed(err)
		})
	}
	workers.Wait()
	return first
}

var errResting = errkind.New(errkind.Unavailable,
	"leases of this mount are not revoked at the moment: it is paused, or its target fails (see sys/leases/revocation)")

// target is where a lease is revoked, by the path that its id begins with.
func (o *Leases) target(st *tables.Tables, id string) *target {
	name := ""
	if _, e, _ := st.Route(id); e != nil {
		name = e.Accessor
	}
	o.targets.mu.Lock()
	defer o.targets.mu.Unlock()
	return o.targets.withLocked(name)
}

// EndBelow makes all leases below the path of a namespace due, and ends its tokens.
func (o *Leases) EndBelow(ctx context.Context, st *tables.Tables, path string) error {
	return o.revokePrefix(ctx, st, strings.TrimSuffix(path, "/"), false, true)
}
