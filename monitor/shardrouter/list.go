package shardrouter

import (
	"context"
	"iter"
	"sync"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/shards"
)

// List lists events in order, behind a place, whichever servers have them. Each server is asked for a page at a time,
// so memory holds one page of each. A page tells of which shards it is: while one is missing, because it is on its
// way, all are asked again from where the list is. An error ends the list; one of kind Unavailable names who does not
// answer.
func (s *Router) List(ctx context.Context, r ingest.Range) iter.Seq2[*ingest.Published, error] {
	return func(yield func(*ingest.Published, error) bool) {
		l := listing{s: s, r: r, parts: map[string]*part{}}
		for {
			if err := l.fill(ctx); err != nil {
				yield(nil, err)
				return
			}
			if more, err := l.merge(yield); err != nil {
				yield(nil, err)
				return
			} else if !more {
				return
			}
		}
	}
}

// listing is a list on its way: everything up to r.After was given.
type listing struct {
	s     *Router
	r     ingest.Range
	parts map[string]*part // by server
}

// part is a page of one server, as far as it was not given yet.
type part struct {
	page ingest.Page
	head *ingest.Published // the next one; nil is none
	here []*ingest.Published
	away *pack.Reader
}

// next makes the following event the head.
func (p *part) next() (err error) {
	p.head = nil
	switch {
	case len(p.here) > 0:
		p.head, p.here = p.here[0], p.here[1:]
	case p.away != nil && p.away.More():
		if p.head, err = ingest.ReadPublished(p.away); err != nil {
			return errkind.E(errkind.Unavailable, "a page of events cannot be read", err) // the list cannot go on
		}
	}
	return nil
}

// fill asks all owners of which there is no page, until the pages are of all shards.
func (l *listing) fill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for {
		changed := l.s.changes()
		if ctx.Err() != nil {
			return errkind.E(errkind.Unavailable, "the list took too long, or nobody waits for it", ctx.Err())
		}
		err := l.ask(ctx)
		if err == nil && l.whole() {
			return nil
		}
		if err == nil { // what is missing in one page may be in another one by now
			clear(l.parts)
			err = errkind.Errorf(errkind.Unavailable, "some events are on their way to another server")
		}
		if !lookAgain(ctx, changed) {
			return err
		}
	}
}

func (l *listing) ask(ctx context.Context) error {
	t := l.s.table.Load()
	if t == nil {
		return errkind.Errorf(errkind.Unavailable, "this server does not know yet which server has which events")
	}
	owners := map[string]bool{}
	for _, one := range t {
		if one.Owner == "" {
			return errkind.Errorf(errkind.Unavailable, "some events have no server at the moment")
		}
		owners[one.Owner] = l.parts[one.Owner] == nil
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	var failed error
	for id, lacking := range owners {
		if !lacking {
			continue
		}
		asking.Go(func() {
			p, err := pages{l.s}.part(ctx, id, l.r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			l.parts[id] = p
		})
	}
	asking.Wait()
	return failed
}

// whole says whether each shard is in some page.
func (l *listing) whole() bool {
	for i := range shards.Count {
		has := false
		for _, p := range l.parts {
			has = has || p.page.Owned[i]
		}
		if !has {
			return false
		}
	}
	return true
}

// merge gives the events up to where the first page ends; more says that others are behind it.
func (l *listing) merge(yield func(*ingest.Published, error) bool) (more bool, err error) {
	var upto ingest.Place
	for _, p := range l.parts {
		if !p.page.End && (!more || p.page.Upto.Compare(upto) < 0) {
			upto, more = p.page.Upto, true
		}
	}
	for {
		var least *part
		for _, p := range l.parts {
			if p.head != nil && (least == nil || p.head.At().Compare(least.head.At()) < 0) {
				least = p
			}
		}
		if least == nil || more && least.head.At().Compare(upto) > 0 {
			break
		}
		e := least.head
		for _, p := range l.parts { // a shard that moved is in two pages
			if p.head != nil && p.head.At() == e.At() {
				if err := p.next(); err != nil {
					return false, err
				}
			}
		}
		if !yield(e, nil) {
			return false, nil
		}
	}
	l.r.After = upto
	for id, p := range l.parts {
		if !p.page.End && p.page.Upto == upto {
			delete(l.parts, id)
		}
	}
	return more, nil
}

// pages are lists that come from several servers, page by page.
type pages struct{ *Router }

// part asks one server for a page.
func (s pages) part(ctx context.Context, id string, r ingest.Range) (*part, error) {
	p := &part{}
	if id == s.cfg.Self {
		p.page = s.cfg.Ingest.Page(r, func(e *ingest.Published) bool {
			p.here = append(p.here, e)
			return len(p.here) < ingest.PageEvents
		})
		return p, p.next()
	}
	m, err := s.member(id)
	if err != nil {
		return nil, err
	}
	req := pack.String(pack.String(pack.Uint(nil, askPage), r.Namespace), r.Check)
	req = pack.Uint(appendPlace(req, r.After), uint64(r.Most))
	reply, err := s.ask(ctx, m, methodAsk, req, askTime)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "the server "+m.Name+" has a part of the events, and does not answer", err)
	}
	p.away = pack.Read(reply)
	p.page.Upto, p.page.End = readPlace(p.away), p.away.Bool()
	had := p.away.Bytes()
	if p.away.Err() != nil || len(had) != len(bitmap{}) || !p.page.End && p.page.Upto.Compare(r.After) <= 0 {
		return nil, errkind.E(errkind.Unavailable, "the server "+m.Name+" answers with something else than a page of events",
			p.away.Err())
	}
	of := bitmap(had)
	for i := range p.page.Owned {
		p.page.Owned[i] = of.has(i)
	}
	return p, p.next()
}

