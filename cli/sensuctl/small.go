package sensuctl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// noLicense is what there is to say of licenses.
const noLicense = "no license is needed: everything that this monitor has is open, without limits on entities"

// license builds `sensuctl license`.
func license(e *command.Env, c *cobra.Command) {
	say := func(use, short string) *cobra.Command {
		x := &cobra.Command{Use: use, Short: short, Args: command.Between(0, 0, "no arguments"),
			RunE: func(*cobra.Command, []string) error { return e.Printf("%s\n", noLicense) }}
		return x
	}
	command.Group(c, say("info", "Say that none is needed"), say("list", "Say that none is needed"))
}

// environment builds `sensuctl env`: the active configuration for a shell.
func (s *Ctl) environment(_ *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "flags only")
	c.RunE = func(c *cobra.Command, _ []string) error {
		p, err := s.load()
		if err != nil {
			return err
		}
		if p.Access != "" {
			if _, err := s.client(c.Context(), p); err != nil {
				return err
			}
		}
		for _, one := range s.said(p) {
			name, value, _ := strings.Cut(one, "=")
			if err := s.env.Printf("export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`)); err != nil {
				return err
			}
		}
		return s.env.Printf("# Run this command to configure your shell:\n# eval $(sensuctl env)\n")
	}
}

// tessen builds `sensuctl tessen`.
func (s *Ctl) tessen(_ *command.Env, c *cobra.Command) {
	const path = "/api/core/v2/tessen"
	opt := func(use, short string, out bool) *cobra.Command {
		var sure bool
		x := s.act(use, short, command.Between(0, 0, "no arguments"),
			func(ctx context.Context, cl *sensu.Client, _ *profile, _ []string) error {
				return s.send(ctx, cl, "PUT", path, map[string]bool{"opt_out": out}, "Taken; nothing is ever sent")
			})
		x.Flags().BoolVar(&sure, "skip-confirm", false, "accepted: nothing is asked")
		return x
	}
	info := s.act("info", "Show what is sent to Sensu's makers: nothing", command.Between(0, 0, "no arguments"),
		func(ctx context.Context, cl *sensu.Client, _ *profile, _ []string) error {
			raw, _, err := cl.Do(ctx, "GET", path, nil, nil)
			if err != nil {
				return err
			}
			return command.WriteJSON(s.env.Out, json.RawMessage(raw), false)
		})
	s.formatFlag(info)
	command.Group(c, info, opt("opt-in", "Opt in", false), opt("opt-out", "Opt out", true))
}

// unneeded tells of a resource that scripts create and that nobody needs here.
func unneeded(e *command.Env, r *sensu.Resource) bool {
	if r.Type != "LicenseFile" {
		return false
	}
	fmt.Fprintf(e.Err, "%s: left out: %s\n", r.Type, noLicense)
	return true
}
