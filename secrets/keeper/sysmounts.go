package keeper

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
)

// described is a mount as the API shows it.
func (k *Keeper) described(e *mount.Entry) map[string]any {
	config := map[string]any{"default_lease_ttl": task.Seconds(e.Config.DefaultLeaseTTL), "max_lease_ttl": task.Seconds(e.Config.MaxLeaseTTL), "force_no_cache": e.Config.ForceNoCache}
	settings(e, config)
	return map[string]any{"type": e.Type, "description": e.Description, "accessor": e.Accessor, "config": config, "options": e.Options, "local": e.Local,
		"seal_wrap": e.SealWrap, "external_entropy_access": false, "uuid": e.UUID, "plugin_version": "", "running_plugin_version": k.running, "running_sha256": "",
		"deprecation_status": "supported"}
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
	for name, list := range map[string][]string{"audit_non_hmac_request_keys": e.Config.AuditRequestClear, "audit_non_hmac_response_keys": e.Config.AuditResponseClear,
		"passthrough_request_headers": e.Config.PassRequestHeaders, "allowed_response_headers": e.Config.ResponseHeaders} {
		if len(list) > 0 {
			out[name] = list
		}
	}
}

func (s *system) mounts(c *sysCall) (any, error) {
	out := map[string]any{}
	for _, e := range c.Tables.Mounts.All() {
		if !e.Auth() {
			out[e.Path] = s.k.described(e)
		}
	}
	return out, nil
}

func (s *system) authMounts(c *sysCall) (any, error) {
	out := map[string]any{}
	for _, e := range c.Tables.Mounts.All() {
		if path, ok := strings.CutPrefix(e.Path, "auth/"); ok {
			out[path] = s.k.described(e)
		}
	}
	return out, nil
}

// mountPath is the path of the mount that a request names, with its '/'.
func (c *sysCall) mountPath() (path string, tune bool) {
	path, tune = strings.CutSuffix(c.name, "/tune")
	path = strings.TrimSuffix(path, "/") + "/"
	if strings.HasPrefix(c.Rest, "auth/") {
		path = "auth/" + path
	}
	return path, tune
}

func (c *sysCall) mountNamed() (e *mount.Entry, tune bool, err error) {
	path, tune := c.mountPath()
	if e = c.Tables.Mounts.Get(path); e == nil {
		what := "No secret engine mount at "
		if strings.HasPrefix(path, "auth/") {
			what = "No auth engine at "
		}
		err = errkind.New(errkind.Invalid, what+strings.TrimPrefix(path, "auth/"))
	}
	return e, tune, err
}

func (s *system) mountOrTune(c *sysCall) (any, error) {
	e, tune, err := c.mountNamed()
	if err != nil {
		return nil, err
	}
	if !tune {
		return s.k.described(e), nil
	}
	l := s.k.gate.Limits(e)
	out := map[string]any{"default_lease_ttl": task.Seconds(l.Default), "max_lease_ttl": task.Seconds(l.Max), "force_no_cache": e.Config.ForceNoCache, "description": e.Description}
	if e.Options != nil {
		out["options"] = e.Options
	}
	settings(e, out)
	return out, nil
}

func (s *system) mountOrTuneWrite(c *sysCall) (any, error) {
	path, tune := c.mountPath()
	if tune {
		return nil, s.tune(c)
	}
	e := &mount.Entry{Path: path, Type: c.f.String("type"), Description: c.f.String("description"), Local: c.f.Bool("local", false),
		SealWrap: c.f.Bool("seal_wrap", false), Options: c.f.Texts("options"), UUID: uuid.NewString()}
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
	case "system", "token", "cubbyhole", "identity":
		return nil, errkind.Errorf(errkind.Invalid, "mount type of %q is not mountable", e.Type)
	}
	want := secret
	if e.Auth() {
		want = login
	}
	if kinds[e.Type].side != want {
		return nil, errkind.Errorf(errkind.Invalid, "plugin not found in the catalog: %s", e.Type)
	}
	if v := e.Options["version"]; e.Type == "kv" && v != "" && v != "1" && v != "2" {
		return nil, errkind.Errorf(errkind.Invalid, "field \"options\": version %q is neither 1 nor 2", v)
	}
	e.Accessor = newAccessor(e)
	made, err := s.k.engine(e, c.Tables.Book.Salt)
	if err != nil {
		return nil, err
	}
	return nil, s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		if err := st.Mounts.CheckNew(path); err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(mountPrefix+e.UUID, e)
		st.Mounts = st.Mounts.With(e)
		st.Engines = with(st.Engines, e.Accessor, made)
		return &st, []storage.Op{op}, err
	})
}

func with(engines map[string]engine.Engine, accessor string, made engine.Engine) map[string]engine.Engine {
	next := maps.Clone(engines)
	next[accessor] = made
	return next
}

