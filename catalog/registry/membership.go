package registry

import (
	"context"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
)

const (
	// unseenFailAfter is when a node counts as failed that the pool has not shown
	// since this process began: by then gossip has met all whom it can reach.
	unseenFailAfter = 2 * time.Minute
	// unseenGoneAfter is when such a node goes: as long as a pool keeps a failed member.
	unseenGoneAfter = 72 * time.Hour
	// reconcilePause is the least time between two comparisons: the first change
	// after a quiet time is acted on at once, those of a storm share passes.
	reconcilePause = 100 * time.Millisecond
	// reconcileRetry is when commands that the log did not take are tried again.
	reconcileRetry = 2 * time.Second
	// reconcileWorkers bounds how many deregistrations are in the log's queue at once.
	reconcileWorkers = 32
)

// reconciler brings the catalog in line with the gossip pool, through the registry's log.
type reconciler struct {
	reg     *Registry
	members *memberList
}

// follow keeps the member list on every server, so that a new leader knows
// whom the pool has reaped, until ctx ends.
func (r *reconciler) follow(ctx context.Context) {
	if r.reg.cfg.Members == nil {
		return
	}
	timer := r.reg.cfg.Clock.NewTimer(r.reg.cfg.ReconcileInterval)
	defer timer.Stop()
	for {
		changes := r.reg.cfg.Members.Changes()
		r.members.note(r.reg.cfg.Members.Members(), r.reg.State())
		if !pause(ctx, r.reg.cfg.Clock, reconcilePause) {
			return
		}
		timer.Reset(r.reg.cfg.ReconcileInterval)
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-timer.C:
		}
	}
}

// run brings the catalog in line with the pool: at once, at each
// change of the pool, and every ReconcileInterval.
func (r *reconciler) run(ctx context.Context) {
	timer := r.reg.cfg.Clock.NewTimer(r.reg.cfg.ReconcileInterval)
	defer timer.Stop()
	for {
		changes := r.reg.cfg.Members.Changes()
		again := r.reg.cfg.ReconcileInterval
		if !r.once(ctx) {
			again = min(again, reconcileRetry)
		}
		if !pause(ctx, r.reg.cfg.Clock, reconcilePause) {
			return
		}
		timer.Reset(again)
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-timer.C:
		}
	}
}

// once tells whether the log took all that was needed.
func (r *reconciler) once(ctx context.Context) bool {
	start, state, members := time.Now(), r.reg.State(), r.reg.cfg.Members.Members()
	r.members.note(members, state)
	commands := Reconcile(state, members, ReconcileOptions{
		Self: r.reg.cfg.NodeName, Datacenter: r.reg.cfg.Datacenter, Version: r.reg.cfg.Version, Missing: r.members.judge,
		Overdue: r.members.overdue,
	})
	ok := r.propose(ctx, commands)
	r.reg.meters.reconcile.Observe(time.Since(start))
	return ok
}

// propose proposes the departures side by side, then the registrations in order.
func (r *reconciler) propose(ctx context.Context, commands []catalog.Command) bool {
	first := 0
	for first < len(commands) && commands[first].Op() == catalog.OpDeregister {
		first++
	}
	var mu sync.Mutex // guards ok
	ok := true
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if ok && ctx.Err() == nil {
			r.reg.cfg.Logger.Warn("membership not reconciled; trying again", "err", err)
		}
		ok = false
	}
	each(commands[:first], func(c catalog.Command) {
		if err := r.reg.duty(ctx, c); err != nil {
			fail(err)
		}
	})
	for _, c := range commands[first:] {
		if err := r.register(ctx, c.(*catalog.RegisterBatch)); err != nil {
			fail(err)
			break // the rest would go the same way
		}
	}
	return ok
}

