package cluster

import (
	"context"
	"time"

	"corbel.dev/corbel/secrets/storage"
)

// Acquire implements storage.Lock: whose turn it is, Raft's election says.
func (n *Node) Acquire(ctx context.Context) (storage.Reign, error) {
	select {
	case <-n.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g := n.group.Load()
	if g == nil {
		return nil, errNotOpen
	}
	for {
		changed := g.LeaderChanges()
		if g.IsLeader() && n.store.Leads(ctx) == nil {
			// All that was committed before this reign is applied here, and the epoch is in the same log: nobody else
			// can have taken the next one.
			r := &raftReign{n: n, epoch: n.store.Epoch() + 1, done: make(chan struct{})}
			n.reigns.Store(true)
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

type raftReign struct {
	n     *Node
	epoch storage.Epoch
	done  chan struct{}
}

// watch ends with the leadership or the group.
func (r *raftReign) watch() {
	defer close(r.done)
	g := r.n.group.Load()
	for {
		changed := g.LeaderChanges()
		if !g.IsLeader() {
			return
		}
		select {
		case <-changed:
		case <-r.n.ended:
			return
		}
	}
}

// Epoch implements storage.Reign.
func (r *raftReign) Epoch() storage.Epoch { return r.epoch }

// Held implements storage.Reign.
func (r *raftReign) Held(ctx context.Context) error { return r.n.store.Leads(ctx) }

// Done implements storage.Reign.
func (r *raftReign) Done() <-chan struct{} { return r.done }

// Release implements Reign: leadership goes to another member.
func (r *raftReign) Release(ctx context.Context) {
	r.n.reigns.Store(false)
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
