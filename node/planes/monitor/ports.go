package monitorplane

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

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/kit/crl"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
)

// ports are where the API and agents are served.
type ports struct {
	b       *base.Base
	api     *httpx.Server            // nil where it is off
	agents  *agentsPort              // nil where it is off
	tls     atomic.Pointer[portsTLS] // of both; replaced by Reload
	revoked *crl.Lists               // certificates of agents; nil where these log nobody in
}

// portsTLS is the TLS of the plane's two ports; nil is none.
type portsTLS struct{ api, agents *tls.Config }

// newPorts reads the lists of revoked certificates of agents. It opens nothing.
func newPorts(b *base.Base) (*ports, error) {
	x, cfg := &ports{b: b}, &b.Cfg.Monitor
	if cfg.AgentAuthCA == "" {
		return x, nil
	}
	text, err := os.ReadFile(cfg.AgentAuthCA)
	if err != nil {
		return nil, fmt.Errorf("monitor.agent_auth_trusted_ca_file: %w", err)
	}
	if x.revoked, err = crl.New(crl.Config{Sources: cfg.AgentAuthCRL, Authorities: text, Log: b.Log}); err != nil {
		return nil, fmt.Errorf("monitor.agent_auth_crl_urls: %w", err)
	}
	return x, nil
}

// tlsOf builds the TLS of the ports. That of the agents' is the API's, unless it has a certificate of its own or
// agents are known by theirs.
func tlsOf(b *base.Base, cfg *config.Config) (t portsTLS, err error) {
	block, own := cfg.TLS.Monitor, &cfg.Monitor
	if block.Enabled() && !cfg.TLS.Disabled {
		if t.api, err = b.PortTLS(cfg, "monitor", &block, "http/1.1"); err != nil {
			return t, err
		}
	}
	t.agents = t.api
	if own.AgentAuthCert != "" {
		block.CertFile, block.KeyFile = own.AgentAuthCert, own.AgentAuthKey
		if t.agents, err = b.PortTLS(cfg, "monitor", &block, "http/1.1"); err != nil {
			return t, fmt.Errorf("monitor.agent_auth_cert_file, agent_auth_key_file: %w", err)
		}
	}
	if own.AgentAuthCA == "" || t.agents == nil {
		return t, nil
	}
	text, err := os.ReadFile(own.AgentAuthCA)
	if err != nil {
		return t, fmt.Errorf("monitor.agent_auth_trusted_ca_file: %w", err)
	}
	t.agents = t.agents.Clone()
	t.agents.ClientCAs = x509.NewCertPool()
	if !t.agents.ClientCAs.AppendCertsFromPEM(text) {
		return t, fmt.Errorf("monitor.agent_auth_trusted_ca_file: %s holds no certificate", own.AgentAuthCA)
	}
	if t.agents.ClientAuth == tls.NoClientCert { // else tls.monitor.verify_incoming wants one of everybody
		t.agents.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return t, nil
}

// current is the TLS that pick finds, where it is on: that of Reload counts for who comes later.
func (x *ports) current(pick func(*portsTLS) *tls.Config) *tls.Config {
	if pick(x.tls.Load()) == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return pick(x.tls.Load()), nil }}
}

// open opens the API's port and the agents'.
func (x *ports) open(api http.Handler, agents *sensuapi.Agents) error {
	cfg := x.b.Cfg
	t, err := tlsOf(x.b, cfg)
	if err != nil {
		return err
	}
	x.tls.Store(&t)
	err = x.bind("ports.monitor", cfg.Listen.Monitor, func(addrs []string) error { return x.openAPI(addrs, api) })
	if err != nil {
		return err
	}
	return x.bind("ports.monitor_agents", cfg.Listen.MonitorAgents,
		func(addrs []string) error { return x.openAgents(addrs, agents) })
}

