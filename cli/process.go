package cli

import (
	"context"
	"log/slog"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/node"
	"corbel.dev/corbel/node/config"
)

func newProcess(cfg *config.Config) (process, error) {
	cfg.ScriptCommand = node.ScriptCommand()
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

// introduce has the servers introduce an agent that wants that, which may take until they are there; a signal ends it.
func introduce(ctx context.Context, e *env, cfg *config.Config) error {
	if !cfg.AutoConfig.Enabled {
		return nil
	}
	ctx, stop := command.Signals(ctx)
	defer stop()
	return node.Introduce(ctx, cfg, slog.New(slog.NewTextHandler(e.Err, nil)))
}
