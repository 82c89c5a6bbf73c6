package mounting

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/auth/cert"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/telemetry"
)

// Config is what a Mounts is made of.
type Config struct {
	Now     func() time.Time
	Metrics *telemetry.Registry
	Version string // of all engines, as clients are told
	// by type of auth method; "all": of those that are not there, and of what they do not set
	Lockouts  map[string]auth.LockoutRules
	NoLockout bool // of nobody, whatever mounts say
	// Password draws one by a policy of the namespace whose records begin with base.
	Password func(ctx context.Context, base, policy string) (string, error)
	Plugins  *plugins.Plugins // programs that answer for mounts
}

// Mounts makes the engines of mounts, and answers for the mounts themselves.
type Mounts struct {
	Config
	Kinds   map[string]Kind // the types of mounts that there are, auth methods as auth/TYPE; kept once requests come
	Lockout auth.Lockout    // of all auth methods
	Hashing *limit.Gate     // of passwords

	gate    *tables.Gate
	records *sealed.Store
	keygen  *limit.Gate // of RSA keys
	meshes  cert.Meshes // whose certificates log in
	issuers *jwks.Keys  // of tokens that log in
	moves   moves
}

// New makes the owner of the mounts.
func New(c Config, gate *tables.Gate, records *sealed.Store) *Mounts {
	if c.Plugins == nil {
		c.Plugins = plugins.New(plugins.Config{Now: c.Now, Metrics: c.Metrics, Version: c.Version}, gate, records)
	}
	m := &Mounts{Config: c, gate: gate, records: records, issuers: jwks.New(c.Now)}
	// A password takes a core for tens of milliseconds: what waits for one takes turns by address.
	m.Hashing = limit.NewGate(limit.GateConfig{Name: "logins by password", Slots: runtime.GOMAXPROCS(0), MaxWaiting: 512})
	m.keygen = limit.NewGate(limit.GateConfig{Name: "making RSA keys", Slots: runtime.GOMAXPROCS(0), MaxWaiting: 256,
		MaxWait: time.Minute})
	m.Kinds = m.kinds()
	return m
}

// Rows are the paths of sys/ that it answers.
func (m *Mounts) Rows() []system.Row {
	return []system.Row{
		{Path: "mounts", InNamespaces: true, Read: m.mounts},
		{Path: "mounts/", InNamespaces: true, Read: m.mountOrTune, Write: m.mountOrTuneWrite, Del: m.unmount},
		{Path: "auth", InNamespaces: true, Read: m.authMounts},
		{Path: "auth/", InNamespaces: true, Read: m.mountOrTune, Write: m.mountOrTuneWrite, Del: m.unmount},
		{Path: "internal/ui/mounts", InNamespaces: true, Read: m.uiMounts},
		{Path: "internal/ui/mounts/", InNamespaces: true, Read: m.uiMount},
		{Path: "locked-users", InNamespaces: true, Read: m.lockedUsers},
		{Path: "locked-users/", InNamespaces: true, Write: m.unlockUser},
		{Path: "remount", InNamespaces: true, Write: m.remount},
		{Path: "remount/status/", InNamespaces: true, Read: m.remountStatus},
		{Path: "plugins/catalog", Read: m.plugins, List: m.plugins},
		{Path: "plugins/catalog/", Read: m.plugins, List: m.plugins, Write: m.registerPlugin, Del: m.deregisterPlugin},
		{Path: "plugins/reload/backend", Write: m.reloadPlugin},
	}
}

// described is a mount as the API shows it.
func (m *Mounts) described(e *mount.Entry) map[string]any {
	config := map[string]any{"default_lease_ttl": task.Seconds(e.Config.DefaultLeaseTTL),
		"max_lease_ttl": task.Seconds(e.Config.MaxLeaseTTL), "force_no_cache": e.Config.ForceNoCache}
	settings(e, config)
	out := map[string]any{"type": e.Type, "description": e.Description, "accessor": e.Accessor, "config": config,
		"options": e.Options, "local": e.Local,
		"seal_wrap": e.SealWrap, "external_entropy_access": false, "uuid": e.UUID, "plugin_version": "",
		"running_plugin_version": m.Version, "running_sha256": "",
		"deprecation_status": "supported"}
	m.Plugins.Describe(e, out)
	return out
}

