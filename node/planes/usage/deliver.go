package usageplane

import (
	"cmp"
	"context"
	"encoding/json"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/relay"
	"corbel.dev/corbel/usage/router"
)

// serveAgents answers agents.
func (p *Plane) serveAgents() {
	p.d.Handle(wire.Members, relay.MethodDeliver, p.deliver)
	p.d.Handle(wire.Members, relay.MethodProducts, p.tellProducts)
}

// deliver takes a token and a batch in its binary form, and answers with a router.Answer in JSON.
func (p *Plane) deliver(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	token, data := r.String(), r.Bytes()
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, relay.MethodDeliver, r.Err())
	}
	if !p.peers.has(roleRouter) {
		return nil, errkind.New(errkind.Unavailable, "usage: this server is no router (usage.roles)")
	}
	in, err := batch.Read(data)
	if err != nil {
		return nil, err
	}
	if err := p.mayWrite(ctx, token, in.Events); err != nil {
		return nil, err
	}
	b := &router.Batch{Producer: in.Producer, Epoch: in.Epoch, Sequence: in.Sequence,
		Items: make([]cloudevents.Item, len(in.Events))}
	for i := range in.Events {
		b.Items[i].Event = in.Events[i]
	}
	answer, err := p.Router.Take(ctx, b)
	if err != nil {
		return nil, err
	}
	return json.Marshal(&answer)
}

// mayWrite judges an agent's token.
func (p *Plane) mayWrite(ctx context.Context, token string, events []usage.Event) error {
	if !p.d.Cfg.ACL.Enabled {
		return nil
	}
	grant, err := p.d.Grant(ctx, token)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range events {
		tenant := cmp.Or(events[i].Tenant, usage.DefaultTenant)
		if seen[tenant] {
			continue
		}
		seen[tenant] = true
		if err := grant.Check(acl.Usage, tenant, acl.Write); err != nil {
			return err
		}
	}
	return nil
}

// tellProducts answers with all definitions in JSON.
func (p *Plane) tellProducts(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	token := r.String()
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, relay.MethodProducts, r.Err())
	}
	if p.d.Cfg.ACL.Enabled {
		grant, err := p.d.Grant(ctx, token)
		if err == nil {
			err = grant.CheckAny(acl.Usage, acl.Write)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.news.Get(ctx); err != nil { // the agent takes what is missing for what nobody knows
		return nil, err
	}
	view := p.Definitions.View()
	if view.Index == 0 {
		return nil, errkind.New(errkind.Unavailable, "usage: this server has no definitions yet")
	}
	return json.Marshal(view.Products.All())
}
