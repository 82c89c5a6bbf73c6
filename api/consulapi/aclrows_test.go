package consulapi

import (
	"strings"
	"testing"
)

// TestInternalAuthorize: the answer says of each right whether the token has it.
func TestInternalAuthorize(t *testing.T) {
	g := newGuarded(t)
	secret := g.token(`key_prefix "app/" { policy = "write" } service "web" { policy = "read" intentions = "read" }`,
		"right")
	a := g.as(secret, "POST", "/v1/internal/acl/authorize",
		`[{"Resource":"key","Access":"write","Segment":"app/x"},{"Resource":"key","Access":"read","Segment":"other"},
		{"Resource":"service","Access":"read","Segment":"web"},{"Resource":"service","Access":"write","Segment":"web"},{"Resource":"intention","Access":"read","Segment":"web"},
		{"Resource":"operator","Access":"read"}]`)
	want := `[{"Resource":"key","Access":"write","Segment":"app/x","Allow":true},{"Resource":"key","Access":"read",` +
		`"Segment":"other","Allow":false},` +
		`{"Resource":"service","Access":"read","Segment":"web","Allow":true},{"Resource":"service","Access":"write",` +
		`"Segment":"web","Allow":false},` +
		`{"Resource":"intention","Access":"read","Segment":"web","Allow":true},{"Resource":"operator","Access":"read",` +
		`"Allow":false}]`
	if a.status != 200 || a.body != want {
		t.Errorf("%d\n got %s\nwant %s", a.status, a.body, want)
	}
	many := "[" + strings.Repeat(`{"Resource":"key","Access":"read","Segment":"a"},`,
		64) + `{"Resource":"key","Access":"read","Segment":"a"}]`
	for body, text := range map[string]string{many: "Refusing to process more than 64 authorizations at once",
		`[{"Resource":"kitchen","Access":"read"}]`: "Invalid resource",
		`[{"Resource":"key","Access":"eat"}]`:      "Invalid resource"} {
		if a := g.as(secret, "POST", "/v1/internal/acl/authorize", body); a.status != 400 || !strings.Contains(a.body, text) {
			t.Errorf("%.60s: %d %s", body, a.status, a.body)
		}
	}
}

// TestTemplatedPolicyRows: all built-in templates are listed, read and previewed with their variables.
func TestTemplatedPolicyRows(t *testing.T) {
	g := newGuarded(t)
	root := g.vars["$root"]
	all := g.as(root, "GET", "/v1/acl/templated-policies", "")
	for _, name := range []string{"builtin/service", "builtin/node", "builtin/dns", "builtin/nomad-server",
		"builtin/nomad-client", "builtin/workload-identity", "builtin/api-gateway"} {
		if !strings.Contains(all.body, `"`+name+`":`) {
			t.Errorf("%s is not in the list: %s", name, all.body)
		}
		if a := g.as(root, "GET", "/v1/acl/templated-policy/name/"+name, ""); a.status != 200 ||
			!strings.Contains(a.body, `"TemplateName":"`+name+`"`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := g.as(root, "POST", "/v1/acl/templated-policy/preview/builtin/service", `{"Name":"api"}`); a.status != 200 ||
		!strings.Contains(a.body, `service \"api\"`) {
		t.Errorf("preview: %d %s", a.status, a.body)
	}
	if a := g.as(root, "POST", "/v1/acl/templated-policy/preview/builtin/service", `{}`); a.status != 400 {
		t.Errorf("preview without its variable: %d %s", a.status, a.body)
	}
	if a := g.as(root, "GET", "/v1/acl/templated-policy/name/builtin/none", ""); a.status != 400 && a.status != 404 {
		t.Errorf("an unknown template: %d %s", a.status, a.body)
	}
}
