package jobsplane

import (
	"context"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/jobtell"
	"corbel.dev/corbel/jobs/noderpc"
)

// allocs sends a node its allocations as they change.
func (n *nodes) allocs(ctx context.Context, req []byte, send func([]byte) error) error {
	m, err := noderpc.Read[noderpc.Watch](req)
	if err != nil {
		return err
	}
	if _, err := n.known(m.Key); err != nil {
		return err
	}
	to := jobtell.Listen(n.texts, m)
	subject := jobstore.Subject{Table: jobstore.Allocations, ID: m.Node}
	follow := n.group.store.Follow(m.Node)
	defer follow.Stop()
	restored := uint64(0)
	for first := true; ; first = false {
		watch := n.group.store.Watch(subject)
		changed, upto, all := follow.Changed()
		v, err := n.known(m.Key)
		if err != nil {
			watch.Stop()
			return err
		}
		full := first || v.Restored() != restored
		restored = v.Restored()
		var f *noderpc.Allocs
		if full || all {
			f = to.Frame(v, full)
		} else {
			f = to.Next(v, changed, upto)
		}
		if f != nil {
			if err := send(noderpc.Bytes(f)); err != nil {
				watch.Stop()
				return err
			}
		}
		select {
		case <-ctx.Done():
			watch.Stop()
			return ctx.Err()
		case <-watch.Woken():
		}
		watch.Stop()
		timer := n.clock.NewTimer(settle)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

var _ rpc.StreamHandler = (*nodes)(nil).allocs
