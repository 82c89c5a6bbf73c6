package feed

import (
	"net"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// A heartbeat that is due within half an interval goes along with a value, and the tick after that sends none.
func TestAHeartbeatRidesOnAValue(t *testing.T) {
	now := clock.NewFake(time.Unix(1000, 0))
	s, err := NewServer(ServerConfig{Source: newPress(), Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	c := newServerConn(s, near)
	c.state.greeted, c.state.welcomed = true, true
	c.state.writing = true // nobody else fills
	out := s.buffer(0)
	value := func() (beats int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		f := &serverFollow{c: c, id: 1, value: Value{Index: 8, Body: []byte("x")}, valued: true}
		f.queueLocked()
		if !c.fillLocked(out) {
			t.Fatal("nothing was written")
		}
		return out.beats
	}
	tick := func() bool {
		c.tick(now.Now(), heartbeat{generation: 1, known: 9})
		was := c.state.beating
		c.state.beating = false
		return was
	}
	if value() != 0 {
		t.Error("a heartbeat before the first tick")
	}
	s.lastBeat.Store(&heartbeat{generation: 1, known: 7})
	if value() != 1 || c.pulse.beat.sent != 7 {
		t.Errorf("no heartbeat went along, sent up to %d", c.pulse.beat.sent)
	}
	now.Advance(s.cfg.Heartbeat / 4)
	if value() != 0 {
		t.Error("a heartbeat with each value")
	}
	if tick() {
		t.Error("a heartbeat right after one")
	}
	now.Advance(s.cfg.Heartbeat / 4)
	if !tick() {
		t.Error("no heartbeat half an interval after the last one")
	}
}
