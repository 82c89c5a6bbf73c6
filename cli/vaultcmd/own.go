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
		run        func(c *call, args []string) error
	}{
		{"get PATH", "Show a secret's fields", 1, 1, ownGet},
		{"put PATH NAME=VALUE...", "Write a secret", 2, -1, ownPut},
		{"list PATH", "List what is below a path", 1, 1, func(c *call, args []string) error {
			k, err := c.key("", args[0])
			if err != nil {
				return err
			}
			return k.list(k.path("metadata"))
		}},
		{"delete PATH", "Delete a secret; a versioned store can undo that", 1, 1, func(c *call, args []string) error {
			k, err := c.key("", args[0])
			if err != nil {
				return err
			}
			a, err := k.do("DELETE", k.path("data"), nil)
			if err != nil {
				return doing("deleting "+k.path("data"), err)
			}
			return k.changed(a, "Data deleted (if it existed) at: %s", args[0])
		}},
		{"status", "Show whether the server is unsealed: 0 yes, 2 no, 1 an error", 0, 0,
			func(c *call, _ []string) error { return plain(c.status()) }},
	} {
		one := &cobra.Command{Use: child.use, Short: child.short}
		run := child.run
		if one.Name() != "status" {
			run = func(c *call, args []string) error {
				return ownEnd(c, child.run(c, args))
			}
		}
		finish(&call{Env: e, own: true}, one, child.low, child.high, run)
		children = append(children, one)
	}
	leases := &cobra.Command{Use: "leases", Short: "Show who holds leases, and the progress of their revocation"}
	ownLeases(e, leases)
	command.Group(cmd, append(children, leases)...)
}

// ownEnd is how Corbel's own commands end: 2 is "called wrongly" with them.
func ownEnd(c *call, err error) error {
	if err := c.ended(err); !errors.Is(err, codeRefused) {
		return err
	}
	return command.ExitCode(1)
}

// ownGet shows the fields alone: the version and the rest are `vault kv get`'s.
func ownGet(c *call, args []string) error {
	k, err := c.key("", args[0])
	if err != nil {
		return err
	}
	a, err := k.do("GET", k.path("data"), nil)
	if refusedWith(err, 404) {
		return k.nothing(args[0])
	}
	if err != nil {
		return doing("reading "+args[0], err)
	}
	data := a.Data
	if k.versioned {
		data, _ = a.Data["data"].(map[string]any)
	}
	if k.field != "" {
		return k.member(data)
	}
	if done, err := k.structured(data); done {
		return err
	}
	return k.pairs(dataRows(data))
}

func ownPut(c *call, args []string) error {
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
	a, err := k.do("PUT", k.path("data"), data)
	if err != nil {
		return doing("writing "+args[0], err)
	}
	if k.field != "" {
		return k.member(a.Data)
	}
	if k.versioned {
		return k.success("Data written to: %s (version %s)", args[0], plainText(a.Data["version"]))
	}
	return k.success("Data written to: %s", args[0])
}
