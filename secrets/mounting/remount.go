package mounting

import (
	"strings"
	"sync"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
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

func (m *moves) find(id string) (from, to string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	move, ok := m.known[id]
	return move[0], move[1], ok
}

// remount moves a mount to another path, with all that it keeps: its records are under its id, so one record changes.
func (m *Mounts) remount(c *system.Call) (any, error) {
	from, to := strings.Trim(c.F.String("from"), "/")+"/", strings.Trim(c.F.String("to"), "/")+"/"
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	e := c.Tables.Mounts.Get(from)
	switch {
	case e == nil:
		return nil, errkind.Errorf(errkind.Invalid, "no matching mount at %q", from)
	case m.kind(e).Side == Fixed:
		return nil, errkind.Errorf(errkind.Invalid, "cannot remount %q", from)
	case e.Auth() != strings.HasPrefix(to, "auth/"):
		return nil, errkind.New(errkind.Invalid, "cannot remount between auth methods and secrets engines")
	case to == "auth/":
		return nil, errkind.New(errkind.Invalid, "field \"to\": must name a path below auth/")
	}
	next := *e
	next.Path = to
	err := m.gate.ChangeIn(c, c.Tables, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		if st.Mounts.Get(from) != e {
			return nil, nil, errkind.New(errkind.Invalid, "the mount was changed at the same time: try again")
		}
		if err := st.CheckMount(st.Mounts.Without(from), to); err != nil {
			return nil, nil, err
		}
		made, err := m.Engine(&next, st.Book.Salt)
		if err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(st.MountKey(e.UUID), &next)
		st.Mounts, st.Engines = st.Mounts.Without(from).With(&next), with(st.Engines, e.Accessor, made)
		return &st, []storage.Op{op}, err
	})
	if err != nil {
		return nil, err
	}
	id := uuid.NewString()
	m.moves.add(id, from, to)
	return map[string]any{"migration_id": id}, nil
}

func (m *Mounts) remountStatus(c *system.Call) (any, error) {
	from, to, ok := m.moves.find(c.Name)
	if !ok {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"migration_id": c.Name, "migration_info": map[string]any{"source_mount": from,
		"target_mount": to, "status": "success"}}, nil
}
