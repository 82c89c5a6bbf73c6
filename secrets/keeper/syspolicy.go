package keeper

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
)

func (s *system) policyNames(c *sysCall) (any, error) {
	names := append(slices.Collect(maps.Keys(c.Tables.Policies)), policy.RootName)
	sorted(names)
	if strings.HasPrefix(c.Rest, "policies/") {
		return map[string]any{"keys": names}, nil
	}
	return map[string]any{"keys": names, "policies": names}, nil
}

func (s *system) policyText(c *sysCall) (name, text string, err error) {
	name = strings.ToLower(c.name)
	if name == policy.RootName {
		return name, "", nil
	}
	raw, ok, err := s.k.records.Get(c, policyPrefix+name)
	if err == nil && !ok {
		err = errkind.New(errkind.NotFound, "")
	}
	return name, string(raw), err
}

func (s *system) readPolicy(c *sysCall) (any, error) {
	name, text, err := s.policyText(c)
	return map[string]any{"name": name, "policy": text}, err
}

func (s *system) readPolicyOld(c *sysCall) (any, error) {
	name, text, err := s.policyText(c)
	return map[string]any{"name": name, "rules": text}, err
}

func (s *system) writePolicy(c *sysCall) (any, error) {
	name, text := strings.ToLower(c.name), c.f.String("policy")
	if text == "" {
		text = c.f.String("rules") // the word of the oldest clients
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	switch {
	case name == policy.RootName || name == tables.WrappingPolicy:
		return nil, errkind.Errorf(errkind.Invalid, "cannot update %q policy", name)
	case text == "":
		return nil, errkind.New(errkind.Invalid, "'policy' parameter not supplied or empty")
	}
	if err := storage.CheckKey(policyPrefix + name); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = string(plain)
	}
	p, err := policy.Parse(name, text)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "failed to parse policy: %w", err)
	}
	return nil, s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Policies = maps.Clone(st.Policies)
		st.Policies[name], st.ACLs = p, tables.NewACLs()
		return &st, []storage.Op{storage.Put(policyPrefix+name, []byte(text))}, nil
	})
}

func (s *system) deletePolicy(c *sysCall) (any, error) {
	name := strings.ToLower(c.name)
	if name == policy.RootName || name == "default" {
		return nil, errkind.Errorf(errkind.Invalid, "cannot delete %q policy", name)
	}
	return nil, s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Policies = maps.Clone(st.Policies)
		delete(st.Policies, name)
		st.ACLs = tables.NewACLs()
		return &st, []storage.Op{storage.Delete(policyPrefix + name)}, nil
	})
}
