package rpc

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// identified keeps who is at the other end of a connection, as the wire found out, beside it. It secures nothing.
type identified struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (identified) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, caller{wire.PeerOf(conn)}, nil
}

// Clone implements credentials.TransportCredentials.
func (c identified) Clone() credentials.TransportCredentials {
	return identified{c.TransportCredentials.Clone()}
}

// caller is a peer as grpc carries it.
type caller struct{ *wire.Peer }

// AuthType implements credentials.AuthInfo.
func (caller) AuthType() string { return "wire" }

// Caller is the process that calls, inside a handler. nil, which is a stranger, elsewhere and where the server's
// listener is none of a wire.
func Caller(ctx context.Context) *wire.Peer {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(caller); ok {
			return c.Peer
		}
	}
	return nil
}

// Peer returns the address of the calling process inside a handler; "" elsewhere.
func Peer(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// door is whom a method is for.
type door struct {
	name  string
	roles wire.Roles
	noted atomic.Int64 // when a refusal was logged last, in Unix seconds
}

// noteEvery is how often, in seconds, the refusals of one method reach the log.
const noteEvery = 10

// refuse makes the error of a call by somebody whom the method is not for.
func (s *Server) refuse(d *door, from *wire.Peer) error {
	s.denied.Add(1)
	now := time.Now().Unix()
	if last := d.noted.Load(); now-last >= noteEvery && d.noted.CompareAndSwap(last, now) {
		s.cfg.Log.Warn("refused a call", "method", d.name, "for", d.roles, "caller", from)
	}
	return errkind.Errorf(errkind.Denied, "rpc: %s is for %s; %s", d.name, d.roles, from)
}

// Method is a registration: whom a method is for.
type Method struct {
	Name   string
	Roles  wire.Roles
	Stream bool
}

// Methods lists the registrations, in no order.
func (s *Server) Methods() (list []Method) {
	for name, m := range s.calls {
		list = append(list, Method{name, m.roles, false})
	}
	for name, m := range s.streams {
		list = append(list, Method{name, m.roles, true})
	}
	return list
}
