package parts

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
)

func (w *world) freeze(f func(ctx context.Context, to, method string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = f
}

func one(part string) usage.Event {
	return usage.Event{ID: "1", Source: "s", Tenant: part, Product: "bytes", Time: time.Now().UnixNano(),
		Value: usage.Int(1), HasValue: true}
}

// TestFrozenCopy: a copy does not answer any more, and nothing says that it is gone. No record waits for it longer than
// a server may be silent: the part goes on alone, and its events are taken.
func TestFrozenCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	now := w.servers["a"].defs.View().Part("a")
	var longest atomic.Int64 // that a copy has to answer
	thawed := make(chan struct{})
	defs := w.servers[now.Lead].defs
	w.freeze(func(ctx context.Context, to, method string) {
		if to != now.Copy || method != MethodFeed {
			return
		}
		if end, ok := ctx.Deadline(); defs.View().Part("a") == now {
			within := time.Hour
			if ok {
				within = time.Until(end)
			}
			longest.Store(max(longest.Load(), int64(within)))
		}
		select {
		case <-ctx.Done():
		case <-thawed:
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w.patience = time.Minute
	if err := w.send(ctx, "a", one("a")); err != nil {
		t.Errorf("an event, while the copy of its part is frozen: %v", err)
	}
	if got := time.Duration(longest.Load()); got == 0 || got > turnWithin {
		t.Errorf("a record waits %v for a frozen copy, and %v are enough", got, turnWithin)
	}
	w.freeze(nil)
	close(thawed)
	polltest.Within(t, time.Minute, w.whole, "all parts to be whole when nothing is frozen any more")
	w.judge(map[string]int64{"a": 1})
}

// TestFailsThenFreezes: a copy answers with errors, and then no more. Both together hold a record up for as long as a
// server may be silent.
func TestFailsThenFreezes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const alone = 5 * time.Second
		defs := definitions.New()
		defs.Use(single{defs})
		for _, c := range []definitions.Command{{Owners: []string{"a", "b"}},
			{Part: &definitions.PartPut{Name: "a", Next: definitions.Part{Lead: "a", Copy: "b"}}}} {
			if _, err := defs.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		began, frozen := time.Now(), false
		s := &server{id: "a", fs: vfs.NewMem(), defs: defs, metrics: telemetry.New(telemetry.Config{})}
		signal := counter.NewSignal(began)
		p, err := New(Config{Self: "a", Definitions: defs, Open: s.open(signal), Copies: 2, Alone: alone,
			Call: func(ctx context.Context, _, _ string, _ []byte) ([]byte, error) {
				if time.Since(began) > alone*9/10 {
					frozen = true
					<-ctx.Done()
				}
				return nil, errkind.New(errkind.Unavailable, "the copy stores nothing")
			}, Voters: func() []string { return []string{"a", "b"} }, Leads: func() bool { return true }}, signal)
		if err != nil {
			t.Fatal(err)
		}
		l := &link{t: p.find("a"), server: "b", firm: true}
		if err := l.store(t.Context(), 0, [][]byte{{1}}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); !frozen || took < alone || took > alone+lastTry {
			t.Errorf("it was held up for %v", took)
		}
		if now := defs.View().Part("a"); now.Copy != "" {
			t.Errorf("the part has %+v", now)
		}
	})
}

// TestStatusWaitsForAppends: a lead is told by the table that another server leads, with an append under way. It says
// what it has when that has ended.
func TestStatusWaitsForAppends(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, time.Hour)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	w.patience = time.Minute
	was := w.servers["a"].defs.View().Part("a")
	former := w.servers[was.Lead]
	var once sync.Once
	held, thawed := make(chan struct{}), make(chan struct{})
	w.freeze(func(_ context.Context, to, method string) {
		if to == was.Copy && method == MethodFeed {
			once.Do(func() {
				close(held)
				<-thawed
			})
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- w.send(ctx, "a", one("a")) }() // ends with ctx
	<-held
	if _, err := former.defs.Do(ctx, definitions.Command{At: time.Now(), Part: &definitions.PartPut{Name: "a",
		Was: was.Epoch, Next: definitions.Part{Lead: was.Copy, Copy: was.Lead}}}); err != nil {
		t.Fatal(err)
	}
	c := former.parts.find("a").Counter
	polltest.Within(t, time.Minute, func() bool { return !c.Leads() }, "the former lead to know that it is that")
	ask := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		_, err := former.methods[MethodStatus](ctx, pack.Uint(pack.String(nil, "a"), former.defs.View().Part("a").Epoch))
		return err
	}
	if err := ask(50 * time.Millisecond); err == nil {
		t.Error("a server says what it has while it stores a record")
	}
	w.freeze(nil)
	close(thawed)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	polltest.NoError(t, time.Minute, func() error { return ask(time.Minute) }, "the former lead to say what it has")
	polltest.Within(t, time.Minute, w.whole, "all parts to be whole")
	w.judge(map[string]int64{"a": 1})
}

// TestUndecidedCopy: a copy is gone, and the group does not decide that its part goes on without it. Events wait for
// that; who looks after the part, and who asks for its state, does not.
func TestUndecidedCopy(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, time.Hour) // nobody takes over
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	w.patience = time.Minute
	w.mu.Lock()
	w.stuck = make(chan struct{})
	w.mu.Unlock()
	now := w.servers["a"].defs.View().Part("a")
	left := w.lose(now.Copy)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- w.send(ctx, "a", one("a")) }() // ends with ctx
	polltest.Within(t, time.Minute, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.waiting > 0
	}, "the lead to ask for a decision")
	lead := w.servers[now.Lead].parts
	looked := make(chan struct{})
	go func() { // ends with the event at the latest
		defer close(looked)
		lead.find("a").Counter.Share().Renew(now.Epoch, now.Copy)
	}()
	select {
	case <-looked:
	case err := <-sent:
		t.Errorf("the part could not be looked after until its event was answered: %v", err)
		return
	case <-time.After(30 * time.Second):
		t.Error("the part cannot be looked after while nothing is decided")
	}
	w.mu.Lock()
	close(w.stuck)
	w.stuck = nil
	w.mu.Unlock()
	if err := <-sent; err != nil {
		t.Errorf("the event, when it was decided: %v", err)
	}
	w.start(now.Copy, left)
	polltest.Within(t, time.Minute, w.whole, "all parts to be whole")
	w.judge(map[string]int64{"a": 1})
}

