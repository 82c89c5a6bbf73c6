package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/limit"
)

const (
	// spansQueued is how many requests wait for the collector at most.
	spansQueued = 1024
	// spanParts bounds the accounts of one request that are told apart.
	spanParts = 32
	// Requests a second that are taken up because their caller asked for it, and because they were slow; and how many at
	// once.
	sampledRate, sampledBurst = 100, 200
	slowRate, slowBurst       = 20, 64
)

// Span is a part of a trace that is over.
type Span struct {
	Trace      TraceID
	ID, Parent SpanID
	// Name holds nothing that a client wrote: a method and a route's pattern, or a plane and a kind.
	Name  string
	Plane string
	// Server marks a request at the door it came in by: Method, Route and Status are told of these alone.
	Server        bool
	Method, Route string
	Status        int
	Kind          string // of the account that Spent is of
	Spent         Spent
	Begin         time.Time
	Took          time.Duration
}

// Traces is where the spans of a process go, if anywhere: to one queue, or nowhere. Its registries share it. A nil
// one goes nowhere.
type Traces struct{ queue atomic.Pointer[SpanQueue] }

// SpanQueue keeps spans of finished requests for an exporter, a bounded number; what comes beyond is dropped and
// counted.
type SpanQueue struct {
	// C gives the spans of one request at a time.
	C chan []Span

	clock         clock.Clock
	begun         time.Time
	sampled, slow *limit.Bucket
	dropped       *Counter
}

// NewSpanQueue makes a queue; spans that it has no room for are counted in dropped.
func NewSpanQueue(clk clock.Clock, dropped *Counter) *SpanQueue {
	return &SpanQueue{C: make(chan []Span, spansQueued), clock: clk, begun: clk.Now(), dropped: dropped,
		sampled: limit.NewBucket(sampledRate, sampledBurst), slow: limit.NewBucket(slowRate, slowBurst)}
}

// Attach has spans go to q until detach is called.
func (t *Traces) Attach(q *SpanQueue) (detach func()) {
	t.queue.Store(q)
	return func() { t.queue.CompareAndSwap(q, nil) }
}

// On tells whether spans go anywhere.
func (t *Traces) On() bool { return t.on() != nil }

func (t *Traces) on() *SpanQueue {
	if t == nil {
		return nil
	}
	return t.queue.Load()
}

func (q *SpanQueue) take(b *limit.Bucket) bool { return b.Take(q.clock.Since(q.begun)) }

func (q *SpanQueue) offer(spans []Span) {
	select {
	case q.C <- spans:
	default:
		q.dropped.Add(uint64(len(spans)))
	}
}

// Request is a request under way while traces are exported. All methods work on nil, where they do nothing.
type Request struct {
	q     *SpanQueue
	asked bool // the caller's trace is sampled
	sent  bool // and the rate allowed it, so it is sent whatever comes

	mu    sync.Mutex // guards what follows
	root  Span
	parts []Span
	slow  bool
	ended bool
}

// Begin takes up a request at its door; nil when no traces are exported. traceparent is the header's value, "" is
// none: then the request begins a trace of its own. End it.
func (t *Traces) Begin(plane, method, traceparent string) *Request {
	q := t.on()
	if q == nil {
		return nil
	}
	r := &Request{q: q, root: Span{ID: newSpanID(), Plane: plane, Server: true, Method: knownMethod(method),
		Begin: q.clock.Now()}}
	if parent, ok := ParseTraceparent(traceparent); ok {
		r.root.Trace, r.root.Parent, r.asked = parent.Trace, parent.Parent, parent.Sampled
		r.sent = r.asked && q.take(q.sampled)
	} else {
		r.root.Trace = newTraceID()
	}
	return r
}

// knownMethod keeps what a client wrote out of spans.
func knownMethod(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "LIST", "SCAN":
		return method
	}
	return "_OTHER"
}

// End sends the request's spans when it was slow or its caller asked for them. route is a pattern, never a path;
// status is what was answered, 0 when nothing was.
func (r *Request) End(route string, status int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	if !r.sent && !r.slow {
		if r.asked {
			r.q.dropped.Add(uint64(1 + len(r.parts)))
		}
		return
	}
	if !r.sent && !r.q.take(r.q.slow) {
		r.q.dropped.Add(uint64(1 + len(r.parts)))
		return
	}
	r.root.Name, r.root.Route, r.root.Status = r.root.Method+" "+route, route, status
	r.root.Took = r.q.clock.Since(r.root.Begin)
	r.q.offer(append([]Span{r.root}, r.parts...))
}

// add notes an account of the request that was closed; it gives the trace's id.
func (r *Request) add(part Span, slow bool) TraceID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = r.slow || slow
	part.Trace, part.Parent = r.root.Trace, r.root.ID
	if !r.ended && len(r.parts) < spanParts {
		r.parts = append(r.parts, part)
	}
	return r.root.Trace
}

// WithRequest has what is done under ctx be parts of r.
func WithRequest(ctx context.Context, r *Request) context.Context {
	c := carriedBy(ctx)
	c.request = r
	return with(ctx, &c)
}

func requestOf(ctx context.Context) *Request { return carriedBy(ctx).request }

// PassedOn is the traceparent of a request that is handed to another server: the request's own span is the parent
// where it will be sent for certain; else it is what the caller sent.
func PassedOn(ctx context.Context, traceparent string) string {
	if r := requestOf(ctx); r != nil && r.sent {
		return "00-" + r.root.Trace.String() + "-" + r.root.ID.String() + "-01"
	}
	return traceparent
}

// trace makes the span of an account that was closed. It gives the trace's id when that is exported.
func (s *Stages) trace(ctx context.Context, q *SpanQueue, kind int, took time.Duration, spent *Spent,
	slow bool) (trace string) {
	r := requestOf(ctx)
	if r == nil && !slow {
		return ""
	}
	part := Span{ID: newSpanID(), Name: s.plane + " " + s.kinds[kind], Plane: s.plane, Kind: s.kinds[kind],
		Begin: q.clock.Now().Add(-took), Took: took}
	if spent != nil {
		part.Spent = *spent
	}
	if r != nil {
		return r.add(part, slow).String()
	}
	part.Trace = newTraceID()
	if !q.take(q.slow) {
		q.dropped.Add(1)
		return ""
	}
	q.offer([]Span{part})
	return part.Trace.String()
}

// Traces are those of the process, which Config.Traces gave; nil on a nil Registry.
func (r *Registry) Traces() *Traces {
	if r == nil {
		return nil
	}
	return r.cfg.Traces
}
