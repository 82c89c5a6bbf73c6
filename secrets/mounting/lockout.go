package mounting

import (
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/task"
)

// lockoutRules are those that hold at a mount: its own before those of its type, of all types, and the defaults.
func (m *Mounts) lockoutRules(e *mount.Entry) auth.LockoutRules {
	r := e.Config.Lockout.Over(m.Lockouts[e.Type]).Over(m.Lockouts["all"]).Over(mount.DefaultLockout())
	if m.NoLockout {
		off := true
		r.Off = &off
	}
	return r
}

// showLockout adds what a mount was told of lockouts.
func showLockout(e *mount.Entry, out map[string]any) {
	r := &e.Config.Lockout
	if *r == (auth.LockoutRules{}) {
		return
	}
	out["user_lockout_threshold"], out["user_lockout_disable"] = r.After, r.Off != nil && *r.Off
	out["user_lockout_duration"], out["user_lockout_counter_reset_duration"] = task.Seconds(r.For), task.Seconds(r.Reset)
}

// configureLockout reads a mount's user_lockout_config. A zero gives back to the configuration's rules.
func configureLockout(f *secrets.Fields, e *mount.Entry) error {
	const name = "user_lockout_config"
	if !f.Has(name) || f.Any(name) == nil {
		return nil
	}
	values, ok := f.Any(name).(map[string]any)
	if !ok {
		return errkind.Errorf(errkind.Invalid, "field %q: must be an object", name)
	}
	if !slices.Contains(auth.LockoutMethods, e.Type) {
		return errkind.Errorf(errkind.Invalid, "field %q: mounts of type %q lock nobody out", name, e.Type)
	}
	in, r := secrets.FieldsOf(values), e.Config.Lockout
	r.After = in.Int("lockout_threshold", r.After)
	r.For = in.Duration("lockout_duration", r.For)
	r.Reset = in.Duration("lockout_counter_reset_duration", r.Reset)
	if in.Has("lockout_disable") {
		off := in.Bool("lockout_disable", false)
		r.Off = &off
	}
	if err := in.Err(); err != nil {
		return err
	}
	for field, d := range map[string]time.Duration{"lockout_threshold": time.Duration(r.After), "lockout_duration": r.For,
		"lockout_counter_reset_duration": r.Reset} {
		if d < 0 {
			return errkind.Errorf(errkind.Invalid, "field %q: %s must not be negative", name, field)
		}
	}
	e.Config.Lockout = r
	return nil
}

// lockedUsers lists who is locked out of logins, by mount.
func (m *Mounts) lockedUsers(c *system.Call) (any, error) {
	want := c.F.String("mount_accessor")
	type mounted struct {
		Accessor string   `json:"mount_accessor"`
		Counts   int      `json:"counts"`
		Aliases  []string `json:"alias_identifiers"`
	}
	list, total := []mounted{}, 0
	for _, e := range c.Tables.Mounts.All() {
		rules := m.lockoutRules(e)
		if names := m.Lockout.Names(&rules, e.UUID, c.Now); len(names) > 0 && (want == "" || want == e.Accessor) {
			list = append(list, mounted{e.Accessor, len(names), names})
			total += len(names)
		}
	}
	return map[string]any{"total": total, "by_namespace": []any{map[string]any{"namespace_id": c.Tables.SpaceID(),
		"namespace_path": c.Tables.Path(), "counts": total, "mount_accessors": list}}}, nil
}

// unlockUser lets an alias try again: sys/locked-users/ACCESSOR/unlock/ALIAS.
func (m *Mounts) unlockUser(c *system.Call) (any, error) {
	accessor, rest, _ := strings.Cut(c.Name, "/")
	alias, ok := strings.CutPrefix(rest, "unlock/")
	if !ok {
		return nil, errkind.New(errkind.NotFound, "unsupported path")
	}
	for _, e := range c.Tables.Mounts.All() {
		if e.Accessor == accessor {
			m.Lockout.Unlock(e.UUID, strings.ToLower(alias))
			m.Lockout.Unlock(e.UUID, alias)
			return nil, nil
		}
	}
	return nil, errkind.Errorf(errkind.Invalid, "there is no mount with the accessor %q", accessor)
}
