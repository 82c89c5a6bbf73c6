// Package jobscmd holds the commands of the jobs plane: Nomad's command line, which the binary has under the name
// nomad, and `corbel jobs`, `corbel allocs` and their like.
//
// Commands speak to the server through package client/nomad alone, so they work against Nomad too. Job files are read
// here, on the side of who runs the command. Exit codes are Nomad's: 1 for a failure, 2 where `job run` could not place
// everything, and for `job plan` 0, 1 (something would be made or destroyed) and 255.
package jobscmd

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/nomad"
	"github.com/spf13/cobra"
)

// Call is one run of a command: its flags and what they lead to.
type Call struct {
	*command.Env
	cmd     *cobra.Command
	cfg     nomad.Config
	Client  *nomad.Client
	JSON    bool
	Verbose bool
}

// build adds flags to a command and returns what runs.
type build func(cmd *cobra.Command) func(c *Call, args []string) error

// Leaf makes a command that speaks to the server. low and high bound its arguments (high < 0: any number).
func Leaf(e *command.Env, use, short string, low, high int, b build) *cobra.Command {
	c := &Call{Env: e}
	cmd := &cobra.Command{Use: use, Short: short}
	c.finish(cmd, low, high, b(cmd))
	for word, path := range completed {
		if _, first, _ := strings.Cut(use, " "); strings.HasPrefix(strings.TrimPrefix(first, "["), word) {
			command.Completes(cmd, c.names(path))
		}
	}
	return cmd
}

// completed are the words for arguments that a shell can complete, and the lists that have them.
var completed = map[string]string{"JOB": "/v1/jobs", "NODE": "/v1/nodes", "ALLOCATION": "/v1/allocations"}

// names are the ids of a list, those that begin with what was typed.
func (c *Call) names(path string) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, begun string) ([]string, error) {
		cfg, err := c.config()
		if err != nil {
			return nil, err
		}
		cl, err := nomad.New(cfg)
		if err != nil {
			return nil, err
		}
		defer cl.Close()
		var list []struct{ ID string }
		if _, err := cl.Get(ctx, path, url.Values{"prefix": {begun}}, &list); err != nil {
			return nil, err
		}
		out := make([]string, len(list))
		for i := range list {
			out[i] = list[i].ID
		}
		return out, nil
	}
}

// Plain is Leaf for commands without flags of their own.
func Plain(e *command.Env, use, short string, low, high int, run func(c *Call, args []string) error) *cobra.Command {
	return Leaf(e, use, short, low, high, func(*cobra.Command) func(*Call, []string) error { return run })
}

// finish gives cmd the flags that all have and its checks.
func (c *Call) finish(cmd *cobra.Command, low, high int, run func(c *Call, args []string) error) {
	c.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&c.cfg.Address, "address", "", "server to talk to (NOMAD_ADDR; default "+nomad.DefaultAddress+")")
	f.StringVar(&c.cfg.Token, "token", "", "token to use (NOMAD_TOKEN)")
	f.StringVar(&c.cfg.Namespace, "namespace", "", "namespace, or * for all in lists (NOMAD_NAMESPACE)")
	f.StringVar(&c.cfg.Region, "region", "", "region (NOMAD_REGION)")
	f.StringVar(&c.cfg.CAFile, "ca-cert", "", "CA certificates to trust, PEM (NOMAD_CACERT)")
	f.StringVar(&c.cfg.CAPath, "ca-path", "", "folder of such files (NOMAD_CAPATH)")
	f.StringVar(&c.cfg.CertFile, "client-cert", "", "client certificate, PEM (NOMAD_CLIENT_CERT)")
	f.StringVar(&c.cfg.KeyFile, "client-key", "", "its private key, PEM (NOMAD_CLIENT_KEY)")
	f.StringVar(&c.cfg.ServerName, "tls-server-name", "",
		"name that the server's certificate must have (NOMAD_TLS_SERVER_NAME)")
	f.BoolVar(&c.cfg.SkipVerify, "tls-skip-verify", false, "accept any certificate (NOMAD_SKIP_VERIFY)")
	if f.Lookup("json") == nil {
		f.BoolVar(&c.JSON, "json", false, "print JSON")
	}
	if f.Lookup("verbose") == nil {
		f.BoolVar(&c.Verbose, "verbose", false, "show whole ids, and more")
	}
	if f.Lookup("no-color") == nil {
		f.Bool("no-color", false, "nothing is colored here")
		_ = f.MarkHidden("no-color") // it was just made
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.cmd = cmd // replace may have given it to another one
		if len(args) < low || high >= 0 && len(args) > high {
			return command.Usagef("%s takes %s, not %d", cmd.CommandPath(), arguments(low, high), len(args))
		}
		cfg, err := c.config()
		if err != nil {
			return err
		}
		c.cfg = cfg
		if c.Client, err = nomad.New(cfg); err != nil {
			return err
		}
		c.OnClose(c.Client.Close)
		return run(c, args)
	}
}

func arguments(low, high int) string {
	switch {
	case high < 0:
		return fmt.Sprintf("at least %d arguments", low)
	case low == high && low == 1:
		return "one argument"
	case low == high:
		return fmt.Sprintf("%d arguments", low)
	}
	return fmt.Sprintf("%d to %d arguments", low, high)
}

