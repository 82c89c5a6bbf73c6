package node

import (
	"net"
	"os"

	"corbel.dev/corbel/monitor/secretresolver"
	"corbel.dev/corbel/node/plane"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
)

// buildSecrets makes what finds the values of secrets that checks, handlers and mutators name.
func (m *monitorPlane) buildSecrets() {
	m.secrets = secretresolver.New(secretresolver.Config{View: m.resources.View, Getenv: os.LookupEnv,
		Own: func() string {
			if part := plane.Find[*secretsplane.Part](m.p.planes); part != nil {
				return part.APIAddr()
			}
			return ""
		}, Now: m.p.Clock.Now})
}

// SecretsAddr is where dev's secrets plane answers, or nil.
func (p *Process) SecretsAddr() net.Addr {
	if part := plane.Find[*secretsplane.Part](p.planes); part != nil {
		return part.Addr()
	}
	return nil
}
