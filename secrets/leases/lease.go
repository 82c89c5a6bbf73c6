package leases

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/serial"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/quotas"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/secrets/tokens"
	"corbel.dev/corbel/telemetry"
)

// Where leases are, and when their storms are dealt with.
const (
	leasePrefix    = token.LeasePrefix
	byTokenPrefix  = token.LeasesOf
	leaseDuePrefix = "sys/lease/at/" // by mount: one whose engine hangs holds up no other
	Tries          = 6
	revokeFirst    = 10 * time.Second
	irrevocableAge = 24 * time.Hour // how often one that nobody could revoke is tried again
	leaseErrorSize = 240
)

// Leases makes, renews and revokes what engines give for a time.
type Leases struct {
	gate    *tables.Gate
	records *sealed.Store
	tokens  *tokens.Tokens
	quotas  *quotas.Quotas
	flying  *flight.List
	now     func() time.Time
	log     *slog.Logger

	names   serial.Names // the order of changes of one lease; taken before the tokens' tree
	targets targets      // of revocations
	jobs    sync.Mutex   // one walk over the prefixes that wait at a time
	jobsRun atomic.Bool

	meters leaseMeters
}

// leaseMeters are what revocations and renewals count, found once.
type leaseMeters struct {
	expiry                      tokens.Expiry
	coalesced                   *telemetry.Counter
	revoked, notRevoked         *telemetry.Counter
	revokeCommon, revokeByToken *telemetry.Timing
}

// NewLeases makes the owner of leases. Tokens that end ask it for theirs.
func NewLeases(gate *tables.Gate, records *sealed.Store, t *tokens.Tokens, q *quotas.Quotas, flying *flight.List,
	now func() time.Time, log *slog.Logger, r *telemetry.Registry) *Leases {
	o := &Leases{gate: gate, records: records, tokens: t, quotas: q, flying: flying, now: now, log: log}
	o.meters = leaseMeters{tokens.NewExpiry(r), r.Counter("expire.renew.coalesced"), r.Counter("expire.revoked"),
		r.Counter("expire.revoke_failed"),
		r.Timing("expire.revoke-common"), r.Timing("expire.revoke-by-token")}
	t.Leases = o
	return o
}

// counted counts a try to revoke a lease.
func (m *leaseMeters) counted(err error) {
	if err != nil {
		m.notRevoked.Add(1)
		return
	}
	m.revoked.Add(1)
}

// lease is a lease as it is stored, under its id.
type lease struct {
	ID      string    `json:"-"`
	Token   string    `json:"token,omitempty"` // hash
	Mount   string    `json:"mount"`           // accessor
	Issued  time.Time `json:"issue_time"`
	Expires time.Time `json:"expire_time"`
	Renewed time.Time `json:"last_renewal,omitzero"`
	// where its entry in the expiry index is: its end, what that was before renewals, or the next try
	Due    time.Time     `json:"due"`
	TTL    time.Duration `json:"ttl"`
	MaxTTL time.Duration `json:"max_ttl,omitempty"`

	Renewable bool   `json:"renewable,omitempty"`
	Internal  []byte `json:"internal,omitempty"`
	Tries     int    `json:"tries,omitempty"` // to revoke it, that failed
	Error     string `json:"error,omitempty"` // of the last of them
}

func (l *lease) irrevocable() bool { return l.Tries >= Tries }

func (l *lease) left(now time.Time) time.Duration { return max(l.Expires.Sub(now), 0) }

// dueAt is the lease's entry in the index of what is due of its mount, in the order of time.
func (l *lease) dueAt(book *token.Book) string {
	return fmt.Sprintf("%s%s/%020d/%s", leaseDuePrefix, l.Mount, max(l.Due.UnixNano(), 0), book.Hash(l.ID))
}

var (
	errLeaseInvalid  = errkind.New(errkind.Invalid, "invalid lease ID")
	errLeaseMissing  = errkind.New(errkind.Invalid, "lease not found")
	errNotRenewable  = errkind.New(errkind.Invalid, "lease is not renewable")
	errLeaseExpired  = errkind.New(errkind.Invalid, "lease expired")
	errNoLeaseByLast = errkind.New(errkind.Invalid,
		"secret cannot be returned; token had one use left, so leased credentials were immediately revoked")
)

