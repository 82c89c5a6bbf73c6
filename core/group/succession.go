package group

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/neterr"
)

// succession shortens what lies between a leader's death and the next one. The library waits
// for a random time of one to three heartbeat timeouts, and a follower that still
// believes in the dead leader refuses the first candidate's pre-vote, which then waits
// out a whole election timeout. Here:
//   - who sees the leader's address refuse connections stands after the lease time;
//   - who has not heard the leader for silence stands, not at some later look at a timer;
//   - who is asked for a pre-vote while the same holds here gives the leader up at
//     once, and lets the one that asked go first;
//   - members stand one after the other, in the order of their ids.
//
// Nobody gives a leader up before the lease time has passed since it was last
// heard: the library checks that itself, on its own goroutine. Pre-vote stays on.
type succession struct {
	in *instance
	// losing is set while it is found out whether the leader's address refuses connections.
	losing atomic.Bool
	// gone is the address of the leader that refused them, and the term in which it led.
	gone atomic.Pointer[leadership]
	// yielding is until when this member asks nobody for a pre-vote: nanoseconds of peers.now.
	yielding atomic.Int64
	// held counts the requests for votes and pre-votes that wait for this member's own judgement, or for a lease time
	// since its start.
	held atomic.Int32
}

type leadership struct {
	addr raft.ServerAddress
	term uint64
}

// maxHeld bounds the requests that wait; there are rarely more candidates than one.
const maxHeld = 8

// silence is after which time without a word a follower stands. It is longer than the
// least heartbeat timeout, so that a leader which was slow once is not replaced.
func (c *Config) silence() time.Duration { return c.heartbeat() * 5 / 4 }

// turn is how long this member lets those before it go first.
func (s *succession) turn() time.Duration {
	voters := s.in.voters()
	_, leader := s.in.raft.LeaderWithID()
	voters = slices.DeleteFunc(voters, func(id string) bool { return id == string(leader) })
	slices.Sort(voters)
	rank := max(slices.Index(voters, s.in.g.cfg.LocalID), 0)
	return time.Duration(rank) * s.in.g.cfg.lease() / 6
}

// look is the watchdog's: it stands when the leader is silent.
func (s *succession) look() {
	r := s.in.raft
	if r.State() != raft.Follower {
		return
	}
	if addr, _ := r.LeaderWithID(); addr != "" && time.Since(r.LastContact()) > s.in.g.cfg.silence()+s.turn() {
		s.in.g.cfg.Log.Info("the leader is silent; standing for election", "leader", addr)
		s.in.electSoon(s.in.g.cfg.lease() + time.Millisecond)
	}
}

// leaderLost is called when a connection from outside broke. When the leader's
// address refuses a new one, its process is gone, and waiting out the rest of
// the heartbeat timeout helps nobody.
func (s *succession) leaderLost() {
	in := s.in
	addr, id := in.raft.LeaderWithID()
	if addr == "" || string(id) == in.g.cfg.LocalID || !s.losing.CompareAndSwap(false, true) {
		return
	}
	term := in.raft.CurrentTerm()
	noticed := time.Now()
	refused := s.refused(string(addr))
	if refused {
		s.gone.Store(&leadership{addr, term})
	}
	s.losing.Store(false)
	if !refused || !in.pause(time.Until(noticed.Add(in.g.cfg.lease()+s.turn()))) {
		return
	}
	if now, _ := in.raft.LeaderWithID(); now == addr && in.raft.State() == raft.Follower {
		in.g.cfg.Log.Info("the leader's address refuses connections; standing for election", "leader", addr)
		in.electSoon(in.g.cfg.lease() + time.Millisecond)
	}
}

// refused reports whether the address refuses connections. A dying process's
// listener may outlive its connections by a moment, so it asks a few times.
func (s *succession) refused(addr string) bool {
	in := s.in
	for range 4 {
		ctx, cancel := context.WithTimeout(context.Background(), in.g.cfg.lease()/2)
		conn, err := in.g.cfg.Dial(ctx, addr)
		cancel()
		if err != nil {
			return neterr.Refused(err)
		}
		_ = conn.Close() // it was opened only to see whether it can be
		if !in.pause(in.g.cfg.lease() / 10) {
			return false
		}
	}
	return false
}