// settings adds what a mount has that is not there by default.
func settings(e *mount.Entry, out map[string]any) {
	if e.Config.ListingVisibility != "" {
		out["listing_visibility"] = e.Config.ListingVisibility
	}
	if e.Auth() {
		out["token_type"] = cmp.Or(e.Config.TokenType, "default-service")
	}
	showLockout(e, out)
	for name, list := range map[string][]string{"audit_non_hmac_request_keys": e.Config.AuditRequestClear,
		"audit_non_hmac_response_keys": e.Config.AuditResponseClear,
		"passthrough_request_headers":  e.Config.PassRequestHeaders, "allowed_response_headers": e.Config.ResponseHeaders} {
		if len(list) > 0 {
			out[name] = list
		}
	}
}

func (m *Mounts) mounts(c *system.Call) (any, error) {
	out := map[string]any{}
	for _, e := range c.Tables.Mounts.All() {
		if !e.Auth() {
			out[e.Path] = m.described(e)
		}
	}
	return out, nil
}

func (m *Mounts) authMounts(c *system.Call) (any, error) {
	out := map[string]any{}
	for _, e := range c.Tables.Mounts.All() {
		if path, ok := strings.CutPrefix(e.Path, "auth/"); ok {
			out[path] = m.described(e)
		}
	}
	return out, nil
}

// mountPath is the path of the mount that a request names, with its '/'.
func mountPath(c *system.Call) (path string, tune bool) {
	path, tune = strings.CutSuffix(c.Name, "/tune")
	path = strings.TrimSuffix(path, "/") + "/"
	if strings.HasPrefix(c.Rest, "auth/") {
		path = "auth/" + path
	}
	return path, tune
}

func mountNamed(c *system.Call) (e *mount.Entry, tune bool, err error) {
	path, tune := mountPath(c)
	if e = c.Tables.Mounts.Get(path); e == nil {
		what := "No secret engine mount at "
		if strings.HasPrefix(path, "auth/") {
			what = "No auth engine at "
		}
		err = errkind.New(errkind.Invalid, what+strings.TrimPrefix(path, "auth/"))
	}
	return e, tune, err
}

func (m *Mounts) mountOrTune(c *system.Call) (any, error) {
	e, tune, err := mountNamed(c)
	if err != nil {
		return nil, err
	}
	if !tune {
		return m.described(e), nil
	}
	l := m.gate.Limits(e)
	out := map[string]any{"default_lease_ttl": task.Seconds(l.Default), "max_lease_ttl": task.Seconds(l.Max),
		"force_no_cache": e.Config.ForceNoCache, "description": e.Description}
	if e.Options != nil {
		out["options"] = e.Options
	}
	settings(e, out)
	return out, nil
}

func (m *Mounts) mountOrTuneWrite(c *system.Call) (any, error) {
	path, tune := mountPath(c)
	if tune {
		return nil, m.tune(c)
	}
	e := &mount.Entry{Path: path, Type: c.F.String("type"), Description: c.F.String("description"),
		Local:    c.F.Bool("local", false),
		SealWrap: c.F.Bool("seal_wrap", false), Options: c.F.Texts("options"), UUID: uuid.NewString()}
	if err := configure(c, e, "config"); err != nil {
		return nil, err
	}
	switch e.Type {
	case "":
		return nil, errkind.New(errkind.Invalid, "backend type must be specified as a string")
	case "kv-v2":
		e.Type, e.Options = "kv", map[string]string{"version": "2"}
	case "generic":
		e.Type = "kv"
	case "plugin": // an older form of the same request
		e.Type = pluginNamed(c)
	case "system", "token", "cubbyhole", "identity":
		return nil, errkind.Errorf(errkind.Invalid, "mount type of %q is not mountable", e.Type)
	}
	if err := m.Plugins.Adopt(e, pluginVersion(c)); err != nil {
		return nil, err
	}
	want := Secret
	if e.Auth() {
		want = Login
	}
	if m.kind(e).Side != want {
		return nil, missing(e, want)
	}
	if v := e.Options["version"]; e.Type == "kv" && v != "" && v != "1" && v != "2" {
		return nil, errkind.Errorf(errkind.Invalid, "field \"options\": version %q is neither 1 nor 2", v)
	}
	e.Accessor = tables.AccessorOf(e)
	c.Tables.Own(e)
	made, err := m.Engine(e, c.Tables.Book.Salt)
	if err != nil {
		return nil, err
	}
	settled, err := m.awake(c, e, made)
	if err != nil {
		return nil, err
	}
	return nil, settled(m.gate.ChangeIn(c, c.Tables, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		if err := st.CheckMount(st.Mounts, path); err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(st.MountKey(e.UUID), e)
		st.Mounts = st.Mounts.With(e)
		st.Engines = with(st.Engines, e.Accessor, made)
		return &st, []storage.Op{op}, err
	}))
}

