package relay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/router"
)

var histories = flag.Int("histories", 2, "how many random histories are judged")

// products are those that servers know.
var products = func() map[string]*usage.Product {
	all := map[string]*usage.Product{}
	for _, p := range []usage.Product{{Name: "calls", Kind: usage.Sum}, {Name: "peak", Kind: usage.Max},
		{Name: "users", Kind: usage.Unique, Identity: []string{"user"}}} {
		if err := p.Complete(); err != nil {
			panic(err)
		}
		all[p.Name] = &p
	}
	return all
}()

// servers store what relays deliver, as exactly as real ones: by the same memory against repeats.
type servers struct {
	mu      sync.Mutex
	r       *rand.Rand
	away    bool
	flaky   bool // some answers are lost, and some requests
	memory  *dedup.State
	key     usage.Key
	calls   usage.Quantity
	peak    usage.Quantity
	users   map[string]bool
	batches int
	events  int
}

func newServers(seed uint64) *servers {
	return &servers{r: rand.New(rand.NewPCG(seed, 3)), memory: dedup.NewState(dedup.Config{}), users: map[string]bool{}}
}

var errAway = errkind.New(errkind.Unavailable, "no server")

func (s *servers) deliver(_ context.Context, b *batch.Batch) (router.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away || s.flaky && s.r.IntN(4) == 0 {
		return router.Answer{}, errAway
	}
	b, err := batch.Read(batch.Append(nil, b)) // as it comes over the wire
	if err != nil {
		return router.Answer{}, err
	}
	s.batches++
	s.memory.Advance(time.Now())
	whole := dedup.New
	if b.Producer != "" {
		whole = s.memory.Batch(b.Producer, b.Epoch, b.Sequence)
	}
	var out router.Answer
	for i := range b.Events {
		e := &b.Events[i]
		verdict := whole
		if b.Producer == "" {
			var id usage.Hash
			if e.ID != "" {
				id, _ = s.key.EventID(nil, e.Tenant, e.Source, e.ID)
			}
			verdict = s.memory.Event(id, time.Unix(0, e.Time), usage.MaxLate)
		}
		switch verdict {
		case dedup.New:
			out.Accepted++
			s.events++
			s.count(e)
		case dedup.Duplicate:
			out.Duplicates++
		default:
			out.Rejected = append(out.Rejected, router.Rejected{Index: i, Error: verdict.String()})
		}
	}
	if s.flaky && s.r.IntN(4) == 0 {
		return router.Answer{}, errkind.New(errkind.Unknown, "the answer was lost")
	}
	return out, nil
}

func (s *servers) count(e *usage.Event) {
	switch e.Product {
	case "calls":
		s.calls, _ = s.calls.Add(e.Value)
	case "peak":
		if s.peak.Compare(e.Value) < 0 {
			s.peak = e.Value
		}
	case "users":
		s.users[e.Identity[0].Value] = true
	}
}

// told is what has been counted, as text.
func (s *servers) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%s calls, a peak of %s, %d users", s.calls, s.peak, len(s.users))
}

func (s *servers) set(away, flaky bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.flaky = away, flaky
}

// host is an agent that is killed now and then.
type host struct {
	t     *testing.T
	fs    *vfs.Mem
	to    *servers
	most  int64
	relay *Relay
	stop  func()
}

func (h *host) start() {
	h.relay = New(Config{FS: h.fs, Dir: "/buffer", Name: "agent/1", MaxBytes: h.most, Gather: time.Millisecond,
		Product: func(_ context.Context, name string) (*usage.Product, error) {
			if p, ok := products[name]; ok {
				return p, nil
			}
			return nil, errkind.New(errkind.NotFound, "product: is not defined")
		}, Deliver: h.to.deliver, Metrics: telemetry.New(telemetry.Config{})})
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	go func(r *Relay) { done <- r.Run(ctx) }(h.relay)
	h.stop = func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	}
	polltest.Until(h.t, func() bool { return h.relay.State().Open }, "the buffer to be open")
}

// kill leaves what a killed process, or a power loss, leaves, and begins anew.
func (h *host) kill(r *rand.Rand) {
	after := h.fs.Killed()
	if r.IntN(2) == 0 {
		after = h.fs.Crash(r)
	}
	h.to.set(true, false) // what the killed process sends from now on did not happen
	h.stop()
	h.fs = after
	h.start()
}

func newHost(t *testing.T, to *servers) *host {
	h := &host{t: t, fs: vfs.NewMem(), to: to}
	h.start()
	t.Cleanup(func() { h.stop() })
	return h
}

// model is what senders were told is stored.
type model struct {
	calls, peak usage.Quantity
	users       map[string]bool
}

func (m *model) count(e *usage.Event) {
	s := servers{calls: m.calls, peak: m.peak, users: m.users}
	s.count(e)
	m.calls, m.peak = s.calls, s.peak
}

func (m *model) told() string {
	return fmt.Sprintf("%s calls, a peak of %s, %d users", m.calls, m.peak, len(m.users))
}

