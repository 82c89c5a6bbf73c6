package operate

import (
	"io"
	"net/url"
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
