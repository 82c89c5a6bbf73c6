package cluster

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// Acquire implements storage.Lock: whose turn it is, Raft's election says.
func (n *Node) Acquire(ctx context.Context) (storage.Leadership, error) {
	select {
	case <-n.opening.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g := n.group.Load()
	if g == nil {
		return nil, errNotOpen
	}
	for {
		changed := g.LeaderChanges()
		term := g.Term() // before it is known that this server leads: this leadership never counts for a later term
		if g.IsLeader() && n.store.Leads(ctx) == nil {
			// All that was committed before this leadership is applied here, and the epoch is in the same log: nobody else
			// can have taken the next one.
			r := &raftLeadership{n: n, term: term, epoch: n.store.Epoch() + 1, done: make(chan struct{})}
			n.leads.Store(true)
			go r.watch()
			return r, nil
		}
		wait := n.cfg.Clock.NewTimer(time.Second)
		select {
		case <-changed:
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, ctx.Err()
		}
		wait.Stop()
	}
}

// Holder implements storage.Lock.
func (n *Node) Holder(context.Context) (string, error) {
	g := n.group.Load()
	if g == nil {
		return "", nil
	}
	id, _ := g.Leader()
	return id, nil
}

var errTermOver = errkind.New(errkind.NotLeader, "this server's turn as the active one has ended; another one begins")

// raftLeadership lasts for one term of the group. A server that lost the lead and has it again, before anybody noticed,
// leads in a later term: others may have written in between, and what it keeps in memory of the term before is old.
type raftLeadership struct {
	n     *Node
	term  uint64
	epoch storage.Epoch
	done  chan struct{}
}

// watch ends with the term's leadership or the group.
func (r *raftLeadership) watch() {
	defer close(r.done)
	g := r.n.group.Load()
	for {
		changed := g.LeaderChanges()
		if !g.IsLeader() || g.Term() != r.term {
			return
		}
		select {
		case <-changed:
		case <-r.n.ended:
			return
		}
	}
}

// Epoch implements storage.Leadership.
func (r *raftLeadership) Epoch() storage.Epoch { return r.epoch }

// Held implements storage.Leadership.
func (r *raftLeadership) Held(ctx context.Context) error {
	if err := r.n.store.Leads(ctx); err != nil {
		return err
	}
	if g := r.n.group.Load(); g.Term() != r.term { // last: terms only grow, so this one still was when Leads looked
		return errTermOver
	}
	return nil
}

// Done implements storage.Leadership.
func (r *raftLeadership) Done() <-chan struct{} { return r.done }

// Release implements Leadership: leadership goes to another member.
func (r *raftLeadership) Release(ctx context.Context) {
	r.n.leads.Store(false)
	g := r.n.group.Load()
	if !g.IsLeader() {
		return
	}
	if list, _, err := g.Configuration(); err == nil && len(list) > 1 {
		if err := g.TransferLeadership(ctx, ""); err != nil {
			r.n.cfg.Log.Warn("secrets: leadership of the Raft group was not handed over", "error", err)
		}
	}
}
