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
		Leaf(e, "list", "List policies", 0, 0, func(c *Call, _ []string) error {
			a, err := c.Do("LIST", "sys/policies/acl", nil)
			if err != nil {
				return Doing("listing policies", err)
			}
			names := Texts(a.Data["keys"])
			if done, err := c.Structured(names); done {
				return err
			}
			for _, n := range names {
				c.Say("%s\n", n)
			}
			return nil
		}),
		Leaf(e, "read NAME", "Show a policy", 1, 1, func(c *Call, args []string) error {
			a, err := c.Do("GET", "sys/policies/acl/"+args[0], nil)
			if NotFound(err) {
				fmt.Fprintf(c.Err, "No policy named: %s\n", args[0])
				return CodeRefused
			}
			if err != nil {
				return Doing("reading policy named "+args[0], err)
			}
			if done, err := c.Structured(map[string]any{"policy": a.Data["policy"]}); done {
				return err
			}
			return c.Printf("%s\n", a.Data["policy"])
		}),
		Leaf(e, "write NAME FILE", "Write a policy from a file; - is stdin", 2, 2, func(c *Call, args []string) error {
			text, err := c.FileOrStdin(args[1])
			if err != nil {
				return fmt.Errorf("Error reading the policy: %w", err)
			}
			if len(text) == 0 {
				return errors.New("the policy is empty")
			}
			a, err := c.Do("PUT", "sys/policies/acl/"+args[0], map[string]string{"policy": string(text)})
			if err != nil {
				return Doing("uploading policy", err)
			}
			return c.Changed(a, "Uploaded policy: %s", args[0])
		}),
		Leaf(e, "delete NAME", "Delete a policy", 1, 1, func(c *Call, args []string) error {
			a, err := c.Do("DELETE", "sys/policies/acl/"+args[0], nil)
			if err != nil {
				return Doing("deleting "+args[0], err)
			}
			return c.Changed(a, "Deleted policy: %s", args[0])
		}),
		Leaf(e, "fmt FILE", "Lay a policy's file out as usual", 1, 1, formatPolicy))
}

func formatPolicy(c *Call, args []string) error {
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
	return c.Success("Formatted policy: %s", args[0])
}
