package router

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/logrecord"
)

// alone replicates to one machine.
type alone struct{ *definitions.Definitions }

func (a alone) Propose(_ context.Context, cmd []byte) (any, error) {
	return a.ApplyBatch([][]byte{cmd})[0], nil
}

// newRouter has one product, and one part that another server leads.
func newRouter(t testing.TB, call func(ctx context.Context, req []byte) ([]byte, error)) *Router {
	t.Helper()
	r, define := newUnknowing(t, call)
	define()
	return r
}

// newUnknowing has nothing until it is defined.
func newUnknowing(t testing.TB, call func(ctx context.Context, req []byte) ([]byte, error)) (r *Router, define func()) {
	t.Helper()
	defs := definitions.New()
	defs.Use(alone{defs})
	product := &usage.Product{Name: "calls", Kind: usage.Sum}
	if err := product.Complete(); err != nil {
		t.Fatal(err)
	}
	define = func() {
		for _, c := range []definitions.Command{{Begin: &definitions.Begin{Key: make([]byte, 16)}}, {Put: product},
			{Owners: []string{"s1"}}} {
			if _, err := defs.Do(t.Context(), c); err != nil {
				t.Error(err)
			}
		}
	}
	return New(Config{Definitions: defs, Local: func(string) *counter.Counter { return nil },
		Call: func(ctx context.Context, _, _ string, req []byte) ([]byte, error) { return call(ctx, req) }}), define
}

// TestBegins: events that come before a server that starts knows what is counted wait for that, for a moment.
func TestBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, define := newUnknowing(t, func(context.Context, []byte) ([]byte, error) { return stored(dedup.New), nil })
		began := time.Now()
		if _, err := r.Take(t.Context(), oneEvent("1")); err == nil || time.Since(began) != beginLimit {
			t.Errorf("nobody defined anything, and after %v: %v", time.Since(began), err)
		}
		many := oneEvent("1")
		for len(many.Items) <= beginMost {
			many.Items = append(many.Items, many.Items[0])
		}
		began = time.Now()
		if _, err := r.Take(t.Context(), many); err == nil || time.Since(began) > 0 {
			t.Errorf("%d events waited for %v: %v", len(many.Items), time.Since(began), err)
		}
		go func() { time.Sleep(time.Second); define() }()
		if got, err := r.Take(t.Context(), oneEvent("1")); err != nil || got.Accepted != 1 {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// TestBehind: a product that this server does not know is asked for before its events are rejected; where it cannot be
// told whether there is one, nothing is stored and the sender tries again.
func TestBehind(t *testing.T) {
	stores, events := 0, 2
	r := newRouter(t, func(context.Context, []byte) ([]byte, error) {
		stores++
		return pack.Bytes(pack.Uint(nil, 7), bytes.Repeat([]byte{byte(dedup.New)}, events)), nil
	})
	asked := 0
	var nobody error
	seats := &usage.Product{Name: "seats", Kind: usage.Sum}
	if err := seats.Complete(); err != nil {
		t.Fatal(err)
	}
	r.cfg.News = func(ctx context.Context) error {
		if asked++; nobody != nil {
			return nobody
		}
		_, err := r.cfg.Definitions.Do(ctx, definitions.Command{Put: seats})
		return err
	}
	batch := oneEvent("1")
	batch.Items = append(batch.Items, oneEvent("2").Items[0])
	if _, err := r.Take(t.Context(), batch); err != nil || asked != 0 {
		t.Fatalf("a product that is known: %v after %d questions", err, asked)
	}
	batch.Items[1].Product = "seats"
	nobody, stores = errkind.New(errkind.Unavailable, "nobody leads"), 0
	if _, err := r.Take(t.Context(), batch); !errkind.Is(err, errkind.Unavailable) || stores != 0 {
		t.Errorf("nobody tells whether there is such a product: %v, %d stored", err, stores)
	}
	nobody = nil
	if out, err := r.Take(t.Context(), batch); err != nil || len(out.Rejected) != 0 || stores != 1 {
		t.Errorf("a product that others know: %+v %v, %d stored", out, err, stores)
	}
	batch.Items[1].Product, events = "chairs", 1
	if out, err := r.Take(t.Context(), batch); err != nil || len(out.Rejected) != 1 || asked != 3 {
		t.Errorf("a product that nobody knows: %+v %v after %d questions", out, err, asked)
	}
}

// stored is what the lead of a part answers that has counted a record with one event.
func stored(v dedup.Verdict) []byte { return pack.Bytes(pack.Uint(nil, 7), []byte{byte(v)}) }

func oneEvent(id string) *Batch {
	return &Batch{Items: []cloudevents.Item{{Event: usage.Event{Product: "calls", Source: "a", ID: id,
		Value: usage.Int(5), HasValue: true}}}}
}

// TestHeld: what may be sent again waits while nobody leads its part, and its sender does not notice; what has neither
// an id nor a producer does not, for it might be counted twice.
func TestHeld(t *testing.T) {
	away := errkind.New(errkind.Unavailable, "away")
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		r := newRouter(t, func(context.Context, []byte) ([]byte, error) {
			if calls.Add(1) <= 30 {
				return nil, away
			}
			return stored(dedup.New), nil
		})
		if out, err := r.Take(t.Context(), oneEvent("1")); err != nil || out.Accepted != 1 || calls.Load() != 31 {
			t.Errorf("with an id: %+v %v after %d calls", out, err, calls.Load())
		}
		numbered := oneEvent("")
		numbered.Producer, numbered.Epoch, numbered.Sequence = "p", 1, 1
		calls.Store(20)
		if out, err := r.Take(t.Context(), numbered); err != nil || out.Accepted != 1 || calls.Load() != 31 {
			t.Errorf("with a producer: %+v %v after %d calls", out, err, calls.Load())
		}
		calls.Store(0)
		if _, err := r.Take(t.Context(), oneEvent("")); !errkind.Is(err, errkind.Unavailable) || calls.Load() != 1 {
			t.Errorf("with neither: %v after %d calls", err, calls.Load())
		}
		away = errkind.New(errkind.NotLeader, "not here")
		calls.Store(20)
		if out, err := r.Take(t.Context(), oneEvent("")); err != nil || out.Accepted != 1 || calls.Load() != 31 {
			t.Errorf("with neither, and certainly not stored: %+v %v after %d calls", out, err, calls.Load())
		}
		calls.Store(-1 << 20)
		if _, err := r.Take(t.Context(), oneEvent("")); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("with neither, and stored by nobody: %v", err)
		}
		away = errkind.New(errkind.Unavailable, "away")
		calls.Store(-1 << 20) // nobody takes over
		began := time.Now()
		if _, err := r.Take(t.Context(), oneEvent("1")); !errkind.Is(err, errkind.Unavailable) ||
			time.Since(began) > holdLimit+time.Second {
			t.Errorf("nobody takes over: %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := r.Take(ctx, oneEvent("1")); !errkind.Is(err, errkind.Unavailable) || time.Since(began) > 2*time.Second {
			t.Errorf("the sender has gone: %v after %s", err, time.Since(began))
		}
		if n := r.held.Load(); n != 0 {
			t.Errorf("%d bytes are held when nobody waits", n)
		}
		r.held.Store(holdBytes)
		calls.Store(0)
		if _, err := r.Take(t.Context(), oneEvent("1")); !errkind.Is(err, errkind.Unavailable) || calls.Load() != 1 {
			t.Errorf("no room to wait: %v after %d calls", err, calls.Load())
		}
	})
}

