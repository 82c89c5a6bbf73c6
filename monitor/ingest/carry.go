package ingest

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventrecord"
)

// AppendPublished writes an event of a check behind b, for another server.
func AppendPublished(b []byte, p *Published) []byte {
	batch := eventrecord.NewBatch(0)
	batch.PutEntity(0, &eventstore.Entity{Namespace: p.Namespace, Name: p.Entity, Message: p.entity, LastSeen: p.lastSeen})
	batch.Put(0, &eventstore.Result{Key: &eventstore.Key{Namespace: p.Namespace, Entity: p.Entity, Check: p.Check},
		Stable: p.Kind.Stable,
		Rest:   p.rest, Hooks: p.hooks, Output: p.output, Beat: p.beat, ProcessedBy: p.processedBy, State: p.state,
		Past: p.past}, eventstore.Whole)
	return pack.Bytes(b, batch.Records())
}

// ReadPublished reads what AppendPublished wrote.
func ReadPublished(r *pack.Reader) (*Published, error) {
	c := carried{}
	if err := eventrecord.Read(0, r.Bytes(), &c); err != nil {
		return nil, err
	}
	if c.result == nil || c.entity == nil {
		return nil, errkind.Errorf(errkind.Corrupt, "an event that is none")
	}
	kind, err := monitor.NewKind(c.result.Stable)
	if err != nil {
		return nil, errkind.E(errkind.Corrupt, "a check's configuration", err)
	}
	x := c.result
	return &Published{Namespace: x.Namespace, Entity: x.Entity, Check: x.Check, Kind: kind, state: x.State, past: x.Past,
		entity: c.entity.Message,
		rest:   x.Rest, hooks: x.Hooks, output: x.Output, beat: x.Beat, processedBy: x.ProcessedBy,
		lastSeen: c.entity.LastSeen}, nil
}

// AppendTold writes an event as AppendPublished does, with its metrics.
func AppendTold(b []byte, p *Published) []byte { return pack.Bytes(AppendPublished(b, p), p.metrics) }

// ReadTold reads what AppendTold wrote.
func ReadTold(b []byte) (*Published, error) {
	r := pack.Read(b)
	p, err := ReadPublished(r)
	if err != nil {
		return nil, err
	}
	if metrics := r.Bytes(); len(metrics) > 0 {
		p.metrics = metrics
	}
	return p, r.Err()
}

// carried is one event on its way between servers.
type carried struct {
	entity *eventstore.Entity
	result *eventstore.Result
}

func (c *carried) Whole(_ eventstore.Number, r *eventstore.Result, _ uint32) error {
	c.result = r
	return nil
}
func (c *carried) Entity(_ eventstore.Number, e *eventstore.Entity, _ uint32) { c.entity = e }
func (c *carried) Delta(eventstore.Number, *eventrecord.Delta) error          { return nil }
func (c *carried) Delete(eventstore.Number)                                   {}
func (c *carried) Seen(eventstore.Number, int64)                              {}
func (c *carried) DeleteEntity(eventstore.Number)                             {}
