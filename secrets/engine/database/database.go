// Package database makes and ends users of databases (contract 4.7; PostgreSQL, MySQL, Redis; see kind): dynamic
// ones, which live as long as their lease, and static ones, whose password changes by the clock.
//
// What is done in a database is written down before it is done. A dynamic role has an entry
// ("wal/...") that is committed before the role is made, and goes in the commit of its lease: a crash
// between leaves an entry, and whoever finds it drops the role. A password is stored as pending before
// it is set, and both are tried while one is.
package database

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/telemetry"
)

// Engine is one mount.
type Engine struct {
	// TTLs are the default and the longest lifetime of the mount.
	TTLs func() (standard, longest time.Duration)
	// Password draws one by a named policy; nil: there are none.
	Password func(ctx context.Context, policy string) (string, error)
	// Metrics count what is asked of databases, of all mounts together and under this one's Name; nil: nothing does.
	Metrics *telemetry.Registry
	Name    string

	configs record.Cache[*config]
	roles   record.Cache[*role]
	statics record.Cache[*static]
	links   links
}

var (
	_ engine.Leaser  = (*Engine)(nil)
	_ engine.Tender  = (*Engine)(nil)
	_ engine.Stepper = (*Engine)(nil)
)

// step is what follows once it was written down.
type step func(ctx context.Context) (*secrets.Response, error)

// Step implements engine.Stepper.
func (*Engine) Step(ctx context.Context, then any) (*secrets.Response, error) {
	return then.(step)(ctx)
}

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{} }

// Serial implements engine.Engine: changes of one object follow each other.
func (*Engine) Serial(r *secrets.Request) string {
	kind, name, _ := strings.Cut(r.Rest, "/")
	if !r.Op.Writes() {
		return ""
	}
	switch kind {
	case "rotate-root", "config", "reset":
		return "config/" + name
	case "rotate-role", "static-roles":
		return "static/" + name
	}
	return r.Rest
}

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	if kind, name, _ := strings.Cut(r.Rest, "/"); (kind == "roles" || kind == "static-roles" || kind == "config") &&
		storage.CheckKey(name) == nil {
		_, exists, err = view.Get(ctx, r.Rest)
		return exists, true, err
	}
	return false, false, nil
}

// call is one request with what it needs at hand.
type call struct {
	context.Context
	e    *Engine
	view engine.View
	r    *secrets.Request
	f    *secrets.Fields
	name string
}

type handler = func(*call) (*secrets.Response, error)

var routes = map[string]map[secrets.Operation]handler{
	"config": {secrets.Read: (*call).readConfig, secrets.Update: (*call).writeConfig, secrets.Delete: (*call).remove,
		secrets.List: (*call).list},
	"reset":       {secrets.Update: (*call).reset},
	"reload":      {secrets.Update: (*call).reload},
	"rotate-root": {secrets.Update: (*call).rotateRoot},
	"roles": {secrets.Read: (*call).readRole, secrets.Update: (*call).writeRole, secrets.Delete: (*call).remove,
		secrets.List: (*call).list},
	"creds": {secrets.Read: (*call).creds},
	"static-roles": {secrets.Read: (*call).readStatic, secrets.Update: (*call).writeStatic,
		secrets.Delete: (*call).deleteStatic, secrets.List: (*call).list},
	"static-creds": {secrets.Read: (*call).staticCreds},
	"rotate-role":  {secrets.Update: (*call).rotateStatic},
	"wal":          {secrets.Update: (*call).drop},
}

var (
	errUnsupported = errkind.New(errkind.Conflict, "unsupported operation")
	errNoPath      = errkind.New(errkind.NotFound, "unsupported path")
	errNotFound    = errkind.New(errkind.NotFound, "")
)

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	kind, name, _ := strings.Cut(strings.TrimSuffix(r.Rest, "/"), "/")
	on := routes[kind]
	switch {
	case on == nil || (kind == "wal" && !r.Due) || (name == "") != (r.Op == secrets.List):
		return nil, errNoPath
	case name != "" && !r.Due && (strings.Contains(name, "/") || storage.CheckKey(name) != nil):
		return nil, errNoPath
	}
	op := r.Op
	if op == secrets.Create {
		op = secrets.Update
	}
	do := on[op]
	if do == nil {
		return nil, errUnsupported
	}
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	return do(&call{ctx, e, view, r, f, name})
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

func answer(v any) (*secrets.Response, error) {
	data, err := json.Marshal(v)
	return &secrets.Response{Data: data}, err
}

func put(key string, v any) (secrets.Op, error) {
	raw, err := json.Marshal(v)
	return storage.Put(key, raw), err
}

