package auth

import (
	"context"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
)

// Where a method whose users and groups are elsewhere keeps what they have here.
const (
	UserPrefix  = "users/"
	GroupPrefix = "groups/"
)

// Mapping is what a user or a group of another system has here.
type Mapping struct {
	Policies []string `json:"policies,omitempty"`
	Groups   []string `json:"groups,omitempty"` // of users: beside those that the other system says
	group    bool
}

// MappingUnder is a new one of the records under prefix.
func MappingUnder(prefix string) *Mapping { return &Mapping{group: prefix == GroupPrefix} }

// Read implements Record.
func (m *Mapping) Read(f *secrets.Fields) error {
	if f.Has("policies") {
		m.Policies = Names(f.Strings("policies"))
	}
	if f.Has("groups") {
		m.Groups = f.Strings("groups")
	}
	return f.Err()
}

// Show implements Record.
func (m *Mapping) Show() map[string]any {
	out := map[string]any{"policies": List(m.Policies)}
	if !m.group {
		out["groups"] = strings.Join(m.Groups, ",")
	}
	return out
}

// Mapped are the policies of a user: own, those of the name, of its groups here, and of the groups that were found. all
// are the groups' names. fold is how records are named by them.
func Mapped(ctx context.Context, view engine.View, own []string, name string, found []string,
	fold func(string) string) (policies, all []string, err error) {
	policies, all = slices.Clone(own), slices.Clone(found)
	user, err := Find[Mapping](ctx, view, UserPrefix, name)
	if err != nil {
		return nil, nil, err
	}
	if user != nil {
		policies, all = append(policies, user.Policies...), append(all, user.Groups...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if all == nil {
		all = []string{}
	}
	for _, g := range all {
		if strings.Contains(g, "/") || g == "" {
			continue // no record can have this name
		}
		m, err := Find[Mapping](ctx, view, GroupPrefix, fold(g))
		if errkind.Is(err, errkind.Invalid) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if m != nil {
			policies = append(policies, m.Policies...)
		}
	}
	return Names(policies), all, nil
}
