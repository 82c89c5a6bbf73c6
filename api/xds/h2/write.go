package h2

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// flushBytes is where one write ends and the next begins; bufferBytes has room
// for one more frame behind it.
const (
	flushBytes  = 32 << 10
	bufferBytes = flushBytes + 20<<10
)

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferBytes); return &b }}

func (c *Conn) kick() {
	select {
	case c.kicked <- struct{}{}:
	default:
	}
}

func (c *Conn) wake(s *Stream) {
	c.wakeMu.Lock()
	c.woken = append(c.woken, s)
	c.wakeMu.Unlock()
	c.kick()
}

// hasWork reports whether the writer should look. Woken streams kick on their own.
func (c *Conn) hasWork() bool { return len(c.ctrl) > 0 || len(c.ready) > 0 || c.closing }

// write writes what the streams have to say until the connection ends.
func (c *Conn) write() {
	for range c.kicked {
		for {
			more, err := c.flush()
			if err != nil {
				_ = c.nc.Close()
				return
			}
			if more {
				continue
			}
			if c.finished() {
				c.closeWrite()
				return
			}
			break
		}
	}
}

// finished reports whether everything is said on a connection that is to end.
// What came up during the last write has kicked the writer again.
func (c *Conn) finished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing && len(c.ctrl) == 0 && len(c.ready) == 0
}

// closeWrite lets the peer see the end after our last words.
func (c *Conn) closeWrite() {
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		_ = c.nc.SetReadDeadline(time.Now().Add(time.Second))
		return
	}
	_ = c.nc.Close()
}

// flush gathers what is there to be written, up to a buffer's size, and writes it at once.
func (c *Conn) flush() (more bool, err error) {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	now := time.Now()
	c.mu.Lock()
	b := c.gather((*pooled)[:0], now)
	more = len(c.ready) > 0
	c.mu.Unlock()
	if cap(b) <= 2*bufferBytes {
		*pooled = b[:0]
	}
	if len(b) == 0 {
		return more, nil
	}
	_ = c.nc.SetWriteDeadline(now.Add(c.server.cfg.StallTimeout))
	c.writing.Store(c.server.since(now))
	_, err = c.nc.Write(b)
	c.writing.Store(0)
	c.server.flushes.Add(1)
	c.server.bytes.Add(uint64(len(b)))
	if len(c.changed) > 0 {
		if err == nil {
			c.server.cfg.Written(c.changed, time.Now())
		}
		c.changed = c.changed[:0]
	}
	return more, err
}

// gather appends the control frames and what the ready streams have to say.
func (c *Conn) gather(b []byte, now time.Time) []byte {
	c.collect()
	b = append(b, c.ctrl...)
	if c.ctrl = c.ctrl[:0]; cap(c.ctrl) > maxScratch {
		c.ctrl = nil
	}
	n := 0
	for ; n < len(c.ready) && len(b) < flushBytes; n++ {
		s := c.ready[n]
		c.ready[n] = nil
		s.queued = false
		if !s.closed {
			b = c.produce(s, b, now)
		}
	}
	rest := copy(c.ready, c.ready[n:])
	clear(c.ready[rest:])
	c.ready = c.ready[:rest]
	c.msg.reset()
	return b
}

// collect makes the woken streams ready.
func (c *Conn) collect() {
	c.wakeMu.Lock()
	list := c.woken
	c.woken = c.spare[:0]
	c.wakeMu.Unlock()
	for _, s := range list {
		s.woken.Store(false) // before the call looks, so that no news is lost
		s.Ready()
	}
	clear(list)
	c.spare = list
}

// produce appends what a stream has to say as far as the windows allow.
func (c *Conn) produce(s *Stream, b []byte, now time.Time) []byte {
	for len(b) < flushBytes {
		switch {
		case s.out == nil && s.ending() != nil:
			return c.trailers(s, b)
		case s.sendWindow <= 0:
			return b // its window update makes it ready
		case c.sendWindow <= 0:
			c.starve(s, now)
			return b
		case s.out != nil:
			b = c.drain(s, b, now)
			continue
		}
		c.msg.reset()
		if !s.call.Fill(&c.msg, now) {
			if s.closed || s.ending() == nil {
				return b
			}
			continue
		}
		if !s.headersSent {
			s.headersSent = true
			b = append(appendFrame(b, len(responseHeaders), http2.FrameHeaders, http2.FlagHeadersEndHeaders, s.id),
				responseHeaders...)
		}
		size := grpcPrefix + c.msg.size
		if size > min(c.peerFrame, int(s.sendWindow), int(c.sendWindow), bufferBytes-flushBytes) {
			s.out, c.restless = c.msg.keep(c.server.since(now)), true
			continue
		}
		b = c.msg.flatten(appendFrame(b, size, http2.FrameData, 0, s.id))
		s.sendWindow -= int32(size)
		c.sendWindow -= int32(size)
		c.note(c.msg.changed)
	}
	s.Ready() // there may be more
	return b
}

// note keeps when the content that was just appended was changed.
func (o *outbound) note(changed int64) {
	if changed != 0 {
		o.changed = append(o.changed, changed)
	}
}

func (c *Conn) starve(s *Stream, now time.Time) {
	if len(c.starved) == 0 {
		c.starvedSince = c.server.since(now)
	}
	s.queued = true
	c.starved = append(c.starved, s)
}

// drain appends frames of the half-sent message.
func (c *Conn) drain(s *Stream, b []byte, now time.Time) []byte {
	n := min(s.out.left, c.peerFrame, int(s.sendWindow), int(c.sendWindow), 16384)
	b = s.out.take(appendFrame(b, n, http2.FrameData, 0, s.id), n)
	s.sendWindow -= int32(n)
	c.sendWindow -= int32(n)
	s.out.since = c.server.since(now)
	if s.out.left == 0 {
		c.note(s.out.changed)
		s.out = nil
	}
	return b
}

// trailers appends the end of the stream.
func (c *Conn) trailers(s *Stream, b []byte) []byte {
	var block []byte
	if !s.headersSent {
		block = append(block, responseHeaders...)
	}
	block = appendTrailers(block, s.rare.status.Code, s.rare.status.Message)
	flags := http2.FlagHeadersEndHeaders | http2.FlagHeadersEndStream
	b = append(appendFrame(b, len(block), http2.FrameHeaders, flags, s.id), block...)
	if !s.remoteDone {
		b = appendFrame(b, 4, http2.FrameRSTStream, 0, s.id)
		b = binary.BigEndian.AppendUint32(b, uint32(http2.ErrCodeNo))
	}
	c.remove(s)
	return b
}
