package group

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/clock"
)

// TestStanding: only who answers all the while and gets nothing, though there is something, stands still; not who
// lacks for a moment what was written after a long silence, and not who was away.
func TestStanding(t *testing.T) {
	c := clock.NewFake(time.Time{})
	p := &peers{clock: c, base: c.Now(), self: "a", lease: time.Second, seen: map[string]*peerSeen{},
		voters: func() []string { return []string{"a", "b", "c"} }}
	const alive, limit, step = time.Second, 10 * time.Second, 50 * time.Millisecond
	acks := func(id string, index uint64) {
		p.answered(id, p.now(), 1, &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: index},
			&raft.AppendEntriesResponse{Term: 1, Success: true})
	}
	beats := func(id string) {
		p.answered(id, p.now(), 1, &raft.AppendEntriesRequest{Term: 1}, &raft.AppendEntriesResponse{Term: 1, Success: true})
	}
	stood := map[string]int{}
	pass := func(d time.Duration, last uint64, who ...string) {
		for ; d > 0; d -= step {
			c.Advance(step)
			for _, id := range who {
				beats(id)
			}
			for id := range p.standing(last, alive, limit) {
				stood[id]++
			}
		}
	}
	acks("b", 9)
	acks("c", 9)
	pass(time.Minute, 9, "b", "c")
	pass(limit-2*step, 10, "b", "c")
	if len(stood) > 0 {
		t.Fatalf("%v, though the entry is on its way", stood)
	}
	acks("c", 10)
	pass(4*step, 10, "b", "c")
	if stood["b"] != 1 || stood["c"] != 0 {
		t.Fatalf("%v: b stood still, once", stood)
	}
	pass(limit/2, 10, "b", "c")
	pass(time.Minute, 10, "c") // b is away
	if stood["b"] != 1 {
		t.Fatalf("%v: b does not answer", stood)
	}
	pass(limit-2*step, 10, "b")
	if stood["b"] != 1 {
		t.Fatalf("%v: b was away", stood)
	}
	pass(4*step, 10, "b")
	if stood["b"] != 2 || stood["c"] != 0 {
		t.Fatalf("%v: b stood still again, and c had everything", stood)
	}
}
