package usageplane

import (
	"context"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/parts"
	"corbel.dev/corbel/usage/router"
)

// handle serves the RPCs of other servers.
func (p *Plane) handle() {
	type rpc = func(context.Context, []byte) ([]byte, error)
	all := p.Parts.Methods()
	all[MethodPropose] = p.writer.Serve
	all[MethodIndex] = p.index
	all[methodRoles] = p.peers.serve
	refused := newRefusals(p)
	all[methodRefused], all[methodRejected] = refused.serve, refused.serveList
	for method, h := range map[string]func(context.Context, *counter.Counter, []byte) ([]byte, error){
		router.MethodTake: p.Router.Serve, aggregator.MethodExtract: p.Aggregator.ServeExtract,
		aggregator.MethodSeries: p.Aggregator.ServeSeries, aggregator.MethodFind: p.Aggregator.ServeFind,
		aggregator.MethodLate: p.Aggregator.ServeLate, aggregator.MethodVersion: p.Aggregator.ServeVersion,
		aggregator.MethodIdentities: p.Aggregator.ServeIdentities, aggregator.MethodRecent: aggregator.ServeRecent,
		methodExplain: p.serveExplain} {
		all[method] = rpc(func(ctx context.Context, req []byte) ([]byte, error) {
			r := pack.Read(req)
			part, rest := r.String(), r.Bytes()
			if r.Err() != nil {
				return nil, errkind.E(errkind.Invalid, method, r.Err())
			}
			if method == router.MethodTake {
				p.Parts.Await(ctx, part)
			}
			c, err := p.Parts.Served(part)
			if err != nil {
				return nil, err
			}
			return h(ctx, c, rest)
		})
	}
	for method, h := range all {
		p.d.Handle(wire.Servers, method, h)
	}
}

// callPart asks the server that leads a part.
func (p *Plane) callPart(ctx context.Context, part, method string, req []byte) ([]byte, error) {
	return p.call(ctx, p.Parts.Lead(part), method, pack.Bytes(pack.String(nil, part), req))
}

// openParts makes the parts, which are in the data folder, or in memory where there is none.
func (p *Plane) openParts(counts aggregate.Config) (err error) {
	d, k := p.d, p.keys
	p.storage = newStorage(d, k)
	signal := counter.NewSignal(d.Clock.Now())
	copies := p.storage.openPlaces()
	each := max(1, k.Log.Copies) // memory is shared by the parts that a server has
	cfg := counter.Config{Copies: copies, CopyEvery: k.Copies.Every, Key: p.key, Follows: true, Signal: signal,
		Dedup: dedup.Config{Window: usage.MaxLate, Capacity: k.State.IDs}, Aggregate: counts,
		QueueBytes: k.Queue / each, Snapshot: k.State.Snapshot, Keep: k.Log.Keep, Clock: d.Clock, Log: d.Log,
		Metrics: d.Metrics}
	many := k.Log.Copies
	if len(k.Log.Kafka.Brokers) > 0 || d.Cfg.DataDir == "" {
		many = 1 // brokers have the copies
	}
	p.Parts, err = parts.New(parts.Config{Self: d.ID, Definitions: p.Definitions, Call: p.call, Voters: p.counters,
		Leads: p.raft.IsLeader, Copies: many, Shared: len(k.Log.Kafka.Brokers) > 0,
		Alone: k.Log.Alone, Failover: k.Log.Failover, Return: k.Log.Return,
		Budget: p.storage.budget, Clock: d.Clock, Log: d.Log, Metrics: d.Metrics,
		Open: func(part string) (parts.Place, error) { return p.storage.openPart(part, cfg) }}, signal)
	return err
}
