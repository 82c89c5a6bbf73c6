package jobsplane

import (
	"net/http"
	"strings"
	"testing"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/node/plane"
)

// TestRights: every capability of the API demands a right, and a token for one namespace opens no other.
func TestRights(t *testing.T) {
	tokens := map[string]string{
		"reader":   `jobs "web" { policy = "read" }`,
		"deployer": `jobs "web" { policy = "write" }`,
		"keeper":   `variable_prefix "web/" { policy = "write" }`,
		"fleet":    `node_prefix "" { policy = "write" }`,
		"dispatcher": `namespace "web" {
			capabilities = ["dispatch-job", "read-logs"]
			variables { path "*" { capabilities = ["list"] } }
		}`,
		"developer": `namespace "web" { policy = "write" }`,
		"operator": `node { policy = "write" }
			agent { policy = "read" }
			operator { policy = "read" }`,
		"root": "*",
		"":     "",
	}
	r := rights{allows: func(r *http.Request, right plane.Right) bool {
		text := tokens[r.Header.Get("X-Consul-Token")]
		if text == "*" {
			return true
		}
		rules, err := acl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return acl.Compile(acl.Deny, rules).Allow(right.Resource, right.Name, right.Level)
	}}
	may := map[string]string{ // by token: what it may in its namespace, web
		"reader": "list-jobs read-job read-logs read-fs read-job-scaling",
		"deployer": "list-jobs read-job read-logs read-fs read-job-scaling submit-job dispatch-job scale-job alloc-exec " +
			"alloc-node-exec alloc-lifecycle",
		"keeper":     "variables:list variables:read variables:write variables:destroy",
		"fleet":      "node-read node-write",
		"dispatcher": "dispatch-job read-logs variables:list",
		"developer": "list-jobs read-job read-logs read-fs read-job-scaling submit-job dispatch-job scale-job alloc-exec " +
			"alloc-lifecycle",
		"operator": "node-read node-write agent-read operator-read",
		"":         "",
	}
	all := []nomadrows.Capability{nomadrows.Management, "unheard-of"}
	for what := range needs {
		all = append(all, what)
	}
	for token, list := range may {
		for _, what := range all {
			want := strings.Contains(" "+list+" ", " "+string(what)+" ")
			if got, err := r.Allows(token, named("web", what), what); got != want || err != nil {
				t.Errorf("%q %s: %v, %v", token, what, got, err)
			}
			elsewhere := want && !byName(needs[what].Resource)
			if got, _ := r.Allows(token, named("db", what), what); got != elsewhere {
				t.Errorf("%q %s in another namespace: %v", token, what, got)
			}
		}
	}
	for _, what := range all {
		if ok, _ := r.Allows("root", "web", what); !ok {
			t.Errorf("root may not %s", what)
		}
	}
}

// named is what a capability is asked for: a namespace, or a variable in it.
func named(namespace string, what nomadrows.Capability) string {
	if strings.HasPrefix(string(what), "variables:") {
		return namespace + "/a"
	}
	return namespace
}
