package sensuctl

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

var formats = []string{"tabular", "yaml", "wrapped-json", "json"}

func checkFormat(format string) error {
	if !slices.Contains(formats, format) {
		return command.Usagef("--format %s must be one of %s", format, strings.Join(formats, ", "))
	}
	return nil
}

// configure asks for what was not given, logs in and keeps it.
func (s *Ctl) configure(e *command.Env, c *cobra.Command) {
	var quiet bool
	var user, password, address, format, namespace string
	f := c.Flags()
	f.BoolVarP(&quiet, "non-interactive", "n", false, "do not ask")
	f.StringVar(&user, "username", "", "username")
	f.StringVar(&password, "password", "", "password")
	f.StringVar(&address, "url", "", "the backend's URL")
	f.StringVar(&format, "format", "", "preferred output format: "+strings.Join(formats, ", "))
	f.StringVar(&namespace, "namespace", "", "namespace")
	c.Args = command.Between(0, 0, "flags only")
	c.RunE = func(c *cobra.Command, _ []string) error {
		p, err := s.load()
		if err != nil {
			return err
		}
		p.URL = cmp.Or(address, p.URL, "http://localhost:8080")
		p.User, p.Format = cmp.Or(user, p.User), cmp.Or(format, p.Format, "tabular")
		p.Namespace = cmp.Or(namespace, p.Namespace)
		if !quiet {
			in := bufio.NewReader(e.In)
			for _, q := range []struct {
				text string
				at   *string
			}{{"Sensu Backend URL", &p.URL}, {"Username", &p.User}, {"Password", &password}, {"Namespace", &p.Namespace},
				{"Preferred output format", &p.Format}} {
				if err := s.ask(in, q.text, q.at, q.at == &password); err != nil {
					return err
				}
			}
		}
		if err := checkFormat(p.Format); err != nil {
			return err
		}
		if p.User == "" || password == "" {
			return command.Usagef("--username and --password are needed")
		}
		return s.login(c.Context(), p, password)
	}
}

// ask reads one line; an empty one leaves what is there.
func (s *Ctl) ask(in *bufio.Reader, text string, at *string, hidden bool) error {
	shown := *at
	if hidden {
		shown = ""
	}
	if err := s.env.Printf("? %s: (%s) ", text, shown); err != nil {
		return err
	}
	line, err := in.ReadString('\n')
	if line = strings.TrimSpace(line); line != "" {
		*at = line
	}
	if err == io.EOF {
		err = nil
	}
	return err
}

func (s *Ctl) login(ctx context.Context, p *profile, password string) error {
	cfg := p.dial()
	cfg.User, cfg.Password = p.User, password
	cl, err := sensu.New(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	raw, err := cl.Login(ctx)
	if err != nil {
		return err
	}
	return p.take(raw)
}

func (s *Ctl) config(_ *command.Env, c *cobra.Command) {
	set := func(name string, at func(*profile) *string, check func(string) error) *cobra.Command {
		x := &cobra.Command{Use: "set-" + name + " VALUE", Short: "Set the " + name + " of the active configuration",
			Args: command.Between(1, 1, "VALUE")}
		x.RunE = func(_ *cobra.Command, args []string) error {
			p, err := s.load()
			if err == nil {
				err = check(args[0])
			}
			if err != nil {
				return err
			}
			*at(p) = args[0]
			return p.save()
		}
		return x
	}
	view := &cobra.Command{Use: "view", Short: "Show the active configuration",
		Args: command.Between(0, 0, "no arguments")}
	s.formatFlag(view)
	view.RunE = func(*cobra.Command, []string) error {
		p, err := s.load()
		if err != nil {
			return err
		}
		if format := cmp.Or(s.format, p.Format); format != "" && format != "tabular" {
			return command.WriteJSON(s.env.Out, map[string]any{"api-url": p.URL, "format": p.Format, "namespace": p.Namespace,
				"username": p.User, "timeout": p.Timeout, "trusted-ca-file": p.CA,
				"insecure-skip-tls-verify": p.Insecure}, false)
		}
		f := &command.Fields{Width: 24}
		f.Add("API URL", p.URL)
		f.Add("Namespace", p.Namespace)
		f.Add("Format", p.Format)
		f.Add("Username", p.User)
		f.Add("Trusted CA File", p.CA)
		f.Add("Insecure Skip TLS Verify", fmt.Sprint(p.Insecure))
		return f.Write(s.env.Out)
	}
	command.Group(c, view,
		set("format", func(p *profile) *string { return &p.Format }, checkFormat),
		set("namespace", func(p *profile) *string { return &p.Namespace }, func(string) error { return nil }),
		set("timeout", func(p *profile) *string { return &p.Timeout }, func(string) error { return nil }))
}

func (s *Ctl) logout(_ *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "no arguments")
	s.acts(c, func(ctx context.Context, cl *sensu.Client, p *profile, _ []string) error {
		body := fmt.Appendf(nil, `{"refresh_token":%q}`, p.Refresh)
		_, _, err := cl.Do(ctx, "POST", "/auth/logout", nil, body)
		p.Access, p.Refresh, p.Expires = "", "", 0
		if saved := p.save(); err == nil {
			err = saved
		}
		if err == nil {
			err = s.env.Printf("You have been logged out\n")
		}
		return err
	})
}

func (s *Ctl) formatFlag(c *cobra.Command) {
	c.Flags().StringVar(&s.format, "format", "", "output format: "+strings.Join(formats, ", "))
}
