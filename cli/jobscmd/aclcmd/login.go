package aclcmd

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/browserlogin"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"github.com/spf13/cobra"
)

// method is an auth method as the API shows it.
type method struct {
	Name, Type, TokenLocality, MaxTokenTTL string
	Default                                bool
	Config                                 map[string]any
}

func showMethod(c *jobscmd.Call, m *method) error {
	config, err := json.MarshalIndent(m.Config, "", "  ")
	if err != nil {
		return err
	}
	c.Fields("Name", m.Name, "Type", m.Type, "Locality", m.TokenLocality, "Max Token TTL", m.MaxTokenTTL,
		"Default", strconv.FormatBool(m.Default))
	return c.Printf("\nConfig\n\n%s\n", config)
}

func methodList(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "list", "List the auth methods", 0, 0, func(c *jobscmd.Call, _ []string) error {
		return list(c, "acl/auth-methods", []string{"Name", "Type", "Default"}, "No ACL auth methods",
			func(m *method) []string { return []string{m.Name, m.Type, strconv.FormatBool(m.Default)} })
	})
}

func methodInfo(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "info METHOD", "Show an auth method", 1, 1, func(c *jobscmd.Call, args []string) error {
		return info(c, "acl/auth-method/"+url.PathEscape(args[0]), showMethod)
	})
}

// methodWrite builds `auth-method create` and `auth-method update`.
func methodWrite(e *command.Env, update bool) *cobra.Command {
	use, short, count := "create", "Make an auth method", 0
	if update {
		use, short, count = "update METHOD", "Change an auth method; what no flag names stays", 1
	}
	return jobscmd.Leaf(e, use, short, count, count, func(cmd *cobra.Command) run {
		f := cmd.Flags()
		name := new(string)
		if !update {
			name = f.String("name", "", "its name")
		}
		kind := f.String("type", "", "JWT or OIDC")
		locality := f.String("token-locality", "", "local or global: where its tokens hold")
		ttl := f.String("max-token-ttl", "", "how long its tokens live, as 1h")
		standard := f.Bool("default", false, "logins that name no method use this one; only one method can be it")
		config := f.String("config", "", "its configuration as JSON, @FILE to read it from a file, - from stdin")
		return func(c *jobscmd.Call, args []string) error {
			in := map[string]any{}
			for key, v := range map[string]string{"Name": *name, "Type": *kind, "TokenLocality": *locality,
				"MaxTokenTTL": *ttl} {
				if v != "" {
					in[key] = v
				}
			}
			if cmd.Flags().Changed("default") {
				in["Default"] = *standard
			}
			if *config != "" {
				text := []byte(*config)
				if file, ok := strings.CutPrefix(*config, "@"); ok || *config == "-" {
					var err error
					if text, err = c.FileOrStdin(file); err != nil {
						return err
					}
				}
				if !json.Valid(text) {
					return command.Usagef("-config is not valid JSON")
				}
				in["Config"] = json.RawMessage(text)
			}
			path := "acl/auth-method"
			if update {
				path += "/" + url.PathEscape(args[0])
			}
			return write(c, path, in, showMethod)
		}
	})
}

// rule is a binding rule as the API shows it.
type rule struct{ ID, Description, AuthMethod, Selector, BindType, BindName string }

func showRule(c *jobscmd.Call, r *rule) error {
	c.Fields("ID", r.ID, "Description", jobview.Or(r.Description, "<none>"), "Auth Method", r.AuthMethod, "Selector",
		jobview.Or(r.Selector, "<none>"), "Bind Type", r.BindType, "Bind Name", jobview.Or(r.BindName, "<none>"))
	return nil
}

func ruleList(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "list", "List the binding rules", 0, 0, func(c *jobscmd.Call, _ []string) error {
		return list(c, "acl/binding-rules", []string{"ID", "Description", "Auth Method", "Bind Type", "Bind Name"},
			"No ACL binding rules", func(r *rule) []string {
				return []string{r.ID, jobview.Or(r.Description, "<none>"), r.AuthMethod, r.BindType,
					jobview.Or(r.BindName, "<none>")}
			})
	})
}

func ruleInfo(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "info RULE", "Show a binding rule", 1, 1, func(c *jobscmd.Call, args []string) error {
		return info(c, "acl/binding-rule/"+url.PathEscape(args[0]), showRule)
	})
}

