package keeper

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/auditing"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// A standby that has a copy of everything (Raft) may answer reads of secrets. It says yes or passes the request on,
// never no: a token, a right or a secret that it does not find may be there by now, so whatever is not a plain "here
// it is" is the active server's to answer. What it has cached goes as the copy changes (Replicated); tables that are
// read as a whole (mounts, policies, quotas, audit devices) are read anew by Follow, and nothing is answered
// meanwhile.

// replica is what a standby reads by.
type replica struct {
	state atomic.Pointer[tables.Tables]
	// gen counts changes of what state was made of, at is the count that it is of: it is good while they are the same.
	gen, at atomic.Uint64
	nudge   atomic.Pointer[chan struct{}]
}

// readHere are the types of mounts whose reads change nothing and depend on nothing but what is stored.
var readHere = map[string]bool{"kv": true}

// ofTables is whether a record is part of what a state is made of.
func ofTables(key string) bool {
	return strings.HasPrefix(key, "core/") || strings.HasPrefix(key, tables.PolicyPrefix) || key == token.SaltKey
}

// Replicated is told what was applied to this server's copy, or that all of it was replaced. It does not wait.
func (k *Keeper) Replicated(ops []storage.Op, all bool) {
	if k.gate.Load() != nil && !all {
		return // the active server's own commits: its caches know of them, and are emptied when its reign ends
	}
	if all {
		k.forget()
	}
	tables := all
	for _, op := range ops {
		k.records.Drop(op.Key)
		tables = tables || ofTables(op.Key)
	}
	k.committed(ops)
	if !tables {
		return
	}
	k.replica.gen.Add(1)
	if c := k.replica.nudge.Load(); c != nil {
		select {
		case *c <- struct{}{}:
		default:
		}
	}
}

// followEvery is how often Follow looks when nobody nudges it: after an unsealing, or a reading that failed.
const followEvery = 250 * time.Millisecond

