package session

import (
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/mesh"
)

// Sets is where the resources come from.
type Sets interface {
	Set(t mesh.Type) mesh.Set
}

// Response is what to send next. It is reused: Next clears it.
type Response struct {
	Type      mesh.Type
	Nonce     uint32
	Resources []*mesh.Resource
	Removed   []string // delta only
	// Changed is when the newest of the resources was changed, zero for what a client gets because it is new.
	Changed time.Time
	// Resumed are resources that the client had already when it connected, also when Next reports false.
	Resumed []*mesh.Resource
}

func (r *Response) reset() {
	clear(r.Resources)
	clear(r.Removed)
	clear(r.Resumed)
	*r = Response{Resources: r.Resources[:0], Removed: r.Removed[:0], Resumed: r.Resumed[:0]}
}

var (
	additions = [...]mesh.Type{mesh.TypeSecret, mesh.TypeCluster, mesh.TypeEndpoints, mesh.TypeExtension,
		mesh.TypeListener, mesh.TypeRoute}
	removals = [...]mesh.Type{mesh.TypeCluster, mesh.TypeEndpoints, mesh.TypeExtension, mesh.TypeSecret}
)

// late reports whether removals of the type wait for the last phase.
func late(t mesh.Type) bool { return t != mesh.TypeListener && t != mesh.TypeRoute }

// Next fills out with the next response, or reports that there is nothing to
// send until a request or a change comes in.
func (s *Session) Next(sets Sets, now time.Time, out *Response) bool {
	out.reset()
	for _, t := range additions {
		if !s.dirty.Has(t) {
			continue
		}
		k := s.kinds[t]
		if k == nil {
			s.dirty &^= 1 << t
			continue
		}
		if k.unanswered != 0 || (!late(t) && (s.unanswered(mesh.TypeCluster) || s.unanswered(mesh.TypeEndpoints))) {
			continue
		}
		set := sets.Set(t)
		s.take(t, k, set, out)
		s.dirty &^= 1 << t
		if s.add(t, k, set, out) || s.mustSayNothing(t, k) {
			s.commit(t, k, now, out)
			return true
		}
	}
	for _, t := range removals {
		k := s.kinds[t]
		if k == nil || !s.removing.Has(t) || !s.mayRemove(t) {
			continue
		}
		s.removing &^= 1 << t
		if s.remove(t, k, sets.Set(t), out) {
			s.commit(t, k, now, out)
			return true
		}
	}
	return false
}

// mustSayNothing reports whether an empty response is due: who asks for everything
// for the first time waits for an answer before it goes live, and a state-of-the-world
// client may have what is gone. Who brought versions along is told of removals.
func (s *Session) mustSayNothing(t mesh.Type, k *kind) bool {
	return hasWildcard(t) && k.wildcard && !k.told && (s.world || !k.resumed)
}

func (s *Session) unanswered(t mesh.Type) bool {
	return s.kinds[t] != nil && s.kinds[t].unanswered != 0
}

// mayRemove: what refers to the type has heard of the change and answered.
func (s *Session) mayRemove(t mesh.Type) bool {
	if s.unanswered(t) || s.dirty.Has(t) {
		return false
	}
	for _, user := range [...]mesh.Type{mesh.TypeListener, mesh.TypeRoute, mesh.TypeCluster} {
		if user == t {
			break
		}
		k := s.kinds[user]
		if k != nil && (k.unanswered != 0 || s.dirty.Has(user) || (user == mesh.TypeCluster && s.removing.Has(user))) {
			return false
		}
	}
	return true
}

// take matches the entries with the set before a comparison: what a wildcard
// adds gets an entry, and what the client brought along is noted.
func (s *Session) take(t mesh.Type, k *kind, set mesh.Set, out *Response) {
	if k.wildcard {
		k.adopt(set)
		names := make([]string, len(k.initial))
		for i := range k.initial {
			names[i] = k.initial[i].Name
		}
		k.merge(names)
	}
	for _, h := range k.initial {
		at, ok := k.find(h.Name)
		if !ok && !k.wildcard {
			continue
		}
		if r := set.Get(h.Name); r != nil && r.Version == h.Version {
			e := &k.entries[at]
			e.sent, e.acked, e.name, e.again = r, r, r.Name, false
			out.Resumed = append(out.Resumed, r)
			continue
		}
		// It was changed or removed while the client was away: a stand-in for what it has.
		k.entry(h.Name).sent = &mesh.Resource{Type: t, Name: h.Name, Version: h.Version}
	}
	k.resumed = k.resumed || len(k.initial) > 0
	k.initial, k.begun = nil, true
	s.parents = slices.DeleteFunc(s.parents, func(r *mesh.Resource) bool {
		if childOf(r.Type) != t {
			return false
		}
		s.resend(r)
		return true
	})
}

// childOf returns the type that clients want again when a resource of t changed, or t.
func childOf(t mesh.Type) mesh.Type {
	switch t {
	case mesh.TypeCluster:
		return mesh.TypeEndpoints
	case mesh.TypeListener:
		return mesh.TypeRoute
	}
	return t
}

