package feed

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"corbel.dev/corbel/core/framing"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// The buffers in which frames of one connection are written together.
	largeBufferBytes = 32 << 10
	smallBufferBytes = 4 << 10
	// reserveBytes are kept free in a buffer for the heartbeat.
	reserveBytes = 80
	// serverReadBytes is the buffer of each connection's reader: what agents send is short.
	serverReadBytes = 1 << 10
	// maxFailing is how many refusals may wait to be written before a connection is read no further.
	maxFailing = 256
	// lingerFor is how long a connection that was told goodbye may take to close.
	lingerFor = time.Second
)

// serverConn is one agent's connection.
type serverConn struct {
	s     *Server
	conn  net.Conn
	place int // in s.conns, -1 when not there; guarded by s.mu

	mu      sync.Mutex // guards all below; never held while calling out or writing
	who     Identity   // node is set by the hello
	version uint64     // spoken here; 0 before the hello
	opened  time.Time
	began   time.Time // of the write in progress
	follows map[uint32]*serverFollow
	out     outgoing
	pulse   pulse
	failing int           // refusals that wait to be written
	room    chan struct{} // not nil: the reader waits for failing to fall
	bye     error         // not nil: the last thing to be sent

	state connState
}

// pulse is the newest heartbeat that was sent.
type pulse struct {
	beat   heartbeat
	beatAt time.Time // when it was sent last
}

// connState is how far a connection is.
type connState struct {
	greeted, welcomed, beating, corked, writing, ended, closed bool
}

// outgoing is what waits to be sent.
type outgoing struct {
	// dirty are the subjects with something to send, in the order in which they were
	// marked; large those of them whose body is sent in parts, one after the other.
	dirty, large followList
	part         part // the value of which only the beginning has been sent
}

// part is a value on its way, in parts.
type part struct {
	rest []byte
	at   time.Time
}

// serverFollow is one subject that a connection follows.
type serverFollow struct {
	c    *serverConn
	id   uint32
	next *serverFollow // in one of the connection's lists
	// value is owed when valued; err is owed when not nil, and is the end.
	value Value
	err   error
	stop  func()
	// generation and since are of the newest value that the follower has, or that is on its way.
	generation, since uint64

	queued, valued, answered, unchanged, ended bool
}

// followList is a FIFO of follows.
type followList struct {
	first, last *serverFollow
}

func (l *followList) push(f *serverFollow) {
	if f.next = nil; l.last == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}

func (l *followList) pop() *serverFollow {
	f := l.first
	if l.first = f.next; l.first == nil {
		l.last = nil
	}
	f.next = nil
	return f
}

func newServerConn(s *Server, conn net.Conn) *serverConn {
	return &serverConn{s: s, conn: conn, place: -1, opened: s.cfg.Clock.Now(), follows: map[uint32]*serverFollow{}}
}

// read serves what the agent sends until the connection ends, and ends everything that belongs to it.
func (c *serverConn) read() {
	err := c.readFrames()
	if kind := errkind.Of(err); kind == errkind.Invalid {
		c.s.meters.cutFrames.Add(1)
		c.s.cfg.Log.Warn("cut a feed connection that broke the protocol", "node", c.who.Node, "remote", c.conn.RemoteAddr(),
			"error", err)
	}
	c.close()
	c.s.remove(c)
	c.mu.Lock()
	follows := c.follows
	c.follows = nil
	for _, list := range []*followList{&c.out.dirty, &c.out.large} {
		for list.first != nil {
			list.pop()
			c.s.dirtied.Add(-1)
		}
	}
	c.mu.Unlock()
	for _, f := range follows {
		f.stop()
	}
	c.s.followed.Add(-int64(len(follows)))
}

func (c *serverConn) readFrames() error {
	in := framing.NewReader(c.conn, serverReadBytes, maxFrameBytes)
	var m message
	for {
		if in.Buffered() == 0 {
			c.cork(false)
		}
		t, p, _, err := in.Next()
		if err != nil {
			return err
		}
		if err := decode(t, p, &m); err != nil {
			return err
		}
		switch {
		case c.over():
			// Goodbye was said: what still comes is read so that it arrives, and not looked at.
		case t == frameHello && c.version == 0:
			err = c.greet(m.hello)
		case c.version == 0:
			err = errkind.New(errkind.Invalid, "feed: a connection begins with a hello")
		case t == frameFollow:
			c.cork(true)
			err = c.follow(m.follow)
		case t == frameUnfollow:
			c.unfollow(m.id)
		default:
			err = errkind.Errorf(errkind.Invalid, "feed: frame of type %d from a client", t)
		}
		if err != nil {
			return err
		}
	}
}

