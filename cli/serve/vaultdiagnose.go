package serve

import (
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/node/diagnosis"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	"github.com/spf13/cobra"
)

// diagnoseSecrets builds `operator diagnose`. Exit codes: 0 all is well, 1 something failed, 2 there are warnings.
func diagnoseSecrets(e *command.Env) *cobra.Command {
	d := secretsplane.DiagnoseConfig{Getenv: e.Getenv}
	var format string
	var all bool
	c := &cobra.Command{Use: "diagnose",
		Short: "Check what a server needs: host, configuration, storage, seals, listeners"}
	c.Long = `Check what a server of the secrets plane needs, whether it runs or not: host, configuration, storage,
seals, addresses, certificates. Nothing is written.

Exit codes: 0 all checks passed, 1 something failed, 2 there are warnings.`
	c.Example = "  vault operator diagnose -config=/etc/vault.d\n  vault operator diagnose -config=vault.hcl " +
		"-format=json -skip=autounseal"
	f := c.Flags()
	f.StringArrayVar(&d.Paths, "config", nil,
		"file of the server's configuration, or a folder of them (repeat; later ones win)")
	f.StringSliceVar(&d.Skip, "skip", nil,
		"leave out checks: "+strings.Join(secretsplane.DiagnoseParts, ", ")+" (repeat)")
	f.StringVar(&format, "format", "", "table, json or yaml (VAULT_FORMAT)")
	f.BoolVar(&all, "debug", false, "also show how long each check took")
	c.Args = command.Between(0, 0, "flags only")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if format == "" {
			format = vaultcmd.Variable(e, "FORMAT")
		}
		switch format = strings.ToLower(format); format {
		case "", "table", "json", "yaml":
		default:
			return command.Usagef("Invalid output format: %s; it is table, json or yaml", format)
		}
		for i, part := range d.Skip {
			if part == "listen" { // as shells complete it for Vault
				d.Skip[i] = "listener"
			} else if !slices.Contains(secretsplane.DiagnoseParts, part) {
				return command.Usagef("-skip=%s is none of %s", part, strings.Join(secretsplane.DiagnoseParts, ", "))
			}
		}
		if len(d.Paths) == 0 && vaultcmd.Variable(e, "LOCAL_CONFIG") == "" {
			return command.Usagef("Must specify a configuration file using -config.")
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		return showDiagnosis(e, secretsplane.Diagnose(ctx, d), format, all)
	}
	return c
}

func showDiagnosis(e *command.Env, tree *diagnosis.Check, format string, all bool) error {
	done, err := vaultcmd.Structured(e, format, tree)
	if !done {
		err = tree.Write(e.Out, all)
	}
	switch {
	case err != nil:
		return err
	case tree.Status == diagnosis.Fail:
		return command.ExitCode(1)
	case tree.Status == diagnosis.Warn:
		return command.ExitCode(2)
	}
	return nil
}
