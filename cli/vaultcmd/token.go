package vaultcmd

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// Token builds token.
func Token(e *command.Env, cmd *cobra.Command) {
	cmd.Example = "  vault token create -policy=app -ttl=1h\n  vault token lookup"
	command.Group(cmd, tokenCreate(e), tokenLookup(e), tokenRenew(e), tokenRevoke(e), tokenCapabilities(e))
}

// tokenFlags are the flags of token create.
type tokenFlags struct {
	id, displayName, ttl, explicitMax, period, kind, role, entityAlias string
	policies, meta                                                     []string
	orphan, noDefault, renewable                                       bool
	uses                                                               int
}

func (t *tokenFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.id, "id", "", "value of the token; default random")
	f.StringVar(&t.displayName, "display-name", "", "name to show for it")
	f.StringVar(&t.ttl, "ttl", "", "initial lifetime")
	f.StringVar(&t.explicitMax, "explicit-max-ttl", "", "maximum lifetime")
	f.StringVar(&t.period, "period", "", "let it be renewed indefinitely, for this long each time")
	f.StringVar(&t.kind, "type", "", "service or batch")
	f.StringVar(&t.role, "role", "", "role of the token store to make it by")
	f.StringVar(&t.entityAlias, "entity-alias", "", "name of the entity to make it for")
	f.StringArrayVar(&t.policies, "policy", nil, "policy (repeat)")
	f.StringArrayVar(&t.meta, "metadata", nil, "name=value to keep beside it (repeat)")
	f.BoolVar(&t.orphan, "orphan", false, "give it no parent")
	f.BoolVar(&t.noDefault, "no-default-policy", false, "leave out the policy default")
	f.BoolVar(&t.renewable, "renewable", true, "let it be renewed")
	f.IntVar(&t.uses, "use-limit", 0, "how often it may be used; 0: no limit")
}

func (t *tokenFlags) body() (map[string]any, error) {
	for flag, text := range map[string]string{"ttl": t.ttl, "explicit-max-ttl": t.explicitMax, "period": t.period} {
		if err := checkDuration(flag, text); err != nil {
			return nil, err
		}
	}
	meta, err := stringMap("metadata", t.meta)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"renewable": t.renewable, "no_default_policy": t.noDefault, "no_parent": t.orphan,
		"num_uses": t.uses}
	for name, v := range map[string]string{"id": t.id, "display_name": t.displayName, "ttl": t.ttl,
		"explicit_max_ttl": t.explicitMax,
		"period":           t.period, "type": t.kind, "entity_alias": t.entityAlias} {
		Put(body, name, v)
	}
	if len(t.policies) > 0 {
		body["policies"] = t.policies
	}
	if meta != nil {
		body["meta"] = meta
	}
	return body, nil
}

func tokenCreate(e *command.Env) *cobra.Command {
	return With(e, "create", "Make a token", 0, 0, func(cmd *cobra.Command) func(*Call, []string) error {
		var t tokenFlags
		t.add(cmd)
		return func(c *Call, _ []string) error {
			body, err := t.body()
			if err != nil {
				return err
			}
			path := "auth/token/create"
			if t.role != "" {
				path += "/" + t.role
			}
			a, err := c.Do("POST", path, body)
			if err != nil {
				return Doing("creating token", err)
			}
			return c.Secret(a)
		}
	})
}

func tokenLookup(e *command.Env) *cobra.Command {
	return With(e, "lookup [TOKEN]", "Show a token's properties; default one's own", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			accessor := cmd.Flags().Bool("accessor", false, "the argument is an accessor")
			return func(c *Call, args []string) error {
				method, path, body := "GET", "auth/token/lookup-self", any(nil)
				switch {
				case *accessor && len(args) == 0:
					return command.Usagef("Not enough arguments with -accessor: give the accessor")
				case *accessor:
					method, path, body = "POST", "auth/token/lookup-accessor", map[string]string{"accessor": args[0]}
				case len(args) == 1:
					method, path, body = "POST", "auth/token/lookup", map[string]string{"token": args[0]}
				}
				a, err := c.Do(method, path, body)
				if err != nil {
					return Doing("looking up token", err)
				}
				return c.Secret(a)
			}
		})
}

