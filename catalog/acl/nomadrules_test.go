package acl

import (
	"reflect"
	"strings"
	"testing"
)

// TestNomadRules: a policy of Nomad's gives what it says, and what is wrong in it is refused.
func TestNomadRules(t *testing.T) {
	got, err := Parse(`
		namespace "default" {
			policy = "read"
			variables {
				path "app/*" { capabilities = ["list", "read", "write", "destroy"] }
				path "app/db" { capabilities = ["deny"] }
				path "shared" { capabilities = ["list"] }
			}
		}
		namespace "team-*" { variables { path "*" { capabilities = ["read"] } } }
		node { policy = "write" }
		operator { policy = "read" }
		agent { policy = "deny" }
		quota { policy = "write" }
		plugin { policy = "list" }
		host_volume "data" { policy = "write" }
		node_pool "*" { capabilities = ["read"] }`)
	read := rightOf(JobsList) | rightOf(JobsRead) | rightOf(JobsScaling)
	want := []Rule{
		{Resource: Jobs, Name: "default", Level: Read, Can: read},
		{Resource: Variable, Prefix: true, Name: "default/", Level: None},
		{Resource: Variable, Prefix: true, Name: "default/app/", Level: Write, Can: variableWrite},
		{Resource: Variable, Name: "default/app/db", Level: Deny},
		{Resource: Variable, Name: "default/shared", Level: None, Can: rightOf(VariableList)},
		{Resource: Jobs, Prefix: true, Name: "team-", Level: None},
		{Resource: Variable, Prefix: true, Name: "team-", Level: None},
		{Resource: Variable, Prefix: true, Name: "team-", Level: Read, Can: rightOf(VariableRead)},
		{Resource: JobsNode, Level: Write}, {Resource: JobsOperator, Level: Read}, {Resource: JobsAgent, Level: Deny}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	wrap := func(path string) string { return "namespace \"a\" {\n variables {\n" + path + "\n}\n}" }
	for text, says := range map[string]string{
		wrap(`path "a" { capabilities = ["fly"] }`):                                  `"fly" is no capability: use destroy, list, read, write, deny`,
		wrap(`path "a" { capabilities = [] }`):                                       "are empty",
		wrap(`path "a" { capabilities = "read" }`):                                   "are a list",
		wrap(`path "*/a" { capabilities = ["read"] }`):                               "at the end alone",
		wrap(`path "a" { policy = "read" }`):                                         "variables take path",
		`namespace "a*" { variables { path "b" { capabilities = ["read"] } } }`:      `only path "*"`,
		"namespace \"a\" {\n policy = \"fly\"\n variables {\n}\n}":                   "use deny, read, scale, write",
		`namespace "a" { capabilities = ["read-jobs"] }`:                             `"read-jobs" is no capability`,
		"namespace \"a\" {\n key \"b\" {\n policy = \"read\"\n}\n variables {\n}\n}": "has no block",
		`namespace "a" { key "b" { policy = "read" } }`:                              "has no block",
		`namespace "a" { rules = "read" }`:                                           `no key "rules"`,
		`namespace "a" { abilities = ["read-job"] }`:                                 `no list "abilities"`,
		`namespace "a" { capabilities = [1] }`:                                       "is no string",
		`namespace "a" {}`:                                                           "needs a policy",
		`namespace "*-prod" { policy = "read" }`:                                     "at the end alone",
		"namespace \"a\" \"b\" {\n variables {\n}\n}":                                "one name",
		`node { policy = "scale" }`:                                                  "use deny, read, write",
		`plugin { policy = "write" }`:                                                "use deny, list, read",
		`operator { capabilities = ["read"] }`:                                       `no list "capabilities"`,
		`quota { }`:                                                                  "needs a policy",
		`host_volume "x" { capabilities = ["mount"] }`:                               `"mount" is no capability`,
		`node_pool { policy = "read" }`:                                              "one name",
		`host_volume "x" { policy = "scale" }`:                                       "use deny, read, write",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// TestSingleRights: each right is there where a rule gives it, alone, and nowhere else.
func TestSingleRights(t *testing.T) {
	all := []Resource{}
	for r := JobsList; r <= VariableDestroy; r++ {
		all = append(all, r)
	}
	for _, test := range []struct{ rules, name, want string }{
		{`jobs "web" { policy = "read" }`, "web", "jobs-list jobs-read jobs-logs jobs-files jobs-scaling"},
		{`jobs "web" { policy = "read" }`, "db", ""},
		{`jobs_prefix "" { policy = "write" }`, "web", "jobs-list jobs-read jobs-logs jobs-files jobs-submit " +
			"jobs-dispatch jobs-scale jobs-scaling jobs-exec jobs-exec-raw jobs-lifecycle"},
		{`namespace "web" { policy = "read" }`, "web", "jobs-list jobs-read jobs-scaling"},
		{`namespace "*" { policy = "scale" }`, "web", "jobs-scale jobs-scaling"},
		{`namespace "web" { capabilities = ["dispatch-job", "read-fs"] }`, "web", "jobs-logs jobs-files jobs-dispatch"},
		{`namespace "web" { capabilities = ["alloc-node-exec", "csi-read-volume"] }`, "web", "jobs-exec-raw"},
		{"namespace \"*\" { policy = \"write\" }\nnamespace \"web\" { capabilities = [\"list-jobs\"] }", "web", "jobs-list"},
		{"namespace \"web\" { capabilities = [\"deny\"] }\njobs \"web\" { policy = \"write\" }", "web", ""},
		{"namespace \"web\" { capabilities = [\"submit-job\"] }\nnamespace \"web\" { capabilities = [\"list-jobs\"] }", "web",
			"jobs-list jobs-submit jobs-scale"},
		{"namespace \"web\" { capabilities = [\"submit-job\"] }\njobs \"web\" { policy = \"read\" }", "web",
			"jobs-list jobs-read jobs-logs jobs-files jobs-submit jobs-scale jobs-scaling"},
		{`variable_prefix "web/" { policy = "read" }`, "web/a", "variable-list variable-read"},
		{`variable "web/a" { policy = "write" }`, "web/a", "variable-list variable-read variable-write variable-destroy"},
		{`namespace "web" { variables { path "a*" { capabilities = ["write"] } } }`, "web/abc", "variable-write"},
		{`namespace "web" { variables { path "a*" { capabilities = ["list", "destroy"] } } }`, "web/abc",
			"variable-list variable-destroy"},
		{"variable_prefix \"\" { policy = \"write\" }\nnamespace \"web\" { policy = \"read\" }", "web/abc", ""},
	} {
		rules, err := Parse(test.rules)
		if err != nil {
			t.Fatal(test.rules, err)
		}
		got := []string{}
		a := Compile(Deny, rules)
		for _, r := range all {
			if a.Allow(r, test.name, Write) {
				got = append(got, r.String())
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s on %q: %v, want %s", test.rules, test.name, got, test.want)
		}
		if _, ok := ParseResource("jobs-exec"); ok {
			t.Error("rules may name a single right")
		}
	}
}

// TestNomadScalars: Nomad's blocks about nodes, agents and operators open nothing of the catalog, and rules about those
// count for the jobs plane as well.
func TestNomadScalars(t *testing.T) {
	for _, test := range []struct {
		rules    string
		fallback Level
		r        Resource
		level    Level
		want     bool
	}{
		{`node { policy = "write" }`, Deny, JobsNode, Write, true},
		{`node { policy = "write" }`, Deny, Node, Read, false},
		{`operator { policy = "write" }`, Deny, Operator, Read, false},
		{`operator { policy = "read" }`, Deny, JobsOperator, Write, false},
		{`operator { policy = "read" }`, Write, JobsOperator, Write, false},
		{`operator { policy = "read" }`, Write, JobsAgent, Write, true},
		{`operator = "write"`, Deny, JobsOperator, Write, true},
		{`node_prefix "" { policy = "read" }`, Deny, JobsNode, Read, true},
		{`node "a" { policy = "write" }`, Deny, JobsNode, Read, false},
		{"agent_prefix \"\" { policy = \"write\" }\nagent { policy = \"deny\" }", Deny, JobsAgent, Read, false},
		{"node_prefix \"\" { policy = \"write\" }\nnode { policy = \"read\" }", Deny, JobsNode, Write, true},
	} {
		rules, err := Parse(test.rules)
		if err != nil {
			t.Fatal(test.rules, err)
		}
		if got := Compile(test.fallback, rules).Allow(test.r, "", test.level); got != test.want {
			t.Errorf("%s: %v:%v is %v", test.rules, test.r, test.level, got)
		}
	}
}
