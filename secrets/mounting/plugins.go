package mounting

import (
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/database"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
)

// reloadPlugin makes engines anew from what is stored: those of a type, or of mounts. Requests under way end with the
// former ones.
func (m *Mounts) reloadPlugin(c *system.Call) (any, error) {
	plugin, paths := c.F.String("plugin"), c.F.Strings("mounts")
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if (plugin == "") == (len(paths) == 0) {
		return nil, errkind.New(errkind.Invalid, "one of plugin or mounts must be provided, and not both")
	}
	return nil, m.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		var list []*mount.Entry
		for _, e := range st.Mounts.All() {
			if plugin != "" && (e.Type == plugin || e.Type == "database" &&
				slices.Contains(database.Plugins(), plugin)) {
				list = append(list, e)
			}
		}
		for _, path := range paths {
			e := st.Mounts.Get(strings.Trim(path, "/") + "/")
			if e == nil {
				return nil, nil, errkind.Errorf(errkind.Invalid, "mounts: cannot fetch mount entry on %q", path)
			}
			list = append(list, e)
		}
		st.Engines = maps.Clone(st.Engines)
		for _, e := range list {
			own, err := m.Engine(e, st.Book.Salt)
			if err != nil {
				return nil, nil, err
			}
			st.Engines[e.Accessor] = own
		}
		return &st, nil, nil
	})
}
