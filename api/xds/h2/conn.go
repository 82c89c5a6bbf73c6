package h2

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/limit"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	connWindow   = 1 << 20 // what a peer may send on a connection before we answer
	streamWindow = 65535   // and on a stream: the protocol's own default
	maxHeaders   = 16 << 10
	readBuffer   = 4 << 10
	// maxControl is how many bytes of answers to pings and the like may wait for a peer that does not read.
	maxControl = 64 << 10
	maxWindow  = 1<<31 - 1
	// The frames that cost the sender little and us something: so many a second, and at once.
	abusePerSecond, abuseBurst = 1000, 5000
)

// Conn is one connection.
type Conn struct {
	server *Server
	nc     net.Conn
	br     *bufio.Reader
	fr     *http2.Framer
	kicked chan struct{} // one place: the writer has work

	wakes

	mu      sync.Mutex // guards what follows and all streams and calls
	streams map[uint32]*Stream
	outbound

	flow
	ended
	abuse   *limit.Bucket
	closing bool // no new streams; the writer ends when everything is written
	pulse
	name string // of the client, for the doctor; "" is its address
}

// wakes is what wake leaves for the writer.
type wakes struct {
	// wakeMu is a leaf: wake takes it under any lock.
	wakeMu sync.Mutex
	woken  []*Stream
}

// outbound is what the writer has to send.
type outbound struct {
	ready    []*Stream // to be asked for something to send
	starved  []*Stream // wait for the connection's window
	spare    []*Stream // takes woken's place
	ctrl     []byte    // frames that go before all others
	msg      Message
	changed  []int64 // of what the buffer being made holds; the writer's own
	restless bool    // some stream has something with a deadline: its rare or its out
}

// flow is how much either side takes, and what the peer's settings say.
type flow struct {
	sendWindow, recvLeft int32
	peerInitial          int32 // the peer's SETTINGS_INITIAL_WINDOW_SIZE
	peerFrame            int   // the peer's SETTINGS_MAX_FRAME_SIZE
	settled              bool  // the peer's SETTINGS came
}

// ended are the streams that were.
type ended struct {
	maxID    uint32
	recent   [16]uint32 // streams that ended last
	recentAt int
}

// pulse says since when a connection does what it does, in nanoseconds.
type pulse struct {
	lastRead, asked int64 // when something came; when the peer was asked whether it lives, 0 if not
	idleSince       int64
	starvedSince    int64
	writing         atomic.Int64 // since when the peer takes a write, 0 when there is none
}

// setName says who the client is, once it has said so itself and is believed.
func (c *Conn) setName(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = name
}

// nameLocked is what the client is called in metrics.
func (c *Conn) nameLocked() string {
	if c.name != "" {
		return c.name
	}
	return c.nc.RemoteAddr().String()
}

func newConn(s *Server, nc net.Conn) *Conn {
	now := s.since(time.Now())
	return &Conn{
		server: s, nc: nc, kicked: make(chan struct{}, 1), streams: map[uint32]*Stream{},
		flow:  flow{sendWindow: 65535, recvLeft: 65535, peerInitial: 65535, peerFrame: 16384},
		abuse: limit.NewBucket(abusePerSecond, abuseBurst), pulse: pulse{lastRead: now, idleSince: now},
	}
}

// run serves the connection until it ends.
func (c *Conn) run(ctx context.Context) {
	defer c.nc.Close()
	if !c.deadline(time.Now().Add(c.server.cfg.HandshakeTimeout)) {
		return
	}
	if err := handshake(ctx, c.nc); err != nil {
		c.server.refused.Add(1)
		c.server.cfg.Log.Debug("grpc: the handshake failed", "remote", c.nc.RemoteAddr(), "error", err)
		return
	}
	c.br = bufio.NewReaderSize(c.nc, readBuffer)
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.br, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
		c.server.refused.Add(1)
		return
	}
	c.fr = http2.NewFramer(io.Discard, c.br)
	c.fr.SetReuseFrames()
	c.fr.SetMaxReadFrameSize(16384)
	c.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.fr.MaxHeaderListSize = maxHeaders
	c.greet()
	var writer sync.WaitGroup
	writer.Go(c.write)
	c.end(c.read())
	writer.Wait()
	// The peer may still be sending: closing with unread bytes would take our last words from it.
	_ = c.nc.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.br, 256<<10)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		c.remove(s)
	}
}

