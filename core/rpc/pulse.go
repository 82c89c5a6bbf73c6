package rpc

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"google.golang.org/grpc/connectivity"
)

// A frozen process, a paused machine and a cut network leave a connection open and silent. How long a call takes says
// nothing of that: a blocking query waits for minutes. So while something waits for an answer and nothing at all comes,
// the other side is asked for a sign of life, and a connection on which that stays out too is given up with all who
// wait.
//
// A sign of life is a call without a method, or of one that nobody has where no stream is shared: a server answers that
// it does not know it. While nothing waits nothing is sent.
const (
	methodLife = "life"
	// pulseStep is how often a connection in use is looked at.
	pulseStep = 250 * time.Millisecond
	// askAfter is the silence before the first question; it doubles up to askMost while the answers come.
	askAfter = 400 * time.Millisecond
	askMost  = time.Second
	// askParked is the pause between questions while all who wait expect to wait.
	askParked = 5 * time.Second
	// giveUpAfter is how long the answer may take.
	giveUpAfter = 1400 * time.Millisecond
	// avoidFor is how long Silent tells of an address.
	avoidFor = 15 * time.Second
)

var errSilent = errors.New("the other side is silent: no sign of life within 2 s")

// pulse is what is known of a connection's life.
type pulse struct {
	heard  atomic.Int64  // when bytes came last, in nanoseconds since start
	parked atomic.Int64  // calls and streams that expect to wait
	silent atomic.Bool   // it was given up
	wake   chan struct{} // holds one: somebody waits
	start  time.Time
}

func newPulse() *pulse { return &pulse{wake: make(chan struct{}, 1), start: time.Now()} }

func (p *pulse) now() time.Duration { return time.Since(p.start) }

// heardConn notes when something comes.
type heardConn struct {
	net.Conn
	pulse *pulse
}

// Read implements net.Conn.
func (c *heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.pulse.heard.Store(int64(c.pulse.now()))
	}
	return n, err
}

// watch looks after the connection from when it is made until its last user is gone.
func (l *live) watch(t *target) {
	for {
		select {
		case <-l.pulse.wake:
		case <-l.ctx.Done():
			return
		}
		if l.attend() {
			continue
		}
		if l.ctx.Err() == nil {
			l.giveUp(t)
		}
		return
	}
}

// attend asks for signs of life until nobody has waited for a while, and then returns true. False: none came, or the
// connection ended.
func (l *live) attend() bool {
	tick := time.NewTicker(pulseStep)
	defer tick.Stop()
	p := l.pulse
	last, asked, patience, unused := p.now(), time.Duration(-1), askAfter, 0
	for {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return false
		}
		now, heard := p.now(), time.Duration(p.heard.Load())
		stood := now-last > 2*pulseStep // this process did not run: what came meanwhile is yet to be read
		last = now
		waiting := l.users.Load() - 1
		switch {
		case waiting <= 0:
			if asked, patience, unused = -1, askAfter, unused+1; unused > int(time.Second/pulseStep) {
				return true
			}
		case asked >= 0 && heard >= asked:
			asked, patience = -1, min(2*patience, askMost)
		case asked >= 0 && stood:
			asked = now
		case asked >= 0:
			if now-asked >= giveUpAfter {
				return false
			}
		default:
			unused = 0
			pause := patience
			if waiting <= p.parked.Load() {
				pause = askParked
			}
			if !stood && now-heard >= pause {
				asked = now
				l.ask()
			}
		}
	}
}

// ask sends for a sign of life. Whatever comes is one.
func (l *live) ask() {
	l.muxMu.Lock()
	m := l.mux
	l.muxMu.Unlock()
	if m != nil && m.ask() {
		return
	}
	if !l.acquire() {
		return
	}
	go func() {
		defer l.release()
		ctx, cancel := context.WithTimeout(l.ctx, giveUpAfter)
		defer cancel()
		// That it is answered counts, not how.
		_ = l.cc.Invoke(ctx, pathCall, &request{method: methodLife}, &reply{}, l.options...)
	}()
}

// ask sends a call without a method, whose answer nobody waits for; false when the stream has ended.
func (m *mux) ask() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil {
		return false
	}
	m.next++
	m.out.mu.Lock()
	defer m.out.mu.Unlock()
	m.out.last = m.next
	m.out.putLocked(muxCall, m.next, func(b []byte) []byte { return append(b, 0, 0) }, 2)
	return true
}

// giveUp ends all that waits on a silent connection.
func (l *live) giveUp(t *target) {
	l.pulse.silent.Store(true)
	t.noteSilence()
	t.mu.Lock()
	t.failed = errkind.E(errkind.Unavailable, "rpc: connecting to "+t.addr, errSilent)
	t.retryAt = time.Now().Add(t.cfg.RetryAfter)
	t.mu.Unlock()
	t.forget(l)
	_ = l.cc.Close() // its users get their errors, and release it
}

// noteSilence remembers for a while that nothing came from this address.
func (t *target) noteSilence() { t.avoid.Store(time.Now().Add(avoidFor).UnixNano()) }

// Silent reports whether addr was given up as silent within the last 15 s: whoever has a choice asks another one.
func (c *Client) Silent(addr string) bool {
	c.mu.RLock()
	list := c.peers[addr]
	c.mu.RUnlock()
	for _, t := range list {
		if until := t.avoid.Load(); until != 0 && time.Now().UnixNano() < until {
			return true
		}
	}
	return false
}

// cause is why a call on the connection failed.
func (l *live) cause(err error) error {
	if l.pulse.silent.Load() {
		return errSilent
	}
	return err
}

// ready reports whether calls can go out at once.
func (l *live) ready() bool { return !l.pulse.silent.Load() && l.cc.GetState() == connectivity.Ready }
