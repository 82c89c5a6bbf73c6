package session

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// Session is the state of one stream. Use New.
type Session struct {
	world bool
	dirty mesh.Types // to be compared with their sets
	// removing are the types of which something is to be removed in the last phase.
	removing mesh.Types
	nonce    uint32 // of the newest response of any type
	kinds    [typeCount]*kind
	// parents changed before the client said what it has of the types that they refer to.
	parents []*mesh.Resource
}

const typeCount = int(mesh.TypeRoute) + 1

// kind is what the session knows about one type.
type kind struct {
	entries []entry // by name
	// unanswered is the nonce of the response that was not answered yet, 0 for none; last is the newest one's.
	unanswered, last uint32
	wildcard         bool // everything in the set is wanted
	resumed          bool // the client brought versions along
	begun            bool // compared with its set at least once
	told             bool // a response was sent: what changes from here on is news
	sentAt           time.Time
	changed          time.Time // of the unanswered response
	initial          []Held    // what a reconnecting client has; nil after the first comparison
}

type entry struct {
	name  string
	sent  *mesh.Resource // the content sent last; nil: the client has none
	acked *mesh.Resource // the content acknowledged last
	named bool           // the client asked for it by name
	again bool           // send it though it did not change
	wait  bool           // part of the unanswered response
	gone  bool           // its removal is part of the unanswered response
}

// New returns the session of a new stream; world is the state-of-the-world variant.
func New(world bool) *Session { return &Session{world: world} }

// Make returns a new stream's session to be kept within another value.
func Make(world bool) Session { return Session{world: world} }

// World reports the variant.
func (s *Session) World() bool { return s.world }

// Changed says that the sets of the types may have changed.
func (s *Session) Changed(types mesh.Types) { s.dirty |= types }

// Waiting reports whether Next may have something to say: an acknowledgement
// alone often leaves nothing to do.
func (s *Session) Waiting() bool { return s.dirty|s.removing != 0 }

// Answer is what a request acknowledged or refused.
type Answer struct {
	Type mesh.Type
	// Resources are those of the answered response, valid until the next call.
	Resources []*mesh.Resource
	// Removed counts the removals that it acknowledged.
	Removed int
	// Refused is the client's reason, cut; "" is an acknowledgement.
	Refused string
	// Sent is when the response was made, and Changed its Response.Changed.
	Sent, Changed time.Time
}

// Request takes in a request. It reports whether that answered a response and
// fills answer then. An error ends the stream.
func (s *Session) Request(r *Request, answer *Answer) (bool, error) {
	if !r.Known {
		return false, nil
	}
	k := s.kinds[r.Type]
	first := k == nil
	if first {
		k = &kind{}
		s.kinds[r.Type] = k
	}
	if s.world && r.Nonce != 0 && k.last != 0 && r.Nonce != k.last {
		return false, nil // about a response that a newer one replaced
	}
	answered := r.Nonce != 0 && r.Nonce == k.unanswered
	if answered {
		k.answer(r, answer) // what waited for this one is dirty itself
	}
	var err error
	if s.world {
		err = s.wanted(k, r, first)
	} else {
		err = s.subscriptions(k, r, first)
	}
	return answered, err
}

func (k *kind) answer(r *Request, a *Answer) {
	k.unanswered = 0
	*a = Answer{Type: r.Type, Resources: a.Resources[:0], Sent: k.sentAt, Changed: k.changed}
	if r.Failed {
		a.Refused = r.Error
	}
	removed := false
	for i := range k.entries {
		e := &k.entries[i]
		if e.gone {
			a.Removed++
			removed = true
			e.gone = false
			if e.sent == nil {
				e.acked = nil
			}
		}
		if !e.wait {
			continue
		}
		e.wait = false
		if e.sent == nil {
			continue // unsubscribed and subscribed again meanwhile
		}
		a.Resources = append(a.Resources, e.sent)
		if !r.Failed {
			e.acked = e.sent
		}
	}
	if removed {
		k.drop()
	}
}

// drop forgets entries that nobody wants and the client does not have.
func (k *kind) drop() {
	k.entries = slices.DeleteFunc(k.entries, func(e entry) bool { return e.sent == nil && !e.named && !e.gone })
}

func (k *kind) find(name string) (int, bool) {
	return slices.BinarySearchFunc(k.entries, name, func(e entry, name string) int {
		return strings.Compare(e.name, name)
	})
}

func (k *kind) entry(name string) *entry {
	at, ok := k.find(name)
	if !ok {
		k.entries = slices.Insert(k.entries, at, entry{name: name})
	}
	return &k.entries[at]
}