// pause waits; false when the instance ends first.
func (in *instance) pause(d time.Duration) bool {
	timer := in.g.cfg.Clock.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-in.life.stop:
		return false
	}
}

var errEarly = errkind.New(errkind.Unavailable, "this server has just started, and votes in a moment")

// early holds requests for votes back until a lease time after the start, and reports whether this is one. The
// process before may have answered a leader just before it ended, and that leader's lease stands on nobody voting for
// another one; who it was, this process does not know. A leader that gives its place away has given its lease up
// first.
func (s *succession) early(rpc raft.RPC, pass func()) bool {
	switch req := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		if req.LeadershipTransfer {
			return false
		}
	case *raft.RequestPreVoteRequest:
	default:
		return false
	}
	left := s.in.g.cfg.lease() - time.Duration(s.in.links.peers.now())
	if left <= 0 {
		return false
	}
	if s.held.Add(1) > maxHeld {
		s.held.Add(-1)
		rpc.Respond(nil, errEarly)
		return true
	}
	s.in.life.wg.Go(func() {
		defer s.held.Add(-1)
		if s.in.pause(left) {
			pass()
		}
	})
	return true
}

// asked says whether a request for a pre-vote has to wait until this member has made
// up its mind about the leader; pass is then called once it has.
func (s *succession) asked(req *raft.RequestPreVoteRequest, pass func()) bool {
	r := s.in.live.Load()
	if r == nil || r.State() != raft.Follower || !slices.Contains(s.in.voters(), string(req.ID)) {
		return false
	}
	addr, _ := r.LeaderWithID()
	if addr == "" || string(addr) == string(req.Addr) || !s.doubtful(addr) {
		return false
	}
	if s.held.Add(1) > maxHeld {
		s.held.Add(-1)
		return false
	}
	s.in.life.wg.Go(func() {
		defer s.held.Add(-1)
		s.giveUp(addr, req)
		pass()
	})
	return true
}

// doubtful reports whether there is reason to give the leader up, now or within a moment.
func (s *succession) doubtful(addr raft.ServerAddress) bool {
	return s.losing.Load() || s.isGone(addr) || s.silent()
}

func (s *succession) isGone(addr raft.ServerAddress) bool {
	g := s.gone.Load()
	return g != nil && g.addr == addr && g.term == s.in.raft.CurrentTerm()
}

func (s *succession) silent() bool {
	return time.Since(s.in.raft.LastContact()) >= s.in.g.cfg.heartbeat()
}

// giveUp lets go of the leader at addr in favour of a candidate, if the lease time has
// passed or passes within a moment. It returns when that is done, or is not to be done.
func (s *succession) giveUp(addr raft.ServerAddress, req *raft.RequestPreVoteRequest) {
	in := s.in
	step := max(in.g.cfg.lease()/100, time.Millisecond)
	for s.losing.Load() {
		if !in.pause(step) {
			return
		}
	}
	if !s.isGone(addr) && !s.silent() {
		return
	}
	lease := in.g.cfg.lease() + time.Millisecond
	if !in.pause(lease - time.Since(in.raft.LastContact())) {
		return
	}
	if now, _ := in.raft.LeaderWithID(); now != addr || in.raft.State() != raft.Follower {
		return
	}
	if in.behind(req.LastLogTerm, req.LastLogIndex) { // else this member is the one to be elected
		s.yielding.Store(in.links.peers.now() + int64(in.g.cfg.lease()))
	}
	in.electSoon(lease)
	for range 50 {
		if now, _ := in.raft.LeaderWithID(); now != addr {
			return
		}
		if !in.pause(step) {
			return
		}
	}
}

// yields reports whether this member lets another candidate go first.
func (s *succession) yields() bool { return s.in.links.peers.now() < s.yielding.Load() }

// behind reports whether this member's log has nothing that one ending at term and index lacks.
func (in *instance) behind(term, index uint64) bool {
	stats := in.raft.Stats()
	lastTerm, err := strconv.ParseUint(stats["last_log_term"], 10, 64)
	lastIndex, err2 := strconv.ParseUint(stats["last_log_index"], 10, 64)
	if err != nil || err2 != nil {
		return false
	}
	return lastTerm < term || lastTerm == term && lastIndex <= index
}