// TestNotHeld: what is wrong, or too much, is told at once.
func TestNotHeld(t *testing.T) {
	for _, kind := range []errkind.Kind{errkind.Overloaded, errkind.Invalid, errkind.TooLarge} {
		calls := 0
		r := newRouter(t, func(context.Context, []byte) ([]byte, error) { calls++; return nil, errkind.New(kind, "no") })
		if _, err := r.Take(t.Context(), oneEvent("1")); !errkind.Is(err, kind) || calls != 1 {
			t.Errorf("%v: %v after %d calls", kind, err, calls)
		}
	}
	for name, reply := range map[string][]byte{"nothing": nil, "no verdicts": stored(dedup.New)[:1],
		"two verdicts": pack.Bytes(pack.Uint(nil, 7), []byte{0, 0})} {
		r := newRouter(t, func(context.Context, []byte) ([]byte, error) { return reply, nil })
		if _, err := r.Take(t.Context(), oneEvent("1")); !errkind.Is(err, errkind.Internal) ||
			!strings.Contains(err.Error(), "damaged") {
			t.Errorf("an answer with %s: %v", name, err)
		}
	}
}

// FuzzServe: whatever another server sends, the lead of a part refuses it or hands it to its counter, which takes
// nothing here as its log is not open.
func FuzzServe(f *testing.F) {
	var sent []byte
	r := newRouter(f, func(_ context.Context, req []byte) ([]byte, error) {
		sent = req
		return nil, errkind.New(errkind.Invalid, "not now")
	})
	_, _ = r.Take(f.Context(), oneEvent("1"))
	f.Add(sent)
	f.Add(sent[:len(sent)/2])
	f.Add(logrecord.Append(nil, &logrecord.Record{At: time.Unix(1, 0), Correction: &usage.Correction{ID: "1"}}))
	closed := counter.New(counter.Config{})
	f.Fuzz(func(t *testing.T, req []byte) {
		reply, err := r.Serve(t.Context(), closed, req)
		if err == nil || reply != nil {
			t.Fatalf("%x: %x", req, reply)
		}
		if !errkind.Is(err, errkind.Invalid) && !errkind.Is(err, errkind.NotLeader) &&
			!errkind.Is(err, errkind.TooLarge) && !errkind.Is(err, errkind.Corrupt) {
			t.Fatalf("%x: %v", req, fmt.Sprintf("%T %[1]v", err))
		}
	})
}
