package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/framing"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A grpc call costs some 160 allocations and several writes on each side. So small calls
// share one grpc stream for each connection: what is asked at the same time travels in one
// message, and so do the answers. Large requests go by grpc calls of their own; large answers
// come in parts, so that nobody waits behind one.
//
//	call:   1; id, timeout in microseconds, method, payload
//	cancel: 2; id
//	reply:  3; id, body        (body as in frame.go)
//	part:   4; id, bytes       (of a body whose rest follows)
//
// Frames are those of core/framing: numbers and method as in kit/pack, the last field unencoded. A stream that ends in
// order ends after everything that was accepted is answered: what has no answer then was not executed.
const (
	muxCall   = 1
	muxCancel = 2
	muxReply  = 3
	muxPart   = 4
)

const (
	// muxMaxRequest is the largest request that shares the stream.
	muxMaxRequest = 64 << 10
	// muxPartBytes is the largest piece of an answer.
	muxPartBytes = 64 << 10
	// muxChunkBytes is about how much goes into one message.
	muxChunkBytes = 128 << 10
	// muxLeastLimit is the least MaxMessageBytes with which streams are shared: messages hold many calls.
	muxLeastLimit = 1 << 20
	// muxQueueBytes bounds what waits to be written: calls then go their own way, answers wait.
	muxQueueBytes = 4 << 20
)

// muxMessage is one grpc message of a shared stream.
type muxMessage struct{ b []byte }

// errNotSent says that a call was certainly not executed and may go another way.
var errNotSent = errors.New("rpc: the shared stream ended before the call was sent")

// outbox collects frames into messages. One goroutine takes them; many put.
type outbox struct {
	mu     sync.Mutex // guards what follows
	chunks [][]byte
	bytes  int
	last   uint64 // the newest id that a frame of chunks carries
	closed bool
	room   *sync.Cond // on mu: bytes shrank, or closed
	wake   chan struct{}
}

func newOutbox() *outbox {
	o := &outbox{wake: make(chan struct{}, 1)}
	o.room = sync.NewCond(&o.mu)
	return o
}

// tailLocked returns the chunk to append to; needs mu.
func (o *outbox) tailLocked(n int) *[]byte {
	if k := len(o.chunks); k > 0 && len(o.chunks[k-1])+n <= muxChunkBytes {
		return &o.chunks[k-1]
	}
	o.chunks = append(o.chunks, make([]byte, 0, max(n+64, 1024)))
	return &o.chunks[len(o.chunks)-1]
}

// putLocked adds a frame; needs mu.
func (o *outbox) putLocked(kind byte, id uint64, f func([]byte) []byte, size int) {
	tail := o.tailLocked(size + framing.HeadBytes + binary.MaxVarintLen64)
	before := len(*tail)
	b, mark := framing.Begin(*tail, kind)
	if b = pack.Uint(b, id); f != nil {
		b = f(b)
	}
	*tail = framing.End(b, mark)
	o.bytes += len(*tail) - before
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take returns the next message and the newest id that was ever put, nil when there is none.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.chunks) == 0 {
		return nil
	}
	b := o.chunks[0]
	o.chunks[0] = nil
	if o.chunks = o.chunks[1:]; len(o.chunks) == 0 {
		o.chunks = nil
	}
	o.bytes -= len(b)
	o.room.Broadcast()
	return b
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.room.Broadcast()
}

// muxFrame is one frame as read.
type muxFrame struct {
	kind    byte
	id      uint64
	timeout time.Duration
	method  []byte
	body    []byte
}

// nextFrame cuts the first frame off b. What it returns lies within b.
func nextFrame(b []byte) (f muxFrame, rest []byte, err error) {
	kind, payload, rest, err := framing.Cut(b)
	if err != nil {
		return f, nil, err
	}
	r := pack.Read(payload)
	f.kind, f.id = kind, r.Uint()
	switch kind {
	case muxCall:
		f.timeout = time.Duration(min(r.Uint(), uint64(24*time.Hour/time.Microsecond))) * time.Microsecond
		f.method = r.Bytes()
	case muxReply, muxPart, muxCancel:
	default:
		return f, nil, errFrame
	}
	f.body = payload[len(payload)-r.Len():]
	return f, rest, r.Err()
}

// mux is the client's end of a shared stream.
type mux struct {
	out    *outbox
	idle   time.Duration
	most   int // bytes of an answer
	stream grpc.ClientStream
	cancel context.CancelFunc

	mu      sync.Mutex // guards what follows; never held with out.mu, except that mu is taken first
	pending map[uint64]*muxed
	next    uint64
	ended   error // why no more calls are taken

	written atomic.Uint64 // ids up to this one may have been sent
	used    atomic.Int64  // when the last call began, as UnixNano
}

// muxed is a call that waits. They are pooled with their channels.
type muxed struct {
	done  chan struct{} // one slot
	body  []byte
	whole []byte // the parts so far
	err   error  // errNotSent, or what ended the stream
}

var muxedPool = sync.Pool{New: func() any { return &muxed{done: make(chan struct{}, 1)} }}

var muxDesc = grpc.StreamDesc{StreamName: "mux", ServerStreams: true, ClientStreams: true}

