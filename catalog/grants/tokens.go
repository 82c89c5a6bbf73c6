package grants

import (
	"bytes"
	"context"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// The contract's bounds on the life of a token that ends.
const (
	minTokenTTL = time.Minute
	maxTokenTTL = 24 * time.Hour
)

var errNoToken = missing("Supplied token does not exist")

func putToken(t *acl.Token) catalog.RecordOp {
	index := t.ModifyIndex
	stored := *t
	stored.CreateIndex, stored.ModifyIndex = 0, 0
	return put(catalog.RecordACLToken, t.AccessorID, SecretName(t.SecretID), index, &stored)
}

// stored reads a token back with its indexes and the names of its links.
func (k *Keeper) stored(accessor string) (*acl.Token, error) {
	st := k.cfg.Store.State()
	t := TokenByAccessor(st, accessor)
	if t == nil {
		return nil, errNoToken // deleted in the meantime
	}
	ShowToken(st, t)
	return t, nil
}

// bootstrapKey is the record that says that there was a first token.
const bootstrapKey = "bootstrap"

// Bootstrap makes the first token with all rights. It works once; after that only when the
// operator has put the record's index into the reset file. secret may be "".
func (k *Keeper) Bootstrap(ctx context.Context, secret string) (*acl.Token, error) {
	if secret != "" && !uuidForm.MatchString(secret) {
		return nil, invalid("bootstrap token must be a UUID")
	}
	t, reset, err := k.bootstrap(ctx, secret, "Bootstrap Token (Global Management)", true)
	if err != nil {
		return nil, err
	}
	if reset {
		k.cfg.ResetIndex(true)
	}
	return k.stored(t.AccessorID)
}

func (k *Keeper) bootstrap(ctx context.Context, secret, description string, mayReset bool) (t *acl.Token, reset bool,
	err error) {
	if secret == "" {
		secret = uuid.NewString()
	}
	t = &acl.Token{AccessorID: uuid.NewString(), SecretID: secret, Description: description, CreateTime: k.now(),
		Grants: acl.Grants{Policies: []acl.Link{{ID: acl.GlobalManagementID}}}}
	t.Hash = acl.Sum(t)
	err = k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		index := uint64(0)
		if r := st.Record(catalog.RecordACLBootstrap, bootstrapKey); r != nil {
			index = r.ModifyIndex
			reset = mayReset && k.cfg.ResetIndex != nil && k.cfg.ResetIndex(false) == index
			if !reset {
				return nil, errkind.Errorf(errkind.Denied, "Permission denied: ACL bootstrap no longer allowed (reset index: %d)",
					index)
			}
		}
		if st.RecordByName(catalog.RecordACLToken, SecretName(secret)) != nil {
			return nil, invalid("SecretID is already in use")
		}
		return append(k.builtins(st), put(catalog.RecordACLBootstrap, bootstrapKey, "", index,
			&acl.Bootstrap{AccessorID: t.AccessorID}), putToken(t)), nil
	})
	return t, reset, err
}

// TokenRequest is a token as a client wants it.
type TokenRequest struct {
	acl.Token
	TTL time.Duration // how long it shall live; 0 is for ever unless ExpirationTime is set
}

// CreateToken stores a new token; AccessorID and SecretID may be given.
func (k *Keeper) CreateToken(ctx context.Context, in TokenRequest) (*acl.Token, error) {
	t := in.Token
	t.CreateTime, t.AuthMethod = k.now(), ""
	if in.TTL < 0 {
		return nil, invalid("Token Expiration TTL '%v' should be > 0", in.TTL)
	}
	if in.TTL > 0 {
		if t.ExpirationTime != nil {
			return nil, invalid("Token Expiration TTL and Token Expiration Time cannot both be set")
		}
		end := t.CreateTime.Add(in.TTL)
		t.ExpirationTime = &end
	}
	if t.ExpirationTime != nil {
		life := t.ExpirationTime.Sub(t.CreateTime)
		if life < minTokenTTL {
			return nil, invalid("ExpirationTime cannot be less than %v in the future (was %v)", minTokenTTL, life)
		}
		if life > maxTokenTTL {
			return nil, invalid("ExpirationTime cannot be more than %v in the future (was %v)", maxTokenTTL, life)
		}
	}
	return k.create(ctx, t)
}

