// Package vaultcmd holds the commands of the secrets plane: Vault's command line,
// which the binary has under the names vault and bao, and `corbel secrets`.
//
// Commands speak to the server through package client/vault alone, so they work
// against Vault and OpenBao too. Exit codes are Vault's: 1 for what is wrong on
// this side, 2 for what the server refused or did not have.
package vaultcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/keptlogin"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Call is one run of a command: its flags and what they lead to.
type Call struct {
	*command.Env
	cmd    *cobra.Command
	cfg    vault.Config
	Format string
	Field  string
	Client *vault.Client
	// tokenFile keeps the token of the last login.
	tokenFile string
	// helper keeps it in the file's place; "": none.
	helper string
	// own: the command is one of `corbel secrets`, where http://127.0.0.1:8200 is the default.
	own bool
}

// Ctx is the command's context.
func (c *Call) Ctx() context.Context { return c.cmd.Context() }

// TokenFile is where the token of the last login is.
func (c *Call) TokenFile() string { return c.tokenFile }

// Server is the address of the server that is talked to.
func (c *Call) Server() string { return c.cfg.Address }

// CodeRefused is the exit code for what the server refused or does not have.
const CodeRefused = command.ExitCode(2)

// Leaf makes a command that speaks to the server. low and high bound its arguments (high < 0: any number).
func Leaf(e *command.Env, use, short string, low, high int, run func(c *Call, args []string) error) *cobra.Command {
	return With(e, use, short, low, high, func(*cobra.Command) func(*Call, []string) error { return run })
}

// With is leaf for commands with flags of their own: build adds them and returns what runs.
func With(e *command.Env, use, short string, low, high int, build func(cmd *cobra.Command) func(c *Call,
	args []string) error) *cobra.Command {
	c := &Call{Env: e}
	cmd := &cobra.Command{Use: use, Short: short}
	finish(c, cmd, low, high, build(cmd))
	return cmd
}

// ServerFlags are the flags that say which server is talked to, and how it is known.
func ServerFlags(f *pflag.FlagSet, cfg *vault.Config) {
	f.StringVar(&cfg.Address, "address", "", "server to talk to (VAULT_ADDR)")
	f.StringVar(&cfg.Namespace, "namespace", "", "namespace (VAULT_NAMESPACE)")
	f.StringVar(&cfg.CAFile, "ca-cert", "", "CA certificates to trust, PEM (VAULT_CACERT)")
	f.StringVar(&cfg.CAPath, "ca-path", "", "folder of such files (VAULT_CAPATH)")
	f.StringVar(&cfg.CertFile, "client-cert", "", "client certificate, PEM (VAULT_CLIENT_CERT)")
	f.StringVar(&cfg.KeyFile, "client-key", "", "its private key, PEM (VAULT_CLIENT_KEY)")
	f.StringVar(&cfg.ServerName, "tls-server-name", "",
		"name that the server's certificate must have (VAULT_TLS_SERVER_NAME)")
	f.BoolVar(&cfg.SkipVerify, "tls-skip-verify", false, "accept any certificate (VAULT_SKIP_VERIFY)")
}

// finish gives cmd the flags that all have and its checks.
func finish(c *Call, cmd *cobra.Command, low, high int, run func(c *Call, args []string) error) {
	c.cmd = cmd
	f := cmd.Flags()
	ServerFlags(f, &c.cfg)
	f.StringVar(&c.cfg.Token, "token", "", "token to use; better in VAULT_TOKEN, where others do not see it")
	f.StringVar(&c.cfg.Namespace, "ns", "", "the same")
	f.StringArrayVar(&c.cfg.MFA, "mfa", nil,
		"METHOD[:PASSCODE] of a second factor; may be repeated (VAULT_MFA)")
	f.StringVar(&c.cfg.WrapTTL, "wrap-ttl", "", "wrap the answer for this long (VAULT_WRAP_TTL)")
	f.StringVar(&c.Format, "format", "", "table, json, yaml or raw (VAULT_FORMAT)")
	f.StringVar(&c.Field, "field", "", "print only this field's value")
	_ = f.MarkHidden("ns") // the flag is there: it was just made
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) < low {
			return command.Usagef("Not enough arguments (expected %s, got %d)", expected(low, high), len(args))
		}
		if high >= 0 && len(args) > high {
			return command.Usagef("Too many arguments (expected %s, got %d)", expected(low, high), len(args))
		}
		// Vault's commands take them for data too, and say so
		if late := lateFlags(args); len(late) > 0 && cmd.ArgsLenAtDash() < 0 {
			fmt.Fprintf(c.Err, "Command flags must be provided before positional arguments. The following arguments will not "+
				"be parsed as flags: [%s]\n", strings.Join(late, ","))
		}
		if err := c.open(); err != nil {
			return err
		}
		return c.ended(run(c, args))
	}
}

// lateFlags are the arguments that look like flags.
func lateFlags(args []string) (late []string) {
	for _, a := range args {
		if len(a) > 1 && a[0] == '-' {
			late = append(late, a)
		}
	}
	return late
}

func expected(low, high int) string {
	switch {
	case high < 0:
		return fmt.Sprintf("at least %d", low)
	case low == high:
		return fmt.Sprint(low)
	}
	return fmt.Sprintf("%d-%d", low, high)
}

