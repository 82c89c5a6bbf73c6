package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/cli/vaultcmd/agentgen"
	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/client/vaultagent/agentexec"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/logs"
	"github.com/spf13/cobra"
)

// agentRun is a call of `vault agent` or `vault proxy`.
type agentRun struct {
	role    agentconfig.Role
	configs []string
	flags   vault.Config
	log     agentconfig.Log
	exit    bool
	logs    *logs.Logs
}

// VaultAgent builds `vault agent`.
func VaultAgent(e *command.Env, c *cobra.Command) {
	agentCommand(e, c, agentconfig.Agent)
	c.AddCommand(agentgen.Command(e))
	c.Example = "  vault agent -config=/etc/vault-agent.d\n  vault agent -config=agent.hcl -exit-after-auth"
}

// VaultProxy builds `vault proxy`.
func VaultProxy(e *command.Env, c *cobra.Command) {
	agentCommand(e, c, agentconfig.Proxy)
	c.Example = "  vault proxy -config=/etc/vault-proxy.d"
}

func agentCommand(e *command.Env, c *cobra.Command, role agentconfig.Role) {
	r := &agentRun{role: role}
	f := c.Flags()
	f.StringArrayVar(&r.configs, "config", nil, "file of configuration, HCL or JSON, or a folder of them (repeat)")
	f.BoolVar(&r.exit, "exit-after-auth", false, "end once tokens are written and templates rendered")
	f.StringVar(&r.log.Level, "log-level", "", "trace, debug, info, warn or error (VAULT_LOG_LEVEL); default info")
	f.StringVar(&r.log.Format, "log-format", "", "standard or json (VAULT_LOG_FORMAT)")
	f.StringVar(&r.log.File, "log-file", "", "file that receives the log too (VAULT_LOG_FILE)")
	f.DurationVar(&r.log.RotateEvery, "log-rotate-duration", 0, "age of the file at which it is rotated; default 24h")
	f.IntVar(&r.log.RotateBytes, "log-rotate-bytes", 0, "size at which it is rotated; 0 is never")
	f.IntVar(&r.log.RotateFiles, "log-rotate-max-files", 0, "rotated files that are kept; 0 is all, -1 none")
	vaultcmd.ServerFlags(f, &r.flags)
	c.Args = command.Between(0, 0, "flags only")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if len(r.configs) == 0 {
			return command.Usagef("Must specify at least one config path using -config")
		}
		return r.run(c.Context(), e)
	}
}

// load reads the configuration, below what flags and the environment say.
func (r *agentRun) load(e *command.Env) (*agentconfig.Config, error) {
	f, err := agentconfig.Load(r.role, r.configs)
	if err != nil {
		return nil, err
	}
	f.ExitAfterAuth = f.ExitAfterAuth || r.exit
	l := &f.Log
	l.Level = cmp.Or(r.log.Level, vault.Env(e.Getenv, "LOG_LEVEL"), l.Level)
	l.Format = cmp.Or(r.log.Format, vault.Env(e.Getenv, "LOG_FORMAT"), l.Format)
	l.File = cmp.Or(r.log.File, vault.Env(e.Getenv, "LOG_FILE"), l.File)
	l.RotateEvery = cmp.Or(r.log.RotateEvery, l.RotateEvery)
	l.RotateBytes, l.RotateFiles = cmp.Or(r.log.RotateBytes, l.RotateBytes), cmp.Or(r.log.RotateFiles, l.RotateFiles)
	if !slices.Contains([]string{"standard", "json"}, strings.ToLower(l.Format)) {
		return nil, command.Usagef("-log-format=%s must be standard or json", l.Format)
	}
	if _, ok := logs.ParseLevel(level(l)); !ok {
		return nil, command.Usagef("-log-level=%s must be trace, debug, info, warn or error", l.Level)
	}
	return f, nil
}

// level is a level in our words.
func level(l *agentconfig.Log) string {
	switch word := strings.ToLower(l.Level); word {
	case "notice":
		return "info"
	case "warning":
		return "warn"
	case "err":
		return "error"
	default:
		return word
	}
}

