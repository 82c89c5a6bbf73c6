package feed

import "time"

// outBuffer is what one write takes.
type outBuffer struct {
	b []byte
	// at are the commits of the values that this write completes.
	at    []time.Time
	beats int
	stops []func() // of follows that ended, to be called without a lock
}

// write sends until nothing is left, or the connection is gone. There is at most one at a time.
func (c *serverConn) write() {
	defer c.s.served.Done()
	out := c.s.buffer(c.estimate())
	for {
		c.mu.Lock()
		more := c.fillLocked(out)
		last := c.bye != nil && c.state.ended
		if !more {
			c.state.writing = false
			c.began = time.Time{}
			c.mu.Unlock()
			break
		}
		c.began = c.s.cfg.Clock.Now()
		c.mu.Unlock()
		_, err := c.conn.Write(out.b)
		for _, stop := range out.stops {
			stop()
		}
		if err != nil {
			c.close()
			continue // fillLocked sees it
		}
		c.s.count(out)
		if last {
			c.farewell()
		}
	}
	c.s.release(out)
}

// estimate is how much there is to write, roughly, as far as that decides on the buffer.
func (c *serverConn) estimate() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.part.rest != nil || c.out.large.first != nil {
		return largeBufferBytes
	}
	for f := c.out.dirty.first; f != nil && n < smallBufferBytes; f = f.next {
		n += valueHeadBytes + len(f.value.Body)
	}
	return n
}

// buffer takes a buffer that suits size, a small one when too much is in flight.
func (s *Server) buffer(size int) *outBuffer {
	pool := &s.small
	if size > smallBufferBytes-reserveBytes && s.inFlight.Load() < s.cfg.InFlightBytes {
		pool = &s.buffers
	}
	out := pool.Get().(*outBuffer)
	s.inFlight.Add(int64(cap(out.b)))
	return out
}

func (s *Server) release(out *outBuffer) {
	s.inFlight.Add(-int64(cap(out.b)))
	out.reset()
	if cap(out.b) >= largeBufferBytes {
		s.buffers.Put(out)
	} else {
		s.small.Put(out)
	}
}

func (o *outBuffer) reset() {
	clear(o.at)
	clear(o.stops)
	o.b, o.at, o.stops, o.beats = o.b[:0], o.at[:0], o.stops[:0], 0
}

// room is how many bytes fit besides a heartbeat.
func (o *outBuffer) room() int { return cap(o.b) - len(o.b) - reserveBytes }

func (s *Server) count(out *outBuffer) {
	m := &s.meters
	m.bytes.Add(uint64(len(out.b)))
	if out.beats > 0 {
		m.heartbeats.Add(1)
	}
	if len(out.at) == 0 {
		return
	}
	m.values.Add(uint64(len(out.at)))
	now := s.cfg.Clock.Now()
	for _, at := range out.at {
		if !at.IsZero() {
			m.written.Observe(now.Sub(at))
		}
	}
}

// fillLocked encodes what is to be sent next; false when there is nothing, or nobody to take it.
func (c *serverConn) fillLocked(out *outBuffer) bool {
	out.reset()
	if c.state.closed || c.state.ended {
		return false
	}
	if !c.state.welcomed && c.version > 0 && c.bye == nil {
		out.b = welcome{c.version, c.s.cfg.Heartbeat}.append(out.b)
		c.state.welcomed = true
		if c.state.beating { // what its server may be behind, and of which history, an agent must know before the first value
			first := c.pulse.beat
			first.sent = 0
			out.b = first.append(out.b)
		}
	}
	if c.bye != nil {
		out.b = appendBye(out.b, c.bye)
		c.state.ended = true
		return true
	}
	if c.state.corked && c.out.part.rest == nil && !c.state.beating {
		return len(out.b) > 0
	}
	for again := true; again; {
		for c.out.dirty.first != nil && c.fillOneLocked(out) {
		}
		again = c.fillLargeLocked(out)
	}
	now := c.s.cfg.Clock.Now()
	if len(out.at) > 0 {
		c.rideLocked(now)
	}
	if c.state.beating {
		if c.out.dirty.first == nil && c.out.large.first == nil && c.out.part.rest == nil {
			c.pulse.beat.sent = c.pulse.beat.known
		}
		out.b = c.pulse.beat.append(out.b)
		out.beats, c.state.beating, c.pulse.beatAt = 1, false, now
	}
	return len(out.b) > 0
}

// fillOneLocked sends or moves on the first dirty subject; false when it does not fit.
func (c *serverConn) fillOneLocked(out *outBuffer) bool {
	f := c.out.dirty.first
	size := valueHeadBytes + len(f.value.Body)
	switch {
	case f.ended:
	case f.err != nil:
		if out.room() < valueHeadBytes+maxTextBytes && len(out.b) > 0 {
			return false
		}
		c.goneLocked(out, f)
	case f.unchanged:
		if out.room() < valueHeadBytes {
			return false
		}
		out.b = appendUnchanged(out.b, f.id)
		f.unchanged = false
		c.s.meters.unchanged.Add(1)
	case len(f.value.Body) > chunkBytes || size > cap(out.b)-reserveBytes:
		c.out.large.push(c.out.dirty.pop()) // still queued, and dirty
		return true
	case size > out.room():
		return false
	default:
		c.beginLocked(out, f, len(f.value.Body))
	}
	c.out.dirty.pop()
	f.queued = false
	c.s.dirtied.Add(-1)
	return true
}

// goneLocked tells that a follow has ended, and ends it here.
func (c *serverConn) goneLocked(out *outBuffer, f *serverFollow) {
	out.b = appendGone(out.b, f.id, f.err)
	f.ended = true
	if c.failing--; c.failing < maxFailing/2 {
		c.makeRoomLocked()
	}
	if c.follows[f.id] == f {
		delete(c.follows, f.id)
		c.s.followed.Add(-1)
		out.stops = append(out.stops, f.stop)
	}
}

// beginLocked appends a value with the first n bytes of its body, the rest of which becomes the part.
func (c *serverConn) beginLocked(out *outBuffer, f *serverFollow, n int) {
	v := f.value
	head := valueHead{id: f.id, generation: v.Generation, index: v.Index, total: len(v.Body)}
	if v.Body == nil {
		head.total = -1
	}
	if !v.At.IsZero() {
		head.at = v.At.UnixNano()
	}
	out.b = head.append(out.b, v.Body[:n])
	if n < len(v.Body) {
		c.out.part = part{v.Body[n:], v.At}
	} else {
		out.at = append(out.at, v.At)
	}
	f.value, f.valued = Value{}, false
}

// minPartBytes is the least of a body that is worth a frame.
const minPartBytes = 512

// fillLargeLocked fills the room that is left with parts of large values, one value at a
// time; true when it gave one back to the dirty subjects.
func (c *serverConn) fillLargeLocked(out *outBuffer) bool {
	for {
		n := min(out.room()-valueHeadBytes, chunkBytes)
		if n < minPartBytes {
			return false
		}
		if rest := c.out.part.rest; rest != nil {
			n = min(n, len(rest))
			out.b = appendChunk(out.b, rest[:n])
			if c.out.part.rest = rest[n:]; n == len(rest) {
				out.at = append(out.at, c.out.part.at)
				c.out.part = part{}
			}
			continue
		}
		if c.out.large.first == nil {
			return false
		}
		f := c.out.large.pop()
		if f.err != nil && !f.ended { // meanwhile
			c.out.dirty.push(f)
			return true
		}
		f.queued = false
		c.s.dirtied.Add(-1)
		if !f.ended {
			c.beginLocked(out, f, min(n, len(f.value.Body)))
		}
	}
}