// store gives the operations that store the lease with its entry in the expiry index at due.
func (l *lease) store(book *token.Book, due time.Time) ([]storage.Op, error) {
	var ops []storage.Op
	if !l.Due.IsZero() && !l.Due.Equal(due) {
		ops = append(ops, storage.Delete(l.dueAt(book)))
	}
	l.Due = due.UTC()
	op, err := storage.PutJSON(leasePrefix+l.ID, l)
	return append(ops, op, storage.Put(l.dueAt(book), []byte(l.ID))), err
}

// keep gives the operations that store the lease after a renewal. An entry in the index that is early stays: whoever
// finds it due moves it (expireLease), so a renewal is one operation.
func (l *lease) keep(book *token.Book) ([]storage.Op, error) {
	if l.Expires.Before(l.Due) {
		return l.store(book, l.Expires)
	}
	op, err := storage.PutJSON(leasePrefix+l.ID, l)
	return []storage.Op{op}, err
}

// remove gives the operations that take the lease away.
func (l *lease) remove(book *token.Book) []storage.Op {
	ops := []storage.Op{storage.Delete(leasePrefix + l.ID), storage.Delete(l.dueAt(book))}
	if l.Token != "" {
		ops = append(ops, storage.Delete(byToken(book, l)))
	}
	return ops
}

func byToken(book *token.Book, l *lease) string {
	return byTokenPrefix + l.Token + "/" + book.Hash(l.ID)
}

// Grant makes the lease of an answer, in the batch of what the engine stores. Until release is
// called nothing ends its token: a lease whose token ended meanwhile would live on by itself.
func (o *Leases) Grant(ctx context.Context, t *task.Task, reply *task.Reply) (ops []storage.Op, release func(),
	err error) {
	asked := reply.Response.Lease
	if t.Last {
		return nil, nil, errNoLeaseByLast
	}
	free := o.tokens.HoldTree()
	defer func() {
		if err != nil {
			free()
		}
	}()
	place := quota.Place{Path: t.FromRoot(), Mount: t.Space + t.Entry.Path, Space: t.Space}
	if err := o.quotas.Take(t, place); err != nil {
		return nil, nil, err
	}
	limits := o.gate.Limits(t.Entry)
	id := strings.TrimSuffix(t.FromRoot(), "/") + "/" + token.NewName() + t.Tables.Suffix()
	l := &lease{ID: id, Mount: t.Entry.Accessor, Issued: t.Now.UTC(),
		MaxTTL:    asked.MaxTTL,
		Renewable: asked.Renewable, Internal: asked.Internal}
	if l.TTL = asked.TTL; l.TTL <= 0 {
		l.TTL = limits.Default
	}
	if t.Bearer != nil && t.Bearer.Batch { // nobody ends its leases with it: they must not be longer, nor become so
		if left := t.Bearer.Left(t.Now); l.MaxTTL <= 0 || l.MaxTTL > left {
			l.MaxTTL = left
		}
	}
	for _, most := range []time.Duration{limits.Max, l.MaxTTL} {
		if most > 0 && l.TTL > most {
			l.TTL = most
			reply.Warnings = append(reply.Warnings, "TTL is capped by the maximum that holds here: "+most.String())
		}
	}
	l.Expires = l.Issued.Add(l.TTL)
	if t.Bearer != nil {
		if l.Token, err = leaseHolder(ctx, t); err != nil {
			return nil, nil, err
		}
	}
	if ops, err = l.store(t.Tables.Book, l.Expires); err != nil {
		return nil, nil, err
	}
	if l.Token != "" {
		ops = append(ops, storage.Put(byToken(t.Tables.Book, l), []byte(l.ID)))
	}
	reply.Lease = &task.Leased{ID: shown(t.Tables, l.ID), Left: l.TTL, Renewable: l.Renewable}
	return ops, free, nil
}

// leaseHolder is the token that a lease ends with: the request's, or what that was made below where it is stored
// nowhere.
func leaseHolder(ctx context.Context, t *task.Task) (hash string, err error) {
	hash = t.Bearer.Hash
	if t.Bearer.Batch {
		hash = t.Bearer.Parent
	}
	if hash == "" {
		return "", nil
	}
	tok, err := t.Tables.Book.Find(ctx, hash)
	if err != nil || tok == nil {
		return "", rights.OrDenied(err)
	}
	return hash, nil
}

