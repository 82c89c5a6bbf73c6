package group

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// A leader that falls silent is replaced although all connections to it stay open, and when
// it is heard again it takes part without having led beside the new one.
func TestSilentLeader(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	propose(t, l, "before")
	began := time.Now()
	l.silent.Store(true)
	next := leader(t, others(nodes, l))
	if l.LeaseHeld() {
		t.Fatal("two members hold the lease")
	}
	insist(t, others(nodes, l), "meanwhile")
	t.Logf("silence to first acknowledged write: %s", time.Since(began))
	if next == l {
		t.Fatal("nobody else leads")
	}
	// What it was sent meanwhile is lost; connections that lead nowhere have to be noticed.
	polltest.Until(t, func() bool { return strings.Contains(next.log.String(), "dropping its connections") },
		"the dead connections to be given up")
	l.silent.Store(false)
	began = time.Now()
	polltest.Until(t, func() bool { return l.machine.has("meanwhile") }, "the member to catch up")
	t.Logf("heard again to caught up: %s", time.Since(began))
}

// A planned change of leader loses no proposal: each is done, or refused as not done.
func TestTransferUnderLoad(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var acked, unknown atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			for _, n := range nodes {
				_, err := n.Propose(context.WithoutCancel(ctx), fmt.Appendf(nil, "w%d", i))
				if err == nil {
					acked.Add(1)
					break
				}
				if errkind.Is(err, errkind.Unknown) {
					unknown.Add(1)
					break
				}
			}
		}
	}()
	for range 5 {
		before := acked.Load()
		if err := l.TransferLeadership(t.Context(), ""); err != nil {
			t.Errorf("transfer: %v", err)
			break
		}
		if l.IsLeader() || l.LeaseHeld() {
			t.Error("it leads after it handed over")
		}
		polltest.Until(t, func() bool { return acked.Load() > before+10 }, "writes to go on")
		l = leader(t, nodes)
	}
	cancel()
	<-done
	if unknown.Load() > 0 {
		t.Errorf("%d proposals have an unknown outcome", unknown.Load())
	}
	polltest.Until(t, func() bool {
		for _, n := range nodes {
			if int64(len(n.machine.list())) != acked.Load() {
				return false
			}
		}
		return true
	}, "each acknowledged proposal once in every machine")
}

// A member that is asked for a pre-vote keeps a leader that it hears.
func TestLivingLeaderIsKept(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	f := others(nodes, l)[0]
	in := f.current.Load()
	for range 5 { // as if this one alone had lost sight of the leader
		in.electSoon(in.g.cfg.lease() + time.Millisecond)
		in.life.wg.Go(in.lead.succession.leaderLost)
	}
	term := l.current.Load().raft.CurrentTerm()
	for i := range 50 {
		propose(t, l, fmt.Sprint(i))
	}
	if now := l.current.Load().raft.CurrentTerm(); now != term {
		t.Fatalf("term %d became %d", term, now)
	}
}

// TestNoVoteWithinALeaseOfTheStart: a leader whose lease stands on the answer of a member that was restarted since is
// not replaced with that member's vote while the lease lasts.
func TestNoVoteWithinALeaseOfTheStart(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, func(_ int, n *node) { n.adjust = func(c *Config) { c.unit = 2 * time.Second } })
	l := leader(t, nodes)
	voter, candidate := others(nodes, l)[0], others(nodes, l)[1]
	l.silent.Store(true) // the voter does not hear it again; the candidate believes in it for two seconds and more
	voter.kill()
	voter.stop()
	began := time.Now()
	voter.start()
	asks := candidate.current.Load()
	term := asks.raft.CurrentTerm()
	var took time.Duration
	polltest.Until(t, func() bool {
		term++
		var resp raft.RequestVoteResponse
		req := raft.RequestVoteRequest{RPCHeader: asks.header(), Term: term, LastLogIndex: asks.raft.LastIndex(),
			LastLogTerm: term - 1}
		err := asks.links.trans.NetworkTransport.RequestVote(raft.ServerID(voter.id), raft.ServerAddress(voter.addr), &req,
			&resp)
		took = time.Since(began)
		return err == nil && resp.Granted
	}, "a vote")
	if took < time.Second {
		t.Fatalf("a member votes %s after its start: the leader that its former process answered may hold its lease for a "+
			"second", took)
	}
}
