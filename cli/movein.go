package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/migrate"
	"corbel.dev/corbel/cli/migrate/movein"
	"corbel.dev/corbel/client/nomad"
	"corbel.dev/corbel/client/sensu"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// moveFlags are the flags that `import vault`, `import sensu` and `import nomad` share.
type moveFlags struct {
	from, fromFile, fromCA, fromNamespace string
	to, toFile, toCA                      string
	o                                     movein.Options
	asJSON                                bool
}

func (m *moveFlags) flags(c *cobra.Command, what, variables string) {
	f := c.Flags()
	f.StringVar(&m.from, "from", "", "address of the "+what+" to read")
	f.StringVar(&m.fromFile, "from-token-file", "", "file with the "+variables+" of the source")
	f.StringVar(&m.fromCA, "from-ca-file", "", "CA certificates of the source, PEM")
	f.StringVar(&m.to, "to", "", "address of the target; default that of the environment")
	f.StringVar(&m.toFile, "to-token-file", "", "file with the "+variables+" of the target; default the environment's")
	f.StringVar(&m.toCA, "to-ca-file", "", "CA certificates of the target, PEM")
	f.BoolVar(&m.o.DryRun, "dry-run", false, "only say what would be done")
	f.BoolVar(&m.o.Overwrite, "overwrite", false, "also overwrite what exists and differs")
	f.BoolVar(&m.asJSON, "json", false, "print the report as JSON")
	c.Args = command.Between(0, 0, "flags only")
}

// secretOf reads a file of one line; "" is none.
func secretOf(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	raw, err := os.ReadFile(path)
	return strings.TrimSpace(string(raw)), err
}

// told prints a report; the exit code says whether the target has everything.
func (m *moveFlags) told(e *command.Env, r *migrate.Report, kinds []string, err error) error {
	if r == nil {
		return err
	}
	var werr error
	if m.asJSON {
		werr = command.WriteJSON(e.Out, r, false)
	} else {
		werr = writeReport(e.Out, r, kinds)
	}
	if err != nil || werr != nil {
		return cmp.Or(err, werr)
	}
	if !r.Complete() {
		return command.ExitCode(1)
	}
	return nil
}

func (m *moveFlags) progress(e *command.Env) {
	m.o.Progress = func(kind string) {
		if !m.asJSON {
			fmt.Fprintf(e.Err, "%s: done\n", kind)
		}
	}
}

func importVault(e *command.Env, name string) *cobra.Command {
	var m moveFlags
	c := &cobra.Command{Use: name + " --from URL", Short: "Import the state of a running " + name + ", from its API"}
	c.Long = `Import what a Vault or OpenBao gives to a token: policies, mounts, auth methods and their
roles, KV secrets (the newest version of each), entities with their aliases, and internal
groups. Existing objects are kept, so you can run it repeatedly. What was written is read
back and compared. Keys, passwords and tokens cannot be read from a source: they are listed
as skipped, with what to do. The exit code is 1 if something failed or differs.

  corbel import ` + name + ` --from https://vault.example:8200 --from-token-file token --dry-run`
	m.flags(c, name, "token")
	c.Flags().StringVar(&m.fromNamespace, "from-namespace", "", "namespace of the source to read")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if m.from == "" {
			return command.Usagef("import %s needs --from, the address of a server", name)
		}
		from, err := m.vaultEnd(e, vault.Config{Address: m.from, CAFile: m.fromCA, Namespace: m.fromNamespace}, m.fromFile)
		if err != nil {
			return err
		}
		cfg, err := vault.FromEnv(e.Getenv)
		if err != nil {
			return err
		}
		cfg.Address, cfg.CAFile = cmp.Or(m.to, cfg.Address), cmp.Or(m.toCA, cfg.CAFile)
		cfg.Token = vault.Env(e.Getenv, "TOKEN")
		to, err := m.vaultEnd(e, cfg, m.toFile)
		if err != nil {
			return err
		}
		m.progress(e)
		ctx, stop := command.Signals(c.Context())
		defer stop()
		r, err := movein.Vault(ctx, from, to, m.o)
		return m.told(e, r, movein.VaultKinds, err)
	}
	return c
}

func (m *moveFlags) vaultEnd(e *command.Env, cfg vault.Config, file string) (*vault.Client, error) {
	token, err := secretOf(file)
	if err != nil {
		return nil, err
	}
	cfg.Token = cmp.Or(token, cfg.Token)
	if cfg.Token == "" {
		return nil, command.Usagef("a token is needed for %s: --from-token-file, and --to-token-file or VAULT_TOKEN",
			cmp.Or(cfg.Address, "the target"))
	}
	cl, err := vault.New(cfg)
	if err == nil {
		e.OnClose(cl.Close)
	}
	return cl, err
}