// fewNames are put in place one by one; of more the entries are made anew, since each one that is put moves all
// behind it.
const fewNames = 8

// merge makes entries for many names at once, and sorts these. What it leaves out entry makes.
func (k *kind) merge(names []string) {
	if len(names) <= fewNames {
		return
	}
	slices.Sort(names)
	missing, at := 0, 0
	for i, name := range names {
		for at < len(k.entries) && k.entries[at].name < name {
			at++
		}
		if new := i == 0 || names[i-1] != name; new && name != "*" && (at == len(k.entries) || k.entries[at].name != name) {
			missing++
		}
	}
	if missing == 0 {
		return
	}
	all := make([]entry, 0, len(k.entries)+missing)
	rest := k.entries
	for i, name := range names {
		for len(rest) > 0 && rest[0].name < name {
			all, rest = append(all, rest[0]), rest[1:]
		}
		if i > 0 && names[i-1] == name || name == "*" || len(rest) > 0 && rest[0].name == name {
			continue
		}
		all = append(all, entry{name: name})
	}
	k.entries = append(all, rest...)
}

func hasWildcard(t mesh.Type) bool { return t == mesh.TypeCluster || t == mesh.TypeListener }

// subscriptions takes in what a delta request wants and no longer wants.
func (s *Session) subscriptions(k *kind, r *Request, first bool) error {
	if !first && len(r.Subscribe)+len(r.Unsubscribe) == 0 {
		return nil
	}
	s.dirty |= 1 << r.Type
	if first && len(r.Subscribe) == 0 && hasWildcard(r.Type) {
		k.wildcard = true // how a client that knows no "*" asks for everything
	}
	if first {
		k.initial = slices.Clone(r.Initial)
	}
	if slices.Contains(r.Unsubscribe, "*") {
		k.wildcard = false
		k.keepNamed()
	}
	for _, name := range r.Unsubscribe {
		if at, ok := k.find(name); ok && k.entries[at].named {
			k.entries[at].named = false
			if !k.wildcard {
				k.entries[at].sent, k.entries[at].gone = nil, false
			}
		}
	}
	k.drop()
	k.merge(r.Subscribe)
	for _, name := range r.Subscribe {
		if name == "*" {
			k.wildcard = true
			continue
		}
		// A client that asks again may have forgotten it, so it is sent again.
		e := k.entry(name)
		e.named, e.again = true, true
	}
	if len(k.entries) > maxNames {
		return errkind.Errorf(errkind.Invalid, "the stream asks for more than %d %s", maxNames, r.Type)
	}
	return nil
}

func (k *kind) keepNamed() {
	k.entries = slices.DeleteFunc(k.entries, func(e entry) bool { return !e.named })
}

// wanted takes in the list of names of a state-of-the-world request.
func (s *Session) wanted(k *kind, r *Request, first bool) error {
	everything := slices.Contains(r.Subscribe, "*") ||
		(len(r.Subscribe) == 0 && hasWildcard(r.Type) && (first || k.wildcard))
	if first || everything != k.wildcard {
		s.dirty |= 1 << r.Type
	}
	k.wildcard = everything
	names := r.Subscribe
	slices.Sort(names)
	for i := range k.entries {
		e := &k.entries[i]
		if _, e.named = slices.BinarySearch(names, e.name); !e.named && !everything {
			e.sent, e.gone = nil, false
			s.dirty |= 1 << r.Type
		}
	}
	k.drop()
	k.merge(names)
	for _, name := range names {
		if name == "*" {
			continue
		}
		if e := k.entry(name); !e.named || e.sent == nil {
			e.named = true
			s.dirty |= 1 << r.Type
		}
	}
	return nil
}

// mentions reports whether r's content names name: a cluster its endpoints, a
// listener its routes. Looking for the bytes may find one too many, which is
// sent once more than needed; it cannot miss one.
func mentions(r *mesh.Resource, name string) bool {
	return name != "" && (r.Name == name || bytes.Contains(r.Any, []byte(name)))
}

// Entry is a resource as the client has it, for those who look.
type Entry struct {
	Name        string
	Sent, Acked *mesh.Resource
}

// Entries returns what the client was sent of a type, by name.
func (s *Session) Entries(t mesh.Type) []Entry {
	k := s.kinds[t]
	if k == nil {
		return nil
	}
	var out []Entry
	for _, e := range k.entries {
		out = append(out, Entry{Name: e.name, Sent: e.sent, Acked: e.acked})
	}
	return out
}
