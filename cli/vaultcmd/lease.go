package vaultcmd

import (
	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// Lease builds lease.
func Lease(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd,
		leaf(e, "lookup LEASE", "Show a lease", 1, 1, func(c *call, args []string) error {
			a, err := c.do("PUT", "sys/leases/lookup", map[string]string{"lease_id": args[0]})
			if err != nil {
				return doing("looking up lease "+args[0], err)
			}
			return c.secret(a)
		}),
		with(e, "renew LEASE", "Let a lease live longer", 1, 1, func(cmd *cobra.Command) func(*call, []string) error {
			increment := cmd.Flags().StringP("increment", "i", "", "for how long")
			return func(c *call, args []string) error {
				if err := checkDuration("increment", *increment); err != nil {
					return err
				}
				body := map[string]any{"lease_id": args[0]}
				put(body, "increment", *increment)
				a, err := c.do("PUT", "sys/leases/renew", body)
				if err != nil {
					return doing("renewing "+args[0], err)
				}
				return c.secret(a)
			}
		}),
		leaseRevoke(e))
}

func leaseRevoke(e *command.Env) *cobra.Command {
	return with(e, "revoke LEASE", "End a lease, or with -prefix all below a path", 1, 1,
		func(cmd *cobra.Command) func(*call, []string) error {
			f := cmd.Flags()
			prefix := f.Bool("prefix", false, "the argument is a path: end all leases below it")
			force := f.BoolP("force", "f", false,
				"forget the leases also where what they stand for cannot be ended; with -prefix")
			sync := f.Bool("sync", false, "wait until it is done")
			return func(c *call, args []string) error {
				path, body := "sys/leases/revoke", map[string]any{"sync": *sync}
				switch {
				case *force && !*prefix:
					return command.Usagef("Specifying -force requires also specifying -prefix")
				case *force:
					path = "sys/leases/revoke-force/" + clean(args[0])
				case *prefix:
					path = "sys/leases/revoke-prefix/" + clean(args[0])
				default:
					body["lease_id"] = args[0]
				}
				a, err := c.do("PUT", path, body)
				if err != nil {
					return doing("revoking lease "+args[0], err)
				}
				if *sync {
					return c.changed(a, "Revoked lease: %s", args[0])
				}
				return c.changed(a, "All revocation operations queued successfully!")
			}
		})
}
