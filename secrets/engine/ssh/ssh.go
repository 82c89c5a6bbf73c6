// Package ssh lets people and hosts into machines by SSH (contract 4.9): with certificates that an authority of the
// mount signs, or with one-time passwords that a host asks about.
//
// The authority's private key never leaves the mount. A certificate is made by a role: what the role does not allow
// is refused, and never left out in silence. A one-time password is stored by its hash, is good once, and goes with
// its lease.
package ssh

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount.
type Engine struct {
	// TTLs are the default and the longest lifetime of the mount.
	TTLs func() (standard, longest time.Duration)
	// Hash keys the names of one-time passwords.
	Hash func(password string) string

	roles record.Cache[*Role]
	cas   record.Cache[*authority]
}

var _ engine.Leaser = (*Engine)(nil)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special {
	return engine.Special{Open: []string{"public_key", "verify"}}
}

// Serial implements engine.Engine: a password is verified once, and changes of one object follow each other.
func (e *Engine) Serial(r *secrets.Request) string {
	if !r.Op.Writes() {
		return ""
	}
	switch kind, name, _ := strings.Cut(r.Rest, "/"); kind {
	case "roles":
		return "role " + name
	case "config":
		return "config"
	case "verify":
		if f, err := r.Fields(); err == nil {
			return "otp " + e.Hash(f.String("otp"))
		}
	}
	return ""
}

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	if name, is := strings.CutPrefix(r.Rest, "roles/"); is && storage.CheckKey("role/"+name) == nil {
		_, exists, err = view.Get(ctx, "role/"+name)
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
	name string // of the role, where the path has one
	ops  []secrets.Op
}

type handler = func(*call) (*secrets.Response, error)

// routes are the paths by operation; "*" stands for a name.
var routes = map[string]map[secrets.Operation]handler{
	"config/ca":  {secrets.Read: (*call).caRead, secrets.Update: (*call).caWrite, secrets.Delete: (*call).caDelete},
	"public_key": {secrets.Read: (*call).publicKey},
	"roles":      {secrets.List: (*call).roleList},
	"roles/*":    {secrets.Read: (*call).roleRead, secrets.Update: (*call).roleWrite, secrets.Delete: (*call).roleDelete},
	"sign/*":     {secrets.Update: (*call).sign},
	"issue/*":    {secrets.Update: (*call).issue},
	"creds/*":    {secrets.Update: (*call).creds},
	"verify":     {secrets.Update: (*call).verify},
	"lookup":     {secrets.Update: (*call).lookup},
}

var (
	errUnsupported = errkind.New(errkind.Conflict, "unsupported operation")
	errNoPath      = errkind.New(errkind.NotFound, "unsupported path")
	errNotFound    = errkind.New(errkind.NotFound, "")
)

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &call{Context: ctx, e: e, view: view, r: r, f: f}
	path := strings.TrimSuffix(r.Rest, "/")
	ops := routes[path]
	if kind, name, ok := strings.Cut(path, "/"); ops == nil && ok && !strings.Contains(name, "/") {
		ops, c.name = routes[kind+"/*"], name
		if err := storage.CheckKey("role/" + name); err != nil {
			return nil, invalid("role name: %v", err)
		}
	}
	if ops == nil {
		return nil, errNoPath
	}
	op := r.Op
	if op == secrets.Create {
		op = secrets.Update
	}
	do := ops[op]
	if do == nil {
		return nil, errUnsupported
	}
	resp, err := do(c)
	if err != nil {
		return nil, err
	}
	resp.Ops = append(resp.Ops, c.ops...)
	return resp, nil
}

func (c *call) put(key string, v any) error {
	raw, err := json.Marshal(v)
	c.ops = append(c.ops, secrets.Op{Key: key, Value: raw})
	return err
}

func answer(v any) (*secrets.Response, error) {
	data, err := json.Marshal(v)
	return &secrets.Response{Data: data}, err
}
