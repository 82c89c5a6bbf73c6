package vaultcmd

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"corbel.dev/corbel/cli/command"
	"github.com/hashicorp/hcl/hcl/printer"
	"github.com/spf13/cobra"
)

// Policy builds policy.
func Policy(e *command.Env, cmd *cobra.Command) {
	cmd.Example = "  vault policy write app app.hcl\n  vault policy read app"
	command.Group(cmd,
		leaf(e, "list", "List policies", 0, 0, func(c *call, _ []string) error {
			a, err := c.do("LIST", "sys/policies/acl", nil)
			if err != nil {
				return doing("listing policies", err)
			}
			names := texts(a.Data["keys"])
			if done, err := c.structured(names); done {
				return err
			}
			for _, n := range names {
				if err := c.Printf("%s\n", n); err != nil {
					return err
				}
			}
			return nil
		}),
		leaf(e, "read NAME", "Show a policy", 1, 1, func(c *call, args []string) error {
			a, err := c.do("GET", "sys/policies/acl/"+args[0], nil)
			if notFound(err) {
				fmt.Fprintf(c.Err, "No policy named: %s\n", args[0])
				return codeRefused
			}
			if err != nil {
				return doing("reading policy named "+args[0], err)
			}
			if done, err := c.structured(map[string]any{"policy": a.Data["policy"]}); done {
				return err
			}
			return c.Printf("%s\n", a.Data["policy"])
		}),
		leaf(e, "write NAME FILE", "Write a policy from a file; - is stdin", 2, 2, func(c *call, args []string) error {
			text, err := c.FileOrStdin(args[1])
			if err != nil {
				return fmt.Errorf("Error reading the policy: %w", err)
			}
			if len(text) == 0 {
				return errors.New("the policy is empty")
			}
			a, err := c.do("PUT", "sys/policies/acl/"+args[0], map[string]string{"policy": string(text)})
			if err != nil {
				return doing("uploading policy", err)
			}
			return c.changed(a, "Uploaded policy: %s", args[0])
		}),
		leaf(e, "delete NAME", "Delete a policy", 1, 1, func(c *call, args []string) error {
			a, err := c.do("DELETE", "sys/policies/acl/"+args[0], nil)
			if err != nil {
				return doing("deleting "+args[0], err)
			}
			return c.changed(a, "Deleted policy: %s", args[0])
		}),
		leaf(e, "fmt FILE", "Lay a policy's file out as usual", 1, 1, formatPolicy))
}

func formatPolicy(c *call, args []string) error {
	info, err := os.Stat(args[0])
	if err != nil {
		return err
	}
	text, err := command.ReadFile(args[0])
	if err != nil {
		return err
	}
	laid, err := printer.Format(text)
	if err != nil {
		return fmt.Errorf("Error parsing %s: %w", args[0], err)
	}
	if !slices.Equal(laid, text) {
		// Beside it and then in its place: a full disk must not take the policy away.
		if err := os.WriteFile(args[0]+".new", laid, info.Mode().Perm()); err != nil {
			return err
		}
		if err := os.Rename(args[0]+".new", args[0]); err != nil {
			return err
		}
	}
	return c.success("Formatted policy: %s", args[0])
}
