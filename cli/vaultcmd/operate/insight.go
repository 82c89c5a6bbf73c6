package operate

import (
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// Monitor builds monitor: the server's log as it comes.
func Monitor(e *command.Env, cmd *cobra.Command) {
	f := cmd.Flags()
	level := f.String("log-level", "info", "trace, debug, info, warn or error")
	form := f.String("log-format", "standard", "standard or json")
	vaultcmd.On(e, cmd, "monitor", "vault monitor -log-level=debug", 0, 0, func(c *vaultcmd.Call, _ []string) error {
		in, err := c.Client.Follow(c.Ctx(), "sys/monitor", url.Values{"log_level": {*level}, "log_format": {*form}})
		if err != nil {
			return vaultcmd.Doing("monitoring", err)
		}
		defer in.Close()
		_, err = io.Copy(c.Out, in)
		if c.Ctx().Err() != nil {
			return nil // the caller has seen enough
		}
		return err
	})
}

// VersionHistory builds version-history.
func VersionHistory(e *command.Env, cmd *cobra.Command) {
	vaultcmd.On(e, cmd, "version-history", "vault version-history", 0, 0, func(c *vaultcmd.Call, _ []string) error {
		a, err := c.Do("LIST", "sys/version-history", nil)
		if err != nil {
			return vaultcmd.Doing("listing versions", err)
		}
		if done, err := c.Structured(a.Data); done {
			return err
		}
		info, _ := a.Data["key_info"].(map[string]any)
		var rows [][]string
		for _, version := range vaultcmd.Texts(a.Data["keys"]) {
			one, _ := info[version].(map[string]any)
			rows = append(rows, []string{version, vaultcmd.OrNA(one["timestamp_installed"]), vaultcmd.OrNA(one["build_date"])})
		}
		return c.Columns([]string{"Version", "Installation Time", "Build Date"}, rows)
	})
}

// PathHelp builds path-help.
func PathHelp(e *command.Env, cmd *cobra.Command) {
	vaultcmd.On(e, cmd, "path-help PATH", "vault path-help secret/", 1, 1, func(c *vaultcmd.Call, args []string) error {
		a, err := c.Ask("GET", vaultcmd.Clean(args[0]), map[string]string{"help": "1"}, nil)
		if err != nil {
			return vaultcmd.Doing("retrieving help", err)
		}
		var out map[string]any
		if err := command.Decode(a.Raw, &out); err != nil {
			return err
		}
		if c.Field != "" {
			return c.Member(out)
		}
		if done, err := c.Structured(out); done {
			return err
		}
		return c.Printf("%s\n", strings.TrimSpace(vaultcmd.PlainText(out["help"])))
	})
}

// names prints a list's keys.
func names(c *vaultcmd.Call, a *vault.Answer) error {
	if done, err := c.Structured(a.Data["keys"]); done {
		return err
	}
	var rows [][]string
	for _, k := range vaultcmd.Texts(a.Data["keys"]) {
		rows = append(rows, []string{k})
	}
	return c.Columns([]string{"Keys"}, rows)
}

// Plugin builds plugin.
func Plugin(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, vaultcmd.Leaf(e, "list [TYPE]", "List the plugins: all, or those of auth, database or secret", 0, 1,
		pluginList),
		vaultcmd.Leaf(e, "info TYPE NAME", "Show a plugin", 2, 2, func(c *vaultcmd.Call, args []string) error {
			a, err := c.Do("GET", "sys/plugins/catalog/"+vaultcmd.Clean(args[0])+"/"+vaultcmd.Clean(args[1]), nil)
			if vaultcmd.NotFound(err) {
				return c.Nothing("plugin " + args[1])
			}
			if err != nil {
				return vaultcmd.Doing("reading plugin named "+args[1], err)
			}
			return c.Secret(a)
		}), pluginReload(e))
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
