package mounting

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/database"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
)

// inner is a text of the request, at its top or in its config.
func inner(c *system.Call, name string) string {
	if text := c.F.String(name); text != "" {
		return text
	}
	config, _ := c.F.Any("config").(map[string]any)
	text, _ := config[name].(string)
	return text
}

func pluginNamed(c *system.Call) string   { return inner(c, "plugin_name") }
func pluginVersion(c *system.Call) string { return inner(c, "plugin_version") }

// clearWithin bounds how long it takes to clear away what a mount stored that did not come to be.
const clearWithin = 10 * time.Second

// awake starts the plug-in of a mount that is about to be: one that cannot be started is not mounted. settled is to be
// called with what came of the mount: of one that is none nothing is left.
func (m *Mounts) awake(c *system.Call, e *mount.Entry, made engine.Engine) (settled func(error) error, err error) {
	waker, ok := made.(engine.Waker)
	if !ok {
		return func(err error) error { return err }, nil
	}
	if err := c.Tables.CheckMount(c.Tables.Mounts, e.Path); err != nil {
		return nil, err
	}
	over := m.Plugins.Coming(e)
	settled = func(err error) error {
		over()
		if err == nil {
			return nil
		}
		m.Plugins.Retire(e.UUID)
		m.Plugins.Settle()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c), clearWithin)
		defer cancel()
		return errors.Join(err, m.clear(ctx, e.Prefix()))
	}
	if _, err := waker.Wake(c); err != nil {
		return nil, settled(err)
	}
	return settled, nil
}

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
	var programs []string
	err := m.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
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
			if e.External != nil {
				programs = append(programs, e.UUID)
			}
		}
		return &st, nil, nil
	})
	if err == nil {
		m.Plugins.Retire(programs...)
	}
	return nil, err
}

// builtIn are the names of what is built in, by type.
func (m *Mounts) builtIn() map[string][]string {
	lists := map[string][]string{plugins.Auth: {}, "database": {}, plugins.Secret: {}}
	for name, kind := range m.Kinds {
		switch kind.Side {
		case Secret:
			lists[plugins.Secret] = append(lists[plugins.Secret], name)
		case Login:
			lists[plugins.Auth] = append(lists[plugins.Auth], strings.TrimPrefix(name, login))
		}
	}
	if m.Kinds["database"].Make != nil {
		lists["database"] = append(lists["database"], database.Plugins()...)
	}
	return lists
}

// plugins lists the types of mounts that there are: built in, and of the catalog.
func (m *Mounts) plugins(c *system.Call) (any, error) {
	kind, name, one := strings.Cut(strings.Trim(c.Name, "/"), "/")
	detailed, lists := []any{}, m.builtIn()
	for _, of := range []string{plugins.Auth, "database", plugins.Secret} {
		slices.Sort(lists[of])
		for _, built := range lists[of] {
			detailed = append(detailed, m.plugin(of, built))
		}
		names, details := m.Plugins.Shown(of)
		lists[of], detailed = append(lists[of], names...), append(detailed, details...)
		slices.Sort(lists[of])
	}
	switch names, ok := lists[kind]; {
	case kind == "":
		return map[string]any{"auth": lists[plugins.Auth], "database": lists["database"], "secret": lists[plugins.Secret],
			"detailed": detailed}, nil
	case !ok:
		return nil, errkind.Errorf(errkind.Invalid, "%q is no type of plugins: auth, database or secret", kind)
	case !one:
		return map[string]any{"keys": names}, nil
	}
	if slices.Contains(m.builtIn()[kind], name) {
		return m.plugin(kind, name), nil
	}
	if info := m.Plugins.Info(kind, name, c.F.String("version")); info != nil {
		return info, nil
	}
	return nil, errkind.New(errkind.NotFound, "")
}

func (m *Mounts) plugin(kind, name string) map[string]any {
	return map[string]any{"name": name, "type": kind, "builtin": true, "version": m.Version,
		"deprecation_status": "supported", "command": "", "args": []string{}, "sha256": ""}
}

func (m *Mounts) registerPlugin(c *system.Call) (any, error) {
	kind, name, _ := strings.Cut(strings.Trim(c.Name, "/"), "/")
	return nil, m.Plugins.Register(c, kind, name, c.F)
}

func (m *Mounts) deregisterPlugin(c *system.Call) (any, error) {
	kind, name, _ := strings.Cut(strings.Trim(c.Name, "/"), "/")
	return nil, m.Plugins.Deregister(c, kind, name, c.F.String("version"))
}
