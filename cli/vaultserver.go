package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	"corbel.dev/corbel/node/vaultconf"
	"github.com/spf13/cobra"
)

// vaultServer runs the secrets plane alone: in dev mode, in memory and unsealed, or as a configuration in Vault's
// words says.
func (e *env) vaultServer(c *cobra.Command) {
	var cfg secretsplane.DevConfig
	var dev, noStore, v1, check, tls, alone bool
	var configs []string
	f := c.Flags()
	f.BoolVar(&dev, "dev", false, "in memory, unsealed, with a KV store at secret/")
	f.StringVar(&cfg.RootToken, "dev-root-token-id", "",
		"value of the root token (VAULT_DEV_ROOT_TOKEN_ID); default a random one")
	f.StringVar(&cfg.Address, "dev-listen-address", "",
		"where to listen (VAULT_DEV_LISTEN_ADDRESS); default 127.0.0.1:8200")
	f.BoolVar(&noStore, "dev-no-store-token", false, "do not keep the root token in ~/.vault-token")
	f.BoolVar(&v1, "dev-kv-v1", false, "make secret/ a KV store of version 1")
	f.BoolVar(&tls, "dev-tls", false, "dev mode with TLS, by an authority made for it: see -dev-tls-cert-dir")
	f.StringVar(&cfg.TLSDir, "dev-tls-cert-dir", "",
		"where -dev-tls leaves vault-ca.pem, vault-cert.pem and vault-key.pem; default a new folder")
	for _, name := range []string{"dev-ha", "dev-transactional"} { // dev mode has one storage, which has transactions
		f.BoolVar(&alone, name, false, "dev mode; no more than that here")
		_ = f.MarkHidden(name) // it was just made
	}
	f.StringArrayVar(&configs, "config", nil,
		"file of configuration, HCL or JSON, or a folder of them (repeat; later ones win)")
	f.BoolVar(&check, "check", false, "read the configuration, say what is wrong with it, and end")
	f.StringVar(&cfg.LogLevel, "log-level", "info", "trace, debug, info, warn or error (VAULT_LOG_LEVEL)")
	c.Example = "  vault server -dev -dev-root-token-id=root\n  vault server -config=/etc/vault.d"
	c.Args = command.Between(0, 0, "flags only")
	c.RunE = func(c *cobra.Command, _ []string) error {
		dev = dev || tls || alone
		switch {
		case dev && len(configs) > 0:
			return command.Usagef("-dev and -config do not go together: dev mode keeps nothing")
		case !dev && len(configs) == 0 && vaultcmd.Variable(e.Env, "LOCAL_CONFIG") == "":
			return command.Usagef("must specify at least one config path using -config, or -dev for a server in memory")
		case !dev:
			level := ""
			if c.Flags().Changed("log-level") {
				level = cfg.LogLevel
			}
			return e.runVaultServer(c, configs, level, check)
		}
		for name, dst := range map[string]*string{"DEV_ROOT_TOKEN_ID": &cfg.RootToken, "DEV_LISTEN_ADDRESS": &cfg.Address} {
			if *dst == "" {
				*dst = vaultcmd.Variable(e.Env, name)
			}
		}
		if level := vaultcmd.Variable(e.Env, "LOG_LEVEL"); level != "" && !c.Flags().Changed("log-level") {
			cfg.LogLevel = level
		}
		cfg.KVv1, cfg.LogOutput = v1, e.Err
		switch {
		case !tls && cfg.TLSDir != "":
			return command.Usagef("-dev-tls-cert-dir is for -dev-tls")
		case tls && cfg.TLSDir == "":
			var err error
			if cfg.TLSDir, err = os.MkdirTemp("", "vault-tls"); err != nil {
				return fmt.Errorf("cannot start: %w", err)
			}
		}
		return e.runVaultDev(c, cfg, !noStore)
	}
}

// runVaultServer runs until SIGINT or SIGTERM. SIGHUP reads the configuration again, SIGUSR2 writes all stacks to the
// log.
func (e *env) runVaultServer(c *cobra.Command, paths []string, level string, check bool) error {
	load := func() (*vaultconf.Config, error) {
		cfg, err := vaultconf.Load(paths, e.Getenv)
		if err == nil && level != "" {
			cfg.LogLevel = level
		}
		return cfg, err
	}
	cfg, err := load()
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	if check {
		if err := secretsplane.CheckServer(cfg, e.Getenv, e.Err); err != nil {
			return err
		}
		return e.Printf("The configuration is valid. Diagnose also tries the storage, seals and listeners.\n")
	}
	e.guard(!cfg.DisableMlock)
	s, err := secretsplane.NewServer(cfg, e.Err)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	var b strings.Builder
	b.WriteString("==> Vault server configuration:\n\n")
	for _, pair := range s.Describe() {
		fmt.Fprintf(&b, "%24s: %s\n", pair[0], pair[1])
	}
	b.WriteString("\n==> Vault server started! Log data will stream in below:\n\n")
	if err := e.Printf("%s", b.String()); err != nil {
		return err
	}
	return e.runUntilSignal(c.Context(), s, load)
}

func (e *env) runUntilSignal(ctx context.Context, s *secretsplane.Server,
	load func() (*vaultconf.Config, error)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sig := make(chan os.Signal, 4) // four signals may wait; more say nothing new
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR2)
	defer signal.Stop(sig)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case got := <-sig:
			switch got {
			case syscall.SIGUSR2:
				_ = pprof.Lookup("goroutine").WriteTo(e.Err, 2)
			case syscall.SIGHUP:
				cfg, err := load()
				if err == nil {
					err = s.Reload(cfg)
				}
				if err != nil {
					fmt.Fprintf(e.Err, "%s: not reloaded, the former configuration stays: %v\n", e.Program(), err)
				}
			default:
				stop()
				return <-done
			}
		}
	}
}
