package ingest

import (
	"slices"
	"strings"
	"unique"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventrecord"
)

// Where several servers share the shards, each owns some of them: it takes their results and raises their alarms.
// Others it follows: what their owner made durable is applied as it comes, and kept in this server's own store, so
// that it can go on as their owner at once. What it neither owns nor follows, it forgets.

// ErrElsewhere is the answer to a result of an entity whose shard this server does not own, or not at the moment.
var ErrElsewhere = errkind.New(errkind.NotLeader, "the entity belongs to another server")

// ShardOf returns the shard of an entity, the same in every process.
func ShardOf(namespace, entity string) uint16 { return shardNumber(name{namespace, entity}) }

// takes reports whether results are taken. The lock is held.
func (s *shard) takes() bool { return s.owned && !s.frozen }

// Own takes a shard over, or lets it take results again after Freeze. What is expected of its checks gets its whole
// time anew, or the rest of it.
func (in *Ingest) Own(shard uint16) {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned {
		if s.frozen {
			alarms{in}.goOn(s)
		}
		s.frozen = false
		return
	}
	s.frozen = false
	s.owned = true
	s.freeE, s.freeK = holes(s.entities), holes(s.keys)
	alarms{in}.expect(s)
}

// Freeze has an owned shard take no results, until Own or Leave: what was taken is made durable, and replicated,
// meanwhile.
func (in *Ingest) Freeze(shard uint16) {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned && !s.frozen {
		s.frozen, s.froze = true, alarms{in}.seconds()
	}
}

// Queue says whether events of a shard wait for their turn elsewhere in this process: then no later one is to
// overtake them.
func (in *Ingest) Queue(shard uint16, queued bool) {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = queued
}

// Leave ends the ownership of a shard: from now on its results are refused. What is known of it stays.
func (in *Ingest) Leave(shard uint16) {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned, s.frozen, s.resend = false, false, false
	clear(s.due)
	for _, k := range s.keys {
		if k != nil {
			k.listed, k.due = 0, 0
		}
	}
}

// Owns reports whether this server owns a shard.
func (in *Ingest) Owns(shard uint16) bool {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned
}

// Blank reports whether the store held nothing when it was opened.
func (in *Ingest) Blank() bool { return in.blank }

// Settled reports whether all that was taken of a shard is stored; while the store is stalled, whether it is on its
// way to the replica.
func (in *Ingest) Settled(shard uint16) bool {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sequence == s.stored.Load() || in.hangs.Load() && s.sequence == s.told.Load()
}

// Resend asks for the whole of an owned shard to be given to Config.Replicate, with the next commit but few others.
func (in *Ingest) Resend(shard uint16) {
	s := &in.shards[shard]
	s.mu.Lock()
	s.resend = s.owned
	s.mu.Unlock()
	in.notify()
}

func (in *Ingest) notify() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// Forget drops what is known of a shard that this server does not own.
func (in *Ingest) Forget(shard uint16) {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned {
		copies{in}.empty(s)
	}
}

// copies fills shards from what is stored elsewhere.
type copies struct{ *Ingest }

// empty drops everything of a shard. The lock is held.
func (in copies) empty(s *shard) {
	f := follower{in.Ingest, s}
	for n, k := range s.keys {
		if k != nil {
			f.Delete(eventstore.NumberOf(s.number, uint32(n)))
		}
	}
	for n, e := range s.entities {
		if e != nil {
			f.DeleteEntity(eventstore.NumberOf(s.number, uint32(n)))
		}
	}
}

// Apply takes changes of a shard that this server follows, in the order in which its owner made them; until is the
// owner's sequence after them. reset says that the records are all there is. An error means that the whole must be
// sent anew.
func (in *Ingest) Apply(shard uint16, reset bool, until uint64, records []byte) error {
	if err := in.failed.Load(); err != nil {
		return errkind.E(errkind.Unavailable, "events cannot be stored", *err)
	}
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned {
		return errkind.Errorf(errkind.Conflict, "shard %d is owned here", shard)
	}
	if reset {
		copies{in}.empty(s)
	}
	if err := eventrecord.Read(shard, records, &follower{in, s}); err != nil {
		return err
	}
	s.sequence = until
	return nil
}

// follower applies records to a shard. The lock is held.
type follower struct {
	in *Ingest
	s  *shard
}

// write does one change of the shard's batch.
func (f *follower) write(change func(eventstore.Batch)) {
	b := f.s.open(f.in)
	size := b.Bytes()
	change(b)
	intake{f.in}.changed(f.s, b, size)
}

// Whole implements eventrecord.Reader.
func (f *follower) Whole(n eventstore.Number, r *eventstore.Result, _ uint32) error {
	e := f.s.byName[name{r.Namespace, r.Entity}]
	if e == nil {
		return errkind.Errorf(errkind.Corrupt, "a result of %s/%s/%s has no entity", r.Namespace, r.Entity, r.Check)
	}
	kind, err := f.in.kinds.of(r.Stable)
	if err != nil {
		return errkind.E(errkind.Corrupt, "a check's configuration", err)
	}
	f.drop(n)
	k := &key{n: n.Index(), kind: kind, res: *r}
	k.of(e)
	e.checks.add(k)
	f.s.keys = grown(f.s.keys, int(k.n))
	f.s.keys[k.n] = k
	f.write(func(b eventstore.Batch) { b.Put(n, &k.res, eventstore.Whole) })
	return nil
}

