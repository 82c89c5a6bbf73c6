package secretsplane

import (
	"context"
	"net"
	"sync"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/vaultapi"
)

// secretsPort is one place to serve clients at, with rules of its own. Zero times are Vault's.
type secretsPort struct {
	listen                 httpx.Listen
	unix                   httpx.UnixMode
	rules                  vaultapi.Listener
	headers                *vaultapi.ResponseHeaders
	idle, readHeader, body time.Duration
	write                  time.Duration // zero: the time of a request
}

// secretsPorts serve the secrets plane. Bind opens them, Run serves.
type secretsPorts struct {
	apis    []*vaultapi.API // in the order of the configuration
	servers []*httpx.Server
}

func newSecretsPorts(api *vaultapi.API, c *secretsConfig) (*secretsPorts, error) {
	out := &secretsPorts{}
	for i := range c.ports {
		port := &c.ports[i]
		own := api.At(port.rules)
		own.SetHeaders(port.headers)
		s, err := httpx.NewServer(httpx.ServerConfig{Name: "secrets", Listen: []httpx.Listen{port.listen}, Unix: port.unix,
			Handler: c.withFront(own), Hot: own.Hot(), HTTP2: true, Open: c.sockets.Listen, Conns: c.admits.Secrets,
			MaxHeaderBytes: c.headerBytes, IdleTimeout: port.idle, ReadHeaderTimeout: port.readHeader, BodyGrace: port.body,
			WriteTimeout: port.write, Bytes: c.admits.Bytes, Logger: c.log, Metrics: c.metrics})
		if err != nil {
			return nil, err
		}
		out.apis, out.servers = append(out.apis, own), append(out.servers, s)
	}
	return out, nil
}

// Bind opens all ports.
func (p *secretsPorts) Bind() error {
	for _, s := range p.servers {
		if err := s.Bind(); err != nil {
			return err
		}
	}
	return nil
}

// Addrs is where they are, in the order of the configuration; empty before Bind.
func (p *secretsPorts) Addrs() (out []net.Addr) {
	for _, s := range p.servers {
		out = append(out, s.Addrs()...)
	}
	return out
}

// Run serves until ctx ends or one of them fails.
func (p *secretsPorts) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	for _, s := range p.servers {
		wg.Go(func() {
			if err := s.Run(ctx); err != nil {
				once.Do(func() { failed = err })
			}
			cancel()
		})
	}
	wg.Wait()
	return failed
}