func tokenRenew(e *command.Env) *cobra.Command {
	return With(e, "renew [TOKEN]", "Let a token live longer; default one's own", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			accessor := cmd.Flags().Bool("accessor", false, "the argument is an accessor")
			increment := cmd.Flags().StringP("increment", "i", "", "for how long")
			return func(c *Call, args []string) error {
				if err := checkDuration("increment", *increment); err != nil {
					return err
				}
				body, path := map[string]any{}, "auth/token/renew-self"
				Put(body, "increment", *increment)
				switch {
				case *accessor && len(args) == 0:
					return command.Usagef("Not enough arguments with -accessor: give the accessor")
				case *accessor:
					path, body["accessor"] = "auth/token/renew-accessor", args[0]
				case len(args) == 1:
					path, body["token"] = "auth/token/renew", args[0]
				}
				a, err := c.Do("PUT", path, body)
				if err != nil {
					return Doing("renewing token", err)
				}
				return c.Secret(a)
			}
		})
}

func tokenRevoke(e *command.Env) *cobra.Command {
	return With(e, "revoke [TOKEN]", "End a token and all below it", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			accessor := f.Bool("accessor", false, "the argument is an accessor")
			self := f.Bool("self", false, "revoke your own token")
			mode := f.String("mode", "", "orphan: keep its child tokens; path: revoke all tokens created below a "+
				"path of auth")
			return func(c *Call, args []string) error {
				path, body := "auth/token/revoke", map[string]any{}
				switch {
				case *self == (len(args) == 1):
					return command.Usagef("Give a token, or -self, and not both")
				case *self:
					path = "auth/token/revoke-self"
				case *accessor && *mode != "":
					return command.Usagef("Cannot use -accessor with -mode")
				case *accessor:
					path, body["accessor"] = "auth/token/revoke-accessor", args[0]
				case *mode == "orphan":
					path, body["token"] = "auth/token/revoke-orphan", args[0]
				case *mode == "path":
					path = "sys/leases/revoke-prefix/" + Clean(args[0])
				case *mode != "":
					return command.Usagef("Invalid mode: %s; it is orphan or path", *mode)
				default:
					body["token"] = args[0]
				}
				a, err := c.Do("PUT", path, body)
				if err != nil {
					return Doing("revoking token", err)
				}
				return c.Changed(a, "Revoked token (if it existed)")
			}
		})
}

func tokenCapabilities(e *command.Env) *cobra.Command {
	return With(e, "capabilities [TOKEN] PATH", "Show what a token may do at a path", 1, 2,
		func(cmd *cobra.Command) func(*Call, []string) error {
			accessor := cmd.Flags().Bool("accessor", false, "the first argument is an accessor")
			return func(c *Call, args []string) error {
				path, body := "sys/capabilities-self", map[string]any{"path": args[len(args)-1]}
				switch {
				case *accessor && len(args) == 1:
					return command.Usagef("Not enough arguments with -accessor: give the accessor and the path")
				case *accessor:
					path, body["accessor"] = "sys/capabilities-accessor", args[0]
				case len(args) == 2:
					path, body["token"] = "sys/capabilities", args[0]
				}
				a, err := c.Do("POST", path, body)
				if err != nil {
					return Doing("listing capabilities", err)
				}
				list := Texts(a.Data["capabilities"])
				slices.Sort(list)
				if done, err := c.Structured(list); done {
					return err
				}
				return c.Printf("%s\n", strings.Join(list, ", "))
			}
		})
}

// Print builds print.
func Print(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, Leaf(e, "token", "Show the token that commands use", 0, 0, func(c *Call, _ []string) error {
		return c.Printf("%s\n", c.cfg.Token)
	}))
}

// store keeps the token of a login, for this user alone.
func store(c *Call, token string) error {
	if c.helper != "" {
		_, err := c.help(c.helper, "store", token)
		return err
	}
	if c.tokenFile == "" {
		return fmt.Errorf("HOME is not set, so there is no place for the token: give -no-store and use VAULT_TOKEN")
	}
	return StoreToken(c.tokenFile, token)
}

// StoreToken keeps a token in a file that this user alone may read.
func StoreToken(file, token string) error {
	next := file + ".new"
	if err := os.Remove(next); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.WriteFile(next, []byte(token), 0o600); err != nil {
		return fmt.Errorf("Error storing token: %w", err)
	}
	return os.Rename(next, file)
}

// Variable reads BAO_name, or VAULT_name where the former is not set.
func Variable(e *command.Env, name string) string { return vault.Env(e.Getenv, name) }