// drop forgets who has a number.
func (f *follower) drop(n eventstore.Number) {
	if int(n.Index()) >= len(f.s.keys) {
		return
	}
	k := f.s.keys[n.Index()]
	if k == nil {
		return
	}
	f.s.keys[n.Index()] = nil
	f.in.kinds.drop(k.kind)
	if e := f.s.byName[name{k.res.Namespace, k.res.Entity}]; e != nil {
		e.checks.drop(k)
	}
}

// Delta implements eventrecord.Reader.
func (f *follower) Delta(n eventstore.Number, d *eventrecord.Delta) error {
	if int(n.Index()) >= len(f.s.keys) || f.s.keys[n.Index()] == nil {
		return errkind.Errorf(errkind.Corrupt, "a change of number %d, which is nothing here", n)
	}
	k := f.s.keys[n.Index()]
	before := k.res.Past.Len()
	if d.Apply(&k.res, k.kind.Thresholds); k.res.Past.Len() != before {
		intake{f.in}.trim(k)
	}
	b := f.s.open(f.in) // not by write: nothing is allocated for most records
	size := b.Bytes()
	b.Put(n, &k.res, d.What)
	intake{f.in}.changed(f.s, b, size)
	return nil
}

// Delete implements eventrecord.Reader.
func (f *follower) Delete(n eventstore.Number) {
	f.drop(n)
	f.write(func(b eventstore.Batch) { b.Delete(n) })
}

// Entity implements eventrecord.Reader.
func (f *follower) Entity(n eventstore.Number, x *eventstore.Entity, _ uint32) {
	to := name{x.Namespace, x.Name}
	e := f.s.byName[to]
	if e == nil || e.n != n.Index() {
		f.dropEntity(n)
		to.namespace = unique.Make(to.namespace).Value()
		e = &entity{name: to, n: n.Index()}
		f.s.byName[to] = e
		f.s.entities = grown(f.s.entities, int(e.n))
		f.s.entities[e.n] = e
	}
	e.set(x.Message)
	e.lastSeen = x.LastSeen
	f.write(func(b eventstore.Batch) { b.PutEntity(n, x) })
}

func (f *follower) dropEntity(n eventstore.Number) {
	if int(n.Index()) >= len(f.s.entities) {
		return
	}
	e := f.s.entities[n.Index()]
	if e == nil {
		return
	}
	f.s.entities[n.Index()] = nil
	if f.s.byName[e.name] == e {
		delete(f.s.byName, e.name)
	}
}

// Seen implements eventrecord.Reader.
func (f *follower) Seen(n eventstore.Number, at int64) {
	if int(n.Index()) < len(f.s.entities) && f.s.entities[n.Index()] != nil {
		f.s.entities[n.Index()].lastSeen = at
	}
	f.write(func(b eventstore.Batch) { b.Seen(n, at) })
}

// DeleteEntity implements eventrecord.Reader.
func (f *follower) DeleteEntity(n eventstore.Number) {
	f.dropEntity(n)
	f.write(func(b eventstore.Batch) { b.DeleteEntity(n) })
}

// whole writes all of a shard. The lock is held.
func (s *shard) whole() []byte {
	b := eventrecord.NewBatch(s.number)
	for n, e := range s.entities {
		if e != nil {
			b.PutEntity(eventstore.NumberOf(s.number, uint32(n)), &eventstore.Entity{Namespace: e.namespace, Name: e.entity,
				Message: e.message, LastSeen: e.lastSeen})
		}
	}
	for n, k := range s.keys {
		if k != nil {
			b.Put(eventstore.NumberOf(s.number, uint32(n)), &k.res, eventstore.Whole)
		}
	}
	return b.Records()
}

// Of returns the newest events of an entity, by check; ErrElsewhere where its shard is not owned here.
func (in *Ingest) Of(namespace, entity string) ([]*Published, error) {
	s := in.shardOf(name{namespace, entity})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned {
		return nil, ErrElsewhere
	}
	e := s.byName[name{namespace, entity}]
	if e == nil {
		return nil, nil
	}
	out := make([]*Published, 0, len(e.checks))
	for _, c := range e.checks {
		intake{in}.trim(c.key)
		out = append(out, in.event(e, c.key))
	}
	slices.SortFunc(out, func(a, b *Published) int { return strings.Compare(a.Check, b.Check) })
	return out, nil
}

// Entities calls f with the names of all entities of a namespace ("" is all) in a shard, in no order; false, where
// that is not owned here.
func (in *Ingest) Entities(shard uint16, namespace string, f func(namespace, entity string)) bool {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned {
		return false
	}
	for n := range s.byName {
		if namespace == "" || n.namespace == namespace {
			f(n.namespace, n.entity)
		}
	}
	return true
}
