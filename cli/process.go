package cli

import (
	"corbel.dev/corbel/node"
	"corbel.dev/corbel/node/config"
)

func newProcess(cfg *config.Config) (process, error) {
	p, err := node.New(cfg)
	if err != nil {
		return nil, err // never a typed nil in the interface
	}
	return p, nil
}

// checkConfig names every wrong key of a configuration that loading it does not know.
func checkConfig(cfg *config.Config) error { return node.Check(cfg) }

// checkDefinitions names every wrong key of services and checks before anything is sent or started.
func checkDefinitions(d *config.Definitions) error { return node.CheckDefinitions(d) }
