package benchcmd

import (
	"context"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/bench/cacheload"
	"corbel.dev/corbel/bench/usageload"
	"corbel.dev/corbel/cli/command"
)

func benchCache(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, cacheload.Options{}
	c := benchCommand(e, "cache", "The usage plane's cache beside redis-server and valkey-server", b)
	c.Flags().IntVar(&o.Keys, "keys", 100_000, "different keys")
	c.Flags().IntVar(&o.ValueBytes, "value-bytes", 64, "length of a value")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		r, err := cacheload.Run(ctx, o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c
}

func benchUsage(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, usageload.Options{}
	c := benchCommand(e, "usage", "Usage events stored and counted: binary, JSON and dogstatsd", b)
	c.Flags().IntVar(&o.Events, "events", 5000, "events of a batch")
	c.Flags().IntVar(&o.Tenants, "tenants", 100, "different tenants")
	c.Flags().Int64Var(&o.Identities, "identities", 0,
		"different identities to count, for errors, memory and the start after kill -9: 10000000, or 100000000 for a month "+
			"of so many, of which the last two have a tenth; 0 has the doors alone")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		r, err := usageload.Run(ctx, o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c
}
