package serve

import (
	"context"
	"log/slog"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/node"
	"corbel.dev/corbel/node/config"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
)

func newProcess(cfg *config.Config) (process, error) {
	cfg.ScriptCommand = monitorplane.ScriptCommand()
	p, err := node.New(cfg)
	if err != nil {
		return nil, err // never a typed nil in the interface
	}
	return p, nil
}

// introduce has the servers introduce an agent that wants that, which may take until they are there; a signal ends it.
func introduce(ctx context.Context, e *command.Env, cfg *config.Config) error {
	if !cfg.AutoConfig.Enabled {
		return nil
	}
	ctx, stop := command.Signals(ctx)
	defer stop()
	return node.Introduce(ctx, cfg, slog.New(slog.NewTextHandler(e.Err, nil)))
}
