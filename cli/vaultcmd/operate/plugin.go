package operate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"github.com/spf13/cobra"
)

// Plugin builds plugin.
func Plugin(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, vaultcmd.Leaf(e, "list [TYPE]", "List the plugins: all, or those of auth, database or secret", 0, 1,
		pluginList),
		vaultcmd.Leaf(e, "info TYPE NAME", "Show a plugin", 2, 2, func(c *vaultcmd.Call, args []string) error {
			a, err := c.Do("GET", catalogPath(args), nil)
			if vaultcmd.NotFound(err) {
				return c.Nothing("plugin " + args[1])
			}
			if err != nil {
				return vaultcmd.Doing("reading plugin named "+args[1], err)
			}
			return c.Secret(a)
		}), pluginRegister(e), pluginDeregister(e), pluginReload(e))
}

func pluginRegister(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "register TYPE NAME", "Allow a program of plugin_directory to be run", 2, 2,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			f := cmd.Flags()
			sum, program := f.String("sha256", "", "SHA-256 of the program"), f.String("command", "", "its name; default NAME")
			args, env := f.StringArray("args", nil, "an argument of it (repeat)"),
				f.StringArray("env", nil, "NAME=value of its environment (repeat)")
			version := f.String("version", "", "which of several of the name it is, as v1.2.3")
			return func(c *vaultcmd.Call, at []string) error {
				if *sum == "" {
					return command.Usagef("-sha256 must be given: sha256sum PROGRAM tells it")
				}
				body := map[string]any{"sha256": *sum, "command": cmp.Or(*program, at[1]), "args": *args, "env": *env,
					"version": *version}
				a, err := c.Do("PUT", catalogPath(at), body)
				if err != nil {
					return vaultcmd.Doing("registering plugin "+at[1], err)
				}
				return c.Changed(a, "Registered plugin: %s", at[1])
			}
		})
}

func pluginDeregister(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "deregister TYPE NAME", "Take a plugin out of the catalog", 2, 2,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			version := cmd.Flags().String("version", "", "which of several of the name")
			return func(c *vaultcmd.Call, at []string) error {
				a, err := c.Ask("DELETE", catalogPath(at), map[string]string{"version": *version}, nil)
				if err != nil {
					return vaultcmd.Doing("deregistering plugin named "+at[1], err)
				}
				return c.Changed(a, "Deregistered plugin (if it was registered): %s", at[1])
			}
		})
}

// catalogPath is where the plugin of a type and name is.
func catalogPath(at []string) string {
	return "sys/plugins/catalog/" + vaultcmd.Clean(at[0]) + "/" + vaultcmd.Clean(at[1])
}

func pluginList(c *vaultcmd.Call, args []string) error {
	a, err := c.Do("GET", "sys/plugins/catalog", nil)
	if err != nil {
		return vaultcmd.Doing("listing available plugins", err)
	}
	if len(args) == 1 && a.Data[args[0]] == nil {
		return command.Usagef("%q is no type of plugins: %s", args[0],
			strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(a.Data)), func(s string) bool { return s == "detailed" }),
				", "))
	}
	if done, err := c.Structured(a.Data); done {
		return err
	}
	detailed, _ := a.Data["detailed"].([]any)
	var rows [][]string
	for _, p := range detailed {
		one, _ := p.(map[string]any)
		if len(args) == 0 || vaultcmd.PlainText(one["type"]) == args[0] {
			rows = append(rows, []string{vaultcmd.PlainText(one["name"]), vaultcmd.PlainText(one["type"]),
				vaultcmd.PlainText(one["version"])})
		}
	}
	return c.Columns([]string{"Name", "Type", "Version"}, rows)
}

func pluginReload(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "reload", "Make the engines of a plugin, or of mounts, anew", 0, 0,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			f := cmd.Flags()
			plugin, mounts := f.String("plugin", "", "name of the plugin"), f.StringSlice("mounts", nil, "paths of mounts")
			_ = f.String("scope", "", "ignored: the active server's engines are the only ones")
			return func(c *vaultcmd.Call, _ []string) error {
				if (*plugin == "") == (len(*mounts) == 0) {
					return command.Usagef("either -plugin or -mounts must be given")
				}
				body := map[string]any{}
				vaultcmd.Put(body, "plugin", *plugin)
				if len(*mounts) > 0 {
					body["mounts"] = *mounts
				}
				if _, err := c.Do("PUT", "sys/plugins/reload/backend", body); err != nil {
					return vaultcmd.Doing("reloading plugin/mounts", err)
				}
				if *plugin != "" {
					return c.Success("Reloaded plugin: %s", *plugin)
				}
				return c.Success("Reloaded mounts: %s", strings.Join(*mounts, ", "))
			}
		})
}
