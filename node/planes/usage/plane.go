// Package usageplane wires the usage plane of a server: definitions in a Raft group of its own, a log of events and a
// counter on each server, and the doors to both.
package usageplane

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/statsdapi"
	"corbel.dev/corbel/api/usageapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/misses"
	"corbel.dev/corbel/usage/parts"
	"corbel.dev/corbel/usage/router"
	"corbel.dev/corbel/usage/senders"
	"corbel.dev/corbel/usage/window"
)

// Name is the plane's, and its Raft group's.
const Name = "usage"

// groupID is the number of the plane's Raft group on the wire.
const groupID = 4

// Plane is the usage plane of a server. It fails alone: no error of its parts ends the process.
type Plane struct {
	d           *plane.Doors
	keys        *Keys
	raft        *raftgroup.Group
	writer      *raftgroup.Writer[uint64]
	zone        window.Zone // of tenants that have none
	Definitions *definitions.Definitions
	Parts       *parts.Parts
	news        *definitions.News
	Router      *router.Router
	Aggregator  *aggregator.Aggregator
	misses      *misses.Misses
	statsd      *statsdapi.Door // nil while it is off
	peers       peers
	storage     *storage
	failed      atomic.Pointer[error]
}

// Kind is the plane as a process lists it.
func Kind() plane.Kind {
	return plane.Kind{Name: Name, Keys: func() any { return new(Keys) }, Check: check, Open: open}
}

func open(d *plane.Doors) (plane.Plane, error) {
	k := keysOf(d.Cfg)
	if d.Catalog == nil || !k.Enabled {
		return nil, nil
	}
	location, err := time.LoadLocation(k.Timezone)
	if err != nil {
		return nil, fmt.Errorf("usage.timezone: %w", err)
	}
	p := &Plane{d: d, keys: k, zone: window.In(location), Definitions: definitions.New(),
		peers: peers{own: k.Roles, self: d.ID, roles: map[string][]string{}}}
	p.raft = d.Group(groupID, p.Definitions)
	p.writer = newWriter(p.raft, p.Definitions)
	p.Definitions.Use(p)
	counts := aggregate.Config{Zone: p.zoneOf, Keep: aggregate.Keep{Minutes: usage.MaxLate + time.Hour,
		Hours: k.State.Hours, Days: k.State.Days}}
	if err := p.openParts(counts); err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	p.news = definitions.NewNews(p.Definitions, p.leadersIndex)
	p.Router = router.New(router.Config{Definitions: p.Definitions, Local: p.Parts.Local, Await: p.Parts.Await,
		Call: p.callPart, News: p.news.Get, Senders: senders.New(0), Clock: d.Clock, Metrics: d.Metrics})
	p.misses = misses.New(misses.Config{Fetch: p.Parts.Keys, Lane: p.storage.budget.Lane("misses"), Clock: d.Clock,
		Log: d.Log, Metrics: d.Metrics})
	p.Aggregator = aggregator.New(aggregator.Config{Parts: p.Parts.Names, Local: p.Parts.Local, Call: p.callPart,
		Miss: p.misses.Get, Definitions: p.Definitions, Aggregate: counts, Leads: p.raft.IsLeader,
		Crossed: p.crossed, Clock: d.Clock, Log: d.Log})
	p.handle()
	p.serveAgents()
	refused := newRefusals(p)
	api, err := usageapi.New(usageapi.Config{Router: p.Router, Aggregator: p.Aggregator, Counts: p.Parts,
		Definitions: p.Definitions, Zone: p.zoneOf, Allow: p.allow, Explain: p.explain,
		Refused: refused.find, Rejected: refused.list, Now: d.Clock.Now})
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	d.Route("/v1/usage/servers", plane.Right{Resource: acl.Operator, Level: acl.Write}, http.HandlerFunc(p.serveServers))
	d.Route("/v1/usage/", plane.Right{}, p.peers.gated(api)) // it judges the tenant that a request is about
	if p.peers.has(roleRouter) && p.peers.has(roleAggregator) {
		d.Route("/api/v1/", plane.Right{}, api.OpenMeter()) // it judges as the others do
	}
	d.Debug(p.debug)
	return p, p.openStatsd()
}