func (r *agentRun) run(ctx context.Context, e *command.Env) error {
	f, err := r.load(e)
	if err != nil {
		return err
	}
	server, err := vaultagent.Server(f.Vault, r.flags, e.Getenv)
	if err != nil {
		return err
	}
	out := e.Err
	if l := f.Log; l.File != "" {
		out, err = logs.WithFile(e.Err, &config.Logging{File: l.File, RotateBytes: l.RotateBytes,
			RotateInterval: cmp.Or(l.RotateEvery, 24*time.Hour), RotateMaxFiles: l.RotateFiles}, clock.Real{})
		if err != nil {
			return fmt.Errorf("log_file: %w", err)
		}
	}
	lvl, _ := logs.ParseLevel(level(&f.Log)) // load has looked
	r.logs = logs.New(out, lvl, strings.EqualFold(f.Log.Format, "json"))
	a, err := vaultagent.New(vaultagent.Config{Role: r.role, File: f, Vault: server, Environ: e.Environ, In: e.In,
		Out: e.Out, Err: e.Err, Log: r.logs.Logger()})
	if err != nil {
		return err
	}
	m, err := supervise(ctx, e)
	if err != nil {
		return err
	}
	defer m.end()
	if err := r.banner(e, f, server.Address); err != nil {
		return err
	}
	m.opened(a)
	logCtx, logsEnd := context.WithCancel(context.WithoutCancel(ctx))
	logged := make(chan struct{})
	go func() { defer close(logged); _ = r.logs.Run(logCtx) }() // it ends with its context alone
	defer func() { logsEnd(); <-logged; r.logs.Flush() }()
	for _, w := range f.Warnings {
		r.logs.Logger().Warn(w)
	}
	err = r.untilSignal(ctx, e, a, m)
	var exited *agentexec.Exited
	switch {
	case errors.As(err, &exited) && exited.Code == 0:
		return nil
	case exited != nil:
		return command.ExitCode(exited.Code)
	}
	return err
}

// banner says what runs. A supervised process has the standard output for itself.
func (r *agentRun) banner(e *command.Env, f *agentconfig.Config, address string) error {
	name := strings.ToUpper(string(r.role[:1])) + string(r.role[1:])
	var b strings.Builder
	fmt.Fprintf(&b, "==> Vault %s configuration:\n\n", name)
	row := func(what, is string) { fmt.Fprintf(&b, "%24s: %s\n", what, is) }
	row("Vault Address", address)
	if f.AutoAuth != nil {
		row("Auto-Auth", f.AutoAuth.Method.Type)
	}
	for i, l := range f.Listeners {
		row(fmt.Sprintf("Listener %d", i+1), fmt.Sprintf("%s (addr: %q, tls: %t)", l.Type, l.Address, !l.TLSDisable))
	}
	row("Log Level", level(&f.Log))
	row("Version", "Corbel "+version.Number)
	fmt.Fprintf(&b, "\n==> Vault %s started! Log data will stream in below:\n\n", name)
	out := io.Writer(e.Out)
	if f.Exec != nil {
		out = e.Err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// untilSignal runs until SIGINT or SIGTERM. SIGHUP reads the level of the log and the listeners' certificates anew.
func (r *agentRun) untilSignal(ctx context.Context, e *command.Env, a *vaultagent.Agent, m *supervised) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sig := make(chan os.Signal, 4) // four signals may wait; more say nothing new
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(sig)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case got := <-sig:
			if got != syscall.SIGHUP {
				m.service.Stopping(endTime)
				stop()
				return <-done
			}
			err := m.service.Reload(func() error {
				f, err := r.load(e)
				if err != nil {
					return err
				}
				lvl, _ := logs.ParseLevel(level(&f.Log)) // load has looked
				r.logs.SetLevel(lvl)
				return a.Reload()
			})
			if err != nil {
				r.logs.Logger().Error("not reloaded: what was loaded before stays", "error", err)
			} else {
				r.logs.Logger().Info("reloaded the log level and the listeners' certificates")
			}
		}
	}
}
