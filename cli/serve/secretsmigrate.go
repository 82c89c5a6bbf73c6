package serve

import (
	"os/signal"
	"syscall"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/cli/vaultcmd/operate"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	"github.com/spf13/cobra"
)

// OwnSecrets builds `corbel secrets`: the commands that speak to a server, and those that must not.
func OwnSecrets(e *command.Env, c *cobra.Command) {
	vaultcmd.Own(e, c)
	c.AddCommand(migrateSecrets(e), diagnoseSecrets(e))
}

// VaultOperator is the same for `vault operator`.
func VaultOperator(e *command.Env, c *cobra.Command) {
	operate.Operator(e, c)
	c.AddCommand(migrateSecrets(e), diagnoseSecrets(e))
}

func migrateSecrets(e *command.Env) *cobra.Command {
	var path string
	var asJSON bool
	c := &cobra.Command{Use: "migrate", Short: "Copy everything to another storage, with no server running"}
	c.Long = `Copy all records from one storage of the secrets plane to another, and compare both. No server may
run on either. You can stop it at any time; run it again to continue. The file names both storages:

  storage_source "file" {
    path = "/srv/secrets"
  }
  storage_destination "raft" {
    path    = "/srv/raft"
    node_id = "s1"
  }
  cluster_addr = "https://10.0.0.1:8201"`
	c.Flags().StringVar(&path, "config", "",
		"file with storage_source and storage_destination; cluster_addr too where one of them is raft")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	c.Args = command.Between(0, 0, "flags only")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if path == "" {
			return command.Usagef("--config is missing: the file that names both storages")
		}
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		r, err := secretsplane.Migrate(ctx, path, e.Err)
		if err != nil {
			return err
		}
		if asJSON {
			return command.WriteJSON(e.Out, r, false)
		}
		again := ""
		if r.Resumed {
			again = "went on from an earlier run; "
		}
		return e.Printf("Success! %s%d records (%d bytes) copied, %d compared.\n", again, r.Copied, r.Bytes, r.Verified)
	}
	return c
}