// adopt makes entries for the resources of the set that have none.
func (k *kind) adopt(set mesh.Set) {
	missing := 0
	list := set.All()
	for i, j := 0, 0; j < len(list); {
		if i < len(k.entries) && k.entries[i].name < list[j].Name {
			i++
			continue
		}
		if i == len(k.entries) || k.entries[i].name != list[j].Name {
			missing++
		} else {
			i++
		}
		j++
	}
	if missing == 0 {
		return
	}
	k.entries = slices.Grow(k.entries, missing)
	had := len(k.entries)
	for i, r := range list {
		if _, ok := slices.BinarySearchFunc(k.entries[:had], r.Name,
			func(e entry, n string) int { return strings.Compare(e.name, n) }); !ok {
			k.entries = append(k.entries, entry{name: list[i].Name})
		}
	}
	slices.SortFunc(k.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
}

// stale reports whether the client must be sent r.
func (e *entry) stale(r *mesh.Resource) bool {
	if e.again || e.sent == nil {
		return true
	}
	if e.sent == r {
		return false
	}
	if e.sent.Version != r.Version {
		return true
	}
	if e.acked == e.sent {
		e.acked = r
	}
	e.sent = r // the same content built again: let the older one go
	return false
}

// add collects what is new of a type. Listeners and routes take their removals along.
func (s *Session) add(t mesh.Type, k *kind, set mesh.Set, out *Response) bool {
	list := set.All()
	size, at, gone := 0, 0, false
	for i := range k.entries {
		e := &k.entries[i]
		for at < len(list) && list[at].Name < e.name {
			at++
		}
		if at == len(list) || list[at].Name != e.name {
			gone = gone || e.sent != nil
			e.again = false // it will be news when it comes to be
			continue
		}
		if r := list[at]; e.stale(r) {
			if size != 0 && size+len(r.Body) > responseBytes && !s.whole(t) {
				s.dirty |= 1 << t // the rest follows after the answer
				continue
			}
			size += len(r.Body)
			s.send(t, k, e, r, out)
		}
	}
	if !gone {
		return s.complete(t, k, len(out.Resources) > 0, set, out)
	}
	if late(t) {
		s.removing |= 1 << t
		return s.complete(t, k, len(out.Resources) > 0, set, out)
	}
	return s.remove(t, k, set, out)
}

// whole reports whether a response must hold everything: state of the world, of clusters and listeners.
func (s *Session) whole(t mesh.Type) bool { return s.world && hasWildcard(t) }

// send notes that e is part of the response and what must come along.
func (s *Session) send(t mesh.Type, k *kind, e *entry, r *mesh.Resource, out *Response) {
	out.Resources = append(out.Resources, r)
	if k.told && !e.again && r.Changed.After(out.Changed) {
		out.Changed = r.Changed
	}
	if e.sent != nil && childOf(t) != t {
		s.resend(r)
	}
	e.name, e.sent, e.again, e.wait, e.gone = r.Name, r, false, true, false
}

// resend marks what r refers to. Before the client said what it has of that
// type, r is remembered: who comes back names its types one after the other.
func (s *Session) resend(r *mesh.Resource) {
	t := childOf(r.Type)
	k := s.kinds[t]
	if k == nil || !k.begun {
		same := func(old *mesh.Resource) bool { return old.Type == r.Type && old.Name == r.Name }
		s.parents = append(slices.DeleteFunc(s.parents, same), r)
		return
	}
	for i := range k.entries {
		if e := &k.entries[i]; e.sent != nil && mentions(r, e.name) {
			e.again = true
			s.dirty |= 1 << t
		}
	}
}

// remove collects what the client has and the set has no longer.
func (s *Session) remove(t mesh.Type, k *kind, set mesh.Set, out *Response) bool {
	removed := false
	for i := range k.entries {
		e := &k.entries[i]
		if e.sent == nil || set.Get(e.name) != nil {
			continue
		}
		e.sent, e.again, e.wait = nil, false, false
		if e.gone = !s.world || s.whole(t); !e.gone {
			continue // nothing says so in this variant: the client finds out by what refers to it
		}
		removed = true
		if !s.world {
			out.Removed = append(out.Removed, e.name)
		}
	}
	return s.complete(t, k, removed || len(out.Resources) > 0, set, out)
}

// complete makes the response whole where it must be: with what did not change,
// and with what is only to be removed in the last phase.
func (s *Session) complete(t mesh.Type, k *kind, any bool, set mesh.Set, out *Response) bool {
	if !any || !s.whole(t) {
		return any
	}
	out.Resources = out.Resources[:0]
	for i := range k.entries {
		e := &k.entries[i]
		r := set.Get(e.name)
		if r == nil {
			r = e.sent
		}
		if r != nil {
			out.Resources = append(out.Resources, r)
			e.sent, e.wait = r, true
		}
	}
	return true
}

func (s *Session) commit(t mesh.Type, k *kind, now time.Time, out *Response) {
	s.nonce++
	if s.nonce == unknownNonce {
		s.nonce = 1
	}
	out.Type, out.Nonce = t, s.nonce
	k.unanswered, k.last, k.told, k.sentAt, k.changed = s.nonce, s.nonce, true, now, out.Changed
}