// deadline bounds reading and writing until the peer's settings came; false when the server is shutting down.
func (c *Conn) deadline(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		_ = c.nc.SetDeadline(t)
	}
	return !c.closing
}

// greet queues our settings.
func (c *Conn) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b []byte
	for _, set := range []http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.server.cfg.MaxStreamsPerConn)},
		{ID: http2.SettingMaxHeaderListSize, Val: maxHeaders},
	} {
		b = binary.BigEndian.AppendUint16(b, uint16(set.ID))
		b = binary.BigEndian.AppendUint32(b, set.Val)
	}
	c.control(http2.FrameSettings, 0, 0, b)
	c.control(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, connWindow-65535))
	c.recvLeft = connWindow
	c.kick()
}

// control queues a frame that goes before all others.
func (c *Conn) control(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	c.ctrl = append(appendFrame(c.ctrl, len(payload), t, flags, id), payload...)
}

func appendFrame(b []byte, size int, t http2.FrameType, flags http2.Flags, id uint32) []byte {
	return append(b, byte(size>>16), byte(size>>8), byte(size), byte(t), byte(flags), byte(id>>24), byte(id>>16),
		byte(id>>8), byte(id))
}

// read handles frames until the connection ends. A nil error is the peer's end.
func (c *Conn) read() error {
	for {
		_, broken := c.br.Peek(frameHead) // waits
		now := time.Now()                 // once for all frames that one system call brought
		c.mu.Lock()
		c.lastRead, c.asked = c.server.since(now), 0
		var err error
		for err == nil && c.plainData() {
			err = c.quick(now)
		}
		kick := c.hasWork() && !c.more()
		c.mu.Unlock()
		if kick {
			c.kick() // before waiting for the rest of a frame
		}
		if err == nil && (broken != nil || c.br.Buffered() >= frameHead) {
			err = c.other(now)
		}
		if err != nil {
			return err
		}
	}
}

const frameHead = 9

// plainData reports whether a whole DATA frame without padding is buffered: nearly all frames are such.
func (c *Conn) plainData() bool {
	if c.br.Buffered() < frameHead || !c.settled || len(c.ctrl) > maxControl {
		return false
	}
	head, _ := c.br.Peek(frameHead)
	return http2.FrameType(head[3]) == http2.FrameData && head[4]&^byte(http2.FlagDataEndStream) == 0 &&
		binary.BigEndian.Uint32(head[5:]) != 0 && c.more()
}

// quick takes the frame that plainData saw, without the library and without a copy.
func (c *Conn) quick(now time.Time) error {
	head, _ := c.br.Peek(frameHead)
	size := frameSize(head)
	b, _ := c.br.Peek(frameHead + size)
	id := binary.BigEndian.Uint32(b[5:]) & maxWindow
	err := c.data(id, size, b[frameHead:], b[4]&byte(http2.FlagDataEndStream) != 0, now)
	_, _ = c.br.Discard(frameHead + size)
	if err != nil {
		err = c.streamError(err, now)
	}
	return err
}

// other takes a frame of any kind. It may wait for the rest of it.
func (c *Conn) other(now time.Time) error {
	f, err := c.fr.ReadFrame()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		err = c.frame(f, now)
	}
	if err != nil {
		err = c.streamError(err, now)
	}
	if err == nil && len(c.ctrl) > maxControl {
		err = calm
	}
	if c.hasWork() && (!c.more() || len(c.ctrl) > maxControl/2) {
		c.kick()
	}
	return err
}

// streamError resets the stream if err is about one alone; else it returns err.
func (c *Conn) streamError(err error, now time.Time) error {
	var one http2.StreamError
	if !errors.As(err, &one) {
		return err
	}
	c.open(one.StreamID)
	c.reset(one.StreamID, one.Code)
	if !c.abuse.Take(now.Sub(c.server.epoch)) {
		return calm
	}
	return nil
}

// calm closes the connection of a peer that sends more of what is cheap for it than any client does.
var calm = http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)

