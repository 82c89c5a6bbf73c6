// Package acltoken makes and ends ACL tokens of Consul and Nomad, or of Corbel's own planes that speak their APIs
// (contract 4.10; mounts of the types consul and nomad): each lives as long as its lease.
//
// What is done elsewhere is written down before it is done. A token has an entry ("wal/...") that is committed before
// the token is made, and goes in the commit of its lease: a crash between leaves an entry, and the engine's own
// request ends what it names. Consul takes the accessor that the entry has; of Nomad, which draws one itself, the
// entry has the token's name, by which it is found.
//
// Every call of another server has a deadline and a bounded answer, and follows no redirect.
package acltoken

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// plane is a kind of server whose tokens are made.
type plane interface {
	name() string
	// params are those of the access, but for the token.
	params(a *access) record.Params
	url(a *access) string
	role() role
	// make makes a token by a role, under the name and the accessor of what was written down, or one that it gives.
	make(ctx context.Context, to *caller, r role, of *live) (data map[string]any, err error)
	// end ends a token; one that is not there is no error.
	end(ctx context.Context, to *caller, of *live) error
	// bootstrap asks a server without tokens for its first.
	bootstrap(ctx context.Context, to *caller) (token string, err error)
	roles() string // the path of roles
}

// role says what a token may do.
type role interface {
	params() record.Params
	check() error
	// lifetimes are 0 where the mount's count.
	lifetimes() (ttl, longest time.Duration)
}

// Engine is one mount. Made with Consul or Nomad.
type Engine struct {
	plane plane
	// ttls are the default and the longest lifetime of the mount.
	ttls func() (standard, longest time.Duration)
}

// Consul makes the engine of a mount of the type consul.
func Consul(ttls func() (standard, longest time.Duration)) *Engine { return &Engine{consul{}, ttls} }

// Nomad makes the engine of a mount of the type nomad.
func Nomad(ttls func() (standard, longest time.Duration)) *Engine { return &Engine{nomad{}, ttls} }

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
	if r.Op.Writes() {
		return r.Rest
	}
	return ""
}

// Exists implements engine.Engine.
func (e *Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	if strings.HasPrefix(r.Rest, e.plane.roles()+"/") && storage.CheckKey(r.Rest) == nil {
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

const (
	accessKey = "config/access"
	leaseKey  = "config/lease"
	walPrefix = "wal/"
	// walWait is when an entry is taken for one of a crash: no request takes as long.
	walWait = 5 * time.Minute
	walMost = time.Hour
)

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
	c := &call{ctx, e, view, r, f, ""}
	kind, name, _ := strings.Cut(strings.TrimSuffix(r.Rest, "/"), "/")
	c.name = name
	switch {
	case r.Rest == accessKey:
		return c.access()
	case r.Rest == leaseKey && e.plane.name() == "nomad":
		return c.lease()
	case kind == "wal" && r.Due:
		return c.drop()
	case kind == e.plane.roles() && (name == "") == (r.Op == secrets.List) && !strings.Contains(name, "/"):
		return c.role()
	case kind == "creds" && name != "" && !strings.Contains(name, "/"):
		if r.Op != secrets.Read {
			return nil, errUnsupported
		}
		return c.creds()
	}
	return nil, errNoPath
}

func answer(v any) (*secrets.Response, error) {
	data, err := json.Marshal(v)
	return &secrets.Response{Data: data}, err
}

func store(key string, v any) (*secrets.Response, error) {
	raw, err := json.Marshal(v)
	return &secrets.Response{Ops: []secrets.Op{storage.Put(key, raw)}}, err
}

// read fills v from a record; ok is false where there is none.
func (c *call) read(key string, v any) (ok bool, err error) {
	if storage.CheckKey(key) != nil {
		return false, errNoPath
	}
	raw, ok, err := c.view.Get(c, key)
	if err != nil || !ok {
		return false, err
	}
	if json.Unmarshal(raw, v) != nil {
		return false, errkind.Errorf(errkind.Corrupt, "the record %s is not what was stored", key)
	}
	return true, nil
}

func (c *call) role() (*secrets.Response, error) {
	key, r := c.e.plane.roles()+"/"+c.name, c.e.plane.role()
	if c.r.Op == secrets.List {
		names, err := c.view.List(c, key, c.f.String("after"), max(c.f.Int("limit", 0), 0))
		if err == nil && len(names) == 0 {
			err = errNotFound
		}
		if err != nil {
			return nil, err
		}
		return answer(map[string]any{"keys": names})
	}
	ok, err := c.read(key, r)
	if err != nil {
		return nil, err
	}
	switch c.r.Op {
	case secrets.Read:
		if !ok {
			return nil, errNotFound
		}
		out := map[string]any{}
		r.params().Show(out)
		return answer(out)
	case secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(key)}}, nil
	case secrets.Create, secrets.Update:
		if err := r.params().Read(c.f); err != nil {
			return nil, err
		}
		if ttl, longest := r.lifetimes(); longest > 0 && ttl > longest {
			return nil, invalid("field \"ttl\": is greater than max_ttl")
		}
		if err := r.check(); err != nil {
			return nil, err
		}
		return store(key, r)
	}
	return nil, errUnsupported
}

// terms are config/lease, of Nomad.
type terms struct {
	TTL    time.Duration `json:"ttl"`
	MaxTTL time.Duration `json:"max_ttl"`
}

