package tables

import (
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/token"
)

// Where records of namespaces are: what all of them are read from stands together, so that a start costs three scans
// however many there are; what their mounts keep is below SpaceData and their UUID.
const (
	SpacePrefix       = "core/namespaces/"
	SpaceMountPrefix  = "core/namespace-mounts/"
	SpacePolicyPrefix = "core/namespace-policies/"
	SpaceData         = "namespaces/"
	spaceIdentities   = "logical/identity/"
)

// Space is a namespace other than the root one, as it is stored. Immutable.
type Space struct {
	ID    string            `json:"id"`   // ends the ids of its tokens and leases
	UUID  string            `json:"uuid"` // its records are below it: never used again
	Path  string            `json:"path"` // from the root, with '/' at its end
	Meta  map[string]string `json:"custom_metadata,omitempty"`
	Going bool              `json:"going,omitempty"` // nobody enters any more: its leases are ending
	Lock  string            `json:"lock,omitempty"`  // hash of what unlocks it; "": it is not locked
}

// Data is where the records of its mounts are.
func (s *Space) Data() string { return SpaceData + s.UUID + "/" }

// Scope is what is of one namespace alone.
type Scope struct {
	Space      *Space // nil: the root one
	Mounts     *mount.Table
	Engines    map[string]engine.Engine // by the mount's accessor
	Policies   map[string]*policy.Policy
	ACLs       *ACLs // made anew with the policies
	Identities *identity.Book

	IdentitiesPrefix string // where its records are
	own              bool   // it has more than every namespace has from its beginning
}

// Spaces is an immutable set of namespaces. One that nobody asked for yet is its record and two pointers.
type Spaces struct {
	byPath, byID []*slot
	fresh        func(*Space) Scope // what a namespace has from its beginning
}

// slot is a namespace in a set, with its scope once it was asked for.
type slot struct {
	*Space
	scope atomic.Pointer[Scope]
}

// NewSpaces makes an empty set; fresh gives what a namespace has from its beginning.
func NewSpaces(fresh func(*Space) Scope) *Spaces { return &Spaces{fresh: fresh} }

func comparePath(s *slot, path string) int { return strings.Compare(s.Path, path) }
func compareID(s *slot, id string) int     { return strings.Compare(s.ID, id) }

func (s *Spaces) at(path string) *slot {
	if s == nil {
		return nil
	}
	if i, ok := slices.BinarySearchFunc(s.byPath, path, comparePath); ok {
		return s.byPath[i]
	}
	return nil
}

func (s *Spaces) byName(id string) *slot {
	if s == nil {
		return nil
	}
	if i, ok := slices.BinarySearchFunc(s.byID, id, compareID); ok {
		return s.byID[i]
	}
	return nil
}

// Len is how many there are.
func (s *Spaces) Len() int {
	if s == nil {
		return 0
	}
	return len(s.byPath)
}

// At is the namespace of a path, or nil.
func (s *Spaces) At(path string) *Space {
	if one := s.at(path); one != nil {
		return one.Space
	}
	return nil
}

// ByID is the namespace of an id, or nil.
func (s *Spaces) ByID(id string) *Space {
	if one := s.byName(id); one != nil {
		return one.Space
	}
	return nil
}

// Below gives the namespaces below a path, in the order of their paths.
func (s *Spaces) Below(path string) iter.Seq[*Space] {
	return func(yield func(*Space) bool) {
		if s == nil {
			return
		}
		i, _ := slices.BinarySearchFunc(s.byPath, path, comparePath)
		for _, one := range s.byPath[i:] {
			if !strings.HasPrefix(one.Path, path) {
				return
			}
			if one.Path != path && !yield(one.Space) {
				return
			}
		}
	}
}

// resolve gives the deepest namespace that a path from the root lies in, and the rest; nil is the root one.
func (s *Spaces) resolve(path string) (in *slot, rest string) {
	if s == nil || len(s.byPath) == 0 {
		return nil, path
	}
	for end := 0; ; {
		at := strings.IndexByte(path[end:], '/')
		if at < 0 {
			return in, path[len(in.path()):]
		}
		end += at + 1
		next := s.at(path[:end])
		if next == nil {
			return in, path[len(in.path()):]
		}
		in = next
	}
}

func (s *slot) path() string {
	if s == nil {
		return ""
	}
	return s.Path
}

// With is the set with a namespace as it is now; scope is nil where it has what all have.
func (s *Spaces) With(one *Space, scope *Scope) *Spaces {
	fresh := &slot{Space: one}
	if scope != nil {
		scope.Space, scope.own = one, true
		fresh.scope.Store(scope)
	}
	next := &Spaces{fresh: s.fresh}
	next.byPath = placed(s.byPath, fresh, one.Path, comparePath)
	next.byID = placed(s.byID, fresh, one.ID, compareID)
	return next
}

