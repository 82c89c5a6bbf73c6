package dnsapi

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/kit/limit"
)

// overloaded is the reply to a question for which there is no slot.
func (s *Server) overloaded(d *deferred) []byte {
	d.reply.Rcode = dns.RcodeServerFailure
	d.reply.Answer, d.reply.Ns, d.reply.Extra = nil, nil, nil
	return s.pack(d.reply, false)
}

// serveTCP accepts connections, up to ConnLimit at once; one more is closed and counted.
func (s *Server) serveTCP(ctx context.Context, port *net.TCPListener, wg *sync.WaitGroup) error {
	listener := s.cfg.Conns.Listener(port)
	slots := make(chan struct{}, s.cfg.ConnLimit)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			s.cfg.Logger.Warn("accepting DNS connections", "error", err)
			select { // out of descriptors, most likely: let some be freed
			case <-ctx.Done():
				return nil
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			s.metrics.shed.Add(1)
			_ = conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
			s.serveConn(ctx, conn)
		})
	}
}

// serveConn answers a connection's questions in their order until it is idle or broken.
func (s *Server) serveConn(ctx context.Context, conn net.Conn) {
	w := s.newResponder()
	var size [2]byte
	query := make([]byte, 0, 512)
	for ctx.Err() == nil {
		if conn.SetDeadline(time.Now().Add(s.cfg.ConnIdle)) != nil || ctx.Err() != nil {
			return
		}
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > queryLimit {
			s.metrics.malformed.Add(1)
			return
		}
		if cap(query) < n {
			query = make([]byte, n)
		}
		query = query[:n]
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		begin := time.Now()
		reply, later := w.respond(query, w.own(true))
		if later != nil {
			if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
				later.from.source = a.AddrPort().Addr().Unmap()
			}
			reply = s.resolveWithin(ctx, query, later)
		}
		w.observe(time.Since(begin))
		if len(reply) == 0 || len(reply) >= maxTCPSize {
			return
		}
		if !s.write(conn, reply) {
			return
		}
	}
}

// write sends a reply with its length. One that is more than a question may be has its place in the budget until the
// client has taken it; where there is none the connection ends.
func (s *Server) write(conn net.Conn, reply []byte) bool {
	if len(reply) > queryLimit {
		room := s.cfg.Bytes.Hold(limit.AddrOf(conn.RemoteAddr()))
		if room.Add(2*int64(len(reply))) != nil { // the reply, and the frame
			s.metrics.shed.Add(1)
			return false
		}
		defer room.End()
	}
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, len(reply)+2), uint16(len(reply)))
	_, err := conn.Write(append(framed, reply...))
	return err == nil
}

// resolveWithin is resolve, if there is a slot for it.
func (s *Server) resolveWithin(ctx context.Context, query []byte, d *deferred) []byte {
	select {
	case s.network <- struct{}{}:
	default:
		s.metrics.shed.Add(1)
		return s.overloaded(d)
	}
	defer func() { <-s.network }()
	return s.resolve(ctx, query, d)
}