func with(engines map[string]engine.Engine, accessor string, made engine.Engine) map[string]engine.Engine {
	next := maps.Clone(engines)
	next[accessor] = made
	return next
}

// configure reads a mount's settings from a field, or from the top where name is "".
func configure(c *system.Call, e *mount.Entry, name string) error {
	f := c.F
	if name != "" {
		inner, ok := f.Any(name).(map[string]any)
		if !ok && f.Has(name) && f.Any(name) != nil {
			return errkind.Errorf(errkind.Invalid, "field %q: must be an object", name)
		}
		in := secrets.FieldsOf(inner)
		f = &in
	}
	e.Config.DefaultLeaseTTL = f.Duration("default_lease_ttl", e.Config.DefaultLeaseTTL)
	e.Config.MaxLeaseTTL = f.Duration("max_lease_ttl", e.Config.MaxLeaseTTL)
	e.Config.ForceNoCache = f.Bool("force_no_cache", e.Config.ForceNoCache)
	if f.Has("listing_visibility") {
		e.Config.ListingVisibility = f.String("listing_visibility")
	}
	if f.Has("token_type") {
		e.Config.TokenType = f.String("token_type")
	}
	for field, list := range map[string]*[]string{"audit_non_hmac_request_keys": &e.Config.AuditRequestClear,
		"audit_non_hmac_response_keys": &e.Config.AuditResponseClear,
		"passthrough_request_headers":  &e.Config.PassRequestHeaders, "allowed_response_headers": &e.Config.ResponseHeaders} {
		if f.Has(field) {
			*list = f.Strings(field)
		}
	}
	if err := errors.Join(configureLockout(f, e), f.Err(), c.F.Err()); err != nil {
		return err
	}
	if err := checkTokenType(e.Config.TokenType); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]string{"", "hidden", "unauth"}, e.Config.ListingVisibility):
		return errkind.Errorf(errkind.Invalid, "field \"listing_visibility\": %q is neither hidden nor unauth",
			e.Config.ListingVisibility)
	case e.Config.DefaultLeaseTTL < 0 || e.Config.MaxLeaseTTL < 0: // "-1": the system's
		e.Config.DefaultLeaseTTL, e.Config.MaxLeaseTTL = max(e.Config.DefaultLeaseTTL, 0), max(e.Config.MaxLeaseTTL, 0)
	case e.Config.MaxLeaseTTL > 0 && e.Config.DefaultLeaseTTL > e.Config.MaxLeaseTTL:
		return errkind.New(errkind.Invalid, "backend max lease TTL is less than default lease TTL")
	}
	return nil
}

