package vaultcmd

import (
	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// Lease builds lease.
func Lease(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd,
		Leaf(e, "lookup LEASE", "Show a lease", 1, 1, func(c *Call, args []string) error {
			a, err := c.Do("PUT", "sys/leases/lookup", map[string]string{"lease_id": args[0]})
			if err != nil {
				return Doing("looking up lease "+args[0], err)
			}
			return c.Secret(a)
		}),
		With(e, "renew LEASE", "Let a lease live longer", 1, 1, func(cmd *cobra.Command) func(*Call, []string) error {
			increment := cmd.Flags().StringP("increment", "i", "", "for how long")
			return func(c *Call, args []string) error {
				if err := checkDuration("increment", *increment); err != nil {
					return err
				}
				body := map[string]any{"lease_id": args[0]}
				Put(body, "increment", *increment)
				a, err := c.Do("PUT", "sys/leases/renew", body)
				if err != nil {
					return Doing("renewing "+args[0], err)
				}
				return c.Secret(a)
			}
		}),
		leaseRevoke(e))
}

func leaseRevoke(e *command.Env) *cobra.Command {
	return With(e, "revoke LEASE", "End a lease, or with -prefix all below a path", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			prefix := f.Bool("prefix", false, "the argument is a path: end all leases below it")
			force := f.BoolP("force", "f", false,
				"forget the leases also where what they stand for cannot be ended; with -prefix")
			sync := f.Bool("sync", false, "wait until it is done")
			return func(c *Call, args []string) error {
				path, body := "sys/leases/revoke", map[string]any{"sync": *sync}
				switch {
				case *force && !*prefix:
					return command.Usagef("Specifying -force requires also specifying -prefix")
				case *force:
					path = "sys/leases/revoke-force/" + Clean(args[0])
				case *prefix:
					path = "sys/leases/revoke-prefix/" + Clean(args[0])
				default:
					body["lease_id"] = args[0]
				}
				a, err := c.Do("PUT", path, body)
				if err != nil {
					return Doing("revoking lease "+args[0], err)
				}
				if *sync {
					return c.Changed(a, "Revoked lease: %s", args[0])
				}
				return c.Changed(a, "All revocation operations queued successfully!")
			}
		})
}