// register proposes registrations. One that the catalog refuses, as of a second
// host with the same node ID, keeps none of the others back: it is told, and
// tried again with the next comparison.
func (r *reconciler) register(ctx context.Context, batch *catalog.RegisterBatch) error {
	ctx, cancel := context.WithTimeout(ctx, r.reg.cfg.ProposeTimeout)
	defer cancel()
	result, err := r.reg.Apply(ctx, batch)
	if err != nil {
		return err
	}
	for i, e := range result.TxnErrors {
		if i == 3 {
			r.reg.cfg.Logger.Warn("more members were refused", "count", len(result.TxnErrors)-i)
			break
		}
		r.reg.cfg.Logger.Warn("the catalog rejected a member", "node", batch.Registrations[e.OpIndex].Node.Name,
			"reason", e.What)
	}
	return result.Err
}

// each calls f for every item, at most reconcileWorkers at a time, and waits for all.
func each[T any](items []T, f func(T)) {
	var group sync.WaitGroup
	places := make(chan struct{}, reconcileWorkers)
	for _, item := range items {
		places <- struct{}{}
		group.Go(func() {
			f(item)
			<-places
		})
	}
	group.Wait()
}

// memberList remembers which members this process has seen, to tell a member that
// the pool has reaped from one that it has not met since the process began.
//
// The pool keeps failed members for days and left ones for a day: a member that
// was there and is not any more was reaped, and its node goes at once. A node
// that never was a member here is another matter: after a restart, or behind a
// partition, gossip may know but a part of the fleet. Such a node counts as
// failed after a while, and goes only after the time for which the pool itself
// would keep a failed member. Safe for concurrent use.
type memberList struct {
	clock   clock.Clock
	mu      sync.Mutex           // guards all below
	seen    map[string]bool      // lower-case names
	missing map[string]time.Time // since when
	failed  map[string]time.Time // since when this process knows; also of those missing since
}

func newMemberList(c clock.Clock) *memberList {
	return &memberList{clock: c, seen: map[string]bool{}, missing: map[string]time.Time{}, failed: map[string]time.Time{}}
}

// note takes in the members, and forgets whom neither they nor the catalog know.
func (r *memberList) note(members []Member, state *statestore.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	present := make(map[string]bool, len(members))
	for i := range members {
		name := strings.ToLower(members[i].Name)
		present[name], r.seen[name] = true, true
		delete(r.missing, name)
		if members[i].Status != MemberFailed {
			delete(r.failed, name)
		} else if _, known := r.failed[name]; !known {
			r.failed[name] = r.clock.Now()
		}
	}
	for name := range r.seen {
		if !present[name] && state.Node(name) == nil {
			delete(r.seen, name)
		}
	}
	for name := range r.failed {
		if !present[name] && state.Node(name) == nil {
			delete(r.failed, name)
		}
	}
	for name := range r.missing {
		if state.Node(name) == nil {
			delete(r.missing, name)
		}
	}
}

// judge is for ReconcileOptions.Missing.
func (r *memberList) judge(node *catalog.Node) Absence {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, own := strings.ToLower(node.Name), reconnectTimeout(node)
	if r.seen[name] {
		if since, failed := r.failed[name]; failed && own > r.clock.Since(since) {
			return AbsenceFailed // the pool has forgotten it, the catalog is to wait longer
		}
		return AbsenceGone
	}
	since, known := r.missing[name]
	if !known {
		r.missing[name] = r.clock.Now()
		return AbsenceUnclear
	}
	if own == 0 {
		own = unseenGoneAfter
	}
	switch gone := r.clock.Since(since); {
	case gone >= max(own, unseenFailAfter):
		return AbsenceGone
	case gone >= unseenFailAfter:
		return AbsenceFailed
	}
	return AbsenceUnclear
}

// ReconnectMeta is the key of a node's metadata that says, in place of reconnect_timeout,
// for how long the node of a failed member stays in the catalog: a duration.
const ReconnectMeta = "corbel-reconnect-timeout"

// reconnectTimeout is the node's own, 0 for none.
func reconnectTimeout(n *catalog.Node) time.Duration {
	d, err := time.ParseDuration(n.Meta[ReconnectMeta])
	if err != nil || d <= 0 {
		return 0
	}
	return d
}

// overdue is for ReconcileOptions.Overdue.
func (r *memberList) overdue(node *catalog.Node) bool {
	own := reconnectTimeout(node)
	if own == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	since, failed := r.failed[strings.ToLower(node.Name)]
	return failed && r.clock.Since(since) >= own
}
