package meshplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/xds"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
)

// ports are the sockets that Envoys come to.
type ports struct {
	listeners []net.Listener
	plain     int // port without TLS, 0 for none
	secure    int // port with TLS, 0 for none
	tls       atomic.Pointer[tls.Config]
}

// bind opens all sockets, or none.
func (x *ports) bind(b *base.Base) (err error) {
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	for _, addr := range b.Cfg.Listen.GRPC {
		l, err := openGRPC(b, addr)
		if err != nil {
			return fmt.Errorf("ports.grpc: listen on %s: %w", addr, err)
		}
		x.listeners = append(x.listeners, b.Ports.GRPC.Listener(l))
		x.plain = max(x.plain, portOf(l))
	}
	if len(b.Cfg.Listen.GRPCTLS) == 0 {
		return nil
	}
	first, err := b.GRPCTLS(b.Cfg)
	if err != nil {
		return err
	}
	x.tls.Store(first)
	for _, addr := range b.Cfg.Listen.GRPCTLS {
		l, err := openSocket(b.Cfg, addr)
		if err != nil {
			return fmt.Errorf("ports.grpc_tls: listen on %s: %w", addr, err)
		}
		x.secure = max(x.secure, portOf(l))
		x.listeners = append(x.listeners, tls.NewListener(b.Ports.GRPC.Listener(l),
			&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
				GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return x.tls.Load(), nil }}))
	}
	return nil
}

// openGRPC opens a plain socket. dev's own port gives way: a second dev on the host has its ports of choice for the
// rest, and agent/self tells which one this is.
func openGRPC(b *base.Base, addr string) (net.Listener, error) {
	l, err := openSocket(b.Cfg, addr)
	if err == nil || !b.Cfg.Dev || b.Cfg.Given("ports.grpc") || !neterr.InUse(err) {
		return l, err
	}
	host, _, splitErr := net.SplitHostPort(addr)
	if splitErr != nil {
		return nil, err
	}
	if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil {
		b.Log.Warn("the gRPC port is in use; using another one", "wanted", addr, "addr", l.Addr().String())
	}
	return l, err
}

func openSocket(cfg *config.Config, addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		return httpx.OpenUnix(path, httpx.UnixMode{User: cfg.Addresses.SocketUser, Group: cfg.Addresses.SocketGroup,
			Mode: cfg.Addresses.SocketMode})
	}
	return cfg.Sockets.Listen("tcp", addr)
}

func portOf(l net.Listener) int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

func (x *ports) close() {
	for _, l := range x.listeners {
		_ = l.Close()
	}
	x.listeners = nil
}

// run serves all sockets until ctx ends or one of them fails.
func (x *ports) run(ctx context.Context, s *xds.Server) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.SetServing(false) }) // balancers look elsewhere while streams end
	defer stop()
	ended := make(chan error, len(x.listeners))
	for _, l := range x.listeners {
		go func() { ended <- s.Run(ctx, l) }()
	}
	var errs []error
	for range x.listeners {
		err := <-ended
		cancel()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
