// Package approle logs machines in by a role's id and a secret id (contract 3.3).
//
// A role has a key of its own, drawn when it is made: what is below it means
// nothing to a later role of the same name. A secret id with a limited number of
// uses has a counter beside its record, under the name of its accessor; a login
// counts it down in the batch that makes the token.
package approle

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount of the method.
type Engine struct {
	Lockout *auth.Lockout
	Rules   auth.LockoutRules
	Mount   string                 // what tells this mount's roles from others' in Lockout
	Hash    func(id string) string // the name of an id in storage, keyed
}

var _ engine.Renewer = (*Engine)(nil)

const (
	roles   = "role/"
	roleIDs = "role-id/"
)

var (
	errNotFound    = errkind.New(errkind.NotFound, "")
	errUnsupported = errkind.New(errkind.Conflict, "unsupported operation")
	errPath        = errkind.New(errkind.NotFound, "unsupported path")
)

// role is a role as it is stored.
type role struct {
	Name   string        `json:"name"`
	Key    string        `json:"key"`
	ID     string        `json:"role_id"`
	Bind   bool          `json:"bind_secret_id"`
	CIDRs  []string      `json:"secret_id_bound_cidrs,omitempty"`
	Uses   int           `json:"secret_id_num_uses,omitempty"`
	Life   time.Duration `json:"secret_id_ttl,omitempty"`
	Local  bool          `json:"local_secret_ids,omitempty"`
	Tokens auth.Params   `json:"tokens"`
}

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login"}} }

// Serial implements engine.Engine: changes of one role with its secret ids follow each other. Logins do where there
// is something to count down (call.spend): one without a limit writes nothing of the method's, and must not wait for
// others' commits.
func (*Engine) Serial(r *secrets.Request) string {
	if !r.Op.Writes() || r.Rest == "login" {
		return ""
	}
	if name, ok := strings.CutPrefix(r.Rest, roles); ok {
		name, _, _ = strings.Cut(name, "/")
		return roles + strings.ToLower(name)
	}
	return r.Rest
}

// Exists implements engine.Engine.
func (e *Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	name, is := strings.CutPrefix(r.Rest, roles)
	if !is || strings.Contains(name, "/") {
		return false, false, nil
	}
	return auth.Exists[role](ctx, view, roles, roles+strings.ToLower(name))
}

// Renewable implements engine.Renewer: a role that is gone renews nothing. The secret id is not asked for: it may
// have been good for one login.
func (*Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
	error) {
	r, err := auth.StillThere[role](ctx, view, roles, string(l.Data))
	if err != nil {
		return engine.Terms{}, err
	}
	return r.Tokens.Terms(), nil
}

func find(ctx context.Context, view engine.View, name string) (*role, error) {
	return auth.Find[role](ctx, view, roles, name)
}

// call is a request with what it found.
type call struct {
	context.Context
	*secrets.Request
	e    *Engine
	view engine.View
	f    *secrets.Fields
	role *role
	part string // what follows the role's name
}

func (c *call) write() bool { return c.Op == secrets.Create || c.Op == secrets.Update }

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &call{Context: ctx, Request: r, e: e, view: view, f: f}
	path := strings.TrimSuffix(r.Rest, "/")
	switch {
	case path == "role" && r.Op == secrets.List:
		return auth.Keys(view.List(ctx, roles, "", 0))
	case path == "login" && c.write():
		return c.login()
	case path == "tidy/secret-id" && c.write():
		return c.tidy()
	}
	name, ok := strings.CutPrefix(path, roles)
	if !ok {
		return nil, errPath
	}
	name, c.part, _ = strings.Cut(name, "/")
	name = strings.ToLower(name)
	if c.role, err = find(ctx, view, name); err != nil {
		return nil, err
	}
	if c.part == "" {
		return c.own(name)
	}
	if c.role == nil {
		if c.Op == secrets.Read || c.Op == secrets.List {
			return nil, errNotFound
		}
		return nil, errkind.Errorf(errkind.Invalid, "role %q does not exist", name)
	}
	switch c.part {
	case "role-id":
		return c.roleID()
	case "secret-id", "custom-secret-id", "secret-id/lookup", "secret-id/destroy", "secret-id-accessor/lookup",
		"secret-id-accessor/destroy":
		return c.secretIDs()
	}
	return c.field()
}

// own is a request for the role itself.
func (c *call) own(name string) (*secrets.Response, error) {
	switch {
	case c.write():
		return c.writeRole(name)
	case c.Op == secrets.Delete && c.role == nil:
		return &secrets.Response{}, nil
	case c.Op == secrets.Delete:
		prefix := "s/" + c.role.Key + "/"
		records, err := c.view.Scan(c, prefix, storage.After(prefix), 0)
		ops := []secrets.Op{storage.Delete(roles + name), storage.Delete(roleIDs + c.e.Hash(c.role.ID))}
		for _, r := range records {
			ops = append(ops, storage.Delete(r.Key))
		}
		return &secrets.Response{Ops: ops}, err
	case c.Op == secrets.Read && c.role != nil:
		return auth.Data(c.role.show())
	case c.Op == secrets.Read:
		return nil, errNotFound
	}
	return nil, errUnsupported
}

