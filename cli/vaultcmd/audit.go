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
		leaf(e, "disable PATH", "Disable an audit device", 1, 1, func(c *call, args []string) error {
			path := clean(args[0])
			a, err := c.do("DELETE", "sys/audit/"+path, nil)
			if err != nil {
				return doing("disabling audit device", err)
			}
			return c.changed(a, "Disabled audit device (if it was enabled) at: %s/", path)
		}))
}

func auditEnable(e *command.Env) *cobra.Command {
	return with(e, "enable TYPE KEY=VALUE...", "Enable an audit device", 1, -1,
		func(cmd *cobra.Command) func(*call, []string) error {
			f := cmd.Flags()
			path := f.String("path", "", "its name; default its type")
			description := f.String("description", "", "what it is for")
			local := f.Bool("local", false, "do not replicate it")
			return func(c *call, args []string) error {
				at := clean(*path)
				if at == "" {
					at = args[0]
				}
				options, err := c.parse(args[1:])
				if err != nil {
					return err
				}
				a, err := c.do("PUT", "sys/audit/"+at, map[string]any{"type": args[0], "description": *description, "local": *local,
					"options": options})
				if err != nil {
					return doing("enabling audit device", err)
				}
				return c.changed(a, "Enabled the %s audit device at: %s/", args[0], at)
			}
		})
}

func auditList(e *command.Env) *cobra.Command {
	return with(e, "list", "List the audit devices", 0, 0, func(cmd *cobra.Command) func(*call, []string) error {
		detailed := cmd.Flags().Bool("detailed", false, "show all columns")
		return func(c *call, _ []string) error {
			a, err := c.do("GET", "sys/audit", nil)
			if err != nil {
				return doing("listing audits", err)
			}
			if done, err := c.structured(a.Data); done {
				return err
			}
			if len(a.Data) == 0 {
				if err := c.Printf("No audit devices are enabled.\n"); err != nil {
					return err
				}
				return codeRefused
			}
			head, rows := []string{"Path", "Type", "Description"}, [][]string{}
			if *detailed {
				head = []string{"Path", "Type", "Description", "Replication", "Options"}
			}
			for _, path := range command.SortedKeys(a.Data) {
				device, _ := a.Data[path].(map[string]any)
				row := []string{path, shown(device["type"]), orNA(device["description"])}
				if *detailed {
					replication := "replicated"
					if device["local"] == true {
						replication = "local"
					}
					options, _ := device["options"].(map[string]any)
					var list []string
					for _, name := range command.SortedKeys(options) {
						list = append(list, fmt.Sprintf("%s=%s", name, shown(options[name])))
					}
					row = append(row, replication, strings.Join(list, " "))
				}
				rows = append(rows, row)
			}
			return c.columns(head, rows)
		}
	})
}
