package agentproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/client/vaultagent/agentconfig"
)

// grace is how long requests may take to end when the process does.
const grace = 5 * time.Second

// Run listens until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer func() { stop(); wait.Wait(); p.client.Close() }()
	var bound []net.Listener
	for i, l := range p.cfg.Listeners {
		one, err := p.listen(l, i)
		if err != nil {
			for _, b := range bound {
				_ = b.Close() // the error that is told is why
			}
			return fmt.Errorf("listener %s %s: %w", l.Type, l.Address, err)
		}
		bound = append(bound, one)
		p.log.Info("listening", "type", l.Type, "address", one.Addr().String(), "tls", !l.TLSDisable)
	}
	if p.cache != nil {
		wait.Go(func() { p.renew(ctx) })
	}
	failed := make(chan error, len(bound))
	for i, b := range bound {
		srv := &http.Server{Handler: p.handler(p.cfg.Listeners[i]), ReadHeaderTimeout: 10 * time.Second,
			ReadTimeout: time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 1 << 20,
			ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug)}
		wait.Go(func() {
			if err := srv.Serve(b); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
		wait.Go(func() {
			<-ctx.Done()
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer cancel()
			if srv.Shutdown(end) != nil {
				_ = srv.Close() // streams do not end by themselves
			}
		})
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// listen opens a listener.
func (p *Proxy) listen(l agentconfig.Listener, i int) (net.Listener, error) {
	if l.Type == "unix" {
		if info, err := os.Lstat(l.Address); err == nil && info.Mode()&os.ModeSocket != 0 {
			if c, err := net.DialTimeout("unix", l.Address, time.Second); err == nil {
				_ = c.Close() // somebody answers
				return nil, errors.New("another process listens there")
			}
			if err := os.Remove(l.Address); err != nil {
				return nil, err
			}
		}
	}
	b, err := net.Listen(l.Type, l.Address)
	if err == nil && l.Type == "unix" && l.SocketMode != 0 {
		if err = os.Chmod(l.Address, l.SocketMode); err != nil {
			_ = b.Close() // the error that is told is why
		}
	}
	if err != nil || l.TLSDisable {
		return b, err
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.certs.list[i].Load(), nil }}
	if l.MinVersion == "tls13" {
		t.MinVersion = tls.VersionTLS13
	}
	if l.ClientCAFile != "" {
		pool := x509.NewCertPool()
		pem, err := os.ReadFile(l.ClientCAFile)
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			_ = b.Close() // the error that is told is why
			return nil, fmt.Errorf("tls_client_ca_file: %s has no certificate: %w", l.ClientCAFile, err)
		}
		t.ClientCAs, t.ClientAuth = pool, tls.VerifyClientCertIfGiven
	}
	if l.RequireClientCert {
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return tls.NewListener(b, t), nil
}

// certificates are those of the listeners, by their places; nil where there is no TLS.
type certificates struct {
	listeners []agentconfig.Listener
	list      []atomic.Pointer[tls.Certificate]
}

func newCertificates(listeners []agentconfig.Listener) (*certificates, error) {
	c := &certificates{listeners: listeners, list: make([]atomic.Pointer[tls.Certificate], len(listeners))}
	return c, c.reload()
}

// reload reads all; what cannot be read stays.
func (c *certificates) reload() error {
	var failed []error
	for i, l := range c.listeners {
		if l.TLSDisable {
			continue
		}
		pair, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
		if err != nil {
			failed = append(failed, fmt.Errorf("listener %s %s: tls_cert_file: %w", l.Type, l.Address, err))
			continue
		}
		c.list[i].Store(&pair)
	}
	return errors.Join(failed...)
}
