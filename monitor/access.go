package monitor

import "slices"

// Groups that mean something to the plane itself.
const (
	GroupAdmins = "cluster-admins"
	GroupAgents = "system:agents"
	GroupUsers  = "system:users"
)

// Caller is who asks: a user and its groups.
type Caller struct {
	User   string
	Groups []string
}

// Access decides who may do what. It is made once for each set of roles and bindings, and never changed.
type Access struct {
	cluster []bound
	scoped  map[string][]bound // by namespace
}

// bound is a binding with its role's rules.
type bound struct {
	subjects []BoundTo
	rules    []Rule
	missing  string // the role, where there is none of its name
}

// NewAccess compiles roles and bindings. It keeps the pointers.
func NewAccess(roles []*Role, clusterRoles []*ClusterRole, bindings []*RoleBinding,
	clusterBindings []*ClusterRoleBinding) *Access {
	a := &Access{scoped: map[string][]bound{}}
	cluster := map[string][]Rule{}
	for _, r := range clusterRoles {
		cluster[r.Name] = r.Rules
	}
	type at struct{ namespace, name string }
	scoped := map[at][]Rule{}
	for _, r := range roles {
		scoped[at{r.Namespace, r.Name}] = r.Rules
	}
	for _, b := range clusterBindings {
		rules, ok := cluster[b.RoleRef.Name]
		a.cluster = append(a.cluster, newBound(b.Subjects, rules, ok, b.RoleRef))
	}
	for _, b := range bindings {
		rules, ok := cluster[b.RoleRef.Name]
		if b.RoleRef.Type == "Role" {
			rules, ok = scoped[at{b.Namespace, b.RoleRef.Name}]
		}
		a.scoped[b.Namespace] = append(a.scoped[b.Namespace], newBound(b.Subjects, rules, ok, b.RoleRef))
	}
	return a
}

func newBound(subjects []BoundTo, rules []Rule, ok bool, ref RoleRef) bound {
	b := bound{subjects: subjects, rules: rules}
	if !ok {
		b.missing = ref.Type + " " + ref.Name
	}
	return b
}

func (b *bound) binds(c Caller) bool {
	for _, s := range b.subjects {
		if s.Type == "User" && s.Name == c.User || s.Type == "Group" && slices.Contains(c.Groups, s.Name) {
			return true
		}
	}
	return false
}

func (b *bound) allows(verb, resource, name string) bool {
	for i := range b.rules {
		if b.rules[i].Allows(verb, resource, name) {
			return true
		}
	}
	return false
}

// Allows reports whether c may do verb to resource in a namespace ("" is outside of all), to the object called name
// where that is told. Every user may read and change what is its own ("localselfuser"), whatever group its login put
// it into.
func (a *Access) Allows(c Caller, verb, resource, namespace, name string) bool {
	if resource == "localselfuser" && c.User != "" && (verb == "get" || verb == "update") {
		return true
	}
	for i := range a.cluster {
		if b := &a.cluster[i]; b.binds(c) && b.allows(verb, resource, name) {
			return true
		}
	}
	if namespace == "" {
		return false
	}
	list := a.scoped[namespace]
	for i := range list {
		if b := &list[i]; b.binds(c) && b.allows(verb, resource, name) {
			return true
		}
	}
	return false
}

// Reaches reports whether any binding with a role gives c anything in a namespace.
func (a *Access) Reaches(c Caller, namespace string) bool {
	for _, list := range [][]bound{a.cluster, a.scoped[namespace]} {
		for i := range list {
			if b := &list[i]; b.missing == "" && b.binds(c) && len(b.rules) > 0 && !selfOnly(b.rules) {
				return true
			}
		}
	}
	return false
}

// selfOnly reports whether rules give nothing but one's own user, which is in no namespace.
func selfOnly(rules []Rule) bool {
	for _, r := range rules {
		for _, res := range r.Resources {
			if res != "localselfuser" {
				return false
			}
		}
	}
	return true
}