func importSensu(e *command.Env) *cobra.Command {
	var m moveFlags
	c := &cobra.Command{Use: "sensu --from URL", Short: "Import the configuration of a running Sensu Go, from its API"}
	c.Long = `Import the configuration of a Sensu Go: namespaces, roles and their bindings, assets, hooks,
filters, mutators, handlers, pipelines, checks, proxy entities and silences. Existing
objects are kept, so you can run it repeatedly. Users are listed, since their passwords
cannot be read; agents and their events come once the agents connect here. The exit code
is 1 if something failed or differs.

  corbel import sensu --from http://sensu.example:8080 --from-token-file key --dry-run`
	m.flags(c, "Sensu Go backend", "API key")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if m.from == "" {
			return command.Usagef("import sensu needs --from, the address of a backend's API")
		}
		m.progress(e)
		ctx, stop := command.Signals(c.Context())
		defer stop()
		return m.sensu(ctx, e)
	}
	return c
}

func importNomad(e *command.Env) *cobra.Command {
	var m moveFlags
	var o movein.NomadOptions
	c := &cobra.Command{Use: "nomad --from URL", Short: "Import the state of a running Nomad, from its API"}
	c.Long = `Import what a Nomad gives to a token: node pools, namespaces, the scheduler's settings,
policies, roles, auth methods, binding rules and tokens with their secrets, variables, and
the newest version of each job that is to run. Existing objects are kept, so you can run
it repeatedly. What was written is read back and compared. Jobs start here as soon as there
are nodes: --stopped stores them only. Volumes, quotas and what runs are counted, and stay.
The exit code is 1 if something failed or differs.

  corbel import nomad --from http://nomad.example:4646 --from-token-file token --dry-run`
	m.flags(c, "Nomad server", "token")
	c.Flags().StringSliceVar(&o.Kinds, "only", nil, "only these kinds: "+strings.Join(movein.NomadKinds, ", "))
	c.Flags().BoolVar(&o.Stopped, "stopped", false, "store jobs as stopped")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if m.from == "" {
			return command.Usagef("import nomad needs --from, the address of a server")
		}
		cfg, err := nomad.FromEnv(e.Getenv)
		if err != nil {
			return command.AsUsage(err)
		}
		cfg.Address, cfg.CAFile = cmp.Or(m.to, cfg.Address), cmp.Or(m.toCA, cfg.CAFile)
		cfg.Token = cmp.Or(cfg.Token, e.Getenv("CORBEL_TOKEN"))
		var ends [2]*nomad.Client
		for i, end := range []struct {
			cfg  nomad.Config
			file string
		}{{nomad.Config{Address: m.from, CAFile: m.fromCA}, m.fromFile}, {cfg, m.toFile}} {
			token, err := secretOf(end.file)
			if err != nil {
				return err
			}
			end.cfg.Token = cmp.Or(token, end.cfg.Token)
			if ends[i], err = nomad.New(end.cfg); err != nil {
				return err
			}
			e.OnClose(ends[i].Close)
		}
		m.progress(e)
		o.Options = m.o
		ctx, stop := command.Signals(c.Context())
		defer stop()
		r, err := movein.Nomad(ctx, ends[0], ends[1], m.from, cmp.Or(cfg.Address, nomad.DefaultAddress), o)
		return m.told(e, r, movein.NomadKinds, err)
	}
	return c
}

func (m *moveFlags) sensu(ctx context.Context, e *command.Env) error {
	target := sensu.FromEnv(e.Getenv)
	target.Address, target.CAFile = cmp.Or(m.to, target.Address), cmp.Or(m.toCA, target.CAFile)
	var ends [2]*sensu.Client
	for i, end := range []struct {
		cfg  sensu.Config
		file string
	}{{sensu.Config{Address: m.from, CAFile: m.fromCA}, m.fromFile}, {target, m.toFile}} {
		key, err := secretOf(end.file)
		if err != nil {
			return err
		}
		if key != "" {
			end.cfg.APIKey, end.cfg.User, end.cfg.AccessToken = key, "", ""
		}
		if ends[i], err = sensu.New(end.cfg); err != nil {
			return err
		}
		e.OnClose(ends[i].Close)
	}
	r, err := movein.Sensu(ctx, ends[0], ends[1], m.from, cmp.Or(target.Address, "http://127.0.0.1:8080"), m.o)
	return m.told(e, r, movein.SensuKinds(), err)
}
