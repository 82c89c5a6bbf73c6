package bench

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// slowAsks is how many answers a slow watcher asks for at once: more than the socket's buffers hold.
const slowAsks = 200

// slowWatchers ask for many answers and read one byte a second of them.
type slowWatchers struct {
	conns []net.Conn
	cut   atomic.Int64 // how many the server closed
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// openSlow connects o.Slow of them. The result is to be closed also after an error.
func openSlow(ctx context.Context, c *Target, o *WatchOptions) (*slowWatchers, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &slowWatchers{stop: cancel}
	one := Request("GET", c.HTTP, "/v1/health/service/"+watchedService+"?index=1", o.Token, nil)
	var asks []byte
	for range slowAsks {
		asks = append(asks, one...)
	}
	for range o.Slow {
		conn, err := DialWire(ctx, c.HTTP, 4096)
		if err != nil {
			return s, err
		}
		s.conns = append(s.conns, conn.nc)
		if err := conn.nc.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			return s, err
		}
		if err := conn.nc.SetDeadline(time.Time{}); err != nil {
			return s, err
		}
		s.wg.Go(func() { s.sip(ctx, conn.nc, asks) })
	}
	return s, nil
}

// sip asks once and reads a byte a second until the server has enough of it.
func (s *slowWatchers) sip(ctx context.Context, nc net.Conn, asks []byte) {
	if _, err := nc.Write(asks); err != nil {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if _, err := nc.Read(make([]byte, 1)); err != nil {
				if ctx.Err() == nil {
					s.cut.Add(1)
				}
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *slowWatchers) close() {
	s.stop()
	for _, nc := range s.conns {
		_ = nc.Close()
	}
	s.wg.Wait()
}

func (s *slowWatchers) note() string {
	if len(s.conns) == 0 {
		return ""
	}
	return fmt.Sprintf(", beside %d that read a byte a second (%d cut off so far)", len(s.conns), s.cut.Load())
}
