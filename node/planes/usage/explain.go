package usageplane

import (
	"context"
	"encoding/json"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/fate"
	"corbel.dev/corbel/usage/route"
)

// methodExplain is the RPC by which a server asks another one about an event.
const methodExplain = "usage.explain"

// explain asks all servers what became of an event.
func (p *Plane) explain(ctx context.Context, tenant, source, id string) (out fate.Answer, err error) {
	for _, part := range p.Parts.Names() {
		if local := p.Parts.Local(part); local != nil {
			out, err = p.explainHere(ctx, local, tenant, source, id)
		} else {
			var reply []byte
			reply, err = p.callPart(ctx, part, methodExplain,
				pack.String(pack.String(pack.String(nil, tenant), source), id))
			if err == nil {
				err = json.Unmarshal(reply, &out)
			}
		}
		if err == nil || !errkind.Is(err, errkind.NotFound) {
			return out, err
		}
	}
	return out, err
}

func (p *Plane) explainHere(ctx context.Context, c *counter.Counter, tenant, source, id string) (fate.Answer, error) {
	here := route.Table{}.WithMembers([]route.Member{{Name: p.d.Cfg.Node.Name}}, true)
	return c.Explain(ctx, tenant, source, id, fate.Known{Zone: p.zoneOf(tenant), Table: here})
}

func (p *Plane) serveExplain(ctx context.Context, c *counter.Counter, req []byte) ([]byte, error) {
	r := pack.Read(req)
	tenant, source, id := r.String(), r.String(), r.String()
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, methodExplain, r.Err())
	}
	out, err := p.explainHere(ctx, c, tenant, source, id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}
