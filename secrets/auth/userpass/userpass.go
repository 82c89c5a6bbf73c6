// Package userpass logs users in by name and password (contract 3.2).
package userpass

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/password"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount of the method.
type Engine struct {
	Hashing *limit.Gate   // how many passwords are hashed at once; shared between mounts
	Lockout *auth.Lockout // shared between mounts
	Rules   auth.LockoutRules
	Mount   string // what tells this mount's users from others' in Lockout
}

var _ engine.Renewer = (*Engine)(nil)

const (
	cost     = 10
	dearest  = 14 // the most that one login may cost who brings a hash of their own
	users    = "users/"
	badLogin = "invalid username or password"
)

// nobody is the hash that a password is compared with where there is no such
// user: an unknown name takes as long as a wrong password.
var nobody = []byte("$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy")

// user is a user as it is stored.
type user struct {
	Hash []byte `json:"password_hash"`
	auth.Params
}

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login/*"}} }

// Serial implements engine.Engine: changes of one user follow each other.
func (*Engine) Serial(r *secrets.Request) string {
	if name, ok := strings.CutPrefix(r.Rest, users); ok && r.Op.Writes() {
		name, _, _ = strings.Cut(name, "/")
		return users + strings.ToLower(name)
	}
	return ""
}

// Exists implements engine.Engine.
func (e *Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	name, is := strings.CutPrefix(r.Rest, users)
	if !is || strings.Contains(name, "/") {
		return false, false, nil
	}
	return auth.Exists[user](ctx, view, users, users+strings.ToLower(name))
}

// Renewable implements engine.Renewer: a user who is gone, or has other policies by now, renews nothing.
func (*Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
	error) {
	u, err := find(ctx, view, string(l.Data))
	if err == nil && u == nil {
		err = auth.Gone("user", string(l.Data))
	}
	if err == nil {
		err = u.Unchanged(l.Policies)
	}
	if err != nil {
		return engine.Terms{}, err
	}
	return u.Terms(), nil
}

func find(ctx context.Context, view engine.View, name string) (*user, error) {
	return auth.Find[user](ctx, view, users, name)
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	if r.Op == secrets.List {
		if strings.TrimSuffix(r.Rest, "/") != "users" {
			return nil, errkind.New(errkind.NotFound, "unsupported path")
		}
		return auth.Keys(view.List(ctx, users, "", 0))
	}
	kind, name, _ := strings.Cut(r.Rest, "/")
	name, part, _ := strings.Cut(strings.ToLower(name), "/")
	if name == "" || (kind != "users" && kind != "login") ||
		(part != "" && (kind == "login" || (part != "password" && part != "policies"))) {
		return nil, errkind.New(errkind.NotFound, "unsupported path")
	}
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	write := r.Op == secrets.Create || r.Op == secrets.Update
	switch {
	case kind == "login" && write:
		return e.login(ctx, view, r, f, name)
	case kind == "login" || (part != "" && !write):
		return nil, errkind.New(errkind.Conflict, "unsupported operation")
	}
	u, err := find(ctx, view, name)
	if err != nil {
		return nil, err
	}
	switch {
	case write:
		return e.write(ctx, r, f, name, part, u)
	case r.Op == secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(users + name)}}, nil
	case r.Op == secrets.Read && u != nil:
		out := map[string]any{}
		u.Show(out)
		if len(u.Policies) > 0 {
			out["policies"] = u.Policies
		}
		return auth.Data(out)
	case r.Op == secrets.Read:
		return nil, errkind.New(errkind.NotFound, "")
	}
	return nil, errkind.New(errkind.Conflict, "unsupported operation")
}

func (e *Engine) write(ctx context.Context, r *secrets.Request, f *secrets.Fields, name, part string,
	u *user) (*secrets.Response, error) {
	if u == nil {
		if part != "" {
			return nil, errkind.New(errkind.Invalid, "username does not exist")
		}
		u = &user{}
	}
	if part != "password" {
		if err := u.Read(f); err != nil {
			return nil, err
		}
	}
	if part != "policies" {
		if err := e.password(ctx, r, f, u, part == "password"); err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(u)
	return &secrets.Response{Ops: []secrets.Op{storage.Put(users+name, raw)}}, err
}

// password takes a new password, or its hash.
func (e *Engine) password(ctx context.Context, r *secrets.Request, f *secrets.Fields, u *user, must bool) error {
	text, hash := f.String("password"), f.String("password_hash")
	if err := f.Err(); err != nil {
		return err
	}
	switch {
	case text != "" && hash != "":
		return errkind.New(errkind.Invalid, "fields \"password\" and \"password_hash\": give one of them")
	case text == "" && hash == "":
		if must || u.Hash == nil {
			return errkind.New(errkind.Invalid, "missing password")
		}
		return nil
	case hash != "":
		if n, err := bcrypt.Cost([]byte(hash)); err != nil || n > dearest || len(hash) != 60 {
			return errkind.Errorf(errkind.Invalid, "field \"password_hash\": must be a bcrypt hash of a cost of %d at most",
				dearest)
		}
		u.Hash = []byte(hash)
		return nil
	case len(text) > 72:
		return errkind.New(errkind.Invalid, "field \"password\": must have 72 bytes at most")
	}
	permit, err := e.Hashing.Acquire(ctx, r.Remote.String())
	if err != nil {
		return err
	}
	defer permit.Release()
	u.Hash, err = password.Hash(ctx, []byte(text), cost)
	return err
}

func (e *Engine) login(ctx context.Context, view engine.View, r *secrets.Request, f *secrets.Fields,
	name string) (*secrets.Response, error) {
	text := f.String("password")
	if err := f.Err(); err != nil {
		return nil, err
	}
	if text == "" {
		return nil, errkind.New(errkind.Invalid, "missing password")
	}
	alias := e.Mount + "\x00" + name
	if e.Lockout.Locked(&e.Rules, alias, r.Now) { // before anything is hashed
		return nil, auth.ErrDenied
	}
	u, err := find(ctx, view, name)
	if err != nil {
		return nil, err
	}
	hash := nobody
	if u != nil {
		hash = u.Hash
	}
	permit, err := e.Hashing.Acquire(ctx, r.Remote.String())
	if err != nil {
		return nil, err
	}
	good := false
	if !e.Lockout.Locked(&e.Rules, alias, r.Now) {
		good, err = password.Matches(ctx, hash, []byte(text))
	}
	permit.Release()
	if err != nil {
		return nil, err
	}
	good = good && u != nil
	if now, err := find(ctx, view, name); err != nil { // it may have waited: the user of now counts
		return nil, err
	} else if now == nil || u == nil || !bytes.Equal(now.Hash, u.Hash) {
		good = false
	} else {
		u = now
	}
	if !e.Lockout.Tell(&e.Rules, alias, r.Now, good) {
		return nil, auth.ErrDenied
	}
	if !good {
		return nil, errkind.New(errkind.Invalid, badLogin)
	}
	if !auth.Within(u.CIDRs, r.Remote) {
		return nil, auth.ErrDenied
	}
	a := u.Auth()
	a.DisplayName, a.Alias, a.Metadata = strings.TrimSuffix(strings.TrimPrefix(r.Mount, "auth/"), "/")+"-"+name, name,
		map[string]string{"username": name}
	a.Login = []byte(name)
	return &secrets.Response{Auth: a}, nil
}
