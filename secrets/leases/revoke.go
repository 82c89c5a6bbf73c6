package leases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
)

// pausedPrefix is where it is written down that nothing of a mount is revoked.
const pausedPrefix = "sys/lease/paused/"

// revokersMost bounds the revocations under way of all targets together; one alone gets nine in ten of them at most, so
// that another one always finds some.
const revokersMost = 200

// targets are what leases are revoked at: mounts, by their accessors. Each has a queue of its own (the index of
// what is due, in the order of time) and a pace of its own.
type targets struct {
	mu     sync.Mutex
	byName map[string]*target
	active int
}

// target is one. Its fields are guarded by targets.mu.
type target struct {
	pace    pace
	paused  bool
	running bool
	under   int // way
	wake    chan struct{}

	revoked, failed uint64
	since           time.Time // of the rate
	rate            float64   // a second, of late
	count           int       // since then
	lastError       string
	due             int // when it was counted last
	dueCounted      time.Time
}

const dueAtOnce = 256 // entries of the index that are taken at a time

// dueEvery is how often what is due at a busy target is counted, for operators and the doctor.
const dueEvery = 5 * time.Second

// due is what waits to be revoked at all targets, as it was counted last.
func (ts *targets) due() (n int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.byName {
		n += t.due
	}
	return n
}

// Due is what waits to be revoked at all targets, as it was counted last.
func (o *Leases) Due() int { return o.targets.due() }

// DueAt is Due of one target.
func (o *Leases) DueAt(name string) int {
	o.targets.mu.Lock()
	defer o.targets.mu.Unlock()
	return o.targets.withLocked(name).due
}

// countDue counts what is due at a target now and then; seen is what a look at the head of its queue gave.
func (o *Leases) countDue(ctx context.Context, name string, t *target, seen int) {
	now := o.now()
	o.targets.mu.Lock()
	late := seen >= dueAtOnce && now.Sub(t.dueCounted) >= dueEvery
	if seen < dueAtOnce {
		t.due = seen
	}
	if late {
		t.dueCounted = now
	}
	o.targets.mu.Unlock()
	if !late {
		return
	}
	n, err := o.backlog(ctx, name, now)
	if err != nil {
		return // the next look says what is wrong with the storage
	}
	o.targets.mu.Lock()
	t.due = n
	o.targets.mu.Unlock()
}

// withLocked gives the target of a name. targets.mu is held.
func (ts *targets) withLocked(name string) *target {
	t := ts.byName[name]
	if t == nil {
		if ts.byName == nil {
			ts.byName = map[string]*target{}
		}
		t = &target{wake: make(chan struct{}, 1)}
		ts.byName[name] = t
	}
	return t
}

// begin takes a place for one revocation, false where there is none now.
func (ts *targets) begin(t *target, now time.Time) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	share := max(revokersMost*9/10/max(ts.active, 1), 1)
	if t.paused || t.under >= min(t.pace.most(now), share) {
		return false
	}
	t.pace.begin()
	t.under++
	return true
}

// idle reports whether the target is to be left alone: paused, or its circuit is open.
func (ts *targets) idle(t *target, now time.Time) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return t.paused || t.pace.most(now) == 0 && t.under == 0
}

func (ts *targets) end(t *target, now time.Time, took time.Duration, err error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.under--
	t.pace.end(now, took, err != nil)
	if err != nil {
		t.failed++
		t.lastError = shortError(err)
	} else {
		t.revoked++
		t.count++
	}
	if passed := now.Sub(t.since); t.since.IsZero() || passed > 5*time.Second {
		if !t.since.IsZero() && passed < time.Minute {
			t.rate = float64(t.count) / passed.Seconds()
		}
		t.since, t.count = now, 0
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Start begins to deal with the prefixes that wait, and with each target that has leases and is not dealt with
// yet; what it starts ends with ctx. It tells their names.
func (o *Leases) Start(ctx context.Context, group *sync.WaitGroup) []string {
	if o.jobsRun.CompareAndSwap(false, true) {
		group.Go(func() {
			defer o.jobsRun.Store(false)
			if _, err := o.RunJobs(ctx); err != nil && ctx.Err() == nil && o.gate.Load() != nil {
				o.log.Warn("secrets: cannot revoke a prefix; trying again", "error", err)
			}
		})
	}
	names, err := o.targetNames(ctx)
	if err != nil {
		return nil // the storage is ill; the tokens' sweep says so
	}
	for _, name := range names {
		o.targets.mu.Lock()
		t := o.targets.withLocked(name)
		start := !t.running
		if start {
			t.running = true
			o.targets.active++
		}
		o.targets.mu.Unlock()
		if start {
			group.Go(func() {
				defer func() {
					o.targets.mu.Lock()
					t.running = false
					o.targets.active--
					o.targets.mu.Unlock()
				}()
				if _, err := o.revokeDue(ctx, name, t); err != nil && ctx.Err() == nil && o.gate.Load() != nil {
					o.log.Warn("secrets: cannot revoke due leases; trying again", "mount", name, "error", err)
				}
			})
		}
	}
	return names
}

// targetNames are the mounts that have leases, due or not.
func (o *Leases) targetNames(ctx context.Context) ([]string, error) {
	if o.gate.Load() == nil {
		return nil, nil
	}
	names, err := o.records.Under.List(ctx, leaseDuePrefix, "", 0)
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], "/")
	}
	return names, err
}

