package grants

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// methodTypes are those of the contract that can be made here.
var methodTypes = []string{"jwt", "kubernetes", "oidc"}

// defaultMethodKey is a record of kind RecordSystem: who makes a method the default one writes it too, so that of two
// who do so at the same time one is refused.
const defaultMethodKey = "default-auth-method"

// SetAuthMethod creates or changes an auth method; create tells which.
func (k *Keeper) SetAuthMethod(ctx context.Context, in acl.AuthMethod, create bool) (*acl.AuthMethod, error) {
	if err := k.checkMethod(&in); err != nil {
		return nil, err
	}
	asked := in.Default
	err := k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		index, old := uint64(0), AuthMethodByName(st, in.Name)
		switch {
		case create && old != nil:
			return nil, invalid("Invalid Auth Method: an auth method with Name %q already exists", in.Name)
		case !create && old == nil:
			return nil, missing("Cannot find auth method to update")
		case !create:
			index = old.ModifyIndex
			if in.Type == "" {
				in.Type = old.Type
			}
			if in.Type != old.Type {
				return nil, invalid("Changing an auth method's type from %q to %q is not permitted", old.Type, in.Type)
			}
		}
		in.CreateIndex, in.ModifyIndex, in.Default = 0, 0, asked
		if asked == nil && old != nil {
			in.Default = old.Default
		}
		if !in.IsDefault() {
			in.Default = nil
			return []catalog.RecordOp{put(catalog.RecordACLAuthMethod, in.Name, "", index, &in)}, nil
		}
		if other := DefaultAuthMethod(st); other != nil && other.Name != in.Name {
			return nil, invalid("Invalid Auth Method: %q is the default auth method already: only one can be", other.Name)
		}
		mark := uint64(0)
		if r := st.Record(catalog.RecordSystem, defaultMethodKey); r != nil {
			mark = r.ModifyIndex
		}
		return []catalog.RecordOp{put(catalog.RecordACLAuthMethod, in.Name, "", index, &in),
			put(catalog.RecordSystem, defaultMethodKey, "", mark, in.Name)}, nil
	})
	if err != nil {
		return nil, err
	}
	if m := AuthMethodByName(k.cfg.Store.State(), in.Name); m != nil {
		return m, nil
	}
	return nil, missing("cannot find auth method %q", in.Name)
}

func (k *Keeper) checkMethod(in *acl.AuthMethod) error {
	if in.Name == "" {
		return invalid("Invalid Auth Method: no Name is set")
	}
	if !methodName().MatchString(in.Name) {
		return invalid("Invalid Auth Method: invalid Name. Only alphanumeric characters, '-' and '_' are allowed")
	}
	switch {
	case in.Type == "":
		return invalid("Invalid Auth Method: no Type is set")
	case !slices.Contains(methodTypes, in.Type):
		return invalid("Invalid Auth Method: Type should be one of: %v", methodTypes)
	}
	if in.TokenLocality == "" {
		in.TokenLocality = acl.LocalityLocal
	}
	if in.TokenLocality != acl.LocalityLocal && in.TokenLocality != acl.LocalityGlobal {
		return invalid("Invalid Auth Method: TokenLocality should be one of 'local' or 'global'")
	}
	if ttl := time.Duration(in.MaxTokenTTL); ttl != 0 && (ttl < minTokenTTL || ttl > maxTokenTTL) {
		return invalid("MaxTokenTTL cannot be less than %v or more than %v (was %v)", minTokenTTL, maxTokenTTL, ttl)
	}
	if k.cfg.Verifier == nil {
		return invalid("Invalid Auth Method: logins are not possible here")
	}
	return k.cfg.Verifier.Check(in)
}

// DeleteAuthMethod removes a method, its binding rules, and the tokens that its logins made.
func (k *Keeper) DeleteAuthMethod(ctx context.Context, name string) error {
	err := k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		r := st.Record(catalog.RecordACLAuthMethod, name)
		if r == nil {
			return nil, missing("Cannot find auth method to delete")
		}
		ops := []catalog.RecordOp{remove(catalog.RecordACLAuthMethod, name, r.ModifyIndex)}
		for _, b := range BindingRules(st) {
			if b.AuthMethod == name {
				ops = append(ops, remove(catalog.RecordACLBindingRule, b.ID, b.ModifyIndex))
			}
		}
		return ops, nil
	})
	if err != nil {
		return err
	}
	_, err = k.Sweep(ctx)
	return err
}

