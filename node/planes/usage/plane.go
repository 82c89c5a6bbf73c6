// Package usageplane wires the usage plane of a server: definitions in a Raft group of its own, a log of events and a
// counter on each server, and the doors to both.
package usageplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/statsdapi"
	"corbel.dev/corbel/api/usageapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/router"
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
	Counter     *counter.Counter
	Router      *router.Router
	Aggregator  *aggregator.Aggregator
	statsd      *statsdapi.Door // nil while it is off
	fs          vfs.FS          // of the log and the state
	places      []*place        // that have copies of snapshots
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
	p := &Plane{d: d, keys: k, zone: window.In(location), Definitions: definitions.New()}
	p.raft = d.Group(groupID, p.Definitions)
	p.writer = newWriter(p.raft, p.Definitions)
	p.Definitions.Use(p)
	counts := aggregate.Config{Zone: p.zoneOf, Keep: aggregate.Keep{Minutes: usage.MaxLate + time.Hour,
		Hours: k.State.Hours, Days: k.State.Days}}
	if err := p.openCounter(counts); err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	p.Router = router.New(router.Config{Self: d.ID, Definitions: p.Definitions, Counter: p.Counter,
		Call: p.call, Clock: d.Clock, Metrics: d.Metrics})
	p.Aggregator = aggregator.New(aggregator.Config{Self: d.ID, Members: p.members, Call: p.call, Counter: p.Counter,
		Definitions: p.Definitions, Aggregate: counts, Leads: p.raft.IsLeader, Crossed: p.crossed, Clock: d.Clock,
		Log: d.Log})
	for method, h := range map[string]func(context.Context, []byte) ([]byte, error){MethodPropose: p.writer.Serve,
		router.MethodTake: p.Router.Serve, aggregator.MethodExtract: p.Aggregator.ServeExtract,
		aggregator.MethodSeries: p.Aggregator.ServeSeries, aggregator.MethodFind: p.Aggregator.ServeFind,
		methodExplain: p.serveExplain} {
		d.Handle(wire.Servers, method, h)
	}
	api, err := usageapi.New(usageapi.Config{Router: p.Router, Aggregator: p.Aggregator, Counter: p.Counter,
		Definitions: p.Definitions, Zone: p.zoneOf, Allow: p.allow, Explain: p.explain, Now: d.Clock.Now})
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	d.Route("/v1/usage/servers", plane.Right{Resource: acl.Operator, Level: acl.Write}, http.HandlerFunc(p.serveServers))
	d.Route("/v1/usage/", plane.Right{}, api) // it judges the tenant that a request is about
	d.Debug(p.debug)
	return p, p.openStatsd()
}

// openStatsd opens the door for metrics where the configuration wants it.
func (p *Plane) openStatsd() (err error) {
	s := &p.keys.Statsd
	address := ""
	if s.Port > 0 {
		address = net.JoinHostPort(s.Address, strconv.Itoa(s.Port))
	}
	if address == "" && s.Socket == "" {
		return nil
	}
	kind := func(product string) (usage.Kind, bool) {
		found, ok := p.Definitions.View().Products.Get(product)
		if !ok {
			return 0, false
		}
		return found.Kind, true
	}
	p.statsd, err = statsdapi.Open(statsdapi.Config{Address: address, Socket: s.Socket, Tenant: s.Tenant,
		Producer: "statsd/" + p.d.ID, Kind: kind, Take: p.Router.Take, Clock: p.d.Clock, Log: p.d.Log,
		Metrics: p.d.Metrics})
	if err != nil {
		return fmt.Errorf("usage.dogstatsd: %w", err)
	}
	return nil
}

// openCounter makes the counter, whose log is in the data folder, or in memory where there is none, or with brokers.
func (p *Plane) openCounter(counts aggregate.Config) error {
	d, k := p.d, p.keys
	dir := filepath.Join(d.Cfg.DataDir, "usage")
	p.fs = d.FS
	if d.Cfg.DataDir == "" {
		p.fs, dir = vfs.NewMem(), "/usage"
	}
	if err := p.folders(dir, "", "log", "state"); err != nil {
		return err
	}
	blobs, err := counterstate.NewFolder(p.fs, filepath.Join(dir, "state"))
	if err != nil {
		return err
	}
	folder := embedded.Config{FS: p.fs, Dir: filepath.Join(dir, "log"), Partitions: 1, SegmentBytes: 64 << 20,
		MaxBytes: int64(k.Log.MaxBytes), Clock: d.Clock, Log: d.Log}
	if d.Cfg.DataDir == "" {
		folder.MaxBytes, folder.SegmentBytes = 512<<20, 4<<20 // it is memory
	}
	p.Counter = counter.New(counter.Config{
		Open:   func() (eventlog.Log, error) { return p.openLog(d.ID, folder) },
		Store:  counterstate.New(counterstate.Config{Blobs: blobs, Log: d.Log}),
		Copies: p.openPlaces(), CopyEvery: k.Copies.Every, Name: d.ID, Key: p.key,
		Dedup: dedup.Config{Window: usage.MaxLate, Capacity: k.State.IDs}, Aggregate: counts, QueueBytes: k.Queue,
		Snapshot: k.State.Snapshot, Keep: k.Log.Keep, Clock: d.Clock, Log: d.Log, Metrics: d.Metrics,
	})
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
		"warm": p.Counter.Warm(), "backlog_bytes": p.Counter.Backlog(), "owners": view.Owners,
		"members": p.members()}
}

// Run implements plane.Plane. A part that fails ends the plane's service, not the process.
func (p *Plane) Run(ctx context.Context) error {
	var group life.Group
	parts := []life.Part{{Name: "raft", Run: p.raft.Run}, {Name: "begin", Run: p.begin},
		{Name: "counter", Run: p.Counter.Run}, {Name: "aggregator", Run: p.Aggregator.Run},
		{Name: "own planes", Run: p.produce}}
	if p.statsd != nil {
		parts = append(parts, life.Part{Name: "dogstatsd", Run: p.statsd.Run})
	}
	for _, part := range parts {
		group.Add(part.Name, p.guarded(part))
	}
	if err := group.Run(ctx); err != nil {
		p.d.Log.Error("the usage plane did not shut down cleanly", "error", err)
	}
	for _, b := range p.places {
		b.close()
	}
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

// Lacks implements plane.Plane: a log that is read after a start, or that nobody can open, does not hold the process
// up; the plane's own answers say that they are lower bounds.
func (p *Plane) Lacks() []string { return nil }

// Drain implements plane.Plane: a server that comes back has its log.
func (p *Plane) Drain(context.Context) {}

// Reload implements plane.Plane.
func (p *Plane) Reload(cfg *config.Config) (func(), error) { return nil, check(cfg) }

// Close implements plane.Plane.
func (p *Plane) Close() error {
	if p.statsd != nil {
		return p.statsd.Close()
	}
	return nil
}