func (o *Leases) findLease(ctx context.Context, id string) (*lease, error) {
	id = strings.Trim(id, "/")
	if storage.CheckKey(leasePrefix+id) != nil {
		return nil, errLeaseInvalid
	}
	raw, ok, err := o.records.Get(ctx, leasePrefix+id)
	if err != nil || !ok {
		return nil, err
	}
	l := &lease{}
	if json.Unmarshal(raw, l) != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the record of the lease %s is not what was stored", id)
	}
	l.ID = id
	return l, nil
}

// leaser is the engine that a lease is of, with its view and mount, or nil where its mount is gone. A namespace that is
// going has its mounts until its leases have ended.
func (o *Leases) leaser(st *tables.Tables, l *lease) (engine.Leaser, sealed.View, *mount.Entry) {
	in := st.In(token.SpaceOf(l.ID))
	if in == nil {
		return nil, sealed.View{}, nil
	}
	e := in.Mounts.ByAccessor(l.Mount)
	if e == nil {
		return nil, sealed.View{}, nil
	}
	leaser, _ := in.Engines[e.Accessor].(engine.Leaser)
	return leaser, o.records.At(e.Prefix()), e
}

// shown is a lease's id as it is told: from its namespace, whose id it ends with.
func shown(st *tables.Tables, id string) string {
	if in := st.In(token.SpaceOf(id)); in != nil {
		return strings.TrimPrefix(id, in.Path())
	}
	return id
}

// stored is the id from the root of a lease that is named in a namespace: one that is told of there, or below.
func stored(st *tables.Tables, id string) string {
	full := st.Path() + id
	if in := st.In(token.SpaceOf(id)); in != nil && strings.HasPrefix(in.Path(), st.Path()) &&
		!strings.HasPrefix(full, in.Path()) {
		return in.Path() + id
	}
	return full
}

// revokeLease ends a lease: first with its engine, then in storage, with what the engine wants
// stored. A lease that is gone is no error. Two at once ask the engine one after the other.
// due, where it is set, leaves a lease alone that is not due by then, or lives on.
func (o *Leases) revokeLease(ctx context.Context, st *tables.Tables, id string, force bool, due time.Time) error {
	defer o.meters.revokeCommon.Lasting()()
	defer o.names.Take("lease\x00" + id)()
	l, err := o.findLease(ctx, id)
	if err != nil || l == nil || (!due.IsZero() && (l.Due.After(due) || l.Expires.After(due))) {
		return err
	}
	var ops []storage.Op
	if leaser, v, _ := o.leaser(st, l); leaser != nil {
		resp, err := leaser.Revoke(ctx, v, engine.Lease{ID: l.ID, Internal: l.Internal, Expires: l.Expires})
		switch {
		case err != nil && !force:
			return err
		case err == nil && resp != nil:
			if ops, err = v.Ops(resp.Ops); err != nil {
				return err
			}
		}
	}
	err = o.records.Commit(ctx, append(ops, l.remove(st.Book)...))
	if err == nil {
		o.quotas.Gone(st, id)
	}
	return err
}

// putOff stores that a lease could not be revoked, and when it is tried again.
func (o *Leases) putOff(ctx context.Context, st *tables.Tables, id string, now time.Time, cause error) error {
	defer o.names.Take("lease\x00" + id)()
	l, err := o.findLease(ctx, id)
	if err != nil || l == nil {
		return err
	}
	wait := irrevocableAge
	if l.Tries < Tries {
		if l.Tries++; !l.irrevocable() {
			wait = revokeFirst << (l.Tries - 1)
			wait = wait/2 + rand.N(wait) // half of it to one and a half
		}
	}
	l.Error = shortError(cause)
	if l.irrevocable() {
		o.log.Error("secrets: cannot revoke a lease; keeping it and trying once a day", "lease", l.ID, "error", l.Error)
	}
	ops, err := l.store(st.Book, now.Add(wait))
	if err != nil {
		return err
	}
	return o.records.Commit(ctx, ops)
}

// shortError is an error as it is kept.
func shortError(err error) string {
	text := errkind.Text(err)
	return text[:min(len(text), leaseErrorSize)]
}

