// Package agenttemplate renders an agent's templates with the library that Vault's agent and consul-template have for
// it, so that a template says the same here and there: its functions, its leases, when it is rendered anew.
//
// What always holds:
//   - Nothing is rendered before there is a token, and all is rendered anew with another token.
//   - A file holds all of a rendering or all of the one before.
//   - What fails is tried again, with pauses that grow to a minute, unless the configuration says to give up.
//
// The library logs through the standard logger of the process, which Run therefore takes over: one Run at a time. What
// the library has begun to ask the server when Run ends may end a little later, by the deadline of its client.
package agenttemplate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul-template/config"
	"github.com/hashicorp/consul-template/manager"
	"github.com/hashicorp/consul-template/renderer"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/client/vaultagent/autoauth"
	"corbel.dev/corbel/kit/backoff"
)

// Config says what to render.
type Config struct {
	// Templates are files, or variables of the environment where they have a Name.
	Templates []agentconfig.Template
	Settings  agentconfig.TemplateConfig
	Vault     vault.Config // how the server is reached
	Retries   int          // before giving up, where the configuration says so
	Tokens    *autoauth.Tokens
	Log       *slog.Logger
}

// Renderer renders.
type Renderer struct {
	cfg      Config
	rendered chan struct{}
	once     sync.Once
	changes  chan map[string]string // holds one: the newest

	mu     sync.Mutex // guards values
	values map[string]string
}

// New checks nothing that the configuration's reader has not: a template that cannot be read makes Run fail.
func New(cfg Config) *Renderer {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Renderer{cfg: cfg, rendered: make(chan struct{}), changes: make(chan map[string]string, 1),
		values: map[string]string{}}
}

// Rendered is closed when all templates have been rendered.
func (r *Renderer) Rendered() <-chan struct{} { return r.rendered }

// Changes gives the variables of the environment when all are rendered, and when one changes; the newest only.
func (r *Renderer) Changes() <-chan map[string]string { return r.changes }

// errGivenUp wraps a failure that the agent ends with.
type errGivenUp struct{ error }

// Unwrap gives the cause.
func (e errGivenUp) Unwrap() error { return e.error }

