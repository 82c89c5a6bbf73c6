package vaultcmd

import (
	"errors"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// Own builds `corbel secrets`: the few commands of every day, on a KV store of either version.
func Own(e *command.Env, cmd *cobra.Command) {
	cmd.Long = "Read and write secrets of KV stores of either version, at VAULT_ADDR (default\nhttp://127.0.0.1:8200, " +
		"where `corbel dev` serves them). `corbel vault` has all the rest.\n\n  corbel secrets put secret/app " +
		"password=x\n  corbel secrets get secret/app"
	var children []*cobra.Command
	for _, child := range []struct {
		use, short string
		low, high  int
		run        func(c *Call, args []string) error
	}{
		{"get PATH", "Show a secret's fields", 1, 1, ownGet},
		{"put PATH NAME=VALUE...", "Write a secret", 2, -1, ownPut},
		{"list PATH", "List what is below a path", 1, 1, func(c *Call, args []string) error {
			k, err := c.key("", args[0])
			if err != nil {
				return err
			}
			return k.list(k.path("metadata"))
		}},
		{"delete PATH", "Delete a secret; a versioned store can undo that", 1, 1, func(c *Call, args []string) error {
			k, err := c.key("", args[0])
			if err != nil {
				return err
			}
			a, err := k.Do("DELETE", k.path("data"), nil)
			if err != nil {
				return Doing("deleting "+k.path("data"), err)
			}
			return k.Changed(a, "Data deleted (if it existed) at: %s", args[0])
		}},
		{"status", "Show whether the server is unsealed: 0 yes, 2 no, 1 an error", 0, 0,
			func(c *Call, _ []string) error { return Plain(c.status()) }},
	} {
		one := &cobra.Command{Use: child.use, Short: child.short}
		run := child.run
		if one.Name() != "status" {
			run = func(c *Call, args []string) error {
				return ownEnd(c, child.run(c, args))
			}
		}
		finish(&Call{Env: e, own: true}, one, child.low, child.high, run)
		children = append(children, one)
	}
	leases := &cobra.Command{Use: "leases", Short: "Show who holds leases, and the progress of their revocation"}
	ownLeases(e, leases)
	command.Group(cmd, append(children, leases)...)
}

// ownEnd is how Corbel's own commands end: 2 is "called wrongly" with them.
func ownEnd(c *Call, err error) error {
	if err := c.ended(err); !errors.Is(err, CodeRefused) {
		return err
	}
	return command.ExitCode(1)
}

// ownGet shows the fields alone: the version and the rest are `vault kv get`'s.
func ownGet(c *Call, args []string) error {
	k, err := c.key("", args[0])
	if err != nil {
		return err
	}
	a, err := k.Do("GET", k.path("data"), nil)
	if refusedWith(err, 404) {
		return k.Nothing(args[0])
	}
	if err != nil {
		return Doing("reading "+args[0], err)
	}
	data := a.Data
	if k.versioned {
		data, _ = a.Data["data"].(map[string]any)
	}
	if k.Field != "" {
		return k.Member(data)
	}
	if done, err := k.Structured(data); done {
		return err
	}
	return k.Pairs(dataRows(data))
}

func ownPut(c *Call, args []string) error {
	k, err := c.key("", args[0])
	if err != nil {
		return err
	}
	data, err := k.parse(args[1:])
	if err != nil {
		return err
	}
	if k.versioned {
		data = versionBody(data, -1)
	}
	a, err := k.Do("PUT", k.path("data"), data)
	if err != nil {
		return Doing("writing "+args[0], err)
	}
	if k.Field != "" {
		return k.Member(a.Data)
	}
	if k.versioned {
		return k.Success("Data written to: %s (version %s)", args[0], PlainText(a.Data["version"]))
	}
	return k.Success("Data written to: %s", args[0])
}