func anyEvent(r *rand.Rand, id string) usage.Event {
	e := usage.Event{ID: id, Source: "app", Tenant: fmt.Sprint("t", r.IntN(2)), Product: "calls",
		Value: usage.Int(r.Int64N(1000)), HasValue: true, Time: time.Now().Add(-time.Duration(r.IntN(200)) * time.Second).
			UnixNano(), Tags: []usage.Field{{Name: "team", Value: fmt.Sprint(r.IntN(3))}}}
	switch r.IntN(3) {
	case 0:
		e.Product = "peak"
	case 1:
		e.Product, e.Identity = "users", []usage.Field{{Name: "user", Value: fmt.Sprint(r.IntN(300))}}
	}
	return e
}

// TestModel: whatever is sent, sent again, killed and lost on the way, servers count what was acknowledged, once.
func TestModel(t *testing.T) {
	leaktest.Check(t)
	for n := range *histories {
		seed := uint64(n)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { judgeHistory(t, seed) })
	}
}

func judgeHistory(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	to := newServers(seed)
	h := newHost(t, to)
	m := &model{users: map[string]bool{}}
	var again []router.Batch // with ids, or names: these may be sent twice
	next, sequence := 0, uint64(0)
	for step := range 80 {
		switch dice := r.IntN(20); {
		case dice == 0:
			h.kill(r)
		case dice < 4:
			to.set(r.IntN(2) == 0, r.IntN(2) == 0)
		case dice < 8 && len(again) > 0:
			b := again[r.IntN(len(again))]
			answer, err := h.relay.Take(t.Context(), &b)
			if err == nil && (len(answer.Rejected) > 0 || answer.Accepted+answer.Duplicates != len(b.Items)) {
				t.Errorf("step %d: sent again: %+v", step, answer)
			}
		default:
			b := router.Batch{}
			named := r.IntN(3)
			for range 1 + r.IntN(20) {
				id := ""
				if next++; named == 0 {
					id = fmt.Sprint(next)
				}
				b.Items = append(b.Items, cloudevents.Item{Event: anyEvent(r, id)})
			}
			if named == 1 {
				sequence++
				b.Producer, b.Epoch, b.Sequence = "gateway", 1, sequence
			}
			answer, err := h.relay.Take(t.Context(), &b)
			if err != nil || answer.Accepted != len(b.Items) {
				t.Fatalf("step %d: %+v, %v", step, answer, err)
			}
			if named < 2 {
				again = append(again, b)
			}
			for i := range b.Items {
				m.count(&b.Items[i].Event)
			}
		}
	}
	to.set(false, true)
	polltest.Until(t, func() bool { s := h.relay.State(); return s.Open && s.Records == 0 }, "all to be delivered")
	if got := to.told(); got != m.told() {
		t.Errorf("servers count %s, senders were told of %s", got, m.told())
	}
}

// take sends one event and fails unless it is taken.
func (h *host) take(e usage.Event) router.Answer {
	h.t.Helper()
	answer, err := h.relay.Take(h.t.Context(), &router.Batch{Items: []cloudevents.Item{{Event: e}}})
	if err != nil {
		h.t.Fatal(err)
	}
	return answer
}

// TestMerged: a hundred calls of a minute are a few events at servers, and a user of a minute is one.
func TestMerged(t *testing.T) {
	to := newServers(1)
	to.set(true, false)
	h := newHost(t, to)
	at := time.Now().Truncate(time.Minute).UnixNano()
	for range 100 {
		h.take(usage.Event{Product: "calls", Value: usage.Int(2), HasValue: true, Time: at})
		h.take(usage.Event{Product: "users", Identity: []usage.Field{{Name: "user", Value: "bob"}}, Time: at})
	}
	to.set(false, false)
	polltest.Until(t, func() bool { return h.relay.State().Records == 0 }, "all to be delivered")
	// What was first tried alone may have gone on alone.
	if got := to.told(); got != "200 calls, a peak of 0, 1 users" || to.events > 10 {
		t.Errorf("servers count %s, out of %d events", got, to.events)
	}
}

// TestRepeats: an id counts once, also after a start, and also where it is in a batch of others; it belongs to its
// tenant and source.
func TestRepeats(t *testing.T) {
	to := newServers(1)
	to.set(true, false)
	h := newHost(t, to)
	e := usage.Event{ID: "1", Source: "a", Product: "calls", Value: usage.Int(5), HasValue: true}
	if got := h.take(e); got.Accepted != 1 || got.Receipt == "" {
		t.Errorf("the first: %+v", got)
	}
	if got := h.take(e); got.Duplicates != 1 || got.Accepted != 0 {
		t.Errorf("a repeat: %+v", got)
	}
	h.kill(rand.New(rand.NewPCG(1, 1)))
	if got := h.take(e); got.Duplicates != 1 {
		t.Errorf("a repeat after a kill: %+v", got)
	}
	other := e
	other.Source = "b"
	if got := h.take(other); got.Accepted != 1 {
		t.Errorf("another source: %+v", got)
	}
	to.set(false, true)
	polltest.Until(t, func() bool { return h.relay.State().Records == 0 }, "all to be delivered")
	if got := h.take(e); got.Duplicates != 1 {
		t.Errorf("a repeat after the delivery: %+v", got)
	}
	if got := to.told(); !strings.HasPrefix(got, "10 calls") {
		t.Errorf("servers count %s", got)
	}
}

