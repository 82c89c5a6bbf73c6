// Package access holds the commands around rights: acl, login and logout.
//
// They send what the HTTP contract says and print the server's answer: nothing is
// decided here. Ids may be given by a beginning that only one object has. A secret
// is printed only where the answer is about that secret.
package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// ACL builds `acl`.
func ACL(e *command.Env, c *cobra.Command) {
	command.Group(c,
		bootstrap(e),
		command.Named("token", "What callers present", tokenCreate(e), tokenClone(e), tokenRead(e), tokenUpdate(e),
			tokens.remove(e, "Delete a token"), tokenList(e)),
		command.Named("policy", "Named sets of rules", policyCreate(e),
			policies.read(e, "Show a policy with its rules"), policyUpdate(e), policies.remove(e, "Delete a policy"),
			policies.list(e, "List policies")),
		command.Named("role", "Named sets of policies", roleCreate(e), roles.read(e, "Show a role"), roleUpdate(e),
			roles.remove(e, "Delete a role"), roles.list(e, "List roles")),
		command.Named("auth-method", "Manage auth methods: proofs of identity to log in with", methodCreate(e),
			methods.read(e, "Show an auth method"), methodUpdate(e),
			methods.remove(e, "Delete an auth method and its tokens"), methods.list(e, "List auth methods")),
		command.Named("binding-rule", "Manage binding rules: what a login may do", bindingCreate(e),
			bindings.read(e, "Show a binding rule"), bindingUpdate(e), bindings.remove(e, "Delete a binding rule"),
			bindings.list(e, "List binding rules", filter{"method", "authmethod", "only rules of this auth method"})),
		command.Named("templated-policy", "Built-in policies with variables", templatedList(e), templatedRead(e),
			templatedPreview(e)),
		setAgentToken(e))
}

// send sends body and prints the object that comes back: as JSON, or by print.
func send[T any](ctx context.Context, e *command.Env, r *command.Reading, cl *client.Client, method, path string,
	body any, print func(*T) string) error {
	var text json.RawMessage
	if err := cl.Send(ctx, method, path, r.Q.Values(), body, &text); err != nil {
		return err
	}
	return show(e, r, text, print)
}

// show prints one answer: as JSON, or by print.
func show[T any](e *command.Env, r *command.Reading, text json.RawMessage, print func(*T) string) error {
	if r.JSON {
		return command.WriteJSON(e.Out, text, false)
	}
	var v T
	if err := command.Decode(text, &v); err != nil {
		return err
	}
	return e.Printf("%s", print(&v))
}

// read asks for one object and prints it.
func read[T any](ctx context.Context, e *command.Env, r *command.Reading, cl *client.Client, path string,
	print func(*T) string) error {
	var text json.RawMessage
	if _, err := cl.Get(ctx, path, r.Q, &text); err != nil {
		return err
	}
	return show(e, r, text, print)
}

// list asks for many and prints them, with an empty line between where print says so.
func list[T any](ctx context.Context, e *command.Env, r *command.Reading, cl *client.Client, path string,
	print func(*T) string) error {
	return read(ctx, e, r, cl, path, func(all *[]T) string {
		var b strings.Builder
		for i := range *all {
			b.WriteString(print(&(*all)[i]))
		}
		return b.String()
	})
}

// named is what tells objects apart in lists.
type named struct{ ID, AccessorID, Name string }

// idOf completes an id from its beginning. An exact name is good too. path lists the objects.
func idOf(ctx context.Context, cl *client.Client, d *command.Dial, path, what, given string) (string, error) {
	if len(given) == 36 {
		return given, nil
	}
	var all []named
	if _, err := cl.Get(ctx, path, d.Q, &all); err != nil {
		return "", fmt.Errorf("look for the %s %s: %w", what, given, err)
	}
	found := ""
	for _, n := range all {
		id := n.ID + n.AccessorID
		switch {
		case n.Name == given && n.Name != "":
			return id, nil
		case !strings.HasPrefix(id, given):
		case found != "":
			return "", fmt.Errorf("several %s ids begin with %q: give more of it", what, given)
		default:
			found = id
		}
	}
	if found == "" {
		return "", fmt.Errorf("no %s has an id that begins with %q; see `acl %s list`", what, given, what)
	}
	return found, nil
}