// configure reads a mount's settings from a field, or from the top where name is "".
func configure(c *sysCall, e *mount.Entry, name string) error {
	f := c.f
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
	for field, list := range map[string]*[]string{"audit_non_hmac_request_keys": &e.Config.AuditRequestClear, "audit_non_hmac_response_keys": &e.Config.AuditResponseClear,
		"passthrough_request_headers": &e.Config.PassRequestHeaders, "allowed_response_headers": &e.Config.ResponseHeaders} {
		if f.Has(field) {
			*list = f.Strings(field)
		}
	}
	if err := errors.Join(configureLockout(f, e), f.Err(), c.f.Err()); err != nil {
		return err
	}
	if err := checkTokenType(e.Config.TokenType); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]string{"", "hidden", "unauth"}, e.Config.ListingVisibility):
		return errkind.Errorf(errkind.Invalid, "field \"listing_visibility\": %q is neither hidden nor unauth", e.Config.ListingVisibility)
	case e.Config.DefaultLeaseTTL < 0 || e.Config.MaxLeaseTTL < 0: // "-1": the system's
		e.Config.DefaultLeaseTTL, e.Config.MaxLeaseTTL = max(e.Config.DefaultLeaseTTL, 0), max(e.Config.MaxLeaseTTL, 0)
	case e.Config.MaxLeaseTTL > 0 && e.Config.DefaultLeaseTTL > e.Config.MaxLeaseTTL:
		return errkind.New(errkind.Invalid, "backend max lease TTL is less than default lease TTL")
	}
	return nil
}

func (s *system) tune(c *sysCall) error {
	e, _, err := c.mountNamed()
	if err != nil {
		return err
	}
	next := *e
	if err := configure(c, &next, ""); err != nil {
		return err
	}
	if c.f.Has("description") {
		next.Description = c.f.String("description")
	}
	if o := c.f.Texts("options"); o != nil {
		if v := o["version"]; e.Type == "kv" && v != "" && v != max(e.Options["version"], "1") {
			return errkind.New(errkind.Invalid, "field \"options\": a mount keeps its version; make another and copy")
		}
		next.Options = maps.Clone(next.Options)
		if next.Options == nil {
			next.Options = map[string]string{}
		}
		maps.Copy(next.Options, o)
	}
	if err := c.f.Err(); err != nil {
		return err
	}
	return s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		if st.Mounts.Get(e.Path) != e {
			return nil, nil, errkind.New(errkind.Invalid, "the mount was changed at the same time: try again")
		}
		made, err := s.k.engine(&next, st.Book.Salt)
		if err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(mountPrefix+e.UUID, &next)
		st.Mounts, st.Engines = st.Mounts.With(&next), with(st.Engines, e.Accessor, made)
		return &st, []storage.Op{op}, err
	})
}

// unmount takes a mount away with all that it kept. A path without one is no error.
func (s *system) unmount(c *sysCall) (any, error) {
	path, _ := c.mountPath()
	e := c.Tables.Mounts.Get(path)
	if e == nil {
		return nil, nil
	}
	if slices.Contains([]string{"system", "token", "cubbyhole", "identity"}, e.Type) {
		return nil, errkind.Errorf(errkind.Invalid, "cannot unmount %q", path)
	}
	err := s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Mounts = st.Mounts.Without(path)
		st.Engines = maps.Clone(st.Engines)
		delete(st.Engines, e.Accessor)
		return &st, []storage.Op{storage.Delete(mountPrefix + e.UUID)}, nil
	})
	if err != nil {
		return nil, err
	}
	return nil, s.clear(c, e.Prefix()) // nobody reaches what is left from here on
}

// clearedAtOnce is how many records one commit of clear takes away.
const clearedAtOnce = 1000

func (s *system) clear(c *sysCall, prefix string) error {
	for {
		records, err := s.k.records.Under.Scan(c, prefix, storage.After(prefix), clearedAtOnce)
		if err != nil || len(records) == 0 {
			return err
		}
		ops := make([]storage.Op, len(records))
		for i, r := range records {
			ops[i] = storage.Delete(r.Key)
		}
		if err := s.k.records.Commit(c, ops); err != nil {
			return err
		}
	}
}

func (s *system) uiMounts(c *sysCall) (any, error) {
	secret, auth := map[string]any{}, map[string]any{}
	for _, e := range c.Tables.Mounts.All() {
		shown := map[string]any{"type": e.Type, "description": e.Description, "options": e.Options}
		switch {
		case c.Bearer != nil && c.Bearer.ACL.Below(e.Path):
			shown = s.k.described(e)
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
func (s *system) uiMount(c *sysCall) (any, error) {
	e, _ := c.Tables.Mounts.Route(c.name)
	if e == nil || !c.Bearer.ACL.Below(e.Path) {
		return nil, errkind.New(errkind.Denied, "preflight capability check returned 403, please ensure client's policies grant access to path \""+strings.TrimSuffix(c.name, "/")+"/\"")
	}
	out := s.k.described(e)
	out["path"] = e.Path
	return out, nil
}
