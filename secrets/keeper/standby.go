package keeper

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/auditing"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
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
	k     *Keeper
	state atomic.Pointer[tables.Tables]
	// gen counts changes of what state was made of, at is the count that it is of: it is good while they are the same.
	gen, at atomic.Uint64
	notify  atomic.Pointer[chan struct{}]
}

// readHere are the types of mounts whose reads change nothing and depend on nothing but what is stored.
var readHere = map[string]bool{"kv": true}

// ofTables is whether a record is part of what a state is made of.
func ofTables(key string) bool {
	return strings.HasPrefix(key, "core/") || strings.HasPrefix(key, tables.PolicyPrefix) || key == token.SaltKey
}

// Replicated is told what was applied to this server's copy, or that all of it was replaced. It does not wait.
func (s *replica) Replicated(ops []storage.Op, all bool) {
	if s.k.gate.Load() != nil && !all {
		return // the active server's own commits: its caches know of them, and are emptied when its term ends
	}
	if all {
		s.k.forget()
	}
	tables := all
	for _, op := range ops {
		s.k.records.Drop(op.Key)
		tables = tables || ofTables(op.Key)
	}
	s.k.committed(ops)
	if !tables {
		return
	}
	s.gen.Add(1)
	if c := s.notify.Load(); c != nil {
		select {
		case *c <- struct{}{}:
		default:
		}
	}
}

// followEvery is how often Follow looks when nobody notifies it: after an unsealing, or a reading that failed.
const followEvery = 250 * time.Millisecond