func (m *Mounts) tune(c *system.Call) error {
	e, _, err := mountNamed(c)
	if err != nil {
		return err
	}
	next := *e
	if err := configure(c, &next, ""); err != nil {
		return err
	}
	if c.F.Has("description") {
		next.Description = c.F.String("description")
	}
	if o := c.F.Texts("options"); o != nil {
		if v := o["version"]; e.Type == "kv" && v != "" && v != max(e.Options["version"], "1") {
			return errkind.New(errkind.Invalid, "field \"options\": a mount keeps its version; make another and copy")
		}
		next.Options = maps.Clone(next.Options)
		if next.Options == nil {
			next.Options = map[string]string{}
		}
		maps.Copy(next.Options, o)
	}
	if err := c.F.Err(); err != nil {
		return err
	}
	return m.gate.ChangeIn(c, c.Tables, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		if st.Mounts.Get(e.Path) != e {
			return nil, nil, errkind.New(errkind.Invalid, "the mount was changed at the same time: try again")
		}
		made, err := m.Engine(&next, st.Book.Salt)
		if err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(st.MountKey(e.UUID), &next)
		st.Mounts, st.Engines = st.Mounts.With(&next), with(st.Engines, e.Accessor, made)
		return &st, []storage.Op{op}, err
	})
}

// unmount takes a mount away with all that it kept. A path without one is no error.
func (m *Mounts) unmount(c *system.Call) (any, error) {
	path, _ := mountPath(c)
	e := c.Tables.Mounts.Get(path)
	if e == nil {
		return nil, nil
	}
	if slices.Contains([]string{"system", "token", "cubbyhole", "identity"}, e.Type) {
		return nil, errkind.Errorf(errkind.Invalid, "cannot unmount %q", path)
	}
	err := m.gate.ChangeIn(c, c.Tables, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Mounts = st.Mounts.Without(path)
		st.Engines = maps.Clone(st.Engines)
		delete(st.Engines, e.Accessor)
		return &st, []storage.Op{storage.Delete(st.MountKey(e.UUID))}, nil
	})
	if err != nil {
		return nil, err
	}
	if e.External != nil {
		m.Plugins.Retire(e.UUID)
		m.Plugins.Settle()
	}
	return nil, m.clear(c, e.Prefix()) // nobody reaches what is left from here on
}

// clearedAtOnce is how many records one commit of clear takes away.
const clearedAtOnce = 1000

func (m *Mounts) clear(c context.Context, prefix string) error {
	for {
		records, err := m.records.Under.Scan(c, prefix, storage.After(prefix), clearedAtOnce)
		if err != nil || len(records) == 0 {
			return err
		}
		ops := make([]storage.Op, len(records))
		for i, r := range records {
			ops[i] = storage.Delete(r.Key)
		}
		if err := m.records.Commit(c, ops); err != nil {
			return err
		}
	}
}

func (m *Mounts) uiMounts(c *system.Call) (any, error) {
	secret, auth := map[string]any{}, map[string]any{}
	for _, e := range c.Tables.Mounts.All() {
		shown := map[string]any{"type": e.Type, "description": e.Description, "options": e.Options}
		switch {
		case c.Bearer != nil && c.Bearer.ACL.Below(c.Bearer.At(c.Tables, e.Path)):
			shown = m.described(e)
		case e.Config.ListingVisibility != "unauth":
			continue
		}
		if path, ok := strings.CutPrefix(e.Path, "auth/"); ok {
			auth[path] = shown
		} else {
			secret[e.Path] = shown
		}
	}
	return map[string]any{"secret": secret, "auth": auth}, nil
}

// uiMount tells of the mount that a path lies in, to whoever may do anything below it.
func (m *Mounts) uiMount(c *system.Call) (any, error) {
	in, e, _ := c.Tables.Route(c.Tables.Path() + c.Name)
	if e == nil || in.Space != nil && in.Space.Going || !c.Bearer.ACL.Below(c.Bearer.At(in, e.Path)) {
		return nil, errkind.New(errkind.Denied,
			"preflight capability check returned 403, please ensure client's policies grant access to path \""+
				strings.TrimSuffix(c.Name, "/")+"/\"")
	}
	out := m.described(e)
	out["path"] = in.Path()[len(c.Tables.Path()):] + e.Path
	return out, nil
}

// checkTokenType refuses what is no word for it.
func checkTokenType(text string) error {
	if !slices.Contains([]string{"", "default", "service", "batch", "default-service", "default-batch"}, text) {
		return errkind.Errorf(errkind.Invalid,
			"field \"token_type\": %q is none of default-service, default-batch, service, batch", text)
	}
	return nil
}
