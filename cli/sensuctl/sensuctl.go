// Package sensuctl is Sensu Go's command line under its own name: the same commands, flags, files and formats, against
// this monitor or Sensu's.
//
// What a person configured lies where sensuctl keeps it (~/.config/sensu/sensuctl: cluster and profile), so that both
// programs work with one login. Flags come before variables (SENSU_*), and these before the files. Nothing runs
// behind a command: each asks, prints and ends.
package sensuctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// Ctl is one run of the program.
type Ctl struct {
	env    *command.Env
	flags  flags
	format string // of a command's --format
}

// flags are those of all commands.
type flags struct {
	url, apiKey, token, dir, cache, namespace, ca, timeout string
	insecure                                               bool
}

// New makes a run.
func New(e *command.Env) *Ctl { return &Ctl{env: e} }

// Flags gives the root the flags of all commands.
func (s *Ctl) Flags(root *cobra.Command) {
	f := root.PersistentFlags()
	for _, one := range []struct {
		at        *string
		name, use string
	}{{&s.flags.url, "api-url", "host URL of the API (SENSU_API_URL)"},
		{&s.flags.apiKey, "api-key", "API key to use for authentication (SENSU_API_KEY)"},
		{&s.flags.token, "access-token", "access token to use for authentication (SENSU_ACCESS_TOKEN)"},
		{&s.flags.dir, "config-dir", "path to the directory of the configuration (SENSU_CONFIG_DIR)"},
		{&s.flags.cache, "cache-dir", "path to the directory of installed commands (SENSU_CACHE_DIR)"},
		{&s.flags.namespace, "namespace", "namespace in which the command acts (SENSU_NAMESPACE)"},
		{&s.flags.ca, "trusted-ca-file", "CA certificates to trust, PEM (SENSU_TRUSTED_CA_FILE)"},
		{&s.flags.timeout, "timeout", "timeout of a request (SENSU_TIMEOUT)"}} {
		f.StringVar(one.at, one.name, "", one.use)
	}
	f.BoolVar(&s.flags.insecure, "insecure-skip-tls-verify", false, "do not verify certificates (for tests)")
}

// Entry is one command below the root.
type Entry struct {
	Name, Short string
	Build       func(*command.Env, *cobra.Command)
}

// Commands are all of them.
func (s *Ctl) Commands() []Entry {
	list := []Entry{
		{"configure", "Initialize the configuration and log in", s.configure},
		{"login", "Log in at an OpenID provider, or by a directory", s.browse},
		{"config", "Show or change the active configuration", s.config},
		{"logout", "End the login of the active configuration", s.logout},
		{"create", "Create or replace resources from files or stdin", s.create},
		{"delete", "Delete resources from files or stdin", s.remove},
		{"dump", "Dump resources to stdout or a file", s.dump},
		{"edit", "Edit a resource in an editor", s.edit},
		{"describe-type", "Print details about resource types", s.describe},
		{"cluster", "Show the cluster's health and members", s.cluster},
		{"prune", "Delete resources that stand in no file", s.prune},
		{"command", "Install and run commands from assets", s.plugins},
		{"license", "Say that no license is needed", license},
		{"env", "Print the active configuration for a shell", s.environment},
		{"tessen", "Show that nothing is sent to Sensu's makers", s.tessen},
	}
	for i := range types {
		t := &types[i]
		if t.Command != "" {
			build := func(_ *command.Env, c *cobra.Command) { s.group(c, t) }
			list = append(list, Entry{t.Command, "Manage " + t.Plural, build})
		}
	}
	return list
}

// act makes a command that asks the monitor.
func (s *Ctl) act(use, short string, args cobra.PositionalArgs,
	run func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args}
	s.acts(c, run)
	return c
}

