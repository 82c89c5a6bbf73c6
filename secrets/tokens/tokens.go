package tokens

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/serial"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/identities"
	"corbel.dev/corbel/secrets/quotas"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/telemetry"
)

// Leases is what tokens ask of the owner of leases.
type Leases interface {
	// DueOf gives the operations that make the leases of tokens that end due now, in their batch.
	DueOf(ctx context.Context, st *tables.Tables, hashes []string) ([]storage.Op, error)
}

// Tokens makes, renews, uses and ends tokens.
type Tokens struct {
	gate    *tables.Gate
	records *sealed.Store
	rights  *rights.Rights
	quotas  *quotas.Quotas
	who     *identities.Identities
	flying  *flight.List
	Leases  Leases
	now     func() time.Time

	meters struct {
		Expiry
		coalesced *telemetry.Counter
	}

	// tree is held for reading while a token is made, for writing while one ends
	// with all below it: none comes to be under a parent that is going.
	tree sync.RWMutex
	// names is the order of uses and renewals of one token; it is taken before tree.
	names serial.Names

	reserves   reserves    // uses of tokens that are in memory
	unfinished atomic.Bool // tokens that ended may have children that have not
	sweep      sync.Mutex  // one expiry of tokens at a time
	missing    missing     // workloads
}

// NewTokens makes the owner of tokens.
func NewTokens(gate *tables.Gate, records *sealed.Store, who *rights.Rights, q *quotas.Quotas, i *identities.Identities,
	flying *flight.List, now func() time.Time, r *telemetry.Registry) *Tokens {
	o := &Tokens{gate: gate, records: records, rights: who, quotas: q, who: i, flying: flying, now: now}
	o.meters.Expiry, o.meters.coalesced = NewExpiry(r), r.Counter("expire.renew.coalesced")
	return o
}

// Engine answers auth/token/.
func (o *Tokens) Engine() engine.Engine { return &Engine{o: o} }

// Begin forgets what a former term had in memory, and looks for what it did not finish.
func (o *Tokens) Begin() {
	o.Forget()
	o.unfinished.Store(true)
}

// Forget drops the uses that are in memory.
func (o *Tokens) Forget() { o.reserves.forget() }

// Ahead is how many uses of a token were taken off its record and are in memory.
func (o *Tokens) Ahead(hash string) int { return o.reserves.of(hash) }

// HoldTree keeps tokens from ending until release is called: what is made meanwhile has a parent or a token that lives.
func (o *Tokens) HoldTree() (release func()) {
	o.tree.RLock()
	return o.tree.RUnlock
}

// LockTree keeps tokens and leases from being made, used and renewed until release is called.
func (o *Tokens) LockTree() (release func()) {
	o.tree.Lock()
	return o.tree.Unlock
}

// Expiry counts what has ended by its time: tokens, and leases.
type Expiry struct {
	expired, failed *telemetry.Counter
	late            *telemetry.Timing
}

// NewExpiry finds the metrics.
func NewExpiry(r *telemetry.Registry) Expiry {
	return Expiry{r.Counter("expire.lease_expiration"), r.Counter("expire.lease_expiration.error"),
		r.Timing("expire.lease_expiration.time_in_queue")}
}

// Expired counts one, and how long it waited for somebody to see that its time had come.
func (e *Expiry) Expired(waited time.Duration) {
	e.expired.Add(1)
	e.late.Observe(max(waited, 0))
}

// Failed counts what could not be taken away.
func (e *Expiry) Failed() { e.failed.Add(1) }