func store(key string, v any) (*secrets.Response, error) {
	op, err := put(key, v)
	return &secrets.Response{Ops: []secrets.Op{op}}, err
}

// list lists the objects of a kind.
func (c *call) list() (*secrets.Response, error) {
	names, err := c.view.List(c, strings.TrimSuffix(c.r.Rest, "/")+"/", c.f.String("after"), max(c.f.Int("limit", 0), 0))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errNotFound
	}
	return answer(map[string]any{"keys": names})
}

func (c *call) remove() (*secrets.Response, error) {
	if kind, name, _ := strings.Cut(c.r.Rest, "/"); kind == "config" {
		c.e.close(name)
	}
	return &secrets.Response{Ops: []secrets.Op{storage.Delete(c.r.Rest)}}, nil
}

// role is a dynamic role, under "roles/<name>".
type role struct {
	DB       string        `json:"db_name"`
	Creation []string      `json:"creation_statements"`
	Revoke   []string      `json:"revocation_statements,omitempty"`
	Rollback []string      `json:"rollback_statements,omitempty"`
	Renew    []string      `json:"renew_statements,omitempty"`
	TTL      time.Duration `json:"default_ttl,omitempty"`
	MaxTTL   time.Duration `json:"max_ttl,omitempty"`
}

func (r *role) params() record.Params {
	return record.Params{{Name: "db_name", At: &r.DB}, {Name: "default_ttl", At: &r.TTL}, {Name: "max_ttl", At: &r.MaxTTL}}
}

// statements reads a list of statements; a text is one of them, whatever commas it has.
func statements(f *secrets.Fields, name string, at *[]string) {
	if !f.Has(name) {
		return
	}
	if text, is := f.Any(name).(string); is {
		if *at = nil; strings.TrimSpace(text) != "" {
			*at = []string{text}
		}
		return
	}
	*at = f.Strings(name)
}

func (c *call) role() (*role, error) {
	r, ok, err := c.e.roles.Get(c, c.view, "roles/"+c.name, record.ReadJSON[role])
	if err != nil || !ok {
		return nil, err
	}
	return r, nil
}

func (c *call) readRole() (*secrets.Response, error) {
	r, err := c.role()
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, errNotFound
	}
	out := map[string]any{"creation_statements": listed(r.Creation), "revocation_statements": listed(r.Revoke),
		"rollback_statements": listed(r.Rollback),
		"renew_statements":    listed(r.Renew), "credential_type": "password", "credential_config": map[string]string{}}
	r.params().Show(out)
	return answer(out)
}

func listed(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func (c *call) writeRole() (*secrets.Response, error) {
	r := &role{}
	if have, err := c.role(); err != nil {
		return nil, err
	} else if have != nil {
		*r = *have
	}
	if err := r.params().Read(c.f); err != nil {
		return nil, err
	}
	for name, at := range map[string]*[]string{"creation_statements": &r.Creation, "revocation_statements": &r.Revoke,
		"rollback_statements": &r.Rollback, "renew_statements": &r.Renew} {
		statements(c.f, name, at)
	}
	kind := c.f.String("credential_type")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	switch {
	case r.DB == "":
		return nil, invalid("empty database name attribute: field \"db_name\" is missing")
	case len(r.Creation) == 0:
		return nil, invalid("field \"creation_statements\": is missing")
	case r.MaxTTL > 0 && r.TTL > r.MaxTTL:
		return nil, invalid("\"default_ttl\" must be less than \"max_ttl\"")
	case kind != "" && kind != "password":
		return nil, invalid("field \"credential_type\": only password is supported")
	}
	return store(c.r.Rest, r)
}

// allowed reports whether a configuration lets a role use it.
func (cfg *config) allowed(role string) bool {
	return slices.ContainsFunc(cfg.Roles, func(p string) bool {
		head, tail, star := strings.Cut(p, "*")
		return p == role || (star && strings.HasPrefix(role, head) && strings.HasSuffix(role[len(head):], tail))
	})
}

// live is what a lease, or an entry of what may have been made, knows of a role.
type live struct {
	DB     string   `json:"db"`
	User   string   `json:"user"`
	Revoke []string `json:"revoke,omitempty"`
	Renew  []string `json:"renew,omitempty"`
	Tries  int      `json:"tries,omitempty"`
}

const (
	walPrefix = "wal/"
	// walWait is when an entry is taken for one of a crash: no request takes as long.
	walWait = 5 * time.Minute
	walMost = time.Hour
)

// creds makes a role for whoever asks.
func (c *call) creds() (*secrets.Response, error) {
	r, err := c.role()
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, invalid("unknown role: %s", c.name)
	}
	cfg, err := c.config(r.DB)
	if err != nil {
		return nil, err
	}
	if !cfg.allowed(c.name) {
		return nil, errkind.Errorf(errkind.Denied, "%q is not an allowed role", c.name)
	}
	ttl, longest := c.e.TTLs()
	if r.TTL > 0 {
		ttl = r.TTL
	}
	if r.MaxTTL > 0 {
		longest = min(longest, r.MaxTTL)
	}
	ttl = min(ttl, longest)
	user, err := c.userName(cfg)
	if err != nil {
		return nil, err
	}
	password, err := c.password(cfg)
	if err != nil {
		return nil, err
	}
	l := live{DB: r.DB, User: user, Revoke: r.Revoke, Renew: r.Renew}
	entry := dueKey(walPrefix, c.r.Now.Add(walWait), user)
	resp, err := store(entry, l)
	if err != nil {
		return nil, err
	}
	resp.Then = step(func(ctx context.Context) (*secrets.Response, error) {
		stored, err := cfg.stored(password)
		if err != nil {
			return nil, err
		}
		err = c.e.ask(ctx, creates, cfg, func(ctx context.Context, l *link) error {
			return l.create(ctx, r.Creation, values{user: user, password: stored, until: c.r.Now.Add(ttl)})
		})
		if err != nil { // the entry stays: what was made, if anything was, is dropped by it
			return nil, err
		}
		internal, err := json.Marshal(l)
		if err != nil {
			return nil, err
		}
		out, err := answer(map[string]string{"username": user, "password": password})
		if err != nil {
			return nil, err
		}
		out.Ops = []secrets.Op{storage.Delete(entry)}
		out.Lease = &secrets.Lease{TTL: ttl, MaxTTL: longest, Renewable: true, Internal: internal}
		return out, nil
	})
	return resp, nil
}