// TestOverseerListensOn: a lead that is asked to give up a part does not answer. The leader of the plane notices
// meanwhile that another server is gone, and has the copy of its part take over.
func TestOverseerListensOn(t *testing.T) {
	t.Parallel()
	defs := definitions.New()
	defs.Use(single{defs})
	put := func(name, lead, other string) definitions.Command {
		return definitions.Command{Part: &definitions.PartPut{Name: name, Next: definitions.Part{Lead: lead, Copy: other}}}
	}
	for _, c := range []definitions.Command{{Owners: []string{"a", "b", "c"}}, put("a", "a", "b"),
		put("b", "c", "b")} { // part b may go home
		if _, err := defs.Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	var gone atomic.Bool // server b is
	gate := make(chan struct{})
	asked := make(chan struct{})
	var once sync.Once
	call := func(_ context.Context, to, method string, _ []byte) ([]byte, error) {
		switch {
		case method == MethodYield:
			once.Do(func() { close(asked) })
			<-gate // longer than any deadline
		case method == MethodPing && !(to == "b" && gone.Load()):
			return pack.Bool(nil, false), nil
		}
		return nil, errkind.New(errkind.Unavailable, "nobody answers")
	}
	s := &server{id: "a", fs: vfs.NewMem(), defs: defs, metrics: telemetry.New(telemetry.Config{})}
	signal := counter.NewSignal(time.Now())
	p, err := New(Config{Self: "a", Definitions: defs, Open: s.open(signal), Call: call, Copies: 2, Metrics: s.metrics,
		Failover: 400 * time.Millisecond, Voters: func() []string { return []string{"a", "b", "c"} },
		Leads: func() bool { return true }}, signal)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() { close(gate); cancel(); <-done }()
	polltest.Within(t, time.Minute, p.settled.Load, "server a to know what it has")
	if _, err := defs.Do(t.Context(), put("c", "b", "a")); err != nil { // a new disk would not be taken for a copy before
		t.Fatal(err)
	}
	polltest.Within(t, time.Minute, func() bool {
		select {
		case <-asked:
			return true
		default:
			return false
		}
	}, "server c to be asked for part b")
	gone.Store(true)
	polltest.Within(t, time.Minute, func() bool { return defs.View().Part("c").Lead == "a" },
		"part c, whose lead is gone, to be led by its copy")
}

// TestBackIsNotAwaited: a server that was stopped by plan came back, and then it is gone without a word. Its parts do
// not wait for it as if it had said so again.
func TestBackIsNotAwaited(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, 800*time.Millisecond, awaits)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	w.end(t.Context(), "a")
	w.start("a", w.servers["a"].fs)
	polltest.Within(t, time.Minute, w.whole, "all parts to be whole after server a was rolled")
	w.lose("a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, part := range []string{"a", "b", "c"} { // who leads a part notices by an event that its copy is gone
		if err := w.send(ctx, part, one(part)); err != nil {
			t.Error(err)
		}
	}
	b := w.servers["b"]
	polltest.NoError(t, time.Minute, func() error {
		for _, part := range []string{"a", "b", "c"} {
			now := b.defs.View().Part(part)
			if now.Lead == "a" || now.Copy == "a" || now.Copy == "" {
				return errkind.Errorf(errkind.Unavailable, "part %s has %+v", part, now)
			}
		}
		return nil
	}, "all parts to be with the servers that are there")
}
