package group

import (
	"context"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/outcomes"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// TestPlaceOf: the library keeps the term of a future's entry where it is looked for.
func TestPlaceOf(t *testing.T) {
	t.Parallel()
	n := leader(t, cluster(t, 1, nil))
	in := n.current.Load()
	f := in.raft.Apply(entryOf("a"), 0)
	if err := f.Error(); err != nil {
		t.Fatal(err)
	}
	at, ok := outcomes.PlaceOf(f)
	if want := (outcomes.Place{Index: f.Index(), Term: in.raft.CurrentTerm()}); !ok || at != want {
		t.Errorf("got %v, %v, want %v", at, ok, want)
	}
	if _, ok := outcomes.PlaceOf(nowhere{f}); ok {
		t.Error("a future of another kind has a place")
	}
}

type nowhere struct{ raft.ApplyFuture }

// TestOutcomeIsLearnt: a leader loses its place with an entry on its way. If the next leader commits the entry, its
// proposer gets its result; if the next leader overwrites it, he is told that it was not done.
func TestOutcomeIsLearnt(t *testing.T) {
	for _, c := range []struct {
		name string
		kept bool // the others have the entry, unless the leader went before it was sent
	}{{"which the others have", true}, {"which nobody else has", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nodes := cluster(t, 3, func(_ int, n *node) {
				n.adjust = func(cfg *Config) { cfg.learn = polltest.Deadline } // elections take long on a busy machine
			})
			insist(t, nodes, "before")
			const cmd = "the entry"
			err := losePlace(t, nodes, cmd, c.kept)
			insist(t, nodes, "after")
			polltest.Until(t, func() bool {
				list := nodes[0].machine.list()
				return slices.Equal(list, nodes[1].machine.list()) && slices.Equal(list, nodes[2].machine.list())
			}, "the same commands everywhere")
			times := 0
			for _, have := range nodes[0].machine.list() {
				if have == cmd {
					times++
				}
			}
			t.Logf("%v, done %d times", err, times)
			switch {
			case err == nil && times == 1 && c.kept, errkind.Is(err, errkind.NotLeader) && times == 0:
			default:
				t.Errorf("told %v, and it was done %d times", err, times)
			}
		})
	}
}

// losePlace proposes at a leader that hears no answers, or is not heard, until another one leads, and returns what the
// proposer is told.
func losePlace(t *testing.T, nodes []*node, cmd string, kept bool) error {
	t.Helper()
	l := leader(t, nodes)
	rest := others(nodes, l)
	mute := []*node{l}
	if kept {
		mute = rest
	}
	speak := func(silent bool) {
		for _, n := range mute {
			n.silent.Store(silent)
		}
	}
	speak(true)
	defer speak(false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*polltest.Deadline)
	defer cancel()
	told := make(chan error, 1)
	go func() { _, err := l.Propose(ctx, []byte(cmd)); told <- err }()
	polltest.Until(t, func() bool { return l.current.Load().raft.State() != raft.Leader }, "the leader to step down")
	if !kept {
		insist(t, rest, "instead of "+cmd)
	}
	speak(false)
	return polltest.Get(t, told, "an answer")
}
