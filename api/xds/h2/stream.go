package h2

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// Call is what a stream is for. All methods run under the connection's lock, one
// at a time, and must be quick. After Closed none is called.
type Call interface {
	// Message takes a request; b is valid during the call. A Status ends the stream.
	Message(b []byte, now time.Time) *Status
	// HalfClose says that the client will send no more.
	HalfClose()
	// Fill puts the next response into m, or returns false when there is none: it is
	// asked again after Wake or Ready.
	Fill(m *Message, now time.Time) bool
	// Closed says that the stream is gone.
	Closed()
}

// Stream is one call's side of a connection. Its methods but Wake and Do must
// be called under the connection's lock: from a Call's methods or within Do.
//
// It is 64 bytes, a cache line: with 100,000 streams in a process none is in a cache when its turn comes.
type Stream struct {
	conn *Conn
	call Call
	rare *rare    // mostly nil
	out  *pending // a half-sent message

	id         uint32
	sendWindow int32
	recvLeft   int32 // what the peer may still send

	woken       atomic.Bool // in conn.woken
	queued      bool        // in conn.ready or conn.starved
	headersSent bool
	remoteDone  bool
	closed      bool
}

// rare is what a stream has at its beginning, at its end and now and then.
type rare struct {
	in       []byte     // a half-received message
	began    int64      // when the stream, or the message in in, began
	deadline int64      // of the client's, 0 for none
	heard    bool       // a message came
	room     limit.Hold // what in has of the budget
	// status is what the stream ends with, once everything before is written.
	status *Status
}

// seldom is rare, made if there is none.
func (s *Stream) seldom() *rare {
	if s.rare == nil {
		s.rare = &rare{heard: true}
		s.conn.restless = true
	}
	return s.rare
}

// ending is what the stream ends with; nil while it does not.
func (s *Stream) ending() *Status {
	if s.rare == nil {
		return nil
	}
	return s.rare.status
}

// settle forgets what is over.
func (s *Stream) settle() {
	if r := s.rare; r != nil && r.heard && len(r.in) == 0 && r.deadline == 0 && r.status == nil {
		s.rare = nil
	}
}

// partial is the half-received message.
func (s *Stream) partial() []byte {
	if s.rare == nil {
		return nil
	}
	return s.rare.in
}

// Wake says that the call may have something to send. It never blocks and may be
// called from anywhere, under any lock, also after the stream is closed.
func (s *Stream) Wake() {
	if !s.woken.Swap(true) {
		s.conn.wake(s)
	}
}

// Do runs f under the connection's lock, unless the stream is closed.
func (s *Stream) Do(f func()) bool {
	c := s.conn
	c.mu.Lock()
	ok := !s.closed
	if ok {
		f()
	}
	kick := c.hasWork()
	c.mu.Unlock()
	if kick {
		c.kick()
	}
	return ok
}

// Ready says that the call may have something to send.
func (s *Stream) Ready() {
	if !s.closed && !s.queued {
		s.queued = true
		s.conn.ready = append(s.conn.ready, s)
	}
}

// Finish ends the stream with a status after what is being sent.
func (s *Stream) Finish(code Code, message string) { s.finish(&Status{code, message}) }

func (s *Stream) finish(status *Status) {
	if s.closed || s.ending() != nil {
		return
	}
	s.seldom().status = status
	s.hold(nil)
	s.Ready()
}

// Remote is the peer's address.
func (s *Stream) Remote() net.Addr { return s.conn.nc.RemoteAddr() }

// Name says who the client at the other end of the connection is, for metrics. It is no stranger any more.
func (s *Stream) Name(name string) {
	s.conn.setName(name)
	limit.Known(s.conn.nc)
}

// hold keeps b as the half-received message and accounts for it.
func (s *Stream) hold(b []byte) {
	n := len(b) - len(s.partial())
	if n == 0 && len(b) == 0 {
		return
	}
	s.conn.server.partial.Add(int64(n))
	if s.seldom().in = b; len(b) <= limit.FreeBytes {
		s.rare.room.End()
	}
}

// admit finds room for a half-received message of n bytes, or ends the stream. Small ones cost nothing.
func (s *Stream) admit(n int) bool {
	bytes := s.conn.server.cfg.Bytes
	if n <= limit.FreeBytes || bytes == nil {
		return true
	}
	r := s.seldom()
	if r.room == (limit.Hold{}) {
		r.room = bytes.Hold(limit.AddrOf(s.Remote()))
	}
	if err := r.room.Gather(n); err != nil {
		s.Finish(ResourceExhausted, errkind.Text(err))
		return false
	}
	return true
}

// receive takes a piece of the requests' bytes.
func (s *Stream) receive(data []byte, now time.Time) {
	if s.ending() != nil {
		return
	}
	limits := &s.conn.server.cfg
	if held := s.partial(); len(held) > 0 {
		if !s.admit(len(held) + len(data)) {
			return
		}
		s.hold(append(held, data...))
		data = s.rare.in
	}
	for len(data) > 0 {
		if data[0] != 0 {
			s.Finish(Unimplemented, "compressed messages are not taken: send them plain (grpc-encoding: identity)")
			return
		}
		if len(data) < grpcPrefix {
			break
		}
		size := int(binary.BigEndian.Uint32(data[1:]))
		if size > limits.MaxMessage {
			s.Finish(ResourceExhausted, "the request is larger than the server takes")
			return
		}
		if len(data) < grpcPrefix+size {
			break
		}
		if s.rare != nil {
			s.rare.heard = true
		}
		if status := s.call.Message(data[grpcPrefix:grpcPrefix+size], now); status != nil {
			s.finish(status)
		}
		if s.closed || s.ending() != nil {
			return
		}
		data = data[grpcPrefix+size:]
	}
	switch {
	case len(data) == 0:
		s.hold(nil)
		s.settle()
	case len(data) != len(s.partial()): // else it is what is held
		s.hold(append([]byte(nil), data...))
		s.rare.began = s.conn.server.since(now)
	}
	if len(s.partial()) > 0 && s.conn.server.partial.Load() > int64(limits.MaxPartial) {
		s.Finish(ResourceExhausted, "the server holds too many half-received requests: try again later")
	}
}

// end takes the end of the client's side.
func (s *Stream) end() {
	s.remoteDone = true
	if s.ending() != nil {
		return
	}
	if len(s.partial()) > 0 {
		s.Finish(Internal, "the stream ended within a message")
		return
	}
	s.call.HalfClose()
}

// remove forgets the stream.
func (c *Conn) remove(s *Stream) {
	if s.closed {
		return
	}
	s.hold(nil)
	s.closed, s.out = true, nil
	delete(c.streams, s.id)
	c.recent[c.recentAt%len(c.recent)] = s.id
	c.recentAt++
	c.server.streams.Add(-1)
	s.call.Closed()
}

// reset ends a stream at once.
func (c *Conn) reset(id uint32, code http2.ErrCode) {
	c.control(http2.FrameRSTStream, 0, id, binary.BigEndian.AppendUint32(nil, uint32(code)))
	if s := c.streams[id]; s != nil {
		c.server.cut.Add(1)
		c.remove(s)
	}
}

// refused is the call of a stream that only gets a status.
type refused struct{}

func (refused) Message([]byte, time.Time) *Status { return nil }
func (refused) HalfClose()                        {}
func (refused) Fill(*Message, time.Time) bool     { return false }
func (refused) Closed()                           {}
