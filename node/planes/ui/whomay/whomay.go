// Package whomay answers who may do something: which tokens of the catalog's access control have a right, and the
// policies and roles that give it to them. It is pure, and names no token by its secret.
package whomay

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// Most bounds the tokens that are listed.
const Most = 200

// Holder is a token that has the right.
type Holder struct {
	Accessor    string `json:"accessor"`
	Description string `json:"description"`
	// Policies give it by themselves, one is enough; none does where the default gives it. Roles are those of the token.
	Policies []string `json:"policies"`
	Roles    []string `json:"roles"`
	Method   string   `json:"method,omitempty"` // of the login that made it
	Expires  int64    `json:"expires"`          // ms since 1970, 0 is never
}

// Answer is who has the right.
type Answer struct {
	// Everybody tells that no token is needed.
	Everybody bool     `json:"everybody"`
	Holders   []Holder `json:"holders"`
	More      int      `json:"more"`   // that are not listed
	Tokens    int      `json:"tokens"` // that were looked at
}

// Question is a right on something.
type Question struct {
	Resource acl.Resource
	Name     string
	Level    acl.Level
}

// Read reads a question; its error is of kind Invalid.
func Read(q url.Values) (one Question, err error) {
	resource, ok := acl.ParseResource(q.Get("resource"))
	level, known := acl.ParseLevel(resource, q.Get("level"))
	if !ok || !known || level == acl.Deny {
		return one, errkind.Errorf(errkind.Invalid, "resource, level: no rule gives %q on %q", q.Get("level"),
			q.Get("resource"))
	}
	return Question{resource, q.Get("name"), level}, nil
}

// rules keeps what policies and sets of them give while a question is answered: many tokens share few of them.
type rules struct {
	question Question
	fallback acl.Level
	parsed   map[string][]acl.Rule // by the policy's ID
	sets     map[string]verdict
}

// verdict is what a set of policies gives, and which of them.
type verdict struct {
	allowed bool
	by      []string
}

// Of answers by a state, for the policies that hold in a datacenter; fallback is what no rule names.
func Of(st *statestore.State, dc string, fallback acl.Level, question Question, now time.Time) *Answer {
	r := &rules{question, fallback, map[string][]acl.Rule{}, map[string]verdict{}}
	out := &Answer{Everybody: r.judge(nil).allowed, Holders: []Holder{}}
	for _, t := range grants.Tokens(st) {
		if t.Expired(now) {
			continue
		}
		policies, roles := grants.Expand(st, t)
		policies = slices.DeleteFunc(policies, func(p grants.Given) bool { return !p.HoldsIn(dc) })
		v := r.judge(policies)
		if out.Tokens++; !v.allowed {
			continue
		}
		if t.AccessorID == acl.AnonymousAccessor {
			out.Everybody = true
		}
		h := Holder{Accessor: t.AccessorID, Description: t.Description, Policies: v.by, Roles: []string{},
			Method: t.AuthMethod}
		for _, one := range roles {
			h.Roles = append(h.Roles, one.Name)
		}
		if t.ExpirationTime != nil {
			h.Expires = t.ExpirationTime.UnixMilli()
		}
		out.Holders = append(out.Holders, h)
	}
	slices.SortFunc(out.Holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(len(a.Roles), len(b.Roles)), cmp.Compare(a.Description, b.Description),
			cmp.Compare(a.Accessor, b.Accessor))
	})
	kept := min(len(out.Holders), Most)
	out.Holders, out.More = out.Holders[:kept], len(out.Holders)-kept
	return out
}

// judge tells what a set of policies gives.
func (r *rules) judge(policies []grants.Given) verdict {
	byID := map[string]grants.Given{}
	for _, p := range policies {
		byID[p.ID] = p
	}
	ids := slices.Sorted(maps.Keys(byID))
	key := strings.Join(ids, "\n")
	if v, ok := r.sets[key]; ok {
		return v
	}
	v, all := verdict{by: []string{}}, make([][]acl.Rule, 0, len(ids))
	for _, id := range ids {
		one := r.rulesOf(byID[id])
		all = append(all, one)
		if r.allows(acl.Compile(acl.Deny, one)) {
			v.by = append(v.by, byID[id].Name)
		}
	}
	v.allowed = r.allows(acl.Compile(r.fallback, all...))
	r.sets[key] = v
	return v
}

func (r *rules) allows(a *acl.Authorizer) bool {
	return a.Allow(r.question.Resource, r.question.Name, r.question.Level)
}

// rulesOf are a policy's rules; a text that cannot be read gives nothing, as where tokens are used.
func (r *rules) rulesOf(p grants.Given) []acl.Rule {
	list, ok := r.parsed[p.ID]
	if !ok {
		list, _ = acl.Parse(p.Rules)
		r.parsed[p.ID] = list
	}
	return list
}