// create checks and stores a token whose times are set.
func (k *Keeper) create(ctx context.Context, t acl.Token) (*acl.Token, error) {
	given := t.AccessorID != ""
	for what, id := range map[string]*string{"AccessorID": &t.AccessorID, "SecretID": &t.SecretID} {
		if *id == "" {
			*id = uuid.NewString()
		} else if !uuidForm.MatchString(*id) {
			return nil, invalid("Invalid Token: %s is not a valid UUID", what)
		}
	}
	if t.AccessorID == t.SecretID {
		return nil, invalid("Invalid Token: AccessorID and SecretID must differ")
	}
	t.ModifyIndex = 0
	err := k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		if st.Record(catalog.RecordACLToken, t.AccessorID) != nil {
			if !given {
				t.AccessorID = uuid.NewString()
			} else {
				return nil, invalid("Invalid Token: AccessorID is already in use")
			}
		}
		if st.RecordByName(catalog.RecordACLToken, SecretName(t.SecretID)) != nil {
			return nil, invalid("Invalid Token: SecretID is already in use")
		}
		stored, err := k.checked(st, t)
		if err != nil {
			return nil, err
		}
		ops := []catalog.RecordOp{putToken(stored)}
		if t.AuthMethod != "" { // a method that is deleted meanwhile takes its tokens with it
			m := st.Record(catalog.RecordACLAuthMethod, t.AuthMethod)
			if m == nil {
				return nil, errUnknown
			}
			ops = append(ops, catalog.RecordOp{Verb: catalog.RecordCheck, Record: catalog.Record{Kind: m.Kind, Key: m.Key,
				ModifyIndex: m.ModifyIndex}})
		}
		return ops, nil
	})
	if err != nil {
		return nil, err
	}
	return k.stored(t.AccessorID)
}

// checked resolves the token's links and sums it up.
func (k *Keeper) checked(st *statestore.State, t acl.Token) (*acl.Token, error) {
	if err := checkGrants(st, &t.Grants, k.cfg.Datacenter); err != nil {
		return nil, err
	}
	var err error
	if t.Roles, err = resolveLinks(st, catalog.RecordACLRole, "role", t.Roles); err != nil {
		return nil, err
	}
	t.Hash = acl.Sum(&t)
	return &t, nil
}

// UpdateToken replaces what a token gives. What it is (secret, locality, expiration) stays.
func (k *Keeper) UpdateToken(ctx context.Context, in TokenRequest) (*acl.Token, error) {
	if !uuidForm.MatchString(in.AccessorID) {
		return nil, invalid("Invalid Token: AccessorID is not a valid UUID")
	}
	err := k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		old := TokenByAccessor(st, in.AccessorID)
		if old == nil || old.Expired(k.now()) {
			return nil, missing("Cannot find token %q", in.AccessorID)
		}
		switch {
		case in.SecretID != "" && in.SecretID != old.SecretID && in.SecretID != hidden:
			return nil, invalid("Changing a tokens SecretID is not permitted")
		case in.Local != old.Local:
			return nil, invalid("cannot toggle local mode of %s", in.AccessorID)
		case in.AuthMethod != "" && in.AuthMethod != old.AuthMethod:
			return nil, invalid("Cannot change AuthMethod of %s", in.AccessorID)
		case in.TTL != 0 || in.ExpirationTime != nil && (old.ExpirationTime == nil ||
			!in.ExpirationTime.Equal(*old.ExpirationTime)):
			return nil, invalid("Cannot change expiration time of %s", in.AccessorID)
		}
		t := *old
		t.Description, t.Grants, t.Roles = in.Description, in.Grants, in.Roles
		stored, err := k.checked(st, t)
		if err != nil {
			return nil, err
		}
		return []catalog.RecordOp{putToken(stored)}, nil
	})
	if err != nil {
		return nil, err
	}
	return k.stored(in.AccessorID)
}

// hidden stands for the secret in what callers without write rights are shown.
const hidden = "<hidden>"

// Hide takes the secret out of a token that is shown.
func Hide(t *acl.Token) { t.SecretID = hidden }

// CloneToken makes a token with the rights of another.
func (k *Keeper) CloneToken(ctx context.Context, accessor, description string) (*acl.Token, error) {
	st := k.cfg.Store.State()
	old := TokenByAccessor(st, accessor)
	switch {
	case old == nil || old.Expired(k.now()):
		return nil, errNoToken
	case old.AuthMethod != "":
		return nil, invalid("Cannot clone a token created from an auth method")
	}
	ShowToken(st, old) // links to what is gone are not handed on
	if description == "" {
		description = old.Description
	}
	return k.create(ctx, acl.Token{Description: description, Grants: old.Grants, Roles: old.Roles, Local: old.Local,
		ExpirationTime: old.ExpirationTime, CreateTime: k.now()})
}

// DeleteToken revokes a token.
func (k *Keeper) DeleteToken(ctx context.Context, accessor string) error {
	if accessor == acl.AnonymousAccessor {
		return invalid("Delete operation not permitted on the anonymous token")
	}
	return k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		r := st.Record(catalog.RecordACLToken, accessor)
		if r == nil {
			return nil, missing("Cannot find token to delete: Supplied token does not exist")
		}
		return []catalog.RecordOp{remove(catalog.RecordACLToken, accessor, r.ModifyIndex)}, nil
	})
}

