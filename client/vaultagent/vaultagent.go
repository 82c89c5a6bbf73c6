// Package vaultagent runs `vault agent` and `vault proxy` by their configuration: it logs in (autoauth), writes tokens,
// renders templates (agenttemplate), supervises a process (agentexec) and passes requests on (agentproxy).
//
// It speaks to the server over its API alone, so the server may be Corbel, Vault or OpenBao. New checks and does no
// network; Run owns all goroutines and returns when they have ended. Reload may be called while Run runs.
package vaultagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/client/vaultagent/agentexec"
	"corbel.dev/corbel/client/vaultagent/agentproxy"
	"corbel.dev/corbel/client/vaultagent/agenttemplate"
	"corbel.dev/corbel/client/vaultagent/autoauth"
	"corbel.dev/corbel/kit/life"
)

// Config says what to do.
type Config struct {
	Role    agentconfig.Role
	File    *agentconfig.Config
	Vault   vault.Config // how the server is reached, as Server has it
	Environ []string
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Log     *slog.Logger // nil: nothing is logged
}

// Agent is an agent or a proxy.
type Agent struct {
	cfg       Config
	log       *slog.Logger
	auth      *autoauth.Auth          // nil: none
	templates *agenttemplate.Renderer // nil: none
	exec      *agentexec.Supervisor   // nil: none
	proxy     *agentproxy.Proxy       // nil: none
	quit      chan struct{}           // holds one
}

// Server is how the server is reached: as flags say, then the environment, then the file.
func Server(file agentconfig.Vault, flags vault.Config, getenv func(string) string) (vault.Config, error) {
	cfg, err := vault.FromEnv(func(name string) string {
		if strings.HasSuffix(name, "_AGENT_ADDR") || strings.HasSuffix(name, "_WRAP_TTL") || strings.HasSuffix(name, "_MFA") {
			return "" // they are for the clients of an agent
		}
		return getenv(name)
	})
	if err != nil {
		return cfg, err
	}
	for _, one := range []struct {
		dst        *string
		flag, file string
	}{{&cfg.Address, flags.Address, file.Address}, {&cfg.Namespace, flags.Namespace, file.Namespace},
		{&cfg.CAFile, flags.CAFile, file.CACert}, {&cfg.CAPath, flags.CAPath, file.CAPath},
		{&cfg.CertFile, flags.CertFile, file.ClientCert}, {&cfg.KeyFile, flags.KeyFile, file.ClientKey},
		{&cfg.ServerName, flags.ServerName, file.ServerName}} {
		switch {
		case one.flag != "":
			*one.dst = one.flag
		case *one.dst == "":
			*one.dst = one.file
		}
	}
	if cfg.Address == "" {
		cfg.Address = "https://127.0.0.1:8200"
	}
	cfg.SkipVerify = cfg.SkipVerify || flags.SkipVerify || file.SkipVerify
	if vault.Env(getenv, "MAX_RETRIES") == "" {
		cfg.Retries = max(file.Retries, 0)
	}
	return cfg, nil
}

// New builds an agent.
func New(cfg Config) (*Agent, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &Agent{cfg: cfg, log: cfg.Log, quit: make(chan struct{}, 1)}
	counts := &agentproxy.Counts{}
	tokens := autoauth.NewTokens(cfg.Vault.Token)
	var err error
	f := cfg.File
	if f.AutoAuth != nil {
		if a.auth, err = autoauth.New(autoauth.Config{Auth: *f.AutoAuth, Vault: cfg.Vault, Log: cfg.Log,
			Count: counts.Add}); err != nil {
			return nil, err
		}
		tokens = a.auth.Tokens()
	}
	if list := append(f.Templates, f.EnvTemplates...); len(list) > 0 {
		if token, _ := tokens.Get(); token == "" && a.auth == nil {
			return nil, errors.New("templates need a token: give auto_auth, or VAULT_TOKEN")
		}
		a.templates = agenttemplate.New(agenttemplate.Config{Templates: list, Settings: f.TemplateConfig, Vault: cfg.Vault,
			Retries: f.Vault.Retries, Tokens: tokens, Log: cfg.Log})
	}
	if f.Exec != nil {
		if a.exec, err = agentexec.New(agentexec.Config{Exec: *f.Exec, Changes: a.templates.Changes(),
			Environ: cfg.Environ, In: cfg.In, Out: cfg.Out, Err: cfg.Err, Log: cfg.Log}); err != nil {
			return nil, err
		}
	}
	if len(f.Listeners) > 0 {
		p := agentproxy.Config{Role: cfg.Role, Listeners: f.Listeners, Cache: f.Cache, Vault: cfg.Vault, Tokens: tokens,
			Counts: counts, Log: cfg.Log, Quit: a.stop}
		if f.APIProxy != nil {
			p.Proxy = *f.APIProxy
		}
		if a.proxy, err = agentproxy.New(p); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *Agent) stop() {
	select {
	case a.quit <- struct{}{}:
	default:
	}
}

// Reload reads anew what can change while it runs: the certificates of the listeners.
func (a *Agent) Reload() error {
	if a.proxy == nil {
		return nil
	}
	return a.proxy.Reload()
}

// Run works until ctx ends, until it was asked to quit, or until all is done where that is what it is for. An error is
// *agentexec.Exited where the supervised process ended.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.writePID(); err != nil {
		return err
	}
	defer a.removePID()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g := life.Group{Grace: 45 * time.Second} // a supervised process has 30 s to end
	if a.auth != nil {
		g.Add("auto_auth", a.auth.Run)
	}
	if a.templates != nil {
		g.Add("templates", a.templates.Run)
	}
	if a.proxy != nil {
		g.Add("listeners", a.proxy.Run)
	}
	if a.exec != nil {
		g.Add("exec", a.exec.Run)
	}
	g.Add("end", func(part context.Context) error {
		a.wait(part)
		stop()
		return nil
	})
	return g.Run(ctx)
}

// wait returns when there is a reason to end.
func (a *Agent) wait(ctx context.Context) {
	var authed, rendered <-chan struct{}
	left := 0
	if a.cfg.File.ExitAfterAuth {
		if a.auth != nil {
			authed, left = a.auth.Delivered(), left+1
		}
		if a.templates != nil {
			rendered, left = a.templates.Rendered(), left+1
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.quit:
			return
		case <-authed:
			authed, left = nil, left-1
		case <-rendered:
			rendered, left = nil, left-1
		}
		if left == 0 {
			a.log.Info("all is done: exit_after_auth ends the process")
			return
		}
	}
}

func (a *Agent) writePID() error {
	path := a.cfg.File.PIDFile
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return fmt.Errorf("pid_file: %w", err)
	}
	return nil
}

func (a *Agent) removePID() {
	path := a.cfg.File.PIDFile
	if path == "" {
		return
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		a.log.Warn("the pid_file stays", "error", err)
	}
}
