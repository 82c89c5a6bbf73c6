package usageplane

import (
	"context"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/router"
)

// builtIn are the products that Corbel's own planes feed, without configuration.
func builtIn() []usage.Product {
	windows := []string{"5m", "1h", "24h", "day", "month"}
	list := []usage.Product{
		{Name: "hosts", Kind: usage.Unique, Identity: []string{"node"}, Tags: []string{"team"}, Unit: "hosts"},
		{Name: "service_instances", Kind: usage.Unique, Identity: []string{"node", "id"}, Tags: []string{"service", "team"},
			Unit: "instances"},
		{Name: "checks", Kind: usage.Unique, Identity: []string{"node", "check"}, Tags: []string{"service"},
			Unit: "checks"},
		{Name: "proxies", Kind: usage.Unique, Identity: []string{"node", "id"}, Tags: []string{"service"}, Unit: "proxies"},
		{Name: "kv_operations", Kind: usage.Sum, Tags: []string{"node"}, Unit: "operations"},
		{Name: "secrets_requests", Kind: usage.Sum, Tags: []string{"node"}, Unit: "requests"},
		{Name: "events_ingested", Kind: usage.Sum, Tags: []string{"plane", "node"}, Unit: "events"},
		{Name: "active_identities", Kind: usage.Last, Unit: "identities"},
		{Name: "leases", Kind: usage.Last, Unit: "leases"},
		{Name: "metric_series", Kind: usage.Max, Tags: []string{"node"}, Unit: "series"},
		{Name: "allocations", Kind: usage.Unique, Identity: []string{"id"}, Tags: []string{"job", "group"},
			Unit: "allocations"},
		{Name: "cpu_mhz_seconds", Kind: usage.Sum, Tags: []string{"job", "group"}, Unit: "MHz seconds"},
		{Name: "memory_mb_seconds", Kind: usage.Sum, Tags: []string{"job", "group"}, Unit: "MB seconds"},
	}
	for i := range list {
		list[i].Windows = windows
		if err := list[i].Complete(); err != nil {
			panic("usage: a built-in product is wrong: " + err.Error()) // a test makes the list
		}
	}
	return list
}

// Own planes are looked at each ownEvery; what exists is told once a minute, in batches.
const (
	ownEvery  = 10 * time.Second
	fleetEach = 6
	ownBatch  = 5000
)

// own is what this server knows of its planes. One goroutine uses it.
type own struct {
	p        *Plane
	epoch    uint64
	sequence uint64
	told     map[string]uint64 // of each total, what has been sent
	waiting  []*router.Batch   // those that were not taken yet; a later one waits for an earlier one
	sent     uint64            // own events: they are no ingest
}

// maxWaiting bounds the batches that wait: beyond, totals grow and are told later.
const maxWaiting = 64

// produce sends what Corbel's own planes do.
func (p *Plane) produce(ctx context.Context) error {
	o := &own{p: p, epoch: uint64(p.d.Clock.Now().UnixNano()), told: map[string]uint64{}}
	jobs := &consumed{p: p}
	for tick := 0; ; tick++ {
		wait := ownEvery
		if tick == 0 {
			wait = 2 * time.Second
		}
		t := p.d.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		if !p.keys.Own || !p.Parts.Warm() {
			tick = -1
			continue
		}
		if len(o.waiting) < maxWaiting {
			items := o.totals()
			if tick%fleetEach == 0 && p.raft.IsLeader() {
				items = append(items, o.fleet()...)
			}
			o.queue(items)
		}
		o.send(ctx)
		jobs.tell(ctx)
	}
}

func (o *own) queue(items []cloudevents.Item) {
	for len(items) > 0 {
		n := min(len(items), ownBatch)
		o.sequence++
		o.waiting = append(o.waiting, &router.Batch{Producer: "corbel/" + o.p.d.ID, Epoch: o.epoch, Sequence: o.sequence,
			Items: items[:n]})
		items = items[n:]
	}
}