// Follow keeps what a standby reads by, until ctx ends.
func (s *replica) Follow(ctx context.Context) {
	notify := make(chan struct{}, 1)
	s.notify.Store(&notify)
	defer s.replace(nil, 0)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := s.follow(ctx); err != nil && ctx.Err() == nil {
			s.k.cfg.Log.Debug("secrets: this standby cannot answer reads at the moment", "error", err)
		}
		select {
		case <-notify:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *replica) follow(ctx context.Context) error {
	gen, have := s.gen.Load(), s.state.Load()
	if !s.k.Standby() {
		s.replace(nil, 0)
		return nil
	}
	if have != nil && s.at.Load() == gen {
		return nil
	}
	st, err := s.load(ctx)
	if err != nil {
		return err
	}
	s.replace(st, gen)
	return nil
}

// replace puts another state in the place of the one that reads go by. Follow's goroutine alone.
func (s *replica) replace(st *tables.Tables, gen uint64) {
	old := s.state.Swap(nil)
	s.at.Store(gen)
	s.state.Store(st)
	if old != nil {
		auditing.Close(old.Audits)
	}
}

// load reads the tables. The keyring first: another server may have begun a term.
func (s *replica) load(ctx context.Context) (st *tables.Tables, err error) {
	k := s.k
	err = k.Refreshed(ctx, func() (err error) {
		k.forget()
		st, err = k.read(ctx, func(e *mount.Entry, salt []byte) (engine.Engine, error) {
			if !readHere[e.Type] {
				return nil, nil
			}
			return k.owners.mounts.Engine(e, salt)
		})
		if err == nil {
			err = k.owners.quotas.LoadRates(ctx, st)
		}
		if err == nil {
			err = k.audits.Open(ctx, st)
		}
		return err
	})
	return st, err
}

// table is what a read goes by now; nil where it is the active server's to answer.
func (s *replica) table() *tables.Tables {
	st := s.state.Load()
	if s.at.Load() != s.gen.Load() || !s.k.Standby() {
		return nil
	}
	return st
}

// ReadHere answers a read of a secret on a standby from this server's copy. False: it is the active server's to answer,
// and nothing was done or recorded here.
func (s *replica) ReadHere(ctx context.Context, r *secrets.Request) (*task.Reply, bool) {
	if (r.Op != secrets.Read && r.Op != secrets.List) || r.Wrap != 0 || r.Token == "" {
		return nil, false
	}
	defer s.k.gate.Hold()() // nothing of a copy is read, and cached, in a term of this server's own
	t := s.judged(ctx, r)
	if t == nil || t.Engine == nil || !s.allowed(ctx, t) {
		return nil, false
	}
	return s.answer(ctx, t, func(resp *secrets.Response) bool {
		return !resp.Missing && resp.Then == nil && resp.Auth == nil && resp.Lease == nil && len(resp.Ops) == 0
	})
}

// IsLocal is whether a path tells of the server that it is asked of, and not of the cluster.
func IsLocal(path string) bool {
	switch path {
	case "sys/host-info", "sys/in-flight-req", "sys/monitor", "sys/metrics", "sys/config/state/sanitized", "sys/pprof":
		return true
	}
	return strings.HasPrefix(path, "sys/pprof/")
}

// LocalHere answers a path that tells of this server, on a standby that can judge who asks by its copy. False: it
// cannot, and nothing was done or recorded.
func (s *replica) LocalHere(ctx context.Context, r *secrets.Request) (*task.Reply, bool) {
	if r.Op != secrets.Read || r.Wrap != 0 || r.Token == "" || !IsLocal(r.Path) {
		return nil, false
	}
	release := s.k.gate.Hold()
	t := s.judged(ctx, r)
	ok := t != nil && t.Entry.Type == "system" && t.Tables.Space == nil
	if ok {
		t.Engine = s.k.owners.system
		ok = s.allowed(ctx, t)
	}
	release() // no lock is held while it answers: a profile takes its time
	if !ok {
		return nil, false
	}
	return s.answer(ctx, t, func(*secrets.Response) bool { return true })
}

// judged is the task of a request that has a mount here and is within the rate limits; nil of others.
func (s *replica) judged(ctx context.Context, r *secrets.Request) *task.Task {
	st := s.table()
	if st == nil {
		return nil
	}
	t := s.k.newTask(st, r)
	if t.Entry == nil || locked(t) != nil || s.k.admit(ctx, t) != nil {
		return nil
	}
	return t
}

// answer gives an answer that is one to give here, once it is recorded.
func (s *replica) answer(ctx context.Context, t *task.Task, plain func(*secrets.Response) bool) (*task.Reply, bool) {
	begin := time.Now()
	defer s.k.flying.Begin(&t.Flight).End(&t.Flight)
	resp, err := t.Handle(ctx, t.Request)
	if err != nil || !plain(resp) {
		return nil, false
	}
	reply := &task.Reply{Response: resp, Mount: t.Entry}
	if !s.recorded(ctx, t, reply) {
		return nil, false
	}
	s.k.meters.done(ctx, t, begin, reply)
	return reply, true
}

// allowed is whether the token and its policies surely allow a read.
func (s *replica) allowed(ctx context.Context, t *task.Task) bool {
	h, err := s.k.rights.Known(ctx, t.Tables, t.Token, t.Now, t.Remote)
	if err != nil || h.Uses != 0 {
		return false
	}
	t.Bearer, t.Request.Holder = h, h.DisplayName
	q := policy.Request{Path: h.At(t.Tables, t.Path), Need: t.Op.Need(),
		Protected: engine.Matches(t.Engine.Special().Protected, t.Rest)}
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

// recorded records request and answer on this server's audit devices. A read has no effect, so both go before the
// answer.
func (s *replica) recorded(ctx context.Context, t *task.Task, reply *task.Reply) bool {
	if len(t.Tables.Audits) == 0 {
		return true
	}
	e := s.k.audits.Entry(t, nil)
	if audit.Record(ctx, t.Tables.Audits, e) != nil {
		return false
	}
	e.Answer, e.Time, e.Response = true, s.k.cfg.Now(), auditing.Answered(reply)
	return audit.Record(context.WithoutCancel(ctx), t.Tables.Audits, e) == nil
}

// AuditedHeaders calls take with the name of each header that is recorded, in lower case. None while nothing records.
func (s *replica) AuditedHeaders(take func(name string)) {
	if st := cmp.Or(s.k.gate.Load(), s.state.Load()); st != nil && len(st.Audits) > 0 {
		for name := range st.Headers {
			take(name)
		}
	}
}

// AuditsHeaders reports whether any is recorded.
func (s *replica) AuditsHeaders() bool {
	st := s.k.gate.Load()
	return st != nil && len(st.Audits) > 0 && len(st.Headers) > 0
}
