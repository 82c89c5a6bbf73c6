package rpc

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// DialFunc makes a connection to addr on which a Server listens: wire.Dial with ProtoRPC.
type DialFunc func(ctx context.Context, addr string) (net.Conn, error)

// ClientConfig tells a Client how to reach others. The zero value of each field means its default.
type ClientConfig struct {
	// Dial is required.
	Dial DialFunc
	// Timeout is the deadline of a call whose context has none; 60 s.
	Timeout time.Duration
	// DialTimeout bounds making a connection, its handshakes included; 5 s.
	DialTimeout time.Duration
	// Patience is how long a call waits for a connection to be made; 2 s. The attempt itself goes on.
	Patience time.Duration
	// IdleTimeout closes a connection that carried nothing for so long; 10 min.
	IdleTimeout time.Duration
	// RetryAfter is the longest time for which a failed dial is remembered: calls
	// in between fail at once with its error instead of dialling. The actual time
	// is drawn anew each time; 100 ms.
	RetryAfter time.Duration
	// Lag ends a stream on which neither frame nor heartbeat came; 30 s. Keep it at
	// three heartbeats of the servers.
	Lag time.Duration
	// KeepAlive is the idle time of a connection before it is probed; 20 s.
	KeepAlive time.Duration
	// MaxMessageBytes bounds one answer or frame; 64 MiB.
	MaxMessageBytes int
	// ConnsPerAddr spreads calls over so many connections to each address; 1.
	ConnsPerAddr int
	// own makes each call a grpc call of its own; tests compare.
	own     bool
	Metrics *telemetry.Registry
}

func (c *ClientConfig) complete() {
	setDefault(&c.Timeout, time.Minute)
	setDefault(&c.DialTimeout, 5*time.Second)
	setDefault(&c.Patience, 2*time.Second)
	setDefault(&c.IdleTimeout, 10*time.Minute)
	setDefault(&c.RetryAfter, 100*time.Millisecond)
	setDefault(&c.Lag, 30*time.Second)
	setDefault(&c.KeepAlive, 20*time.Second)
	setDefault(&c.MaxMessageBytes, 64<<20)
	setDefault(&c.ConnsPerAddr, 1)
	if c.Dial == nil {
		c.Dial = func(context.Context, string) (net.Conn, error) {
			return nil, errkind.New(errkind.Invalid, "rpc: client without a Dial func")
		}
	}
}

// Client calls any number of servers, over one connection each that is made when
// it is first needed and closed when it was idle for IdleTimeout.
type Client struct {
	cfg     ClientConfig
	options []grpc.CallOption
	// sent counts calls and streams, failed those that got no answer: a handler's error is one.
	sent, failed *telemetry.Counter
	// mu guards peers and closed; never held while dialling or calling.
	mu     sync.RWMutex
	peers  map[string][]*target
	closed bool
	swept  time.Time
}

// NewClient returns a Client without connections. Close it to drop them.
func NewClient(cfg ClientConfig) *Client {
	cfg.complete()
	return &Client{cfg: cfg, peers: map[string][]*target{}, swept: time.Now(),
		sent: cfg.Metrics.Counter("client.rpc"), failed: cfg.Metrics.Counter("client.rpc.failed"), options: []grpc.CallOption{
			grpc.ForceCodecV2(codec{}),
			grpc.MaxCallRecvMsgSize(cfg.MaxMessageBytes + frameOverheadBytes),
			grpc.MaxCallSendMsgSize(math.MaxInt32),
		}}
}

// Close drops all connections; calls in flight fail.
func (c *Client) Close() error {
	c.mu.Lock()
	peers := c.peers
	c.peers, c.closed = nil, true
	c.mu.Unlock()
	for _, list := range peers {
		for _, t := range list {
			t.close()
		}
	}
	return nil
}

