package group

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/backoff"
)

// reach brings a member that was unreachable back within about a second. The library waits
// longer after each failure to replicate, in the end ten seconds, and learns of a
// connection that leads nowhere only by its deadline, also ten seconds. Here:
//   - a failed replication is tried again inside the transport, so that the library counts no failure;
//   - a snapshot is not sent to a member that does not answer heartbeats;
//   - the connections to a member that left its heartbeats unanswered are given up.
//
// Heartbeats have a back-off of their own that never gets long. They tell who is there.
type reach struct {
	in *instance
	// dropped is when connections of a peer were last given up, by peers.now. The watchdog's alone.
	dropped map[string]int64
}

// dialTimeout bounds making a connection. A lost first packet is sent again after 1 s; after
// 3 s it would be again, but a new attempt at 2 s is sooner.
func (c *Config) dialTimeout() time.Duration { return min(2*c.heartbeat(), 5*time.Second) }

// replicates reports whether the message carries the log's state, as all but heartbeats do.
func replicates(m *raft.AppendEntriesRequest) bool {
	return m.PrevLogEntry != 0 || m.LeaderCommitIndex != 0 || len(m.Entries) > 0
}

// wanted reports whether this server still leads in term and has the member at the address. One that moved is not
// wanted where it was: the library knows its new address, and takes it for the next attempt.
func (r *reach) wanted(term uint64, id raft.ServerID, addr raft.ServerAddress) bool {
	lib := r.in.live.Load()
	if lib == nil || r.in.links.streams.shut.Load() || r.in.links.streams.ended() || lib.State() != raft.Leader ||
		lib.CurrentTerm() != term {
		return false
	}
	return slices.ContainsFunc(lib.GetConfiguration().Configuration().Servers,
		func(s raft.Server) bool { return s.ID == id && s.Address == addr })
}

// persist calls send until it succeeds or nobody wants it any more.
func (r *reach) persist(term uint64, id raft.ServerID, addr raft.ServerAddress, send func() error) error {
	wait := backoff.Backoff{Min: 10 * time.Millisecond, Max: r.in.g.cfg.lease() / 4}
	for {
		err := send()
		if err == nil || !r.wanted(term, id, addr) || !r.in.pause(wait.Next()) {
			return err
		}
	}
}

// await waits until the member answers heartbeats of term.
func (r *reach) await(term uint64, id raft.ServerID, addr raft.ServerAddress) {
	for r.wanted(term, id, addr) && !r.answers(term, id) && r.in.pause(r.in.g.cfg.heartbeat()/20) {
	}
}

func (r *reach) answers(term uint64, id raft.ServerID) bool {
	s, ok := r.in.links.peers.of(string(id))
	return ok && s.term == term && r.in.links.peers.now()-s.contact < int64(r.in.g.cfg.heartbeat())
}

// look gives up connections that lead nowhere: to members that answered in this term, and do not now.
func (r *reach) look() {
	limit := int64(2 * r.in.g.cfg.heartbeat())
	now := r.in.links.peers.now()
	for _, server := range r.in.raft.GetConfiguration().Configuration().Servers {
		id := string(server.ID)
		s, ok := r.in.links.peers.of(id)
		if id == r.in.g.cfg.LocalID || ok && now-s.contact < limit || now-r.dropped[id] < limit {
			continue
		}
		r.dropped[id] = now
		n := r.in.links.streams.drop(func(c *trackedConn) bool {
			return c.target == string(server.Address) && now-c.since > limit
		})
		if n > 0 {
			r.in.g.metrics.reconnects.Add(1)
			r.in.g.cfg.Log.Warn("a peer does not answer; dropping its connections", "peer", id, "connections", n)
		}
	}
}