// ruleWrite builds `binding-rule create` and `binding-rule update`.
func ruleWrite(e *command.Env, update bool) *cobra.Command {
	use, short, count := "create", "Make a binding rule", 0
	if update {
		use, short, count = "update RULE", "Change a binding rule; what no flag names stays", 1
	}
	return jobscmd.Leaf(e, use, short, count, count, func(cmd *cobra.Command) run {
		f := cmd.Flags()
		fields := map[string]*string{
			"Description": f.String("description", "", "what it is for"),
			"Selector":    f.String("selector", "", "for which logins, as value.team==dev; empty is all"),
			"BindType":    f.String("bind-type", "", "role, policy or management"),
			"BindName":    f.String("bind-name", "", "the role or policy; ${value.NAME} stands for a claim"),
		}
		if !update {
			fields["AuthMethod"] = f.String("auth-method", "", "the auth method whose logins it is about")
		}
		return func(c *jobscmd.Call, args []string) error {
			in := map[string]string{}
			for key, v := range fields {
				if *v != "" {
					in[key] = *v
				}
			}
			path := "acl/binding-rule"
			if update {
				path += "/" + url.PathEscape(args[0])
			}
			return write(c, path, in, showRule)
		}
	})
}

// Login builds `nomad login`.
func Login(e *command.Env, cmd *cobra.Command) {
	f := cmd.Flags()
	name := f.String("method", "", "the auth method; without it, the default one")
	kind := f.String("type", "", "JWT or OIDC; default is that of the default method, or JWT with -login-token, else OIDC")
	jwt := f.String("login-token", "", "the JWT; - reads it from stdin, @FILE from a file")
	back := f.String("oidc-callback-addr", "localhost:4649", "where the browser comes back to: an address of this machine")
	noBrowser := f.Bool("no-browser", false, "print the provider's address, open no browser")
	built := jobscmd.Leaf(e, "login", cmd.Short, 0, 0, func(*cobra.Command) run {
		return func(c *jobscmd.Call, _ []string) error {
			switch {
			case *kind != "" && !strings.EqualFold(*kind, "jwt") && !strings.EqualFold(*kind, "oidc"):
				return command.Usagef("-type=%s is not known: use JWT or OIDC", *kind)
			case *name == "":
				if *jwt != "" {
					*kind = cmp.Or(*kind, "JWT")
				}
				if err := standard(c, name, kind); err != nil {
					return err
				}
			}
			switch {
			case strings.EqualFold(*kind, "oidc") || *kind == "" && *jwt == "":
				return browse(c, *name, *back, !*noBrowser)
			case *jwt == "":
				return command.Usagef("login with a JWT needs -login-token")
			}
			text := *jwt
			if file, ok := strings.CutPrefix(text, "@"); ok || text == "-" {
				read, err := c.FileOrStdin(file)
				if err != nil {
					return err
				}
				text = strings.TrimSpace(string(read))
			}
			in := map[string]string{"AuthMethodName": *name, "LoginToken": text}
			return write(c, "acl/login", in, showToken)
		}
	})
	jobscmd.Replace(cmd, built)
}

// standard finds the default method, which a login that names none is by, and its type.
func standard(c *jobscmd.Call, name, kind *string) error {
	var all []*method
	if err := c.Get("acl/auth-methods", nil, &all); err != nil {
		return err
	}
	for _, m := range all {
		switch {
		case !m.Default:
		case *kind != "" && !strings.EqualFold(*kind, m.Type):
			return command.Usagef("-type=%s: the default auth method %s is of type %s; name another one with -method", *kind,
				m.Name, m.Type)
		default:
			*name, *kind = m.Name, m.Type
			return nil
		}
	}
	return command.Usagef("login needs -method: no auth method is the default one")
}

// browse logs a person in at an OIDC provider, whose pages the browser comes back from to address.
func browse(c *jobscmd.Call, method, address string, open bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return command.Usagef("-oidc-callback-addr %q must be host:port", address)
	}
	place, err := browserlogin.Listen(c.Ctx(), address)
	if err != nil {
		return fmt.Errorf("%w: name another address with -oidc-callback-addr", err)
	}
	defer place.Close()
	redirect, nonce := "http://"+net.JoinHostPort(host, place.Port())+browserlogin.Path, rand.Text()
	var begun struct{ AuthURL string }
	if err := c.Client.Put(c.Ctx(), "acl/oidc/auth-url", nil, map[string]string{"AuthMethodName": method,
		"RedirectURI": redirect, "ClientNonce": nonce}, &begun); err != nil {
		return err
	}
	back, err := place.Go(c.Ctx(), c.Err, begun.AuthURL, open)
	if err != nil {
		return err
	}
	return write(c, "acl/oidc/complete-auth", map[string]string{"AuthMethodName": method, "ClientNonce": nonce,
		"State": back.State, "Code": back.Code, "RedirectURI": redirect}, showToken)
}
