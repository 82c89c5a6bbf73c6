package node

import (
	"os"

	"corbel.dev/corbel/monitor/reveal"
)

// buildSecrets makes what finds the values of secrets that checks, handlers and mutators name.
func (m *monitorPlane) buildSecrets() {
	m.secrets = reveal.New(reveal.Config{View: m.resources.View, Getenv: os.LookupEnv, Own: m.p.ownSecrets, Now: m.p.clock.Now})
}

// ownSecrets is the address of this process's secrets plane; "" where that is off.
func (p *Process) ownSecrets() string {
	if p.vault != nil {
		return p.vault.apiAddr
	}
	if addr := p.SecretsAddr(); addr != nil {
		return "http://" + addr.String()
	}
	return ""
}
