package ingest

import (
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/frame"
	"corbel.dev/corbel/monitor/runs"
)

// Published is an event as it was when its result was taken; the whole of it is made when somebody asks.
type Published struct {
	Namespace, Entity, Check string
	Kind                     *monitor.Kind // nil without a check
	Outcome                  monitor.Outcome
	state                    monitor.State
	past                     runs.Past
	entity, rest, hooks      []byte
	output, metrics          []byte
	beat                     bool // the output is a keepalive's own, and output nil
	processedBy              string
	lastSeen                 int64 // of the entity's agent, 0 when it is not known
}

// Event makes the whole event.
func (p *Published) Event() (*monitor.Event, error) {
	e := new(monitor.Event)
	for _, part := range []struct {
		b  []byte
		to func() any
	}{
		{p.rest, func() any { return e }},
		{p.entity, func() any { e.Entity = new(monitor.Entity); return e.Entity }},
		{p.metrics, func() any { e.Metrics = new(monitor.Metrics); return e.Metrics }},
	} {
		if part.b == nil {
			continue
		}
		if err := tagproto.Unmarshal(part.b, part.to()); err != nil {
			return nil, errkind.E(errkind.Corrupt, "event", err)
		}
	}
	e.Timestamp, e.Sequence = p.state.Timestamp, p.state.Sequence
	if p.lastSeen != 0 && e.Entity != nil {
		e.Entity.LastSeen = p.lastSeen
	}
	if p.state.ID != [16]byte{} {
		e.ID = slices.Clone(p.state.ID[:])
	}
	if p.Kind == nil {
		return e, nil
	}
	c := *p.Kind.Check // its lists are shared, and never changed
	e.Check = &c
	if err := tagproto.Unmarshal(p.hooks, e.Check); err != nil {
		return nil, errkind.E(errkind.Corrupt, "event", err)
	}
	p.state.Fill(e.Check)
	c.Output, c.ProcessedBy = string(p.text()), p.processedBy
	return e, nil
}

// text returns the output.
func (p *Published) text() []byte {
	if !p.beat {
		return p.output
	}
	return monitor.AppendKeepaliveOutput(nil, p.Entity, p.state.Executed)
}

// intake takes results in, and steps their checks.
type intake struct{ *Ingest }

// publish keeps an event as it is for when it is stored. The lock is held.
func (in intake) publish(s *shard, e *entity, k *key, f *frame.Frame, out monitor.Outcome) {
	p := in.event(e, k)
	p.Outcome = out
	p.metrics = slices.Clone(f.Metrics)
	s.after = append(s.after, func() { in.published.Add(1); in.cfg.Sink.Publish(p) })
}

// event returns an event as it is. The lock is held; what it refers to is replaced when it changes, never overwritten.
func (in *Ingest) event(e *entity, k *key) *Published {
	return &Published{
		Namespace: e.namespace, Entity: e.entity, Check: k.res.Check, Kind: k.kind, state: k.res.State, past: k.res.Past,
		entity: e.message,
		rest:   k.res.Rest, hooks: k.res.Hooks, output: k.res.Output, beat: k.res.Beat, processedBy: k.res.ProcessedBy,
		lastSeen: e.seen(),
	}
}

// metrics publishes an event without a check, which is never stored.
func (in intake) metrics(namespace string, f *frame.Frame) error {
	whole, err := f.Event()
	if err == nil {
		err = whole.Validate()
	}
	if err != nil {
		return errkind.E(errkind.Invalid, "event", err)
	}
	in.results.Add(1)
	p := func() *Published {
		return &Published{
			Namespace: namespace, Entity: whole.Entity.Name, state: monitor.State{Result: f.Result},
			entity: slices.Clone(f.Entity), rest: slices.Clone(f.Rest), metrics: slices.Clone(f.Metrics),
		}
	}
	if in.cfg.Policy.Wants(namespace, nil, monitor.Outcome{}) {
		in.published.Add(1)
		in.cfg.Sink.Publish(p())
	}
	if t := in.tail.Load(); t != nil && (*t).Wants(namespace, whole.Entity.Name, "", monitor.Outcome{}) {
		(*t).Publish(p())
	}
	return nil
}