func (c *serverConn) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bye != nil
}

// cork holds the writer back while further frames are read that were sent together.
func (c *serverConn) cork(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.corked = on
	c.wakeLocked()
}

func (c *serverConn) greet(h hello) error {
	who := Hello{Node: h.node, Token: h.token, Remote: c.conn.RemoteAddr()}
	if secured, ok := c.conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		state := secured.ConnectionState()
		who.TLS = &state
	}
	var err error
	switch {
	case h.version == 0:
		return errFrame
	case h.node == "":
		err = errkind.New(errkind.Invalid, "feed: the hello names no node")
	case c.s.cfg.Admit != nil:
		err = c.s.cfg.Admit(who)
	}
	beat := c.s.beat(c.s.cfg.Clock.Now())
	c.mu.Lock()
	c.who, c.version = Identity{Node: h.node}, min(h.version, protocolVersion)
	c.state.greeted, c.pulse.beat, c.state.beating = true, beat, true
	c.mu.Unlock()
	if err != nil {
		c.s.meters.denied.Add(1)
		c.end(err)
	}
	return nil
}

// follow begins to follow a subject. Errors are of the protocol; others are told to the agent.
func (c *serverConn) follow(asked follow) error {
	f := &serverFollow{c: c, id: asked.id, generation: asked.generation, since: asked.since}
	c.mu.Lock()
	_, used := c.follows[asked.id]
	full := len(c.follows) >= c.s.cfg.MaxFollows
	if c.who.Token != asked.token {
		c.who.Token = asked.token
	}
	who := c.who // its token is one string for all subjects that came with the same
	c.mu.Unlock()
	var err error
	switch {
	case used:
		return errkind.Errorf(errkind.Invalid, "feed: id %d is in use", asked.id)
	case asked.subject == "":
		err = errSubject
	case full:
		err = errkind.Errorf(errkind.TooLarge, "feed: more than %d subjects on one connection", c.s.cfg.MaxFollows)
	default:
		f.stop, err = c.s.cfg.Source.Follow(who, asked.subject, f.set, f.fail)
	}
	c.mu.Lock()
	late := f.ended // its right ended, and that was told, before Follow returned
	switch {
	case err != nil:
		f.failLocked(err)
	case !late:
		c.follows[f.id] = f
		c.s.followed.Add(1)
	}
	c.mu.Unlock()
	if err == nil && late {
		f.stop()
	}
	c.awaitRoom()
	return nil
}

// awaitRoom waits while too many refusals are not written yet.
func (c *serverConn) awaitRoom() {
	c.mu.Lock()
	if c.failing < maxFailing || c.state.closed {
		c.mu.Unlock()
		return
	}
	c.state.corked = false
	c.wakeLocked()
	room := make(chan struct{})
	c.room = room
	c.mu.Unlock()
	<-room
}

