package grants

import (
	"context"
	"encoding/json"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// loginTimeout bounds what asking another system about a credential may take.
const loginTimeout = 10 * time.Second

// Login trades a credential of another system for a token with what the binding rules give.
func (k *Keeper) Login(ctx context.Context, method, credential string, meta map[string]string) (*acl.Token, error) {
	switch {
	case method == "":
		return nil, invalid("missing auth method")
	case credential == "":
		return nil, invalid("missing bearer token")
	}
	st, m, err := k.methodFor(method)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	claims, err := k.cfg.Verifier.Login(ctx, m, credential)
	if err != nil {
		return nil, k.refused(m, err)
	}
	return k.loggedIn(ctx, st, m, claims, meta)
}

func (k *Keeper) methodFor(name string) (*statestore.State, *acl.AuthMethod, error) {
	st := k.cfg.Store.State()
	m := AuthMethodByName(st, name)
	if m == nil || k.cfg.Verifier == nil {
		return nil, nil, errUnknown
	}
	return st, m, nil
}

// refused is why a login was, for the caller and for the log.
func (k *Keeper) refused(m *acl.AuthMethod, err error) error {
	k.cfg.Logger.Info("a login was refused", "method", m.Name, "err", err)
	if errkind.Is(err, errkind.Denied) {
		return errkind.New(errkind.Denied, "Permission denied: "+errkind.Text(err))
	}
	return err
}

// BeginLogin gives the address of the provider of a method that a person's browser goes to. It changes nothing that
// is replicated: a login that waits while the leader changes begins anew.
func (k *Keeper) BeginLogin(ctx context.Context, method string, v *Visit) (address string, err error) {
	if method == "" {
		return "", invalid("missing auth method")
	}
	_, m, err := k.methodFor(method)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	return k.cfg.Verifier.Begin(ctx, m, v)
}

// EndLogin trades what a browser brought back for a token with what the binding rules give.
func (k *Keeper) EndLogin(ctx context.Context, method string, b *Back) (*acl.Token, error) {
	switch {
	case method == "":
		return nil, invalid("missing auth method")
	case b.State == "" || b.Code == "":
		return nil, invalid("missing State or Code")
	}
	st, m, err := k.methodFor(method)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	claims, meta, err := k.cfg.Verifier.End(ctx, m, b)
	if err != nil {
		return nil, k.refused(m, err)
	}
	return k.loggedIn(ctx, st, m, claims, meta)
}

// loggedIn makes the token of a login.
func (k *Keeper) loggedIn(ctx context.Context, st *statestore.State, m *acl.AuthMethod, claims Claims,
	meta map[string]string) (*acl.Token, error) {
	g, err := k.earned(st, m, claims)
	if err != nil {
		return nil, err
	}
	t := acl.Token{Description: loginDescription(meta), Grants: g.Grants, AuthMethod: m.Name,
		Local: m.TokenLocality != acl.LocalityGlobal, CreateTime: k.now()}
	for _, name := range g.roles {
		t.Roles = append(t.Roles, acl.Link{Name: name})
	}
	if m.MaxTokenTTL > 0 {
		end := t.CreateTime.Add(time.Duration(m.MaxTokenTTL))
		t.ExpirationTime = &end
	}
	return k.create(ctx, t)
}

func loginDescription(meta map[string]string) string {
	if len(meta) == 0 {
		return "token created via login"
	}
	b, _ := json.Marshal(meta) // a map of strings has a JSON
	return "token created via login: " + string(b)
}

// earned adds up what the rules whose selectors match give. A name that is not there, or that
// a claim made invalid, gives nothing; no rule that gives anything is a refusal.
func (k *Keeper) earned(st *statestore.State, m *acl.AuthMethod, claims Claims) (g granted, err error) {
	any := false
	for _, b := range BindingRules(st) {
		if b.AuthMethod != m.Name {
			continue
		}
		if ok, err := selects(b.Selector, claims.Selectable); err != nil || !ok {
			continue // a selector that does not fit these claims does not match
		}
		one, err := bind(b, claims.Vars)
		if err != nil || !k.usable(st, &one) {
			k.cfg.Logger.Info("a binding rule matches a login but gives nothing", "rule", b.ID, "method", m.Name)
			continue
		}
		any = true
		g.ServiceIdentities = append(g.ServiceIdentities, one.ServiceIdentities...)
		g.NodeIdentities = append(g.NodeIdentities, one.NodeIdentities...)
		g.TemplatedPolicies = append(g.TemplatedPolicies, one.TemplatedPolicies...)
		g.Policies = append(g.Policies, one.Policies...)
		g.roles = append(g.roles, one.roles...)
	}
	if !any {
		return g, errkind.New(errkind.Denied, "Permission denied")
	}
	return g, nil
}

// usable reports whether everything that a rule gives exists and is well named.
func (k *Keeper) usable(st *statestore.State, g *granted) bool {
	for i := range g.NodeIdentities {
		g.NodeIdentities[i].Datacenter = k.cfg.Datacenter
	}
	for _, name := range g.roles {
		if st.RecordByName(catalog.RecordACLRole, name) == nil {
			return false
		}
	}
	return checkGrants(st, &g.Grants, k.cfg.Datacenter) == nil
}

// Logout ends the token of a login.
func (k *Keeper) Logout(ctx context.Context, secret string) error {
	return k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		r := st.RecordByName(catalog.RecordACLToken, SecretName(secret))
		t := find[acl.Token](r)
		switch {
		case t == nil || t.Expired(k.now()):
			return nil, errUnknown
		case t.AuthMethod == "":
			return nil, errkind.New(errkind.Denied, "Permission denied: the token was not made by a login")
		}
		return []catalog.RecordOp{remove(catalog.RecordACLToken, r.Key, r.ModifyIndex)}, nil
	})
}