// Get returns the newest event of a check on an entity; an error of kind NotFound where there is none.
func (in *Ingest) Get(namespace, entity, check string) (*monitor.Event, error) {
	s := in.shardOf(name{namespace, entity})
	s.mu.Lock()
	var p *Published
	if e := s.byName[name{namespace, entity}]; e != nil {
		if k := find(e.checks, check); k != nil {
			p = in.event(e, k)
		}
	}
	s.mu.Unlock()
	if p == nil {
		return nil, errkind.Errorf(errkind.NotFound, "no event of check %q on entity %q in namespace %q", check,
			entity, namespace)
	}
	return p.Event()
}

// Delete removes the event of a check, and the entity's state with the last one ("" is all checks). It reports
// whether there was any.
func (in *Ingest) Delete(namespace, entity, check string) bool {
	s := in.shardOf(name{namespace, entity})
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[name{namespace, entity}]
	if e == nil || !s.owned {
		return false
	}
	found := false
	for _, c := range slices.Clone(e.checks) {
		k := c.key
		if check != "" && k.res.Check != check {
			continue
		}
		found = true
		e.checks.drop(k)
		if !k.kind.Catalog.Empty() {
			intake{in}.statusChanged(s, e)
		}
		in.kinds.drop(k.kind)
		s.keys[k.n] = nil
		s.freeK = append(s.freeK, k.n)
		b := s.open(in)
		size := b.Bytes()
		b.Delete(eventstore.NumberOf(s.number, k.n))
		intake{in}.changed(s, b, size)
	}
	if len(e.checks) == 0 {
		delete(s.byName, e.name)
		s.entities[e.n] = nil
		s.freeE = append(s.freeE, e.n)
		b := s.open(in)
		size := b.Bytes()
		b.DeleteEntity(eventstore.NumberOf(s.number, e.n))
		intake{in}.changed(s, b, size)
	}
	return found
}

// Stored returns each shard's newest sequence that is durable: what a crash cannot lose.
func (in *Ingest) Stored() (out [Shards]uint64) {
	store, lags := in.store.(eventstore.Lagging)
	for i := range in.shards {
		out[i] = in.shards[i].stored.Load()
		if !lags {
			continue
		}
		if durable, behind := store.Behind(uint16(i)); behind {
			out[i] = min(out[i], durable)
		}
	}
	return out
}

// Stats counts what was taken since the start.
type Stats struct {
	Results    uint64 // results of checks, and events with metrics alone
	Keepalives uint64 // of these, of the check keepalive
	Steady     uint64 // of these, such that passed as before
	Published  uint64
	Pending    int64 // bytes that wait to be stored
	Store      eventstore.Info
}

// Stats returns the counts.
func (in *Ingest) Stats() Stats {
	return Stats{in.results.Load(), in.alive.Load(), in.steady.Load(), in.published.Load(), in.pending.Load(),
		in.store.Info()}
}

// Announce publishes an event that is not stored, such as an agent's registration.
func (in *Ingest) Announce(e *monitor.Event) error {
	var f frame.Frame
	if err := f.Cut(tagproto.Append(nil, e)); err != nil {
		return errkind.E(errkind.Invalid, "event", err)
	}
	kind, err := monitor.NewKind(slices.Clone(f.Stable))
	if err != nil {
		return errkind.E(errkind.Invalid, "event", err)
	}
	state, out := monitor.Step(monitor.State{}, f.Result, monitor.Thresholds{}, nil)
	if !in.cfg.Policy.Wants(e.Entity.Namespace, kind, out) {
		return nil
	}
	in.published.Add(1)
	in.cfg.Sink.Publish(&Published{
		Namespace: e.Entity.Namespace, Entity: e.Entity.Name, Check: e.Check.Name, Kind: kind, Outcome: out, state: state,
		entity: slices.Clone(f.Entity), rest: slices.Clone(f.Rest), output: slices.Clone(f.Output),
		processedBy: string(f.ProcessedBy),
	})
	return nil
}