// WithAll is the set of namespaces that were read; scope gives what one has of its own, nil for nothing.
func (s *Spaces) WithAll(list []*Space, scope func(*Space) *Scope) *Spaces {
	next := &Spaces{fresh: s.fresh, byPath: make([]*slot, len(list))}
	for i, one := range list {
		next.byPath[i] = &slot{Space: one}
		if own := scope(one); own != nil {
			own.Space, own.own = one, true
			next.byPath[i].scope.Store(own)
		}
	}
	next.byID = slices.Clone(next.byPath)
	slices.SortFunc(next.byPath, func(a, b *slot) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(next.byID, func(a, b *slot) int { return strings.Compare(a.ID, b.ID) })
	return next
}

func placed(list []*slot, one *slot, key string, compare func(*slot, string) int) []*slot {
	i, ok := slices.BinarySearchFunc(list, key, compare)
	out := make([]*slot, 0, len(list)+1)
	out = append(append(out, list[:i]...), one)
	if ok {
		i++
	}
	return append(out, list[i:]...)
}

// Describe is the set with another record of a namespace that is in it; what is in the namespace stays.
func (s *Spaces) Describe(one *Space) *Spaces {
	var scope *Scope
	if old := s.byName(one.ID); old != nil {
		if have := old.scope.Load(); have != nil && have.own {
			kept := *have
			scope = &kept
		}
	}
	return s.With(one, scope)
}

// Without is the set without a namespace.
func (s *Spaces) Without(one *Space) *Spaces {
	gone := func(have *slot) bool { return have.ID == one.ID }
	return &Spaces{fresh: s.fresh, byPath: slices.DeleteFunc(slices.Clone(s.byPath), gone),
		byID: slices.DeleteFunc(slices.Clone(s.byID), gone)}
}

// Fresh is what a namespace has from its beginning, for whoever reads what it has beside it.
func (s *Spaces) Fresh(one *Space) Scope { return s.fresh(one) }

// view is the tables of a request in a namespace.
func (st *Tables) view(in *slot) *Tables {
	top := st.Top()
	if in == nil {
		return top
	}
	scope := in.scope.Load()
	if scope == nil {
		made := top.Spaces.fresh(in.Space)
		made.Space = in.Space
		in.scope.CompareAndSwap(nil, &made)
		scope = in.scope.Load()
	}
	out := *top
	out.Scope, out.top = *scope, top
	return &out
}

// Top is the tables of the root namespace.
func (st *Tables) Top() *Tables {
	if st.top != nil {
		return st.top
	}
	return st
}

// Path is the namespace's, from the root; "" is the root one.
func (st *Tables) Path() string {
	if st.Space == nil {
		return ""
	}
	return st.Space.Path
}

// SpaceID is the id that the API tells of the namespace.
func (st *Tables) SpaceID() string {
	if st.Space == nil {
		return RootSpace
	}
	return st.Space.ID
}

// RootSpace is the id of the root namespace.
const RootSpace = "root"

// TokenSpace is what names of tokens call the namespace; "" is the root one.
func (st *Tables) TokenSpace() string {
	if st.Space == nil {
		return ""
	}
	return st.Space.ID
}

// Suffix ends the ids of tokens and leases that are made in the namespace.
func (st *Tables) Suffix() string {
	if st.Space == nil {
		return ""
	}
	return "." + st.Space.ID
}

// In is the tables of a namespace by its id, also of one that is going; "" is the root one. Nil: there is none.
func (st *Tables) In(id string) *Tables {
	if id == "" {
		return st.Top()
	}
	if in := st.Top().Spaces.byName(id); in != nil {
		return st.view(in)
	}
	return nil
}

// Of is the tables of the namespace that a token is of, by the token's name. Nil: that has ended, or is going.
func (st *Tables) Of(hash string) *Tables {
	id := token.Space(hash)
	if id == "" {
		return st.Top()
	}
	if st.Space != nil && st.Space.ID == id && !st.Space.Going {
		return st
	}
	in := st.Top().Spaces.byName(id)
	if in == nil || in.Going {
		return nil
	}
	return st.view(in)
}

// TokenName is the name of a token by its id. An id that ends like a namespace's and was made when there were none
// keeps its name.
func (st *Tables) TokenName(id string) string {
	space := token.SpaceOf(id)
	if space != "" && st.Top().Spaces.byName(space) == nil {
		space = ""
	}
	return st.Book.Name(id, space)
}

// Sees reports whether something of a token's namespace may be told of in this one: it is the same, or below.
func (st *Tables) Sees(hash string) bool {
	of := st.Of(hash)
	return of != nil && strings.HasPrefix(of.Path(), st.Path())
}

// Resolve finds the namespace of a request: named is the one that it names, path is below that. False: there is none
// of that name, or it is going.
func (st *Tables) Resolve(named, path string) (in *Tables, rest string, ok bool) {
	top := st.Top()
	if named == "" && top.Spaces.Len() == 0 {
		return top, path, true
	}
	found, rest := top.Spaces.resolve(named + path)
	if len(found.path()) < len(named) || found != nil && found.Going {
		return top, path, false
	}
	in = top.view(found)
	if found != nil {
		in.Locked = top.Spaces.lockedAbove(found.Path)
	}
	return in, rest, true
}

// lockedAbove is the first namespace on a path that is locked, or nil.
func (s *Spaces) lockedAbove(path string) *Space {
	for end := 0; end < len(path); {
		end += strings.IndexByte(path[end:], '/') + 1
		if one := s.at(path[:end]); one != nil && one.Lock != "" {
			return one.Space
		}
	}
	return nil
}

// Route finds the mount of a path from the root, also in a namespace that is going. The entry is nil where there is
// none.
func (st *Tables) Route(path string) (in *Tables, e *mount.Entry, rest string) {
	found, rest := st.Top().Spaces.resolve(path)
	in = st.view(found)
	e, rest = in.Mounts.Route(rest)
	return in, e, rest
}

// Mounted finds a mount by its accessor, in any namespace.
func (st *Tables) Mounted(accessor string) (in *Tables, e *mount.Entry) {
	for one := range st.Each() {
		if e := one.Mounts.ByAccessor(accessor); e != nil {
			return one, e
		}
	}
	return nil, nil
}

// Each gives the root namespace, and those that have more than every namespace has from its beginning.
func (st *Tables) Each() iter.Seq[*Tables] {
	return func(yield func(*Tables) bool) {
		top := st.Top()
		if !yield(top) || top.Spaces == nil {
			return
		}
		for _, in := range top.Spaces.byPath {
			if scope := in.scope.Load(); scope != nil && scope.own && !yield(top.view(in)) {
				return
			}
		}
	}
}

// Own makes a new mount one of the namespace.
func (st *Tables) Own(e *mount.Entry) {
	if st.Space != nil {
		e.Base, e.Space = st.Space.Data(), st.Space.ID
	}
}

// CheckMount reports why nothing may be mounted at a path of the namespace, beside what is mounted there and the
// namespaces below.
func (st *Tables) CheckMount(beside *mount.Table, path string) error {
	if err := beside.CheckNew(path); err != nil {
		return err
	}
	full := st.Path() + path
	below, _ := st.Top().Spaces.resolve(full)
	for one := range st.Top().Spaces.Below(full) {
		below = &slot{Space: one}
		break
	}
	if below != nil && below.Path != st.Path() {
		return errkind.Errorf(errkind.Invalid, "path is already in use at %s: a namespace",
			strings.TrimPrefix(below.Path, st.Path()))
	}
	return nil
}

// MountKey is where a mount's entry is stored.
func (st *Tables) MountKey(uuid string) string {
	if st.Space == nil {
		return MountPrefix + uuid
	}
	return SpaceMountPrefix + st.Space.UUID + "/" + uuid
}

// PolicyKey is where a policy is stored.
func (st *Tables) PolicyKey(name string) string {
	if st.Space == nil {
		return PolicyPrefix + name
	}
	return SpacePolicyPrefix + st.Space.UUID + "/" + name
}

// Key is where a record of the plane's own is kept that each namespace has for itself.
func (st *Tables) Key(key string) string {
	if st.Space == nil {
		return key
	}
	return st.Space.Data() + key
}

// IdentitiesAt is where the identities of a namespace are.
func (s *Space) IdentitiesAt() string { return s.Data() + spaceIdentities }

// IdentityKey cuts where a namespace's identities are off a key.
func IdentityKey(key string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(key, SpaceData); !ok {
		return "", false
	}
	_, rest, _ = strings.Cut(rest, "/")
	return strings.CutPrefix(rest, spaceIdentities)
}

// FreshMounts are the mounts that a namespace has from its beginning. Cubbyholes are in the root one's records: names
// of tokens are their own in all namespaces.
func FreshMounts(s *Space, cubbyhole *mount.Entry) []*mount.Entry {
	at := func(path, kind, about string) *mount.Entry {
		return &mount.Entry{Path: path, Type: kind, Description: about, UUID: kind, Base: s.Data(), Space: s.ID,
			Accessor: kind + "_" + s.UUID[:8]}
	}
	list := []*mount.Entry{at("sys/", "system", "system endpoints used for control, policy and debugging"),
		at("identity/", "identity", "identity store"), at("auth/token/", "token", "token based credentials")}
	list[2].Accessor = "auth_" + list[2].Accessor
	if cubbyhole != nil {
		own := *cubbyhole
		own.Space, own.Accessor = s.ID, "cubbyhole_"+s.UUID[:8]
		list = append(list, &own)
	}
	return list
}
