package cli

import (
	"fmt"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/serve"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/cli/vaultcmd/operate"
	"corbel.dev/corbel/kit/version"
	"github.com/spf13/cobra"
)

// vaultLine is the command line of Vault 1.20, in the order of --help.
func vaultLine(e *command.Env) commandLine {
	return commandLine{
		use:   e.Vault,
		short: "Vault's command line, served by Corbel",
		long: "Vault's command line, served by Corbel: the same commands, flags, variables,\noutput and exit codes. " +
			"`corbel --help` shows Corbel's own.",
		entries: []entry{
			{"read", "Read a path", groupSecrets, vaultcmd.Read},
			{"write", "Write a path", groupSecrets, vaultcmd.Write},
			{"patch", "Change some fields of a path", groupSecrets, vaultcmd.Patch},
			{"delete", "Delete a path", groupSecrets, vaultcmd.Delete},
			{"list", "List what is below a path", groupSecrets, vaultcmd.List},
			{"kv", "Read and write KV stores", groupSecrets, vaultcmd.KV},
			{"unwrap", "Open a wrapped answer", groupSecrets, vaultcmd.Unwrap},
			{"login", "Log in and keep the token", groupAccess, vaultcmd.Login},
			{"token", "Look after tokens", groupAccess, vaultcmd.Token},
			{"policy", "Look after policies", groupAccess, vaultcmd.Policy},
			{"auth", "Look after auth methods", groupAccess, vaultcmd.Auth},
			{"audit", "Look after audit devices", groupCluster, vaultcmd.Audit},
			{"print", "Show what commands use", groupAccess, vaultcmd.Print},
			{"secrets", "Look after secrets engines", groupCluster, vaultcmd.Secrets},
			{"lease", "Look after leases", groupCluster, vaultcmd.Lease},
			{"operator", "Initialize, unseal, seal, rotate keys", groupCluster, serve.VaultOperator},
			{"server", "Run a server of the secrets plane", groupRun, serve.VaultServer},
			{"agent", "Log in, write tokens, render templates, run a process with secrets", groupRun, serve.VaultAgent},
			{"proxy", "Pass the requests of clients on with a token of its own", groupRun, serve.VaultProxy},
			{"status", "Show whether the server is unsealed", groupCluster, vaultcmd.Status},
			{"debug", "Gather what tells of a server's trouble", groupTools, operate.Debug},
			{"monitor", "Follow the server's log", groupTools, operate.Monitor},
			{"path-help", "Show what may be done at a path", groupTools, operate.PathHelp},
			{"plugin", "Show the plugins", groupCluster, operate.Plugin},
			{"namespace", "Look after namespaces", groupAccess, operate.Namespace},
			{"version-history", "Show the versions that the store was served by", groupTools, operate.VersionHistory},
			{"version", "Show the version", groupTools, VaultVersion},
		},
	}
}

// VaultVersion builds `vault version`.
func VaultVersion(e *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "nothing")
	c.RunE = func(*cobra.Command, []string) error { return printVersion(e) }
}

// vaultVersionLine is Vault's, with its version as the second word, which clients read.
func vaultVersionLine() string {
	b := version.Of()
	return fmt.Sprintf("Vault v%s (Corbel %s, %s), built %s\n", version.VaultContract, version.Number, b.Revision, b.Date)
}
