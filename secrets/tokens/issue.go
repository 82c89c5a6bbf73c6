package tokens

import (
	"context"
	"path"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/identities"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// issued is a token in the making.
type issued struct {
	*task.Issued
	Ops []storage.Op
}

// Issue makes the token of an answer. Until release is called nothing ends its
// parent: a token whose parent ended while it was made would live on by itself.
func (o *Tokens) Issue(ctx context.Context, t *task.Task, resp *secrets.Response) (made *issued, release func(),
	err error) {
	a := resp.Auth
	tok := &token.Token{Origin: token.Origin{Path: path.Join(t.FromRoot(), a.Suffix)}, DisplayName: a.DisplayName,
		Meta: a.Metadata, Lifetime: a.Lifetime, Uses: a.NumUses, Role: a.Role,
		CIDRs: a.BoundCIDRs}
	tok.Policies = withDefault(a.Policies, a.NoDefault)
	if err := mayBeRoot(t, tok); err != nil {
		return nil, nil, err
	}
	who, err := o.who.Identify(ctx, t, a)
	if err != nil {
		return nil, nil, err
	}
	tok.Entity, tok.Login = who.Entity, loginOf(t, a.Login)
	if a.Workload != "" {
		tok.Workload = workloadOf(t, a.Workload)
		who.Ops = append(who.Ops, storage.Put(workloadNames+tok.Workload, []byte(a.Workload)))
	}
	if tok.Batch = isBatch(a.Type, t.Entry.Config.TokenType); tok.Batch {
		if err := tok.CheckBatch(); err != nil {
			who.Release()
			return nil, nil, err
		}
		tok.Accessor, tok.Renewable = "", false
	}
	o.tree.RLock()
	free := func() { o.tree.RUnlock(); who.Release() }
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
	if tok.Begin(t.Now, a.TTL, o.gate.Limits(t.Entry)) {
		resp.Warnings = append(resp.Warnings, "TTL is capped by the maximum that holds here: "+tok.TTL.String())
	}
	if tok.Batch {
		if err := o.quotas.TakeToken(t, tok); err != nil {
			return nil, nil, err
		}
		if tok.Workload != "" {
			return nil, nil, errkind.New(errkind.Invalid,
				"field \"token_type\": a workload's token cannot be a batch token: nobody could end it with the workload")
		}
		made, err := o.issueBatch(t, a, tok, who)
		return made, free, err
	}
	id, err := newID(ctx, t, a.ID)
	if err != nil {
		return nil, nil, err
	}
	ops := t.Tables.Book.MakeIn(id, t.Tables.TokenSpace(), tok)
	if err := o.quotas.TakeToken(t, tok); err != nil {
		return nil, nil, err
	}
	return &issued{&task.Issued{ID: id, Token: tok, Left: tok.Left(t.Now), Identity: who.Policies},
		append(ops, who.Ops...)}, free, nil
}

// newID draws an id, or takes the one that is asked for where nobody has it; it ends with the namespace's.
func newID(ctx context.Context, t *task.Task, asked string) (id string, err error) {
	if asked == "" {
		return token.NewID() + t.Tables.Suffix(), nil
	}
	id, space := asked+t.Tables.Suffix(), t.Tables.TokenSpace()
	if token.SpaceOf(id) != space {
		return "", errkind.New(errkind.Invalid, "field \"id\": must not be the prefix of tokens' ids")
	}
	if old, err := t.Tables.Book.Find(ctx, t.Tables.Book.Name(id, space)); err != nil || old != nil {
		return "", orTaken(err)
	}
	return id, nil
}

// issueBatch makes a token that is stored nowhere.
func (o *Tokens) issueBatch(t *task.Task, a *secrets.Auth, tok *token.Token, who *identities.Whose) (*issued, error) {
	if a.ID != "" {
		return nil, errkind.New(errkind.Invalid, "field \"id\": batch tokens cannot have it")
	}
	id, err := tok.Text(t.Tables.TokenSpace(), func(plain []byte) ([]byte, error) {
		return o.records.Barrier.SealText(token.BatchName, plain)
	})
	return &issued{&task.Issued{ID: id, Token: tok, Left: tok.Left(t.Now), Identity: who.Policies}, who.Ops}, err
}

func orTaken(err error) error {
	if err != nil {
		return err
	}
	return errkind.New(errkind.Invalid, "cannot create a token with a duplicate ID")
}

// mayBeRoot refuses a root token but where one makes another, in the root namespace.
func mayBeRoot(t *task.Task, tok *token.Token) error {
	switch {
	case !tok.Root():
	case t.Entry.Type != "token":
		return errkind.New(errkind.Invalid, "auth methods cannot create root tokens")
	case t.Tables.Space != nil:
		return errkind.New(errkind.Invalid, "root tokens may not be created from a non-root namespace")
	}
	return nil
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