// more reports whether a whole frame is buffered: its effects can go along.
func (c *Conn) more() bool {
	if c.br.Buffered() < frameHead {
		return false
	}
	head, _ := c.br.Peek(frameHead)
	return c.br.Buffered() >= frameHead+frameSize(head)
}

func frameSize(head []byte) int { return int(head[0])<<16 | int(head[1])<<8 | int(head[2]) }

// end says good-bye with the reason for which reading ended, and lets the writer end.
func (c *Conn) end(err error) {
	code := http2.ErrCodeNo
	var protocol http2.ConnectionError
	switch {
	case errors.As(err, &protocol):
		code = http2.ErrCode(protocol)
	case errors.Is(err, http2.ErrFrameTooLarge):
		code = http2.ErrCodeFrameSize
	default: // the peer hung up
		_ = c.nc.SetWriteDeadline(time.Now())
	}
	if code != http2.ErrCodeNo {
		c.server.cut.Add(1)
		c.server.cfg.Log.Debug("grpc: the connection is closed for an error of the protocol", "remote", c.nc.RemoteAddr(),
			"error", err, "detail", c.fr.ErrorDetail())
	}
	c.mu.Lock()
	c.goAway(code)
	c.mu.Unlock()
	c.kick()
}

// goAway lets the connection end after what is ready to be written.
func (c *Conn) goAway(code http2.ErrCode) {
	if c.closing {
		return
	}
	c.closing = true
	b := binary.BigEndian.AppendUint32(nil, c.maxID)
	c.control(http2.FrameGoAway, 0, 0, binary.BigEndian.AppendUint32(b, uint32(code)))
}

// shutDown ends all streams and the connection.
func (c *Conn) shutDown() {
	c.mu.Lock()
	for _, s := range c.streams {
		s.Finish(Unavailable, "the server is shutting down")
	}
	c.goAway(http2.ErrCodeNo)
	_ = c.nc.SetReadDeadline(time.Now().Add(2 * time.Second)) // also ends a handshake
	c.mu.Unlock()
	c.kick()
}

// sweep looks at the connection's deadlines.
func (c *Conn) sweep(now time.Time) {
	cfg, at := &c.server.cfg, c.server.since(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || !c.settled {
		return
	}
	if c.restless {
		c.restless = false
		for _, s := range c.streams {
			c.sweepStream(s, at)
		}
	}
	if len(c.starved) > 0 {
		c.server.late.Late(c.nameLocked(), time.Duration(at-c.starvedSince))
	}
	if since := c.writing.Load(); since > 0 {
		c.server.late.Late(c.nameLocked(), time.Duration(at-since))
	}
	switch {
	case c.asked != 0 && at-c.asked > int64(cfg.KeepAliveTimeout),
		len(c.starved) > 0 && at-c.starvedSince > int64(cfg.StallTimeout):
		c.server.cut.Add(1)
		if len(c.starved) > 0 {
			c.server.late.Cut(c.nameLocked())
		}
		_ = c.nc.Close() // nothing that we say would arrive
	case c.asked == 0 && at-c.lastRead > int64(cfg.KeepAlive):
		c.asked = at
		c.control(http2.FramePing, 0, 0, make([]byte, 8))
	case len(c.streams) > 0:
		c.idleSince = at
	case at-c.idleSince > int64(cfg.IdleTimeout):
		c.goAway(http2.ErrCodeNo)
		_ = c.nc.SetReadDeadline(now.Add(time.Second))
	}
	if c.hasWork() {
		c.kick()
	}
}

func (c *Conn) sweepStream(s *Stream, at int64) {
	cfg := &c.server.cfg
	c.restless = c.restless || s.rare != nil || s.out != nil
	switch r := s.rare; {
	case r == nil:
	case r.deadline != 0 && at > r.deadline:
		s.Finish(DeadlineExceeded, "the call's deadline is over")
	case (!r.heard || len(r.in) > 0) && r.status == nil && at-r.began > int64(cfg.RequestTimeout):
		s.Finish(DeadlineExceeded, "no whole request came in time")
	}
	if s.out == nil {
		return
	}
	c.server.late.Late(c.nameLocked(), time.Duration(at-s.out.since))
	if at-s.out.since > int64(cfg.StallTimeout) {
		c.server.late.Cut(c.nameLocked())
		c.reset(s.id, http2.ErrCodeCancel)
	}
}
