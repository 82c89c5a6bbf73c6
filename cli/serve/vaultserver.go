package serve

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/kit/version"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	uiplane "corbel.dev/corbel/node/planes/ui"
	"corbel.dev/corbel/node/vaultconf"
	"github.com/spf13/cobra"
)

// VaultServer runs the secrets plane alone: in dev mode, in memory and unsealed, or as a configuration in Vault's
// words says.
func VaultServer(e *command.Env, c *cobra.Command) {
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
	f.BoolVar(&tls, "dev-tls", false, "dev mode with TLS and a generated authority: see -dev-tls-cert-dir")
	f.StringVar(&cfg.TLSDir, "dev-tls-cert-dir", "",
		"where -dev-tls leaves vault-ca.pem, vault-cert.pem and vault-key.pem; default a new folder")
	for _, name := range []string{"dev-ha", "dev-transactional"} { // dev mode has one storage, which has transactions
		f.BoolVar(&alone, name, false, "dev mode, the only mode here")
		_ = f.MarkHidden(name) // it was just made
	}
	f.StringArrayVar(&configs, "config", nil,
		"file of configuration, HCL or JSON, or a folder of them (repeat; later ones win)")
	f.BoolVar(&check, "check", false, "check the configuration, report errors, and exit")
	f.StringVar(&cfg.LogLevel, "log-level", "info", "trace, debug, info, warn or error (VAULT_LOG_LEVEL)")
	c.Example = "  vault server -dev -dev-root-token-id=root\n  vault server -config=/etc/vault.d"
	c.Args = command.Between(0, 0, "flags only")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := refuseServer(true); err != nil {
			return err
		}
		dev = dev || tls || alone
		switch {
		case dev && len(configs) > 0:
			return command.Usagef("-dev and -config do not go together: dev mode keeps nothing")
		case !dev && len(configs) == 0 && vaultcmd.Variable(e, "LOCAL_CONFIG") == "":
			return command.Usagef("must specify at least one config path using -config, or -dev for a server in memory")
		case !dev:
			level := ""
			if c.Flags().Changed("log-level") {
				level = cfg.LogLevel
			}
			return runVaultServer(e, c, configs, level, check)
		}
		for name, dst := range map[string]*string{"DEV_ROOT_TOKEN_ID": &cfg.RootToken, "DEV_LISTEN_ADDRESS": &cfg.Address} {
			if *dst == "" {
				*dst = vaultcmd.Variable(e, name)
			}
		}
		if level := vaultcmd.Variable(e, "LOG_LEVEL"); level != "" && !c.Flags().Changed("log-level") {
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
		return runVaultDev(e, c, cfg, !noStore)
	}
}

// runVaultServer runs until SIGINT or SIGTERM. SIGHUP reads the configuration again, SIGUSR2 writes all stacks to the
// log.
func runVaultServer(e *command.Env, c *cobra.Command, paths []string, level string, check bool) error {
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
	guardMemory(e, !cfg.DisableMlock)
	m, err := supervise(c.Context(), e)
	if err != nil {
		return err
	}
	defer m.end()
	cfg.Sockets = m.sockets
	s, err := secretsplane.NewServer(cfg, e.Err)
	if err != nil {
		return m.failed(err)
	}
	if cfg.UI {
		uiplane.SecretsAlone(s.Page, s.API())
	}
	m.opened(s)
	var b strings.Builder
	b.WriteString("==> Vault server configuration:\n\n")
	for _, pair := range s.Describe() {
		fmt.Fprintf(&b, "%24s: %s\n", pair[0], pair[1])
	}
	b.WriteString("\n==> Vault server started! Log data will stream in below:\n\n")
	if err := e.Printf("%s", b.String()); err != nil {
		return err
	}
	return runUntilSignal(c.Context(), e, s, m, load)
}

func runUntilSignal(ctx context.Context, e *command.Env, s *secretsplane.Server, m *supervised,
	load func() (*vaultconf.Config, error)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sig := make(chan os.Signal, 4) // four signals may wait; more say nothing new
	signal.Notify(sig, append(asksForStacks(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	defer signal.Stop(sig)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case got := <-sig:
			switch {
			case slices.Contains(asksForStacks(), got):
				_ = pprof.Lookup("goroutine").WriteTo(e.Err, 2)
			case got == syscall.SIGHUP:
				err := m.service.Reload(func() error {
					cfg, err := load()
					if err != nil {
						return err
					}
					return s.Reload(cfg)
				})
				if err != nil {
					fmt.Fprintf(e.Err, "%s: not reloaded, the former configuration stays: %v\n", e.Program(), err)
				}
			default:
				m.service.Stopping(endTime)
				stop()
				return <-done
			}
		}
	}
}

func runVaultDev(e *command.Env, c *cobra.Command, cfg secretsplane.DevConfig, store bool) error {
	guardMemory(e, false)
	s, err := secretsplane.NewDevServer(cfg)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	uiplane.SecretsAlone(s.Page, s.API())
	if home := e.Getenv("HOME"); store && home != "" {
		if err := vaultcmd.StoreToken(filepath.Join(home, ".vault-token"), s.RootToken); err != nil {
			fmt.Fprintf(e.Err, "warning: the root token is not kept in ~/.vault-token: %v\n", err)
		}
	}
	if err := e.Printf("%s", devBanner(s)); err != nil {
		return err
	}
	ctx, stop := command.Signals(c.Context())
	defer stop()
	return s.Run(ctx)
}

// devBanner says what users and scripts of dev mode look for: the address, the key and the token.
func devBanner(s *secretsplane.DevServer) string {
	var b strings.Builder
	url, trust := "http://"+s.Addr().String(), ""
	if s.CAFile != "" {
		url, trust = "https://"+s.Addr().String(), fmt.Sprintf("    $ export VAULT_CACERT='%s'\n", s.CAFile)
	}
	fmt.Fprintf(&b, "==> Vault server configuration:\n\n             Api Address: %s\n                 Storage: "+
		"inmem\n                 Version: Vault v%s (Corbel %s)\n\n", url, version.VaultContract, version.Number)
	b.WriteString("==> Vault server started! Log data will stream in below:\n\n")
	b.WriteString("WARNING! dev mode is enabled! Everything is in memory, unsealed with one key, and gone when\nthis " +
		"process ends. Use it to develop and to try things out.\n\n")
	fmt.Fprintf(&b, "You may need to set the following environment variables:\n\n    $ export VAULT_ADDR='%s'\n%s\n",
		url, trust)
	fmt.Fprintf(&b, "The unseal key and root token are displayed below in case you want to\nseal/unseal the Vault or "+
		"re-authenticate.\n\nUnseal Key: %s\nRoot Token: %s\n\n", s.UnsealKey, s.RootToken)
	b.WriteString("Development mode should NOT be used in production installations!\n\n")
	return b.String()
}
