package accessrows

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

// storedPolicy is a policy as the catalog shows it.
type storedPolicy struct {
	ID, Name, Description, Rules string
	Datacenters                  []string `json:",omitempty"`
	Hash                         []byte   `json:",omitempty"`
	indexes
}

// wirePolicy is a policy as clients of this API know it. Lists leave Rules out.
type wirePolicy struct {
	Name, Description string
	Rules             string          `json:",omitempty"`
	JobACL            json.RawMessage `json:",omitempty"`
	Hash              []byte
	CreateIndex       uint64
	ModifyIndex       uint64
}

func (p *storedPolicy) show(whole bool) *wirePolicy {
	out := &wirePolicy{Name: p.Name, Description: p.Description, Hash: p.Hash, CreateIndex: p.CreateIndex,
		ModifyIndex: p.ModifyIndex}
	if whole {
		out.Rules = p.Rules
	}
	return out
}

// own are the policies and roles that the caller's token has: what it may see without the right to read all.
type own struct {
	ExpandedPolicies []*storedPolicy
	ExpandedRoles    []*storedRole
}

// orOwn is err, or what the caller has where the catalog refuses it all.
func orOwn(q *request, index uint64, err error) (*own, uint64, error) {
	if !errkind.Is(err, errkind.Denied) {
		return nil, index, told(err)
	}
	var mine own
	at, wrong := read(q, "token/self", url.Values{"expanded": {""}}, &mine)
	if wrong != nil {
		return nil, 0, told(err)
	}
	mine.ExpandedPolicies = slices.DeleteFunc(mine.ExpandedPolicies, func(p *storedPolicy) bool { return p.ID == "" })
	return &mine, at, nil
}

func policies(q *request) error {
	var all []*storedPolicy
	index, err := read(q, "policies", nil, &all)
	if err != nil {
		mine, at, err := orOwn(q, index, err)
		if err != nil {
			return err
		}
		all, index = mine.ExpandedPolicies, at
	}
	return showList(q, index, func(yield func(*wirePolicy) bool) {
		for _, p := range all {
			if begins(q, p.Name) && !yield(p.show(false)) {
				return
			}
		}
	}, func(p *wirePolicy) string { return p.Name })
}

// findPolicy is a policy by its name.
func findPolicy(q *request, name string) (*storedPolicy, uint64, error) {
	var p storedPolicy
	index, err := read(q, "policy/name/"+url.PathEscape(name), nil, &p)
	return &p, index, err
}

func policy(q *request) error {
	p, index, err := findPolicy(q, q.Args["name"])
	if errkind.Is(err, errkind.Denied) {
		mine, at, wrong := orOwn(q, index, err)
		if wrong != nil {
			return wrong
		}
		i := slices.IndexFunc(mine.ExpandedPolicies, func(p *storedPolicy) bool { return p.Name == q.Args["name"] })
		if i < 0 {
			return nomadrows.ErrDenied
		}
		p, index, err = mine.ExpandedPolicies[i], at, nil
	}
	if err != nil {
		return missing(err, "ACL policy not found")
	}
	return q.Told(index, p.show(true))
}

// attempts bounds how often a write by name is tried, while others create or delete what has the name.
const attempts = 3

func setPolicy(q *request) error {
	in, err := nomadrows.Decode[wirePolicy](q)
	if err != nil {
		return err
	}
	name := q.Args["name"]
	switch {
	case in.Name != "" && in.Name != name:
		return nomadrows.BadRequest("ACL policy name does not match request path")
	case len(in.JobACL) > 0 && string(in.JobACL) != "null":
		return nomadrows.BadRequest("JobACL: policies of workload identities are not supported: an identity reads the " +
			"variables of its own job, and gets tokens by auth methods")
	}
	for range attempts {
		old, _, err := findPolicy(q, name)
		next := storedPolicy{ID: old.ID, Name: name, Description: in.Description, Rules: in.Rules,
			Datacenters: old.Datacenters}
		path := "policy"
		switch {
		case err == nil:
			path += "/" + old.ID
		case !errkind.Is(err, errkind.NotFound):
			return told(err)
		}
		var made storedPolicy
		_, err = ask(q, http.MethodPut, path, nil, policyWrite{next.ID, next.Name, next.Description, next.Rules,
			next.Datacenters}, &made)
		if path != "policy" && errkind.Is(err, errkind.NotFound) { // deleted meanwhile
			continue
		}
		if err != nil {
			return told(err)
		}
		return q.Wrote(made.ModifyIndex, nil)
	}
	return nomadrows.Failed("the policy %s is being changed by others all the time", name)
}

