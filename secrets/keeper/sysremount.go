package keeper

import (
	"strings"
	"sync"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
)

// moves are the moves of mounts of late, for who asks how one went. They are done when they are answered.
type moves struct {
	mu    sync.Mutex
	order []string
	known map[string][2]string
}

// movesKept bounds them.
const movesKept = 256

func (m *moves) add(id, from, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string][2]string{}
	}
	if len(m.order) >= movesKept {
		delete(m.known, m.order[0])
		m.order = m.order[1:]
	}
	m.order, m.known[id] = append(m.order, id), [2]string{from, to}
}

// remount moves a mount to another path, with all that it keeps: its records are under its id, so one record changes.
func (s *system) remount(c *sysCall) (any, error) {
	from, to := strings.Trim(c.f.String("from"), "/")+"/", strings.Trim(c.f.String("to"), "/")+"/"
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	e := c.Tables.Mounts.Get(from)
	switch {
	case e == nil:
		return nil, errkind.Errorf(errkind.Invalid, "no matching mount at %q", from)
	case kinds[e.Type].side == fixed:
		return nil, errkind.Errorf(errkind.Invalid, "cannot remount %q", from)
	case e.Auth() != strings.HasPrefix(to, "auth/"):
		return nil, errkind.New(errkind.Invalid, "cannot remount between auth methods and secrets engines")
	case to == "auth/":
		return nil, errkind.New(errkind.Invalid, "field \"to\": must name a path below auth/")
	}
	next := *e
	next.Path = to
	err := s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		if st.Mounts.Get(from) != e {
			return nil, nil, errkind.New(errkind.Invalid, "the mount was changed at the same time: try again")
		}
		if err := st.Mounts.Without(from).CheckNew(to); err != nil {
			return nil, nil, err
		}
		made, err := s.k.engine(&next, st.Book.Salt)
		if err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(mountPrefix+e.UUID, &next)
		st.Mounts, st.Engines = st.Mounts.Without(from).With(&next), with(st.Engines, e.Accessor, made)
		return &st, []storage.Op{op}, err
	})
	if err != nil {
		return nil, err
	}
	id := uuid.NewString()
	s.k.moves.add(id, from, to)
	return map[string]any{"migration_id": id}, nil
}

func (s *system) remountStatus(c *sysCall) (any, error) {
	m := &s.k.moves
	m.mu.Lock()
	defer m.mu.Unlock()
	move, ok := m.known[c.name]
	if !ok {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"migration_id": c.name, "migration_info": map[string]any{"source_mount": move[0], "target_mount": move[1], "status": "success"}}, nil
}

// plugins lists the types of mounts that there are; all are built in.
func (s *system) plugins(c *sysCall) (any, error) {
	lists := map[string][]string{"auth": {}, "database": {}, "secret": {}}
	for name, k := range kinds {
		switch k.side {
		case secret:
			lists["secret"] = append(lists["secret"], name)
		case login:
			lists["auth"] = append(lists["auth"], name)
		}
	}
	if kinds["database"].make != nil {
		lists["database"] = append(lists["database"], "postgresql-database-plugin")
	}
	for _, names := range lists {
		sorted(names)
	}
	kind, name, one := strings.Cut(strings.Trim(c.name, "/"), "/")
	switch names, ok := lists[kind]; {
	case kind == "":
		detailed := []any{}
		for _, kind := range []string{"auth", "database", "secret"} {
			for _, name := range lists[kind] {
				detailed = append(detailed, s.plugin(kind, name))
			}
		}
		return map[string]any{"auth": lists["auth"], "database": lists["database"], "secret": lists["secret"], "detailed": detailed}, nil
	case !ok:
		return nil, errkind.Errorf(errkind.Invalid, "%q is no type of plugins: auth, database or secret", kind)
	case !one:
		return map[string]any{"keys": names}, nil
	default:
		for _, have := range names {
			if have == name {
				return s.plugin(kind, name), nil
			}
		}
		return nil, errkind.New(errkind.NotFound, "")
	}
}

func (s *system) plugin(kind, name string) map[string]any {
	return map[string]any{"name": name, "type": kind, "builtin": true, "version": s.k.running, "deprecation_status": "supported", "command": "", "args": []string{}, "sha256": ""}
}

func (s *system) refusePlugin(*sysCall) (any, error) {
	return nil, errkind.New(errkind.Invalid, "plugins of other programs are not supported: the catalog lists what is built in")
}
