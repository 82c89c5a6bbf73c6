package group

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/kit/errkind"
)

// TestRestoreWhoseLeaderIsLost: a leader that takes over an operator's snapshot is lost before, while or after the
// others get it. All members then agree on one state, that of before or that of the snapshot, with what was written
// since behind it: never on a mix, and none stands still. A start of all has the same.
func TestRestoreWhoseLeaderIsLost(t *testing.T) {
	for _, c := range []struct {
		name  string
		knows int                               // how many of the others the leader reaches
		slow  bool                              // its machine takes longer to restore than the others wait
		then  func(s *simulated, lost *simNode) // what happens to it, once the others go on
	}{
		{"cut off", 0, false, func(s *simulated, lost *simNode) { s.heal() }},
		{"power lost", 0, false, func(s *simulated, lost *simNode) {
			lost.crash(rand.New(rand.NewPCG(1, 1)))
			s.start(lost)
		}},
		{"power lost while it gives the snapshot up", 0, false, func(s *simulated, lost *simNode) {
			s.heal()
			s.until(time.Minute, func() bool {
				_, err := lost.disk.Stat("/data/" + raftdisk.RebuildName)
				return err == nil
			}, "the snapshot to be given up")
			lost.crash(rand.New(rand.NewPCG(2, 2)))
			s.start(lost)
		}},
		{"cut off when one has it", 1, false, func(s *simulated, lost *simNode) { s.heal() }},
		{"cut off when both have it", 2, false, func(s *simulated, lost *simNode) { s.heal() }},
		{"cut off while it restores", 0, true, func(s *simulated, lost *simNode) {
			s.heal()
			began := time.Now()
			s.until(time.Minute, func() bool { return time.Since(began) > 3*shutdownWait }, "time to pass")
			close(lost.machine.hold)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := simulate(t, 30, nil)
				s.start(s.nodes...)
				defer s.stop()
				defer func() {
					if t.Failed() {
						for _, n := range s.nodes {
							t.Logf("log of %s:\n%.20000s", n.id, n.log)
						}
					}
				}()
				s.until(time.Minute, func() bool { return s.leader() != nil && s.leader().LeaseHeld() }, "a leader")
				restoreAndLose(t, s, c.knows, c.slow, c.then)
			})
		})
	}
}

func restoreAndLose(t *testing.T, s *simulated, knows int, slow bool, then func(s *simulated, lost *simNode)) {
	t.Helper()
	same := func() bool {
		first := s.nodes[0].machine.list()
		for _, n := range s.nodes {
			if n.end == nil || !slices.Equal(n.machine.list(), first) {
				return false
			}
		}
		return len(first) > 0
	}
	s.writes("kept", 3)
	var saved bytes.Buffer
	l := s.leader()
	if err := l.Save(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	s.writes("undone", 3)
	s.until(time.Minute, same, "all to have all")
	was, past := slices.Clone(l.machine.list()), slices.Clone(l.machine.list()[:3])

	var rest []*simNode
	for _, n := range s.nodes {
		if n != l {
			rest = append(rest, n)
		}
	}
	for _, n := range rest[knows:] { // these do not hear of it
		s.net.Cut(l.id, n.id)
		s.net.Cut(n.id, l.id)
	}
	if slow {
		l.machine.hold = make(chan struct{})
	}
	done := make(chan error, 1)
	go func() { done <- l.Restore(t.Context(), &saved) }()
	s.until(time.Minute, func() bool {
		for _, n := range append(slices.Clone(rest[:knows]), l) {
			if len(n.machine.list()) != len(past) && !n.machine.held.Load() {
				return false
			}
		}
		return true
	}, "the snapshot to be taken over")
	s.cut(l)
	var next *simNode
	s.until(time.Minute, func() bool {
		for _, n := range rest {
			if n.LeaseHeld() {
				next = n
			}
		}
		return next != nil
	}, "another leader")
	if !s.write("since") {
		t.Fatal("a write at the next leader failed")
	}
	then(s, l)
	if err := <-done; err != nil && !errkind.Is(err, errkind.Unknown) {
		t.Errorf("the restore, of which nobody knows yet what becomes: %v", err)
	}
	s.until(time.Minute, same, "all to have the same")
	want := was
	if knows > 0 {
		want = past
	}
	if got := next.machine.list(); !slices.Equal(got, append(slices.Clone(want), "since")) {
		t.Errorf("the state is %q, want %q and what came since", got, want)
	}
	// It votes again, and a start has the same.
	s.until(time.Minute, func() bool { return s.leader() != nil && l.current.Load() != nil && !muted(l) }, "it to vote")
	agreed := slices.Clone(next.machine.list())
	s.stop()
	s.start(s.nodes...)
	s.until(time.Minute, func() bool { return same() && slices.Equal(s.nodes[0].machine.list(), agreed) },
		"the same after a start of all")
}

// muted reports whether a member does not vote.
func muted(n *simNode) bool {
	in := n.current.Load()
	return in == nil || in.links.mute != nil && in.links.mute.Active.Load()
}

// TestContradictionWaitsForTheRestore: while the library gives a snapshot to the machine, nobody takes either away.
// What contradicts is refused all the same, and nothing is taken once the snapshot was given up.
func TestContradictionWaitsForTheRestore(t *testing.T) {
	snaps := &raftdisk.Snapshots{}
	snaps.Newest.Store(&raftdisk.Position{Index: 7, Term: 5})
	snaps.Restoring.Store(true)
	disowned := 0
	b := &inbox{fresh: &fresh{term: func() uint64 { return 6 }}, disown: func() { disowned++ },
		guard: raftdisk.NewGuard(&raftdisk.Stores{Log: raft.NewInmemStore(), Snaps: snaps}, nil, nil)}
	takes := func(m any) bool {
		answers := make(chan raft.RPCResponse, 1)
		taken := !b.contradicted(raft.RPC{Command: m, RespChan: answers})
		if !taken && (<-answers).Error == nil {
			t.Errorf("%+v is refused without an error", m)
		}
		return taken
	}
	heartbeat := &raft.AppendEntriesRequest{Term: 6}
	other := &raft.AppendEntriesRequest{Term: 6, PrevLogEntry: 7, PrevLogTerm: 6}
	if takes(other) || !takes(heartbeat) || disowned != 0 {
		t.Errorf("during the restore: given up %d times", disowned)
	}
	snaps.Restoring.Store(false)
	if takes(other) || takes(heartbeat) || takes(other) || disowned != 1 {
		t.Errorf("after the restore: given up %d times", disowned)
	}
}