func appendPlace(b []byte, p ingest.Place) []byte {
	return pack.String(pack.String(pack.String(b, p.Namespace), p.Entity), p.Check)
}

func readPlace(r *pack.Reader) ingest.Place {
	return ingest.Place{Namespace: r.String(), Entity: r.String(), Check: r.String()}
}

// pageFrom answers with a page: where it ends, of which shards it is, and its events.
func (s pages) pageFrom(r ingest.Range) []byte {
	var events []byte
	n := 0
	page := s.cfg.Ingest.Page(r, func(p *ingest.Published) bool {
		events, n = ingest.AppendPublished(events, p), n+1
		return len(events) < s.pageBytes && (r.Most == 0 || n < r.Most)
	})
	var of bitmap
	for i, owned := range page.Owned {
		if owned {
			of.set(i)
		}
	}
	return append(pack.Bytes(pack.Bool(appendPlace(nil, page.Upto), page.End), of[:]), events...)
}

// EntityStates is EntityState of many entities, in their order: one question to each server, or a few where the
// answer is long.
func (s *Router) EntityStates(ctx context.Context, names []ingest.EntityName) ([]*monitor.EntityState, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out, left := make([]*monitor.EntityState, len(names)), make([]int, len(names))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		changed := s.changes()
		rest, err := pages{s}.states(ctx, names, left, out)
		if err != nil && !errkind.Is(err, errkind.NotLeader) && !errkind.Is(err, errkind.Unavailable) {
			return nil, err
		}
		if left = rest; err == nil {
			continue
		}
		if !lookAgain(ctx, changed) {
			return nil, errkind.E(errkind.Unavailable, "entities", err)
		}
	}
	return out, nil
}

// states asks each owner once for those of names that are left, and returns which are left then.
func (s pages) states(ctx context.Context, names []ingest.EntityName, left []int,
	out []*monitor.EntityState) (rest []int, err error) {
	byOwner := map[string][]int{}
	for _, i := range left {
		owner := s.owner(ingest.ShardOf(names[i].Namespace, names[i].Name))
		byOwner[owner] = append(byOwner[owner], i)
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for owner, list := range byOwner {
		asking.Go(func() {
			n, failed := s.statesAt(ctx, owner, names, list, out)
			mu.Lock()
			defer mu.Unlock()
			rest = append(rest, list[n:]...)
			if failed != nil {
				err = failed
			}
		})
	}
	asking.Wait()
	return rest, err
}

// statesAt asks one server, and returns how many of list it told.
func (s pages) statesAt(ctx context.Context, owner string, names []ingest.EntityName, list []int,
	out []*monitor.EntityState) (n int, err error) {
	if owner == "" {
		return 0, errkind.Errorf(errkind.Unavailable, "some entities have no server at the moment")
	}
	m := Member{ID: owner}
	if owner != s.cfg.Self {
		if m, err = s.member(owner); err != nil {
			return 0, err
		}
	}
	req := pack.String(pack.Uint(nil, askStates), "")
	for _, i := range list {
		req = pack.String(pack.String(req, names[i].Namespace), names[i].Name)
	}
	reply, err := s.ask(ctx, m, methodAsk, req, askTime)
	if errkind.Is(err, errkind.NotLeader) {
		return 0, err
	}
	if err != nil {
		return 0, errkind.E(errkind.Unavailable, "the server "+m.Name+" has a part of the entities, and does not answer", err)
	}
	for r := pack.Read(reply); r.More(); n++ {
		b := r.Bytes()
		if n == len(list) || r.Err() != nil {
			return 0, errkind.E(errkind.Corrupt, "states of entities", r.Err())
		}
		if len(b) == 0 {
			continue
		}
		state := new(monitor.EntityState)
		if err := tagproto.Unmarshal(b, state); err != nil {
			return n, err
		}
		out[list[n]] = state
	}
	if n == 0 {
		return 0, errkind.Errorf(errkind.Corrupt, "the server %s tells of no entity", m.Name)
	}
	return n, nil
}

// statesOf answers with what agents said of entities, as far as it goes into an answer; empty is nothing.
func (s pages) statesOf(r *pack.Reader) ([]byte, error) {
	var out []byte
	for r.More() && len(out) < s.pageBytes {
		namespace, entity := r.String(), r.String()
		if r.Err() != nil {
			return nil, r.Err()
		}
		if !s.cfg.Ingest.Owns(ingest.ShardOf(namespace, entity)) {
			if out == nil {
				return nil, ingest.ErrElsewhere
			}
			break
		}
		state, err := s.cfg.Ingest.EntityState(namespace, entity)
		if err != nil {
			return nil, err
		}
		var b []byte
		if state != nil {
			b = tagproto.Append(nil, state)
		}
		out = pack.Bytes(out, b)
	}
	return out, nil
}