// openStatsd opens the door for metrics where the configuration wants it.
func (p *Plane) openStatsd() (err error) {
	s := p.keys.UsageStatsd()
	if s.Address == "" && s.Socket == "" || !p.peers.has(roleRouter) {
		return nil
	}
	kind := func(product string) (usage.Kind, bool) {
		found, ok := p.Definitions.View().Products.Get(product)
		if !ok {
			return 0, false
		}
		return found.Kind, true
	}
	p.statsd, err = statsdapi.Open(statsdapi.Config{Address: s.Address, Socket: s.Socket, Tenant: s.Tenant,
		Producer: "statsd/" + p.d.ID, Kind: kind, Ready: p.news.Get, Take: p.Router.Take, Clock: p.d.Clock,
		Log: p.d.Log, Metrics: p.d.Metrics})
	if err != nil {
		return fmt.Errorf("usage.dogstatsd: %w", err)
	}
	return nil
}

// zoneOf is a tenant's calendar.
func (p *Plane) zoneOf(tenant string) window.Zone {
	if t, ok := p.Definitions.View().Tenants[tenant]; ok && t.Zone != "" {
		if l, err := time.LoadLocation(t.Zone); err == nil {
			return window.In(l)
		}
	}
	return p.zone
}

// allow judges the token of a request; "" are all tenants.
func (p *Plane) allow(r *http.Request, tenant string, write bool) bool {
	right := plane.Right{Resource: acl.Usage, Name: tenant, Level: acl.Read}
	if write {
		right.Level = acl.Write
	}
	return p.d.Allows(r, right)
}

// debug is the plane's part of the debug archive.
func (p *Plane) debug() any {
	view := p.Definitions.View()
	return map[string]any{"index": view.Index, "products": len(view.Products.All()), "limits": len(view.Limits),
		"warm": p.Parts.Warm(), "backlog_bytes": p.Parts.Backlog(), "owners": view.Owners, "parts": view.Parts}
}

// Run implements plane.Plane. A part that fails ends the plane's service, not the process.
func (p *Plane) Run(ctx context.Context) error {
	var group life.Group
	parts := []life.Part{{Name: "raft", Run: p.raft.Run}, {Name: "begin", Run: p.begin},
		{Name: "parts", Run: p.Parts.Run}, {Name: "misses", Run: p.misses.Run}, {Name: "aggregator", Run: p.Aggregator.Run},
		{Name: "own planes", Run: p.produce}, {Name: "evidence", Run: p.tell},
		{Name: "roles", Run: p.listen}}
	if p.statsd != nil {
		parts = append(parts, life.Part{Name: "dogstatsd", Run: p.statsd.Run})
	}
	if w := newWindows(p); w != nil {
		parts = append(parts, life.Part{Name: "windows", Run: w.Run})
	}
	for _, part := range parts {
		group.Add(part.Name, p.guarded(part))
	}
	if err := group.Run(ctx); err != nil {
		p.d.Log.Error("the usage plane did not shut down cleanly", "error", err)
	}
	p.storage.close()
	return nil
}

// guarded waits, where a part fails, for the end of the plane.
func (p *Plane) guarded(part life.Part) func(context.Context) error {
	return func(ctx context.Context) error {
		err := part.Run(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", part.Name, err)
		p.failed.CompareAndSwap(nil, &err)
		p.d.Log.Error("the usage plane has stopped; the other planes continue", "error", err)
		<-ctx.Done()
		return nil
	}
}

// Lacks implements plane.Plane: who restarts one server after the other may stop the next one when each part of the log
// has its copy. That is waited for a while, and not where the plane has failed: then its own answers say that they are
// lower bounds.
func (p *Plane) Lacks() []string {
	if p.failed.Load() != nil {
		return nil
	}
	return p.Parts.Lacks()
}

// Quiesce implements plane.Quiescer: what this server leads alone gets a copy first, so that it can be handed over.
func (p *Plane) Quiesce(ctx context.Context) { p.Parts.Leave(ctx) }

// handOver bounds what a stop waits for others to lead this server's parts, which takes a round trip or two: what comes
// after this plane needs some of the time, too. What is left is taken over as after a crash.
const handOver = 2 * time.Second

// Drain implements plane.Plane: the copies of this server's parts take over, and another server leads the plane.
func (p *Plane) Drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	p.Parts.Drain(ctx)
	if g := p.raft.Raft.Load(); g != nil && g.IsLeader() {
		if err := g.TransferLeadership(ctx, ""); err != nil {
			p.d.Log.Info("the usage plane's leadership was not handed over", "error", err)
		}
	}
}

// Reload implements plane.Plane.
func (p *Plane) Reload(cfg *config.Config) (func(), error) { return nil, check(cfg) }

// Close implements plane.Plane.
func (p *Plane) Close() error {
	if p.statsd != nil {
		return p.statsd.Close()
	}
	return nil
}
