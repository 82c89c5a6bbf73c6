package access

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/keptlogin"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/client/sensu"
	"corbel.dev/corbel/client/vault"
)

// addresses are those of the planes, as flags and variables say.
func addresses(e *command.Env, cfg client.Config) (catalog, secrets, monitor string) {
	return cfg.Address, cmp.Or(vault.Env(e.Getenv, "ADDR"), "http://127.0.0.1:8200"),
		cmp.Or(sensu.FromEnv(e.Getenv).Address, sensu.DefaultAddress)
}

// forget removes what keepToken kept at these addresses.
func forget(e *command.Env, d *command.Dial) error {
	cfg, err := d.Config()
	if err != nil {
		return err
	}
	catalog, secrets, monitor := addresses(e, cfg)
	return errors.Join(keptlogin.Forget(e.Getenv, keptlogin.Catalog, catalog),
		keptlogin.Forget(e.Getenv, keptlogin.Secrets, secrets), keptlogin.Forget(e.Getenv, keptlogin.Monitor, monitor))
}

// keepToken tries a token at each plane and keeps it for those that know it.
func keepToken(ctx context.Context, e *command.Env, d *command.Dial) error {
	cfg, err := d.Config()
	if err != nil {
		return err
	}
	if cfg.Token == "" {
		fmt.Fprint(e.Err, "Token: ")
		line, err := bufio.NewReader(e.In).ReadString('\n')
		if cfg.Token = strings.TrimSpace(line); cfg.Token == "" {
			return errors.Join(command.Usagef("login needs a token: --token-file, CORBEL_TOKEN or standard input"), err)
		}
	}
	catalog, secrets, monitor := addresses(e, cfg)
	tried := []struct {
		plane, address string
		knows          func() error
	}{
		{keptlogin.Catalog, catalog, func() error { return catalogKnows(ctx, cfg) }},
		{keptlogin.Secrets, secrets, func() error { return secretsKnow(ctx, e, cfg.Token) }},
		{keptlogin.Monitor, monitor, func() error { return monitorKnows(ctx, e, cfg.Token) }},
	}
	var wrong []error
	kept := 0
	for _, one := range tried {
		if err := one.knows(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", one.plane, err))
			continue
		}
		if err := keptlogin.Keep(e.Getenv, one.plane, one.address, keptlogin.Login{Token: cfg.Token}); err != nil {
			return err
		}
		kept++
		if err := e.Printf("Logged in at the %s of %s\n", one.plane, cmp.Or(one.address, "127.0.0.1:8500")); err != nil {
			return err
		}
	}
	if kept == 0 {
		return fmt.Errorf("no plane knows this token:\n%w", errors.Join(wrong...))
	}
	return nil
}

// keepCatalog keeps a token of the catalog for the commands that follow.
func keepCatalog(e *command.Env, d *command.Dial, token string) error {
	cfg, err := d.Config()
	if err != nil {
		return err
	}
	if err := keptlogin.Keep(e.Getenv, keptlogin.Catalog, cfg.Address, keptlogin.Login{Token: token}); err != nil {
		return err
	}
	return e.Printf("Logged in at the %s of %s\n", keptlogin.Catalog, cmp.Or(cfg.Address, "127.0.0.1:8500"))
}

func catalogKnows(ctx context.Context, cfg client.Config) error {
	cl, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	var self struct{}
	_, err = cl.Get(ctx, "/v1/acl/token/self", client.Query{}, &self)
	return err
}

func secretsKnow(ctx context.Context, e *command.Env, token string) error {
	cfg, err := vault.FromEnv(e.Getenv)
	if err != nil {
		return err
	}
	cfg.Address, cfg.Token = cmp.Or(cfg.Address, "http://127.0.0.1:8200"), token
	cl, err := vault.New(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = cl.Do(ctx, "GET", "auth/token/lookup-self", nil, nil)
	return err
}

func monitorKnows(ctx context.Context, e *command.Env, token string) error {
	cfg := sensu.FromEnv(e.Getenv)
	cfg.User, cfg.AccessToken, cfg.APIKey = "", "", token
	cl, err := sensu.New(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	var all []any
	return cl.Get(ctx, "/api/core/v2/namespaces", &all)
}
