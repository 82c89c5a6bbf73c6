package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"corbel.dev/corbel/kit/crl"
	"corbel.dev/corbel/node/config"
)

// monitorTLS is the TLS of the plane's two ports; nil is none.
type monitorTLS struct{ api, agents *tls.Config }

// monitorPorts builds the TLS of the plane's ports. That of the agents' is the API's, unless it has a certificate of
// its own or agents are known by theirs.
func (p *Process) monitorPorts(cfg *config.Config) (t monitorTLS, err error) {
	block, own := cfg.TLS.Monitor, &cfg.Monitor
	if block.Enabled() && !cfg.TLS.Disabled {
		if t.api, err = p.PortTLS(cfg, "monitor", &block, "http/1.1"); err != nil {
			return t, err
		}
	}
	t.agents = t.api
	if own.AgentAuthCert != "" {
		block.CertFile, block.KeyFile = own.AgentAuthCert, own.AgentAuthKey
		if t.agents, err = p.PortTLS(cfg, "monitor", &block, "http/1.1"); err != nil {
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

// Reload implements plane.Plane.
func (m monitorValue) Reload(cfg *config.Config) (apply func(), err error) {
	fresh, err := m.p.monitorPorts(cfg)
	if now := m.tls.Load(); err == nil && ((now.api == nil) != (fresh.api == nil) ||
		(now.agents == nil) != (fresh.agents == nil)) {
		err = errors.New("tls.monitor: a port of the monitor plane begins or ends to speak TLS with a restart")
	}
	return func() { m.tls.Store(&fresh) }, err
}

// openRevoked makes the lists of revoked certificates of agents; nil where certificates log nobody in.
func (m *monitorPlane) openRevoked() (err error) {
	cfg := &m.p.Cfg.Monitor
	if cfg.AgentAuthCA == "" {
		return nil
	}
	text, err := os.ReadFile(cfg.AgentAuthCA)
	if err != nil {
		return fmt.Errorf("monitor.agent_auth_trusted_ca_file: %w", err)
	}
	if m.revoked, err = crl.New(crl.Config{Sources: cfg.AgentAuthCRL, Authorities: text, Log: m.log}); err != nil {
		return fmt.Errorf("monitor.agent_auth_crl_urls: %w", err)
	}
	return nil
}