// acts is act of a command that is there.
func (s *Ctl) acts(c *cobra.Command,
	run func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error) {
	c.RunE = func(c *cobra.Command, args []string) error {
		p, err := s.load()
		if err != nil {
			return err
		}
		cl, err := s.client(c.Context(), p)
		if err != nil {
			return err
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		return run(ctx, cl, p, args)
	}
}

// profile is what a person configured: sensuctl's two files in one.
type profile struct {
	dir string
	// the file "cluster"
	URL      string `json:"api-url,omitempty"`
	CA       string `json:"trusted-ca-file,omitempty"`
	Insecure bool   `json:"insecure-skip-tls-verify,omitempty"`
	Access   string `json:"access_token,omitempty"`
	Refresh  string `json:"refresh_token,omitempty"`
	Expires  int64  `json:"expires_at,omitempty"`
	Timeout  string `json:"timeout,omitempty"`
	settings
}

// settings is the file "profile".
type settings struct {
	Format    string `json:"format,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	User      string `json:"username,omitempty"`
}

func (s *Ctl) first(flag, variable, otherwise string) string {
	if flag != "" {
		return flag
	}
	if v := s.env.Getenv(variable); v != "" {
		return v
	}
	return otherwise
}

// load reads the files, and lets variables and flags win. Files that are not there are empty.
func (s *Ctl) load() (*profile, error) {
	home := s.env.Getenv("HOME")
	base := s.env.Getenv("XDG_CONFIG_HOME")
	if base == "" {
		base = filepath.Join(home, ".config")
	}
	p := &profile{dir: s.first(s.flags.dir, "SENSU_CONFIG_DIR", filepath.Join(base, "sensu", "sensuctl"))}
	for name, into := range map[string]any{"cluster": p, "profile": &p.settings} {
		raw, err := os.ReadFile(filepath.Join(p.dir, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		if err != nil {
			return nil, err
		}
	}
	p.URL = s.first(s.flags.url, "SENSU_API_URL", p.URL)
	p.CA = s.first(s.flags.ca, "SENSU_TRUSTED_CA_FILE", p.CA)
	p.Timeout = s.first(s.flags.timeout, "SENSU_TIMEOUT", p.Timeout)
	p.Namespace = s.first(s.flags.namespace, "SENSU_NAMESPACE", p.Namespace)
	p.Insecure = p.Insecure || s.flags.insecure || s.env.Getenv("SENSU_INSECURE_SKIP_TLS_VERIFY") == "true"
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	return p, nil
}

// save writes both files, for their owner's eyes alone.
func (p *profile) save() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	cluster := *p
	cluster.settings = settings{}
	for name, v := range map[string]any{"cluster": cluster, "profile": p.settings} {
		raw, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		next := filepath.Join(p.dir, name+".new")
		if err := os.WriteFile(next, append(raw, '\n'), 0o600); err != nil {
			return err
		}
		if err := os.Rename(next, filepath.Join(p.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// dial is how the monitor is reached, without a login.
func (p *profile) dial() sensu.Config {
	cfg := sensu.Config{Address: p.URL, CAFile: p.CA, SkipVerify: p.Insecure}
	if d, err := time.ParseDuration(p.Timeout); err == nil && d > 0 {
		cfg.Timeout = d
	}
	return cfg
}

// client logs in with what was given, else with the login that is kept, which is renewed before it ends.
func (s *Ctl) client(ctx context.Context, p *profile) (*sensu.Client, error) {
	cfg := p.dial()
	cfg.APIKey = s.first(s.flags.apiKey, "SENSU_API_KEY", "")
	given := s.first(s.flags.token, "SENSU_ACCESS_TOKEN", "")
	switch {
	case cfg.APIKey != "":
	case given != "":
		cfg.AccessToken = given
	case p.Access == "":
		return nil, errors.New("not logged in: run sensuctl configure, or give --api-key")
	default:
		if time.Now().Unix() > p.Expires-30 {
			if err := p.renew(ctx); err != nil {
				return nil, err
			}
		}
		cfg.AccessToken = p.Access
	}
	cl, err := sensu.New(cfg)
	if err == nil {
		s.env.OnClose(cl.Close)
	}
	return cl, err
}

// tokens is what a login gives.
type tokens struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Expires int64  `json:"expires_at"`
}

// renew gets the next pair of tokens.
func (p *profile) renew(ctx context.Context) error {
	cfg := p.dial()
	cfg.AccessToken = p.Access
	cl, err := sensu.New(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	body, err := json.Marshal(map[string]string{"refresh_token": p.Refresh})
	if err != nil {
		return err
	}
	raw, _, err := cl.Do(ctx, "POST", "/auth/token", nil, body)
	if err != nil {
		return fmt.Errorf("the login has ended: run sensuctl configure again: %w", err)
	}
	return p.take(raw)
}

func (p *profile) take(raw []byte) error {
	var t tokens
	if err := json.Unmarshal(raw, &t); err != nil {
		return err
	}
	p.Access, p.Refresh, p.Expires = t.Access, t.Refresh, t.Expires
	return p.save()
}
