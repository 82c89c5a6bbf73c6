package feed

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

// TestLatenessIsNoExcuseForEver: a client that looked too late, once or each time, waits a moment for what servers sent
// meanwhile, and then leaves a connection that hangs.
func TestLatenessIsNoExcuseForEver(t *testing.T) {
	for _, always := range []bool{false, true} {
		t.Run(fmt.Sprint("always ", always), func(t *testing.T) {
			c, err := NewClient(ClientConfig{Node: "a", Servers: func() []string { return nil },
				Dial: func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }})
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := net.Pipe()
			defer theirs.Close()
			began := time.Now()
			cc := &clientConn{c: c, conn: ours, heard: began, began: began, welcomed: true,
				dialled: dialling{addr: "s0:1", cancel: func() {}}}
			c.conns = []*clientConn{cc}
			c.mu.Lock()
			defer c.mu.Unlock()
			now, due, late := began, time.Time{}, 0
			for look := 0; !cc.ended; look++ { // as Run does
				if now.Sub(began) > 15*time.Second || look > 100 {
					t.Fatalf("a connection that is silent is not left after %s, %d looks", now.Sub(began), look)
				}
				c.graceLocked(now, due)
				due = c.planLocked(now, []string{"s0:1"})
				if due.Before(now.Add(time.Millisecond)) {
					due = now.Add(time.Millisecond)
				}
				if now = due; now.Sub(began) > c.cfg.Silence/2 && (always || late == 0) {
					now = due.Add(time.Second)
					late++
				}
			}
			if took := now.Sub(began); took < c.cfg.Silence+c.cfg.Silence/2 {
				t.Errorf("left after %s: what the server sent may not have been read", took)
			}
		})
	}
}
