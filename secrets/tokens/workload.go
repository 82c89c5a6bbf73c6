package tokens

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// A token that follows a workload is in an index by mount and workload. The name of the workload is beside it.
const (
	workloadNames = "sys/token/workload-name/"
	// workloadGrace is how long a workload may be away: a restart is no end.
	workloadGrace  = 30 * time.Second
	workloadAtOnce = 256 // tokens
	workloadsEvery = 5 * time.Second
)

// missing are workloads that are away, and since when. In memory: who takes over counts anew.
type missing struct {
	sweep sync.Mutex // one EndWorkloads at a time; guards what follows
	since map[string]time.Time
	last  time.Time
}

// workloadOf is the place of a workload in the index.
func workloadOf(t *task.Task, name string) string {
	return t.Entry.Accessor + "/" + t.Tables.Book.Hash(name)
}

// loginOf is what a token keeps of a login for its renewals: whose it is, the mount's accessor, stands before it, since
// a mount may move.
func loginOf(t *task.Task, data []byte) []byte {
	if data == nil {
		return nil
	}
	return append([]byte(t.Entry.Accessor+"\x00"), data...)
}

// methodOf gives the mount of the login that made a token, and what that left in it; nil where the mount is gone.
func methodOf(st *tables.Tables, tok *token.Token) (*mount.Entry, []byte) {
	if accessor, data, ok := bytes.Cut(tok.Login, []byte{0}); ok {
		return st.Mounts.ByAccessor(string(accessor)), data
	}
	// not made by a login, or by one of before accessors were kept
	e, _ := st.Mounts.Route(strings.TrimPrefix(tok.Path, st.Path()))
	return e, tok.Login
}

// renewable asks the method that made a token whether it may be renewed, and gives the limits that hold then. The
// token gets the lifetimes that its role gives by now.
func (o *Tokens) renewable(ctx context.Context, t *task.Task, tok *token.Token) (token.Limits, error) {
	of := t.Tables.Of(tok.Hash)
	if of == nil {
		return token.Limits{}, rights.ErrDenied
	}
	e, data := methodOf(of, tok)
	if e == nil {
		return token.Limits{}, auth.Gone("auth method of", tok.Path)
	}
	limits := o.gate.Limits(e)
	method, ok := of.Engines[e.Accessor].(engine.Renewer)
	if !ok || data == nil {
		return limits, nil
	}
	workload := ""
	if tok.Workload != "" {
		name, _, err := o.records.Get(ctx, workloadNames+tok.Workload)
		if err != nil {
			return limits, err
		}
		workload = string(name)
	}
	terms, err := method.Renewable(ctx, o.records.At(e.Prefix()), t.Request, engine.Login{Data: data, Workload: workload,
		Policies: tok.Policies})
	if err != nil {
		return limits, err
	}
	tok.MaxTTL, tok.Period = terms.MaxTTL, terms.Period
	limits.Usual = cmp.Or(terms.TTL, limits.Default)
	return limits, nil
}

// EndWorkloads ends the tokens of workloads that have been away for a while, with all below them and their leases,
// and says how many. The index's folders alone are read where nothing is to end.
func (o *Tokens) EndWorkloads(ctx context.Context) (ended int, err error) {
	o.missing.sweep.Lock()
	defer o.missing.sweep.Unlock()
	st := o.gate.Load()
	if st == nil {
		return 0, nil
	}
	now, away := o.now(), map[string]time.Time{}
	if since := now.Sub(o.missing.last); since >= 0 && since < workloadsEvery {
		return 0, nil
	}
	o.missing.last = now
	accessors, err := o.records.List(ctx, token.WorkloadPrefix, "", 0)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, folder := range accessors {
		accessor := strings.TrimSuffix(folder, "/")
		in, e := st.Mounted(accessor)
		names, err := o.records.List(ctx, token.WorkloadPrefix+folder, "", 0)
		if err != nil {
			return ended, err
		}
		for _, name := range names {
			at := folder + strings.TrimSuffix(name, "/")
			live, err := o.workloadLives(ctx, in, e, at, now)
			if err != nil {
				errs = append(errs, err)
				if since, was := o.missing.since[at]; was { // no answer is neither life nor death
					away[at] = since
				}
				continue
			}
			if live {
				continue
			}
			since, was := o.missing.since[at]
			if !was {
				since = now
			}
			if away[at] = since; now.Sub(since) < workloadGrace {
				continue
			}
			n, err := o.endWorkload(ctx, st, at)
			ended += n
			if err != nil {
				return ended, err
			}
			delete(away, at)
		}
	}
	o.missing.since = away
	return ended, errors.Join(errs...)
}

func (o *Tokens) workloadLives(ctx context.Context, st *tables.Tables, e *mount.Entry, at string,
	now time.Time) (bool, error) {
	if e == nil { // the mount went
		return false, nil
	}
	method, ok := st.Engines[e.Accessor].(engine.Workplaces)
	if !ok {
		return false, nil
	}
	name, ok, err := o.records.Get(ctx, workloadNames+at)
	if err != nil || !ok {
		return false, err
	}
	return method.Live(ctx, o.records.At(e.Prefix()), string(name), now)
}

// endWorkload ends all tokens of one workload, in bounded commits.
func (o *Tokens) endWorkload(ctx context.Context, st *tables.Tables, at string) (ended int, err error) {
	prefix := token.WorkloadPrefix + at + "/"
	for {
		records, err := o.records.Under.Scan(ctx, prefix, storage.After(prefix), workloadAtOnce) // of marks: the keys say all
		if err != nil {
			return ended, err
		}
		if len(records) == 0 {
			return ended, nil // its name stays: a login may be about to need it
		}
		for _, r := range records {
			tok, err := st.Book.Find(ctx, strings.TrimPrefix(r.Key, prefix))
			if err != nil && !errkind.Is(err, errkind.Corrupt) {
				return ended, err
			}
			if tok == nil { // it ended with something above it
				err = o.records.Commit(ctx, []storage.Op{storage.Delete(r.Key)})
			} else {
				err = o.End(ctx, st, tok)
			}
			if err != nil {
				return ended, err
			}
			ended++
		}
	}
}
