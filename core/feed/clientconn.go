package feed

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"net"
	"time"

	"corbel.dev/corbel/core/framing"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// clientReadBytes is the buffer of each connection's reader: most values of a change fit.
	clientReadBytes = 1 << 10
	// maxOutBytes bounds what waits to be sent to a server that does not read.
	maxOutBytes = 16 << 20
)

// clientConn is one connection of a Client, from before it is dialled until it is left.
// The fields are guarded by c.mu.
type clientConn struct {
	c       *Client
	slot    uint8 // its bit in subs; no two connections of now have the same
	dialled dialling
	conn    net.Conn // nil before it is made

	began    time.Time // when the connection was made
	heard    time.Time // the last frame
	progress time.Time // the last answer, or the question that made unanswered 1
	beat     heartbeat
	// unanswered counts the subjects that were asked for and not answered.
	unanswered               int
	out                      []byte
	past                     spoken
	writing, welcomed, ended bool
}

// spoken is what a server said of its history.
type spoken struct {
	// generation is the history that the server spoke of last, if it spoke of one; ignored says
	// that it sent values of a history that did not count.
	generation     uint64
	spoke, ignored bool
	reached        uint64 // an index of that history that its State has, at least
}

// dialling is how a connection comes to be.
type dialling struct {
	addr     string
	cancel   context.CancelFunc
	timeout  time.Duration // for dialling
	replaces *clientConn
}

func (cc *clientConn) bit() uint8 { return 1 << cc.slot }

// completeLocked reports whether the server has answered for everything that is followed.
func (cc *clientConn) completeLocked() bool {
	return cc.welcomed && cc.unanswered == 0 && cc.beat.known > 0
}

// startLocked begins a connection to addr after delay; nil when there are too many.
func (c *Client) startLocked(addr string, delay time.Duration) *clientConn {
	var used uint8
	for _, cc := range c.conns {
		used |= cc.bit()
	}
	slot := bits.TrailingZeros8(^used)
	if slot > 7 || c.ctx == nil || c.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(c.ctx)
	timeout := c.cfg.DialTimeout << min(c.addressLocked(addr).failures, 2)
	cc := &clientConn{c: c, slot: uint8(slot), dialled: dialling{addr: addr, cancel: cancel, timeout: timeout}}
	c.conns = append(c.conns, cc)
	c.sessions.Go(func() { cc.run(ctx, delay) })
	return cc
}

// run is the connection's goroutine.
func (cc *clientConn) run(ctx context.Context, delay time.Duration) {
	defer cc.dialled.cancel()
	reason := "dial"
	conn, err := cc.dial(ctx, delay)
	if err == nil {
		if cc.attach(conn) {
			reason, err = cc.read(conn)
		}
		hardClose(conn)
	}
	c := cc.c
	c.mu.Lock()
	if !cc.ended {
		cc.endLocked(reason)
		level := slog.LevelDebug
		if a := c.addrs[cc.dialled.addr]; reason == "bye" && a != nil && a.failures == 1 {
			level = slog.LevelWarn // refused: once, until it is let in again
		}
		c.cfg.Log.Log(ctx, level, "a feed connection ended", "node", c.cfg.Node, "server", cc.dialled.addr, "reason", reason,
			"error", err)
	}
	c.mu.Unlock()
	c.look()
}

func (cc *clientConn) dial(ctx context.Context, delay time.Duration) (net.Conn, error) {
	if delay > 0 {
		timer := cc.c.cfg.Clock.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cc.dialled.timeout)
	defer cancel()
	return cc.c.cfg.Dial(ctx, cc.dialled.addr)
}

// attach asks for everything on the new connection; false when it is not wanted any more.
func (cc *clientConn) attach(conn net.Conn) bool {
	c := cc.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if cc.ended {
		return false
	}
	now := c.cfg.Clock.Now()
	cc.conn, cc.began, cc.heard, cc.progress = conn, now, now, now
	c.meters.conns.Add(1)
	cc.writing = true // until all is gathered
	cc.out = hello{protocolVersion, c.cfg.Node, c.cfg.Token}.append(cc.out)
	for _, s := range c.subs {
		cc.askLocked(s)
	}
	c.sessions.Go(cc.write)
	return true
}