func (c *call) lease() (*secrets.Response, error) {
	var t terms
	ok, err := c.read(leaseKey, &t)
	if err != nil {
		return nil, err
	}
	p := record.Params{{Name: "ttl", At: &t.TTL}, {Name: "max_ttl", At: &t.MaxTTL}}
	switch c.r.Op {
	case secrets.Read:
		if !ok {
			return nil, errNotFound
		}
		out := map[string]any{}
		p.Show(out)
		return answer(out)
	case secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(leaseKey)}}, nil
	case secrets.Create, secrets.Update:
		if err := p.Read(c.f); err != nil {
			return nil, err
		}
		if t.TTL < 0 || t.MaxTTL < 0 || t.MaxTTL > 0 && t.TTL > t.MaxTTL {
			return nil, invalid("field \"ttl\": must not be negative, nor greater than max_ttl")
		}
		return store(leaseKey, t)
	}
	return nil, errUnsupported
}

// live is what a lease, or an entry of what may have been made, knows of a token.
type live struct {
	Accessor string `json:"accessor,omitempty"`
	Name     string `json:"name"`
	Made     bool   `json:"made,omitempty"` // the accessor is the server's
	Tries    int    `json:"tries,omitempty"`
}

// dueKey is an entry of the index by time.
func dueKey(at time.Time, name string) string {
	return fmt.Sprintf("%s%020d/%s", walPrefix, max(at.UnixNano(), 0), name)
}

// creds makes a token for whoever asks.
func (c *call) creds() (*secrets.Response, error) {
	r := c.e.plane.role()
	ok, err := c.read(c.e.plane.roles()+"/"+c.name, r)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, invalid("role %q not found", c.name)
	}
	to, err := c.caller()
	if err != nil {
		return nil, err
	}
	ttl, longest, err := c.lifetimes(r)
	if err != nil {
		return nil, err
	}
	of := newLive(c.name, c.r.Holder, c.r.Now, to.NameLength)
	entry := dueKey(c.r.Now.Add(walWait), of.Name)
	resp, err := store(entry, of)
	if err != nil {
		return nil, err
	}
	resp.Then = step(func(ctx context.Context) (*secrets.Response, error) {
		data, err := c.e.plane.make(ctx, to, r, of)
		if err != nil { // the entry stays: what was made, if anything was, is ended by it
			return nil, err
		}
		internal, err := json.Marshal(of)
		if err != nil {
			return nil, err
		}
		out, err := answer(data)
		if err != nil {
			return nil, err
		}
		out.Ops = []secrets.Op{storage.Delete(entry)}
		out.Lease = &secrets.Lease{TTL: ttl, MaxTTL: longest, Renewable: true, Internal: internal}
		return out, nil
	})
	return resp, nil
}

// lifetimes are the role's, else those of config/lease, else the mount's, which bound all.
func (c *call) lifetimes(r role) (ttl, longest time.Duration, err error) {
	var t terms
	if _, err := c.read(leaseKey, &t); err != nil {
		return 0, 0, err
	}
	ttl, longest = c.e.ttls()
	for _, own := range []func() (time.Duration, time.Duration){
		func() (time.Duration, time.Duration) { return t.TTL, t.MaxTTL }, r.lifetimes} {
		a, b := own()
		if a > 0 {
			ttl = a
		}
		if b > 0 {
			longest = min(longest, b)
		}
	}
	return min(ttl, longest), longest, nil
}

// Renew implements engine.Leaser: tokens do not end by themselves.
func (*Engine) Renew(context.Context, engine.View, engine.Lease) (*secrets.Response, error) {
	return nil, nil
}

// Revoke implements engine.Leaser.
func (e *Engine) Revoke(ctx context.Context, view engine.View, l engine.Lease) (*secrets.Response, error) {
	var of live
	if json.Unmarshal(l.Internal, &of) != nil {
		return nil, errkind.New(errkind.Corrupt, "the lease is not what was stored")
	}
	return nil, (&call{Context: ctx, e: e, view: view}).end(&of)
}

func (c *call) end(of *live) error {
	to, err := c.caller()
	if err != nil {
		return err
	}
	return c.e.plane.end(c, to, of)
}

// Due implements engine.Tender: tokens of crashes to end.
func (*Engine) Due(ctx context.Context, view engine.View, now time.Time) (out []*secrets.Request, err error) {
	records, err := view.Scan(ctx, walPrefix, dueKey(now.Add(1), ""), 16)
	for _, r := range records {
		out = append(out, &secrets.Request{Op: secrets.Update, Rest: r.Key})
	}
	return out, err
}

// drop ends the token of an entry that a crash left, or puts that off.
func (c *call) drop() (*secrets.Response, error) {
	key := c.r.Rest
	var of live
	ok, err := c.read(key, &of)
	if err != nil || !ok {
		return &secrets.Response{}, err
	}
	ops := []secrets.Op{storage.Delete(key)}
	if err := c.end(&of); err != nil {
		of.Tries++
		later, err := store(dueKey(c.r.Now.Add(min(time.Minute<<min(of.Tries, 6), walMost)), of.Name), of)
		if err != nil {
			return nil, err
		}
		ops = append(ops, later.Ops...)
	}
	return &secrets.Response{Ops: ops}, nil
}
