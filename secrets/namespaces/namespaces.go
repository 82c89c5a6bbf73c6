package namespaces

import (
	"crypto/rand"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/leases"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// Bounds of a namespace's path, from the root.
const (
	pathBytes = 512
	pathDepth = 16
)

// reserved are names that paths below a namespace begin with, or that mean the root one.
var reserved = []string{"root", "sys", "audit", "auth", "cubbyhole", "identity", "api-lock"}

// Namespaces makes and ends namespaces.
type Namespaces struct {
	Gate    *tables.Gate
	Records *sealed.Store
	Leases  *leases.Leases
	Flying  *flight.List

	sweep  sync.Mutex      // one walk over those that end at a time; guards queued
	queued map[string]bool // whose leases were made due by this server, by UUID
}

// Rows are the paths of sys/ that it answers.
func (n *Namespaces) Rows() []system.Row {
	return []system.Row{
		{Path: "namespaces", InNamespaces: true, List: n.list, Scan: n.scan},
		{Path: "namespaces/api-lock/lock", InNamespaces: true, Write: n.lock},
		{Path: "namespaces/api-lock/lock/", InNamespaces: true, Write: n.lock},
		{Path: "namespaces/api-lock/unlock", InNamespaces: true, Write: n.unlock},
		{Path: "namespaces/api-lock/unlock/", InNamespaces: true, Write: n.unlock},
		{Path: "namespaces/", InNamespaces: true, Read: n.read, Write: n.write, Patch: n.patch, Del: n.remove},
		{Path: "internal/ui/namespaces", InNamespaces: true, Read: n.visible},
	}
}

// Check reports what is wrong with the name of a namespace below its parent.
func Check(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return errkind.Errorf(errkind.Invalid, "path: %q is no name of a namespace", name)
	case slices.Contains(reserved, name):
		return errkind.Errorf(errkind.Invalid, "path: %q is a reserved path and cannot be used as a namespace", name)
	case strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`/*+?#%\"'`, r)
	}):
		return errkind.Errorf(errkind.Invalid, "path: %q has a blank, or one of the characters / * + ? # %% \\ \" '", name)
	}
	return nil
}

// at is the path from the root of the namespace that a request names.
func at(c *system.Call) (path string, err error) {
	name := strings.Trim(c.Name, "/")
	for segment := range strings.SplitSeq(name, "/") {
		if err := Check(segment); err != nil {
			return "", err
		}
	}
	path = c.Tables.Path() + name + "/"
	if len(path) > pathBytes || strings.Count(path, "/") > pathDepth {
		return "", errkind.Errorf(errkind.Invalid, "path: may have %d bytes and %d parts at most", pathBytes, pathDepth)
	}
	return path, c.F.Err()
}

func shown(s *tables.Space) map[string]any {
	meta := s.Meta
	if meta == nil {
		meta = map[string]string{}
	}
	return map[string]any{"id": s.ID, "uuid": s.UUID, "path": s.Path, "custom_metadata": meta, "locked": s.Lock != "",
		"tainted": s.Going}
}

// list gives the namespaces right below the request's.
func (n *Namespaces) list(c *system.Call) (any, error) { return n.below(c, false) }

// scan gives all that are below it.
func (n *Namespaces) scan(c *system.Call) (any, error) { return n.below(c, true) }

func (n *Namespaces) below(c *system.Call, all bool) (any, error) {
	keys, info := []string{}, map[string]any{}
	for one := range children(c.Tables, all) {
		name := one.Path[len(c.Tables.Path()):]
		keys, info[name] = append(keys, name), shown(one)
	}
	if len(keys) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": keys, "key_info": info}, nil
}

// children gives the namespaces right below, or all of them.
func children(st *tables.Tables, all bool) func(yield func(*tables.Space) bool) {
	return func(yield func(*tables.Space) bool) {
		for one := range st.Top().Spaces.Below(st.Path()) {
			if name := one.Path[len(st.Path()):]; !all && strings.IndexByte(name, '/') != len(name)-1 {
				continue
			}
			if !yield(one) {
				return
			}
		}
	}
}

// visible gives those right below in which the caller may do anything at all.
func (n *Namespaces) visible(c *system.Call) (any, error) {
	keys := []string{}
	for one := range children(c.Tables, false) {
		name := one.Path[len(c.Tables.Path()):]
		if !one.Going && c.Bearer.ACL.Below(c.Bearer.At(c.Tables, name)) {
			keys = append(keys, name)
		}
	}
	if len(keys) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": keys}, nil
}

