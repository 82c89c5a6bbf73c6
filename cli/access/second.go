package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/keptlogin"
	"corbel.dev/corbel/cli/secondfactor"
	"corbel.dev/corbel/client/vault"
)

// dialSecrets makes a client of the secrets plane for a login: one that shows no token.
func dialSecrets(e *command.Env) (*vault.Client, error) {
	cfg, err := vault.FromEnv(e.Getenv)
	if err != nil {
		return nil, err
	}
	cfg.Address, cfg.Token = cmp.Or(cfg.Address, "http://127.0.0.1:8200"), ""
	return vault.New(cfg)
}

// keepSecrets keeps the token of a login, after its second factor where it lacks one.
func keepSecrets(ctx context.Context, e *command.Env, cl *vault.Client, a *vault.Answer) error {
	if a.Auth != nil && a.Auth.MFA != nil {
		payload, err := secondfactor.Ask(a.Auth.MFA, e.Hidden)
		if err != nil {
			return err
		}
		if a, err = cl.Do(ctx, "PUT", secondfactor.Path, nil, secondfactor.Body(a.Auth.MFA, payload)); err != nil {
			return err
		}
	}
	if a.Auth == nil || a.Auth.ClientToken == "" {
		return errors.New("the login gave no token")
	}
	login := keptlogin.Login{Token: a.Auth.ClientToken}
	if err := keptlogin.Keep(e.Getenv, keptlogin.Secrets, cl.Address(), login); err != nil {
		// A token that nobody knows must not stay behind.
		_, ended := cl.WithToken(a.Auth.ClientToken).Do(ctx, "POST", "auth/token/revoke-self", nil, nil)
		return errors.Join(err, ended)
	}
	return e.Printf("Logged in at the %s of %s\n", keptlogin.Secrets, cl.Address())
}

// byPassword logs a user in at a method of the secrets plane that takes a password, and keeps the token.
func byPassword(ctx context.Context, e *command.Env, method, user string) error {
	cl, err := dialSecrets(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	password, err := e.Hidden("Password (will be hidden): ")
	if err != nil {
		return err
	}
	if password == "" {
		return command.Usagef("login needs a password: it is asked for, or read from standard input")
	}
	a, err := cl.Do(ctx, "PUT", "auth/"+method+"/login/"+user, nil, map[string]string{"password": password})
	if err != nil {
		return fmt.Errorf("the method %q of the secrets plane at %s: %w", method, cl.Address(), err)
	}
	return keepSecrets(ctx, e, cl, a)
}
