package access

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// tokenText prints a token as Consul's command line does; meta adds hash and indexes.
func tokenText(t *client.Token, meta bool) string {
	f := command.Fields{Width: 18}
	f.Add("AccessorID", t.AccessorID)
	f.Add("SecretID", t.SecretID)
	f.Add("Description", t.Description)
	f.Add("Local", fmt.Sprint(t.Local))
	if t.AuthMethod != "" {
		f.Add("Auth Method", t.AuthMethod)
	}
	f.Add("Create Time", fmt.Sprint(t.CreateTime))
	if t.ExpirationTime != nil && !t.ExpirationTime.IsZero() {
		f.Add("Expiration Time", fmt.Sprint(*t.ExpirationTime))
	}
	if meta {
		f.Add("Hash", fmt.Sprintf("%x", t.Hash))
		f.Add("Create Index", fmt.Sprint(t.CreateIndex))
		f.Add("Modify Index", fmt.Sprint(t.ModifyIndex))
	}
	var b strings.Builder
	b.WriteString(f.String())
	linksText(&b, "Policies", "", t.Policies)
	linksText(&b, "Roles", "", t.Roles)
	identitiesText(&b, "", t.ServiceIdentities, t.NodeIdentities, t.TemplatedPolicies)
	for i, p := range t.ExpandedPolicies {
		if i == 0 {
			b.WriteString("=== Rules of its policies ===\n")
		}
		b.WriteString(policyText(&p, meta))
	}
	for i, r := range t.ExpandedRoles {
		if i == 0 {
			b.WriteString("=== Its roles ===\n")
		}
		b.WriteString(roleText(&r, meta))
	}
	return b.String()
}

func tokenRow(t *client.Token, meta bool) string { return tokenText(t, meta) + "\n" }

// newToken prints a token that was just made.
func newToken(t *client.Token) string { return tokenText(t, false) }

// tokenFlags are the flags of create and update.
type tokenFlags struct {
	description, accessor, secret, ttl string
	local                              bool
	policies, roles                    links
	identities                         identities
}

func (t *tokenFlags) flags(c *cobra.Command, update bool) {
	f := c.Flags()
	f.StringVar(&t.description, "description", "", "description")
	t.policies.flags(c, "policy", "policies", update)
	t.roles.flags(c, "role", "roles", update)
	t.identities.flags(c, update)
	if !update {
		f.StringVar(&t.accessor, "accessor", "", "accessor id to use, a UUID")
		f.StringVar(&t.secret, "secret", "", "secret id to use, a UUID")
		f.StringVar(&t.ttl, "expires-ttl", "", "it expires after this time")
		f.BoolVar(&t.local, "local", false, "valid in this datacenter only")
	}
}

// apply lays the flags over a token.
func (t *tokenFlags) apply(ctx context.Context, cl *client.Client, d *command.Dial, token *client.Token) error {
	var err error
	token.Description = cmp.Or(t.description, token.Description)
	if token.Policies, err = t.policies.apply(ctx, cl, d, token.Policies); err != nil {
		return err
	}
	if token.Roles, err = t.roles.apply(ctx, cl, d, token.Roles); err != nil {
		return err
	}
	token.ServiceIdentities = t.identities.servicesAfter(token.ServiceIdentities)
	if token.NodeIdentities, err = t.identities.nodesAfter(token.NodeIdentities); err != nil {
		return err
	}
	token.TemplatedPolicies, err = t.identities.templatedAfter(token.TemplatedPolicies)
	return err
}

func tokenCreate(e *command.Env) *cobra.Command {
	var t tokenFlags
	c := tokens.create(e, "Make a token",
		func(ctx context.Context, cl *client.Client, d *command.Dial) (*client.Token, error) {
			token := &client.Token{AccessorID: t.accessor, SecretID: t.secret, Local: t.local, ExpirationTTL: t.ttl}
			if err := t.apply(ctx, cl, d, token); err != nil {
				return nil, err
			}
			if len(token.Policies)+len(token.Roles)+len(token.ServiceIdentities)+len(token.NodeIdentities)+
				len(token.TemplatedPolicies) == 0 {
				return nil, command.Usagef("a token needs at least one of --policy-name, --policy-id, --role-name, --role-id, " +
					"--service-identity, --node-identity and --templated-policy")
			}
			return token, nil
		})
	t.flags(c, false)
	return c
}

// whichToken adds the flag that names a token, under both of its names.
func whichToken(c *cobra.Command) finder {
	accessor := c.Flags().String("accessor-id", "", "accessor id of the token, or its beginning")
	old := c.Flags().String("id", "", "same as --accessor-id")
	return func(ctx context.Context, cl *client.Client, d *command.Dial) (string, error) {
		switch given := cmp.Or(*accessor, *old); given {
		case "":
			return "", command.Usagef("give the token with --accessor-id; see `acl token list`")
		case "anonymous":
			return "00000000-0000-0000-0000-000000000002", nil
		default:
			return idOf(ctx, cl, d, "/v1/acl/tokens", "token", given)
		}
	}
}

func tokenClone(e *command.Env) *cobra.Command {
	var find finder
	var description string
	c := command.Read(e, "clone", "Make a token with the rights of another", flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			full, err := find(ctx, cl, &r.Dial)
			if err != nil {
				return err
			}
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/token/"+full+"/clone",
				map[string]string{"Description": description}, newToken)
		})
	find = whichToken(c)
	c.Flags().StringVar(&description, "description", "", "description; default the other's")
	return c
}

func tokenRead(e *command.Env) *cobra.Command {
	var find finder
	var self, meta, expanded bool
	c := command.Read(e, "read", "Show a token", flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			path := "/v1/acl/token/self"
			if !self {
				full, err := find(ctx, cl, &r.Dial)
				if err != nil {
					return err
				}
				path = "/v1/acl/token/" + full
			}
			if expanded {
				path += "?expanded=true"
			}
			return read(ctx, e, r, cl, path, func(t *client.Token) string { return tokenText(t, meta) })
		})
	find = whichToken(c)
	c.Flags().BoolVar(&self, "self", false, "the token of this call")
	c.Flags().BoolVar(&meta, "meta", false, "also print hash and indexes")
	c.Flags().BoolVar(&expanded, "expanded", false, "also print the rules")
	return c
}

func tokenUpdate(e *command.Env) *cobra.Command {
	var t tokenFlags
	c := tokens.update(e, "Change a token; what no flag names stays", whichToken, t.apply)
	t.flags(c, true)
	return c
}

func tokenList(e *command.Env) *cobra.Command {
	return tokens.list(e, "List tokens",
		filter{"policy", "policy", "only tokens with the policy of this id"},
		filter{"role", "role", "only tokens with the role of this id"},
		filter{"auth-method", "authmethod", "only tokens of this auth method"},
		filter{"service-name", "servicename", "only tokens with this service's identity"})
}
