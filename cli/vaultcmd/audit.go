package vaultcmd

import (
	"fmt"
	"strings"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// Audit builds audit.
func Audit(e *command.Env, cmd *cobra.Command) {
	cmd.Example = "  vault audit enable file file_path=/var/log/vault/audit.log\n  vault audit list -detailed"
	command.Group(cmd, auditList(e), auditEnable(e),
		Leaf(e, "disable PATH", "Disable an audit device", 1, 1, func(c *Call, args []string) error {
			path := Clean(args[0])
			a, err := c.Do("DELETE", "sys/audit/"+path, nil)
			if err != nil {
				return Doing("disabling audit device", err)
			}
			return c.Changed(a, "Disabled audit device (if it was enabled) at: %s/", path)
		}))
}

func auditEnable(e *command.Env) *cobra.Command {
	return With(e, "enable TYPE KEY=VALUE...", "Enable an audit device", 1, -1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			path := f.String("path", "", "its name; default its type")
			description := f.String("description", "", "what it is for")
			local := f.Bool("local", false, "do not replicate it")
			return func(c *Call, args []string) error {
				at := Clean(*path)
				if at == "" {
					at = args[0]
				}
				options, err := c.parse(args[1:])
				if err != nil {
					return err
				}
				a, err := c.Do("PUT", "sys/audit/"+at, map[string]any{"type": args[0], "description": *description, "local": *local,
					"options": options})
				if err != nil {
					return Doing("enabling audit device", err)
				}
				return c.Changed(a, "Enabled the %s audit device at: %s/", args[0], at)
			}
		})
}

func auditList(e *command.Env) *cobra.Command {
	return With(e, "list", "List the audit devices", 0, 0, func(cmd *cobra.Command) func(*Call, []string) error {
		detailed := cmd.Flags().Bool("detailed", false, "show all columns")
		return func(c *Call, _ []string) error {
			a, err := c.Do("GET", "sys/audit", nil)
			if err != nil {
				return Doing("listing audits", err)
			}
			if done, err := c.Structured(a.Data); done {
				return err
			}
			if len(a.Data) == 0 {
				c.Say("No audit devices are enabled.\n")
				return CodeRefused
			}
			head, rows := []string{"Path", "Type", "Description"}, [][]string{}
			if *detailed {
				head = []string{"Path", "Type", "Description", "Replication", "Options"}
			}
			for _, path := range command.SortedKeys(a.Data) {
				device, _ := a.Data[path].(map[string]any)
				row := []string{path, Shown(device["type"]), OrNA(device["description"])}
				if *detailed {
					replication := "replicated"
					if device["local"] == true {
						replication = "local"
					}
					options, _ := device["options"].(map[string]any)
					var list []string
					for _, name := range command.SortedKeys(options) {
						list = append(list, fmt.Sprintf("%s=%s", name, Shown(options[name])))
					}
					row = append(row, replication, strings.Join(list, " "))
				}
				rows = append(rows, row)
			}
			return c.Columns(head, rows)
		}
	})
}