// ExpireLeases revokes what is due at all targets and waits for it. It says with how many leases it dealt.
func (o *Leases) ExpireLeases(ctx context.Context) (done int, err error) {
	names, err := o.targetNames(ctx)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, name := range names {
		o.targets.mu.Lock()
		t := o.targets.withLocked(name)
		o.targets.mu.Unlock()
		group.Go(func() {
			n, oneErr := o.revokeDue(ctx, name, t)
			mu.Lock()
			defer mu.Unlock()
			done, err = done+n, errors.Join(err, oneErr)
		})
	}
	group.Wait()
	return done, err
}

// revokeDue revokes what is due of one target, as many at a time as its pace allows, until nothing is, or it is to be
// left alone.
func (o *Leases) revokeDue(ctx context.Context, name string, t *target) (done int, err error) {
	prefix := leaseDuePrefix + name + "/"
	now := o.now()
	end := fmt.Sprintf("%s%020d", prefix, max(now.UnixNano(), 0)+1)
	var workers sync.WaitGroup
	defer workers.Wait()
	b := o.flying.Bulk()
	for from := prefix; ; workers.Wait() {
		st := o.gate.Load()
		if st == nil || o.targets.idle(t, o.now()) {
			return done, nil
		}
		records, damaged, err := o.records.Barrier.Scan(ctx, from, end, dueAtOnce)
		o.countDue(ctx, name, t, len(records))
		if err != nil || len(records)+len(damaged) == 0 {
			return done, err
		}
		for _, d := range damaged {
			o.records.Skip(d.Key, d.Err)
			from = max(from, d.Key+"\x00")
		}
		for _, r := range records {
			if !o.place(ctx, t) {
				return done, ctx.Err()
			}
			from = max(from, r.Key+"\x00")
			if done++; done%flight.AskBeside == 0 {
				b.Waits()
				b.Rest(ctx)
			}
			workers.Go(func() {
				begun := time.Now()
				err := o.expireLease(ctx, st, r, now)
				o.targets.end(t, o.now(), time.Since(begun), err)
				o.meters.counted(err)
			})
		}
	}
}

// place waits for a place for one revocation; false when there will be none for now.
func (o *Leases) place(ctx context.Context, t *target) bool {
	for {
		now := o.now()
		if o.targets.begin(t, now) {
			return true
		}
		if o.targets.idle(t, now) {
			return false
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// expireLease deals with one entry of the index. Its error is the engine's, or that of the storage.
func (o *Leases) expireLease(ctx context.Context, st *tables.Tables, entry storage.Record, now time.Time) error {
	id := string(entry.Value)
	l, err := o.findLease(ctx, id)
	if err == nil && (l == nil || l.Due.After(now)) { // it went, or was renewed, and the entry did not go with it
		return o.records.Commit(ctx, []storage.Op{storage.Delete(entry.Key)})
	}
	if err == nil && l.Expires.After(now) {
		return o.moveLease(ctx, st, id, now)
	}
	if sealed.Damaged(err) { // no fault of the target's
		o.records.Skip(entry.Key, err)
		return nil
	}
	if err != nil {
		return err
	}
	o.meters.expiry.Expired(o.now().Sub(l.Due))
	within, cancel := context.WithTimeout(ctx, revokeWithin)
	defer cancel()
	err = o.revokeLease(within, st, id, false, now)
	if err != nil && ctx.Err() == nil {
		o.meters.expiry.Failed()
		if later := o.putOff(ctx, st, id, now, err); later != nil {
			o.records.Skip(entry.Key, later)
		}
	}
	return err
}

// revokeWithin bounds one try with an engine.
const revokeWithin = 90 * time.Second
