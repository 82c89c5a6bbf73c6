package group

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// watchdog does what the library leaves undone when a disk or a peer hangs.
// Its decisions use only memory and the network: no disk can block it.
type watchdog struct {
	in *instance
	// transferring guards against a second attempt while one runs.
	transferring atomic.Bool
	tries        int   // to give leadership away in this stall
	tried        int64 // when the last one began, by peers.now
}

var errDiskHangs = errors.New("this server's disk does not answer")

// look is called twenty times per heartbeat timeout.
func (w *watchdog) look() {
	in := w.in
	term := in.raft.CurrentTerm()
	if in.lead.ready.Load() == term {
		in.links.peers.refresh(term)
	}
	w.disk()
	in.lead.succession.look()
	if in.raft.State() == raft.Leader {
		w.standstill()
		in.reach.look()
	}
}

// disk gives leadership away after two election timeouts of a write in flight and shuts the transport after five.
func (w *watchdog) disk() {
	in := w.in
	if in.stores.Disk == nil {
		return
	}
	election := in.g.cfg.heartbeat()
	hanging := in.stores.Disk.InFlight()
	leads := in.raft.State() == raft.Leader
	if hanging > 2*election {
		// Whoever waits for this disk is told that nobody knows; the library answers only when the write returns.
		in.g.batch.abandon(2*election, errDiskHangs)
	}
	switch {
	case hanging > 5*election:
		if !in.links.streams.shut.Load() {
			in.g.cfg.Log.Error("disk write hangs; the Raft transport is shut until it returns", "hanging_for", hanging,
				"leader", leads)
			if len(in.voters()) > 1 { // nobody else leads where this is the only voter
				in.links.peers.depose(in.raft.CurrentTerm())
			}
			in.links.streams.setGate(true)
			in.g.announce()
		}
	case hanging > 2*election:
		// The one that is told may lose its election, or hang itself: then another one is.
		if leads && in.links.peers.now()-w.tried > int64(election/2) && w.transferring.CompareAndSwap(false, true) {
			try := w.tries
			w.tries, w.tried = w.tries+1, in.links.peers.now()
			in.g.cfg.Log.Error("disk write hangs; handing leadership over", "hanging_for", hanging)
			in.life.wg.Go(func() {
				defer w.transferring.Store(false)
				w.transfer(try)
			})
		}
	case hanging < election:
		w.tries, w.tried = 0, 0
		if in.links.streams.shut.Load() {
			in.g.cfg.Log.Warn("disk answers again; the Raft transport is open")
			in.links.streams.setGate(false)
			in.g.announce()
		}
		if leads && in.raft.CurrentTerm() <= in.links.peers.deposed.Load() {
			w.newTerm()
		}
	}
}

// newTerm ends a term that this server gave up while its disk hung, and that nobody took over: the other members hear
// its heartbeats again, and it takes nothing.
func (w *watchdog) newTerm() {
	in := w.in
	if !w.transferring.CompareAndSwap(false, true) {
		return
	}
	in.life.wg.Go(func() {
		defer w.transferring.Store(false)
		if err := in.hand(in.raft.LeadershipTransfer).Error(); err != nil {
			in.g.cfg.Log.Warn("cannot begin a new term after the disk hung", "err", err)
			in.pause(in.g.cfg.heartbeat())
		}
	})
}

// transfer tells a voter to stand for election: first the one with the longest log of those
// that answer, at the next try the next one. The library's own transfer goes through
// its main goroutine, which hangs in the write.
func (w *watchdog) transfer(try int) {
	in := w.in
	term, now := in.raft.CurrentTerm(), in.links.peers.now()
	type candidate struct {
		raft.Server
		match uint64
	}
	var list []candidate
	for _, s := range in.raft.GetConfiguration().Configuration().Servers {
		seen, ok := in.links.peers.of(string(s.ID))
		if ok && s.Suffrage == raft.Voter && string(s.ID) != in.g.cfg.LocalID && seen.term == term &&
			now-seen.contact < int64(in.g.cfg.heartbeat()) {
			list = append(list, candidate{s, seen.match})
		}
	}
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.match, a.match) })
	to := list[try%len(list)]
	in.links.peers.forgo(term) // the election ignores it
	var resp raft.TimeoutNowResponse
	if err := in.links.trans.TimeoutNow(to.ID, to.Address, &raft.TimeoutNowRequest{RPCHeader: in.header()},
		&resp); err != nil {
		in.g.cfg.Log.Warn("cannot hand leadership over", "to", to.ID, "err", err)
	}
}

// standstill drops the connections of a peer that answers heartbeats while its log does not grow.
func (w *watchdog) standstill() {
	in := w.in
	last := in.raft.LastIndex()
	for id, s := range in.links.peers.standing(last, in.g.cfg.heartbeat(), 10*in.g.cfg.heartbeat()) {
		for _, server := range in.raft.GetConfiguration().Configuration().Servers {
			if string(server.ID) != id {
				continue
			}
			n := in.links.streams.drop(func(c *trackedConn) bool { return c.target == string(server.Address) })
			in.g.metrics.reconnects.Add(1)
			in.g.cfg.Log.Warn("a peer answers heartbeats but its log does not advance; dropping its connections",
				"peer", id, "match_index", s.match, "last_index", last, "connections", n)
		}
	}
}

// electSoon lowers the timeouts to d, which makes the library look at its timer
// at once; restoreTimeouts lifts them when there is a leader.
func (in *instance) electSoon(d time.Duration) {
	rc := in.raft.ReloadableConfig()
	if d >= rc.HeartbeatTimeout {
		d = max(rc.HeartbeatTimeout-time.Microsecond, in.g.cfg.lease())
	}
	rc.HeartbeatTimeout, rc.ElectionTimeout = d, max(d, in.g.cfg.lease())
	if err := in.raft.ReloadConfig(rc); err != nil {
		in.g.cfg.Log.Warn("cannot shorten the election timeout", "err", err)
	}
}

func (in *instance) restoreTimeouts() {
	if _, id := in.raft.LeaderWithID(); id == "" {
		return
	}
	rc := in.raft.ReloadableConfig()
	if full := in.g.cfg.heartbeat(); rc.HeartbeatTimeout != full {
		rc.HeartbeatTimeout, rc.ElectionTimeout = full, full
		if err := in.raft.ReloadConfig(rc); err != nil {
			in.g.cfg.Log.Warn("cannot restore the election timeout", "err", err)
		}
	}
}
