package node

import (
	"crypto/tls"

	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/httpx"
)

func (p *Process) buildHTTP() (err error) {
	cfg := p.Cfg
	var listen []httpx.Listen
	for _, addr := range cfg.Listen.HTTP {
		listen = append(listen, httpx.Listen{Address: addr})
	}
	if len(cfg.Listen.HTTPS) > 0 {
		var t *tls.Config
		if t, err = p.HTTPSTLS(cfg); err != nil {
			return err
		}
		p.https.Store(t)
		current := &tls.Config{MinVersion: tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return p.https.Load(), nil }}
		for _, addr := range cfg.Listen.HTTPS {
			listen = append(listen, httpx.Listen{Address: addr, TLS: current})
		}
	}
	if len(listen) == 0 {
		return nil
	}
	p.hot = p.api.Hot()
	var hot hothttp.Handler // a nil *Hot is no nil Handler
	if p.hot != nil {
		hot = p.hot
	}
	p.http, err = httpx.NewServer(httpx.ServerConfig{
		Name: "catalog", Hot: hot, Listen: listen, Handler: p.doctor, Conns: p.Ports.HTTP,
		ExemptLoopback: cfg.Dev,
		MaxHeaderBytes: cfg.HTTP.MaxHeaderBytes, Bytes: p.Ports.Bytes, Logger: p.Log, Metrics: p.Metrics,
		Unix: httpx.UnixMode{User: cfg.Addresses.SocketUser, Group: cfg.Addresses.SocketGroup,
			Mode: cfg.Addresses.SocketMode},
	})
	if err != nil {
		return err
	}
	return p.http.Bind()
}