// SetBindingRule creates a rule, or changes the one with in.ID.
func (k *Keeper) SetBindingRule(ctx context.Context, in acl.BindingRule) (*acl.BindingRule, error) {
	create := in.ID == ""
	if create {
		in.ID = uuid.NewString()
	} else if !uuidForm.MatchString(in.ID) {
		return nil, invalid("Binding Rule ID invalid UUID")
	}
	err := k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		index, old := uint64(0), BindingRuleByID(st, in.ID)
		switch {
		case !create && old == nil:
			return nil, missing("cannot find binding rule %s", in.ID)
		case !create:
			index = old.ModifyIndex
			if in.AuthMethod == "" {
				in.AuthMethod = old.AuthMethod
			}
			if in.AuthMethod != old.AuthMethod {
				return nil, invalid("Invalid Binding Rule: the AuthMethod field of an existing binding rule is immutable")
			}
		case in.AuthMethod == "":
			return nil, invalid("Invalid Binding Rule: no AuthMethod is set")
		}
		m := AuthMethodByName(st, in.AuthMethod)
		if m == nil {
			return nil, missing("cannot find auth method with name %q", in.AuthMethod)
		}
		if err := k.checkRule(&in, m); err != nil {
			return nil, err
		}
		in.CreateIndex, in.ModifyIndex = 0, 0
		check := catalog.RecordOp{Verb: catalog.RecordCheck, Record: catalog.Record{Kind: catalog.RecordACLAuthMethod,
			Key: m.Name, ModifyIndex: m.ModifyIndex}}
		return []catalog.RecordOp{check, put(catalog.RecordACLBindingRule, in.ID, "", index, &in)}, nil
	})
	if err != nil {
		return nil, err
	}
	if b := BindingRuleByID(k.cfg.Store.State(), in.ID); b != nil {
		return b, nil
	}
	return nil, missing("cannot find binding rule %s", in.ID)
}

// checkRule refuses a rule that could not work at any login.
func (k *Keeper) checkRule(in *acl.BindingRule, m *acl.AuthMethod) error {
	claims := k.cfg.Verifier.Fields(m)
	if err := checkSelector(in.Selector, claims.Selectable); err != nil {
		return invalid("invalid Binding Rule: Selector is invalid: %v", err)
	}
	switch in.BindType {
	case acl.BindService, acl.BindRole, acl.BindNode, acl.BindPolicy, acl.BindTemplated:
	case "":
		return invalid("Invalid Binding Rule: no BindType is set")
	default:
		return invalid("Invalid Binding Rule: unknown BindType %q", in.BindType)
	}
	if in.BindName == "" {
		return invalid("Invalid Binding Rule: no BindName is set")
	}
	if in.BindVars != nil && in.BindType != acl.BindTemplated {
		return invalid("invalid Binding Rule: BindVars cannot be set when bind type is not templated-policy")
	}
	g, err := bind(in, claims.Vars)
	if err != nil {
		return invalid("Invalid Binding Rule: %s", errkind.Text(err))
	}
	if in.BindType == acl.BindTemplated {
		for _, t := range g.TemplatedPolicies {
			if _, err := acl.Expand(t.TemplateName, t.VariableName()); err != nil {
				return invalid("Invalid Binding Rule: %s", errkind.Text(err))
			}
		}
	}
	return nil
}

// DeleteBindingRule removes a rule; tokens that it gave rights to keep them.
func (k *Keeper) DeleteBindingRule(ctx context.Context, id string) error {
	return k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		r := st.Record(catalog.RecordACLBindingRule, id)
		if r == nil {
			return nil, missing("Cannot find binding rule to delete")
		}
		return []catalog.RecordOp{remove(catalog.RecordACLBindingRule, id, r.ModifyIndex)}, nil
	})
}

// hole is a variable in a bind name: ${value.name}.
var hole = regexp.MustCompile(`\$\{([^}]*)\}`)

// fill puts the variables into a bind name.
func fill(text string, vars map[string]string) (string, error) {
	var wrong error
	out := hole.ReplaceAllStringFunc(text, func(m string) string {
		name := strings.TrimSpace(m[2 : len(m)-1])
		v, ok := vars[name]
		if !ok && wrong == nil {
			wrong = invalid("%q uses the variable %q, which a login does not have", text, name)
		}
		return v
	})
	if wrong == nil && strings.Contains(hole.ReplaceAllString(text, ""), "${") {
		wrong = invalid("%q has a variable that does not end", text)
	}
	return out, wrong
}

// granted is what a login earns.
type granted struct {
	acl.Grants
	roles []string
}

// bind gives what one rule grants. Links are by name, not looked up yet.
func bind(b *acl.BindingRule, vars map[string]string) (g granted, err error) {
	name, err := fill(b.BindName, vars)
	if err != nil {
		return g, err
	}
	switch b.BindType {
	case acl.BindService:
		g.ServiceIdentities = []acl.ServiceIdentity{{ServiceName: strings.ToLower(name)}}
	case acl.BindNode:
		g.NodeIdentities = []acl.NodeIdentity{{NodeName: strings.ToLower(name)}}
	case acl.BindRole:
		g.roles = []string{name}
	case acl.BindPolicy:
		g.Policies = []acl.Link{{Name: name}}
	case acl.BindTemplated:
		t := acl.TemplatedPolicy{TemplateName: name}
		if b.BindVars != nil {
			v, err := fill(b.BindVars.Name, vars)
			if err != nil {
				return g, err
			}
			t.TemplateVariables = &acl.TemplateVariables{Name: v}
		}
		g.TemplatedPolicies = []acl.TemplatedPolicy{t}
	}
	return g, nil
}
