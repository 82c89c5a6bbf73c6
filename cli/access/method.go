package access

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

func methodText(m *client.AuthMethod, meta bool) string {
	f := command.Fields{Width: 15}
	f.Add("Name", m.Name)
	f.Add("Type", m.Type)
	if m.DisplayName != "" {
		f.Add("DisplayName", m.DisplayName)
	}
	f.Add("Description", m.Description)
	if m.MaxTokenTTL != "" && m.MaxTokenTTL != "0s" {
		f.Add("MaxTokenTTL", m.MaxTokenTTL)
	}
	if m.TokenLocality != "" {
		f.Add("TokenLocality", m.TokenLocality)
	}
	if meta {
		f.Add("Create Index", fmt.Sprint(m.CreateIndex))
		f.Add("Modify Index", fmt.Sprint(m.ModifyIndex))
	}
	config, err := json.MarshalIndent(m.Config, "", "    ")
	if err != nil {
		config = []byte(err.Error())
	}
	f.Line("Config:")
	f.Line(string(config))
	return f.String()
}

// methodFlags are the flags of create and update.
type methodFlags struct {
	name, kind, description, display, ttl, locality, config string
	host, ca, jwt                                           string
	meta, noMerge                                           bool
}

func (m *methodFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&m.name, "name", "", "name of the method")
	f.StringVar(&m.description, "description", "", "description")
	f.StringVar(&m.display, "display-name", "", "display name")
	f.StringVar(&m.ttl, "max-token-ttl", "", "its tokens expire after this time")
	f.StringVar(&m.locality, "token-locality", "", "local or global: where its tokens are valid")
	f.StringVar(&m.config, "config", "", "settings of the type, JSON: the text, @file, or - for stdin")
	f.StringVar(&m.host, "kubernetes-host", "", "address of the Kubernetes API, for type kubernetes")
	f.StringVar(&m.ca, "kubernetes-ca-cert", "", "its CA certificate, PEM: the text or @file")
	f.StringVar(&m.jwt, "kubernetes-service-account-jwt", "", "token to review others with: the text or @file")
	f.BoolVar(&m.meta, "meta", false, "also print indexes")
}

// settings are the method's Config as the flags give it, nil for none.
func (m *methodFlags) settings(e *command.Env) (map[string]any, error) {
	out := map[string]any{}
	if m.config != "" {
		text, err := e.Input(m.config)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &out); err != nil {
			return nil, fmt.Errorf("--config is not a JSON object: %w", err)
		}
	}
	for _, pair := range [][2]string{{"Host", m.host}, {"CACert", m.ca}, {"ServiceAccountJWT", m.jwt}} {
		text, err := e.Input(pair[1])
		if err != nil {
			return nil, err
		}
		if len(text) > 0 {
			out[pair[0]] = string(text)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

func methodCreate(e *command.Env) *cobra.Command {
	var m methodFlags
	c := command.Read(e, "create", "Make an auth method", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if m.name == "" || m.kind == "" {
				return command.Usagef("an auth method needs --name and --type (jwt, kubernetes, oidc or aws-iam)")
			}
			config, err := m.settings(e)
			if err != nil {
				return err
			}
			body := client.AuthMethod{Name: m.name, Type: m.kind, DisplayName: m.display, Description: m.description,
				MaxTokenTTL: m.ttl, TokenLocality: m.locality, Config: config}
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/auth-method", body,
				func(v *client.AuthMethod, _ bool) string { return methodText(v, m.meta) })
		})
	m.flags(c)
	c.Flags().StringVar(&m.kind, "type", "", "type of the method")
	return c
}

// needName is what commands that take --name say without it.
func needName(name, what string) error {
	if name == "" {
		return command.Usagef("give the %s with --name; see `acl %s list`", what, what)
	}
	return nil
}

func methodRead(e *command.Env) *cobra.Command {
	var name string
	var meta bool
	c := command.Read(e, "read", "Show an auth method", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if err := needName(name, "auth-method"); err != nil {
				return err
			}
			return read(ctx, e, r, cl, "/v1/acl/auth-method/"+client.Escape(name),
				func(m *client.AuthMethod) string { return methodText(m, meta) })
		})
	c.Flags().StringVar(&name, "name", "", "name of the method")
	c.Flags().BoolVar(&meta, "meta", false, "also print indexes")
	return c
}

func methodUpdate(e *command.Env) *cobra.Command {
	var m methodFlags
	c := command.Read(e, "update", "Change an auth method; what no flag names stays, unless --no-merge",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if err := needName(m.name, "auth-method"); err != nil {
				return err
			}
			path := "/v1/acl/auth-method/" + client.Escape(m.name)
			var now client.AuthMethod
			if _, err := cl.Get(ctx, path, r.Q, &now); err != nil {
				return err
			}
			config, err := m.settings(e)
			if err != nil {
				return err
			}
			if m.noMerge {
				now = client.AuthMethod{Name: now.Name, Type: now.Type}
			}
			now.Description, now.DisplayName = cmp.Or(m.description, now.Description), cmp.Or(m.display, now.DisplayName)
			now.MaxTokenTTL, now.TokenLocality = cmp.Or(m.ttl, now.MaxTokenTTL), cmp.Or(m.locality, now.TokenLocality)
			if m.config != "" {
				now.Config = config
			} else if config != nil {
				if now.Config == nil {
					now.Config = map[string]any{}
				}
				maps.Copy(now.Config, config)
			}
			return send(ctx, e, r, cl, http.MethodPut, path, now,
				func(v *client.AuthMethod, _ bool) string { return methodText(v, m.meta) })
		})
	m.flags(c)
	c.Flags().BoolVar(&m.noMerge, "no-merge", false, "clear the fields that no flag sets")
	return c
}

func methodDelete(e *command.Env) *cobra.Command {
	var name string
	c := command.Act(e, "delete", "Delete an auth method and its tokens", command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			if err := needName(name, "auth-method"); err != nil {
				return err
			}
			return remove(ctx, e, d, cl, "Auth-method", "/v1/acl/auth-method/", name)
		})
	c.Flags().StringVar(&name, "name", "", "name of the method")
	return c
}

func methodList(e *command.Env) *cobra.Command {
	var meta bool
	c := command.Read(e, "list", "List auth methods", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			return list(ctx, e, r, cl, "/v1/acl/auth-methods", func(m *client.AuthMethod) string {
				f := command.Fields{Width: 18}
				f.Line(m.Name + ":")
				f.Add("   Type", m.Type)
				if m.DisplayName != "" {
					f.Add("   DisplayName", m.DisplayName)
				}
				f.Add("   Description", m.Description)
				if meta {
					f.Add("   Create Index", fmt.Sprint(m.CreateIndex))
					f.Add("   Modify Index", fmt.Sprint(m.ModifyIndex))
				}
				return f.String()
			})
		})
	c.Flags().BoolVar(&meta, "meta", false, "also print indexes")
	return c
}
