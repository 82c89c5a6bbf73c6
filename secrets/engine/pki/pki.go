// Package pki issues X.509 certificates (contract 4.6): roots and intermediates, several
// at once, roles that say who may be named how, revocation with lists and OCSP.
//
// A certificate and what else its request stores are one commit. A revocation is two small
// records, whatever the number of revoked certificates: lists are signed when they are asked
// for (revocation.Book), and OCSP answers from the one record of the certificate.
package pki

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/pki/acme"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/revocation"
	"corbel.dev/corbel/secrets/engine/pki/role"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount. Made with New.
type Engine struct {
	cfg     Config
	indexes record.Cache[*authority.Index]
	issuers record.Cache[*authority.Issuer]
	keys    record.Cache[*authority.Key]
	roles   record.Cache[*role.Role]
	urls    record.Cache[*authority.URLs]
	crls    record.Cache[*revocation.Config]
	tidies  record.Cache[*tidyConfig]
	states  record.Cache[*tidyState]
	book    revocation.Book
	acme    acme.Server
}

// Config is what an engine is made of.
type Config struct {
	Now func() time.Time
	// TTLs are the default and the longest lifetime of the mount.
	TTLs func() (standard, longest time.Duration)
	// Keys bounds how many RSA keys are made at once; shared between mounts.
	Keys *limit.Gate
}

// New makes the engine of a mount.
func New(cfg Config) *Engine { return &Engine{cfg: cfg, book: revocation.NewBook()} }

var (
	_ engine.Leaser  = (*Engine)(nil)
	_ engine.Tender  = (*Engine)(nil)
	_ engine.Stepper = (*Engine)(nil)
)

// Special implements engine.Engine: what verifies certificates needs no token.
func (*Engine) Special() engine.Special {
	return engine.Special{Open: append(acme.Open(), "ca", "ca/pem", "ca_chain", "cert/*", "crl", "crl/pem", "crl/delta",
		"crl/delta/pem", "issuers/", "ocsp", "ocsp/*",
		"unified-crl", "unified-crl/pem", "unified-crl/delta", "unified-crl/delta/pem", "unified-ocsp", "unified-ocsp/*",
		"issuer/+/json", "issuer/+/pem", "issuer/+/der", "issuer/+/crl", "issuer/+/crl/pem", "issuer/+/crl/der",
		"issuer/+/crl/delta", "issuer/+/crl/delta/pem", "issuer/+/crl/delta/der",
		"issuer/+/unified-crl", "issuer/+/unified-crl/pem", "issuer/+/unified-crl/der", "issuer/+/unified-crl/delta",
		"issuer/+/unified-crl/delta/pem", "issuer/+/unified-crl/delta/der"),
		Protected: []string{"root", "root/sign-self-issued", "issuer/+/sign-self-issued"}}
}

// Serial implements engine.Engine: what issues and revokes writes records of its own and waits
// for nobody; the rest reads what it changes.
func (*Engine) Serial(r *secrets.Request) string {
	if !r.Op.Writes() {
		return ""
	}
	if key, is := acme.Serial(r.Rest); is {
		return key
	}
	first, _, _ := strings.Cut(r.Rest, "/")
	switch first {
	case "issue", "sign", "sign-verbatim", "revoke", "revoke-with-key", "ocsp", "unified-ocsp":
		return ""
	case "issuer":
		if parts := strings.SplitN(r.Rest, "/", 4); len(parts) > 2 && (parts[2] == "issue" || parts[2] == "sign" ||
			parts[2] == "sign-verbatim") {
			return ""
		}
	case "roles":
		return r.Rest
	}
	return "config"
}

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	if !strings.HasPrefix(r.Rest, "roles/") || storage.CheckKey(r.Rest) != nil {
		return false, false, nil
	}
	_, exists, err = view.Get(ctx, r.Rest)
	return exists, true, err
}

// call is one request with what it needs at hand.
type call struct {
	context.Context
	e    *Engine
	view engine.View
	r    *secrets.Request
	f    *secrets.Fields
	ref  string   // the issuer that the path names; "" is the request's own choice, or the role's
	args []string // what stands where the route has '+', or behind its '*'
	ops  []secrets.Op
	warn []string
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	c := &call{Context: ctx, e: e, view: view, r: r}
	if resp, is, err := c.acme(); is {
		return resp, err
	}
	path, table := strings.TrimSuffix(r.Rest, "/"), routes
	if parts := strings.SplitN(path, "/", 3); parts[0] == "issuer" && len(parts) == 3 {
		c.ref, path, table = parts[1], parts[2], ofIssuer
	}
	do, err := c.find(table, path)
	if err != nil {
		return nil, err
	}
	if path == "ocsp" || path == "unified-ocsp" { // its body is no JSON
		c.f = &r.Query
	} else if c.f, err = r.Fields(); err != nil {
		return nil, err
	}
	resp, err := do(c)
	if err != nil {
		return nil, err
	}
	resp.Ops, resp.Warnings = append(resp.Ops, c.ops...), append(resp.Warnings, c.warn...)
	return resp, nil
}

// route is a path with '+' for a segment, or '*' at its end, and what answers which operation.
type route struct {
	path string
	on   map[secrets.Operation]handler
}

func (c *call) find(table map[string][]route, path string) (handler, error) {
	first, _, _ := strings.Cut(path, "/")
	op := c.r.Op
	if op == secrets.Create {
		op = secrets.Update
	}
	known := false
	for _, rt := range table[first] {
		args, ok := match(rt.path, path)
		if !ok {
			continue
		}
		known = true
		if do := rt.on[op]; do != nil {
			c.args = args
			return do, nil
		}
	}
	if known {
		return nil, errkind.New(errkind.Conflict, "unsupported operation")
	}
	return nil, errkind.New(errkind.NotFound, "unsupported path")
}

func match(pattern, path string) (args []string, ok bool) {
	if !strings.ContainsAny(pattern, "+*") {
		return nil, pattern == path
	}
	for {
		if pattern == "*" {
			return append(args, path), path != ""
		}
		want, rest, more := strings.Cut(pattern, "/")
		got, rest2, more2 := strings.Cut(path, "/")
		switch {
		case more != more2 || got == "":
			return nil, false
		case want == "+":
			args = append(args, got)
		case want != got:
			return nil, false
		}
		if !more {
			return args, true
		}
		pattern, path = rest, rest2
	}
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

var errNotFound = errkind.New(errkind.NotFound, "")

func answer(v any) (*secrets.Response, error) {
	data, err := json.Marshal(v)
	return &secrets.Response{Data: data}, err
}

func show(p record.Params) (*secrets.Response, error) {
	out := map[string]any{}
	p.Show(out)
	return answer(out)
}

func keys(names []string) (*secrets.Response, error) {
	if len(names) == 0 {
		return nil, errNotFound
	}
	return answer(map[string]any{"keys": names})
}

// Put adds a record to what the request stores.
func (c *call) Put(key string, v any) error {
	raw, err := json.Marshal(v)
	c.ops = append(c.ops, storage.Put(key, raw))
	return err
}

// Delete takes a record away with what the request stores.
func (c *call) Delete(key string) { c.ops = append(c.ops, storage.Delete(key)) }
