package tokens

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// Engine answers auth/token/.
type Engine struct {
	task.Own
	o *Tokens
}

// Special implements engine.Engine.
func (*Engine) Special() engine.Special {
	return engine.Special{Protected: []string{"revoke-orphan", "accessors", "accessors/"}}
}

// Serial implements engine.Engine: changes of a role follow each other.
func (*Engine) Serial(r *secrets.Request) string {
	if strings.HasPrefix(r.Rest, "roles/") && r.Op.Writes() {
		return r.Rest
	}
	return ""
}

// Answer implements Handler.
func (e *Engine) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	write := r.Op == secrets.Create || r.Op == secrets.Update
	head, name, _ := strings.Cut(strings.TrimSuffix(r.Rest, "/"), "/")
	switch {
	case head == "roles":
		return e.roles(ctx, t.View, r, f, name)
	case write && (r.Rest == "create" || r.Rest == "create-orphan" || head == "create" && name != ""):
		return e.create(ctx, t.View, t, f, name)
	case r.Rest == "lookup-self":
		return e.describe(ctx, t, t.Bearer.Token, r.Token)
	case r.Op == secrets.List && strings.TrimSuffix(r.Rest, "/") == "accessors":
		return e.accessors(ctx, t)
	case !write:
		return nil, system.ErrUnsupported
	}
	if r.Rest == "tidy" { // ends of tokens are found by their time: nothing is left over
		return Tidied(), nil
	}
	name, self := strings.CutSuffix(head, "-self")
	name, byAccessor := strings.CutSuffix(name, "-accessor")
	if name == "lookup" || name == "renew" || name == "revoke" || name == "revoke-orphan" {
		tok, id, err := e.meant(ctx, t, f, self, byAccessor)
		if err == errNoAccessor && name == "revoke" { // it is gone, as was asked
			return &secrets.Response{}, nil
		}
		if err != nil {
			return nil, err
		}
		return e.act(ctx, t, f, name, tok, id)
	}
	return nil, errkind.New(errkind.NotFound, "unsupported path")
}

var errNoAccessor = errkind.New(errkind.Invalid, "invalid accessor")

// meant finds the token that a request is about. id is "" where only the accessor was given.
func (e *Engine) meant(ctx context.Context, t *task.Task, f *secrets.Fields, self, byAccessor bool) (tok *token.Token,
	id string, err error) {
	switch {
	case self:
		return t.Bearer.Token, t.Token, nil
	case byAccessor:
		accessor := f.String("accessor")
		if accessor == "" {
			return nil, "", errkind.New(errkind.Invalid, "missing accessor")
		}
		tok, err = t.Tables.Book.ByAccessor(ctx, accessor)
		if err == nil && (tok == nil || tok.Expired(t.Now) || !t.Tables.Sees(tok.Hash)) {
			err = errNoAccessor
		}
		return tok, "", err
	}
	if id = f.String("token"); id == "" {
		return nil, "", errkind.New(errkind.Invalid, "missing token ID")
	}
	tok, err = e.o.rights.Token(ctx, t.Tables, id)
	if err == nil && (tok == nil || tok.Expired(t.Now) || !t.Tables.Sees(tok.Hash)) {
		err = errkind.New(errkind.Denied, "bad token")
	}
	return tok, id, err
}

func (e *Engine) act(ctx context.Context, t *task.Task, f *secrets.Fields, name string, tok *token.Token,
	id string) (*secrets.Response, error) {
	switch {
	case name == "lookup":
		shown := *tok
		shown.Uses += e.o.Ahead(tok.Hash)
		return e.describe(ctx, t, &shown, id)
	case tok.Batch:
		return nil, errkind.New(errkind.Invalid, map[bool]string{true: "batch tokens cannot be renewed",
			false: "batch tokens cannot be revoked"}[name == "renew"])
	}
	switch name {
	case "renew":
		return e.renew(ctx, t, f, tok, id)
	case "revoke":
		return &secrets.Response{}, e.o.End(ctx, t.Tables, tok)
	}
	e.o.tree.Lock()
	defer e.o.tree.Unlock()
	ops, err := t.Tables.Book.EndAlone(ctx, tok)
	if err != nil {
		return nil, err
	}
	_, err = e.o.CommitEnd(ctx, e.o.flying.Bulk(), t.Tables, ops, []string{tok.Hash}, true)
	return &secrets.Response{}, err
}

