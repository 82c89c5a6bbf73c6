package h2

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// Method answers one request with one response or, by send, with as many as it
// likes. send waits until the client takes the message. ctx ends with the call.
type Method func(ctx context.Context, from Caller, request []byte, send func([]byte) error) error

// Caller is who calls a Method.
type Caller struct {
	Metadata
	Remote string // its address
}

// Unary makes a Method of a function with one answer.
func Unary(f func(ctx context.Context, from Caller, request []byte) ([]byte, error)) Method {
	return func(ctx context.Context, from Caller, request []byte, send func([]byte) error) error {
		answer, err := f(ctx, from, request)
		if err != nil {
			return err
		}
		return send(answer)
	}
}

// Calls runs methods, each in a goroutine of its own, no more than Max at once.
type Calls struct {
	Context context.Context // the calls' parent
	Max     int
	running atomic.Int64
	all     sync.WaitGroup
}

// Start begins a call of f: what Config.Start returns for it.
func (c *Calls) Start(s *Stream, f Method, md Metadata) Call {
	return &method{calls: c, stream: s, run: f, md: md}
}

// Wait returns when no call runs; their context must have ended.
func (c *Calls) Wait() { c.all.Wait() }

// method is a running Method's side of the stream.
type method struct {
	calls  *Calls
	stream *Stream
	run    Method
	md     Metadata
	cancel context.CancelFunc

	answer []byte
	has    bool
	taken  chan struct{}
}

func (m *method) Message(b []byte, _ time.Time) *Status {
	if m.cancel != nil {
		return &Status{Unimplemented, "the method takes one request"}
	}
	if m.calls.running.Add(1) > int64(m.calls.Max) {
		m.calls.running.Add(-1)
		return &Status{ResourceExhausted, "the server has too many calls at work: try again later"}
	}
	room := m.stream.conn.server.cfg.Bytes.Hold(limit.AddrOf(m.stream.Remote()))
	if err := room.Gather(len(b)); err != nil {
		m.calls.running.Add(-1)
		return StatusOf(errkind.E(errkind.Overloaded, "", err))
	}
	request := append([]byte(nil), b...)
	ctx, cancel := context.WithCancel(m.calls.Context)
	m.cancel, m.taken = cancel, make(chan struct{}, 1)
	m.calls.all.Go(func() {
		defer m.calls.running.Add(-1)
		defer room.End()
		defer cancel()
		err := m.run(ctx, Caller{m.md, m.stream.Remote().String()}, request,
			func(answer []byte) error { return m.send(ctx, answer) })
		if err == nil {
			limit.Known(m.stream.conn.nc) // its token was good
		}
		m.stream.Do(func() { m.stream.finish(StatusOf(err)) })
	})
	return nil
}

func (m *method) send(ctx context.Context, answer []byte) error {
	if !m.stream.Do(func() { m.answer, m.has = answer, true; m.stream.Ready() }) {
		return context.Canceled
	}
	select {
	case <-m.taken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *method) HalfClose() {
	if m.cancel == nil {
		m.stream.Finish(Internal, "the call ended without a request")
	}
}

func (m *method) Fill(out *Message, _ time.Time) bool {
	if !m.has {
		return false
	}
	out.Shared(m.answer)
	m.has, m.answer = false, nil
	m.taken <- struct{}{}
	return true
}

func (m *method) Closed() {
	if m.cancel != nil {
		m.cancel()
	}
}

var codes = map[errkind.Kind]Code{
	errkind.Invalid: InvalidArgument, errkind.Denied: PermissionDenied, errkind.NotFound: NotFound,
	errkind.Conflict: FailedPrecondition,
	errkind.TooLarge: ResourceExhausted, errkind.Overloaded: ResourceExhausted, errkind.NotLeader: Unavailable,
	errkind.Unavailable: Unavailable, errkind.Corrupt: Internal, errkind.Unknown: Unknown, errkind.Internal: Internal,
}

// StatusOf returns the status that tells a client of err: nil is OK.
func StatusOf(err error) *Status {
	var status *Status
	switch {
	case err == nil:
		return &Status{Code: OK}
	case errors.As(err, &status):
		return status
	case errors.Is(err, context.DeadlineExceeded):
		return &Status{DeadlineExceeded, err.Error()}
	case errors.Is(err, context.Canceled):
		return &Status{Canceled, err.Error()}
	}
	return &Status{codes[errkind.Of(err)], errkind.Text(err)}
}
