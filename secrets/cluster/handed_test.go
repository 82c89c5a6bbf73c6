package cluster

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestHandedEndsWithLeadership: what a former active server has ends a while after another one leads, and nothing else
// does.
func TestHandedEndsWithLeadership(t *testing.T) {
	var h handings
	client, gone := context.WithCancel(t.Context())
	a, doneA := h.begin(t.Context(), Server{ID: "a"}, time.Now)
	a2, doneA2 := h.begin(client, Server{ID: "a"}, time.Now)
	b, doneB := h.begin(t.Context(), Server{ID: "b"}, time.Now)
	at := time.Now()
	over := func(step string, want ...context.Context) {
		t.Helper()
		for name, ctx := range map[string]context.Context{"a": a, "a2": a2, "b": b} {
			wanted := false
			for _, one := range want {
				wanted = wanted || one == ctx
			}
			if wanted {
				<-ctx.Done() // the end of a term is passed on by a goroutine
			}
			if (ctx.Err() != nil) != wanted {
				t.Errorf("%s: %s: %v", step, name, ctx.Err())
			}
		}
	}
	h.look(at, "b")
	h.look(at.Add(leadershipGrace-1), "b")
	over("within the grace")
	h.look(at.Add(leadershipGrace-1), "a")
	h.look(at.Add(leadershipGrace), "b")
	h.look(at.Add(2*leadershipGrace-1), "b")
	over("the first led again meanwhile")
	gone()
	over("a client has gone", a2)
	h.look(at.Add(2*leadershipGrace), "b")
	over("another leads", a, a2)
	if !errors.Is(context.Cause(a), errLeadershipOver) {
		t.Error(context.Cause(a))
	}
	later, doneLater := h.begin(t.Context(), Server{ID: "a"}, time.Now)
	doneA()
	doneA2()
	if later.Err() != nil || !h.any() {
		t.Error("a later request of the same server ended with those of before")
	}
	doneB()
	doneLater()
	if h.any() {
		t.Error("something is left of requests that have ended")
	}
}