// Follow keeps what a standby reads by, until ctx ends.
func (k *Keeper) Follow(ctx context.Context) {
	nudge := make(chan struct{}, 1)
	k.replica.nudge.Store(&nudge)
	defer k.replace(nil, 0)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := k.follow(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Debug("secrets: this standby cannot answer reads at the moment", "error", err)
		}
		select {
		case <-nudge:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *Keeper) follow(ctx context.Context) error {
	gen, have := k.replica.gen.Load(), k.replica.state.Load()
	if !k.Standby() {
		k.replace(nil, 0)
		return nil
	}
	if have != nil && k.replica.at.Load() == gen {
		return nil
	}
	st, err := k.loadReplica(ctx)
	if err != nil {
		return err
	}
	k.replace(st, gen)
	return nil
}

// replace puts another state in the place of the one that reads go by. Follow's goroutine alone.
func (k *Keeper) replace(st *tables.Tables, gen uint64) {
	old := k.replica.state.Swap(nil)
	k.replica.at.Store(gen)
	k.replica.state.Store(st)
	if old != nil {
		auditing.Close(old.Audits)
	}
}

// loadReplica reads the tables. The keyring first: another server may have begun a term.
func (k *Keeper) loadReplica(ctx context.Context) (st *tables.Tables, err error) {
	err = k.Refreshed(ctx, func() error {
		st, err = k.readReplica(ctx)
		return err
	})
	return st, err
}

func (k *Keeper) readReplica(ctx context.Context) (*tables.Tables, error) {
	k.forget()
	st := &tables.Tables{Mounts: &mount.Table{}, Engines: map[string]engine.Engine{}, Policies: map[string]*policy.Policy{}, ACLs: tables.NewACLs()}
	salt, ok, err := k.records.Get(ctx, token.SaltKey)
	if err != nil || !ok {
		return nil, sealed.OrMissing(err, token.SaltKey)
	}
	st.Book = &token.Book{Reader: k.records, Salt: salt}
	if err := k.loadTables(ctx, st, func(e *mount.Entry, salt []byte) (engine.Engine, error) {
		if !readHere[e.Type] {
			return nil, nil
		}
		return k.owners.mounts.Engine(e, salt)
	}); err != nil {
		return nil, err
	}
	if err := k.owners.quotas.LoadRates(ctx, st); err != nil {
		return nil, err
	}
	return st, k.audits.Open(ctx, st)
}

// ReadHere answers a read of a secret on a standby from this server's copy. False: it is the active server's to answer,
// and nothing was done or recorded here.
func (k *Keeper) ReadHere(ctx context.Context, r *secrets.Request) (*task.Reply, bool) {
	if (r.Op != secrets.Read && r.Op != secrets.List) || r.Wrap != 0 || r.Token == "" {
		return nil, false
	}
	defer k.gate.Hold()() // nothing of a copy is read, and cached, in a reign of this server's own
	st := k.replica.state.Load()
	if st == nil || k.replica.at.Load() != k.replica.gen.Load() || !k.Standby() {
		return nil, false
	}
	if r.Now.IsZero() {
		r.Now = k.cfg.Now()
	}
	begin := time.Now()
	t := &task.Task{Request: r, Tables: st, Flight: flight.Entry{Request: r, Method: r.Op.String()}}
	defer k.flying.Begin(&t.Flight).End(&t.Flight)
	t.Entry, r.Rest = st.Mounts.Route(r.Path)
	if t.Entry == nil || st.Engines[t.Entry.Accessor] == nil || k.admit(ctx, t) != nil {
		return nil, false
	}
	r.Mount = t.Entry.Path
	t.Engine, t.View = st.Engines[t.Entry.Accessor], k.records.At(t.Entry.Prefix())
	if !k.allowedHere(ctx, t) {
		return nil, false
	}
	resp, err := t.Handle(ctx, r)
	if err != nil || resp.Missing || resp.Then != nil || resp.Auth != nil || resp.Lease != nil || len(resp.Ops) > 0 {
		return nil, false
	}
	reply := &task.Reply{Response: resp, Mount: t.Entry}
	if !k.recordedHere(ctx, t, reply) {
		return nil, false
	}
	k.meters.done(ctx, t, begin, reply)
	return reply, true
}

// allowedHere is whether the token and its policies surely allow a read.
func (k *Keeper) allowedHere(ctx context.Context, t *task.Task) bool {
	h, err := k.rights.Known(ctx, t.Tables, t.Token, t.Now, t.Remote)
	if err != nil || h.Uses != 0 {
		return false
	}
	t.Bearer, t.Request.Holder = h, h.DisplayName
	q := policy.Request{Path: t.Path, Need: t.Op.Need(), Protected: engine.Matches(t.Engine.Special().Protected, t.Rest)}
	if h.ACL.AsksParameters() {
		f, err := t.Fields()
		if err != nil {
			return false
		}
		q.Data = f.Plain()
	}
	verdict := h.ACL.Allow(&q)
	t.Judged = &verdict
	return verdict.Allowed
}

// recordedHere records request and answer on this server's audit devices. A read has no effect, so both go before the
// answer.
func (k *Keeper) recordedHere(ctx context.Context, t *task.Task, reply *task.Reply) bool {
	if len(t.Tables.Audits) == 0 {
		return true
	}
	e := k.audits.Entry(t, nil)
	if audit.Record(ctx, t.Tables.Audits, e) != nil {
		return false
	}
	e.Answer, e.Time, e.Response = true, k.cfg.Now(), auditing.Answered(reply)
	return audit.Record(context.WithoutCancel(ctx), t.Tables.Audits, e) == nil
}

// AuditedHeaders calls take with the name of each header that is recorded, in lower case. None while nothing records.
func (k *Keeper) AuditedHeaders(take func(name string)) {
	st := k.gate.Load()
	if st == nil {
		st = k.replica.state.Load()
	}
	if st == nil || len(st.Audits) == 0 {
		return
	}
	for name := range st.Headers {
		take(name)
	}
}

// AuditsHeaders reports whether any is recorded.
func (k *Keeper) AuditsHeaders() bool {
	st := k.gate.Load()
	return st != nil && len(st.Audits) > 0 && len(st.Headers) > 0
}