// target returns the connection slot for addr, making it on first use.
func (c *Client) target(addr string) (*target, error) {
	c.mu.RLock()
	list, closed := c.peers[addr], c.closed
	c.mu.RUnlock()
	if list == nil && !closed {
		list, closed = c.addPeer(addr)
	}
	if closed {
		return nil, errkind.New(errkind.Unavailable, "rpc: client is closed")
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return list[rand.IntN(len(list))], nil
}

func (c *Client) addPeer(addr string) (list []*target, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, true
	}
	if list := c.peers[addr]; list != nil {
		return list, false
	}
	for range c.cfg.ConnsPerAddr {
		list = append(list, &target{cfg: &c.cfg, options: c.options, addr: addr})
	}
	c.peers[addr] = list
	// Addresses come and go over months: forget, now and then, those long unused.
	if time.Since(c.swept) > c.cfg.IdleTimeout {
		c.swept = time.Now()
		for other, slots := range c.peers {
			if other != addr && unused(slots) {
				delete(c.peers, other)
			}
		}
	}
	return list, false
}

func unused(slots []*target) bool {
	for _, t := range slots {
		if l := t.live.Load(); l != nil && l.cc.GetState() == connectivity.Ready {
			return false
		}
	}
	return true
}

// Call sends req to the handler of method at addr and returns its answer, which
// belongs to the caller. req must not be changed before Call returns.
//
// A request that certainly was not sent (nobody listens, the connection had died)
// is tried once more on a fresh connection; one that may have been sent is not.
//
// While it waits the connection is watched: one that shows no sign of life is given up within
// 2 s, with an error of kind Unknown.
func (c *Client) Call(ctx context.Context, addr, method string, req []byte) ([]byte, error) {
	return c.call(ctx, addr, method, req, false)
}

// Wait is Call for a request that is expected to wait, such as a blocking query: a silent
// connection is noticed within 7 s, and far fewer signs of life are asked for.
func (c *Client) Wait(ctx context.Context, addr, method string, req []byte) ([]byte, error) {
	return c.call(ctx, addr, method, req, true)
}

func (c *Client) call(ctx context.Context, addr, method string, req []byte, waits bool) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	t, err := c.target(addr)
	if err != nil {
		return nil, err
	}
	in := request{method: method, payload: req}
	done := func(l *live) {
		if waits {
			l.pulse.parked.Add(-1)
		}
		l.release()
	}
	for again := false; ; again = true {
		l, err := t.get(ctx)
		if err != nil {
			return nil, err
		}
		if waits {
			l.pulse.parked.Add(1)
		}
		var out reply
		if m := c.muxFor(l, method, req); m != nil {
			body, full, err := m.call(ctx, method, req)
			if !full && err == nil {
				err = out.unmarshal(body)
			}
			switch {
			case full || errors.Is(err, errNotSent) && again:
				// By a call of its own, below.
			case errors.Is(err, errNotSent):
				done(l)
				continue
			default:
				done(l)
				if err != nil {
					c.failed.Add(1)
					return nil, failure(ctx, addr, method, l.cause(err), true)
				}
				return out.payload, out.err
			}
		}
		var reached peer.Peer
		options := append(c.options[:len(c.options):len(c.options)], grpc.Peer(&reached))
		if len(req) > pieceBytes {
			err = callLarge(ctx, l.cc, &in, &out, options)
		} else {
			err = l.cc.Invoke(ctx, pathCall, &in, &out, options...)
		}
		done(l)
		if err == nil {
			return out.payload, out.err
		}
		if reached.Addr == nil && !again && status.Code(err) == codes.Unavailable && ctx.Err() == nil {
			t.forget(l)
			continue
		}
		c.failed.Add(1)
		return nil, failure(ctx, addr, method, l.cause(err), reached.Addr != nil)
	}
}

// muxFor returns the stream that a call of this size shares, nil when it goes by itself.
func (c *Client) muxFor(l *live, method string, req []byte) *mux {
	if c.cfg.own || c.cfg.MaxMessageBytes < muxLeastLimit || len(req) > muxMaxRequest || method == "" ||
		len(method) > math.MaxUint8 {
		return nil
	}
	return l.shared(c.options, &c.cfg)
}