// open lays the flags over the environment and makes the client.
func (c *Call) open() error {
	cfg, err := vault.FromEnv(c.Getenv)
	if err != nil {
		return err
	}
	for _, over := range []struct{ dst, flag *string }{{&cfg.Address, &c.cfg.Address}, {&cfg.Token, &c.cfg.Token},
		{&cfg.Namespace, &c.cfg.Namespace},
		{&cfg.CAFile, &c.cfg.CAFile}, {&cfg.CAPath, &c.cfg.CAPath}, {&cfg.CertFile, &c.cfg.CertFile},
		{&cfg.KeyFile, &c.cfg.KeyFile},
		{&cfg.ServerName, &c.cfg.ServerName}, {&cfg.WrapTTL, &c.cfg.WrapTTL}} {
		if *over.flag != "" {
			*over.dst = *over.flag
		}
	}
	cfg.SkipVerify = cfg.SkipVerify || c.cfg.SkipVerify
	if len(c.cfg.MFA) > 0 {
		cfg.MFA = c.cfg.MFA
	}
	if cfg.Address == "" && c.own {
		cfg.Address = "http://127.0.0.1:8200"
	}
	if home := c.Getenv("HOME"); home != "" {
		c.tokenFile = filepath.Join(home, ".vault-token")
	}
	c.cfg.Address = cfg.Address
	if c.helper, err = c.tokenHelper(); err != nil {
		return err
	}
	if c.own && cfg.Token == "" {
		cfg.Token = cmp.Or(c.Getenv("CORBEL_TOKEN"), keptlogin.Of(c.Getenv, keptlogin.Secrets, cfg.Address).Token)
	}
	switch {
	case cfg.Token != "":
	case c.helper != "":
		if cfg.Token, err = c.help(c.helper, "get", ""); err != nil {
			return err
		}
	case c.tokenFile != "":
		text, err := os.ReadFile(c.tokenFile)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("read the token of the last login: %w", err)
		}
		cfg.Token = strings.TrimSpace(string(text))
	}
	if c.Format == "" {
		c.Format = vault.Env(c.Getenv, "FORMAT")
	}
	switch c.Format = strings.ToLower(c.Format); c.Format {
	case "":
		c.Format = "table"
	case "table", "json", "yaml", "raw":
	case "yml":
		c.Format = "yaml"
	default:
		return command.Usagef("Invalid output format: %s; it is table, json, yaml or raw", c.Format)
	}
	c.cfg = cfg
	if c.Client, err = vault.New(cfg); err != nil {
		return err
	}
	c.OnClose(c.Client.Close)
	return nil
}

// ended prints what the server refused and gives it the exit code 2. Errors of this side pass: their code is 1.
func (c *Call) ended(err error) error {
	var refused *vault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		fmt.Fprintln(c.Err, err)
		switch {
		case refused.Status == 403:
			fmt.Fprint(c.Err, c.nextStep())
		case refused.Status == 503 && slices.Contains(refused.Texts, "Vault is sealed"):
			fmt.Fprintln(c.Err, "\"vault operator unseal\" opens it, or VAULT_ADDR names another server.")
		}
		return CodeRefused
	case errors.As(err, new(unreached)):
		fmt.Fprintln(c.Err, err)
		return CodeRefused
	}
	return err
}

// nextStep is what to look at after "permission denied", where more is known than that.
func (c *Call) nextStep() string {
	switch {
	case c.cmd.Name() == "login" && c.cmd.Flag("method").Value.String() == "token":
		return "The server does not know this token, or it has ended.\n"
	case c.cmd.Name() == "login":
		return "Is that method enabled at this path? \"vault auth list\" shows what is; -path says where.\n"
	case c.cfg.Token == "" && c.cmd.Name() != "unwrap":
		return "No token was sent: log in with \"vault login\", or set VAULT_TOKEN.\n"
	}
	return ""
}

// unreached marks a failure on the way to the server: Vault's commands end with 2 then too, but for status.
type unreached struct{ error }

// Unwrap gives the cause.
func (u unreached) Unwrap() error { return u.error }

// Do asks the server.
func (c *Call) Do(method, path string, body any) (*vault.Answer, error) {
	return c.Ask(method, path, nil, body)
}

// Ask is do with parameters in the query.
func (c *Call) Ask(method, path string, query map[string]string, body any) (*vault.Answer, error) {
	values := map[string][]string{}
	for name, value := range query {
		values[name] = []string{value}
	}
	a, err := c.Client.Do(c.Ctx(), method, path, values, body)
	var refused *vault.Error
	switch {
	case err != nil && !errors.As(err, &refused):
		err = unreached{err}
	case err != nil && refused.Answer != nil: // what a 404 has to say stands there
		c.warn(refused.Answer)
	}
	return a, err
}

// Doing puts what was tried before an error.
func Doing(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("Error %s: %w", what, err)
}

// NotFound tells a refusal that says only that nothing is there.
func NotFound(err error) bool {
	var refused *vault.Error
	return errors.As(err, &refused) && refused.Status == 404 && len(refused.Texts) == 0
}

// Nothing says that a path holds nothing, and ends with 2.
func (c *Call) Nothing(path string) error {
	fmt.Fprintf(c.Err, "No value found at %s\n", path)
	return CodeRefused
}

// Clean is a path as the API wants it.
func Clean(path string) string { return strings.Trim(strings.TrimSpace(path), "/") }

// checkDuration refuses what no server reads as a duration: seconds, 768h, 2d.
func checkDuration(flag, text string) error {
	if text == "" || strings.Trim(text, "0123456789") == "" ||
		strings.HasSuffix(text, "d") && strings.Trim(text[:len(text)-1], "0123456789") == "" {
		return nil
	}
	if _, err := time.ParseDuration(text); err != nil {
		return command.Usagef("-%s=%s must be seconds or a duration such as 30m, 768h or 2d", flag, text)
	}
	return nil
}