// TestFull: a full buffer refuses, keeps what it has, and takes again when servers have taken it.
func TestFull(t *testing.T) {
	to := newServers(1)
	to.set(true, false)
	h := &host{t: t, fs: vfs.NewMem(), to: to, most: 256 << 10}
	h.start()
	t.Cleanup(func() { h.stop() })
	taken := int64(0)
	var err error
	for n := range 100_000 {
		b := router.Batch{}
		for i := range 100 {
			b.Items = append(b.Items, cloudevents.Item{Event: usage.Event{ID: fmt.Sprint(n, "-", i),
				Source: strings.Repeat("s", 100), Product: "calls", Value: usage.Int(1), HasValue: true}})
		}
		if _, err = h.relay.Take(t.Context(), &b); err != nil {
			break
		}
		taken += 100
	}
	if !errkind.Is(err, errkind.Overloaded) || !strings.Contains(err.Error(), "usage.agent.buffer_bytes") {
		t.Fatalf("a full buffer says %v", err)
	}
	to.set(false, false)
	polltest.Until(t, func() bool { return h.relay.State().Records == 0 }, "all to be delivered")
	if got := to.told(); !strings.HasPrefix(got, fmt.Sprintf("%d calls", taken)) {
		t.Errorf("servers count %s, senders were told of %d", got, taken)
	}
	polltest.Until(t, func() bool {
		_, err := h.relay.Take(t.Context(), &router.Batch{Items: []cloudevents.Item{{Event: usage.Event{Product: "calls",
			Value: usage.Int(1), HasValue: true}}}})
		return err == nil
	}, "the buffer to take events again")
}

// TestRefused: what is wrong is told with its field; what nobody can judge is refused as a whole, and so is what comes
// before the buffer is open.
func TestRefused(t *testing.T) {
	to := newServers(1)
	h := newHost(t, to)
	long := usage.Event{Product: "calls", Source: strings.Repeat("s", 300), Value: usage.Int(1), HasValue: true}
	answer, err := h.relay.Take(t.Context(), &router.Batch{Items: []cloudevents.Item{
		{Event: usage.Event{Product: "unknown"}}, {Err: errors.New("it is broken")}, {Event: long},
		{Event: usage.Event{Product: "users"}}, {Event: usage.Event{Product: "calls", Value: usage.Int(1), HasValue: true}}}})
	if err != nil || answer.Accepted != 1 || len(answer.Rejected) != 4 {
		t.Fatalf("%+v, %v", answer, err)
	}
	for i, want := range []string{"product: is not", "it is broken", "source: has", "identity.user: is missing"} {
		if got := answer.Rejected[i]; got.Index != i || !strings.Contains(got.Error, want) {
			t.Errorf("rejected %+v, want %q", got, want)
		}
	}
	b := router.Batch{Producer: "p", Epoch: 2, Sequence: 1, Items: []cloudevents.Item{{Event: usage.Event{Product: "calls",
		Value: usage.Int(1), HasValue: true}}}}
	if answer, err := h.relay.Take(t.Context(), &b); err != nil || answer.Accepted != 1 {
		t.Errorf("%+v, %v", answer, err)
	}
	b.Epoch = 1
	if answer, err := h.relay.Take(t.Context(), &b); err != nil || len(answer.Rejected) != 1 {
		t.Errorf("an older epoch: %+v, %v", answer, err)
	}
	b.Epoch, b.Sequence = 2, 0
	if answer, err := h.relay.Take(t.Context(), &b); err != nil || len(answer.Rejected) != 1 {
		t.Errorf("a sequence of 0: %+v, %v", answer, err)
	}
	closed := New(Config{FS: vfs.NewMem(), Dir: "/buffer", Product: func(context.Context, string) (*usage.Product, error) {
		return products["calls"], nil
	}, Metrics: telemetry.New(telemetry.Config{})})
	if _, err := closed.Take(t.Context(), &b); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("a buffer that is not open: %v", err)
	}
}

// FuzzRecord: a damaged buffer is told, and nothing panics.
func FuzzRecord(f *testing.F) {
	for _, e := range entries(nil, time.Unix(1, 2), map[string]usage.Kind{"calls": usage.Sum},
		&batch.Batch{Events: []usage.Event{{Product: "calls", Value: usage.Int(3)}}}) {
		f.Add(e.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var j joiner
		rec, err := j.take(data)
		if err == nil && rec != nil && len(entries(nil, rec.at, rec.kinds, rec.Batch)) == 0 {
			t.Error("nothing is written of what was read")
		}
	})
}