func bootstrap(e *command.Env) *cobra.Command {
	return command.Read(e, "bootstrap [FILE]", "Create the first management token; FILE (- is stdin) may hold its secret",
		command.Between(0, 1, "at most one file"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, args []string) error {
			var body any
			if len(args) == 1 {
				text, err := e.FileOrStdin(args[0])
				if err != nil {
					return err
				}
				body = map[string]string{"BootstrapSecret": strings.TrimSpace(string(text))}
			}
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/bootstrap", body, newToken)
		})
}

// agentTokens are the kinds of set-agent-token with the names of the contract.
var agentTokens = map[string]string{"default": "default", "agent": "agent", "recovery": "agent_recovery",
	"master": "agent_master", "replication": "replication",
	"config_file_service_registration": "config_file_service_registration", "dns": "dns"}

func setAgentToken(e *command.Env) *cobra.Command {
	kinds := strings.Join(command.SortedKeys(agentTokens), ", ")
	return command.Act(e, "set-agent-token KIND TOKEN", "Give the agent a token to use itself: "+kinds,
		command.Between(2, 2, "a kind and a token"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, args []string) error {
			kind, ok := agentTokens[args[0]]
			if !ok {
				return command.Usagef("unknown kind %q: it must be one of %s", args[0], kinds)
			}
			if err := cl.Put(ctx, "/v1/agent/token/"+kind, nil, map[string]string{"Token": args[1]}, nil); err != nil {
				return err
			}
			return e.Printf("ACL token %q set successfully\n", args[0])
		})
}

const loginHelp = "Keep a token for the commands that follow, in the user's config folder, for its owner alone; or\n" +
	"exchange a proof of identity for a token with --method.\n\nThe token is tried at the catalog, the secrets plane " +
	"(VAULT_ADDR) and, as an API key, at the\nmonitor (CORBEL_MONITOR_ADDR), and kept for those that know it. It is " +
	"shown to nobody else.\n\nWith --method alone, the browser is sent to the OIDC provider of that auth method of " +
	"the secrets\nplane, and the token that comes of it is kept. With --user, the password is asked for " +
	"instead,\nof userpass or of the method that --method names. Where either needs a second factor, the\npasscode is " +
	"asked for as well.\n\nWith --bearer-token-file, that proof is " +
	"exchanged at the auth method of the catalog, and the token\nis kept, or written to --token-sink-file. " +
	"With --type oidc, the browser is sent to the\nprovider of that method of the catalog instead. Both " +
	"take the default method when --method names none.\n\n" +
	"  corbel login --token-file token\n  corbel login --user ann\n  corbel login --method oidc\n" +
	"  corbel login --method ci --bearer-token-file jwt\n  corbel login --method sso --type oidc\n" +
	"  corbel logout --kept"

