package usageplane

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
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

// explain asks what became of an event: the part that counts its tenant and source, then all others, for an event of a
// numbered batch may be there. A part that does not answer is an error only where no other one has the event.
func (p *Plane) explain(ctx context.Context, tenant, source, id string) (fate.Answer, error) {
	home := cmp.Or(p.Router.Part(tenant, source), p.d.ID)
	out, err := p.explainOf(ctx, home, tenant, source, id)
	if err == nil {
		return out, nil
	}
	names := slices.DeleteFunc(slices.Clone(p.Parts.Names()), func(part string) bool { return part == home })
	answers, errs := make([]fate.Answer, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	for i, part := range names {
		wg.Go(func() { answers[i], errs[i] = p.explainOf(ctx, part, tenant, source, id) })
	}
	wg.Wait()
	for i := range names {
		switch {
		case errs[i] == nil:
			return answers[i], nil
		case errkind.Is(err, errkind.NotFound):
			err = errs[i] // whoever did not answer may have it
		}
	}
	return fate.Answer{}, err
}

func (p *Plane) explainOf(ctx context.Context, part, tenant, source, id string) (out fate.Answer, err error) {
	if local := p.Parts.Local(part); local != nil {
		return p.explainHere(ctx, local, tenant, source, id)
	}
	reply, err := p.callPart(ctx, part, methodExplain, pack.String(pack.String(pack.String(nil, tenant), source), id))
	switch {
	case err == nil:
		err = json.Unmarshal(reply, &out)
	case !errkind.Is(err, errkind.NotFound):
		err = errkind.Errorf(errkind.Unavailable, "usage: part %s of the log does not answer: %w", part, err)
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
