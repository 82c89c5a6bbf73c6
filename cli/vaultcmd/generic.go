package vaultcmd

import (
	"errors"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// Read builds read.
func Read(e *command.Env, cmd *cobra.Command) {
	On(e, cmd, "read PATH [KEY=VALUE...]", "vault read secret/app\n  vault read -field=value secret/app", 1, -1,
		func(c *Call, args []string) error {
			query, err := c.query(args[1:])
			if err != nil {
				return err
			}
			path := Clean(args[0])
			a, err := c.Ask("GET", path, query, nil)
			if NotFound(err) {
				return c.Nothing(path)
			}
			if err != nil {
				return Doing("reading "+path, err)
			}
			return c.Secret(a)
		})
}

// Write builds write.
func Write(e *command.Env, cmd *cobra.Command) {
	var force bool
	cmd.Flags().BoolVarP(&force, "force", "f", false, "write without data")
	On(e, cmd, "write PATH KEY=VALUE...", "vault write secret/app password=x key=@file\n  vault write -f sys/rotate", 1,
		-1, func(c *Call, args []string) error {
			if len(args) == 1 && !force {
				return command.Usagef("Must supply data or use -force")
			}
			return c.change("PUT", "writing", args)
		})
}

// Patch builds patch.
func Patch(e *command.Env, cmd *cobra.Command) {
	On(e, cmd, "patch PATH KEY=VALUE...", "vault patch secret/metadata/app max_versions=5", 2, -1,
		func(c *Call, args []string) error {
			return c.change("PATCH", "patching", args)
		})
}

// change writes data to a path and prints what came back.
func (c *Call) change(method, verb string, args []string) error {
	data, err := c.parse(args[1:])
	if err != nil {
		return err
	}
	path := Clean(args[0])
	a, err := c.Do(method, path, data)
	if err != nil {
		return Doing(verb+" data to "+path, err)
	}
	return c.Changed(a, "Data written to: %s", path)
}

// Changed prints an answer's data, or what was done where it brought none.
func (c *Call) Changed(a *vault.Answer, format string, args ...any) error {
	if a.Empty() || a.Data == nil && a.Auth == nil && a.Wrap == nil {
		c.warn(a)
		if c.Field != "" {
			return c.Member(nil)
		}
		return c.Success(format, args...)
	}
	return c.Secret(a)
}

// List builds list.
func List(e *command.Env, cmd *cobra.Command) {
	On(e, cmd, "list PATH", "vault list secret/", 1, 1, func(c *Call, args []string) error {
		return c.list(Clean(args[0]))
	})
}

// list prints the names below a path.
func (c *Call) list(path string) error {
	a, err := c.Do("LIST", path, nil)
	if NotFound(err) {
		if c.Format == "json" {
			c.Say("{}\n")
			return CodeRefused
		}
		return c.Nothing(path)
	}
	if err != nil {
		return Doing("listing "+path, err)
	}
	return c.keys(a)
}

// Delete builds delete.
func Delete(e *command.Env, cmd *cobra.Command) {
	On(e, cmd, "delete PATH [KEY=VALUE...]", "vault delete secret/app", 1, -1, func(c *Call, args []string) error {
		query, err := c.query(args[1:])
		if err != nil {
			return err
		}
		path := Clean(args[0])
		a, err := c.Ask("DELETE", path, query, nil)
		if err != nil {
			return Doing("deleting "+path, err)
		}
		return c.Changed(a, "Data deleted (if it existed) at: %s", path)
	})
}

// On makes a command of one that the command line has by name.
func On(e *command.Env, cmd *cobra.Command, use, example string, low, high int,
	run func(c *Call, args []string) error) {
	cmd.Use = use
	if example != "" {
		cmd.Example = "  " + example
	}
	finish(&Call{Env: e}, cmd, low, high, run)
}

// refusedWith tells whether the server refused with a status.
func refusedWith(err error, status int) bool {
	var refused *vault.Error
	return errors.As(err, &refused) && refused.Status == status
}

// Unwrap builds unwrap.
func Unwrap(e *command.Env, cmd *cobra.Command) {
	On(e, cmd, "unwrap [TOKEN]", "vault unwrap hvs.CAES", 0, 1, func(c *Call, args []string) error {
		body := map[string]any{}
		if len(args) > 0 {
			body["token"] = args[0]
			if c.cfg.Token == "" {
				c.Client = c.Client.WithToken(args[0])
			}
		}
		a, err := c.Do("PUT", "sys/wrapping/unwrap", body)
		if err != nil {
			return Doing("unwrapping", err)
		}
		return c.Changed(a, "Unwrapped")
	})
}