// openMux opens the shared stream of a connection. Its two goroutines end with the stream.
func openMux(cc *grpc.ClientConn, options []grpc.CallOption, cfg *ClientConfig) (*mux, error) {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := cc.NewStream(ctx, &muxDesc, pathMux, options...)
	if err != nil {
		cancel()
		return nil, err
	}
	m := &mux{out: newOutbox(), idle: cfg.IdleTimeout, most: cfg.MaxMessageBytes, stream: stream, cancel: cancel,
		pending: map[uint64]*muxed{}}
	m.used.Store(time.Now().UnixNano())
	go m.write()
	go m.read()
	return m, nil
}

// call sends one request; full reports that it has to go another way.
func (m *mux) call(ctx context.Context, method string, req []byte) (body []byte, full bool, err error) {
	c := muxedPool.Get().(*muxed)
	timeout := time.Minute
	if at, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(at), 0)
	}
	m.used.Store(time.Now().UnixNano())
	m.mu.Lock()
	if m.ended != nil {
		m.mu.Unlock()
		muxedPool.Put(c)
		return nil, false, errNotSent
	}
	m.out.mu.Lock()
	if m.out.bytes > muxQueueBytes {
		m.out.mu.Unlock()
		m.mu.Unlock()
		muxedPool.Put(c)
		return nil, true, nil
	}
	m.next++
	id := m.next
	m.pending[id] = c
	m.out.last = id
	m.out.putLocked(muxCall, id, func(b []byte) []byte {
		return append(pack.String(pack.Uint(b, uint64(timeout/time.Microsecond)), method), req...)
	}, len(method)+len(req)+3*binary.MaxVarintLen64)
	m.out.mu.Unlock()
	m.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if m.abandon(id) {
			muxedPool.Put(c)
			return nil, false, ctx.Err()
		}
		<-c.done // the answer came at the same time
	}
	body, err = c.body, c.err
	c.body, c.whole, c.err = nil, nil, nil
	muxedPool.Put(c)
	return body, false, err
}

// abandon forgets a call and tells the server; false when it is answered already.
func (m *mux) abandon(id uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, waits := m.pending[id]; !waits {
		return false
	}
	delete(m.pending, id)
	m.out.mu.Lock()
	m.out.putLocked(muxCancel, id, nil, 0)
	m.out.mu.Unlock()
	return true
}

func (m *mux) write() {
	tick := time.NewTicker(max(m.idle/4, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-m.out.wake:
		case <-m.stream.Context().Done():
			return
		case <-tick.C:
			if m.quiet() {
				_ = m.stream.CloseSend() // the server ends the stream, and read notices
			}
			continue
		}
		for {
			runtime.Gosched() // who is about to ask as well comes along
			m.out.mu.Lock()
			m.written.Store(m.out.last)
			m.out.mu.Unlock()
			b := m.out.take()
			if b == nil {
				break
			}
			if err := m.stream.SendMsg(&muxMessage{b}); err != nil {
				if err != io.EOF { // else read gets the reason
					m.cancel()
				}
				return
			}
		}
	}
}

// quiet gives the stream up when it was not used for long, so that the connection can be idle.
func (m *mux) quiet() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil || len(m.pending) > 0 || time.Since(time.Unix(0, m.used.Load())) < m.idle {
		return false
	}
	m.ended = errNotSent
	return true
}

func (m *mux) read() {
	defer m.cancel()
	for {
		var msg muxMessage
		err := m.stream.RecvMsg(&msg)
		for err == nil && len(msg.b) > 0 {
			var f muxFrame
			if f, msg.b, err = nextFrame(msg.b); err == nil {
				m.deliver(f)
			}
		}
		if err != nil {
			m.end(err)
			return
		}
	}
}

func (m *mux) deliver(f muxFrame) {
	m.mu.Lock()
	c := m.pending[f.id]
	if c == nil {
		m.mu.Unlock()
		return // it was given up
	}
	if len(c.whole)+len(f.body) > m.most+frameOverheadBytes {
		c.err, f.kind = errkind.Errorf(errkind.TooLarge, "rpc: the answer is larger than max %d bytes", m.most), muxReply
	}
	if f.kind == muxPart {
		c.whole = append(c.whole, f.body...)
		m.mu.Unlock()
		return
	}
	delete(m.pending, f.id)
	m.mu.Unlock()
	c.body = f.body
	if c.whole != nil {
		c.body = append(c.whole, f.body...)
	}
	c.done <- struct{}{}
}

// end answers all who wait. After an end in order nothing of it was executed.
func (m *mux) end(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = why
	m.out.close()
	written := m.written.Load()
	for id, c := range m.pending {
		delete(m.pending, id)
		if c.err = why; why == io.EOF || id > written || status.Code(why) == codes.Unimplemented {
			c.err = errNotSent
		}
		c.done <- struct{}{}
	}
}

// muxServer is the server's end of a shared stream.
type muxServer struct {
	s      *Server
	stream grpc.ServerStream
	out    *outbox
	from   *wire.Peer // who calls

	mu      sync.Mutex // guards what follows
	running map[uint64]context.CancelFunc
	closed  bool          // nothing more is accepted
	empty   chan struct{} // closed when closed and nothing runs
}

