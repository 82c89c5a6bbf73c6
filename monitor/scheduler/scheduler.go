// Package scheduler has agents run checks when they are due.
//
// Each server runs one Scheduler for the sessions that it has. When a check is due depends on its name and the time
// alone, so all servers tick together without talking; only who is next in a round robin is agreed upon (package
// roundrobin).
//
// What always holds:
//   - A request is encoded once a tick in each form that agents speak, and an agent that several subscriptions match
//     gets it once. Many agents get it one after the other over a while (see waves.go), so that their results do not
//     come all at once.
//   - Of one check (and proxy entity) each request has a later second than the one before, since agents take no other;
//     a clock that is set back changes nothing in that.
//   - A pause of the process or a jump of the clock leads to no burst (see plan).
//   - Everything that a request holds comes from memory; it is made anew when the check, an asset or a hook was
//     changed.
//   - Secrets are sent to agents that are known by a certificate, and to no others; their values are found beside, and
//     no tick waits for them.
//
// Run has one goroutine for time, which sends, one that finds the proxy entities of checks, whose scripts are cut
// when they take too long, and a few that find values of secrets. All methods may be called from any goroutine;
// Changed never blocks.
package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/roundrobin"
	"corbel.dev/corbel/monitor/script"
)

// Config of a Scheduler.
type Config struct {
	View       func() *resources.View
	Hub        *hub.Hub
	RoundRobin *roundrobin.RoundRobin // its Deliver is to be the Scheduler's
	// Servers lists the addresses of the other servers, which are told of checks that are to run now.
	Servers func() []string
	Call    func(ctx context.Context, addr, method string, req []byte) ([]byte, error)
	// Secrets finds the variables of a check's secrets; nil where no agent is known by a certificate, and none are sent.
	Secrets func(ctx context.Context, namespace string, list []*monitor.Secret) ([]string, error)
	Scripts *script.Engine // evaluates the expressions of proxy requests; nil runs them in this process
	Clock   clock.Clock    // nil is the machine's
	Log     *slog.Logger
}

// checkKey names a check.
type checkKey struct{ namespace, name string }

// Stats is what a Scheduler counts.
type Stats struct {
	Planned  int    // checks that are published
	Ticks    uint64 // checks that were due
	Requests uint64 // that a link took
	Subdued  uint64 // ticks that were left out
	Failed   uint64 // requests that could not be made: tokens without a value, expressions that fail
}

// Scheduler schedules checks.
type Scheduler struct {
	cfg   Config
	start time.Time
	wake  chan struct{}
	// reread wakes who finds values of secrets.
	reread chan struct{}

	mu       sync.Mutex // guards what follows; never held while sending
	dirty    map[checkKey]struct{}
	all      bool              // everything is to be looked at anew
	entities map[string]uint64 // by namespace: grows with each change of its entities
	restored uint64            // grows when everything may have changed
	checks   map[checkKey]*check
	stamps   map[checkKey]int64 // the second in which a check was issued last
	posted   []*spread          // to be taken by the loop

	waves   waves // the loop's alone
	matcher matcher
	counts
}

// counts are what Stats tells.
type counts struct {
	planned atomic.Int64
	ticks   atomic.Uint64
	sent    atomic.Uint64
	subdued atomic.Uint64
	failed  atomic.Uint64
}

// New makes a Scheduler that plans nothing yet.
func New(cfg Config) *Scheduler {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Scripts == nil {
		cfg.Scripts = script.New(script.Config{})
	}
	r := &Scheduler{
		cfg: cfg, start: cfg.Clock.Now(), wake: make(chan struct{}, 1), reread: make(chan struct{}, 1), all: true,
		dirty: map[checkKey]struct{}{}, entities: map[string]uint64{}, checks: map[checkKey]*check{},
		stamps: map[checkKey]int64{},
	}
	r.matcher.init()
	return r
}

// Stats returns what was counted since New.
func (r *Scheduler) Stats() Stats {
	return Stats{Planned: int(r.planned.Load()), Ticks: r.ticks.Load(), Requests: r.sent.Load(), Subdued: r.subdued.Load(),
		Failed: r.failed.Load()}
}

// Changed tells of changes of the configuration, once they are in View; nil is everything (resources.Resources.Watch).
func (r *Scheduler) Changed(ops []objects.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ops == nil {
		r.all = true
		r.restored++
	}
	for _, op := range ops {
		switch op.Type {
		case "checks":
			r.dirty[checkKey{op.Namespace, op.Name}] = struct{}{}
		case "entities":
			r.entities[op.Namespace]++ // looked at when a check that is for proxies is due
		case "secrets", "providers":
			r.rereads()
		case "assets", "hooks":
			for key, c := range r.checks {
				if key.namespace == op.Namespace {
					c.request = nil
				}
			}
		}
	}
	if r.all || len(r.dirty) > 0 {
		r.notify()
	}
}

func (r *Scheduler) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Scheduler) now() moment {
	now := r.cfg.Clock.Now()
	return moment{wall: now.Round(0), mono: r.cfg.Clock.Since(r.start)}
}

// Run schedules until ctx ends.
func (r *Scheduler) Run(ctx context.Context) error {
	var g life.Group
	g.Add("time", r.loop)
	g.Add("proxies", r.match)
	g.Add("secrets", r.refresh)
	return g.Run(ctx)
}

