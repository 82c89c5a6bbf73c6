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
		"keeper":   `variable "web" { policy = "write" }`,
		"fleet":    `node_prefix "" { policy = "write" }`,
		"root":     "*",
		"":         "",
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
		"reader":   "list-jobs read-job read-logs read-fs",
		"deployer": "list-jobs read-job read-logs read-fs submit-job dispatch-job scale-job alloc-exec alloc-lifecycle",
		"keeper":   "variables:read variables:write",
		"fleet":    "node-read node-write",
		"":         "",
	}
	all := []nomadrows.Capability{nomadrows.Management, "unheard-of"}
	for what := range needs {
		all = append(all, what)
	}
	for token, list := range may {
		for _, what := range all {
			want := strings.Contains(" "+list+" ", " "+string(what)+" ")
			if got, err := r.Allows(token, "web", what); got != want || err != nil {
				t.Errorf("%q %s: %v, %v", token, what, got, err)
			}
			elsewhere := want && needs[what].Resource != acl.Jobs && needs[what].Resource != acl.Variable
			if got, _ := r.Allows(token, "db", what); got != elsewhere {
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
