package rpc

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var errStopping = errkind.New(errkind.Unavailable, "server is stopping")

// trailerError carries the error that ended a stream: a trailer passes even when
// the consumer's flow control lets no frame through.
const trailerError = "corbel-error-bin"

// outgoing is the sending side of one stream: the handler's frames, heartbeats
// between them, and what the watch over a slow consumer needs to know.
type outgoing struct {
	stream grpc.ServerStream
	ctx    context.Context
	// sending serialises SendMsg. A heartbeat only tries it: when it is taken, a frame is on its way.
	sending sync.Mutex
	// mu guards began and last: when the SendMsg in progress began (zero: none), when the last one ended.
	mu          sync.Mutex
	began, last time.Time
}

func (o *outgoing) send(r *reply) error {
	o.sending.Lock()
	defer o.sending.Unlock()
	return o.sendLocked(r)
}

func (o *outgoing) sendLocked(r *reply) error {
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	o.mu.Lock()
	o.began = time.Now()
	o.mu.Unlock()
	err := o.stream.SendMsg(r)
	o.mu.Lock()
	o.began, o.last = time.Time{}, time.Now()
	o.mu.Unlock()
	if err != nil {
		return errkind.E(errkind.Unavailable, "rpc: send", err)
	}
	return nil
}

// look reports for how long the send in progress has lasted (0: none), and for how long nothing was sent.
func (o *outgoing) look(now time.Time) (stuck, idle time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.began.IsZero() {
		return max(1, now.Sub(o.began)), 0
	}
	return 0, now.Sub(o.last)
}

func (o *outgoing) heartbeat() {
	if !o.sending.TryLock() {
		return
	}
	defer o.sending.Unlock()
	// A heartbeat that fails means a dead stream, whose context ends anyway.
	_ = o.sendLocked(&reply{heartbeat: true})
}

// stream runs a handler and watches over it. The handler (and each heartbeat) has
// a goroutine of its own because only returning from here unblocks a SendMsg that
// the consumer's flow control holds. Run waits for them through s.handlers.
func (s *Server) stream(stream grpc.ServerStream) error {
	var req request
	if err := stream.RecvMsg(&req); err != nil {
		return err
	}
	m := s.streams[req.method]
	if m == nil {
		return s.end(stream, errkind.New(errkind.NotFound, "rpc: unknown stream "+req.method))
	}
	s.requests.Add(1)
	if from := Caller(stream.Context()); !from.May(m.roles) {
		return s.end(stream, s.refuse(&m.door, from))
	}
	hold := s.cfg.Bytes.Hold(netip.Addr{})
	defer hold.End()
	if err := s.gather(stream, &req, &hold); err != nil {
		return s.end(stream, err)
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(context.Canceled)
	stop := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	defer stop()
	out := &outgoing{stream: stream, ctx: ctx, last: time.Now()}
	done := make(chan error, 1)
	s.handlers.Go(func() {
		_, err := s.guard(req.method, func() ([]byte, error) {
			return nil, m.handle(ctx, req.payload, func(b []byte) error { return out.send(&reply{payload: b}) })
		})
		done <- err
	})
	timer := time.NewTimer(s.cfg.Heartbeat)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			if errors.Is(err, context.Canceled) && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return s.end(stream, err)
		case <-timer.C:
		}
		stuck, idle := out.look(time.Now())
		next := s.cfg.Heartbeat
		switch {
		case stuck >= s.cfg.SendTimeout:
			err := errkind.New(errkind.Overloaded, "rpc: the consumer of the stream is too slow")
			cancel(err)
			s.cfg.Log.Warn("cut a stream whose consumer stopped reading", "method", req.method, "peer", Peer(ctx), "for", stuck)
			return s.end(stream, err)
		case stuck > 0:
			next = min(next, s.cfg.SendTimeout-stuck)
		case idle >= s.cfg.Heartbeat:
			s.handlers.Go(out.heartbeat)
		default:
			next -= idle
		}
		timer.Reset(next)
	}
}

// end tells the client why the stream ended; nil is an end in order.
func (s *Server) end(stream grpc.ServerStream, err error) error {
	if err == nil {
		return nil
	}
	s.failures.Add(1)
	stream.SetTrailer(metadata.Pairs(trailerError, string(encodeError(err)[1:])))
	return status.Error(codes.Aborted, "")
}
