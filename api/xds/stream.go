package xds

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/api/xds/session"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/mesh"
)

// stream is one Envoy's discovery stream. All but news is guarded by the connection's lock.
type stream struct {
	// First what each change looks at: with 100,000 streams it is the memory that takes time.
	server *Server
	grpc   *h2.Stream
	proxy  Proxy // nil until Plane.Open returned
	// news holds the types that changed since Fill looked.
	news    atomic.Uint32
	opened  bool // the first request came
	told    bool // the first response went out
	session session.Session

	unbind func()
	cancel context.CancelFunc // of Plane.Open
	token  string             // until Plane.Open returned
	early  [][]byte           // what came until then
	id     string             // the node's, for the log
	began  time.Time
	// earlyBytes are those of early behind the first message, whose size the connection bounds.
	earlyBytes int
	idle       *limit.Bucket // of requests that answer nothing, made with the first of them
}

// The requests that answer no response: subscriptions, mostly. Envoy sends one or
// two per type and change of its configuration.
const idlePerSecond, idleBurst = 100, 10_000

func newStream(s *Server, grpc *h2.Stream, world bool, md h2.Metadata) *stream {
	s.meters.open.Add(1)
	return &stream{server: s, grpc: grpc, token: md.Get("x-consul-token"), session: session.Make(world), began: time.Now()}
}

// scratch is what decoding and encoding need for a moment.
type scratch struct {
	request  session.Request
	answer   session.Answer
	response session.Response
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// maxEarlyBytes bounds what a stream says between its first message and the answer of Plane.Open.
const maxEarlyBytes = 64 << 10

// Message implements h2.Call. Until Plane.Open has judged the token only the node is read of what the client says.
func (s *stream) Message(b []byte, now time.Time) *h2.Status {
	switch {
	case s.proxy != nil:
		return s.request(b, now)
	case s.opened:
		if s.earlyBytes += len(b); s.earlyBytes > maxEarlyBytes {
			return &h2.Status{Code: h2.ResourceExhausted,
				Message: "the stream says more than a proxy does before its first request is answered"}
		}
		s.early = append(s.early, bytes.Clone(b))
		return nil
	}
	node, err := session.DecodeNode(b, s.session.World())
	if err != nil {
		return h2.StatusOf(err)
	}
	s.opened, s.early = true, [][]byte{bytes.Clone(b)}
	return s.admit(node)
}

// request takes in a request of a proxy.
func (s *stream) request(b []byte, now time.Time) *h2.Status {
	x := scratches.Get().(*scratch)
	defer scratches.Put(x)
	if err := x.request.Decode(b, s.session.World()); err != nil {
		return h2.StatusOf(err)
	}
	answered, err := s.session.Request(&x.request, &x.answer)
	switch {
	case err != nil:
		return h2.StatusOf(err)
	case answered:
		s.answered(&x.answer, now)
	case s.flooded(now):
		return &h2.Status{Code: h2.ResourceExhausted, Message: "the stream sends more requests than any proxy needs"}
	}
	if s.session.Waiting() {
		s.grpc.Ready()
	}
	return nil
}

func (s *stream) flooded(now time.Time) bool {
	if s.idle == nil {
		s.idle = limit.NewBucket(idlePerSecond, idleBurst)
	}
	return !s.idle.Take(now.Sub(s.began))
}

// admit checks the node and queues the stream for Plane.Open.
func (s *stream) admit(node *session.Node) *h2.Status {
	s.id = node.ID
	if node.ID == "" {
		return &h2.Status{Code: h2.InvalidArgument,
			Message: "the first request names no node.id: it is the id of the proxy's service"}
	}
	if err := s.server.checkVersion(node); err != nil {
		return h2.StatusOf(err)
	}
	s.server.opener.add(func() { s.open(*node) })
	return nil
}

// open runs on one of the opener's workers.
func (s *stream) open(node Node) {
	ctx, cancel := context.WithTimeout(s.server.ctx, s.server.cfg.OpenTimeout)
	defer cancel()
	var token string
	if !s.grpc.Do(func() { s.cancel, token, s.token = cancel, s.token, "" }) {
		return
	}
	proxy, err := s.server.cfg.Plane.Open(ctx, node, token)
	if err == nil {
		s.grpc.Name(node.ID)
	}
	s.grpc.Do(func() {
		s.cancel = nil
		if err != nil {
			status := statusOf(err)
			s.server.meters.turnedAway(status.Code)
			s.server.cfg.Log.Debug("xds: a stream was refused", "node", node.ID, "remote", s.grpc.Remote(), "error", err)
			s.grpc.Finish(status.Code, status.Message)
			return
		}
		s.proxy = proxy
		s.unbind = proxy.Bind(s)
		s.session.Changed(mesh.AllTypes)
		s.news.Or(ended) // it may have ended before the bind
		early := s.early
		s.early = nil
		for _, b := range early {
			if status := s.request(b, time.Now()); status != nil {
				s.grpc.Finish(status.Code, status.Message)
				return
			}
		}
		s.grpc.Ready()
	})
}

// statusOf is what a client is told of Plane.Open's error.
func statusOf(err error) *h2.Status {
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return &h2.Status{Code: h2.Unauthenticated, Message: err.Error()}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &h2.Status{Code: h2.Unavailable, Message: "the proxy's configuration was not complete in time: try again"}
	case errkind.Is(err, errkind.NotFound):
		return &h2.Status{Code: h2.InvalidArgument, Message: errkind.Text(err)}
	case errkind.Is(err, errkind.Internal):
		return &h2.Status{Code: h2.Unavailable, Message: err.Error()}
	}
	return h2.StatusOf(err)
}