// mux serves a shared stream until the client ends it, or the server stops and everything accepted is answered.
func (s *Server) mux(stream grpc.ServerStream) error {
	if s.cfg.MaxMessageBytes < muxLeastLimit {
		return status.Error(codes.Unimplemented, "messages here are too small to be shared")
	}
	m := &muxServer{s: s, stream: stream, out: newOutbox(), from: Caller(stream.Context()),
		running: map[uint64]context.CancelFunc{}, empty: make(chan struct{})}
	ctx := stream.Context()
	var wg sync.WaitGroup
	written := make(chan struct{})
	stopWriting := make(chan struct{})
	go func() { defer close(written); m.write(stopWriting) }()
	// RecvMsg returns only when this handler has: the goroutine ends right after it, and Run waits.
	s.handlers.Add(1)
	ended := make(chan error, 1)
	go func() { defer s.handlers.Done(); ended <- m.read(ctx, &wg) }()
	var err error
	select {
	case err = <-ended:
	case <-s.stopping.Done():
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.refuseMore()
	if err != nil && err != io.EOF { // the client is gone, or talks nonsense
		m.cancelAll()
		m.out.close()
	}
	select {
	case <-m.empty:
	case <-ctx.Done():
		m.cancelAll()
		m.out.close()
		<-m.empty
	}
	wg.Wait()
	close(stopWriting)
	<-written
	m.out.close()
	if err == io.EOF || ctx.Err() != nil {
		return nil
	}
	return err
}

func (m *muxServer) read(ctx context.Context, wg *sync.WaitGroup) error {
	for {
		var msg muxMessage
		if err := m.stream.RecvMsg(&msg); err != nil {
			return err
		}
		for len(msg.b) > 0 {
			f, rest, err := nextFrame(msg.b)
			if err != nil {
				return err
			}
			msg.b = rest
			switch f.kind {
			case muxCall:
				m.accept(ctx, wg, f)
			case muxCancel:
				m.mu.Lock()
				if cancel := m.running[f.id]; cancel != nil {
					cancel()
				}
				m.mu.Unlock()
			default:
				return errFrame
			}
		}
	}
}

// accept starts a call. Once the stream is about to end nothing starts: the client learns that from the end.
func (m *muxServer) accept(ctx context.Context, wg *sync.WaitGroup, f muxFrame) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	if len(m.running) >= int(m.s.cfg.MaxStreams) {
		m.mu.Unlock()
		m.reply(f.id, &reply{err: errkind.New(errkind.Overloaded, "rpc: too many calls on one connection")})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	m.running[f.id] = cancel
	wg.Add(1)
	m.mu.Unlock()
	m.s.workers.do(func() {
		defer wg.Done()
		out := m.s.answer(ctx, m.from, m.s.calls[string(f.method)], f.method, f.body)
		m.reply(f.id, out)
		cancel()
		m.mu.Lock()
		delete(m.running, f.id)
		if m.closed && len(m.running) == 0 {
			close(m.empty)
		}
		m.mu.Unlock()
	})
}

func (m *muxServer) refuseMore() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if len(m.running) == 0 {
		close(m.empty)
	}
}

func (m *muxServer) cancelAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, cancel := range m.running {
		cancel()
	}
}

// reply queues an answer; it waits while too much is queued, until the stream ends.
func (m *muxServer) reply(id uint64, r *reply) {
	body := r.flat()
	o := m.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for o.bytes > muxQueueBytes && !o.closed {
			o.room.Wait()
		}
		if o.closed {
			return
		}
		if len(body) <= muxPartBytes {
			break
		}
		part := body[:muxPartBytes]
		body = body[muxPartBytes:]
		o.putLocked(muxPart, id, func(b []byte) []byte { return append(b, part...) }, len(part))
	}
	o.putLocked(muxReply, id, func(b []byte) []byte { return append(b, body...) }, len(body))
}

// write sends until the stream is gone, or stop is closed and all is sent.
func (m *muxServer) write(stop <-chan struct{}) {
	for last := false; ; {
		for b := m.out.take(); b != nil; b = m.out.take() {
			if err := m.stream.SendMsg(&muxMessage{b}); err != nil {
				m.out.close()
				<-stop
				return
			}
		}
		if last {
			return
		}
		select {
		case <-m.out.wake:
			runtime.Gosched() // who is about to answer as well comes along
		case <-stop:
			last = true
		}
	}
}

// workers keep goroutines with grown stacks for calls; when none is free a call gets a new one.
type workers struct {
	jobs chan func()
	idle atomic.Int32
	stop <-chan struct{}
}

func (w *workers) do(job func()) {
	select {
	case w.jobs <- job:
	default:
		go w.run(job)
	}
}

func (w *workers) run(job func()) {
	for {
		job()
		if w.idle.Add(1) > streamWorkers {
			w.idle.Add(-1)
			return
		}
		select {
		case job = <-w.jobs:
			w.idle.Add(-1)
		case <-w.stop:
			w.idle.Add(-1)
			return
		}
	}
}
