package ingest

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/frame"
)

// EntityName names an entity.
type EntityName struct{ Namespace, Name string }

// Names returns the entities of a namespace ("" is all) of which results are known, in order.
func (in *Ingest) Names(namespace string) []EntityName {
	var out []EntityName
	for i := range in.shards {
		s := &in.shards[i]
		s.mu.Lock()
		if !s.owned {
			s.mu.Unlock()
			continue
		}
		for n := range s.byName {
			if namespace == "" || n.namespace == namespace {
				out = append(out, EntityName{n.namespace, n.entity})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b EntityName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Events returns the newest events of an entity, by check; none where its shard is not owned here.
func (in *Ingest) Events(namespace, entity string) []*Published {
	list, _ := in.Of(namespace, entity)
	return list
}

// List returns all events of a namespace ("" is all) and an entity ("" is all), by namespace, entity and check. It is
// for such as are few: Page goes through many.
func (in *Ingest) List(namespace, entity string) (out []*Published) {
	for _, n := range in.Names(namespace) {
		if entity == "" || n.Name == entity {
			out = append(out, in.Events(n.Namespace, n.Name)...)
		}
	}
	return out
}

// EntityState returns what the agent of an entity, or whoever sends results for it, said of it last; nil is nothing.
func (in *Ingest) EntityState(namespace, entity string) (*monitor.EntityState, error) {
	s := in.shardOf(name{namespace, entity})
	s.mu.Lock()
	e := s.byName[name{namespace, entity}]
	if e == nil {
		s.mu.Unlock()
		return nil, nil
	}
	message, seen := e.message, e.seen()
	s.mu.Unlock()
	whole := new(monitor.Entity)
	if err := tagproto.Unmarshal(message, whole); err != nil {
		return nil, errkind.E(errkind.Corrupt, "entity", err)
	}
	whole.LastSeen = max(whole.LastSeen, seen)
	_, state := monitor.Split(whole)
	return state, nil
}

// seen returns when the entity's agent was heard of last, in Unix seconds: its newest keepalive that was not missed.
// 0 is never. The lock is held.
func (e *entity) seen() int64 {
	if k := find(e.checks, monitor.KeepaliveCheck); k != nil {
		return k.res.State.LastOK
	}
	return 0
}

// Tail is told of everything that is taken, while somebody follows it.
type Tail interface {
	// Wants says whether anybody wants an event; it is called for every result, under a lock, and must only look
	// something up.
	Wants(namespace, entity, check string, out monitor.Outcome) bool
	// Publish is given what Wants asked for, once it is stored. It must not block.
	Publish(*Published)
}

// Follow sets who is told; nil is nobody, and costs nothing.
func (in *Ingest) Follow(t Tail) {
	if t == nil {
		in.tail.Store(nil)
		return
	}
	in.tail.Store(&t)
}

// tell keeps an event for those who follow. The lock is held.
func (in intake) tell(s *shard, e *entity, k *key, f *frame.Frame, out monitor.Outcome) {
	t := in.tail.Load()
	if t == nil || !(*t).Wants(e.namespace, e.entity, k.res.Check, out) {
		return
	}
	p := in.event(e, k)
	p.Outcome = out
	p.metrics = slices.Clone(f.Metrics)
	s.after = append(s.after, func() { (*t).Publish(p) })
}

// Local is an Ingest that has all shards, as those see it who ask whichever server has an event.
type Local struct{ *Ingest }

// List lists events in order, behind a place, page by page.
func (l Local) List(_ context.Context, r Range) iter.Seq2[*Published, error] {
	return func(yield func(*Published, error) bool) {
		for {
			var list []*Published
			page := l.Page(r, func(p *Published) bool {
				list = append(list, p)
				return len(list) < PageEvents
			})
			for _, p := range list {
				if !yield(p, nil) {
					return
				}
			}
			if page.End {
				return
			}
			r.After = page.Upto
		}
	}
}

// Events is Ingest.Events.
func (l Local) Events(_ context.Context, namespace, entity string) ([]*Published, error) {
	return l.Of(namespace, entity)
}

// Get is Ingest.Get.
func (l Local) Get(_ context.Context, namespace, entity, check string) (*monitor.Event, error) {
	return l.Ingest.Get(namespace, entity, check)
}

// EntityState is Ingest.EntityState.
func (l Local) EntityState(_ context.Context, namespace, entity string) (*monitor.EntityState, error) {
	return l.Ingest.EntityState(namespace, entity)
}

// EntityStates is EntityState of many.
func (l Local) EntityStates(_ context.Context, names []EntityName) (out []*monitor.EntityState, err error) {
	out = make([]*monitor.EntityState, len(names))
	for i, n := range names {
		if out[i], err = l.Ingest.EntityState(n.Namespace, n.Name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Delete is Ingest.Delete.
func (l Local) Delete(_ context.Context, namespace, entity, check string) (bool, error) {
	return l.Ingest.Delete(namespace, entity, check), nil
}