// describe is what a look-up tells.
func (e *Engine) describe(ctx context.Context, t *task.Task, tok *token.Token, id string) (*secrets.Response, error) {
	of := t.Tables.Of(tok.Hash)
	if of == nil {
		return nil, rights.ErrDenied
	}
	policies, err := e.o.rights.ByIdentity(ctx, of, tok.Entity)
	if err != nil {
		return nil, err
	}
	now := t.Now
	var expires any
	if !tok.Expires.IsZero() {
		expires = tok.Expires.Format(time.RFC3339Nano)
	}
	d := map[string]any{"id": id, "accessor": tok.Accessor, "policies": tok.Policies,
		"path": strings.TrimPrefix(tok.Path, of.Path()), "meta": tok.Meta,
		"display_name": tok.DisplayName,
		"num_uses":     max(tok.Uses, 0), "orphan": tok.Parent == "", "creation_time": tok.Created.Unix(),
		"creation_ttl": task.Seconds(tok.TTL), "expire_time": expires,
		"ttl": task.Seconds(tok.Left(now)), "explicit_max_ttl": task.Seconds(tok.ExplicitMax), "entity_id": tok.Entity,
		"type": tok.Type()}
	if !tok.Expires.IsZero() {
		d["renewable"], d["issue_time"] = tok.Renewable, tok.Created.Format(time.RFC3339Nano)
	}
	if !tok.Renewed.IsZero() {
		d["last_renewal"], d["last_renewal_time"] = tok.Renewed.Format(time.RFC3339Nano), tok.Renewed.Unix()
	}
	if len(policies) > 0 {
		d["identity_policies"] = policies
	}
	for name, set := range map[string]bool{"period": tok.Period > 0, "role": tok.Role != "",
		"bound_cidrs": len(tok.CIDRs) > 0} {
		if set {
			d[name] = map[string]any{"period": task.Seconds(tok.Period), "role": tok.Role, "bound_cidrs": tok.CIDRs}[name]
		}
	}
	if of.Space != nil {
		d["namespace_path"] = of.Path()
	}
	data, err := json.Marshal(d)
	return &secrets.Response{Data: data}, err
}

func (e *Engine) renew(ctx context.Context, t *task.Task, f *secrets.Fields, tok *token.Token,
	id string) (*secrets.Response, error) {
	increment := f.Duration("increment", 0)
	if err := f.Err(); err != nil {
		return nil, err
	}
	defer e.o.names.Take("use\x00" + tok.Hash)()
	e.o.tree.RLock()
	defer e.o.tree.RUnlock()
	fresh, err := t.Tables.Book.Find(ctx, tok.Hash)
	if err != nil || fresh == nil {
		return nil, rights.OrDenied(err)
	}
	stored := *fresh
	limits, err := e.o.renewable(ctx, t, fresh)
	if err != nil {
		return nil, err
	}
	capped, err := fresh.Renew(t.Now, increment, limits)
	if err != nil {
		return nil, err
	}
	if token.Covered(t.Now, stored.Renewed, stored.Expires, fresh.Expires) {
		fresh = &stored
		e.o.meters.coalesced.Add(1)
	} else if err := e.o.records.Commit(ctx, token.Renewed(fresh)); err != nil {
		return nil, err
	}
	resp := &secrets.Response{}
	if capped {
		resp.Warnings = []string{"TTL is capped by the maximum that holds here"}
	}
	t.Left.Renewed, t.Left.RenewedID = fresh, id
	return resp, nil
}

func (e *Engine) accessors(ctx context.Context, t *task.Task) (*secrets.Response, error) {
	names, err := e.o.records.Under.List(ctx, token.Records, "", 0)
	if err != nil {
		return nil, err
	}
	list := []string{}
	for _, name := range names {
		if token.Space(name) == t.Tables.TokenSpace() {
			list = append(list, name)
		}
	}
	data, err := json.Marshal(map[string][]string{"keys": list})
	return &secrets.Response{Data: data}, err
}

// Tidied is the answer to who has tidied what leaves nothing behind.
func Tidied() *secrets.Response {
	return &secrets.Response{Status: http.StatusAccepted, Warnings: []string{"Tidy operation successfully started. Any " +
		"information from the operation will be printed to Vault's server logs."}}
}
