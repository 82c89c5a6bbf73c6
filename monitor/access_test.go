package monitor

import "testing"

func TestAccess(t *testing.T) {
	rule := func(verb, resource string, names ...string) []Rule {
		return []Rule{{Verbs: []string{verb}, Resources: []string{resource}, ResourceNames: names}}
	}
	user, group := BoundTo{Type: "User", Name: "ann"}, BoundTo{Type: "Group", Name: "ops"}
	a := NewAccess(
		[]*Role{{Meta: Meta{Name: "r", Namespace: "dev"}, Rules: rule("get", "checks", "cpu")}},
		[]*ClusterRole{{Meta: Meta{Name: "all"}, Rules: rule("*", "*")},
			{Meta: Meta{Name: "view"}, Rules: rule("list", "events")}},
		[]*RoleBinding{
			{Meta: Meta{Name: "b", Namespace: "dev"}, RoleRef: RoleRef{Type: "Role", Name: "r"}, Subjects: []BoundTo{user}},
			{Meta: Meta{Name: "v", Namespace: "prod"}, RoleRef: RoleRef{Type: "ClusterRole", Name: "view"},
				Subjects: []BoundTo{group}},
			{Meta: Meta{Name: "lost", Namespace: "lab"}, RoleRef: RoleRef{Type: "Role", Name: "none"},
				Subjects: []BoundTo{user}},
		},
		[]*ClusterRoleBinding{{Meta: Meta{Name: "c"}, RoleRef: RoleRef{Type: "ClusterRole", Name: "all"},
			Subjects: []BoundTo{{Type: "Group", Name: GroupAdmins}}}},
	)
	ann, op, root, nobody := Caller{User: "ann"}, Caller{User: "bob", Groups: []string{"ops"}},
		Caller{User: "root", Groups: []string{GroupAdmins}}, Caller{}
	for _, c := range []struct {
		who                             Caller
		verb, resource, namespace, name string
		want                            bool
	}{
		{ann, "get", "checks", "dev", "cpu", true}, {ann, "get", "checks", "dev", "disk", false},
		{ann, "get", "checks", "dev", "", false},
		{ann, "get", "checks", "prod", "cpu", false}, {ann, "update", "checks", "dev", "cpu", false},
		{ann, "get", "checks", "lab", "cpu", false},
		{op, "list", "events", "prod", "", true}, {op, "list", "events", "dev", "", false},
		{op, "get", "events", "prod", "x", false},
		{root, "delete", "users", "", "ann", true}, {root, "get", "checks", "anywhere", "x", true},
		{nobody, "get", "checks", "dev", "cpu", false}, {nobody, "get", "localselfuser", "", "", false},
		{ann, "update", "localselfuser", "", "ann", true}, {ann, "delete", "localselfuser", "", "ann", false},
	} {
		if got := a.Allows(c.who, c.verb, c.resource, c.namespace, c.name); got != c.want {
			t.Errorf("%+v", c)
		}
	}
	for who, want := range map[string]bool{"ann dev": true, "ann prod": false, "ann lab": false} {
		if got := a.Reaches(ann, who[4:]); got != want {
			t.Errorf("%s: %v", who, got)
		}
	}
}
