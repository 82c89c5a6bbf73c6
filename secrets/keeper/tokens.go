package keeper

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// issued is a token in the making.
type issued struct {
	*task.Issued
	ops []storage.Op
}

// issue makes the token of an answer. Until release is called nothing ends its
// parent: a token whose parent ended while it was made would live on by itself.
func (k *Keeper) issue(ctx context.Context, t *task.Task, resp *secrets.Response) (made *issued, release func(), err error) {
	a := resp.Auth
	tok := &token.Token{Path: path.Join(t.Path, a.Suffix), DisplayName: a.DisplayName, Meta: a.Metadata, MaxTTL: a.MaxTTL,
		ExplicitMax: a.ExplicitMax, Period: a.Period, Renewable: a.Renewable, Uses: a.NumUses, Role: a.Role, CIDRs: a.BoundCIDRs}
	tok.Policies = withDefault(a.Policies, a.NoDefault)
	if tok.Root() && t.Entry.Type != "token" {
		return nil, nil, errkind.New(errkind.Invalid, "auth methods cannot create root tokens")
	}
	who, err := k.identify(ctx, t, a)
	if err != nil {
		return nil, nil, err
	}
	tok.Entity, tok.Login = who.entity, loginOf(t, a.Login)
	if a.Workload != "" {
		tok.Workload = workloadOf(t, a.Workload)
		who.ops = append(who.ops, storage.Put(workloadNames+tok.Workload, []byte(a.Workload)))
	}
	if tok.Batch = isBatch(a.Type, t.Entry.Config.TokenType); tok.Batch {
		if err := tok.CheckBatch(); err != nil {
			who.release()
			return nil, nil, err
		}
		tok.Accessor, tok.Renewable = "", false
	}
	k.tree.RLock()
	free := func() { k.tree.RUnlock(); who.release() }
	defer func() {
		if err != nil {
			free()
		}
	}()
	if !a.Orphan && t.Bearer != nil {
		parent, err := t.Tables.Book.Find(ctx, t.Bearer.Hash)
		if err != nil {
			return nil, nil, err
		}
		if parent == nil {
			return nil, nil, rights.ErrDenied
		}
		tok.Parent = parent.Hash
	}
	if tok.Begin(t.Now, a.TTL, k.gate.Limits(t.Entry)) {
		resp.Warnings = append(resp.Warnings, "TTL is capped by the maximum that holds here: "+tok.TTL.String())
	}
	if tok.Batch {
		if err := k.takeTokenRoom(t, tok); err != nil {
			return nil, nil, err
		}
		if tok.Workload != "" {
			return nil, nil, errkind.New(errkind.Invalid, "field \"token_type\": a workload's token cannot be a batch token: nobody could end it with the workload")
		}
		made, err := k.issueBatch(t, a, tok, who)
		return made, free, err
	}
	id := a.ID
	if id == "" {
		id = token.NewID()
	} else if old, err := t.Tables.Book.Find(ctx, t.Tables.Book.Hash(id)); err != nil || old != nil {
		return nil, nil, orTaken(err)
	}
	ops := t.Tables.Book.Make(id, tok)
	if err := k.takeTokenRoom(t, tok); err != nil {
		return nil, nil, err
	}
	return &issued{&task.Issued{ID: id, Token: tok, Left: tok.Left(t.Now), Identity: who.policies}, append(ops, who.ops...)}, free, nil
}

// issueBatch makes a token that is stored nowhere.
func (k *Keeper) issueBatch(t *task.Task, a *secrets.Auth, tok *token.Token, who *whose) (*issued, error) {
	if a.ID != "" {
		return nil, errkind.New(errkind.Invalid, "field \"id\": batch tokens cannot have it")
	}
	id, err := tok.Text(func(plain []byte) ([]byte, error) { return k.records.Barrier.SealText(token.BatchName, plain) })
	return &issued{&task.Issued{ID: id, Token: tok, Left: tok.Left(t.Now), Identity: who.policies}, who.ops}, err
}

func orTaken(err error) error {
	if err != nil {
		return err
	}
	return errkind.New(errkind.Invalid, "cannot create a token with a duplicate ID")
}

func withDefault(list []string, without bool) []string {
	var out []string
	for _, name := range list {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			out = append(out, name)
		}
	}
	if !without && !slices.Contains(out, policy.RootName) {
		out = append(out, "default")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// tokens answers auth/token/.
type tokens struct {
	task.Own
	k *Keeper
}

// Special implements engine.Engine.
func (*tokens) Special() engine.Special {
	return engine.Special{Protected: []string{"revoke-orphan", "accessors", "accessors/"}}
}

// Serial implements engine.Engine: changes of a role follow each other.
func (*tokens) Serial(r *secrets.Request) string {
	if strings.HasPrefix(r.Rest, "roles/") && r.Op.Writes() {
		return r.Rest
	}
	return ""
}

// Answer implements Handler.
func (e *tokens) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
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
		return nil, errUnsupported
	}
	if r.Rest == "tidy" { // ends of tokens are found by their time: nothing is left over
		return tidied(), nil
	}
	name, self := strings.CutSuffix(head, "-self")
	name, byAccessor := strings.CutSuffix(name, "-accessor")
	if name == "lookup" || name == "renew" || name == "revoke" || name == "revoke-orphan" {
		tok, id, err := e.meant(ctx, t, f, self, byAccessor)
		if err != nil {
			return nil, err
		}
		return e.act(ctx, t, f, name, tok, id)
	}
	return nil, errkind.New(errkind.NotFound, "unsupported path")
}

var errUnsupported = errkind.New(errkind.Conflict, "unsupported operation")

