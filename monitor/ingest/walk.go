package ingest

import "corbel.dev/corbel/monitor"

// Summary is what Walk tells of one check on one entity.
type Summary struct {
	Namespace, Entity, Check string
	Kind                     *monitor.Kind
	Status                   uint32
	Timestamp                int64 // of the newest result, in Unix seconds
}

// Walk calls f with all checks of the shards that this server owns, in no order. f is called under a lock and must
// call nothing of Ingest.
func (in *Ingest) Walk(f func(Summary)) {
	for i := range in.shards {
		s := &in.shards[i]
		s.mu.Lock()
		if s.owned {
			for _, k := range s.keys {
				if k != nil {
					f(Summary{k.res.Namespace, k.res.Entity, k.res.Check, k.kind, k.res.State.Status, k.res.State.Timestamp})
				}
			}
		}
		s.mu.Unlock()
	}
}

// Summary returns what is known of one check; ok is false where it was never heard of. ErrElsewhere where its shard
// is not owned here.
func (in *Ingest) Summary(namespace, entity, check string) (sum Summary, ok bool, err error) {
	s := in.shardOf(name{namespace, entity})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned {
		return Summary{}, false, ErrElsewhere
	}
	e := s.byName[name{namespace, entity}]
	if e == nil || find(e.checks, check) == nil {
		return Summary{}, false, nil
	}
	k := find(e.checks, check)
	return Summary{namespace, entity, check, k.kind, k.res.State.Status, k.res.State.Timestamp}, true, nil
}

// Entity returns the message of what is known of an entity; nil is nothing. It must not be changed.
func (in *Ingest) Entity(namespace, entity string) []byte {
	s := in.shardOf(name{namespace, entity})
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byName[name{namespace, entity}]; e != nil {
		return e.message
	}
	return nil
}
