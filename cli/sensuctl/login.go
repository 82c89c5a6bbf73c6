package sensuctl

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"

	"corbel.dev/corbel/cli/browserlogin"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// belowOIDC is where the monitor answers what a login at a provider asks.
const belowOIDC = "/api/enterprise/authentication/v2/oidc/"

// atProvider is a login at an OpenID provider.
type atProvider struct {
	provider string
	port     int
	print    bool // open no browser
}

// browse builds `sensuctl login`.
func (s *Ctl) browse(_ *command.Env, c *cobra.Command) {
	var a atProvider
	var address string
	sub := &cobra.Command{Use: "oidc", Short: "Log in with the browser at an OpenID provider",
		Args: command.Between(0, 0, "flags only")}
	f := sub.Flags()
	f.StringVar(&address, "url", "", "the backend's URL")
	f.StringVar(&a.provider, "provider", "", "name of the authentication provider, where there are several")
	f.IntVar(&a.port, "port", 8000, "port of this machine that the browser comes back to; 0 takes a free one")
	f.BoolVar(&a.print, "no-browser", false, "print the address, open no browser")
	sub.RunE = func(c *cobra.Command, _ []string) error {
		if a.port < 0 || a.port > 65535 {
			return command.Usagef("--port %d is not from 0 to 65535", a.port)
		}
		p, err := s.load()
		if err != nil {
			return err
		}
		p.URL, p.Format = cmp.Or(address, p.URL, "http://localhost:8080"), cmp.Or(p.Format, "tabular")
		ctx, stop := command.Signals(c.Context())
		defer stop()
		return a.run(ctx, s, p)
	}
	command.Group(c, sub, s.byPassword("ldap", "an LDAP directory"), s.byPassword("ad", "Active Directory"))
}

// byPassword is a login by a directory: the backend finds out which one knows the person.
func (s *Ctl) byPassword(use, by string) *cobra.Command {
	var address, user, password string
	c := &cobra.Command{Use: use, Short: "Log in by the password of " + by, Args: command.Between(0, 0, "flags only")}
	c.Flags().StringVar(&address, "url", "", "the backend's URL")
	c.Flags().StringVar(&user, "username", "", "username")
	c.Flags().StringVar(&password, "password", "", "password; else it is asked for")
	c.RunE = func(c *cobra.Command, _ []string) error {
		p, err := s.load()
		if err != nil {
			return err
		}
		p.URL, p.Format = cmp.Or(address, p.URL, "http://localhost:8080"), cmp.Or(p.Format, "tabular")
		if p.User = cmp.Or(user, p.User); p.User == "" {
			return command.Usagef("--username is needed")
		}
		if password == "" {
			if password, err = s.env.Hidden("Password: "); err != nil {
				return err
			}
		}
		if err := s.login(c.Context(), p, password); err != nil {
			return err
		}
		return s.env.Printf("You have been logged in at %s\n", p.URL)
	}
	return c
}

func (a *atProvider) run(ctx context.Context, s *Ctl, p *profile) error {
	cl, err := sensu.New(p.dial())
	if err != nil {
		return err
	}
	defer cl.Close()
	place, err := browserlogin.Listen(ctx, "localhost:"+strconv.Itoa(a.port))
	if err != nil {
		return fmt.Errorf("%w: name another port with --port", err)
	}
	defer place.Close()
	nonce := rand.Text()
	raw, err := post(ctx, cl, "authorize", map[string]string{"provider": a.provider, "client_nonce": nonce,
		"callback": "http://localhost:" + place.Port() + browserlogin.Path})
	if err != nil {
		return err
	}
	var begun struct {
		Address string `json:"auth_url"`
	}
	if err := json.Unmarshal(raw, &begun); err != nil {
		return err
	}
	back, err := place.Go(ctx, s.env.Err, begun.Address, !a.print)
	if err != nil {
		return err
	}
	raw, err = post(ctx, cl, "token", map[string]string{"state": back.State, "code": back.Code, "client_nonce": nonce})
	if err != nil {
		return err
	}
	p.User = "" // the provider says who that is
	if err := p.take(raw); err != nil {
		return err
	}
	return s.env.Printf("You have been logged in at %s\n", p.URL)
}

func post(ctx context.Context, cl *sensu.Client, path string, body map[string]string) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	raw, _, err := cl.Do(ctx, "POST", belowOIDC+path, nil, text)
	return raw, err
}
