// Package sidecar is the built-in proxy of `connect proxy`: one service's door into the mesh for
// those who run no Envoy. It passes connections, not requests.
//
// A connection from the mesh is taken over mutual TLS, the agent says whether an intention allows its
// source, and its bytes go to the local service. A connection to an upstream's local port goes to one
// of the healthy instances that discovery names, which must prove to be of that service. Routers, splitters
// and the rest of a discovery chain are for Envoy.
//
// What always holds: no byte of a peer reaches the service before its certificate was checked and the agent
// has said yes, so while the agent does not answer nobody new gets in; open connections whose source is denied
// later are closed; certificates and roots are followed, and connections outlive their renewal.
// Each listener takes a bounded number of connections: what comes beyond waits in the kernel's queue.
// Run owns all goroutines. It speaks to the agent over HTTP alone.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"corbel.dev/corbel/client"
)

// Config says for what the proxy stands: a registered one (ProxyID), or what Spec says.
type Config struct {
	Client *client.Client
	Log    *slog.Logger
	// ProxyID is the id of the proxy's registration on the agent, which is followed.
	ProxyID string
	// Spec is used when ProxyID is empty.
	Spec Spec
	// Registration, when not nil, is registered while the proxy runs. Its ID must be set.
	Registration map[string]any
}

// Proxy is one running proxy. New makes it.
type Proxy struct {
	cfg      Config
	identity identity
	sessions sessions
	fronts   map[any]*front // by what they serve; used by Run's goroutine alone
}

// New makes a Proxy. It does no network.
func New(cfg Config) (*Proxy, error) {
	if cfg.ProxyID == "" {
		if err := cfg.Spec.check(); err != nil {
			return nil, err
		}
	}
	return &Proxy{cfg: cfg, identity: newIdentity(), fronts: map[any]*front{}}, nil
}

// Run serves until ctx ends, or until it cannot begin: the registration is refused, or a port is taken.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	defer p.closeFronts()
	specs := make(chan Spec)
	group.Go(func() { cancel(p.followSpec(ctx, specs)) })
	started := false
	var current Spec
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		case spec := <-specs:
			if started && spec.Service != current.Service {
				return fmt.Errorf("the proxy now stands for %s instead of %s: start it again", spec.Service, current.Service)
			}
			current = spec
		case <-again:
		}
		if !started {
			p.startFollowing(ctx, &group, current.Service)
			if err := p.identity.await(ctx); err != nil {
				continue // ctx ended
			}
		}
		err := p.apply(ctx, current)
		if err != nil && !started {
			return err
		}
		again = nil
		if err != nil {
			p.cfg.Log.Error("cannot listen; tried again", "error", err)
			again = time.After(retryListen)
		}
		if !started && p.cfg.Registration != nil {
			group.Go(func() { p.keepRegistered(ctx) })
		}
		started = true
	}
}

// retryListen is the pause between tries to take a port that is in use.
const retryListen = 5 * time.Second

// startFollowing follows what the proxy needs to know of the mesh.
func (p *Proxy) startFollowing(ctx context.Context, group *sync.WaitGroup, service string) {
	group.Go(func() { p.followLeaf(ctx, service) })
	group.Go(func() { p.followRoots(ctx) })
	group.Go(func() { p.followIntentions(ctx, service) })
}

// apply makes the listeners those of spec. Those that stay are not touched, nor their connections.
func (p *Proxy) apply(ctx context.Context, spec Spec) error {
	wanted := map[any]func(context.Context, net.Conn){}
	if spec.Public.Bind.Text != "" {
		pub := spec.Public
		wanted[pub] = func(ctx context.Context, c net.Conn) { p.serveInbound(ctx, c, spec.Service, &pub) }
	}
	for _, u := range spec.Upstreams {
		wanted[u] = func(ctx context.Context, c net.Conn) { p.serveOutbound(ctx, c, &u) }
	}
	for key, f := range p.fronts {
		if wanted[key] == nil {
			f.close()
			delete(p.fronts, key)
		}
	}
	var errs []error
	for key, serve := range wanted {
		if p.fronts[key] != nil {
			continue
		}
		f, err := open(ctx, key.(listening), p.cfg.Log, serve)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.fronts[key] = f
	}
	return errors.Join(errs...)
}

func (p *Proxy) closeFronts() {
	for _, f := range p.fronts {
		f.close()
	}
}
