package spread

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/shards"
)

// Questions are answered by the owners, whoever is asked. An owner that cannot be reached is an error that names it: no
// list is short without saying so.

// askTime bounds one question to one server, pageBytes about how much one answer holds.
const (
	askTime   = 10 * time.Second
	pageBytes = 4 << 20
)

// The questions of methodAsk.
const (
	askOf     = 1 // an entity's events
	askNames  = 2 // entities, from a shard on
	askDelete = 3
	askState  = 4 // of an entity
)

// at returns the server that has a shard; here says that it is this one.
func (s *Spread) at(shard uint16) (m Member, here bool, err error) {
	owner := s.owner(shard)
	switch owner {
	case "":
		return m, false, errkind.Errorf(errkind.Unavailable, "no server has these events at the moment")
	case s.cfg.Self:
		return m, true, nil
	}
	m, err = s.member(owner)
	return m, false, err
}

// Events returns the newest events of an entity, by check. Errors: Unavailable, the server that has them does not answer.
func (s *Spread) Events(ctx context.Context, namespace, entity string) ([]*ingest.Published, error) {
	var list []*ingest.Published
	err := s.where(ctx, ingest.ShardOf(namespace, entity), func() (err error) {
		list, err = s.cfg.Ingest.Of(namespace, entity)
		return err
	}, pack.String(pack.String(pack.Uint(nil, askOf), namespace), entity), func(r *pack.Reader) error {
		list = nil
		for r.More() {
			p, err := ingest.ReadPublished(r)
			if err != nil {
				return err
			}
			list = append(list, p)
		}
		return nil
	})
	return list, err
}

// Get returns the newest event of a check on an entity; an error of kind NotFound where there is none.
func (s *Spread) Get(ctx context.Context, namespace, entity, check string) (*monitor.Event, error) {
	list, err := s.Events(ctx, namespace, entity)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if p.Check == check {
			return p.Event()
		}
	}
	return nil, errkind.Errorf(errkind.NotFound, "no event of check %q on entity %q in namespace %q", check, entity, namespace)
}

// EntityState returns what the agent of an entity, or whoever sends results for it, said of it last; nil is nothing.
func (s *Spread) EntityState(ctx context.Context, namespace, entity string) (state *monitor.EntityState, err error) {
	shard := ingest.ShardOf(namespace, entity)
	err = s.where(ctx, shard, func() (err error) {
		if !s.cfg.Ingest.Owns(shard) {
			return ingest.ErrElsewhere
		}
		state, err = s.cfg.Ingest.EntityState(namespace, entity)
		return err
	}, pack.String(pack.String(pack.Uint(nil, askState), namespace), entity), func(r *pack.Reader) error {
		if state = nil; !r.More() {
			return nil
		}
		state = new(monitor.EntityState)
		return tagproto.Unmarshal(r.Bytes(), state)
	})
	return state, err
}

// Delete removes the event of a check, all of an entity's without one ("" is all checks). It reports whether there was any.
func (s *Spread) Delete(ctx context.Context, namespace, entity, check string) (found bool, err error) {
	shard := ingest.ShardOf(namespace, entity)
	err = s.where(ctx, shard, func() error {
		if !s.cfg.Ingest.Owns(shard) {
			return ingest.ErrElsewhere
		}
		found = s.cfg.Ingest.Delete(namespace, entity, check)
		return nil
	}, pack.String(pack.String(pack.String(pack.Uint(nil, askDelete), namespace), entity), check), func(r *pack.Reader) error {
		found = r.Bool()
		return r.Err()
	})
	return found, err
}

// where does something here, or has the owner of a shard do it; while the shard moves, again.
func (s *Spread) where(ctx context.Context, shard uint16, here func() error, req []byte, read func(*pack.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for {
		changed := s.changes()
		m, own, err := s.at(shard)
		switch {
		case err != nil:
		case own:
			err = here()
		default:
			var reply []byte
			if reply, err = s.cfg.Call(ctx, m.Addr, methodAsk, req); err == nil {
				return read(pack.Read(reply))
			}
			if !errkind.Is(err, errkind.NotLeader) {
				err = errkind.E(errkind.Unavailable, "the server "+m.Name+" has these events, and does not answer", err)
			}
		}
		if !errkind.Is(err, errkind.NotLeader) && !errkind.Is(err, errkind.Unavailable) {
			return err
		}
		t := time.NewTimer(routePause)
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		t.Stop()
	}
}

// Names lists the entities of a namespace ("" is all) that have events, in order. It asks again while shards are on their way, so that none is left out
// because the server that was asked first got it from the one that was asked last.
func (s *Spread) Names(ctx context.Context, namespace string) ([]ingest.EntityName, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for {
		changed := s.changes()
		all, missing, err := s.namesOnce(ctx, namespace)
		if err != nil || !missing {
			return all, err
		}
		t := time.NewTimer(routePause)
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, errkind.Errorf(errkind.Unavailable, "some events are on their way to another server")
		}
		t.Stop()
	}
}

