package vaultcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// loginFlags are the flags of login.
type loginFlags struct {
	method, path                string
	noStore, noPrint, tokenOnly bool
	alone                       bool
}

// Login builds login.
func Login(e *command.Env, cmd *cobra.Command) {
	var l loginFlags
	f := cmd.Flags()
	f.StringVar(&l.method, "method", "token",
		"token, userpass, approle, jwt, oidc (with a browser), cert, or what else takes its words by name=value")
	f.StringVar(&l.path, "path", "", "where the method is mounted; default its name")
	f.BoolVar(&l.noStore, "no-store", false, "do not keep the token in ~/.vault-token")
	f.BoolVar(&l.noPrint, "no-print", false, "do not show the token")
	f.BoolVar(&l.alone, "non-interactive", false, "do not ask for the passcode of a second factor: say what is lacking")
	f.BoolVar(&l.tokenOnly, "token-only", false, "print only the token and do not store it")
	On(e, cmd, "login [TOKEN | NAME=VALUE...]", "vault login -\n  vault login -method=userpass username=ann", 0, -1, l.run)
}

func (l *loginFlags) run(c *Call, args []string) error {
	if l.tokenOnly {
		l.noStore, c.Field = true, "token"
	}
	var a *vault.Answer
	var err error
	if l.method == "token" {
		a, err = loginToken(c, args)
	} else {
		a, err = loginMethod(c, l, args)
	}
	if err != nil {
		return Doing("authenticating", err)
	}
	if a.Auth != nil && a.Auth.MFA != nil {
		if a, err = loginSecond(c, l, a); err != nil {
			return Doing("authenticating", err)
		}
	}
	if a.Auth == nil {
		return errors.New("the server answered without a token: is that an auth method's path?")
	}
	if !l.noStore {
		if err := store(c, a.Auth.ClientToken); err != nil {
			return err
		}
		if name := overriding(c.Getenv); name != "" {
			fmt.Fprintf(c.Err, "WARNING! %s is set and wins over the token that was just stored: unset it to use the new "+
				"one.\n\n", name)
		}
	}
	if l.noPrint {
		return nil
	}
	if c.Format == "table" && c.Field == "" {
		text := "Success! You are now authenticated. The token below is stored and is used by the\ncommands that follow: " +
			"there is no need to log in again.\n\n"
		if l.noStore {
			text = "Success! You are now authenticated. The token was not stored: set VAULT_TOKEN to\nuse it.\n\n"
		}
		if err := c.Printf("%s", text); err != nil {
			return err
		}
	}
	return c.Secret(a)
}

func overriding(getenv func(string) string) string {
	for _, name := range []string{"BAO_TOKEN", "VAULT_TOKEN"} {
		if getenv(name) != "" {
			return name
		}
	}
	return ""
}

// loginToken makes sure that a token opens something, and describes it as a login would.
func loginToken(c *Call, args []string) (*vault.Answer, error) {
	token := ""
	switch {
	case len(args) > 1:
		return nil, command.Usagef("Too many arguments (expected 0-1, got %d)", len(args))
	case len(args) == 0:
		text, err := c.Hidden("Token (will be hidden): ")
		if err != nil {
			return nil, err
		}
		token = strings.TrimSpace(text)
	case args[0] == "-":
		text, err := c.Input("-")
		if err != nil {
			return nil, err
		}
		token, _, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
	default:
		token = strings.TrimPrefix(args[0], "token=")
	}
	if token == "" {
		return nil, command.Usagef("the token is empty")
	}
	c.Client = c.Client.WithToken(token)
	a, err := c.Do("GET", "auth/token/lookup-self", nil)
	if err != nil {
		return nil, err
	}
	d := a.Data
	auth := &vault.Auth{ClientToken: token, Accessor: PlainText(d["accessor"]), Policies: Texts(d["policies"]),
		TokenPolicies:    Texts(d["policies"]),
		IdentityPolicies: Texts(d["identity_policies"])}
	auth.Renewable, _ = d["renewable"].(bool)
	if _, err := fmt.Sscan(PlainText(d["ttl"]), &auth.LeaseDuration); err != nil {
		return nil, fmt.Errorf("the look-up's ttl is no number: %w", err)
	}
	raw, err := authEnvelope(auth)
	return &vault.Answer{Auth: auth, Raw: raw}, err
}

// loginMethod logs in at an auth method with the words that it takes.
func loginMethod(c *Call, l *loginFlags, args []string) (*vault.Answer, error) {
	data, err := c.parse(args)
	if err != nil {
		return nil, err
	}
	mount := Clean(l.path)
	if mount == "" {
		mount = l.method
	}
	path := "auth/" + mount + "/login"
	switch l.method {
	case "userpass", "ldap", "radius", "okta":
		name := PlainText(data["username"])
		if data["username"] == nil {
			if name = c.Getenv("USER"); name == "" {
				return nil, command.Usagef("'username' must be supplied: login -method=%s username=NAME", l.method)
			}
		}
		delete(data, "username")
		if data["password"] == nil {
			if data["password"], err = c.Hidden("Password (will be hidden): "); err != nil {
				return nil, err
			}
		}
		path += "/" + name
	case "oidc":
		if err := checkBrowserWords(data); err != nil {
			return nil, err
		}
		return loginBrowser(c, mount, data)
	}
	c.Client = c.Client.WithToken("") // a login needs none, and an old one must not spoil it
	return c.Do("PUT", path, data)
}

// authEnvelope is the answer that a login would have brought, for -format=json.
func authEnvelope(a *vault.Auth) ([]byte, error) {
	return json.Marshal(map[string]any{"request_id": "", "lease_id": "", "lease_duration": 0, "renewable": false,
		"data": nil, "warnings": nil, "auth": a})
}