// meant finds the token that a request is about. id is "" where only the accessor was given.
func (e *tokens) meant(ctx context.Context, t *task.Task, f *secrets.Fields, self, byAccessor bool) (tok *token.Token, id string, err error) {
	switch {
	case self:
		return t.Bearer.Token, t.Token, nil
	case byAccessor:
		accessor := f.String("accessor")
		if accessor == "" {
			return nil, "", errkind.New(errkind.Invalid, "missing accessor")
		}
		tok, err = t.Tables.Book.ByAccessor(ctx, accessor)
		if err == nil && (tok == nil || tok.Expired(t.Now)) {
			err = errkind.New(errkind.Denied, "invalid accessor")
		}
		return tok, "", err
	}
	if id = f.String("token"); id == "" {
		return nil, "", errkind.New(errkind.Invalid, "missing token ID")
	}
	tok, err = e.k.rights.Token(ctx, t.Tables, id)
	if err == nil && (tok == nil || tok.Expired(t.Now)) {
		err = errkind.New(errkind.Denied, "bad token")
	}
	return tok, id, err
}

func (e *tokens) act(ctx context.Context, t *task.Task, f *secrets.Fields, name string, tok *token.Token, id string) (*secrets.Response, error) {
	switch {
	case name == "lookup":
		shown := *tok
		shown.Uses += e.k.reserves.of(tok.Hash)
		return e.describe(ctx, t, &shown, id)
	case tok.Batch:
		return nil, errkind.New(errkind.Invalid, map[bool]string{true: "batch tokens cannot be renewed", false: "batch tokens cannot be revoked"}[name == "renew"])
	}
	switch name {
	case "renew":
		return e.renew(ctx, t, f, tok, id)
	case "revoke":
		return &secrets.Response{}, e.k.end(ctx, t.Tables, tok)
	}
	e.k.tree.Lock()
	defer e.k.tree.Unlock()
	ops, err := t.Tables.Book.EndAlone(ctx, tok)
	if err != nil {
		return nil, err
	}
	_, err = e.k.commitEnd(ctx, e.k.flying.Bulk(), t.Tables, ops, []string{tok.Hash}, true)
	return &secrets.Response{}, err
}

// describe is what a look-up tells.
func (e *tokens) describe(ctx context.Context, t *task.Task, tok *token.Token, id string) (*secrets.Response, error) {
	policies, err := e.k.rights.ByIdentity(ctx, t.Tables, tok.Entity)
	if err != nil {
		return nil, err
	}
	now := t.Now
	var expires any
	if !tok.Expires.IsZero() {
		expires = tok.Expires.Format(time.RFC3339Nano)
	}
	d := map[string]any{"id": id, "accessor": tok.Accessor, "policies": tok.Policies, "path": tok.Path, "meta": tok.Meta, "display_name": tok.DisplayName,
		"num_uses": max(tok.Uses, 0), "orphan": tok.Parent == "", "creation_time": tok.Created.Unix(), "creation_ttl": task.Seconds(tok.TTL), "expire_time": expires,
		"ttl": task.Seconds(tok.Left(now)), "explicit_max_ttl": task.Seconds(tok.ExplicitMax), "entity_id": tok.Entity, "type": tok.Type()}
	if !tok.Expires.IsZero() {
		d["renewable"], d["issue_time"] = tok.Renewable, tok.Created.Format(time.RFC3339Nano)
	}
	if !tok.Renewed.IsZero() {
		d["last_renewal"], d["last_renewal_time"] = tok.Renewed.Format(time.RFC3339Nano), tok.Renewed.Unix()
	}
	if len(policies) > 0 {
		d["identity_policies"] = policies
	}
	for name, set := range map[string]bool{"period": tok.Period > 0, "role": tok.Role != "", "bound_cidrs": len(tok.CIDRs) > 0} {
		if set {
			d[name] = map[string]any{"period": task.Seconds(tok.Period), "role": tok.Role, "bound_cidrs": tok.CIDRs}[name]
		}
	}
	data, err := json.Marshal(d)
	return &secrets.Response{Data: data}, err
}

func (e *tokens) renew(ctx context.Context, t *task.Task, f *secrets.Fields, tok *token.Token, id string) (*secrets.Response, error) {
	increment := f.Duration("increment", 0)
	if err := f.Err(); err != nil {
		return nil, err
	}
	defer e.k.uses.Take("use\x00" + tok.Hash)()
	e.k.tree.RLock()
	defer e.k.tree.RUnlock()
	fresh, err := t.Tables.Book.Find(ctx, tok.Hash)
	if err != nil || fresh == nil {
		return nil, rights.OrDenied(err)
	}
	stored := *fresh
	limits, err := e.k.renewable(ctx, t, fresh)
	if err != nil {
		return nil, err
	}
	capped, err := fresh.Renew(t.Now, increment, limits)
	if err != nil {
		return nil, err
	}
	if token.Covered(t.Now, stored.Renewed, stored.Expires, fresh.Expires) {
		fresh = &stored
		e.k.cfg.Metrics.Counter("expire.renew.coalesced").Add(1)
	} else if err := e.k.records.Commit(ctx, token.Renewed(fresh)); err != nil {
		return nil, err
	}
	resp := &secrets.Response{}
	if capped {
		resp.Warnings = []string{"TTL is capped by the maximum that holds here"}
	}
	t.Left.Renewed, t.Left.RenewedID = fresh, id
	return resp, nil
}

func (e *tokens) accessors(ctx context.Context, t *task.Task) (*secrets.Response, error) {
	names, err := e.k.records.Under.List(ctx, token.Records, "", 0)
	if err != nil {
		return nil, err
	}
	list := append([]string{}, names...)
	data, err := json.Marshal(map[string][]string{"keys": list})
	return &secrets.Response{Data: data}, err
}
