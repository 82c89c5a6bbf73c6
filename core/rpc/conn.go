package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// target is one slot for a connection to one address.
//
// grpc would reconnect by itself, but with a back-off during which calls fail
// though the server is long back, and with errors that do not tell whether anybody
// listens. So a grpc channel lives exactly as long as its one connection, and the
// dialling is done here: one attempt at a time, shared by all who wait for it.
type target struct {
	cfg     *ClientConfig
	options []grpc.CallOption
	addr    string
	live    atomic.Pointer[live]
	// avoid is until when the address counts as silent, as UnixNano.
	avoid atomic.Int64

	mu       sync.Mutex // guards all below; not held while dialling
	attempt  *attempt   // in progress
	failed   error      // of the last attempt; returned until retryAt
	retryAt  time.Time
	finished bool
}

type attempt struct {
	done   chan struct{} // closed after l and err are set
	cancel context.CancelFunc
	l      *live
	err    error
}

// live is a connection and the number of those who use it.
type live struct {
	cc *grpc.ClientConn
	// users counts calls and streams, plus one while the slot points here. The one
	// who brings it to zero closes the channel: calls in flight on a connection
	// that the server is draining are not cut.
	users   atomic.Int64
	pulse   *pulse
	options []grpc.CallOption
	ctx     context.Context // ends when the channel is given up
	end     context.CancelFunc

	muxMu sync.Mutex // guards mux and plain
	mux   *mux       // nil until the first small call
	plain bool       // the server knows no shared streams
}

// shared returns the connection's shared stream, a new one when the last has ended; nil when there can be none.
func (l *live) shared(options []grpc.CallOption, cfg *ClientConfig) *mux {
	l.muxMu.Lock()
	defer l.muxMu.Unlock()
	if l.plain {
		return nil
	}
	if l.mux != nil {
		l.mux.mu.Lock()
		ended := l.mux.ended
		l.mux.mu.Unlock()
		if ended == nil {
			return l.mux
		}
		if l.mux = nil; status.Code(ended) == codes.Unimplemented {
			l.plain = true
			return nil
		}
	}
	m, err := openMux(l.cc, options, cfg)
	if err != nil {
		return nil // a call by itself tells what is wrong
	}
	l.mux = m
	return m
}

// acquire counts a user; false when the channel has been given up.
func (l *live) acquire() bool {
	for {
		n := l.users.Load()
		if n == 0 {
			return false
		}
		if l.users.CompareAndSwap(n, n+1) {
			if n == 1 {
				select {
				case l.pulse.wake <- struct{}{}:
				default:
				}
			}
			return true
		}
	}
}

func (l *live) release() {
	if l.users.Add(-1) == 0 {
		l.end()
		l.cc.Close()
	}
}

// get returns a ready connection, which the caller must release. An attempt goes on
// when ctx or the patience of the one who began it ends: others may wait for it.
func (t *target) get(ctx context.Context) (*live, error) {
	if l := t.live.Load(); l != nil && l.acquire() {
		if l.ready() {
			return l, nil
		}
		l.release()
		t.forget(l)
	}
	var patience <-chan time.Time
	for {
		t.mu.Lock()
		if l := t.live.Load(); l != nil && l.acquire() {
			t.mu.Unlock()
			return l, nil
		}
		if t.finished {
			t.mu.Unlock()
			return nil, errkind.New(errkind.Unavailable, "rpc: client is closed")
		}
		if t.failed != nil && time.Now().Before(t.retryAt) {
			err := t.failed
			t.mu.Unlock()
			return nil, err
		}
		a := t.attempt
		if a == nil {
			dialCtx, cancel := context.WithTimeout(context.Background(), t.cfg.DialTimeout)
			a = &attempt{done: make(chan struct{}), cancel: cancel}
			t.attempt = a
			go t.dial(dialCtx, a)
		}
		t.mu.Unlock()
		if patience == nil {
			timer := time.NewTimer(t.cfg.Patience)
			defer timer.Stop()
			patience = timer.C
		}
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
			if a.l.acquire() {
				return a.l, nil
			}
			// It died between: look again.
		case <-patience:
			t.noteSilence()
			return nil, errkind.E(errkind.Unavailable, "rpc: connecting to "+t.addr, errNoGreeting)
		case <-ctx.Done():
			return nil, errkind.E(errkind.Unavailable, "rpc: connecting to "+t.addr, ctx.Err())
		}
	}
}

// dial makes one attempt and publishes its outcome. It ends within DialTimeout.
func (t *target) dial(ctx context.Context, a *attempt) {
	defer a.cancel()
	l, err := t.connect(ctx)
	if err != nil && errkind.Of(err) == errkind.Internal {
		err = errkind.E(errkind.Unavailable, "rpc: connecting to "+t.addr, err)
	}
	t.mu.Lock()
	if err == nil && t.finished {
		l.end()
		l.cc.Close()
		err = errkind.New(errkind.Unavailable, "rpc: client is closed")
	}
	t.attempt, t.failed = nil, err
	if err != nil {
		t.retryAt = time.Now().Add(t.cfg.RetryAfter/4 + rand.N(t.cfg.RetryAfter*3/4+1))
	} else {
		l.users.Store(1)
		t.live.Store(l)
		go l.watch(t)
	}
	a.l, a.err = l, err
	t.mu.Unlock()
	close(a.done)
}

var (
	errGone       = errors.New("the connection is gone")
	errNoGreeting = errors.New("no answer yet")
)

// connect dials and waits for the server's first frame, so that a listener that
// accepts and then says nothing is an error here and not in the first call.
func (t *target) connect(ctx context.Context) (*live, error) {
	conn, err := t.cfg.Dial(ctx, t.addr)
	if err != nil {
		return nil, err
	}
	pulse := newPulse()
	once := make(chan net.Conn, 1)
	once <- &heardConn{conn, pulse}
	cc, err := grpc.NewClient("passthrough:///"+t.addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the wire below is secured
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errGone
			}
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: max(t.cfg.KeepAlive, 10*time.Second),
			Timeout: keepAliveTimeout, PermitWithoutStream: true}),
		grpc.WithIdleTimeout(t.cfg.IdleTimeout),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(connWindowBytes),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)
	if err != nil {
		conn.Close()
		return nil, err
	}
	cc.Connect()
	for {
		switch state := cc.GetState(); state {
		case connectivity.Ready:
			life, end := context.WithCancel(context.Background())
			return &live{cc: cc, pulse: pulse, options: t.options, ctx: life, end: end}, nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			err = errGone
		default:
			if cc.WaitForStateChange(ctx, state) {
				continue
			}
			err = ctx.Err()
		}
		cc.Close()
		conn.Close()
		return nil, errkind.E(errkind.Unavailable, "rpc: handshake with "+t.addr, err)
	}
}

// forget takes l out of the slot; it is closed when its last user releases it.
func (t *target) forget(l *live) {
	if t.live.CompareAndSwap(l, nil) {
		l.release()
	}
}

func (t *target) close() {
	t.mu.Lock()
	t.finished = true
	a := t.attempt
	t.mu.Unlock()
	if a != nil {
		a.cancel()
		<-a.done
	}
	if l := t.live.Swap(nil); l != nil {
		l.cc.Close()
		l.release()
	}
}
