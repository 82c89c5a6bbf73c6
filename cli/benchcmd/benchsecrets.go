package benchcmd

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/secretsload"
	"corbel.dev/corbel/cli/command"
)

// benchVault makes a command with the flags that the benches of the secrets plane share.
func benchVault(e *command.Env, name, short string) (*cobra.Command, *benchFlags, *secretsload.SecretsOptions) {
	b, o := &benchFlags{}, &secretsload.SecretsOptions{}
	c := benchCommand(e, name, short, b)
	c.Flags().Lookup("dns-target").Hidden = true // there is none
	if name != "secrets" {                       // which takes several
		c.Flags().StringVar(&o.Backend, "backend", "raft", "storage of the started servers: "+
			strings.Join(secretsload.SecretsBackends, ", "))
	}
	return c, b, o
}

// benchVaultSimple is one without flags of its own.
func benchVaultSimple(e *command.Env, name, short string, run func(context.Context,
	secretsload.SecretsOptions) (*bench.Result,
	error)) *cobra.Command {
	c, b, o := benchVault(e, name, short)
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		return orNil(run(ctx, *o))
	})
	return c
}

// secretsTable prints the rows side by side beneath the rest.
type secretsTable struct{ *bench.Result }

// WriteText implements report.
func (t secretsTable) WriteText(w io.Writer) error {
	if err := t.Result.WriteText(w); err != nil {
		return err
	}
	return secretsload.WriteTable(t.Result, w)
}

func benchSecrets(e *command.Env) *cobra.Command {
	c, b, shared := benchVault(e, "secrets", "Writes and reads of secrets, also over all storages side by side")
	o, backends := secretsload.KVSecretsOptions{}, ""
	f := c.Flags()
	f.StringVar(&backends, "backend", "raft", "storages, with commas, or all: "+
		strings.Join(secretsload.SecretsBackends, ", "))
	f.IntVar(&o.KV, "kv", 1, "version of the store: 1 or 2")
	f.IntVar(&o.Names, "names", 10_000, "distinct secrets that are written")
	f.IntVar(&o.Reads, "reads", 0, "how many of them are read (0 is 1000, or all where there are fewer)")
	f.Lookup("duration").Usage = "how long each measured part runs (0 is 30s)"
	c.Example = "  corbel bench secrets --backend all\n  corbel bench secrets --kv 2 --servers 3\n  corbel bench " +
		"secrets --target 127.0.0.1:8200 --token \"$VAULT_TOKEN\""
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.SecretsOptions = *shared
		o.Options, o.Backends = b.Options, secretsload.ParseBackends(backends)
		o.Backend = o.Backends[0]
		r, err := secretsload.RunSecrets(ctx, o)
		if r == nil {
			return nil, err
		}
		return secretsTable{r}, err
	})
	return c
}

func benchLeases(e *command.Env) *cobra.Command {
	c, b, shared := benchVault(e, "leases",
		"Storms: many tokens end at once while reads go on, and starts with many leases")
	o := secretsload.LeasesOptions{}
	c.Flags().IntVar(&o.Leases, "leases", 10_000, "leases that exist when the storm begins")
	c.Flags().IntVar(&o.Prefix, "prefix", 0,
		"logins that the storm of that name ends, beside the leases of the others (0 is as many as --leases)")
	c.Example = "  corbel bench leases --leases 10000 --storm tree\n  corbel bench leases --leases 1000000 --prefix " +
		"100000 --storm start,prefix --json"
	c.Flags().StringSliceVar(&o.Storms, "storm", []string{"tree", "prefix"},
		"some of tree (a parent with its children), prefix (all logins of a method), start (a restart)")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.SecretsOptions = *shared
		o.Options = b.Options
		return orNil(secretsload.RunLeases(ctx, o))
	})
	return c
}