// builtins are the operations that make the built-in objects that are not there.
func (k *Keeper) builtins(st *statestore.State) (ops []catalog.RecordOp) {
	for _, p := range []acl.Policy{
		{ID: acl.GlobalManagementID, Name: acl.GlobalManagementName, Rules: acl.GlobalManagementRules,
			Description: "A policy that grants unlimited access"},
		{ID: acl.GlobalReadOnlyID, Name: acl.GlobalReadOnlyName, Rules: acl.GlobalReadOnlyRules,
			Description: "A policy that grants unlimited read-only access to all components"},
	} {
		r := st.Record(catalog.RecordACLPolicy, p.ID)
		index, name := uint64(0), p.Name
		if r != nil {
			old := find[acl.Policy](r)
			if old != nil && old.Rules == p.Rules {
				continue
			}
			if index = r.ModifyIndex; old != nil { // rules of this version; the name and description may be the operator's
				name, p.Name, p.Description = r.Name, old.Name, old.Description
			}
		} else if st.RecordByName(catalog.RecordACLPolicy, name) != nil {
			continue // the name was taken by a policy of the operator's, who keeps it
		}
		p.Hash = acl.Sum(&p)
		ops = append(ops, put(catalog.RecordACLPolicy, p.ID, name, index, &p))
	}
	if st.Record(catalog.RecordACLToken, acl.AnonymousAccessor) == nil {
		t := &acl.Token{AccessorID: acl.AnonymousAccessor, SecretID: acl.AnonymousSecret, Description: "Anonymous Token",
			CreateTime: k.now()}
		t.Hash = acl.Sum(t)
		ops = append(ops, putToken(t))
	}
	return ops
}

// EnsureBuiltins makes the built-in policies, the anonymous token, and the initial management token, as far as they
// are missing.
func (k *Keeper) EnsureBuiltins(ctx context.Context) error {
	err := k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) { return k.builtins(st), nil })
	if err != nil || k.cfg.InitialManagement == "" {
		return err
	}
	return k.ensureInitial(ctx, k.cfg.InitialManagement)
}

// initialKey is the record that says that the initial management token with this secret was stored
// once: when the token is gone nevertheless, somebody revoked it, and it is not stored again.
func initialKey(secret string) string { return "initial/" + SecretName(secret) }

func (k *Keeper) ensureInitial(ctx context.Context, secret string) error {
	const description = "Initial Management Token"
	if st := k.cfg.Store.State(); st.Record(catalog.RecordACLBootstrap, bootstrapKey) == nil &&
		st.Record(catalog.RecordACLBootstrap, initialKey(secret)) == nil &&
		st.RecordByName(catalog.RecordACLToken, SecretName(secret)) == nil {
		if _, _, err := k.bootstrap(ctx, secret, description, false); err != nil {
			return err
		}
	}
	t := &acl.Token{AccessorID: uuid.NewString(), SecretID: secret, Description: description, CreateTime: k.now(),
		Grants: acl.Grants{Policies: []acl.Link{{ID: acl.GlobalManagementID}}}}
	t.Hash = acl.Sum(t)
	return k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		if st.Record(catalog.RecordACLBootstrap, initialKey(secret)) != nil {
			return nil, nil
		}
		ops := []catalog.RecordOp{put(catalog.RecordACLBootstrap, initialKey(secret), "", 0,
			&acl.Bootstrap{AccessorID: t.AccessorID})}
		if st.RecordByName(catalog.RecordACLToken, SecretName(secret)) == nil {
			ops = append(ops, putToken(t))
		}
		return ops, nil
	})
}

// sweepBatch bounds how many tokens one command removes.
const sweepBatch = 256

// Sweep removes tokens whose time is over, and those of auth methods that are gone. It returns when
// the next one ends, the zero time when none will.
func (k *Keeper) Sweep(ctx context.Context) (next time.Time, err error) {
	st, now := k.cfg.Store.State(), k.now()
	methods := map[string]bool{}
	for _, m := range AuthMethods(st) {
		methods[m.Name] = true
	}
	ops, next := staleOneTimes(st, now)
	for r := range st.Records(catalog.RecordACLToken, "") {
		if !mayEnd(r.Value) {
			continue
		}
		t := find[acl.Token](r)
		switch {
		case t == nil:
		case t.Expired(now), t.AuthMethod != "" && !methods[t.AuthMethod]:
			ops = append(ops, remove(catalog.RecordACLToken, r.Key, r.ModifyIndex))
		case t.ExpirationTime != nil && (next.IsZero() || t.ExpirationTime.Before(next)):
			next = *t.ExpirationTime
		}
	}
	for len(ops) > 0 {
		part := ops[:min(sweepBatch, len(ops))]
		if _, ok, err := k.cfg.Store.SetRecords(ctx, part...); err != nil || !ok {
			return now, err // one of them changed: look again at once
		}
		ops = ops[len(part):]
	}
	return next, nil
}

// mayEnd tells from the stored bytes whether a token could end by itself, so that
// looking through many that cannot is cheap.
func mayEnd(stored []byte) bool {
	return bytes.Contains(stored, []byte(`"ExpirationTime":`)) || bytes.Contains(stored, []byte(`"AuthMethod":`))
}