// failure gives a transport's error its kind.
func failure(ctx context.Context, addr, method string, err error, sent bool) error {
	var classified *errkind.Error
	if errors.As(err, &classified) {
		return err
	}
	op := "rpc " + method + " to " + addr
	lost := errkind.Unavailable
	if sent {
		lost = errkind.Unknown
	}
	if ctxErr := ctx.Err(); ctxErr != nil && errors.Is(err, ctxErr) {
		return errkind.E(lost, op, ctxErr)
	}
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded:
		if ctxErr := ctx.Err(); ctxErr != nil {
			return errkind.E(lost, op, ctxErr)
		}
		if s.Code() == codes.DeadlineExceeded {
			// The server's clock of the same deadline was a moment faster.
			return errkind.E(lost, op, context.DeadlineExceeded)
		}
	case codes.ResourceExhausted:
		if strings.Contains(s.Message(), "larger than max") {
			return errkind.E(errkind.TooLarge, op, errors.New(s.Message()))
		}
		return errkind.E(errkind.Overloaded, op, errors.New(s.Message()))
	case codes.Unimplemented:
		return errkind.E(errkind.Invalid, op, errors.New(s.Message()))
	}
	return errkind.E(lost, op, errors.New(s.Message()))
}

var streamDesc = grpc.StreamDesc{StreamName: "stream", ServerStreams: true, ClientStreams: true}

// Stream opens a stream to the handler of method at addr. It lives until its
// handler returns, ctx ends or Close: call Close always. Opening it waits for the
// connection only; a handler's error comes with Recv.
func (c *Client) Stream(ctx context.Context, addr, method string, req []byte) (*Stream, error) {
	c.sent.Add(1)
	t, err := c.target(addr)
	if err != nil {
		c.failed.Add(1)
		return nil, err
	}
	for again := false; ; again = true {
		l, err := t.get(ctx)
		if err != nil {
			c.failed.Add(1)
			return nil, err
		}
		streamCtx, cancel := context.WithCancelCause(ctx)
		stream, err := l.cc.NewStream(streamCtx, &streamDesc, pathStream, c.options...)
		if err == nil {
			err = sendRequest(stream, &request{method: method, payload: req})
		}
		if err == nil {
			l.pulse.parked.Add(1) // it has heartbeats of its own
			s := &Stream{stream: stream, ctx: streamCtx, cancel: cancel, conn: l, lag: c.cfg.Lag, addr: addr, method: method}
			s.watch = time.AfterFunc(math.MaxInt64, s.lagged)
			s.watch.Stop()
			return s, nil
		}
		cancel(err)
		l.release()
		if !again && status.Code(err) == codes.Unavailable && ctx.Err() == nil {
			t.forget(l)
			continue
		}
		c.failed.Add(1)
		return nil, failure(ctx, addr, method, err, false)
	}
}

// Stream is the receiving side of a stream. Recv is for one goroutine; Close may
// be called from any, more than once.
type Stream struct {
	stream       grpc.ClientStream
	ctx          context.Context
	cancel       context.CancelCauseFunc
	conn         *live
	watch        *time.Timer
	lag          time.Duration
	once         sync.Once
	addr, method string
}

var errLagging = errkind.New(errkind.Unavailable, "rpc: neither frame nor heartbeat came on the stream")

func (s *Stream) lagged() { s.cancel(errLagging) }

// Recv returns the next frame, which belongs to the caller. io.EOF is the end in
// order; after any error the stream is over.
func (s *Stream) Recv() ([]byte, error) {
	for {
		var r reply
		s.watch.Reset(s.lag)
		err := s.stream.RecvMsg(&r)
		s.watch.Stop()
		switch {
		case err != nil:
			err = s.reason(err)
			s.Close()
			return nil, err
		case r.heartbeat:
			continue
		}
		return r.payload, r.err
	}
}

func (s *Stream) reason(err error) error {
	if err == io.EOF {
		return io.EOF
	}
	if cause := context.Cause(s.ctx); cause != nil {
		if errors.Is(cause, errLagging) {
			return errkind.E(errkind.Unavailable, "rpc "+s.method+" from "+s.addr, cause)
		}
		return errkind.E(errkind.Unavailable, "rpc "+s.method+" from "+s.addr, s.ctx.Err())
	}
	if told := metadata.MD(s.stream.Trailer()).Get(trailerError); len(told) > 0 {
		return decodeError([]byte(told[0]))
	}
	return failure(s.ctx, s.addr, s.method, s.conn.cause(err), false)
}

// Close ends the stream and frees what it holds.
func (s *Stream) Close() error {
	s.once.Do(func() {
		s.watch.Stop()
		s.cancel(context.Canceled)
		s.conn.pulse.parked.Add(-1)
		s.conn.release()
	})
	return nil
}