// policyWrite is a policy as it is sent.
type policyWrite struct {
	ID                       string `json:",omitempty"`
	Name, Description, Rules string
	Datacenters              []string `json:",omitempty"`
}

// deletePolicy of one that is not there goes well, as stock's does.
func deletePolicy(q *request) error {
	p, _, err := findPolicy(q, q.Args["name"])
	if errkind.Is(err, errkind.NotFound) {
		return q.Wrote(0, nil)
	}
	if err != nil {
		return told(err)
	}
	index, err := ask(q, http.MethodDelete, "policy/"+p.ID, nil, nil, nil)
	if errkind.Is(err, errkind.NotFound) {
		err = nil
	}
	return gone(q, index, err)
}

// storedRole is a role as the catalog shows it.
type storedRole struct {
	ID, Name, Description string
	Policies              []link
	Hash                  []byte
	indexes
}

// wireRole is a role as clients of this API know it.
type wireRole struct {
	ID, Name, Description string
	Policies              []link
	Hash                  []byte
	CreateIndex           uint64
	ModifyIndex           uint64
}

func (r *storedRole) show() *wireRole {
	out := &wireRole{ID: r.ID, Name: r.Name, Description: r.Description, Policies: []link{}, Hash: r.Hash,
		CreateIndex: r.CreateIndex, ModifyIndex: r.ModifyIndex}
	for _, name := range names(r.Policies) {
		out.Policies = append(out.Policies, link{Name: name})
	}
	return out
}

func roles(q *request) error {
	var all []*storedRole
	index, err := read(q, "roles", nil, &all)
	if err != nil {
		mine, at, err := orOwn(q, index, err)
		if err != nil {
			return err
		}
		all, index = mine.ExpandedRoles, at
	}
	return showList(q, index, func(yield func(*wireRole) bool) {
		for _, r := range all {
			if begins(q, r.ID) && !yield(r.show()) {
				return
			}
		}
	}, func(r *wireRole) string { return r.ID })
}

// role reads a role by its ID, or by its name.
func role(q *request) error {
	path, is := "role/"+q.Args["id"], func(r *storedRole) bool { return r.ID == q.Args["id"] }
	if name := q.Args["name"]; name != "" {
		path, is = "role/name/"+url.PathEscape(name), func(r *storedRole) bool { return r.Name == name }
	}
	var r storedRole
	index, err := read(q, path, nil, &r)
	if errkind.Is(err, errkind.Denied) {
		mine, at, wrong := orOwn(q, index, err)
		if wrong != nil {
			return wrong
		}
		i := slices.IndexFunc(mine.ExpandedRoles, is)
		if i < 0 {
			return nomadrows.ErrDenied
		}
		r, index, err = *mine.ExpandedRoles[i], at, nil
	}
	if err != nil {
		return missing(err, "ACL role not found")
	}
	return q.Told(index, r.show())
}

// setRole creates a role, or changes the one that the path names. What this API does not know of it stays.
func setRole(q *request) error {
	in, err := nomadrows.Decode[wireRole](q)
	if err != nil {
		return err
	}
	id := q.Args["id"]
	switch {
	case id == "" && in.ID != "":
		return nomadrows.BadRequest("use /v1/acl/role/%s to change a role", in.ID)
	case id != "" && in.ID != "" && in.ID != id:
		return nomadrows.BadRequest("ACL role ID does not match request path")
	case len(in.Policies) == 0:
		return nomadrows.BadRequest("at least one policy must be specified")
	}
	now := map[string]any{}
	path := "role"
	if id != "" {
		path += "/" + id
		if _, err := ask(q, http.MethodGet, path, nil, nil, &now); err != nil {
			return missing(err, "ACL role not found")
		}
	}
	now["Name"], now["Description"], now["Policies"] = in.Name, in.Description, in.Policies
	var made storedRole
	if _, err := ask(q, http.MethodPut, path, nil, now, &made); err != nil {
		return told(err)
	}
	return q.Wrote(made.ModifyIndex, made.show())
}

func deleteRole(q *request) error {
	index, err := ask(q, http.MethodDelete, "role/"+q.Args["id"], nil, nil, nil)
	if errkind.Is(err, errkind.NotFound) {
		return nomadrows.Failed("ACL role not found")
	}
	return gone(q, index, err)
}
