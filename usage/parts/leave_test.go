package parts

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/definitions"
)

func awaits(w *world) { w.back = time.Hour }

// end drains a server and ends it.
func (w *world) end(ctx context.Context, id string) {
	s := w.servers[id]
	s.parts.Leave(ctx)
	s.parts.Drain(ctx)
	w.mu.Lock()
	s.down = true
	w.mu.Unlock()
	s.stop()
}

// named are the servers that the table has named as copies of a part since a command.
func (w *world) named(since int, part string) (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.commands[since:] {
		var c definitions.Command
		if err := json.Unmarshal(text, &c); err != nil {
			w.t.Fatal(err)
		}
		if c.Part != nil && c.Part.Name == part && c.Part.Next.Copy != "" {
			list = append(list, c.Part.Next.Copy)
		}
	}
	return list
}

// TestReturnIsAwaited: the parts of a server that was stopped by plan wait for it: nobody else is given their copies,
// and the server is not ready before it has them.
func TestReturnIsAwaited(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, 800*time.Millisecond, awaits)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	was, has := map[string]definitions.Part{}, w.servers["a"].parts.has()
	for _, part := range []string{"a", "b", "c"} {
		was[part] = w.servers["b"].defs.View().Part(part)
	}
	w.mu.Lock()
	since := len(w.commands)
	w.mu.Unlock()
	w.end(t.Context(), "a")
	if alone := w.servers["b"].parts.alone() + w.servers["c"].parts.alone(); alone != len(has) {
		t.Errorf("%d parts are led alone, want those that server a had: %v", alone, has)
	}
	select { // parts are looked after five times meanwhile: without waiting for server a they would have copies
	case <-time.After(5 * look):
	case <-t.Context().Done():
	}
	w.start("a", w.servers["a"].fs)
	back := w.servers["a"].parts
	if lacks := strings.Join(back.Lacks(), "; "); lacks == "" {
		t.Error("a server is ready that has just begun to start")
	}
	polltest.Within(t, time.Minute, w.whole, "all parts to be whole after server a was rolled")
	polltest.Within(t, time.Minute, func() bool { return len(back.Lacks()) == 0 }, "server a to be ready")
	for part, before := range was {
		if before.Lead != "a" && before.Copy != "a" {
			continue
		}
		for _, other := range w.named(since, part) {
			if other != "a" && other != before.Lead && other != before.Copy {
				t.Errorf("part %s, which had %+v, was copied to server %s", part, before, other)
			}
		}
	}
}

// TestLeaveMakesCopies: a server that is stopped while another one is away gives what it leads alone to the third
// first.
func TestLeaveMakesCopies(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, 800*time.Millisecond, awaits)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w.end(ctx, "a")
	next, last := "b", "c"
	if w.servers[next].parts.alone() == 0 {
		next, last = last, next
	}
	if w.servers[next].parts.alone() == 0 {
		t.Fatal("nobody leads a part alone: nothing is tried")
	}
	w.end(ctx, next)
	if left := w.servers[next].parts.has(); len(left) > 0 {
		t.Errorf("server %s has ended, and the table says that it has %v", next, left)
	}
	for _, part := range []string{"a", "b", "c"} {
		if lead := w.servers[last].parts.Lead(part); lead != last {
			t.Errorf("server %s leads part %s, and server %s alone is left", lead, part, last)
		}
	}
	began := time.Now()
	w.end(ctx, last) // nobody is left to take anything
	if took := time.Since(began); took > leaveWithin/2 {
		t.Errorf("the last server waited %v for somebody", took)
	}
}

// TestAllLeave: servers that are stopped together do not wait for each other.
func TestAllLeave(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, 800*time.Millisecond, awaits)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	w.end(t.Context(), "a")
	b, c := w.servers["b"].parts, w.servers["c"].parts
	c.leaving.Store(true)
	began := time.Now()
	b.Leave(t.Context())
	if took := time.Since(began); took > leaveWithin/2 {
		t.Errorf("a server waited %v for copies on one that leaves, too", took)
	}
}

// TestUndecidedHandOver: while the group decides nothing, the events of a part that is to be handed over go on.
func TestUndecidedHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	w.mu.Lock()
	w.stuck = make(chan struct{})
	w.mu.Unlock()
	now := w.servers["a"].defs.View().Part("a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	gave := make(chan error, 1)
	go func() { // ends with ctx
		_, err := w.servers[now.Lead].parts.serveYield(ctx, pack.String(pack.Uint(pack.String(nil, "a"), now.Epoch),
			now.Copy))
		gave <- err
	}()
	polltest.Within(t, time.Minute, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.waiting > 0
	}, "the lead to ask for a decision")
	within, done := context.WithTimeout(ctx, 20*time.Second)
	defer done()
	if err := w.send(within, "a", usage.Event{ID: "1", Source: "s", Tenant: "a", Product: "bytes",
		Time: time.Now().UnixNano(), Value: usage.Int(1), HasValue: true}); err != nil {
		t.Errorf("an event, while it is not decided who leads: %v", err)
	}
	if err := <-gave; err == nil {
		t.Error("a part was handed over, and nobody had decided it")
	}
	w.mu.Lock()
	close(w.stuck)
	w.stuck = nil
	w.mu.Unlock()
}
