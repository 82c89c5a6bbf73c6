// Package usageagentplane is the usage plane on an agent: it takes the events of its host, over HTTP and as metrics,
// answers when they are on this host's disk, and hands them on to servers (usage/relay).
//
// Questions, and everything else below /v1/usage/, go to a server as other requests do. The plane fails alone.
package usageagentplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"corbel.dev/corbel/api/statsdapi"
	"corbel.dev/corbel/api/usageapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/relay"
	"corbel.dev/corbel/usage/router"
)

// Plane is the usage plane of an agent.
type Plane struct {
	plane.Idle
	d        *plane.Doors
	relay    *relay.Relay
	products *products
	statsd   *statsdapi.Door // nil while it is off
}

// Kind is the plane as a process lists it.
func Kind() plane.Kind { return plane.Kind{Name: "usage agent", Check: check, Open: open} }

func open(d *plane.Doors) (plane.Plane, error) {
	s := keysOf(d.Cfg)
	if s == nil || d.Catalog != nil || d.Cfg.DataDir == "" || s.UsageAgent().Buffer == 0 {
		return nil, nil
	}
	k := s.UsageAgent()
	dir := filepath.Join(d.Cfg.DataDir, "usage")
	if err := d.FS.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	p := &Plane{d: d}
	p.products = newProducts(d, filepath.Join(dir, "products.json"))
	p.relay = relay.New(relay.Config{FS: d.FS, Dir: filepath.Join(dir, "buffer"), Name: "agent/" + d.ID,
		MaxBytes: int64(k.Buffer), IDs: k.IDs, Gather: k.Gather, Product: p.products.get, Deliver: p.deliver,
		Clock: d.Clock, Log: d.Log, Metrics: d.Metrics})
	in, err := usageapi.NewIntake(usageapi.IntakeConfig{Take: p.relay.Take, Product: p.products.known, May: p.may})
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	d.Route("POST /v1/usage/events", plane.Right{}, in.Events()) // each judges the tenants of its events
	d.Route("POST /v1/usage/batch", plane.Right{}, in.Batch())
	d.Route("GET /v1/usage/buffer", plane.Right{Resource: acl.Operator, Level: acl.Read}, http.HandlerFunc(p.serveBuffer))
	d.Debug(func() any { return p.relay.State() })
	return p, p.openStatsd(s.UsageStatsd())
}

// openStatsd opens the door for metrics where the configuration wants it.
func (p *Plane) openStatsd(s Statsd) (err error) {
	if s.Address == "" && s.Socket == "" {
		return nil
	}
	kind := func(name string) (usage.Kind, bool) {
		found, ok := p.products.known(name)
		if !ok {
			return 0, false
		}
		return found.Kind, true
	}
	take := func(ctx context.Context, b *router.Batch) (router.Answer, error) {
		b.Producer, b.Epoch, b.Sequence = "", 0, 0 // merged on, with what else comes
		return p.relay.Take(ctx, b)
	}
	p.statsd, err = statsdapi.Open(statsdapi.Config{Address: s.Address, Socket: s.Socket, Tenant: s.Tenant, Kind: kind,
		Ready: p.products.begin, Take: take, Clock: p.d.Clock, Log: p.d.Log, Metrics: p.d.Metrics})
	if err != nil {
		return fmt.Errorf("usage.dogstatsd: %w", err)
	}
	return nil
}

// may judges who sends, and whether this agent may hand it on: what it could not, it must not take.
func (p *Plane) may(r *http.Request, tenant string) error {
	if !p.d.Cfg.ACL.Enabled {
		return nil
	}
	if err := p.holds(r.Context(), p.d.Secret(r), tenant); err != nil {
		if errkind.Is(err, errkind.Denied) {
			return usageapi.Denied(tenant, true)
		}
		return errkind.E(errkind.Unavailable, "usage: nobody can judge the token now", err)
	}
	if err := p.holds(r.Context(), p.d.Tokens.Own(), tenant); err != nil {
		return errkind.E(errkind.Unavailable, "usage: this agent's own token (acl.tokens.agent) cannot hand on what is of "+
			"tenant "+tenant, err)
	}
	return nil
}

func (p *Plane) holds(ctx context.Context, token, tenant string) error {
	grant, err := p.d.Grant(ctx, token)
	if err != nil {
		return err
	}
	return grant.Check(acl.Usage, tenant, acl.Write)
}

// deliver has a server store a batch.
func (p *Plane) deliver(ctx context.Context, b *batch.Batch) (answer router.Answer, err error) {
	req := pack.Bytes(pack.String(nil, p.d.Tokens.Own()), batch.Append(nil, b))
	reply, err := p.d.Others.Ask(ctx, relay.MethodDeliver, req)
	if err == nil {
		err = json.Unmarshal(reply, &answer)
	}
	return answer, err
}

// serveBuffer tells what waits on this host.
func (p *Plane) serveBuffer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(p.relay.State()) // a client that is gone needs none
}

// Run implements plane.Plane.
func (p *Plane) Run(ctx context.Context) error {
	var parts life.Group
	parts.Add("usage products", p.products.run)
	parts.Add("usage buffer", p.relay.Run)
	if p.statsd != nil {
		parts.Add("dogstatsd", p.statsd.Run)
	}
	if err := parts.Run(ctx); err != nil && ctx.Err() == nil {
		p.d.Log.Error("the usage plane of this agent has stopped; the other planes continue", "error", err)
		<-ctx.Done()
	}
	return nil
}

// flushTime is how long an end waits for servers to take what is here.
const flushTime = 5 * time.Second

var _ plane.Quiescer = (*Plane)(nil)

// Quiesce implements plane.Quiescer: the host may not come back. Where servers are away, the disk has it.
func (p *Plane) Quiesce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	p.relay.Flush(ctx)
}

// Reload implements plane.Plane.
func (p *Plane) Reload(cfg *config.Config) (func(), error) { return nil, check(cfg) }

// Close implements plane.Plane.
func (p *Plane) Close() (err error) {
	if p.statsd != nil {
		err = errors.Join(err, p.statsd.Close())
	}
	return err
}
