package group

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

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
	at, ok := placeOf(f)
	if want := (place{f.Index(), in.raft.CurrentTerm()}); !ok || at != want {
		t.Errorf("got %v, %v, want %v", at, ok, want)
	}
	if _, ok := placeOf(nowhere{f}); ok {
		t.Error("a future of another kind has a place")
	}
}

type nowhere struct{ raft.ApplyFuture }

// TestOutcomesAreBounded: the newest are kept, by index and term.
func TestOutcomesAreBounded(t *testing.T) {
	var o outcomes
	for i := range uint64(3 * outcomesKept) {
		o.note(place{i, 2}, []any{i})
	}
	newest := uint64(3*outcomesKept - 1)
	for _, c := range []struct {
		at   place
		want bool
	}{{place{newest, 2}, true}, {place{newest - outcomesKept + 1, 2}, true}, {place{newest - outcomesKept, 2}, false},
		{place{newest, 3}, false}} {
		if got, ok := o.of(c.at); ok != c.want || ok && got[0] != c.at.index {
			t.Errorf("%v: %v, %v", c.at, got, ok)
		}
	}
	if o.forget(); len(o.kept) > 0 {
		t.Error("what nobody waits for is kept")
	}
}

// TestOutcomeIsLearnt: a leader loses its place with an entry on its way. If the next leader commits the entry, its
// proposer gets its result; if the next leader overwrites it, he is told that it was not done.
func TestOutcomeIsLearnt(t *testing.T) {
	for _, c := range []struct {
		name string
		kept bool
	}{{"committed by the next leader", true}, {"overwritten by the next leader", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nodes := cluster(t, 3, nil)
			const rounds = 30 // an election that takes too long on a busy machine leaves it unknown
			for round := range rounds {
				cmd := fmt.Sprint("command ", round)
				insist(t, nodes, fmt.Sprint("before ", round))
				err := losePlace(t, nodes, cmd, c.kept)
				insist(t, nodes, fmt.Sprint("after ", round))
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
				switch {
				case err == nil && times != 1:
					t.Fatalf("acknowledged, and done %d times", times)
				case errkind.Is(err, errkind.NotLeader) && times != 0:
					t.Fatalf("refused (%v), and done %d times", err, times)
				case err == nil && c.kept, errkind.Is(err, errkind.NotLeader) && !c.kept:
					return
				}
				t.Logf("round %d: %v", round, err)
			}
			t.Errorf("in %d rounds no outcome was learnt", rounds)
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