// askLocked follows a subject on this connection.
func (cc *clientConn) askLocked(s *sub) {
	if cc.conn == nil || cc.ended || s.asked&cc.bit() != 0 {
		return
	}
	f := follow{id: s.id, subject: s.subject, token: s.token}
	if s.failing == nil && s.generation == cc.c.history.generation {
		f.generation, f.since = s.generation, s.index
	}
	s.asked |= cc.bit()
	s.agreed |= cc.bit()
	s.answered &^= cc.bit()
	if cc.unanswered == 0 {
		cc.progress = cc.c.cfg.Clock.Now()
	}
	cc.unanswered++
	cc.sendLocked(f.append(cc.out))
}

// forgetLocked follows a subject no more.
func (cc *clientConn) forgetLocked(s *sub) {
	if s.asked&cc.bit() == 0 {
		return
	}
	cc.answerLocked(s)
	s.asked &^= cc.bit()
	cc.sendLocked(appendUnfollow(cc.out, s.id))
}

// askAgainLocked asks for everything anew.
func (cc *clientConn) askAgainLocked() {
	cc.past.ignored = false
	for _, s := range cc.c.subs {
		if s.asked&cc.bit() != 0 {
			cc.forgetLocked(s)
			cc.askLocked(s)
		}
	}
}

func (cc *clientConn) answerLocked(s *sub) {
	if s.answered&cc.bit() == 0 {
		s.answered |= cc.bit()
		cc.unanswered--
		cc.progress = cc.heard
		if cc.unanswered == 0 && cc.dialled.replaces != nil {
			cc.c.look()
		}
	}
}

// sendLocked takes the new content of out.
func (cc *clientConn) sendLocked(out []byte) {
	cc.out = out
	switch {
	case cc.ended || cc.writing:
	case len(cc.out) > maxOutBytes:
		cc.endLocked("overflow")
	default:
		cc.writing = true
		cc.c.sessions.Go(cc.write)
	}
}

// write sends what there is to send. There is at most one at a time.
func (cc *clientConn) write() {
	c := cc.c
	for {
		c.mu.Lock()
		out := cc.out
		cc.out = nil
		if len(out) == 0 || cc.ended {
			cc.writing = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if _, err := cc.conn.Write(out); err != nil {
			hardClose(cc.conn) // the reader tells
		}
	}
}

// endLocked leaves the connection: what it still brings is ignored. The reason "" counts nowhere.
func (cc *clientConn) endLocked(reason string) {
	c := cc.c
	if cc.ended {
		return
	}
	cc.ended = true
	cc.dialled.cancel()
	for i, other := range c.conns {
		if other == cc {
			c.conns = append(c.conns[:i], c.conns[i+1:]...)
			break
		}
	}
	for _, s := range c.subs {
		s.asked &^= cc.bit()
		s.answered &^= cc.bit()
		s.agreed &^= cc.bit()
	}
	if cc.conn != nil {
		c.meters.conns.Add(-1)
		hardClose(cc.conn)
	}
	if reason != "" {
		c.endedLocked(cc, reason)
	}
}

// hardClose closes the socket at once, below TLS, whose goodbye could wait.
func hardClose(conn net.Conn) {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		secured.NetConn().Close()
	}
	conn.Close()
}

// assembly is a value whose body comes in parts.
type assembly struct {
	head valueHead
	body []byte
	on   bool
}

// read takes frames until the connection ends, and says why it did.
func (cc *clientConn) read(conn net.Conn) (reason string, err error) {
	in := framing.NewReader(conn, clientReadBytes, maxFrameBytes)
	var m message
	var parts assembly
	for {
		t, p, owned, err := in.Next()
		if err == nil {
			err = decode(t, p, &m)
		}
		if err != nil {
			if errkind.Is(err, errkind.Invalid) {
				return "protocol", err
			}
			return "lost", err
		}
		switch t {
		case frameBye:
			return "bye", m.err
		case frameValue, frameChunk:
			err = parts.take(&m, owned, cc.c.cfg.MaxValueBytes)
		case frameWelcome, frameUnchanged, frameGone, frameHeartbeat:
		default:
			err = errkind.Errorf(errkind.Invalid, "feed: frame of type %d from a server", t)
		}
		if err != nil {
			return "protocol", err
		}
		if !cc.handle(&m, &parts) {
			return "", errors.New("left")
		}
	}
}

