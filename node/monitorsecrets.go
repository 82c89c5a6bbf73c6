package node

import (
	"net"
	"os"

	"corbel.dev/corbel/monitor/secretresolver"
)

// buildSecrets makes what finds the values of secrets that checks, handlers and mutators name.
func (m *monitorPlane) buildSecrets() {
	m.secrets = secretresolver.New(secretresolver.Config{View: m.resources.View, Getenv: os.LookupEnv,
		Own: m.p.secrets.APIAddr, Now: m.p.Clock.Now})
}

// SecretsAddr is where dev's secrets plane answers, or nil.
func (p *Process) SecretsAddr() net.Addr { return p.secrets.Addr() }
