package sensurest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sensu "github.com/sensu/sensu-go/api/core/v2"
)

// What an initialized backend begins with (contract section 0).
func TestSeed(t *testing.T) {
	g := newRig(t)
	rule := func(r sensu.Rule) string {
		slices.Sort(r.Resources)
		return strings.Join(r.Verbs, " ") + ": " + strings.Join(r.Resources, " ")
	}
	var roles []sensu.ClusterRole
	g.want(200, "GET", "/api/core/v2/clusterroles", "").into(t, &roles)
	const common = "assets checks entities events filters handlers hooks mutators pipelines silenced"
	want := map[string][]string{
		"cluster-admin": {"*: *"}, "admin": {"*: " + strings.Replace(common, " silenced", " rolebindings roles silenced", 1),
			"get list: namespaces"}, "edit": {"*: " + common, "get list: namespaces"},
		"view":         {"get list: " + strings.Replace(common, " pipelines", " namespaces pipelines", 1)},
		"system:agent": {"*: events"}, "system:user": {"get update: localselfuser"},
	}
	if len(roles) != len(want) {
		t.Errorf("%d cluster roles", len(roles))
	}
	for _, r := range roles {
		var got []string
		for _, one := range r.Rules {
			got = append(got, rule(one))
		}
		if !slices.Equal(got, want[r.Name]) {
			t.Errorf("%s: %q, not %q", r.Name, got, want[r.Name])
		}
	}
	var bindings []sensu.ClusterRoleBinding
	g.want(200, "GET", "/api/core/v2/clusterrolebindings", "").into(t, &bindings)
	var bound []string
	for _, b := range bindings {
		for _, s := range b.Subjects {
			bound = append(bound, fmt.Sprintf("%s: %s %s is %s %s", b.Name, s.Type, s.Name, b.RoleRef.Type, b.RoleRef.Name))
		}
	}
	if got := strings.Join(bound, "; "); got != "cluster-admin: Group cluster-admins is ClusterRole cluster-admin; "+
		"system:agent: Group system:agents is ClusterRole system:agent; system:user: Group system:users is ClusterRole "+
		"system:user" {
		t.Error(got)
	}
	var all []sensu.User
	g.want(200, "GET", "/api/core/v2/users", "").into(t, &all)
	if len(all) != 2 || all[0].Username != "admin" || !slices.Equal(all[0].Groups, []string{"cluster-admins"}) ||
		all[1].Username != "agent" || !slices.Equal(all[1].Groups, []string{"system:agents"}) {
		t.Errorf("%+v", all)
	}
	g.login("agent", "P@ssw0rd!")
	g.want(201, "PUT", "/api/core/v2/namespaces/dev", `{"name":"dev"}`)
	for _, namespace := range []string{"default", "dev"} {
		var r sensu.Role
		g.want(200, "GET", "/api/core/v2/namespaces/"+namespace+"/roles/system:pipeline", "").into(t, &r)
		var b sensu.RoleBinding
		g.want(200, "GET", "/api/core/v2/namespaces/"+namespace+"/rolebindings/system:pipeline", "").into(t, &b)
		if len(r.Rules) != 1 || rule(r.Rules[0]) != "get list: events" || len(b.Subjects) != 1 ||
			b.Subjects[0].Name != "system:pipeline" || b.RoleRef.Name != "system:pipeline" {
			t.Errorf("%s: %+v, %+v", namespace, r, b)
		}
	}
	// Whoever has logged in may read and change themselves, whatever groups they are in.
	ann := g.user("ann", "")
	if a := g.send("GET", "/api/core/v2/users/ann", bearer(ann.Access), ""); a.code != 200 {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := g.send("GET", "/api/core/v2/users/agent", bearer(ann.Access), ""); a.code != 403 {
		t.Errorf("%d %s", a.code, a.body)
	}
}