// take adds a frame's part of a value.
func (a *assembly) take(m *message, owned bool, limit int) error {
	if m.kind == frameValue {
		if a.on {
			return errkind.New(errkind.Invalid, "feed: a value begins inside another")
		}
		if m.value.total > limit {
			return errkind.Errorf(errkind.Invalid, "feed: a value of %d bytes, at most %d are taken", m.value.total, limit)
		}
		a.head, a.on = m.value, true
		switch {
		case a.head.total < 0:
			a.body = nil
		case owned && len(m.body) == a.head.total:
			a.body = m.body
		default:
			a.body = append(make([]byte, 0, min(a.head.total, len(m.body)+maxFrameBytes)), m.body...)
		}
		return nil
	}
	if !a.on || len(a.body)+len(m.body) > a.head.total {
		return errkind.New(errkind.Invalid, "feed: a part without its value")
	}
	a.body = append(a.body, m.body...)
	return nil
}

func (a *assembly) complete() bool { return a.on && len(a.body) == max(0, a.head.total) }

// handle acts on a frame; false when the connection was left meanwhile.
func (cc *clientConn) handle(m *message, parts *assembly) bool {
	c := cc.c
	c.mu.Lock()
	if cc.ended {
		c.mu.Unlock()
		return false
	}
	now := c.cfg.Clock.Now()
	cc.heard = now
	var call *sub
	switch m.kind {
	case frameWelcome:
		cc.welcomeLocked()
	case frameHeartbeat:
		cc.beatLocked(m.beat, now)
	case frameUnchanged:
		if s := c.subs[m.id]; s != nil && s.asked&cc.bit() != 0 {
			cc.answerLocked(s)
		}
	case frameGone:
		call = cc.goneLocked(m, now)
	case frameValue, frameChunk:
		cc.progress = now
		if parts.complete() {
			call = cc.valueLocked(parts, now)
			*parts = assembly{}
		}
	}
	c.mu.Unlock()
	if call != nil {
		call.deliver()
	}
	return true
}

func (cc *clientConn) welcomeLocked() {
	if !cc.welcomed {
		cc.welcomed = true
		a := cc.c.addressLocked(cc.dialled.addr)
		a.failures, a.notBefore = 0, time.Time{}
	}
}

func (cc *clientConn) beatLocked(beat heartbeat, now time.Time) {
	c := cc.c
	cc.beat = beat
	c.meters.offset.Set(float64(now.UnixNano()-beat.now) / float64(time.Millisecond))
	if beat.known == 0 { // it has no state yet
		return
	}
	if !cc.speaksLocked(beat.generation, now) {
		return
	}
	if cc.dialled.replaces != nil || cc.beat.lag >= c.cfg.LagLimit {
		c.look()
	}
	c.lag.known = max(c.lag.known, beat.known)
	cc.reachedLocked(beat.known)
	if c.divided {
		cc.uniteLocked(now)
	}
	if cc.completeLocked() && beat.sent >= beat.known && beat.known >= c.lag.mark {
		if at := now.Add(-beat.lag); at.After(c.lag.fresh) {
			c.lag.fresh = at
		}
	}
}

// uniteLocked asks a server anew for what it knows of otherwise than we do, or would have told too early. It has told
// everything up to the index that its heartbeat says, so if that covers what another server told and it said nothing of
// it, it looked later, and found again what there was before.
func (cc *clientConn) uniteLocked(now time.Time) {
	c := cc.c
	c.divided = false
	for _, s := range c.subs {
		if s.asked&^s.agreed != 0 {
			c.divided = true
		}
		if s.asked&^s.agreed&cc.bit() == 0 {
			continue
		}
		if s.index == 0 && !cc.behindLocked(now) || s.index > 0 && s.index <= cc.beat.sent && s.answered&cc.bit() != 0 {
			cc.forgetLocked(s)
			cc.askLocked(s)
		}
	}
}

