package ingest

import (
	"bytes"
	"math/bits"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/frame"
)

// kinds shares what is stable of a check among all entities that it runs on.
type kinds struct {
	mu       sync.Mutex
	byStable map[string]*counted
}

type counted struct {
	kind *monitor.Kind
	uses int
}

// of returns the kind of a configuration; drop gives it back.
func (x *kinds) of(stable []byte) (*monitor.Kind, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.byStable[string(stable)]; c != nil {
		c.uses++
		return c.kind, nil
	}
	kind, err := monitor.NewKind(append([]byte(nil), stable...))
	if err != nil {
		return nil, err
	}
	x.byStable[string(stable)] = &counted{kind, 1}
	return kind, nil
}

func (x *kinds) drop(k *monitor.Kind) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.byStable[string(k.Stable)]
	if c.uses--; c.uses == 0 {
		delete(x.byStable, string(k.Stable))
	}
}

// entityOf returns an entity, making it when there is none. The lock is held.
func (in intake) entityOf(s *shard, n name, f *frame.Frame) *entity {
	if e := s.byName[n]; e != nil {
		return e
	}
	e := &entity{name: n}
	e.n = s.place(&s.freeE, len(s.entities))
	if int(e.n) == len(s.entities) {
		s.entities = append(s.entities, nil)
	}
	s.entities[e.n] = e
	s.byName[n] = e
	in.put(s, e, f)
	return e
}

func (s *shard) newKey() *key {
	k := &key{n: s.place(&s.freeK, len(s.keys))}
	if int(k.n) == len(s.keys) {
		s.keys = append(s.keys, nil)
	}
	s.keys[k.n] = k
	return k
}

// place returns a free number, or the next new one.
func (s *shard) place(free *[]uint32, n int) uint32 {
	if last := len(*free) - 1; last >= 0 {
		out := (*free)[last]
		*free = (*free)[:last]
		return out
	}
	return uint32(n)
}

// open returns the batch that gathers.
func (s *shard) open(in *Ingest) eventstore.Batch {
	if s.batch == nil {
		if s.batch, s.spare = s.spare, nil; s.batch == nil {
			s.batch = in.store.NewBatch(s.number)
		}
		s.opened = time.Now()
	}
	return s.batch
}

// subject is what silences are compared with; it decodes the entity, so it is asked for only where there are silences.
func (in intake) subject(e *entity, k *key) monitor.Subject {
	c := k.kind.Check
	return monitor.Subject{
		Check: c.Name, CheckSubscriptions: c.Subscriptions, Entity: e.entity,
		EntitySubscriptions: frame.EntitySubscriptions(e.message), Proxy: c.ProxyEntityName != "",
	}
}

// is reports whether the entity's message is that of the parts, but for when the entity was seen last.
func (e *entity) is(parts frame.EntityParts) bool {
	return len(e.message) > 0 && bytes.Equal(e.message[:e.head], parts.Head) && bytes.Equal(e.message[e.tail:], parts.Tail)
}

// set replaces the message. One that cannot be cut was damaged in a store: it is like none that comes.
func (e *entity) set(message []byte) {
	parts, err := frame.CutEntity(message)
	if err != nil {
		parts = frame.EntityParts{}
	}
	e.message, e.head, e.tail, e.sum = message, uint32(len(parts.Head)), uint32(len(message)-len(parts.Tail)), sumOf(parts)
}

// sumOf tells one entity's message from another, whenever it was seen last.
func sumOf(parts frame.EntityParts) uint64 {
	return xxhash.Sum64(parts.Head) ^ bits.RotateLeft64(xxhash.Sum64(parts.Tail), 1)
}

// loading gathers what a store holds until all of it is there: entities come in any order.
type loading struct {
	results   []loadedResult
	entities  []loadedEntity
	sequences map[uint16]uint64
}

type loadedResult struct {
	n eventstore.Number
	r *eventstore.Result
}

type loadedEntity struct {
	n eventstore.Number
	e *eventstore.Entity
}

func (l *loading) result(n eventstore.Number, r *eventstore.Result) {
	l.results = append(l.results, loadedResult{n, r})
}

func (l *loading) entity(n eventstore.Number, e *eventstore.Entity) {
	l.entities = append(l.entities, loadedEntity{n, e})
}

func (l *loading) sequence(shard uint16, sequence uint64) {
	if l.sequences == nil {
		l.sequences = map[uint16]uint64{}
	}
	l.sequences[shard] = sequence
}

// into makes the shards of what was loaded.
func (l *loading) into(in *Ingest) error {
	for _, x := range l.entities {
		n := name{x.e.Namespace, x.e.Name}
		s := in.shardOf(n)
		if s.number != x.n.Shard() {
			return errkind.Errorf(errkind.Corrupt, "entity %s/%s was kept in shard %d, and belongs to %d", n.namespace, n.entity,
				x.n.Shard(), s.number)
		}
		e := &entity{name: n, n: x.n.Index(), lastSeen: x.e.LastSeen}
		e.set(x.e.Message)
		s.byName[n] = e
		s.entities = grown(s.entities, int(e.n))
		s.entities[e.n] = e
	}
	for _, x := range l.results {
		s := in.shardOf(name{x.r.Namespace, x.r.Entity})
		e := s.byName[name{x.r.Namespace, x.r.Entity}]
		if e == nil || s.number != x.n.Shard() {
			return errkind.Errorf(errkind.Corrupt, "a result of %s/%s/%s has no entity in its shard", x.r.Namespace,
				x.r.Entity, x.r.Check)
		}
		kind, err := in.kinds.of(x.r.Stable)
		if err != nil {
			return errkind.E(errkind.Corrupt, "a check's configuration", err)
		}
		k := &key{n: x.n.Index(), kind: kind, res: *x.r}
		intake{in}.trim(k)
		k.of(e)
		e.checks.add(k)
		s.keys = grown(s.keys, int(k.n))
		s.keys[k.n] = k
	}
	for i := range in.shards {
		s := &in.shards[i]
		s.sequence = l.sequences[s.number]
		s.stored.Store(s.sequence)
		s.freeE, s.freeK = holes(s.entities), holes(s.keys)
		if s.owned {
			alarms{in}.expect(s)
		}
	}
	return nil
}

func grown[T any](list []*T, n int) []*T {
	for len(list) <= n {
		list = append(list, nil)
	}
	return list
}

func holes[T any](list []*T) (free []uint32) {
	for i, x := range list {
		if x == nil {
			free = append(free, uint32(i))
		}
	}
	return free
}