func (c *serverConn) makeRoomLocked() {
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

func (c *serverConn) unfollow(id uint32) {
	c.mu.Lock()
	f := c.follows[id]
	delete(c.follows, id)
	if f != nil {
		f.ended = true // a mark in a list is taken away when its turn comes
	}
	c.mu.Unlock()
	if f != nil {
		c.s.followed.Add(-1)
		f.stop()
	}
}

// set takes the subject's newest value: a Source calls it.
func (f *serverFollow) set(v Value) {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.ended || f.err != nil || c.state.closed {
		return
	}
	if v.Tail > 0 && c.version < versionOfTails {
		v.Body = v.Body[:len(v.Body)-v.Tail]
	}
	known := v.Generation == f.generation && v.Index <= f.since
	same := v.Since > 0 && v.Since == f.since || v.Steady > 0 && v.Steady <= f.since
	if !known && same && v.Generation == f.generation { // it has just this, or is about to
		known, f.since = true, v.Index
		if f.valued {
			f.value.Index, f.value.Body = v.Index, v.Body
		}
	}
	if known {
		if f.answered {
			return
		}
		f.unchanged = true
	} else {
		if f.valued {
			c.s.meters.conflated.Add(1)
		}
		f.value, f.valued, f.unchanged = v, true, false
		f.generation, f.since = v.Generation, v.Index
	}
	f.answered = true
	f.queueLocked()
}

// fail ends the follow with an error: a Source calls it when a right ended.
func (f *serverFollow) fail(err error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if !f.ended && f.err == nil && !f.c.state.closed {
		f.failLocked(err)
	}
}

func (f *serverFollow) failLocked(err error) {
	f.err, f.value, f.valued, f.unchanged = err, Value{}, false, false
	f.c.failing++
	f.c.s.meters.denied.Add(1)
	f.queueLocked()
}

func (f *serverFollow) queueLocked() {
	if f.queued || f.c.state.closed {
		return
	}
	f.queued = true
	f.c.out.dirty.push(f)
	f.c.s.dirtied.Add(1)
	f.c.wakeLocked()
}

// tick is called once per heartbeat interval.
func (c *serverConn) tick(now time.Time, beat heartbeat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.closed && !c.began.IsZero() {
		c.s.meters.late.Late(c.who.Node, now.Sub(c.began))
	}
	switch {
	case c.state.closed:
	case !c.began.IsZero() && now.Sub(c.began) > c.s.cfg.WriteTimeout:
		c.s.meters.cutStalled.Add(1)
		c.s.meters.late.Cut(c.who.Node)
		c.s.cfg.Log.Warn("cut a feed connection that stopped reading", "node", c.who.Node, "remote", c.conn.RemoteAddr(),
			"for", now.Sub(c.began))
		c.closeLocked()
	case !c.state.greeted:
		if now.Sub(c.opened) > c.s.cfg.HelloTimeout {
			c.s.meters.cutHello.Add(1)
			c.closeLocked()
		}
	case now.Sub(c.pulse.beatAt) < c.s.cfg.Heartbeat/2: // one went along with a value
	default:
		c.beatLocked(beat)
		c.wakeLocked()
	}
}

// beatLocked has a heartbeat sent.
func (c *serverConn) beatLocked(beat heartbeat) {
	if beat.generation != c.pulse.beat.generation {
		beat.sent = 0
	} else {
		beat.sent = c.pulse.beat.sent
	}
	c.pulse.beat, c.state.beating = beat, true
}

// rideLocked sends the heartbeat that is due before long together with values: what comes to all agents at once
// is not to be followed by a wake-up of each for nothing.
func (c *serverConn) rideLocked(now time.Time) {
	if beat := c.s.lastBeat.Load(); beat != nil && c.state.welcomed && !c.state.beating &&
		now.Sub(c.pulse.beatAt) >= c.s.cfg.Heartbeat/2 {
		c.beatLocked(*beat)
	}
}

// end says goodbye, after which the agent has a moment to close.
func (c *serverConn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bye == nil && !c.state.closed {
		c.bye, c.state.corked, c.state.greeted = err, false, true
		_ = c.conn.SetDeadline(time.Now().Add(lingerFor))
		c.wakeLocked()
	}
}

// close ends both directions at once.
func (c *serverConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked()
}

func (c *serverConn) closeLocked() {
	if !c.state.closed {
		c.state.closed = true
		c.makeRoomLocked()
		hardClose(c.conn)
	}
}

// wakeLocked starts the writer when there is something for it to do.
func (c *serverConn) wakeLocked() {
	if c.state.writing || c.state.closed || c.state.ended || !c.state.greeted {
		return
	}
	if c.state.corked && !c.state.beating { // a heartbeat passes: a source may take its time to follow
		return
	}

	if c.state.welcomed && c.out.dirty.first == nil && c.out.large.first == nil && c.out.part.rest == nil &&
		!c.state.beating && c.bye == nil {
		return
	}
	c.state.writing = true
	c.s.served.Add(1)
	go c.write()
}

// halfCloser is a connection whose one direction can be closed: TCP and TLS.
type halfCloser interface{ CloseWrite() error }

// farewell closes our direction of the connection; the reader ends with the other.
func (c *serverConn) farewell() {
	half, ok := c.conn.(halfCloser)
	if !ok || half.CloseWrite() != nil {
		c.close()
	}
}