// send sends what waits. What is not taken is sent again, with the same sequence.
func (o *own) send(ctx context.Context) {
	for len(o.waiting) > 0 {
		answer, err := o.p.Router.Take(ctx, o.waiting[0])
		if err != nil {
			o.p.d.Log.Debug("usage: own events wait", "error", err)
			return
		}
		o.sent += uint64(answer.Accepted)
		o.waiting = o.waiting[1:]
	}
}

func (o *own) item(product string, identity, tags []usage.Field) cloudevents.Item {
	return cloudevents.Item{Event: usage.Event{Source: "corbel", Product: product, Time: o.p.d.Clock.Now().UnixNano(),
		Identity: identity, Tags: tags}}
}

func (o *own) amount(product string, value uint64, tags ...usage.Field) cloudevents.Item {
	it := o.item(product, nil, append(tags, usage.Field{Name: "node", Value: o.p.d.Cfg.Node.Name}))
	it.Value, it.HasValue = usage.Uint(value), true
	return it
}

// totals are what counters of this server grew by, and gauges.
func (o *own) totals() (list []cloudevents.Item) {
	registries := append([]*telemetry.Registry{o.p.d.Metrics}, o.p.d.Registries()...)
	grown := func(product, name string, less uint64, tags ...usage.Field) {
		total, is := totalOf(registries, name)
		if total -= min(total, less); is && total > o.told[name] {
			list = append(list, o.amount(product, total-o.told[name], tags...))
			o.told[name] = total
		}
	}
	grown("kv_operations", "kvs.apply", 0)
	grown("secrets_requests", "core.handle_request", 0)
	grown("events_ingested", "events_processed", 0, usage.Field{Name: "plane", Value: "monitor"})
	grown("events_ingested", "usage.events.accepted", o.sent, usage.Field{Name: "plane", Value: "usage"})
	for product, name := range map[string]string{"active_identities": "identity.num_entities",
		"leases": "expire.num_leases"} {
		if v, is := totalOf(registries, name); is {
			list = append(list, o.amount(product, v))
		}
	}
	series := 0
	for _, r := range registries {
		series += len(r.Series())
	}
	return append(list, o.amount("metric_series", uint64(series)))
}

// totalOf adds up the series of a name: counters and gauges by value, timings by how often.
func totalOf(registries []*telemetry.Registry, name string) (total uint64, is bool) {
	for _, r := range registries {
		for _, s := range r.Series() {
			if s.Name != name || s.Declared {
				continue
			}
			var b telemetry.Buckets
			s.TimingTotals(&b)
			total += s.CounterValue() + b.Count
			if v, ok := s.GaugeValue(); ok && v > 0 {
				total += uint64(v)
			}
			is = true
		}
	}
	return total, is
}

// fleet is what the catalog has.
func (o *own) fleet() (list []cloudevents.Item) {
	state := o.p.d.Catalog.Registry.State()
	team := func(meta map[string]string) usage.Field { return usage.Field{Name: "team", Value: meta["team"]} }
	for n := range state.Nodes() {
		node := usage.Field{Name: "node", Value: n.Name}
		list = append(list, o.item("hosts", []usage.Field{node}, []usage.Field{team(n.Meta)}))
		for s := range state.ServicesOfNode(n.Name) {
			product := "service_instances"
			if s.Kind == catalog.KindConnectProxy {
				product = "proxies"
			}
			list = append(list, o.item(product, []usage.Field{node, {Name: "id", Value: s.ID}},
				[]usage.Field{{Name: "service", Value: s.Name}, team(s.Meta)}))
		}
	}
	for c := range state.Checks() {
		list = append(list, o.item("checks", []usage.Field{{Name: "node", Value: c.Node},
			{Name: "check", Value: c.ServiceID + "/" + c.ID}}, []usage.Field{{Name: "service", Value: c.ServiceName}}))
	}
	return list
}
