package policies

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// Policies answers for policies, those of passwords too, and for what they allow whom. It has no state but the tables'.
type Policies struct {
	Gate    *tables.Gate
	Records *sealed.Store
	Rights  *rights.Rights
}

// Rows are the paths of sys/ that it answers.
func (p *Policies) Rows() []system.Row {
	return []system.Row{
		{Path: "policy", Read: p.policyNames, List: p.policyNames},
		{Path: "policy/", Read: p.readPolicyOld, Write: p.writePolicy, Del: p.deletePolicy},
		{Path: "policies/acl", List: p.policyNames},
		{Path: "policies/acl/", Read: p.readPolicy, Write: p.writePolicy, Del: p.deletePolicy, List: p.policyNames},
		{Path: "capabilities", Write: p.capabilities},
		{Path: "capabilities-self", Write: p.capabilities},
		{Path: "capabilities-accessor", Write: p.capabilities},
		{Path: "internal/ui/resultant-acl", Read: p.resultantACL},
		{Path: "policies/password", List: p.passwordNames},
		{Path: "policies/password/", Read: p.readPassword, Write: p.writePassword, Del: p.deletePassword},
	}
}

func (p *Policies) policyNames(c *system.Call) (any, error) {
	names := append(slices.Collect(maps.Keys(c.Tables.Policies)), policy.RootName)
	slices.Sort(names)
	if strings.HasPrefix(c.Rest, "policies/") {
		return map[string]any{"keys": names}, nil
	}
	return map[string]any{"keys": names, "policies": names}, nil
}

func (p *Policies) policyText(c *system.Call) (name, text string, err error) {
	name = strings.ToLower(c.Name)
	if name == policy.RootName {
		return name, "", nil
	}
	raw, ok, err := p.Records.Get(c, tables.PolicyPrefix+name)
	if err == nil && !ok {
		err = errkind.New(errkind.NotFound, "")
	}
	return name, string(raw), err
}

func (p *Policies) readPolicy(c *system.Call) (any, error) {
	name, text, err := p.policyText(c)
	return map[string]any{"name": name, "policy": text}, err
}

func (p *Policies) readPolicyOld(c *system.Call) (any, error) {
	name, text, err := p.policyText(c)
	return map[string]any{"name": name, "rules": text}, err
}

func (p *Policies) writePolicy(c *system.Call) (any, error) {
	name, text := strings.ToLower(c.Name), c.F.String("policy")
	if text == "" {
		text = c.F.String("rules") // the word of the oldest clients
	}
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	switch {
	case name == policy.RootName || name == tables.WrappingPolicy:
		return nil, errkind.Errorf(errkind.Invalid, "cannot update %q policy", name)
	case text == "":
		return nil, errkind.New(errkind.Invalid, "'policy' parameter not supplied or empty")
	}
	if err := storage.CheckKey(tables.PolicyPrefix + name); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = string(plain)
	}
	parsed, err := policy.Parse(name, text)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "failed to parse policy: %w", err)
	}
	return nil, p.Gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Policies = maps.Clone(st.Policies)
		st.Policies[name], st.ACLs = parsed, tables.NewACLs()
		return &st, []storage.Op{storage.Put(tables.PolicyPrefix+name, []byte(text))}, nil
	})
}

func (p *Policies) deletePolicy(c *system.Call) (any, error) {
	name := strings.ToLower(c.Name)
	if name == policy.RootName || name == "default" {
		return nil, errkind.Errorf(errkind.Invalid, "cannot delete %q policy", name)
	}
	return nil, p.Gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Policies = maps.Clone(st.Policies)
		delete(st.Policies, name)
		st.ACLs = tables.NewACLs()
		return &st, []storage.Op{storage.Delete(tables.PolicyPrefix + name)}, nil
	})
}

// capabilities tells what a token may do at paths.
func (p *Policies) capabilities(c *system.Call) (any, error) {
	paths := append(c.F.Strings("paths"), c.F.Strings("path")...)
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errkind.New(errkind.Invalid, "paths must be supplied")
	}
	acl := c.Bearer.ACL
	if !strings.HasSuffix(c.Rest, "-self") {
		tok, err := p.asked(c)
		if err != nil {
			return nil, err
		}
		if acl, err = p.Rights.ACL(c, c.Tables, tok.Policies, tok.Entity); err != nil {
			return nil, err
		}
	}
	out := map[string]any{}
	for _, p := range paths {
		out[p] = acl.Capabilities(strings.TrimPrefix(p, "/"))
	}
	if len(paths) == 1 {
		out["capabilities"] = out[paths[0]]
	}
	return out, nil
}

func (p *Policies) asked(c *system.Call) (tok *token.Token, err error) {
	if strings.HasSuffix(c.Rest, "-accessor") {
		tok, err = c.Tables.Book.ByAccessor(c, c.F.String("accessor"))
	} else {
		tok, err = p.Rights.Token(c, c.Tables, c.F.String("token"))
	}
	if err == nil && (tok == nil || tok.Expired(c.Now)) {
		err = errkind.New(errkind.Invalid, "invalid token")
	}
	return tok, err
}

// resultantACL is what the caller's policies allow, for user interfaces.
func (p *Policies) resultantACL(c *system.Call) (any, error) {
	l := c.Bearer.ACL.List()
	shown := func(m map[string][]string) map[string]any {
		out := map[string]any{}
		for path, words := range m {
			out[path] = map[string]any{"capabilities": words}
		}
		return out
	}
	return map[string]any{"root": l.Root, "exact_paths": shown(l.Exact), "glob_paths": shown(l.Globs),
		"chroot_namespace": ""}, nil
}