func (n *Namespaces) read(c *system.Call) (any, error) {
	path, err := at(c)
	if err != nil {
		return nil, err
	}
	one := c.Tables.Top().Spaces.At(path)
	if one == nil {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return shown(one), nil
}

// write makes a namespace; of one that there is it sets what is given.
func (n *Namespaces) write(c *system.Call) (any, error) {
	path, err := at(c)
	if err != nil {
		return nil, err
	}
	meta := c.F.Texts("custom_metadata")
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	return n.change(c, path, func(st *tables.Tables, old *tables.Space) (*tables.Space, error) {
		if old != nil {
			next := *old
			if meta != nil {
				next.Meta = meta
			}
			return &next, nil
		}
		at := strings.LastIndexByte(path[:len(path)-1], '/') + 1
		parent, rest, ok := st.Resolve(path[:at], path[at:])
		if !ok || rest != path[at:] {
			return nil, errkind.Errorf(errkind.Invalid, "parent namespace %q does not exist: create it first", path[:at])
		}
		if err := parent.Mounts.CheckNew(rest); err != nil {
			return nil, err
		}
		one := &tables.Space{ID: token.NewSpace(), UUID: uuid.NewString(), Path: path, Meta: meta}
		for st.Spaces.ByID(one.ID) != nil {
			one.ID = token.NewSpace()
		}
		return one, nil
	})
}

// patch changes members of the metadata; null takes one away.
func (n *Namespaces) patch(c *system.Call) (any, error) {
	path, err := at(c)
	if err != nil {
		return nil, err
	}
	given, ok := c.F.Any("custom_metadata").(map[string]any)
	if c.F.Has("custom_metadata") && !ok && c.F.Any("custom_metadata") != nil {
		return nil, errkind.New(errkind.Invalid, "field \"custom_metadata\": must be an object")
	}
	texts := map[string]string{}
	for name, v := range given {
		text, ok := v.(string)
		if v != nil && !ok {
			return nil, errkind.Errorf(errkind.Invalid, "field \"custom_metadata\": %s must be a text", name)
		}
		texts[name] = text
	}
	return n.change(c, path, func(_ *tables.Tables, old *tables.Space) (*tables.Space, error) {
		if old == nil {
			return nil, errkind.New(errkind.NotFound, "")
		}
		next := *old
		next.Meta = maps.Clone(old.Meta)
		if next.Meta == nil || c.F.Has("custom_metadata") && given == nil {
			next.Meta = map[string]string{}
		}
		for name, text := range texts {
			if next.Meta[name] = text; given[name] == nil {
				delete(next.Meta, name)
			}
		}
		return &next, nil
	})
}

// change stores another record of a namespace, or a first one.
func (n *Namespaces) change(c *system.Call, path string,
	next func(st *tables.Tables, old *tables.Space) (*tables.Space, error)) (any, error) {
	var made *tables.Space
	err := n.Gate.Change(c, func(st tables.Tables) (_ *tables.Tables, _ []storage.Op, err error) {
		if c.Tables.Space != nil { // the request's own may be ending by now
			if own := st.Spaces.ByID(c.Tables.Space.ID); own == nil || own.Going {
				return nil, nil, tables.ErrSpaceGone
			}
		}
		old := st.Spaces.At(path)
		if old != nil && old.Going {
			return nil, nil, errkind.Errorf(errkind.Invalid, "namespace %q is being deleted: wait until it has ended", path)
		}
		if made, err = next(&st, old); err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(tables.SpacePrefix+made.UUID, made)
		st.Spaces = st.Spaces.Describe(made)
		return &st, []storage.Op{op}, err
	})
	if err != nil {
		return nil, err
	}
	return shown(made), nil
}

// lock refuses whatever is asked in a namespace and below it, until who has the key that it gives unlocks it.
func (n *Namespaces) lock(c *system.Call) (any, error) {
	path, err := lockable(c)
	if err != nil {
		return nil, err
	}
	var key [24]byte
	_, _ = rand.Read(key[:])
	text := base64.RawURLEncoding.EncodeToString(key[:])
	_, err = n.change(c, path, func(st *tables.Tables, old *tables.Space) (*tables.Space, error) {
		switch {
		case old == nil:
			return nil, errkind.New(errkind.NotFound, "")
		case old.Lock != "":
			return nil, errkind.Errorf(errkind.Invalid, "cannot lock namespace %q: it is already locked", path)
		}
		next := *old
		next.Lock = st.Book.Hash(lockName(old, text))
		return &next, nil
	})
	return map[string]any{"unlock_key": text}, err
}

func lockName(s *tables.Space, key string) string {
	return "namespace-lock\x00" + s.UUID + "\x00" + key
}

// unlock needs the key, but of a root token.
func (n *Namespaces) unlock(c *system.Call) (any, error) {
	path, err := lockable(c)
	if err != nil {
		return nil, err
	}
	key := c.F.String("unlock_key")
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	_, err = n.change(c, path, func(st *tables.Tables, old *tables.Space) (*tables.Space, error) {
		switch {
		case old == nil:
			return nil, errkind.New(errkind.NotFound, "")
		case old.Lock == "":
			return nil, errkind.Errorf(errkind.Invalid, "namespace %q is not locked", path)
		case !slices.Contains(c.Bearer.Policies, policy.RootName) && st.Book.Hash(lockName(old, key)) != old.Lock:
			return nil, errkind.New(errkind.Invalid, "incorrect unlock key")
		}
		next := *old
		next.Lock = ""
		return &next, nil
	})
	return nil, err
}

// lockable is the path of the namespace that is to be locked: the request's, or one below it.
func lockable(c *system.Call) (path string, err error) {
	if strings.Trim(c.Name, "/") != "" {
		return at(c)
	}
	if c.Tables.Space == nil {
		return "", errkind.New(errkind.Invalid, "the root namespace cannot be locked: name one below it")
	}
	return c.Tables.Path(), nil
}
