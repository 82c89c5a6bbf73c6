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
		{Path: "policy", InNamespaces: true, Read: p.policyNames, List: p.policyNames},
		{Path: "policy/", InNamespaces: true, Read: p.readPolicyOld, Write: p.writePolicy, Del: p.deletePolicy},
		{Path: "policies/acl", InNamespaces: true, List: p.policyNames},
		{Path: "policies/acl/", InNamespaces: true, Read: p.readPolicy, Write: p.writePolicy,
			Del: p.deletePolicy, List: p.policyNames},
		{Path: "policies/detailed/acl", InNamespaces: true, List: p.policyTexts},
		{Path: "capabilities", InNamespaces: true, Write: p.capabilities},
		{Path: "capabilities-self", InNamespaces: true, Write: p.capabilities},
		{Path: "capabilities-accessor", InNamespaces: true, Write: p.capabilities},
		{Path: "internal/ui/resultant-acl", InNamespaces: true, Read: p.resultantACL},
		{Path: "policies/password", InNamespaces: true, List: p.passwordNames},
		{Path: "policies/password/", InNamespaces: true, Read: p.readPassword, Write: p.writePassword, Del: p.deletePassword},
	}
}

func (*Policies) names(c *system.Call) []string {
	names := slices.Collect(maps.Keys(c.Tables.Policies))
	if c.Tables.Space == nil {
		names = append(names, policy.RootName)
	} else if c.Tables.Policies["default"] == nil {
		names = append(names, "default")
	}
	slices.Sort(names)
	return names
}

func (p *Policies) policyNames(c *system.Call) (any, error) {
	names := p.names(c)
	if strings.HasPrefix(c.Rest, "policies/") {
		return map[string]any{"keys": names}, nil
	}
	return map[string]any{"keys": names, "policies": names}, nil
}

// policyTexts lists policies with what they say, as OpenBao has it.
func (p *Policies) policyTexts(c *system.Call) (any, error) {
	names, info := []string{}, map[string]any{}
	for _, name := range p.names(c) {
		c.Name = name
		_, text, err := p.policyText(c)
		if errkind.Is(err, errkind.NotFound) { // it went meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		info[name] = map[string]any{"name": name, "policy": text}
	}
	return map[string]any{"keys": names, "key_info": info}, nil
}

func (p *Policies) policyText(c *system.Call) (name, text string, err error) {
	name = strings.ToLower(c.Name)
	if name == policy.RootName && c.Tables.Space == nil {
		return name, "", nil
	}
	raw, ok, err := p.Records.Get(c, c.Tables.PolicyKey(name))
	if err == nil && !ok && name == "default" && c.Tables.Space != nil {
		return name, tables.DefaultPolicy, nil
	}
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
	if err := storage.CheckKey(c.Tables.PolicyKey(name)); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = string(plain)
	}
	parsed, err := policy.Parse(name, text)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "failed to parse policy: %w", err)
	}
	return nil, p.Gate.ChangeIn(c, c.Tables, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Policies = maps.Clone(st.Policies)
		st.Policies[name], st.ACLs = parsed, tables.NewACLs()
		return &st, []storage.Op{storage.Put(st.PolicyKey(name), []byte(text))}, nil
	})
}

func (p *Policies) deletePolicy(c *system.Call) (any, error) {
	name := strings.ToLower(c.Name)
	if name == policy.RootName || name == "default" {
		return nil, errkind.Errorf(errkind.Invalid, "cannot delete %q policy", name)
	}
	return nil, p.Gate.ChangeIn(c, c.Tables, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Policies = maps.Clone(st.Policies)
		delete(st.Policies, name)
		st.ACLs = tables.NewACLs()
		return &st, []storage.Op{storage.Delete(st.PolicyKey(name))}, nil
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
	acl, at := c.Bearer.ACL, func(path string) string { return c.Bearer.At(c.Tables, path) }
	if !strings.HasSuffix(c.Rest, "-self") {
		tok, err := p.asked(c)
		if err != nil {
			return nil, err
		}
		of := c.Tables.Of(tok.Hash)
		if acl, err = p.Rights.ACL(c, of, tok.Policies, tok.Entity); err != nil {
			return nil, err
		}
		at = func(path string) string { // "": out of its reach
			from, _ := strings.CutPrefix(c.Tables.Path()+path, of.Path())
			if !strings.HasPrefix(c.Tables.Path()+path, of.Path()) {
				return ""
			}
			return from
		}
	}
	out := map[string]any{}
	for _, p := range paths {
		out[p] = []string{"deny"}
		if path := at(strings.TrimPrefix(p, "/")); path != "" {
			out[p] = acl.Capabilities(path)
		}
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
	if err == nil && (tok == nil || tok.Expired(c.Now) || !c.Tables.Sees(tok.Hash)) {
		err = errkind.New(errkind.Invalid, "invalid token")
	}
	return tok, err
}

// resultantACL is what the caller's policies allow, for user interfaces.
func (p *Policies) resultantACL(c *system.Call) (any, error) {
	l, within := c.Bearer.ACL.List(), c.Bearer.At(c.Tables, "")
	shown := func(m map[string][]string) map[string]any {
		out := map[string]any{}
		for path, words := range m {
			if here, ok := strings.CutPrefix(path, within); ok {
				out[here] = map[string]any{"capabilities": words}
			}
		}
		return out
	}
	globs := shown(l.Globs)
	if globs[""] == nil { // a rule that ends above the namespace holds for all of it, the longest before the others
		longest := -1
		for path, words := range l.Globs {
			if len(path) > longest && len(path) < len(within) && strings.HasPrefix(within, path) {
				longest, globs[""] = len(path), map[string]any{"capabilities": words}
			}
		}
	}
	return map[string]any{"root": l.Root, "exact_paths": shown(l.Exact), "glob_paths": globs,
		"chroot_namespace": ""}, nil
}