// behindLocked reports whether the server's State may be older than what followers were given already. A subject of
// which they know nothing yet is not to begin with such a State: together with the others it would lead back, as with
// rules that are to replace newer ones. After staleAfter it is taken, if there is no better server.
func (cc *clientConn) behindLocked(now time.Time) bool {
	l := &cc.c.lag
	return cc.past.reached < l.given && (l.behind.IsZero() || now.Sub(l.behind) < staleAfter)
}

// staleAfter is how long a client waits for a server that is not behind before it begins with one that is.
const staleAfter = 10 * time.Second

// reachedLocked notes an index that the server's State has.
func (cc *clientConn) reachedLocked(index uint64) {
	cc.past.reached = max(cc.past.reached, index)
	if cc.past.reached >= cc.c.lag.given {
		cc.c.lag.behind = time.Time{}
	}
}

// speaksLocked notes the history that a server speaks of, and says whether it counts.
func (cc *clientConn) speaksLocked(generation uint64, now time.Time) bool {
	c := cc.c
	if cc.past.generation != generation {
		cc.past.reached = 0
	}
	cc.past.generation, cc.past.spoke = generation, true
	if !c.history.told || generation != c.history.generation {
		c.turnLocked(now)
	}
	return c.history.told && generation == c.history.generation
}

func (cc *clientConn) valueLocked(a *assembly, now time.Time) *sub {
	c := cc.c
	s := c.subs[a.head.id]
	if s == nil || s.asked&cc.bit() == 0 {
		return nil
	}
	v := Value{Index: a.head.index, Generation: a.head.generation, Body: a.body}
	if a.head.at != 0 {
		v.At = time.Unix(0, a.head.at)
	}
	if !cc.speaksLocked(v.Generation, now) {
		cc.answerLocked(s)
		cc.past.ignored = true
		return nil
	}
	cc.reachedLocked(v.Index)
	if s.index == 0 && cc.behindLocked(now) {
		if c.lag.behind.IsZero() {
			c.lag.behind = now
		}
		s.agreed &^= cc.bit()
		c.divided = true
		return nil // not answered: it is asked again
	}
	cc.answerLocked(s)
	if !s.acceptLocked(v) {
		if v.Index == s.index && v.Generation == s.generation {
			s.agreed |= cc.bit()
		}
		return nil
	}
	s.agreed = cc.bit()
	c.divided = c.divided || s.asked != s.agreed
	if v.Index > c.lag.given {
		c.lag.given = v.Index
		if !c.lag.behind.IsZero() {
			c.lag.behind = now // there is a better server: the wait for it begins anew
		}
	}
	c.lag.known = max(c.lag.known, v.Index)
	c.meters.values.Add(1)
	c.meters.bytes.Add(uint64(len(v.Body)))
	if !v.At.IsZero() {
		c.meters.received.Observe(now.Sub(v.At))
	}
	return s
}

// goneLocked notes that a server follows a subject no more; the sub is returned when no other server has it.
func (cc *clientConn) goneLocked(m *message, now time.Time) *sub {
	c := cc.c
	s := c.subs[m.id]
	if s == nil || s.asked&cc.bit() == 0 {
		return nil
	}
	cc.answerLocked(s)
	s.asked &^= cc.bit()
	s.answered &^= cc.bit()
	// It may be what became of an earlier question, and the server follow since it was asked anew.
	cc.sendLocked(appendUnfollow(cc.out, s.id))
	after := c.cfg.RetryDenied
	lasting := errkind.Is(m.err, errkind.Denied) || errkind.Is(m.err, errkind.Invalid) ||
		errkind.Is(m.err, errkind.NotFound) || errkind.Is(m.err, errkind.TooLarge)
	if !lasting {
		after = min(after, 2*time.Second)
	}
	s.retryAt = now.Add(after/2 + jitter(after))
	if c.seek.retryAt.IsZero() || s.retryAt.Before(c.seek.retryAt) {
		c.seek.retryAt = s.retryAt
		c.look()
	}
	if !lasting || s.asked&s.answered != 0 {
		return nil
	}
	same := s.failing != nil && s.failing.Error() == m.err.Error()
	if s.failing = m.err; same {
		return nil
	}
	c.meters.denied.Add(1)
	s.out.err = m.err
	return s
}