// bind opens the addresses of a port, if it is on. In dev a port that is in use is replaced by a free one, unless it
// was asked for.
func (x *ports) bind(key string, addrs []string, open func([]string) error) error {
	if len(addrs) == 0 {
		return nil
	}
	err := open(addrs)
	if neterr.InUse(err) && x.b.Cfg.Dev && !x.b.Cfg.Given(key) {
		x.b.Log.Warn("a port of the monitor plane is in use; using another one", "key", key, "wanted", addrs)
		err = open([]string{"127.0.0.1:0"})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func (x *ports) openAPI(addrs []string, h http.Handler) (err error) {
	secure := x.current(func(t *portsTLS) *tls.Config { return t.api })
	listen := make([]httpx.Listen, len(addrs))
	for i, addr := range addrs {
		listen[i] = httpx.Listen{Address: addr, TLS: secure}
	}
	x.api, err = httpx.NewServer(httpx.ServerConfig{Name: "monitor", Listen: listen, Handler: h,
		Open: x.b.Cfg.Sockets.Listen, Conns: x.b.Ports.Monitor,
		ExemptLoopback: x.b.Cfg.Dev, MaxHeaderBytes: x.b.Cfg.HTTP.MaxHeaderBytes,
		Bytes: x.b.Ports.Bytes, Logger: x.b.Log, Metrics: x.b.Metrics})
	if err != nil {
		return err
	}
	return x.api.Bind()
}

// The limits of a request for a session, whose headers are a few names.
const (
	agentHeaderTime  = 10 * time.Second
	agentHeaderBytes = 64 << 10
)

func (x *ports) openAgents(addrs []string, agents *sensuapi.Agents) error {
	secure := x.current(func(t *portsTLS) *tls.Config { return t.agents })
	port := &agentsPort{agents: agents, http: &http.Server{Handler: agents, ReadHeaderTimeout: agentHeaderTime,
		IdleTimeout: agentHeaderTime, MaxHeaderBytes: agentHeaderBytes,
		ErrorLog: slog.NewLogLogger(x.b.Log.Handler(), slog.LevelDebug)}}
	for _, addr := range addrs {
		l, err := x.b.Cfg.Sockets.Listen("tcp", addr)
		if err != nil {
			port.close()
			return err
		}
		l = x.b.Ports.Agents.Listener(l)
		if secure != nil {
			l = tls.NewListener(l, secure)
		}
		port.listeners = append(port.listeners, l)
	}
	x.agents = port
	return nil
}

// parts serve the ports that are open.
func (x *ports) parts() (list []life.Part) {
	if x.agents != nil {
		list = append(list, life.Part{Name: "agents", Run: x.agents.run})
	}
	if x.api != nil {
		list = append(list, life.Part{Name: "api", Run: x.api.Run})
	}
	return list
}

func (x *ports) close() {
	if x.agents != nil {
		x.agents.close()
	}
}

// addrs are where the API and the port for agents answer, "" where that is off.
func (x *ports) addrs() (api, agents string) {
	if x.api != nil {
		api = x.api.Addrs()[0].String()
	}
	if x.agents != nil {
		agents = x.agents.listeners[0].Addr().String()
	}
	return api, agents
}

// agentsDoor is how agents reach this server; port is "" where they do not.
func (x *ports) agentsDoor() (scheme, port string) {
	_, addr := x.addrs()
	_, port, err := net.SplitHostPort(addr)
	if err != nil { // there is none
		return "", ""
	}
	if x.tls.Load().agents != nil {
		return "wss", port
	}
	return "ws", port
}

// agentsPort serves agents. Their sessions take over their connections, so it is a server of its own, with
// sockets that can be waited on without a buffer.
type agentsPort struct {
	http      *http.Server
	agents    *sensuapi.Agents
	listeners []net.Listener
}

func (a *agentsPort) close() {
	for _, l := range a.listeners {
		_ = l.Close()
	}
}

func (a *agentsPort) run(ctx context.Context) error {
	var all sync.WaitGroup
	failed := make(chan error, len(a.listeners)+1)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	for _, l := range a.listeners {
		all.Go(func() {
			if err := a.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	ended := make(chan struct{})
	all.Go(func() {
		defer close(ended)
		if err := a.agents.Run(serving); err != nil {
			failed <- err
		}
	})
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	<-ended
	err = errors.Join(err, a.http.Close())
	all.Wait()
	return err
}