// Wake implements mesh.Waker.
func (s *stream) Wake(changed mesh.Types) {
	if changed == 0 {
		changed = ended
	}
	s.news.Or(uint32(changed))
	s.grpc.Wake()
}

// ended is in a stream's news after a wake without types: the proxy may have ended.
const ended = 1 << 7

// gone ends the stream if its proxy is no longer served.
func (s *stream) gone() bool {
	select {
	case <-s.proxy.Done():
		s.grpc.Finish(h2.Canceled, "the proxy is no longer registered here, or its token lost its right")
		return true
	default:
		return false
	}
}

// Fill implements h2.Call.
func (s *stream) Fill(m *h2.Message, now time.Time) bool {
	if s.proxy == nil {
		return false
	}
	if news := s.news.Swap(0); news != 0 {
		if news&ended != 0 && s.gone() {
			return false
		}
		s.session.Changed(mesh.Types(news &^ ended))
	}
	x := scratches.Get().(*scratch)
	defer scratches.Put(x)
	r := &x.response
	ok := s.session.Next(s.proxy, now, r)
	if len(r.Resumed) > 0 {
		s.proxy.Applied(Report{Type: r.Resumed[0].Type, Resources: r.Resumed, Answered: now})
	}
	if !ok {
		return false
	}
	r.Encode(s.session.World(), m)
	m.Changed(r.Changed)
	s.server.meters.responses[r.Type].Add(1)
	if !s.told {
		s.told = true
		s.server.meters.start.Observe(now.Sub(s.began))
	}
	return true
}

// answered reports an ACK or a NACK.
func (s *stream) answered(a *session.Answer, now time.Time) {
	m := s.server.meters
	if a.Refused != "" {
		m.nacks[a.Type].Add(1)
		s.server.refusals.log(s.server.cfg.Log, s.id, a)
	} else {
		m.acks[a.Type].Add(1)
		m.acked.Observe(now.Sub(a.Sent))
		if !a.Changed.IsZero() {
			m.applied.Observe(now.Sub(a.Changed))
		}
	}
	if s.proxy != nil {
		s.proxy.Applied(Report{Type: a.Type, Resources: a.Resources, Removed: a.Removed, Refused: a.Refused, Sent: a.Sent,
			Answered: now, Changed: a.Changed})
	}
}

// HalfClose implements h2.Call.
func (s *stream) HalfClose() { s.grpc.Finish(h2.OK, "") }

// Closed implements h2.Call.
func (s *stream) Closed() {
	s.server.meters.open.Add(-1)
	if s.cancel != nil {
		s.cancel()
	}
	if s.unbind != nil {
		s.unbind()
	}
	s.proxy, s.session, s.early = nil, session.Session{}, nil
}

// opener runs what may wait on a bounded number of goroutines, in order. Its
// queue is bounded by the number of streams: each adds one function.
type opener struct {
	workers int
	mu      sync.Mutex
	queue   []func()
	busy    int
	all     sync.WaitGroup
}

func (o *opener) add(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, f)
	if o.busy < o.workers {
		o.busy++
		o.all.Go(o.work)
	}
}

func (o *opener) work() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 {
			o.busy--
			o.queue = nil
			o.mu.Unlock()
			return
		}
		f := o.queue[0]
		o.queue[0] = nil
		o.queue = o.queue[1:]
		o.mu.Unlock()
		f()
	}
}
