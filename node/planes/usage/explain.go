package usageplane

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/fate"
	"corbel.dev/corbel/usage/route"
	"corbel.dev/corbel/usage/router"
)

// The RPCs by which a server asks another one about an event: the lead of a part what became of it, any server whether
// it has rejected it, and which ones it has rejected lately.
const (
	methodExplain  = "usage.explain"
	methodRefused  = "usage.refused"
	methodRejected = "usage.rejected"
)

// refusedTimeout bounds how long a server may take to say that.
const refusedTimeout = time.Second

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

// refusals are the events that servers have rejected lately; each knows its own.
type refusals struct {
	own    func(tenant, source, id string) (router.Refused, bool)
	lately func(q *counter.RecentQuery) []router.Refused
	others func() []string
	call   func(ctx context.Context, server, method string, req []byte) ([]byte, error)
}

func newRefusals(p *Plane) refusals {
	return refusals{own: p.Router.WhyRefused, lately: p.Router.Rejected, call: p.call, others: func() []string {
		return slices.DeleteFunc(p.members(), func(s string) bool { return s == p.d.ID })
	}}
}

// find asks all servers for an event.
func (r refusals) find(ctx context.Context, tenant, source, id string) (router.Refused, bool) {
	if why, ok := r.own(tenant, source, id); ok {
		return why, true
	}
	req := pack.String(pack.String(pack.String(nil, tenant), source), id)
	for _, server := range r.others() {
		if why, ok := r.ask(ctx, server, req); ok {
			why.Tenant, why.Source, why.ID = tenant, source, id
			return why, true
		}
	}
	return router.Refused{}, false
}

func (r refusals) ask(ctx context.Context, server string, req []byte) (router.Refused, bool) {
	ctx, cancel := context.WithTimeout(ctx, refusedTimeout)
	defer cancel()
	reply, err := r.call(ctx, server, methodRefused, req)
	rd := pack.Read(reply)
	if err != nil || !rd.Bool() {
		return router.Refused{}, false
	}
	why := router.Refused{At: time.Unix(0, rd.Int()), Error: rd.String()}
	return why, rd.Err() == nil
}

func (r refusals) serve(_ context.Context, req []byte) ([]byte, error) {
	rd := pack.Read(req)
	tenant, source, id := rd.String(), rd.String(), rd.String()
	if rd.Err() != nil {
		return nil, errkind.E(errkind.Invalid, methodRefused, rd.Err())
	}
	why, ok := r.own(tenant, source, id)
	if !ok {
		return pack.Bool(nil, false), nil
	}
	return pack.String(pack.Int(pack.Bool(nil, true), why.At.UnixNano()), why.Error), nil
}

// list asks all servers for the events that they have rejected lately, and says who did not answer.
func (r refusals) list(ctx context.Context, q counter.RecentQuery) (list []router.Refused, silent []string) {
	list = r.lately(&q)
	req, err := json.Marshal(&q)
	for _, server := range r.others() {
		var more []router.Refused
		wrong := err
		if wrong == nil {
			more, wrong = r.askList(ctx, server, req)
		}
		if wrong != nil {
			silent = append(silent, server+": "+wrong.Error())
		}
		list = append(list, more...)
	}
	return list, silent
}

func (r refusals) askList(ctx context.Context, server string, req []byte) (list []router.Refused, err error) {
	ctx, cancel := context.WithTimeout(ctx, refusedTimeout)
	defer cancel()
	reply, err := r.call(ctx, server, methodRejected, req)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(reply, &list)
	return list, err
}

func (r refusals) serveList(_ context.Context, req []byte) ([]byte, error) {
	var q counter.RecentQuery
	if err := json.Unmarshal(req, &q); err != nil {
		return nil, errkind.E(errkind.Invalid, methodRejected, err)
	}
	return json.Marshal(r.lately(&q))
}
