// Package secretresolver finds the values of secrets that checks, handlers and mutators name (secrets/v1).
//
// A name leads to a Secret of the namespace, that to a provider and to what the provider knows it by. Providers are
// the environment of this server (Env) and servers that speak Vault's API (VaultProvider), this cluster's own secrets
// plane among them.
//
// Values are in memory alone, for a minute at most; they are never logged, and errors do not hold them. What failed
// is not asked for again for some seconds. Two who ask for one value share the call; calls at once are bounded, and
// each has a deadline.
//
// All methods may be called from any goroutine; nothing runs after the last call returned.
package secretresolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

const (
	holds      = time.Minute     // how long a value is used before it is asked for again
	failsFor   = 5 * time.Second // how long a failure is
	most       = 10_000          // values that are remembered; when there are more all are forgotten
	callsAtMax = 16
)

// EnvProvider is the provider that is there without being configured.
const EnvProvider = "env"

// Config of a Resolver.
type Config struct {
	View func() *resources.View
	// Getenv reads this server's environment.
	Getenv func(name string) (string, bool)
	// Own is the address of this cluster's secrets plane, for VaultProviders that name none; "" is none.
	Own func() string
	Now func() time.Time
}

// Resolver finds values. Make it with New.
type Resolver struct {
	cfg   Config
	calls chan struct{}

	mu      sync.Mutex
	values  map[key]*value
	clients map[string]client // by provider
}

// key is a secret as it is configured: a change of it, or of its provider, is another one.
type key struct {
	namespace, name  string
	secret, provider uint64 // indexes of the objects
}

type value struct {
	ready chan struct{} // closed once the rest is set
	text  string
	err   error
	until time.Time
}

// New returns a Resolver that knows nothing yet.
func New(cfg Config) *Resolver {
	return &Resolver{cfg: cfg, calls: make(chan struct{}, callsAtMax), values: map[key]*value{},
		clients: map[string]client{}}
}

// Env returns the variables of a list of secrets, as NAME=value, in its order. Errors name the secret: NotFound (it,
// or its provider), Unavailable.
func (r *Resolver) Env(ctx context.Context, namespace string, list []*monitor.Secret) ([]string, error) {
	out := make([]string, 0, len(list))
	for _, s := range list {
		text, err := r.value(ctx, namespace, s.Secret)
		if err != nil {
			return nil, errkind.E(errkind.Of(err), fmt.Sprintf("secret %q", s.Secret), err)
		}
		out = append(out, s.Name+"="+text)
	}
	return out, nil
}

// Hide replaces the values of variables that Env returned in a text that is to be shown.
func Hide(text string, env []string) string {
	for _, v := range env {
		if _, secret, _ := strings.Cut(v, "="); len(secret) >= hideFrom {
			text = strings.ReplaceAll(text, secret, "REDACTED")
		}
	}
	return text
}

// hideFrom is how long a value must be to be looked for: shorter ones are parts of anything.
const hideFrom = 4

// value finds one value, in memory or by its provider.
func (r *Resolver) value(ctx context.Context, namespace, name string) (string, error) {
	view := r.cfg.View()
	item := view.Get("secrets", namespace, name)
	if item == nil {
		return "", errkind.Errorf(errkind.NotFound, "it does not exist in namespace %q", namespace)
	}
	source := item.Object().(*monitor.SecretSource)
	provider := view.Get("providers", "", source.Provider)
	k := key{namespace, name, item.Index, 0}
	if provider != nil {
		k.provider = provider.Index
	} else if source.Provider != EnvProvider {
		return "", errkind.Errorf(errkind.NotFound, "its provider %q does not exist", source.Provider)
	}
	for {
		r.mu.Lock()
		v := r.values[k]
		mine := v == nil || isReady(v) && !r.cfg.Now().Before(v.until)
		if mine {
			if len(r.values) >= most {
				clear(r.values)
			}
			v = &value{ready: make(chan struct{})}
			r.values[k] = v
		}
		r.mu.Unlock()
		if mine {
			r.find(ctx, v, k, source, provider)
		}
		select {
		case <-v.ready:
		case <-ctx.Done():
			return "", errkind.E(errkind.Unavailable, "its provider "+source.Provider, ctx.Err())
		}
		if !mine && errors.Is(v.err, context.Canceled) { // who asked for it has gone; it was not the provider that failed
			r.drop(k, v)
			continue
		}
		return v.text, v.err
	}
}

func isReady(v *value) bool {
	select {
	case <-v.ready:
		return true
	default:
		return false
	}
}

func (r *Resolver) drop(k key, v *value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values[k] == v {
		delete(r.values, k)
	}
}

// find asks the provider and sets v.
func (r *Resolver) find(ctx context.Context, v *value, k key, source *monitor.SecretSource, provider *objects.Item) {
	defer close(v.ready)
	select {
	case r.calls <- struct{}{}:
		defer func() { <-r.calls }()
		v.text, v.err = r.ask(ctx, source, provider)
	case <-ctx.Done():
		v.err = errkind.E(errkind.Unavailable, "too many secrets are being read", ctx.Err())
	}
	if v.err == nil && strings.ContainsRune(v.text, 0) {
		v.text, v.err = "", errkind.Errorf(errkind.Invalid, "its value holds a zero byte, which no variable can")
	}
	v.until = r.cfg.Now().Add(holds)
	if v.err != nil {
		v.until = r.cfg.Now().Add(failsFor)
		if errors.Is(v.err, context.Canceled) {
			v.until = r.cfg.Now()
		}
	}
}

// ownVariables are the beginnings of variables that configure this server, keys and passwords among them: they are
// nobody's secrets.
var ownVariables = []string{"CORBEL_", "SENSU_BACKEND_"}

func (r *Resolver) ask(ctx context.Context, source *monitor.SecretSource, provider *objects.Item) (string, error) {
	kind := "Env"
	if provider != nil {
		kind = provider.Object().(*monitor.Provider).Kind
	}
	switch kind {
	case "Env":
		if slices.ContainsFunc(ownVariables, func(begin string) bool { return strings.HasPrefix(source.ID, begin) }) {
			return "", errkind.Errorf(errkind.Denied, "the variable %s is this server's own", source.ID)
		}
		text, found := r.cfg.Getenv(source.ID)
		if !found {
			return "", errkind.Errorf(errkind.NotFound, "this server has no variable %s", source.ID)
		}
		return text, nil
	case "VaultProvider":
		c, err := r.client(provider)
		if err != nil {
			return "", err
		}
		return c.read(ctx, source.ID)
	}
	return "", errkind.Errorf(errkind.Invalid, "providers of type %s are not supported", kind)
}
