package group

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
)

// TransferLeadership hands leadership to the named member, or to the one with the
// newest log when id is "". Meanwhile this server takes nothing new: what is proposed
// gets NotLeader, so that whoever asked can wait for the next leader and go there. What it
// took before is finished first, within a lease time.
func (g *Group) TransferLeadership(ctx context.Context, id string) error {
	return g.change(ctx, "transfer leadership", func(r *raft.Raft, _ time.Duration) raft.Future {
		if id == "" {
			return g.current.Load().hand(r.LeadershipTransfer)
		}
		for _, s := range r.GetConfiguration().Configuration().Servers {
			if string(s.ID) == id {
				return g.current.Load().hand(func() raft.Future { return r.LeadershipTransferToServer(s.ID, s.Address) })
			}
		}
		return failedFuture{errkind.Errorf(errkind.NotFound, "no member has the id %q", id)}
	})
}

type failedFuture struct{ err error }

func (f failedFuture) Error() error { return f.err }

// hand runs a transfer once what this leader has begun is finished.
func (in *instance) hand(transfer func() raft.Future) raft.Future {
	if in == nil || !in.lead.handing.CompareAndSwap(false, true) {
		return failedFuture{raft.ErrLeadershipTransferInProgress}
	}
	in.g.announce()
	return handing{in, transfer}
}

// handing is a transfer on its way. Its Error is called once, and returns soon after the election timeout.
type handing struct {
	in       *instance
	transfer func() raft.Future
}

// Error implements raft.Future. The election that it begins ignores that members still hear this leader, and with that
// the ground on which the lease stands: so the lease ends first, and for the rest of the term, whatever comes of the
// transfer.
func (h handing) Error() error {
	defer h.in.g.announce()
	defer h.in.lead.handing.Store(false)
	h.in.finish()
	h.in.links.peers.forgo(h.in.raft.CurrentTerm())
	f := h.transfer()
	h.in.bound(f)
	return f.Error()
}

// finishEvery is how often it is looked whether all is finished.
const finishEvery = time.Millisecond

// finish waits until what is on its way is committed and answered, for a lease time at most: what the next leader would
// find of it in its log is then decided, and whoever waits need not wait for the next leader.
func (in *instance) finish() {
	for end := time.Now().Add(in.g.cfg.lease()); in.g.batch.open() > 0 && time.Now().Before(end); {
		if !in.pause(finishEvery) {
			return
		}
	}
}

// handOver gives leadership to another member before a planned stop, within an election timeout.
func (in *instance) handOver() {
	if in.raft.State() != raft.Leader || len(in.voters()) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*in.g.cfg.heartbeat())
	defer cancel()
	if err := in.await(ctx, in.hand(in.raft.LeadershipTransfer)); err != nil {
		in.g.cfg.Log.Warn("cannot hand leadership over before the stop", "err", err)
	}
}
