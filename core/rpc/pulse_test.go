package rpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// relay passes connections on to a server, until it stands still: as a process that was stopped, whose kernel goes on
// to take connections and bytes.
type relay struct {
	l     net.Listener
	to    string
	mu    sync.Mutex
	still chan struct{} // closed while it works; replaced when it stands still
	bytes atomic.Int64  // towards the server
	gone  chan struct{}
	wg    sync.WaitGroup
}

func newRelay(tb testing.TB, to string) *relay {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &relay{l: l, to: to, still: make(chan struct{}), gone: make(chan struct{})}
	close(r.still)
	r.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.pass(in) })
		}
	})
	tb.Cleanup(func() {
		close(r.gone)
		l.Close()
		r.wg.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.l.Addr().String() }

func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.still = make(chan struct{})
}

func (r *relay) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.still)
}

func (r *relay) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer out.Close()
	var both sync.WaitGroup
	copyTo := func(dst, src net.Conn, count *atomic.Int64) {
		defer dst.Close()
		defer src.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := src.Read(buf)
			r.mu.Lock()
			still := r.still
			r.mu.Unlock()
			select {
			case <-still:
			case <-r.gone:
				return
			}
			count.Add(int64(n))
			if _, werr := dst.Write(buf[:n]); werr != nil || err != nil {
				return
			}
		}
	}
	stop := make(chan struct{})
	both.Go(func() {
		select {
		case <-r.gone:
			in.Close()
			out.Close()
		case <-stop:
		}
	})
	var two sync.WaitGroup
	two.Go(func() { copyTo(out, in, &r.bytes) })
	two.Go(func() { copyTo(in, out, new(atomic.Int64)) })
	two.Wait()
	close(stop)
	both.Wait()
}

// patient is a server with a call that takes as long as its caller waits, and one that streams heartbeats alone.
func patient() *Server {
	s := echoServer()
	s.Handle(wire.Anyone, "park", func(ctx context.Context, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil,
			ctx.Err()
	})
	s.HandleStream(wire.Anyone, "watch", func(ctx context.Context, _ []byte, _ func([]byte) error) error {
		<-ctx.Done()
		return nil
	})
	return s
}

// TestFrozenServerIsGivenUp: whoever waits for a process that was stopped learns within seconds that the outcome is
// unknown, those who are parked and streams too, and nobody asks it again while there is another one.
func TestFrozenServerIsGivenUp(t *testing.T) {
	for name, own := range map[string]bool{"shared stream": false, "calls of their own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, _ := serve(t, patient(), "127.0.0.1:0")
			r := newRelay(t, addr)
			c := client(t, ClientConfig{own: own})
			if _, err := c.Call(t.Context(), r.addr(), "echo", nil); err != nil {
				t.Fatal(err)
			}
			stream, err := c.Stream(t.Context(), r.addr(), "watch", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			errs := make(chan error, 3)
			go func() { _, err := stream.Recv(); errs <- err }()
			go func() { _, err := c.Wait(t.Context(), r.addr(), "park", nil); errs <- err }()
			r.freeze()
			go func() { _, err := c.Call(t.Context(), r.addr(), "echo", nil); errs <- err }()
			for range 3 {
				select {
				case err := <-errs:
					if kind := errkind.Of(err); kind != errkind.Unknown && kind != errkind.Unavailable {
						t.Errorf("want unknown or unavailable, got %v", err)
					}
				case <-time.After(10 * time.Second): // a call alone would wait for a minute
					t.Fatal("it is still waited for")
				}
			}
			if !c.Silent(r.addr()) || c.Silent(addr) {
				t.Error("it is not known which address is silent")
			}
			begin := time.Now()
			if _, err := c.Call(t.Context(), r.addr(), "echo", nil); !errkind.Is(err, errkind.Unavailable) {
				t.Errorf("a call that was certainly not sent: %v", err)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("it took %v to learn that nobody greets", took)
			}
			r.thaw()
			polltest.NoError(t, polltest.Deadline, func() error {
				_, err := c.Call(t.Context(), r.addr(), "echo", nil)
				return err
			}, "it is back")
		})
	}
}

// TestSlowIsNotSilent: a call that takes long is waited for, and while all who wait are parked hardly anything is
// asked; at rest nothing at all. So it is where calls share no stream.
func TestSlowIsNotSilent(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"shared stream": 0, "calls of their own": muxLeastLimit / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := patient()
			s.Handle(wire.Anyone, "slow", func(ctx context.Context, req []byte) ([]byte, error) {
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
				return req, nil
			})
			addr, _ := serve(t, s, "127.0.0.1:0")
			r := newRelay(t, addr)
			c := client(t, ClientConfig{MaxMessageBytes: limit})
			if _, err := c.Call(t.Context(), r.addr(), "slow", []byte("x")); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			before := r.bytes.Load()
			if _, err := c.Wait(ctx, r.addr(), "park", nil); !errkind.Is(err, errkind.Unknown) {
				t.Fatal(err)
			}
			if sent := r.bytes.Load() - before; sent > 1000 {
				t.Errorf("%d bytes were sent while one call was parked for 4 s", sent)
			}
		})
	}
}