func (r *role) show() map[string]any {
	out := map[string]any{"bind_secret_id": r.Bind, "secret_id_bound_cidrs": auth.List(r.CIDRs),
		"secret_id_num_uses": r.Uses,
		"secret_id_ttl":      auth.Seconds(r.Life), "local_secret_ids": r.Local}
	r.Tokens.Show(out)
	return out
}

func (c *call) writeRole(name string) (*secrets.Response, error) {
	made := c.role == nil
	if made {
		c.role = &role{Name: name, Key: rand.Text(), ID: uuid.NewString(), Bind: true}
	}
	r, f := c.role, c.f
	if err := r.Tokens.Read(f); err != nil {
		return nil, err
	}
	r.Bind = f.Bool("bind_secret_id", r.Bind)
	r.Uses = f.Int("secret_id_num_uses", r.Uses)
	r.Life = f.Duration("secret_id_ttl", r.Life)
	if local := f.Bool("local_secret_ids", r.Local); made {
		r.Local = local
	}
	for _, field := range []string{"bound_cidr_list", "secret_id_bound_cidrs"} {
		if f.Has(field) {
			var err error
			if r.CIDRs, err = auth.Blocks(f, field); err != nil {
				return nil, err
			}
		}
	}
	id := f.String("role_id")
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case r.Uses < 0 || r.Life < 0:
		return nil, errkind.New(errkind.Invalid, "secret_id_num_uses, secret_id_ttl: must not be negative")
	case !r.Bind && len(r.CIDRs) == 0 && len(r.Tokens.CIDRs) == 0:
		return nil, errkind.New(errkind.Invalid,
			"at least one constraint should be enabled on the role: bind_secret_id, secret_id_bound_cidrs or token_bound_cidrs")
	}
	return c.store(id, made)
}

// store stores the role, under another id where one is given.
func (c *call) store(id string, made bool) (*secrets.Response, error) {
	r := c.role
	var ops []secrets.Op
	if id != "" && id != r.ID {
		if _, taken, err := c.view.Get(c, roleIDs+c.e.Hash(id)); err != nil || taken {
			return nil, orInvalid(err, "role_id is already in use")
		}
		if !made {
			ops = append(ops, storage.Delete(roleIDs+c.e.Hash(r.ID)))
		}
		r.ID = id
	}
	raw, err := json.Marshal(r)
	return &secrets.Response{Ops: append(ops, storage.Put(roles+r.Name, raw),
		storage.Put(roleIDs+c.e.Hash(r.ID), []byte(r.Name)))}, err
}

func orInvalid(err error, text string) error {
	if err != nil {
		return err
	}
	return errkind.New(errkind.Invalid, text)
}

func (c *call) roleID() (*secrets.Response, error) {
	switch {
	case c.Op == secrets.Read:
		return auth.Data(map[string]string{"role_id": c.role.ID})
	case c.write():
		id := c.f.String("role_id")
		if err := c.f.Err(); err != nil || id == "" {
			return nil, orInvalid(err, "missing role_id")
		}
		return c.store(id, false)
	}
	return nil, errUnsupported
}

// fields are the role's paths for one parameter each, with what a DELETE leaves.
var fields = map[string]struct {
	name  string
	reset any
}{
	"policies": {"token_policies", []any{}}, "token-policies": {"token_policies", []any{}},
	"bind-secret-id":     {"bind_secret_id", true},
	"secret-id-num-uses": {"secret_id_num_uses", "0"}, "secret-id-ttl": {"secret_id_ttl", "0"},
	"secret-id-bound-cidrs": {"secret_id_bound_cidrs", []any{}},
	"bound-cidr-list":       {"secret_id_bound_cidrs", []any{}}, "token-bound-cidrs": {"token_bound_cidrs", []any{}},
	"period":    {"token_period", "0"},
	"token-ttl": {"token_ttl", "0"}, "token-max-ttl": {"token_max_ttl", "0"}, "token-num-uses": {"token_num_uses", "0"},
	"token-type": {"token_type", ""},
}

// field reads, writes or resets one parameter.
func (c *call) field() (*secrets.Response, error) {
	field, ok := fields[c.part]
	switch {
	case !ok:
		return nil, errPath
	case c.Op == secrets.Read:
		value := c.role.show()[field.name]
		return auth.Data(map[string]any{field.name: value, strings.ReplaceAll(c.part, "-", "_"): value})
	case c.Op == secrets.Delete:
		reset := secrets.FieldsOf(map[string]any{field.name: field.reset})
		c.f = &reset
	case !c.write():
		return nil, errUnsupported
	case !c.f.Has(field.name) && !c.f.Has(strings.ReplaceAll(c.part, "-", "_")):
		return nil, errkind.Errorf(errkind.Invalid, "missing %s", field.name)
	default: // this parameter and no other
		value := c.f.Any(field.name)
		if !c.f.Has(field.name) {
			value = c.f.Any(strings.ReplaceAll(c.part, "-", "_"))
		}
		one := secrets.FieldsOf(map[string]any{field.name: value})
		c.f = &one
	}
	return c.writeRole(c.role.Name)
}