// Renew implements engine.Leaser.
func (e *Engine) Renew(ctx context.Context, view engine.View, l engine.Lease) (*secrets.Response, error) {
	of, err := record.ReadJSON[live](l.Internal)
	if err != nil {
		return nil, err
	}
	cfg, err := (&call{Context: ctx, e: e, view: view}).config(of.DB)
	if err != nil {
		return nil, err
	}
	return nil, e.ask(ctx, renews, cfg, func(ctx context.Context, at *link) error {
		return at.renew(ctx, of.Renew, values{user: of.User, until: l.Expires})
	})
}

// Revoke implements engine.Leaser.
func (e *Engine) Revoke(ctx context.Context, view engine.View, l engine.Lease) (*secrets.Response, error) {
	of, err := record.ReadJSON[live](l.Internal)
	if err != nil {
		return nil, err
	}
	return nil, (&call{Context: ctx, e: e, view: view}).end(of)
}

// end takes a role away; one that is not there is no error.
func (c *call) end(of *live) error {
	cfg, err := c.config(of.DB)
	if err != nil {
		return err
	}
	return c.e.ask(c, revokes, cfg, func(ctx context.Context, l *link) error {
		return l.end(ctx, of.Revoke, values{user: of.User})
	})
}

// Due implements engine.Tender: roles of crashes to drop, passwords to change.
func (e *Engine) Due(ctx context.Context, view engine.View, now time.Time) ([]*secrets.Request, error) {
	e.links.sweep(time.Now())
	var out []*secrets.Request
	for _, what := range []string{walPrefix, rotatePrefix} {
		records, err := view.Scan(ctx, what, dueKey(what, now.Add(1), ""), 16)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			rest := r.Key
			if what == rotatePrefix {
				_, name, _ := strings.Cut(strings.TrimPrefix(r.Key, what), "/")
				rest = "rotate-role/" + name
			}
			body, err := json.Marshal(map[string]string{"entry": r.Key})
			if err != nil {
				return nil, err
			}
			out = append(out, &secrets.Request{Op: secrets.Update, Rest: rest, Body: body})
		}
	}
	return out, nil
}

// drop ends the role of an entry that a crash left, or puts that off.
func (c *call) drop() (*secrets.Response, error) {
	key := c.f.String("entry")
	raw, ok, err := c.view.Get(c, key)
	if err != nil || !ok {
		return &secrets.Response{}, err
	}
	of, err := record.ReadJSON[live](raw)
	if err != nil {
		return nil, err
	}
	ops := []secrets.Op{storage.Delete(key)}
	if err := c.end(of); err != nil {
		of.Tries++
		op, err := put(dueKey(walPrefix, c.r.Now.Add(min(time.Minute<<min(of.Tries, 6), walMost)), of.User), of)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return &secrets.Response{Ops: ops}, nil
}