// DueOf gives the operations that make the leases of tokens that end due now, in their
// batch: the engines are asked by whoever deals with the mount's leases.
func (o *Leases) DueOf(ctx context.Context, st *tables.Tables, hashes []string) (ops []storage.Op, err error) {
	defer o.meters.revokeByToken.Lasting()()
	now := o.now().UTC()
	err = o.records.Hop(ctx, byTokenPrefix, hashes, func(_, key string) error {
		id, ok, err := o.records.Get(ctx, key)
		var l *lease
		if err == nil && ok {
			l, err = o.findLease(ctx, string(id))
		}
		if sealed.Damaged(err) { // its entry in the index of time stays, and names it
			o.records.Skip(key, err)
			return nil
		}
		if err != nil {
			return err
		}
		ops = append(ops, storage.Delete(key))
		if l == nil {
			return nil
		}
		l.Token, l.Renewable = "", false
		more, err := l.end(st.Book, now)
		ops = append(ops, more...)
		return err
	})
	return ops, err
}

// end gives the operations that make a lease due now.
func (l *lease) end(book *token.Book, now time.Time) ([]storage.Op, error) {
	if l.Expires.After(now) {
		l.Expires = now
	}
	return l.store(book, now)
}

// renewLease lengthens a lease by what was asked, within its limits from its beginning.
func (o *Leases) renewLease(ctx context.Context, t *task.Task, id string, increment time.Duration) (l *lease,
	capped bool, err error) {
	defer o.names.Take("lease\x00" + id)()
	defer o.tokens.HoldTree()() // its token does not end meanwhile
	l, err = o.findLease(ctx, id)
	switch {
	case err != nil:
		return nil, false, err
	case l == nil:
		return nil, false, errLeaseMissing
	case !t.Now.Before(l.Expires):
		return nil, false, errLeaseExpired
	case !l.Renewable || l.Tries > 0: // one that is being revoked does not come back
		return nil, false, errNotRenewable
	}
	leaser, v, e := o.leaser(t.Tables, l)
	if leaser == nil {
		return nil, false, errNotRenewable
	}
	if increment <= 0 {
		increment = l.TTL
	}
	end := t.Now.UTC().Add(increment)
	most := o.gate.Limits(e).Max
	if l.MaxTTL > 0 {
		most = min(most, l.MaxTTL)
	}
	if last := l.Issued.Add(most); end.After(last) {
		end, capped = last, true
	}
	// what it is for lives as long: the engine did so when that was stored
	if token.Covered(t.Now, l.Renewed, l.Expires, end) {
		o.meters.coalesced.Add(1)
		return l, capped, nil
	}
	resp, err := leaser.Renew(ctx, v, engine.Lease{ID: l.ID, Internal: l.Internal, Expires: end})
	if err != nil {
		return nil, false, err
	}
	var ops []storage.Op
	if resp != nil {
		if ops, err = v.Ops(resp.Ops); err != nil {
			return nil, false, err
		}
	}
	l.Expires, l.Renewed = end, t.Now.UTC()
	more, err := l.keep(t.Tables.Book)
	if err != nil {
		return nil, false, err
	}
	return l, capped, o.records.Commit(ctx, append(ops, more...))
}

// moveLease puts a lease's entry in the index to its end, where it was renewed and nobody did so since.
func (o *Leases) moveLease(ctx context.Context, st *tables.Tables, id string, now time.Time) error {
	defer o.names.Take("lease\x00" + id)()
	defer o.tokens.HoldTree()() // its token does not end meanwhile
	l, err := o.findLease(ctx, id)
	if err != nil || l == nil || l.Due.After(now) || !l.Expires.After(now) {
		return err
	}
	ops, err := l.store(st.Book, l.Expires)
	if err != nil {
		return err
	}
	return o.records.Commit(ctx, ops)
}

// Undo takes back what an engine made for a lease that did not come to be.
func (o *Leases) Undo(ctx context.Context, t *task.Task, asked *secrets.Lease) {
	leaser, ok := t.Engine.(engine.Leaser)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeWithin)
	defer cancel()
	if _, err := leaser.Revoke(ctx, t.View, engine.Lease{Internal: asked.Internal, Expires: t.Now}); err != nil {
		o.log.Error("secrets: what was made for a lease that could not be stored is left behind", "path", t.Path,
			"error", err)
	}
}