// namesOnce asks all owners. missing says that a shard was nobody's when it was asked for.
func (s *Spread) namesOnce(ctx context.Context, namespace string) (all []ingest.EntityName, missing bool, err error) {
	t := s.table.Load()
	if t == nil {
		return nil, false, errkind.Errorf(errkind.Unavailable, "this server does not know yet which server has which events")
	}
	owners := map[string]bool{}
	for _, one := range t {
		owners[one.Owner] = true
	}
	var mu sync.Mutex
	var seen bitmap
	var asking sync.WaitGroup
	for id := range owners {
		asking.Go(func() {
			list, of, failed := s.namesAt(ctx, id, namespace)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, list...)
			for i := range seen {
				seen[i] |= of[i]
			}
			if failed != nil {
				err = failed
			}
		})
	}
	asking.Wait()
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(all, func(a, b ingest.EntityName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for i := range shards.Count {
		missing = missing || !seen.has(i)
	}
	return slices.Compact(all), missing, nil // a shard that moved meanwhile was listed twice
}

// namesAt lists the names of one server, page by page, and the shards that it had when it was asked.
func (s *Spread) namesAt(ctx context.Context, id, namespace string) (list []ingest.EntityName, of bitmap, err error) {
	if id == "" {
		return nil, of, errkind.Errorf(errkind.Unavailable, "some events have no server at the moment")
	}
	m := Member{ID: id}
	if id != s.cfg.Self {
		if m, err = s.member(id); err != nil {
			return nil, of, err
		}
	}
	for from := uint64(0); from < shards.Count; {
		reply, err := s.ask(ctx, m, methodAsk, pack.Uint(pack.String(pack.Uint(nil, askNames), namespace), from), askTime)
		if err != nil {
			return nil, of, errkind.E(errkind.Unavailable, "the server "+m.Name+" has a part of the events, and does not answer", err)
		}
		r := pack.Read(reply)
		next, had := r.Uint(), r.Bytes()
		for r.More() {
			list = append(list, ingest.EntityName{Namespace: r.String(), Name: r.String()})
		}
		if r.Err() != nil || next <= from || len(had) != len(of) {
			return nil, of, errkind.E(errkind.Corrupt, "names of entities", r.Err())
		}
		for i, b := range had {
			of[i] |= b
		}
		from = next
	}
	return list, of, nil
}

// answer answers questions about what is owned here.
func (s *Spread) answer(_ context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	question, namespace := r.Uint(), r.String()
	switch question {
	case askNames:
		from := r.Uint()
		if r.Err() != nil {
			break
		}
		return s.namesFrom(namespace, from), nil
	case askOf:
		entity := r.String()
		if r.Err() != nil {
			break
		}
		list, err := s.cfg.Ingest.Of(namespace, entity)
		var out []byte
		for _, p := range list {
			out = ingest.AppendPublished(out, p)
		}
		return out, err
	case askState:
		entity := r.String()
		if r.Err() != nil {
			break
		}
		if !s.cfg.Ingest.Owns(ingest.ShardOf(namespace, entity)) {
			return nil, ingest.ErrElsewhere
		}
		state, err := s.cfg.Ingest.EntityState(namespace, entity)
		if err != nil || state == nil {
			return nil, err
		}
		return pack.Bytes(nil, tagproto.Append(nil, state)), nil
	case askDelete:
		entity, check := r.String(), r.String()
		if r.Err() != nil {
			break
		}
		if !s.cfg.Ingest.Owns(ingest.ShardOf(namespace, entity)) {
			return nil, ingest.ErrElsewhere
		}
		return pack.Bool(nil, s.cfg.Ingest.Delete(namespace, entity, check)), nil
	}
	return nil, errkind.Errorf(errkind.Invalid, "%s: a question that is none", methodAsk)
}

// namesFrom lists names from a shard on; before them is from which shard the next page is, and of which this one is.
func (s *Spread) namesFrom(namespace string, from uint64) []byte {
	var names []byte
	var of bitmap
	for from < shards.Count && len(names) < pageBytes {
		if s.cfg.Ingest.Entities(uint16(from), namespace, func(namespace, entity string) { names = pack.String(pack.String(names, namespace), entity) }) {
			of.set(int(from))
		}
		from++
	}
	return append(pack.Bytes(pack.Uint(nil, from), of[:]), names...)
}
