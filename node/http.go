package node

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/api/consulapi/short"
	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
)

// webPorts are the HTTP and HTTPS ports.
type webPorts struct {
	server *httpx.Server              // nil where none is open
	hot    *short.Path                // nil where each request goes through net/http
	tls    atomic.Pointer[tls.Config] // of the HTTPS port; replaced by reload
}

func (x *webPorts) open(b *base.Base, api *consulapi.API, h http.Handler) (err error) {
	cfg := b.Cfg
	var listen []httpx.Listen
	for _, addr := range cfg.Listen.HTTP {
		listen = append(listen, httpx.Listen{Address: addr})
	}
	if len(cfg.Listen.HTTPS) > 0 {
		var t *tls.Config
		if t, err = b.HTTPSTLS(cfg); err != nil {
			return err
		}
		x.tls.Store(t)
		current := &tls.Config{MinVersion: tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return x.tls.Load(), nil }}
		for _, addr := range cfg.Listen.HTTPS {
			listen = append(listen, httpx.Listen{Address: addr, TLS: current})
		}
	}
	if len(listen) == 0 {
		return nil
	}
	var hot hothttp.Handler // a nil *Hot is no nil Handler
	if x.hot = api.Hot(); x.hot != nil {
		hot = x.hot
	}
	x.server, err = httpx.NewServer(httpx.ServerConfig{
		Name: "catalog", Hot: hot, Listen: listen, Handler: h, Open: cfg.Sockets.Listen,
		Conns: b.Ports.HTTP, ExemptLoopback: cfg.Dev,
		MaxHeaderBytes: cfg.HTTP.MaxHeaderBytes, Bytes: b.Ports.Bytes, Logger: b.Log, Metrics: b.Metrics,
		Unix: httpx.UnixMode{User: cfg.Addresses.SocketUser, Group: cfg.Addresses.SocketGroup,
			Mode: cfg.Addresses.SocketMode},
	})
	if err != nil {
		return err
	}
	return x.server.Bind()
}

func (x *webPorts) addrs() []net.Addr {
	if x.server == nil {
		return nil
	}
	return x.server.Addrs()
}

func (x *webPorts) addParts(parts *life.Group) {
	if x.server == nil {
		return
	}
	parts.Add("http", x.server.Run)
	if x.hot != nil { // stops first: parked queries are answered before their connections end
		parts.Add("hot path", x.hot.Run)
	}
}

// reload judges a fresh configuration and returns what applies it.
func (x *webPorts) reload(b *base.Base, cfg *config.Config) (apply func(), err error) {
	if x.tls.Load() == nil {
		return func() {}, nil
	}
	fresh, err := b.HTTPSTLS(cfg)
	return func() { x.tls.Store(fresh) }, err
}
