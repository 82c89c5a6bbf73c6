package vaultagent

import (
	"os"

	"corbel.dev/corbel/client/vaultagent/agentconfig"
)

// Configures reports whether a file is the configuration of an agent or a proxy, by its stanzas.
func Configures(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && agentconfig.Holds(text)
}

// Check says what is wrong with a file that is a whole configuration, of an agent or of a proxy.
func Check(path string) error {
	_, err := agentconfig.Load(agentconfig.Agent, []string{path})
	if err != nil {
		if _, proxies := agentconfig.Load(agentconfig.Proxy, []string{path}); proxies == nil {
			return nil
		}
	}
	return err
}
