package grants

import (
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
)

// Given is one policy that a token has: stored, or what an identity stands for.
type Given struct{ *acl.Policy }

// HoldsIn reports whether the policy holds in a datacenter.
func (g Given) HoldsIn(dc string) bool {
	return len(g.Datacenters) == 0 || slices.Contains(g.Datacenters, dc)
}

// Expand finds all policies that a token has by itself, by its identities and by its
// roles, and its roles. Links to what is gone give nothing.
func Expand(st *statestore.State, t *acl.Token) (policies []Given, roles []*acl.Role) {
	seen := map[string]bool{}
	add := func(p *acl.Policy) {
		if p != nil && !seen[p.ID] {
			seen[p.ID] = true
			policies = append(policies, Given{p})
		}
	}
	take := func(g *acl.Grants) {
		for _, l := range g.Policies {
			add(PolicyByID(st, l.ID))
		}
		for _, p := range synthetic(g) {
			add(p)
		}
	}
	take(&t.Grants)
	for _, l := range t.Roles {
		if r := RoleByID(st, l.ID); r != nil && !seen["role "+r.ID] {
			seen["role "+r.ID] = true
			roles = append(roles, r)
			take(&r.Grants)
		}
	}
	return policies, roles
}

// SyntheticID begins the IDs of policies that are not stored.
const SyntheticID = "synthetic:"

// synthetic gives the policies that identities stand for.
func synthetic(g *acl.Grants) (all []*acl.Policy) {
	add := func(template, name, about string, dcs []string) {
		rules, err := acl.Expand(template, name)
		if err != nil {
			return // checked when it was written
		}
		p := &acl.Policy{Name: "synthetic-policy-" + template + "-" + name, Description: "synthetic policy for " + about,
			Rules: rules, Datacenters: dcs}
		p.Hash = acl.Sum(p)
		p.ID = SyntheticID + template + " " + name + " " + strings.Join(dcs, ",")
		all = append(all, p)
	}
	for _, s := range g.ServiceIdentities {
		add("builtin/service", s.ServiceName, "service identity "+s.ServiceName, s.Datacenters)
	}
	for _, n := range g.NodeIdentities {
		add("builtin/node", n.NodeName, "node identity "+n.NodeName, []string{n.Datacenter})
	}
	for i := range g.TemplatedPolicies {
		t := &g.TemplatedPolicies[i]
		add(t.TemplateName, t.VariableName(), "templated policy "+t.TemplateName, t.Datacenters)
	}
	return all
}

// find reads the record of a key, or of a name; nil when it is not there.
func find[T acl.Token | acl.Policy | acl.Role | acl.AuthMethod | acl.BindingRule | acl.OneTime](r *catalog.Record) *T {
	if r == nil {
		return nil
	}
	v, err := acl.Decode[T](r.Value, r.CreateIndex, r.ModifyIndex)
	if err != nil {
		return nil
	}
	return v
}

// list reads all records of a kind, by key.
func list[T acl.Token | acl.Policy | acl.Role | acl.AuthMethod | acl.BindingRule](st *statestore.State,
	kind catalog.RecordKind) (all []*T) {
	for r := range st.Records(kind, "") {
		if v := find[T](r); v != nil {
			all = append(all, v)
		}
	}
	return all
}

// TokenByAccessor returns nil when there is none.
func TokenByAccessor(st *statestore.State, accessor string) *acl.Token {
	return find[acl.Token](st.Record(catalog.RecordACLToken, accessor))
}

// Tokens returns all tokens by accessor.
func Tokens(st *statestore.State) []*acl.Token { return list[acl.Token](st, catalog.RecordACLToken) }

// PolicyByID returns nil when there is none.
func PolicyByID(st *statestore.State, id string) *acl.Policy {
	return find[acl.Policy](st.Record(catalog.RecordACLPolicy, id))
}

// PolicyByName returns nil when there is none.
func PolicyByName(st *statestore.State, name string) *acl.Policy {
	return find[acl.Policy](st.RecordByName(catalog.RecordACLPolicy, name))
}

// Policies returns all policies by ID.
func Policies(st *statestore.State) []*acl.Policy {
	return list[acl.Policy](st, catalog.RecordACLPolicy)
}

// RoleByID returns nil when there is none.
func RoleByID(st *statestore.State, id string) *acl.Role {
	return find[acl.Role](st.Record(catalog.RecordACLRole, id))
}

// RoleByName returns nil when there is none.
func RoleByName(st *statestore.State, name string) *acl.Role {
	return find[acl.Role](st.RecordByName(catalog.RecordACLRole, name))
}

// Roles returns all roles by ID.
func Roles(st *statestore.State) []*acl.Role { return list[acl.Role](st, catalog.RecordACLRole) }

// AuthMethodByName returns nil when there is none.
func AuthMethodByName(st *statestore.State, name string) *acl.AuthMethod {
	return find[acl.AuthMethod](st.Record(catalog.RecordACLAuthMethod, name))
}

// DefaultAuthMethod is the one of logins that name none, nil when there is none.
func DefaultAuthMethod(st *statestore.State) *acl.AuthMethod {
	for _, m := range AuthMethods(st) {
		if m.IsDefault() {
			return m
		}
	}
	return nil
}

// AuthMethods returns all auth methods by name.
func AuthMethods(st *statestore.State) []*acl.AuthMethod {
	return list[acl.AuthMethod](st, catalog.RecordACLAuthMethod)
}

// BindingRuleByID returns nil when there is none.
func BindingRuleByID(st *statestore.State, id string) *acl.BindingRule {
	return find[acl.BindingRule](st.Record(catalog.RecordACLBindingRule, id))
}

// BindingRules returns all binding rules by ID.
func BindingRules(st *statestore.State) []*acl.BindingRule {
	return list[acl.BindingRule](st, catalog.RecordACLBindingRule)
}

// ShowLinks fills the names of links, and leaves out links to what is gone.
func ShowLinks(st *statestore.State, g *acl.Grants) {
	g.Policies = named(g.Policies, func(id string) (string, bool) {
		r := st.Record(catalog.RecordACLPolicy, id)
		return nameOf(r), r != nil
	})
}

// ShowToken fills the names of a token's links.
func ShowToken(st *statestore.State, t *acl.Token) {
	ShowLinks(st, &t.Grants)
	t.Roles = named(t.Roles, func(id string) (string, bool) {
		r := st.Record(catalog.RecordACLRole, id)
		return nameOf(r), r != nil
	})
}

func nameOf(r *catalog.Record) string {
	if r == nil {
		return ""
	}
	return r.Name
}

func named(links []acl.Link, name func(id string) (string, bool)) []acl.Link {
	if links == nil {
		return nil
	}
	shown := make([]acl.Link, 0, len(links))
	for _, l := range links {
		if n, ok := name(l.ID); ok {
			shown = append(shown, acl.Link{ID: l.ID, Name: n})
		}
	}
	return shown
}