// config lays the flags over the environment.
func (c *Call) config() (nomad.Config, error) {
	cfg, err := nomad.FromEnv(c.Getenv)
	if err != nil {
		return cfg, command.AsUsage(err)
	}
	for _, over := range []struct{ dst, flag *string }{{&cfg.Address, &c.cfg.Address}, {&cfg.Token, &c.cfg.Token},
		{&cfg.Namespace, &c.cfg.Namespace}, {&cfg.Region, &c.cfg.Region}, {&cfg.CAFile, &c.cfg.CAFile},
		{&cfg.CAPath, &c.cfg.CAPath}, {&cfg.CertFile, &c.cfg.CertFile}, {&cfg.KeyFile, &c.cfg.KeyFile},
		{&cfg.ServerName, &c.cfg.ServerName}} {
		if *over.flag != "" {
			*over.dst = *over.flag
		}
	}
	if cfg.Token == "" && !c.Nomad {
		cfg.Token = c.Getenv("CORBEL_TOKEN")
	}
	cfg.SkipVerify = cfg.SkipVerify || c.cfg.SkipVerify
	return cfg, nil
}

// Ctx is the command's context.
func (c *Call) Ctx() context.Context { return c.cmd.Context() }

// Tool is what the user types before "job run": nomad, or corbel jobs.
func (c *Call) Tool(nomadWords, ownWords string) string {
	if c.Nomad {
		return "nomad " + nomadWords
	}
	return "corbel " + ownWords
}

// short is an id as it is shown.
func (c *Call) short(id string) string {
	if c.Verbose || len(id) < 8 {
		return id
	}
	return id[:8]
}

// ShortID is an id as it is shown.
func ShortID(c *Call, id string) string { return c.short(id) }

// Get reads path into out.
func (c *Call) Get(path string, query url.Values, out any) error {
	_, err := c.Client.Get(c.Ctx(), path, query, out)
	return err
}

// Show prints what a path has as JSON when that is asked for.
func (c *Call) Show(path string, query url.Values) (done bool, err error) {
	if !c.JSON {
		return false, nil
	}
	var v json.RawMessage
	if err := c.Get(path, query, &v); err != nil {
		return true, err
	}
	return true, command.WriteJSON(c.Out, v, false)
}

// job is the path of a job: its id may hold slashes.
func job(id string, more ...string) string {
	return strings.Join(append([]string{"job", url.PathEscape(id)}, more...), "/")
}

// found is one object of a list by prefix.
type found struct{ ID, Name string }

// resolve finds the id that begins with prefix among a list such as allocations.
func (c *Call) resolve(what, list, prefix string) (string, error) {
	digits := strings.ReplaceAll(prefix, "-", "")
	if len(digits) >= 32 {
		return prefix, nil
	}
	if len(digits) < 2 {
		return "", command.Usagef("%s %q is too short: two characters at least", what, prefix)
	}
	if _, err := hex.DecodeString(digits[:len(digits)/2*2]); err != nil {
		return "", fmt.Errorf("%s %q is not an id: ids are hexadecimal", what, prefix)
	}
	even := prefix
	if len(digits)%2 != 0 {
		even = prefix[:len(prefix)-1]
	}
	var all []found
	if err := c.Get(list, url.Values{"prefix": {even}, "namespace": {"*"}}, &all); err != nil {
		return "", err
	}
	return c.only(what, prefix, all)
}

// only is the one object whose id begins with prefix.
func (c *Call) only(what, prefix string, all []found) (string, error) {
	var hits []found
	for _, o := range all {
		if strings.HasPrefix(o.ID, prefix) {
			hits = append(hits, o)
		}
	}
	switch len(hits) {
	case 0:
		return "", fmt.Errorf("there is no %s whose id begins with %q", what, prefix)
	case 1:
		return hits[0].ID, nil
	}
	var b strings.Builder
	for _, o := range hits {
		fmt.Fprintf(&b, "\n  %s  %s", o.ID, o.Name)
	}
	return "", fmt.Errorf("%d %ss begin with %q:%s", len(hits), what, prefix, b.String())
}

// jobID finds the job that is meant: by its id, or by a prefix that only one has.
func (c *Call) jobID(prefix string) (string, error) {
	var all []found
	if err := c.Get("jobs", url.Values{"prefix": {prefix}}, &all); err != nil {
		return "", err
	}
	for _, o := range all {
		if o.ID == prefix {
			return prefix, nil
		}
	}
	if len(all) == 0 {
		return "", fmt.Errorf("there is no job whose id begins with %q in namespace %q", prefix, c.Client.Namespace())
	}
	return c.only("job", prefix, all)
}

// Table prints rows below a head; without rows it says none.
func (c *Call) Table(head []string, rows [][]string, none string) error {
	if len(rows) == 0 {
		return c.Printf("%s\n", none)
	}
	t := command.Table{Head: head}
	for _, r := range rows {
		t.Add(r...)
	}
	return t.Write(c.Out)
}

// Fields prints name and value under each other.
func (c *Call) Fields(pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	for i := 0; i < len(pairs); i += 2 {
		line := fmt.Sprintf("%-*s = %s", width, pairs[i], pairs[i+1])
		c.Say("%s\n", strings.TrimRight(line, " "))
	}
}
