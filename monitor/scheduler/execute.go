package scheduler

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/roundrobin"
)

// MethodExecute is the RPC by which the servers tell each other of a check that is to run now.
const MethodExecute = "monitor.execute"

// executeTime bounds how long other servers are waited for.
const executeTime = 5 * time.Second

// Execute has a check run once, now, whether it is published or not, by all agents of the cluster that have one of the
// subscriptions, the check's own where none are given. Who asked, and why, goes to the log. It returns the Unix
// second that the requests bear. Errors: NotFound; Invalid (the check's expressions or tokens); Unavailable, when
// some servers could not be told: agents of the others have their requests then.
func (r *Scheduler) Execute(ctx context.Context, namespace, name string, subscriptions []string, creator,
	reason string) (issued int64, err error) {
	item := r.cfg.View().Get("checks", namespace, name)
	if item == nil {
		return 0, errkind.Errorf(errkind.NotFound, "check %q does not exist in namespace %q", name, namespace)
	}
	if len(subscriptions) == 0 {
		subscriptions = item.Object().(*monitor.CheckConfig).Subscriptions
	}
	key := checkKey{namespace, name}
	r.mu.Lock()
	issued = r.next(key)
	r.mu.Unlock()
	r.cfg.Log.Info("executing a check on request", "namespace", namespace, "check", name, "subscriptions", subscriptions,
		"creator", creator, "reason", reason)
	if err := r.execute(ctx, key, item, subscriptions, issued); err != nil {
		return 0, err
	}
	req := pack.Bytes(pack.String(pack.String(nil, namespace), name), item.Encoded)
	req = pack.Int(pack.Strings(req, subscriptions), issued)
	ctx, cancel := context.WithTimeout(ctx, executeTime)
	defer cancel()
	var others sync.WaitGroup
	servers := r.cfg.Servers()
	errs := make([]error, len(servers))
	for i, addr := range servers {
		others.Go(func() { _, errs[i] = r.cfg.Call(ctx, addr, MethodExecute, req) })
	}
	others.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, errkind.E(errkind.Unavailable, "agents of other servers may not have been asked", err)
	}
	return issued, nil
}

// Executed serves MethodExecute.
func (r *Scheduler) Executed(ctx context.Context, req []byte) ([]byte, error) {
	rd := pack.Read(req)
	key := checkKey{rd.String(), rd.String()}
	encoded := rd.Bytes()
	subscriptions, issued := rd.Strings(), rd.Int()
	if rd.Err() != nil {
		return nil, errkind.E(errkind.Invalid, MethodExecute, rd.Err())
	}
	config := new(monitor.CheckConfig)
	if err := tagproto.Unmarshal(encoded, config); err != nil {
		return nil, errkind.E(errkind.Invalid, MethodExecute, err)
	}
	if config.Name != key.name || config.Namespace != key.namespace || key.name == "" {
		return nil, errkind.Errorf(errkind.Invalid, "%s: the check has another name within", MethodExecute)
	}
	return nil, r.execute(ctx, key, objects.NewItem(key.namespace, key.name, 0, config), subscriptions, issued)
}

// execute sends a check's requests to agents of this server.
func (r *Scheduler) execute(ctx context.Context, key checkKey, item *objects.Item, subscriptions []string,
	issued int64) error {
	c := &check{key: key, item: item, config: item.Object().(*monitor.CheckConfig)}
	if err := c.complete(subscriptions, schedulerMemory); err != nil {
		return errkind.E(errkind.Invalid, "check "+key.name, err)
	}
	if r.reveals(c) {
		r.reveal(ctx, c)
	}
	if c.config.ProxyRequests == nil {
		r.send(c, subscriptions, issued)
		return nil
	}
	var err error
	if c.schedule, err = monitor.NewSchedule(key.name, c.config.Interval, c.config.Cron); err != nil {
		return errkind.E(errkind.Invalid, "check "+key.name, err)
	}
	r.matcher.want(job{check: c, due: r.cfg.Clock.Now(), adhoc: true, issued: issued})
	return nil
}

// Deliver sends what a round gave to agents of this server, and names those that it could not send to
// (roundrobin.Config.Deliver).
func (r *Scheduler) Deliver(h roundrobin.Hand) (refused []string) {
	key := checkKey{h.Namespace, h.Check}
	r.mu.Lock()
	c := r.checks[key]
	r.mu.Unlock()
	if c == nil || (h.Total > 0) != (c.config.ProxyRequests != nil) { // what this server knows is older, or newer
		return h.Agents()
	}
	if c.config.ProxyRequests != nil {
		return r.deliverProxied(c, h)
	}
	p, issued := r.request(c, 0)
	m := r.message(c, p.with(c.shown, issued))
	for _, s := range h.Shares {
		session := r.cfg.Hub.Get(h.Namespace, s.Agent)
		if session == nil || session.Send(m) != nil {
			refused = append(refused, s.Agent)
			continue
		}
		r.sent.Add(1)
	}
	return refused
}

func (r *Scheduler) deliverProxied(c *check, h roundrobin.Hand) (refused []string) {
	view := r.cfg.View()
	s := &spread{check: c}
	_, s.issued = r.request(c, 0)
	for _, share := range h.Shares {
		if r.cfg.Hub.Get(h.Namespace, share.Agent) == nil {
			refused = append(refused, share.Agent)
			continue
		}
		for _, p := range share.Proxies {
			if item := view.Get("entities", h.Namespace, p.Name); item != nil {
				s.items = append(s.items, proxyRun{after: h.Over / time.Duration(h.Total) * time.Duration(p.Place),
					entity: item.Object().(*monitor.EntityConfig), agent: share.Agent})
			}
		}
	}
	slices.SortStableFunc(s.items, func(a, b proxyRun) int { return cmp.Compare(a.after, b.after) })
	if len(s.items) > 0 {
		r.post(s)
	}
	return refused
}
