// Package autoauth logs in for an agent, keeps the token alive, logs in anew when it ends, and writes tokens to files.
//
// What always holds:
//   - There is one login at a time. Between failed ones stands a pause, drawn at random and growing to the method's
//     max_backoff.
//   - A token is renewed by two thirds of its time. One that cannot be renewed any more is replaced before it ends; the
//     former is not revoked, since others may still use it.
//   - A file holds a whole token or the one before. A sink that cannot be written is tried again and holds up neither
//     logins nor renewals.
//   - Only the newest token waits for a sink.
//
// New does nothing; Run owns all goroutines. Tokens may be used from any goroutine.
package autoauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"time"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/kit/backoff"
)

// server answers requests; *vault.Client is one.
type server interface {
	Do(ctx context.Context, method, path string, query url.Values, body any) (*vault.Answer, error)
}

// Config says how to log in.
type Config struct {
	Auth  agentconfig.AutoAuth
	Vault vault.Config // how the server is reached; its token is not used
	Log   *slog.Logger // nil: nothing is logged
	Count func(name string)

	connect func(token, wrapTTL string) (server, error) // tests
}

// Auth is the one who logs in.
type Auth struct {
	cfg    Config
	log    *slog.Logger
	method method
	tokens *Tokens
	sinks  *sinks
}

// New checks the configuration.
func New(cfg Config) (*Auth, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Count == nil {
		cfg.Count = func(string) {}
	}
	cfg.Vault.Namespace = cmp.Or(cfg.Auth.Method.Namespace, cfg.Vault.Namespace)
	cfg.Vault.Retries = 0 // the pauses are the method's
	if cfg.connect == nil {
		c, err := vault.New(cfg.Vault)
		if err != nil {
			return nil, err
		}
		cfg.connect = func(token, wrapTTL string) (server, error) {
			return c.WithToken(token).Wrapping(wrapTTL), nil
		}
	}
	m, err := newMethod(&cfg)
	if err != nil {
		return nil, err
	}
	return &Auth{cfg: cfg, log: cfg.Log, method: m, tokens: NewTokens(""), sinks: newSinks(&cfg)}, nil
}

// Tokens is where the token is.
func (a *Auth) Tokens() *Tokens { return a.tokens }

// Delivered is closed when all sinks have had a token; without sinks, when there is one.
func (a *Auth) Delivered() <-chan struct{} { return a.sinks.delivered }

// grant is a token with its time.
type grant struct {
	token     string
	ttl       time.Duration // 0: it does not end
	renewable bool
	wrapped   bool // the token is wrapped: token is what a sink gets
}

// Run works until ctx ends; it ends earlier with an error where the method says exit_on_err.
func (a *Auth) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); a.sinks.run(ctx) }()
	defer func() { stop(); <-done }()
	m := a.cfg.Auth.Method
	pause := backoff.Backoff{Min: m.MinBackoff, Max: m.MaxBackoff}
	for ctx.Err() == nil {
		began := time.Now()
		got, err := a.login(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && m.ExitOnError:
			a.cfg.Count("auth.failure")
			return fmt.Errorf("auto_auth: log in by %s: %w", m.Type, err)
		case err != nil:
			a.cfg.Count("auth.failure")
			wait := min(max(pause.Next(), m.MinBackoff/2), m.MaxBackoff)
			a.log.Error("auto_auth: log in failed", "method", m.Type, "error", err, "again_in", wait.Round(time.Millisecond))
			sleep(ctx, wait)
			continue
		}
		a.cfg.Count("auth.success")
		a.log.Info("auto_auth: logged in", "method", m.Type, "ttl", got.ttl)
		if !got.wrapped {
			a.tokens.set(got.token)
		}
		a.sinks.put(got)
		why := a.keep(ctx, got)
		if ctx.Err() != nil {
			return nil
		}
		a.log.Info("auto_auth: log in again", "because", why)
		if time.Since(began) >= m.MinBackoff {
			pause.Reset()
		} else {
			sleep(ctx, max(pause.Next(), m.MinBackoff/2)) // a token that ends at once must not make a storm of logins
		}
	}
	return nil
}

// login gets a token.
func (a *Auth) login(ctx context.Context) (grant, error) {
	wrap := ""
	if d := a.cfg.Auth.Method.WrapTTL; d > 0 {
		wrap = seconds(d)
	}
	answer, err := a.method.login(ctx, wrap)
	switch {
	case err != nil:
		return grant{}, err
	case wrap != "" && answer.Wrap != nil:
		text, err := json.Marshal(answer.Wrap)
		return grant{token: string(text), wrapped: true}, err
	case answer.Auth == nil || answer.Auth.ClientToken == "":
		return grant{}, errors.New("the server answered without a token: is that an auth method's mount_path?")
	case answer.Auth.MFA != nil:
		return grant{}, errors.New("the server wants a second factor, which an agent does not have: exempt its role")
	}
	return grant{token: answer.Auth.ClientToken, ttl: time.Duration(answer.Auth.LeaseDuration) * time.Second,
		renewable: answer.Auth.Renewable}, nil
}

// keep renews a token as long as that goes, and returns why a new one is needed.
func (a *Auth) keep(ctx context.Context, g grant) string {
	life := lifetime{full: g.ttl, left: g.ttl, renewable: g.renewable}
	end := time.Now().Add(g.ttl)
	failed := backoff.Backoff{Min: time.Second, Max: 30 * time.Second}
	for {
		forever := g.wrapped || g.ttl == 0
		pause, renew := life.next(rand.Float64())
		if failed.Tries() > 0 {
			pause = min(failed.Next(), max(time.Until(end)-life.full/10, 0))
		}
		if a.rest(ctx, pause, forever) {
			return "there are new credentials"
		}
		switch {
		case ctx.Err() != nil:
			return ""
		case !renew:
			return "the token ends soon"
		case time.Until(end) <= life.full/10:
			return "the token could not be renewed in time"
		}
		answer, err := a.renew(ctx, g.token)
		var refused *vault.Error
		switch {
		case errors.As(err, &refused) && refused.Status >= 400 && refused.Status < 500 && refused.Status != 429 &&
			refused.Status != 412:
			return fmt.Sprintf("the server does not renew the token: status %d", refused.Status)
		case err != nil:
			if failed.Tries() == 0 {
				failed.Next()
			}
			a.log.Warn("auto_auth: the token could not be renewed, it is tried again", "error", err)
		default:
			failed.Reset()
			life = life.renewed(time.Duration(answer.LeaseDuration)*time.Second, answer.Renewable)
			end = time.Now().Add(life.left)
			a.log.Debug("auto_auth: renewed the token", "ttl", life.left)
		}
	}
}

func (a *Auth) renew(ctx context.Context, token string) (*vault.Auth, error) {
	c, err := a.cfg.connect(token, "")
	if err != nil {
		return nil, err
	}
	answer, err := c.Do(ctx, "PUT", "auth/token/renew-self", nil, map[string]any{})
	if err != nil {
		return nil, err
	}
	if answer.Auth == nil {
		return nil, errors.New("the server answered a renewal without a token")
	}
	return answer.Auth, nil
}

// freshEvery is how often files of credentials are looked at.
const freshEvery = time.Second

// rest waits, for good where it says so, and reports whether new credentials came.
func (a *Auth) rest(ctx context.Context, d time.Duration, forever bool) (fresh bool) {
	look := time.NewTicker(freshEvery)
	defer look.Stop()
	var over <-chan time.Time
	if !forever {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-over:
			return false
		case <-look.C:
			if a.method.fresh() {
				return true
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int((d+time.Second-1)/time.Second)) }