// Login builds `login`.
func Login(e *command.Env, c *cobra.Command) {
	var d command.Dial
	var method, kind, listen, bearerFile, sink, user string
	var meta []string
	var browser browserLogin
	c.Args = command.Between(0, 0, "no arguments")
	if !e.Consul {
		c.Long = loginHelp
		browser.flags(c)
		c.Flags().StringVar(&user, "user", "", "name to log in with at the secrets plane, whose password is asked for")
	}
	d.Flags(e, c)
	f := c.Flags()
	f.StringVar(&method, "method", "", "name of the auth method")
	f.StringVar(&kind, "type", "", "oidc: log in with the browser, at a method of the catalog; others have no effect")
	f.StringVar(&listen, "oidc-callback-listen-addr", "localhost:8550",
		"address of this machine that the browser comes back to, for --type oidc")
	f.StringVar(&bearerFile, "bearer-token-file", "", "file that holds the proof of identity")
	f.StringVar(&sink, "token-sink-file", "", "file that the secret is written to, for its owner alone")
	f.StringArrayVar(&meta, "meta", nil, "name=value to keep with the token (repeat)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if user != "" {
			if kind != "" || bearerFile != "" || sink != "" || browser.role != "" {
				return command.Usagef("--user goes with --method alone: it logs in with a password")
			}
			return byPassword(c.Context(), e, cmp.Or(method, "userpass"), user)
		}
		standard := !e.Consul && method == "" && (kind == typeOIDC || bearerFile != "")
		if !e.Consul && !standard && method == "" && sink == "" {
			return keepToken(c.Context(), e, &d)
		}
		if !e.Consul && kind != typeOIDC && bearerFile == "" && sink == "" {
			return browser.run(c.Context(), e, method)
		}
		if method == "" && !standard || bearerFile == "" && kind != typeOIDC || sink == "" && e.Consul {
			return command.Usagef("login needs --method, --bearer-token-file%s", e.Words("", " and --token-sink-file"))
		}
		if kind == typeOIDC && bearerFile != "" {
			return command.Usagef("--bearer-token-file is for methods of other types: --type oidc logs in with the browser")
		}
		pairs, err := command.Pairs("meta", meta)
		if err != nil {
			return err
		}
		cl, err := d.Client()
		if err != nil {
			return err
		}
		var token client.Token
		q := client.Query{Datacenter: d.Q.Datacenter}
		if standard {
			if method, err = defaultMethod(c.Context(), cl, q); err != nil {
				return err
			}
		}
		if kind == typeOIDC {
			at := catalogBrowser{method: method, listen: listen, meta: pairs, print: browser.print}
			err = at.run(c.Context(), e, cl, q, &token)
		} else {
			err = byBearer(c.Context(), cl, q, method, bearerFile, pairs, &token)
		}
		if err != nil {
			return err
		}
		return keepOrEnd(c.Context(), e, &d, cl, q, sink, &token)
	}
}

// keepOrEnd keeps a token that was just made, in the file sink where there is one, or ends it.
func keepOrEnd(ctx context.Context, e *command.Env, d *command.Dial, cl *client.Client, q client.Query, sink string,
	token *client.Token) (err error) {
	if sink != "" {
		err = writeSecret(sink, token.SecretID)
	} else {
		err = keepCatalog(e, d, token.SecretID)
	}
	if err != nil {
		// A token that nobody knows must not stay behind.
		return errors.Join(err, cl.Send(ctx, http.MethodDelete, "/v1/acl/token/"+token.AccessorID, q.Values(), nil, nil))
	}
	return nil
}

// defaultMethod names the auth method of logins that name none.
func defaultMethod(ctx context.Context, cl *client.Client, q client.Query) (string, error) {
	var all []client.AuthMethod
	if err := cl.Send(ctx, http.MethodGet, "/v1/internal/acl/login-methods", q.Values(), nil, &all); err != nil {
		return "", err
	}
	for _, m := range all {
		if m.Default {
			return m.Name, nil
		}
	}
	return "", command.Usagef("login needs --method: no auth method is the default one")
}

// byBearer exchanges a proof of identity for a token.
func byBearer(ctx context.Context, cl *client.Client, q client.Query, method, file string, meta map[string]string,
	token *client.Token) error {
	bearer, err := client.ReadToken(file)
	if err == nil && bearer == "" {
		err = fmt.Errorf("%s is empty: it must hold the proof of identity", file)
	}
	if err != nil {
		return err
	}
	body := map[string]any{"AuthMethod": method, "BearerToken": bearer, "Meta": meta}
	return cl.Send(ctx, http.MethodPost, "/v1/acl/login", q.Values(), body, token)
}

// writeSecret replaces the file as a whole: a reader sees the old secret or the new one.
func writeSecret(path, secret string) error {
	next := path + ".new"
	if err := os.WriteFile(next, []byte(secret), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Logout builds `logout`.
func Logout(e *command.Env, c *cobra.Command) {
	var kept bool
	made := command.Act(e, "logout", "", command.Between(0, 0, "no arguments"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			if kept {
				return forget(e, d)
			}
			q := client.Query{Datacenter: d.Q.Datacenter}
			return cl.Send(ctx, http.MethodPost, "/v1/acl/logout", q.Values(), nil, nil)
		})
	c.Args, c.RunE = made.Args, made.RunE
	c.Flags().AddFlagSet(made.Flags())
	if !e.Consul {
		c.Flags().BoolVar(&kept, "kept", false, "forget the token that `corbel login` keeps, and revoke none")
	}
}
