package vaultcmd

import (
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// Monitor builds monitor: the server's log as it comes.
func Monitor(e *command.Env, cmd *cobra.Command) {
	f := cmd.Flags()
	level := f.String("log-level", "info", "trace, debug, info, warn or error")
	form := f.String("log-format", "standard", "standard or json")
	on(e, cmd, "monitor", "vault monitor -log-level=debug", 0, 0, func(c *call, _ []string) error {
		in, err := c.client.Follow(c.ctx(), "sys/monitor", url.Values{"log_level": {*level}, "log_format": {*form}})
		if err != nil {
			return doing("monitoring", err)
		}
		defer in.Close()
		_, err = io.Copy(c.Out, in)
		if c.ctx().Err() != nil {
			return nil // the caller has seen enough
		}
		return err
	})
}

// VersionHistory builds version-history.
func VersionHistory(e *command.Env, cmd *cobra.Command) {
	on(e, cmd, "version-history", "vault version-history", 0, 0, func(c *call, _ []string) error {
		a, err := c.do("LIST", "sys/version-history", nil)
		if err != nil {
			return doing("listing versions", err)
		}
		if done, err := c.structured(a.Data); done {
			return err
		}
		info, _ := a.Data["key_info"].(map[string]any)
		var rows [][]string
		for _, version := range texts(a.Data["keys"]) {
			one, _ := info[version].(map[string]any)
			rows = append(rows, []string{version, orNA(one["timestamp_installed"]), orNA(one["build_date"])})
		}
		return c.columns([]string{"Version", "Installation Time", "Build Date"}, rows)
	})
}

// PathHelp builds path-help.
func PathHelp(e *command.Env, cmd *cobra.Command) {
	on(e, cmd, "path-help PATH", "vault path-help secret/", 1, 1, func(c *call, args []string) error {
		a, err := c.ask("GET", clean(args[0]), map[string]string{"help": "1"}, nil)
		if err != nil {
			return doing("retrieving help", err)
		}
		var out map[string]any
		if err := command.Decode(a.Raw, &out); err != nil {
			return err
		}
		if c.field != "" {
			return c.member(out)
		}
		if done, err := c.structured(out); done {
			return err
		}
		return c.Printf("%s\n", strings.TrimSpace(plainText(out["help"])))
	})
}

// Namespace builds namespace. Corbel's servers have the root namespace alone, and say so; others may have more.
func Namespace(e *command.Env, cmd *cobra.Command) {
	on := func(use, short, method, doings string) *cobra.Command {
		return leaf(e, use, short, 1, 1, func(c *call, args []string) error {
			a, err := c.do(method, "sys/namespaces/"+clean(args[0]), nil)
			if err != nil {
				return doing(doings, err)
			}
			if a.Empty() {
				return c.success("%s: done", clean(args[0])+"/")
			}
			return c.secret(a)
		})
	}
	command.Group(cmd, leaf(e, "list", "List the namespaces below this one", 0, 0, func(c *call, _ []string) error {
		a, err := c.do("LIST", "sys/namespaces", nil)
		if notFound(err) {
			return c.nothing("sys/namespaces")
		}
		if err != nil {
			return doing("listing namespaces", err)
		}
		return c.names(a)
	}), on("create PATH", "Make a namespace", "PUT", "creating namespace"), on("lookup PATH", "Show a namespace", "GET",
		"looking up namespace"),
		on("delete PATH", "Delete a namespace", "DELETE", "deleting namespace"))
}

// names prints a list's keys.
func (c *call) names(a *vault.Answer) error {
	if done, err := c.structured(a.Data["keys"]); done {
		return err
	}
	var rows [][]string
	for _, k := range texts(a.Data["keys"]) {
		rows = append(rows, []string{k})
	}
	return c.columns([]string{"Keys"}, rows)
}

// Plugin builds plugin.
func Plugin(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, leaf(e, "list [TYPE]", "List the plugins: all, or those of auth, database or secret", 0, 1,
		pluginList),
		leaf(e, "info TYPE NAME", "Show a plugin", 2, 2, func(c *call, args []string) error {
			a, err := c.do("GET", "sys/plugins/catalog/"+clean(args[0])+"/"+clean(args[1]), nil)
			if notFound(err) {
				return c.nothing("plugin " + args[1])
			}
			if err != nil {
				return doing("reading plugin named "+args[1], err)
			}
			return c.secret(a)
		}), pluginReload(e))
}

func pluginList(c *call, args []string) error {
	a, err := c.do("GET", "sys/plugins/catalog", nil)
	if err != nil {
		return doing("listing available plugins", err)
	}
	if len(args) == 1 && a.Data[args[0]] == nil {
		return command.Usagef("%q is no type of plugins: %s", args[0],
			strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(a.Data)), func(s string) bool { return s == "detailed" }),
				", "))
	}
	if done, err := c.structured(a.Data); done {
		return err
	}
	detailed, _ := a.Data["detailed"].([]any)
	var rows [][]string
	for _, p := range detailed {
		one, _ := p.(map[string]any)
		if len(args) == 0 || plainText(one["type"]) == args[0] {
			rows = append(rows, []string{plainText(one["name"]), plainText(one["type"]), plainText(one["version"])})
		}
	}
	return c.columns([]string{"Name", "Type", "Version"}, rows)
}

func pluginReload(e *command.Env) *cobra.Command {
	return with(e, "reload", "Make the engines of a plugin, or of mounts, anew", 0, 0,
		func(cmd *cobra.Command) func(*call, []string) error {
			f := cmd.Flags()
			plugin, mounts := f.String("plugin", "", "name of the plugin"), f.StringSlice("mounts", nil, "paths of mounts")
			_ = f.String("scope", "", "ignored: the active server's engines are the only ones")
			return func(c *call, _ []string) error {
				if (*plugin == "") == (len(*mounts) == 0) {
					return command.Usagef("either -plugin or -mounts must be given")
				}
				body := map[string]any{}
				put(body, "plugin", *plugin)
				if len(*mounts) > 0 {
					body["mounts"] = *mounts
				}
				if _, err := c.do("PUT", "sys/plugins/reload/backend", body); err != nil {
					return doing("reloading plugin/mounts", err)
				}
				if *plugin != "" {
					return c.success("Reloaded plugin: %s", *plugin)
				}
				return c.success("Reloaded mounts: %s", strings.Join(*mounts, ", "))
			}
		})
}
