package dnsapi

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"

	"corbel.dev/corbel/kit/errkind"
)

const (
	batchSize     = 64
	queryLimit    = 4096 // a query is one name and a few options
	socketBuffer  = 4 << 20
	writeDeadline = 2 * time.Second
)

// endpoint is one address: its TCP listener and its UDP sockets.
type endpoint struct {
	tcp *net.TCPListener
	udp []*net.UDPConn
	// wildcard tells that a reply must be told which address to leave from.
	wildcard, v6 bool
}

// Bind opens the sockets. Run does it when it was not done before; doing it earlier
// makes a port that is taken an error at start.
func (s *Server) Bind() error {
	s.bindMu.Lock()
	defer s.bindMu.Unlock()
	if s.endpoints != nil {
		return nil
	}
	list := []endpoint{}
	for _, address := range s.cfg.Addresses {
		e, err := s.open(address)
		if err != nil {
			closeAll(list)
			return errkind.E(errkind.Unavailable, "dns", err)
		}
		list = append(list, e)
	}
	s.endpoints = list
	return nil
}

// Addr is the first address that is bound; the zero value before Bind.
func (s *Server) Addr() netip.AddrPort {
	s.bindMu.Lock()
	defer s.bindMu.Unlock()
	if len(s.endpoints) == 0 {
		return netip.AddrPort{}
	}
	a := s.endpoints[0].tcp.Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func (s *Server) open(address string) (e endpoint, err error) {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return e, err
	}
	e.tcp = tcp.(*net.TCPListener)
	bound := e.tcp.Addr().(*net.TCPAddr).AddrPort()
	e.wildcard, e.v6 = bound.Addr().IsUnspecified(), bound.Addr().Is6() && !bound.Addr().Is4In6()
	network := "udp4"
	if e.v6 {
		network = "udp"
	}
	config := net.ListenConfig{Control: reusePort}
	for range s.cfg.SocketCount {
		conn, err := config.ListenPacket(context.Background(), network, bound.String())
		if err != nil {
			closeAll([]endpoint{e})
			return e, err
		}
		udp := conn.(*net.UDPConn)
		e.udp = append(e.udp, udp)
		// Room for a burst while the loop is away; the kernel caps it by rmem_max, which is no error.
		_ = udp.SetReadBuffer(socketBuffer)
		_ = udp.SetWriteBuffer(socketBuffer)
	}
	return e, nil
}

func closeAll(list []endpoint) {
	for _, e := range list {
		_ = e.tcp.Close() // nothing was written that could be lost
		for _, u := range e.udp {
			_ = u.Close()
		}
	}
}

// Run serves until ctx ends and every question under way has been answered or given up.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Bind(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.bindMu.Lock()
	list := s.endpoints
	s.bindMu.Unlock()
	var wg sync.WaitGroup
	failures := make(chan error, 1)
	fail := func(err error) {
		if err != nil && ctx.Err() == nil {
			select {
			case failures <- err:
				cancel()
			default:
			}
		}
	}
	for _, e := range list {
		for _, conn := range e.udp {
			wg.Go(func() { fail(s.serveUDP(ctx, e, conn, &wg)) })
		}
		wg.Go(func() { fail(s.serveTCP(ctx, e.tcp, &wg)) })
	}
	<-ctx.Done()
	closeAll(list)
	wg.Wait()
	s.bindMu.Lock()
	s.endpoints = nil
	s.bindMu.Unlock()
	select {
	case err := <-failures:
		return errkind.E(errkind.Unavailable, "dns", err)
	default:
		return nil
	}
}

// batcher is what the two families' connections have in common.
type batcher interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// udpLoop is one socket's state; one goroutine uses it.
type udpLoop struct {
	s    *Server
	conn *net.UDPConn
	io   batcher
	w    *responder
	in   []ipv4.Message
	out  []ipv4.Message
	room [][]byte // reply buffers, by position in out
}

func (s *Server) serveUDP(ctx context.Context, e endpoint, conn *net.UDPConn, wg *sync.WaitGroup) error {
	io, err := batches(e, conn)
	if err != nil {
		return err
	}
	l := &udpLoop{s: s, conn: conn, io: io, w: s.newResponder(),
		in: make([]ipv4.Message, batchSize), out: make([]ipv4.Message, 0, batchSize), room: make([][]byte, batchSize)}
	for i := range l.in {
		l.in[i].Buffers = [][]byte{make([]byte, queryLimit)}
		if e.wildcard {
			l.in[i].OOB = make([]byte, 64)
		}
	}
	for {
		n, err := io.ReadBatch(l.in, 0)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// An ICMP error of an earlier reply, or no memory for the moment: the socket is good.
			s.cfg.Logger.Debug("reading DNS questions", "error", err)
			select { // an error that stays must not spin
			case <-ctx.Done():
				return nil
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		l.handle(ctx, l.in[:n], wg)
	}
}

// handle answers a batch and writes the replies with one call.
func (l *udpLoop) handle(ctx context.Context, in []ipv4.Message, wg *sync.WaitGroup) {
	l.out = l.out[:0]
	begin := time.Now()
	for i := range in {
		m := &in[i]
		query := m.Buffers[0][:m.N]
		reply, later := l.w.respond(query, l.w.own(false))
		if later != nil {
			l.later(ctx, query, m, later, wg)
			continue
		}
		now := time.Now()
		l.w.observe(now.Sub(begin))
		begin = now
		if reply == nil {
			continue
		}
		slot := len(l.out)
		l.room[slot] = append(l.room[slot][:0], reply...)
		l.out = append(l.out, ipv4.Message{Buffers: [][]byte{l.room[slot]}, Addr: m.Addr, OOB: m.OOB[:m.NN]})
	}
	for out := l.out; len(out) > 0; {
		_ = l.conn.SetWriteDeadline(time.Now().Add(writeDeadline)) // fails only when closed, as the write does
		n, err := l.io.WriteBatch(out, 0)
		if err != nil || n <= 0 {
			n = 1 // the first one cannot be sent (a bad port, no route): the client asks again
			if errors.Is(err, net.ErrClosed) {
				return
			}
		}
		out = out[n:]
	}
}

// later answers a question that needs the network from a goroutine of its own, or
// with a failure when too many wait already.
func (l *udpLoop) later(ctx context.Context, query []byte, m *ipv4.Message, d *deferred, wg *sync.WaitGroup) {
	copied := append([]byte(nil), query...)
	oob := append([]byte(nil), m.OOB[:m.NN]...)
	address, ok := m.Addr.(*net.UDPAddr)
	if !ok {
		return
	}
	d.from.source = address.AddrPort().Addr().Unmap()
	s, conn, qtype := l.s, l.conn, l.w.qtype
	send := func(reply []byte) {
		_ = conn.SetWriteDeadline(time.Now().Add(writeDeadline))
		_, _, _ = conn.WriteMsgUDP(reply, oob, address) // lost replies are asked for again
	}
	begin := time.Now()
	select {
	case s.network <- struct{}{}:
	default:
		s.metrics.shed.Add(1)
		send(s.overloaded(d))
		return
	}
	wg.Go(func() {
		defer func() { <-s.network }()
		send(s.resolve(ctx, copied, d))
		s.metrics.observe(qtype, time.Since(begin))
	})
}