func (r *Scheduler) loop(ctx context.Context) error {
	p, spreads := newPlan(), &spreads{}
	timer := r.cfg.Clock.NewTimer(atMost)
	defer timer.Stop()
	for {
		now := r.now()
		r.absorb(p, spreads, now)
		p.run(now, r.tick)
		r.sent.Add(uint64(r.waves.run(now.mono)))
		busy := spreads.run(now.mono, r.cfg.Clock, r.proxied)
		wait := min(p.wait(r.now()), spreads.wait(now.mono), r.waves.wait())
		if busy {
			wait = 0
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// absorb takes over what changed.
func (r *Scheduler) absorb(p *plan, s *spreads, now moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.posted {
		r.failed.Add(uint64(s.add(one, now.mono)))
	}
	r.posted = nil
	if !r.all && len(r.dirty) == 0 {
		return
	}
	view := r.cfg.View()
	if r.all {
		r.all = false
		for key := range r.checks {
			r.dirty[key] = struct{}{}
		}
		view.List("checks", "", "", "", func(i *objects.Item) bool {
			r.dirty[checkKey{i.Namespace, i.Name}] = struct{}{}
			return true
		})
	}
	for key := range r.dirty {
		r.replan(p, key, view.Get("checks", key.namespace, key.name), now)
	}
	clear(r.dirty)
	r.planned.Store(int64(len(r.checks)))
	r.cfg.RoundRobin.SetRings(r.rings())
}

// replan plans a check as it is now; item is nil when it is gone.
func (r *Scheduler) replan(p *plan, key checkKey, item *objects.Item, now moment) {
	forget := func() {
		p.remove(key)
		r.matcher.forget(key)
		delete(r.checks, key)
		if item == nil {
			delete(r.stamps, key)
		}
	}
	if item == nil || !item.Object().(*monitor.CheckConfig).Publish {
		forget()
		return
	}
	if old := r.checks[key]; old != nil && old.item == item {
		old.request = nil // after a Restore of the same
		return
	}
	c, err := newCheck(key, item)
	if err != nil { // what is stored was validated: by a version with other rules
		r.cfg.Log.Error("a check cannot be scheduled", "namespace", key.namespace, "check", key.name, "error", err)
		forget()
		return
	}
	r.checks[key] = c
	if r.reveals(c) {
		r.rereads()
	}
	p.set(key, c.schedule, now)
}

// rings are those of the checks that go round. The caller holds the lock.
func (r *Scheduler) rings() map[roundrobin.Ring]struct{} {
	out := map[roundrobin.Ring]struct{}{}
	for key, c := range r.checks {
		if c.config.RoundRobin {
			for _, s := range c.config.Subscriptions {
				out[roundrobin.Ring{Namespace: key.namespace, Subscription: s}] = struct{}{}
			}
		}
	}
	return out
}

// tick runs a check that is due.
func (r *Scheduler) tick(key checkKey, due time.Time) {
	r.ticks.Add(1)
	r.mu.Lock()
	c := r.checks[key]
	r.mu.Unlock()
	if c == nil {
		return
	}
	if c.subdued(r.cfg.Clock.Now()) {
		r.subdued.Add(1)
		return
	}
	switch {
	case c.config.ProxyRequests != nil:
		r.matcher.want(job{check: c, due: due})
	case c.config.RoundRobin:
		r.cfg.RoundRobin.Deal(c.tick(due))
	default:
		m := r.issue(c, 0)
		to := r.cfg.Hub.Subscribers(c.key.namespace, c.config.Subscriptions)
		r.sent.Add(uint64(r.waves.add(m, to, time.Duration(c.config.Interval)*time.Second, r.now().mono)))
	}
}

// send sends a check's request at once to all who subscribe; issued is 0, or the second that another server gave it.
func (r *Scheduler) send(c *check, subscriptions []string, issued int64) {
	r.sent.Add(uint64(r.cfg.Hub.Send(c.key.namespace, subscriptions, r.issue(c, issued))))
}

// issue makes a check's next request; atLeast is as request's.
func (r *Scheduler) issue(c *check, atLeast int64) *hub.Message {
	p, issued := r.request(c, atLeast)
	return r.message(c, p.with(c.shown, issued))
}

// request returns what the check's requests hold beside it, and when this one is issued: in the second of now or of
// atLeast, and later than the one before.
func (r *Scheduler) request(c *check, atLeast int64) (p *parts, issued int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	issued = max(r.next(c.key), atLeast)
	r.stamps[c.key] = issued
	return r.parts(c), issued
}

// next is the second for a check's next request. The caller holds the lock.
func (r *Scheduler) next(key checkKey) int64 { return max(r.cfg.Clock.Now().Unix(), r.stamps[key]+1) }

// again is request for another one of the same tick, for another entity: the second may be the same.
func (r *Scheduler) again(c *check, first int64) (p *parts, issued int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	issued = max(r.cfg.Clock.Now().Unix(), first)
	r.stamps[c.key] = max(r.stamps[c.key], issued)
	return r.parts(c), issued
}

// parts returns what the check's requests hold beside it. The caller holds the lock.
func (r *Scheduler) parts(c *check) *parts {
	if c.request == nil {
		c.request = newParts(r.cfg.View(), c.config)
		if len(c.config.Secrets) > 0 && r.cfg.Secrets == nil && !c.warned {
			c.warned = true
			r.cfg.Log.Warn("not sending secrets to agents: none has logged in with a certificate "+
				"(monitor.agent_auth_trusted_ca_file)", "namespace", c.key.namespace, "check", c.key.name)
		}
	}
	return c.request
}
