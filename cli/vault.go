package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/kit/version"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	"github.com/spf13/cobra"
)

// vaultLine is the command line of Vault 1.20, in the order of --help.
func (e *env) vaultLine() commandLine {
	return commandLine{
		use:   e.Vault,
		short: "Vault's command line, served by Corbel",
		long: "Vault's command line, served by Corbel: the same commands, flags, variables,\noutput and exit codes. " +
			"`corbel --help` shows Corbel's own.",
		entries: []entry{
			{"read", "Read a path", groupSecrets, on(vaultcmd.Read)},
			{"write", "Write a path", groupSecrets, on(vaultcmd.Write)},
			{"patch", "Change some fields of a path", groupSecrets, on(vaultcmd.Patch)},
			{"delete", "Delete a path", groupSecrets, on(vaultcmd.Delete)},
			{"list", "List what is below a path", groupSecrets, on(vaultcmd.List)},
			{"kv", "Read and write KV stores", groupSecrets, on(vaultcmd.KV)},
			{"unwrap", "Open a wrapped answer", groupSecrets, on(vaultcmd.Unwrap)},
			{"login", "Log in and keep the token", groupAccess, on(vaultcmd.Login)},
			{"token", "Look after tokens", groupAccess, on(vaultcmd.Token)},
			{"policy", "Look after policies", groupAccess, on(vaultcmd.Policy)},
			{"auth", "Look after auth methods", groupAccess, on(vaultcmd.Auth)},
			{"audit", "Look after audit devices", groupCluster, on(vaultcmd.Audit)},
			{"print", "Show what commands use", groupAccess, on(vaultcmd.Print)},
			{"secrets", "Look after secrets engines", groupCluster, on(vaultcmd.Secrets)},
			{"lease", "Look after leases", groupCluster, on(vaultcmd.Lease)},
			{"operator", "Initialize, unseal, seal, rotate keys", groupCluster, (*env).vaultOperator},
			{"server", "Run a server of the secrets plane", groupRun, (*env).vaultServer},
			{"status", "Show whether the server is unsealed", groupCluster, on(vaultcmd.Status)},
			{"debug", "Gather what tells of a server's trouble", groupTools, on(vaultcmd.Debug)},
			{"monitor", "Follow the server's log", groupTools, on(vaultcmd.Monitor)},
			{"path-help", "Show what may be done at a path", groupTools, on(vaultcmd.PathHelp)},
			{"plugin", "Show the plugins", groupCluster, on(vaultcmd.Plugin)},
			{"namespace", "Look after namespaces", groupAccess, on(vaultcmd.Namespace)},
			{"version-history", "Show the versions that the store was served by", groupTools, on(vaultcmd.VersionHistory)},
			{"version", "Show the version", groupTools, (*env).vaultVersion},
		},
	}
}

func (e *env) vaultVersion(c *cobra.Command) {
	c.Args = command.Between(0, 0, "nothing")
	c.RunE = func(*cobra.Command, []string) error { return e.printVersion() }
}

// vaultVersionLine is Vault's, with its version as the second word, which clients read.
func vaultVersionLine() string {
	b := version.Of()
	return fmt.Sprintf("Vault v%s (Corbel %s, %s), built %s\n", version.VaultContract, version.Number, b.Revision, b.Date)
}

func (e *env) runVaultDev(c *cobra.Command, cfg secretsplane.DevConfig, store bool) error {
	e.guard(false)
	s, err := secretsplane.NewDevServer(cfg)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	if home := e.Getenv("HOME"); store && home != "" {
		if err := vaultcmd.StoreToken(filepath.Join(home, ".vault-token"), s.RootToken); err != nil {
			fmt.Fprintf(e.Err, "warning: the root token is not kept in ~/.vault-token: %v\n", err)
		}
	}
	if err := e.Printf("%s", devBanner(s)); err != nil {
		return err
	}
	ctx, stop := command.Signals(c.Context())
	defer stop()
	return s.Run(ctx)
}

// devBanner says what users and scripts of dev mode look for: the address, the key and the token.
func devBanner(s *secretsplane.DevServer) string {
	var b strings.Builder
	url, trust := "http://"+s.Addr().String(), ""
	if s.CAFile != "" {
		url, trust = "https://"+s.Addr().String(), fmt.Sprintf("    $ export VAULT_CACERT='%s'\n", s.CAFile)
	}
	fmt.Fprintf(&b, "==> Vault server configuration:\n\n             Api Address: %s\n                 Storage: "+
		"inmem\n                 Version: Vault v%s (Corbel %s)\n\n", url, version.VaultContract, version.Number)
	b.WriteString("==> Vault server started! Log data will stream in below:\n\n")
	b.WriteString("WARNING! dev mode is enabled! Everything is in memory, unsealed with one key, and gone when\nthis " +
		"process ends. Use it to develop and to try things out.\n\n")
	fmt.Fprintf(&b, "You may need to set the following environment variables:\n\n    $ export VAULT_ADDR='%s'\n%s\n",
		url, trust)
	fmt.Fprintf(&b, "The unseal key and root token are displayed below in case you want to\nseal/unseal the Vault or "+
		"re-authenticate.\n\nUnseal Key: %s\nRoot Token: %s\n\n", s.UnsealKey, s.RootToken)
	b.WriteString("Development mode should NOT be used in production installations!\n\n")
	return b.String()
}
