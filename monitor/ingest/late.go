package ingest

import (
	"context"

	"corbel.dev/corbel/monitor/eventstore"
)

// late takes what the store could not give when it was opened (eventstore.Loaded): of shards that are owned here, and
// of checks that were not heard of since. Who was heard of is newer here, and keeps what it has; of its past what the
// store has is put before that.
func (in copies) late(ctx context.Context, fill func(eventstore.Loaded) error) error {
	select {
	case <-in.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	var l loading
	if err := fill(eventstore.Loaded{Result: l.result, Entity: l.entity, Sequence: l.sequence}); err != nil {
		return err
	}
	entities, results := map[uint16][]*eventstore.Entity{}, map[uint16][]*eventstore.Result{}
	for _, x := range l.entities {
		entities[x.n.Shard()] = append(entities[x.n.Shard()], x.e)
	}
	for _, x := range l.results {
		results[x.n.Shard()] = append(results[x.n.Shard()], x.r)
	}
	taken, newer := 0, 0
	for i := range in.shards {
		if err := (intake(in)).admit(ctx); err != nil {
			return err
		}
		s := &in.shards[i]
		a, b := in.restore(s, l.sequences[s.number], entities[s.number], results[s.number])
		taken, newer = taken+a, newer+b
	}
	in.cfg.Log.Info("loaded the events from before the start", "checks", taken, "heard_of_since", newer)
	return nil
}

// restore takes what is late of a shard, whole before its next commit.
func (in copies) restore(s *shard, sequence uint64, entities []*eventstore.Entity,
	results []*eventstore.Result) (taken, newer int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned {
		return 0, 0
	}
	s.sequence = max(s.sequence, sequence)
	for _, x := range entities {
		n := name{x.Namespace, x.Name}
		if s.byName[n] != nil {
			continue
		}
		e := &entity{name: n, lastSeen: x.LastSeen}
		e.n = s.place(&s.freeE, len(s.entities))
		s.entities = grown(s.entities, int(e.n))
		e.set(x.Message)
		s.entities[e.n], s.byName[n] = e, e
		b := s.open(in.Ingest)
		size := b.Bytes()
		b.PutEntity(eventstore.NumberOf(s.number, e.n), &eventstore.Entity{Namespace: e.namespace, Name: e.entity,
			Message: e.message, LastSeen: e.lastSeen})
		intake(in).changed(s, b, size)
	}
	for _, r := range results {
		e := s.byName[name{r.Namespace, r.Entity}]
		if e == nil { // no store should hold it
			continue
		}
		k := find(e.checks, r.Check)
		if k != nil {
			newer++
			spans := k.res.Past.Spans()
			k.res.Past = r.Past
			for _, span := range spans {
				k.res.Past.Put(span)
			}
			intake(in).trim(k)
		} else {
			kind, err := in.kinds.of(r.Stable)
			if err != nil {
				in.cfg.Log.Error("a check's configuration in the store cannot be read; its event is left out", "namespace",
					r.Namespace, "entity", r.Entity, "check", r.Check, "error", err)
				continue
			}
			taken++
			k = s.newKey()
			k.kind, k.res = kind, *r
			k.of(e)
			e.checks.add(k)
			intake(in).trim(k)
			alarms(in).await(s, k)
		}
		b := s.open(in.Ingest)
		size := b.Bytes()
		b.Put(eventstore.NumberOf(s.number, k.n), &k.res, eventstore.Whole)
		intake(in).changed(s, b, size)
	}
	return taken, newer
}