// Run renders until ctx ends.
func (r *Renderer) Run(ctx context.Context) error {
	slog.SetDefault(slog.New(&lines{r.cfg.Log.Handler()})) // takes the library's lines over
	pause := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for ctx.Err() == nil {
		token, changed := r.cfg.Tokens.Get()
		if token == "" {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := r.with(ctx, token, changed)
		if err == nil {
			continue
		}
		if r.cfg.Settings.ExitOnRetryFailure || errors.As(err, new(errGivenUp)) {
			return fmt.Errorf("template: %w", err)
		}
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		wait := max(pause.Next(), 500*time.Millisecond)
		r.cfg.Log.Error("template: it is tried again", "error", err, "again_in", wait.Round(time.Millisecond))
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

// with renders with one token until there is another one.
func (r *Renderer) with(ctx context.Context, token string, changed <-chan struct{}) error {
	runner, err := manager.NewRunner(r.settings(token), false)
	if err != nil {
		return errGivenUp{err}
	}
	runner.SetOutStream(os.Stdout)
	done := make(chan struct{})
	go func() { defer close(done); runner.Start() }()
	defer func() {
		runner.StopImmediately()
		for {
			select {
			case <-runner.ErrCh: // it has no room for one: who sends waits
			case <-done:
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			return nil
		case err := <-runner.ErrCh:
			if strings.Contains(err.Error(), ": parse: template:") {
				return errGivenUp{err} // it stays wrong whatever the server says
			}
			return err
		case <-runner.DoneCh:
			return errors.New("the renderer stopped")
		case err := <-runner.ServerErrCh:
			r.cfg.Log.Warn("template: the server did not give what a template reads", "error", err)
		case <-runner.TemplateRenderedCh():
			r.told(runner)
		}
	}
}

// told looks at what is rendered.
func (r *Renderer) told(runner *manager.Runner) {
	n := 0
	for _, e := range runner.RenderEvents() {
		if !e.LastWouldRender.IsZero() {
			n++
		}
	}
	if n < len(r.cfg.Templates) {
		return
	}
	r.once.Do(func() { close(r.rendered) })
	r.mu.Lock()
	values := maps.Clone(r.values)
	r.mu.Unlock()
	select {
	case <-r.changes:
	default:
	}
	r.changes <- values
}

// settings are the library's, for a token.
func (r *Renderer) settings(token string) *config.Config {
	c, v, s := config.DefaultConfig(), r.cfg.Vault, r.cfg.Settings
	c.Vault.Address, c.Vault.Token, c.Vault.Namespace = &v.Address, &token, &v.Namespace
	c.Vault.RenewToken, c.Vault.UnwrapToken = new(bool), new(bool) // the token is looked after elsewhere
	c.Vault.DefaultLeaseDuration, c.Vault.LeaseRenewalThreshold = &s.StaticSecretInterval, &s.LeaseRenewalThreshold
	c.Vault.Transport.MaxConnsPerHost = &s.MaxConnectionsPerHost
	c.Vault.Retry = &config.RetryConfig{Enabled: config.Bool(true), Attempts: config.Int(0),
		Backoff: config.TimeDuration(250 * time.Millisecond), MaxBackoff: config.TimeDuration(time.Minute)}
	if s.ExitOnRetryFailure {
		c.Vault.Retry.Attempts = config.Int(max(r.cfg.Retries, 1))
	}
	verify := !v.SkipVerify
	c.Vault.SSL = &config.SSLConfig{Enabled: config.Bool(true), Verify: &verify, CaCert: &v.CAFile, CaPath: &v.CAPath,
		Cert: &v.CertFile, Key: &v.KeyFile, ServerName: &v.ServerName}
	list := config.TemplateConfigs{}
	for i := range r.cfg.Templates {
		list = append(list, one(&r.cfg.Templates[i]))
	}
	c.Templates = &list
	c.RendererFunc = r.render
	c.KillSignal, c.ReloadSignal = nil, nil // signals are the agent's
	c.Finalize()
	return c
}

// envPrefix stands before the destination of what is no file.
const envPrefix = "env://"

func one(t *agentconfig.Template) *config.TemplateConfig {
	c := &config.TemplateConfig{Source: &t.Source, Contents: &t.Contents, Destination: &t.Destination,
		CreateDestDirs: &t.CreateDirs, Backup: &t.Backup, ErrMissingKey: &t.ErrorOnMissingKey, LeftDelim: &t.LeftDelim,
		RightDelim: &t.RightDelim, SandboxPath: &t.Sandbox, FunctionDenylist: slices.Clone(t.Denied),
		Perms: &t.Perms, User: &t.User, Group: &t.Group}
	if t.Name != "" {
		c.Destination, c.MapToEnvironmentVariable = config.String(envPrefix+t.Name), &t.Name
	}
	if len(t.Command) > 0 {
		timeout := t.CommandTimeout
		c.Exec = &config.ExecConfig{Command: t.Command, Timeout: &timeout}
	}
	if t.MinWait > 0 || t.MaxWait > 0 {
		low, high := t.MinWait, t.MaxWait
		c.Wait = &config.WaitConfig{Enabled: config.Bool(true), Min: &low, Max: &high}
	}
	return c
}

// render keeps a variable of the environment, and leaves files to the library.
func (r *Renderer) render(in *renderer.RenderInput) (*renderer.RenderResult, error) {
	if len(in.Path) < len(envPrefix) || in.Path[:len(envPrefix)] != envPrefix {
		return renderer.Render(in)
	}
	name := in.Path[len(envPrefix):]
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.values[name]
	r.values[name] = string(in.Contents)
	return &renderer.RenderResult{DidRender: !known || before != string(in.Contents), WouldRender: true,
		Contents: in.Contents}, nil
}
