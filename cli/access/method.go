package access

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"

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
	if m.Default {
		f.Add("Default", "true")
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
	noMerge                                                 bool
}

func (m *methodFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&m.description, "description", "", "description")
	f.StringVar(&m.display, "display-name", "", "display name")
	f.StringVar(&m.ttl, "max-token-ttl", "", "its tokens expire after this time")
	f.StringVar(&m.locality, "token-locality", "", "local or global: where its tokens are valid")
	f.StringVar(&m.config, "config", "", "settings of the type, JSON: the text, @file, or - for stdin")
	f.StringVar(&m.host, "kubernetes-host", "", "address of the Kubernetes API, for type kubernetes")
	f.StringVar(&m.ca, "kubernetes-ca-cert", "", "its CA certificate, PEM: the text or @file")
	f.StringVar(&m.jwt, "kubernetes-service-account-jwt", "", "token to review others with: the text or @file")
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
	c := methods.create(e, "Make an auth method",
		func(context.Context, *client.Client, *command.Dial) (*client.AuthMethod, error) {
			if m.name == "" || m.kind == "" {
				return nil, command.Usagef("an auth method needs --name and --type (jwt, kubernetes, oidc or aws-iam)")
			}
			config, err := m.settings(e)
			return &client.AuthMethod{Name: m.name, Type: m.kind, DisplayName: m.display, Description: m.description,
				MaxTokenTTL: m.ttl, TokenLocality: m.locality, Config: config}, err
		})
	m.flags(c)
	c.Flags().StringVar(&m.name, "name", "", "name of the method")
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

func whichMethod(c *cobra.Command) finder {
	name := c.Flags().String("name", "", "name of the method")
	return func(context.Context, *client.Client, *command.Dial) (string, error) {
		return *name, needName(*name, "auth-method")
	}
}

func methodUpdate(e *command.Env) *cobra.Command {
	var m methodFlags
	c := methods.update(e, "Change an auth method; what no flag names stays, unless --no-merge", whichMethod,
		func(_ context.Context, _ *client.Client, _ *command.Dial, now *client.AuthMethod) error {
			config, err := m.settings(e)
			if err != nil {
				return err
			}
			if m.noMerge {
				*now = client.AuthMethod{Name: now.Name, Type: now.Type}
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
			return nil
		})
	m.flags(c)
	c.Flags().BoolVar(&m.noMerge, "no-merge", false, "clear the fields that no flag sets")
	return c
}

func methodRow(m *client.AuthMethod, meta bool) string {
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
}
