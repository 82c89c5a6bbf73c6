package users

import (
	"cmp"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// AgentUser and AgentPassword are what agents log in with until their operators change it.
const (
	AgentUser     = "agent"
	AgentPassword = "P@ssw0rd!"
)

// common are the objects that the roles admin, edit and view are about.
var common = []string{"assets", "checks", "entities", "events", "filters", "handlers", "hooks", "mutators", "pipelines",
	"silenced"}

// Seed returns the commands that make an empty configuration usable: the namespace default, the roles that everybody
// expects, an administrator, and the user of agents. apiKey may be empty. cost is that of the hashes, as in Config.
func Seed(admin, password, apiKey string, cost int, now int64) ([]objects.Op, error) {
	cost = cmp.Or(cost, DefaultCost)
	adminHash, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	if err != nil {
		return nil, err
	}
	agentHash, err := bcrypt.GenerateFromPassword([]byte(AgentPassword), cost)
	if err != nil {
		return nil, err
	}
	all := []string{"*"}
	read := []string{"get", "list"}
	namespaces := monitor.Rule{Verbs: read, Resources: []string{"namespaces"}}
	role := func(name string, rules ...monitor.Rule) objects.Op {
		return create("clusterroles", &monitor.ClusterRole{Meta: monitor.Meta{Name: name}, Rules: rules})
	}
	bind := func(name, group string) objects.Op {
		return create("clusterrolebindings", &monitor.ClusterRoleBinding{Meta: monitor.Meta{Name: name},
			RoleRef:  monitor.RoleRef{Type: "ClusterRole", Name: name},
			Subjects: []monitor.BoundTo{{Type: "Group", Name: group}}})
	}
	ops := []objects.Op{
		create("namespaces", &monitor.Namespace{Name: "default"}),
		role("cluster-admin", monitor.Rule{Verbs: all, Resources: all}),
		role("admin", monitor.Rule{Verbs: all, Resources: append([]string{"roles", "rolebindings"}, common...)}, namespaces),
		role("edit", monitor.Rule{Verbs: all, Resources: common}, namespaces),
		role("view", monitor.Rule{Verbs: read, Resources: append([]string{"namespaces"}, common...)}),
		role("system:agent", monitor.Rule{Verbs: all, Resources: []string{"events"}}),
		role("system:user", monitor.Rule{Verbs: []string{"get", "update"}, Resources: []string{"localselfuser"}}),
		bind("cluster-admin", monitor.GroupAdmins), bind("system:agent", monitor.GroupAgents),
		bind("system:user", monitor.GroupUsers),
		create("users", &monitor.User{Username: admin, PasswordHash: string(adminHash),
			Groups: []string{monitor.GroupAdmins}}),
		create("users", &monitor.User{Username: AgentUser, PasswordHash: string(agentHash),
			Groups: []string{monitor.GroupAgents}}),
	}
	if apiKey != "" {
		ops = append(ops, create("apikeys", &monitor.APIKey{Meta: monitor.Meta{Name: apiKey}, Username: admin,
			CreatedAt: now}))
	}
	return ops, nil
}

func create(typ string, o monitor.Object) objects.Op {
	namespace, name := o.Key()
	return objects.Op{Verb: objects.Create, Type: typ, Namespace: namespace, Name: name, Encoded: tagproto.Append(nil, o)}
}
