package shardrouter

import (
	"context"
	"math"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
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
	askPage   = 2 // events behind a place
	askDelete = 3
	askState  = 4 // of an entity
	askStates = 5 // of many
)

// at returns the server that has a shard; here says that it is this one.
func (s *Router) at(shard uint16) (m Member, here bool, err error) {
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

// Events returns the newest events of an entity, by check. Errors: Unavailable, the server that has them does not
// answer.
func (s *Router) Events(ctx context.Context, namespace, entity string) ([]*ingest.Published, error) {
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
func (s *Router) Get(ctx context.Context, namespace, entity, check string) (*monitor.Event, error) {
	list, err := s.Events(ctx, namespace, entity)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if p.Check == check {
			return p.Event()
		}
	}
	return nil, errkind.Errorf(errkind.NotFound, "no event of check %q on entity %q in namespace %q", check,
		entity, namespace)
}

// EntityState returns what the agent of an entity, or whoever sends results for it, said of it last; nil is nothing.
func (s *Router) EntityState(ctx context.Context, namespace, entity string) (state *monitor.EntityState, err error) {
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

// Delete removes the event of a check, all of an entity's without one ("" is all checks). It reports whether there
// was any.
func (s *Router) Delete(ctx context.Context, namespace, entity, check string) (found bool, err error) {
	shard := ingest.ShardOf(namespace, entity)
	err = s.where(ctx, shard, func() error {
		if !s.cfg.Ingest.Owns(shard) {
			return ingest.ErrElsewhere
		}
		found = s.cfg.Ingest.Delete(namespace, entity, check)
		return nil
	}, pack.String(pack.String(pack.String(pack.Uint(nil, askDelete), namespace), entity), check),
		func(r *pack.Reader) error {
			found = r.Bool()
			return r.Err()
		})
	return found, err
}

// where does something here, or has the owner of a shard do it; while the shard moves, again.
func (s *Router) where(ctx context.Context, shard uint16, here func() error, req []byte,
	read func(*pack.Reader) error) error {
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
		if !lookAgain(ctx, changed) {
			return err
		}
	}
}

// answer answers questions about what is owned here.
func (s *Router) answer(_ context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	question, namespace := r.Uint(), r.String()
	switch question {
	case askPage:
		list := ingest.Range{Namespace: namespace, Check: r.String(), After: readPlace(r)}
		list.Most = int(min(r.Uint(), math.MaxInt32))
		if r.Err() != nil {
			break
		}
		return pages{s}.pageFrom(list), nil
	case askStates:
		return pages{s}.statesOf(r)
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
