package sidecar

import (
	"context"
	"encoding/json"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// askAgain is the pause after the agent refused a question, which a change of rights mends.
const askAgain = 5 * time.Second

// follow gives each answer to take until ctx ends. Failures are logged; what is known stays.
func follow[T any](ctx context.Context, p *Proxy, what string, read func(context.Context, client.Query) (T, client.Meta,
	error), take func(T) error) {
	for ctx.Err() == nil {
		for v, err := range client.Follow(ctx, client.Query{}, read) {
			if err == nil {
				err = take(v)
			}
			if err != nil && ctx.Err() == nil {
				p.cfg.Log.Warn("cannot follow "+what, "error", err)
			}
		}
		command.Wait(ctx, askAgain)
	}
}

// reading is a read of path that blocks by its index.
func reading[T any](cl *client.Client, path string) func(context.Context, client.Query) (T, client.Meta, error) {
	return func(ctx context.Context, q client.Query) (out T, meta client.Meta, err error) {
		meta, err = cl.Get(ctx, path, q, &out)
		return out, meta, err
	}
}

// followSpec tells what to do: once, or at each change of the registration. The error says that it cannot begin.
func (p *Proxy) followSpec(ctx context.Context, specs chan<- Spec) error {
	tell := func(s Spec) {
		select {
		case specs <- s:
		case <-ctx.Done():
		}
	}
	if p.cfg.ProxyID == "" {
		tell(p.cfg.Spec)
		<-ctx.Done()
		return nil
	}
	var text json.RawMessage
	if _, err := p.cfg.Client.Get(ctx, "/v1/agent/service/"+client.Escape(p.cfg.ProxyID), client.Query{},
		&text); err != nil {
		return err
	}
	s, err := specOf(text)
	if err != nil {
		return err
	}
	tell(s)
	follow(ctx, p, "the registration of "+p.cfg.ProxyID, p.cfg.Client.AgentService(p.cfg.ProxyID),
		func(text json.RawMessage) error {
			s, err := specOf(text)
			if err == nil {
				tell(s)
			}
			return err
		})
	return nil
}

func (p *Proxy) followLeaf(ctx context.Context, service string) {
	type issued struct{ CertPEM, PrivateKeyPEM string }
	follow(ctx, p, "the certificate", reading[issued](p.cfg.Client, "/v1/agent/connect/ca/leaf/"+client.Escape(service)),
		func(c issued) error {
			return p.identity.setLeaf(c.CertPEM, c.PrivateKeyPEM)
		})
}

func (p *Proxy) followRoots(ctx context.Context) {
	type roots struct {
		TrustDomain string
		Roots       []struct{ RootCert string }
	}
	follow(ctx, p, "the mesh's roots", reading[roots](p.cfg.Client, "/v1/agent/connect/ca/roots"), func(r roots) error {
		var texts []string
		for _, one := range r.Roots {
			texts = append(texts, one.RootCert)
		}
		return p.identity.setTrust(r.TrustDomain, texts)
	})
}

// followIntentions judges the open connections again whenever an intention of the service changes.
func (p *Proxy) followIntentions(ctx context.Context, service string) {
	path := "/v1/connect/intentions/match?by=destination&name=" + client.Escape(service)
	follow(ctx, p, "the intentions", reading[json.RawMessage](p.cfg.Client, path), func(json.RawMessage) error {
		p.rejudge(ctx, service)
		// The server that judged may have been another than the one that told of the change.
		command.Wait(ctx, time.Second)
		p.rejudge(ctx, service)
		return nil
	})
}
