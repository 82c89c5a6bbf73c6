package httpx

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// Proxied says whose PROXY protocol header (version 1 or 2) tells where a connection comes from. A connection without
// one is from where it comes.
type Proxied struct {
	// Any believes everybody. Else those in From are believed, and
	Any  bool
	From []netip.Prefix
	// Deny closes the connections of others; without it their headers are read and not believed.
	Deny bool
}

// headerWithin is how long a connection may take to send its header.
const headerWithin = 5 * time.Second

// maxUnheard bounds connections whose header has not come; beyond it new ones are closed.
const maxUnheard = 1024

// proxiedListener gives connections once their header was read. Headers are read beside each other, so that nobody
// who is slow with his keeps others out.
type proxiedListener struct {
	net.Listener
	who   *Proxied
	ready chan net.Conn
	done  chan struct{}
	once  sync.Once
	slots chan struct{}
	begin sync.Once
	wg    sync.WaitGroup
	err   error // of the listener below; set before ready is closed
}

func (p *Proxied) wrap(l net.Listener) net.Listener {
	return &proxiedListener{Listener: l, who: p, ready: make(chan net.Conn), done: make(chan struct{}),
		slots: make(chan struct{}, maxUnheard)}
}

// Accept implements net.Listener.
func (l *proxiedListener) Accept() (net.Conn, error) {
	l.begin.Do(func() { l.wg.Go(l.run) })
	c, ok := <-l.ready
	if !ok {
		return nil, l.err
	}
	return c, nil
}

// run accepts until the listener below ends, and ends after all that it began.
func (l *proxiedListener) run() {
	var heads sync.WaitGroup
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			l.err = err
			break
		}
		policy := proxyproto.USE
		if !l.who.Any && !l.trusted(c.RemoteAddr()) {
			policy = proxyproto.IGNORE
			if l.who.Deny {
				_ = c.Close()
				continue
			}
		}
		select {
		case l.slots <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		heads.Go(func() {
			defer func() { <-l.slots }()
			pc := proxyproto.NewConn(c, proxyproto.WithPolicy(policy), proxyproto.SetReadHeaderTimeout(headerWithin))
			pc.ProxyHeader() // reads it: one that is wrong is the error of the first Read
			select {
			case l.ready <- pc:
			case <-l.done:
				_ = pc.Close()
			}
		})
	}
	l.once.Do(func() { close(l.done) })
	heads.Wait()
	close(l.ready)
}

func (l *proxiedListener) trusted(from net.Addr) bool {
	a, ok := from.(*net.TCPAddr)
	return ok && slices.ContainsFunc(l.who.From, func(p netip.Prefix) bool {
		return p.Contains(a.AddrPort().Addr().Unmap())
	})
}

// Close implements net.Listener.
func (l *proxiedListener) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() { close(l.done) })
	l.begin.Do(func() { close(l.ready) }) // nobody ever accepted
	l.wg.Wait()
	return err
}
