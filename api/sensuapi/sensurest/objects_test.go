package sensurest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sensu "github.com/sensu/sensu-go/api/core/v2"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/subscribers"
)

const ns = "/api/core/v2/namespaces/default"

var sum = strings.Repeat("ab", 64)

// samples is a body of each type, with its path below /api.
var samples = []struct {
	path, name, body string
	reference        any // the contract's own type, where its library has one
}{
	{"/core/v2/namespaces/default/assets", "a1",
		`{"metadata":{"name":"a1","namespace":"default"},"url":"http://x/a.tgz","sha512":"` + sum +
			`","filters":["entity.system.os == 'linux'"]}`, &sensu.Asset{}},
	{"/core/v2/namespaces/default/checks", "c1", `{"metadata":{"name":"c1","namespace":"default","labels":{` +
		`"tier":"web"}},"command":"true","interval":10,"publish":true,"subscriptions":["linux"],"handlers":["slack"],` +
		`"check_hooks":[{"non-zero":["h1"]}]}`, &sensu.CheckConfig{}},
	{"/core/v2/namespaces/default/filters", "f1",
		`{"metadata":{"name":"f1","namespace":"default"},"action":"allow","expressions":["event.check.occurrences == 1"]}`,
		&sensu.EventFilter{}},
	{"/core/v2/namespaces/default/handlers", "h1", `{"metadata":{"name":"h1","namespace":"default"},"type":"tcp",` +
		`"socket":{"host":"127.0.0.1","port":4242},"filters":["is_incident"]}`, &sensu.Handler{}},
	{"/core/v2/namespaces/default/hooks", "k1",
		`{"metadata":{"name":"k1","namespace":"default"},"command":"ps","timeout":10}`, &sensu.HookConfig{}},
	{"/core/v2/namespaces/default/mutators", "m1", `{"metadata":{"name":"m1","namespace":"default"},"command":"cat"}`,
		&sensu.Mutator{}},
	{"/core/v2/namespaces/default/pipelines", "p1", `{"metadata":{"name":"p1","namespace":"default"},"workflows":[{` +
		`"name":"w","handler":{"name":"h1","type":"Handler","api_version":"core/v2"}}]}`, &sensu.Pipeline{}},
	{"/core/v2/namespaces/default/roles", "r1",
		`{"metadata":{"name":"r1","namespace":"default"},"rules":[{"verbs":["get"],"resources":["checks"]}]}`, &sensu.Role{}},
	{"/core/v2/namespaces/default/rolebindings", "b1", `{"metadata":{"name":"b1","namespace":"default"},"subjects":[{` +
		`"type":"User","name":"ann"}],"role_ref":{"type":"Role","name":"r1"}}`, &sensu.RoleBinding{}},
	{"/core/v2/namespaces/default/silenced", "linux:c1",
		`{"metadata":{"namespace":"default"},"subscription":"linux","check":"c1","reason":"why"}`, &sensu.Silenced{}},
	{"/core/v2/clusterroles", "cr1", `{"metadata":{"name":"cr1"},"rules":[{"verbs":["*"],"resources":["*"]}]}`,
		&sensu.ClusterRole{}},
	{"/core/v2/clusterrolebindings", "cb1", `{"metadata":{"name":"cb1"},"subjects":[{"type":"Group","name":"ops"}],` +
		`"role_ref":{"type":"ClusterRole","name":"cr1"}}`, &sensu.ClusterRoleBinding{}},
	{"/core/v2/namespaces", "dev", `{"name":"dev"}`, &sensu.Namespace{}},
	{"/core/v2/users", "ann", `{"username":"ann","password":"long enough","groups":["ops"]}`, &sensu.User{}},
	{"/core/v3/namespaces/default/entity-configs", "e3", `{"type":"EntityConfig","api_version":"core/v3","metadata":{` +
		`"name":"e3","namespace":"default"},"spec":{"entity_class":"proxy","subscriptions":["linux"]}}`, nil},
	{"/enterprise/store/v1/provider", "pg", `{"type":"PostgresConfig","api_version":"store/v1","metadata":{` +
		`"name":"pg"},"spec":{"dsn":"postgresql://x","pool_size":20,"strict":true}}`, nil},
	{"/enterprise/authentication/v2/authproviders", "house", `{"type":"oidc","api_version":"authentication/v2",` +
		`"metadata":{"name":"house"},"spec":{"server":"https://id.example","client_id":"corbel","client_secret":"s3cret",` +
		`"redirect_uri":"https://sensu.example:8080/api/enterprise/authentication/v2/oidc/callback","username_claim":` +
		`"email","additional_scopes":["groups"],"disable_offline_access":false}}`, nil},
	{"/enterprise/authentication/v2/authproviders", "dir", `{"type":"ldap","api_version":"authentication/v2","metadata":{` +
		`"name":"dir"},"spec":{"groups_prefix":"ldap","servers":[{"host":"h","binding":{"user_dn":"cn=r","password":` +
		`"s3cret"},"group_search":{"base_dn":"dc=x"},"user_search":{"base_dn":"dc=x"}}]}}`, nil},
	{"/enterprise/federation/v1/etcd-replicators", "er", `{"type":"EtcdReplicator","api_version":"federation/v1",` +
		`"metadata":{"name":"er"},"spec":{"url":"https://other:8080","api_key_file":"/k","insecure":false,` +
		`"api_version":"core/v2","resource":"ClusterRole","replication_interval_seconds":30}}`, nil},
	{"/enterprise/pipeline/v1/namespaces/default/tcp-stream-handlers", "ts", `{"type":"TCPStreamHandler",` +
		`"api_version":"pipeline/v1","metadata":{"name":"ts","namespace":"default"},"spec":{"address":"logs:4242",` +
		`"max_connections":5,"min_reconnect_delay":"10ms","max_reconnect_delay":"10s"}}`, nil},
	{"/enterprise/federation/v1/clusters", "cl", `{"type":"Cluster","api_version":"federation/v1","metadata":{` +
		`"name":"cl"},"spec":{"api_urls":["https://other:8080"]}}`, nil},
	{"/enterprise/bsm/v1/namespaces/default/rule-templates", "rt", `{"type":"RuleTemplate","api_version":"bsm/v1",` +
		`"metadata":{"name":"rt","namespace":"default"},"spec":{"description":"d","arguments":{"required":["n"],` +
		`"properties":{"n":{"type":"number"}}},"eval":"return event;"}}`, nil},
	{"/enterprise/bsm/v1/namespaces/default/service-components", "sc", `{"type":"ServiceComponent","api_version":` +
		`"bsm/v1","metadata":{"name":"sc","namespace":"default"},"spec":{"services":["shop"],"interval":60,"query":[{` +
		`"type":"fieldSelector","value":"web in event.check.subscriptions"}],"rules":[{"template":"aggregate","name":` +
		`"r"}]}}`, nil},
	{"/enterprise/web/v1/config", "ui", `{"type":"GlobalConfig","api_version":"web/v1","metadata":{"name":"ui"},` +
		`"spec":{"signin_message":"hello","always_show_local_cluster":false}}`, nil},
	{"/enterprise/searches/v1/namespaces/default/search", "mine", `{"type":"Search","api_version":"searches/v1",` +
		`"metadata":{"name":"mine","namespace":"default"},"spec":{"resource":"core.v2/Event","parameters":[` +
		`"silenced:false","status:failing"]}}`, nil},
	{"/enterprise/secrets/v1/providers", "env",
		`{"type":"Env","api_version":"secrets/v1","metadata":{"name":"env"},"spec":{}}`, nil},
	{"/enterprise/secrets/v1/namespaces/default/secrets", "s1", `{"type":"Secret","api_version":"secrets/v1",` +
		`"metadata":{"name":"s1","namespace":"default"},"spec":{"id":"PAGER_KEY","provider":"env"}}`, nil},
}

// Each type is created, read, listed, replaced, patched and deleted; what is read is what the contract's own types
// read.
func TestEachType(t *testing.T) {
	g := newRig(t)
	for _, s := range samples {
		all, one := "/api"+s.path, "/api"+s.path+"/"+s.name
		g.want(404, "GET", one, "")
		g.want(404, "DELETE", one, "")
		if a := g.want(201, "POST", all, s.body); a.body != "" {
			t.Errorf("POST %s answers %q", all, a.body)
		}
		if _, code := g.want(409, "POST", all, s.body).error(t); code != codeExists {
			t.Errorf("%s: code %d", all, code)
		}
		got := g.want(200, "GET", one, "")
		if s.reference != nil {
			got.into(t, s.reference)
			if err := s.reference.(interface{ Validate() error }).Validate(); err != nil && s.path != "/core/v2/users" {
				t.Errorf("the contract's own type finds fault with %s: %v", got.body, err)
			}
		}
		if list := g.want(200, "GET", all, "").names(t); !slices.Contains(list, s.name) && s.name != "linux:c1" {
			t.Errorf("%s lists %v", all, list)
		}
		g.want(201, "PUT", one, got.body) // what is read may be written
		if again := g.want(200, "GET", one, ""); again.body != got.body &&
			strings.Replace(again.body, "REDACTED", "", 1) != got.body && s.name != "ann" {
			t.Errorf("after writing back: %s, not %s", again.body, got.body)
		}
		if got.header.Get("ETag") == "" {
			t.Errorf("%s has no ETag", one)
		}
		g.want(405, "POST", one, s.body)
		g.want(405, "DELETE", all, "")
		g.want(400, "PUT", one, "{")
		g.want(400, "PUT", one, "")
		g.want(400, "POST", all, "[]")
		g.want(204, "DELETE", one, "")
		if s.name == "ann" { // who is deleted is disabled
			if a := g.want(200, "GET", one, ""); !strings.Contains(a.body, `"disabled":true`) {
				t.Errorf("after deletion: %s", a.body)
			}
			continue
		}
		g.want(404, "GET", one, "")
	}
}

// Bodies and paths must agree, and each mistake is told with its place.
func TestWrongBodies(t *testing.T) {
	g := newRig(t)
	for _, c := range []struct{ method, path, body, says string }{
		{"PUT", ns + "/checks/c1", `{"metadata":{"name":"other"},"command":"true","interval":10}`,
			`metadata.name "other" does not match "c1"`},
		{"PUT", ns + "/checks/c1", `{"metadata":{"name":"c1","namespace":"dev"},"command":"true","interval":10}`,
			`metadata.namespace "dev" does not match "default"`},
		{"POST", ns + "/checks", `{"command":"true","interval":10}`, "check name must not be empty"},
		{"POST", ns + "/checks", `{"metadata":{"name":"a b"},"interval":10}`, "check name cannot contain spaces"},
		{"POST", ns + "/checks", `{"metadata":{"name":"c1"},"interval":10,"cron":"* * * * *"}`, "interval"},
		{"POST", ns + "/checks", `{"metadata":{"name":"c1"},"interval":"ten"}`, "interval"},
		{"POST", ns + "/checks", `{"metadata":{"name":"c1"},"interval":10,"ttl":5}`, "ttl"},
		{"POST", ns + "/handlers", `{"metadata":{"name":"h"},"type":"carrier-pigeon"}`,
			"unknown handler type: carrier-pigeon"},
		{"POST", ns + "/filters", `{"metadata":{"name":"f"},"action":"allow"}`, "one or more expressions"},
		{"POST", ns + "/silenced", `{"reason":"why"}`, "must provide check or subscription"},
		{"PUT", ns + "/silenced/linux:c1", `{"subscription":"linux","check":"c2"}`, `called "linux:c2"`},
		{"POST", ns + "/silenced", `{"check":"c","begin":-1}`, "begin"},
		{"POST", "/api/core/v2/users", `{"username":"ann","password":"short"}`, "at least 8"},
		{"POST", "/api/core/v2/users", `{"username":"ann"}`, "password"},
		{"POST", "/api/core/v2/users", `{"username":"Ann","password":"long enough"}`, "username"},
		{"POST", "/api/core/v2/users", `{"username":"ann","password_hash":"plain"}`, "bcrypt"},
		{"POST", "/api/core/v2/users", `{"username":"ann","password":"` + strings.Repeat("x", 73) + `"}`, "72"},
		{"POST", "/api/core/v2/apikeys", `{"username":"nobody"}`, `no user "nobody"`},
		{"POST", "/api/core/v2/clusterroles", `{"metadata":{"name":"cr","namespace":"default"},"rules":[{"verbs":["get"],` +
			`"resources":["*"]}]}`, "namespace"},
		{"PUT", "/api/core/v3/namespaces/default/entity-configs/e", `{"metadata":{"name":"e"},"entity_class":"proxy"}`,
			"type is missing"},
		{"PUT", "/api/core/v3/namespaces/default/entity-configs/e", `{"type":"Check","api_version":"core/v3","spec":{}}`,
			`"Check" is not "EntityConfig"`},
		{"PUT", "/api/core/v3/namespaces/default/entity-configs/e",
			`{"type":"EntityConfig","api_version":"core/v2","spec":{}}`, "api_version"},
		{"PUT", "/api/enterprise/store/v1/provider/pg", `{"type":"PostgresConfig","api_version":"store/v1","spec":{}}`,
			"dsn"},
		{"PUT", "/api/enterprise/secrets/v1/providers/x", `{"type":"Magic","api_version":"secrets/v1","spec":{}}`, `"Magic"`},
		{"PUT", "/api/enterprise/secrets/v1/namespaces/default/secrets/x",
			`{"type":"Secret","api_version":"secrets/v1","spec":{"provider":"env"}}`, "secret id"},
		{"GET", ns + "/checks?limit=many", "", "limit"},
		{"GET", ns + "/checks?limit=-1", "", "limit"},
		{"GET", ns + "/checks?continue=*", "", "continue"},
		{"GET", ns + "/checks?fieldSelector=check.nose+%3D%3D+x", "", "check.nose"},
		{"GET", ns + "/checks?labelSelector=a+is+b", "", "labelSelector"},
	} {
		text, code := g.want(400, c.method, c.path, c.body).error(t)
		if code != codeInvalid || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %q (%d), where %q is to be said", c.method, c.path, text, code, c.says)
		}
	}
	big := g.want(413, "POST", ns+"/checks", `{"command":"`+strings.Repeat("x", 512_000)+`"}`)
	if text, _ := big.error(t); !strings.Contains(text, "512000") {
		t.Error(text)
	}
	if text, code := g.want(404, "PUT", "/api/core/v2/namespaces/nowhere/hooks/k",
		`{"command":"ps","timeout":10}`).error(t); code != codeNotFound || !strings.Contains(text, "nowhere") {
		t.Error(text, code)
	}
	for _, path := range []string{"/api/core/v2/things", "/api/core/v9/checks", "/api", "/api/", "/nothing",
		"/api/enterprise/federation/v1/things", "/api/enterprise/licensing/v2/license",
		"/api/enterprise/bsm/v1/namespaces/default/things", "/graphql", "/api/core/v2/namespaces/default/users",
		"/api/core/v2/checks/c1", ns + "/checks//c1", ns + "/checks/..", ns + "/checks/a%00b"} {
		a := g.do("GET", path, "")
		if _, code := a.error(t); a.code != 404 || code != codeNotFound || !strings.HasPrefix(a.header.Get("Content-Type"),
			"text/plain") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}

func check(name string, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default"},"command":"true","interval":10%s}`, name, more)
}

// Pages are those of the contract: a token in a header while there is more, and nothing twice.
func TestPages(t *testing.T) {
	g := newRig(t)
	g.want(201, "POST", "/api/core/v2/namespaces", `{"name":"dev"}`)
	for i := range 7 {
		g.want(201, "POST", ns+"/checks", check(fmt.Sprint("c", i), ""))
		g.want(201, "POST", "/api/core/v2/namespaces/dev/checks", strings.ReplaceAll(check(fmt.Sprint("c", i), ""),
			`"default"`, `"dev"`))
	}
	for path, want := range map[string]int{ns + "/checks": 7, "/api/core/v2/checks": 14, "/api/core/v2/clusterroles": 6} {
		for limit := 1; limit < 9; limit++ {
			var all []string
			next, pages := "", 0
			for {
				a := g.want(200, "GET", fmt.Sprintf("%s?limit=%d&continue=%s", path, limit, next), "")
				page := a.names(t)
				all, pages = append(all, page...), pages+1
				if next = a.header.Get("Sensu-Continue"); next == "" {
					break
				}
				if len(page) != limit || strings.ContainsAny(next, "+/=") {
					t.Fatalf("%s: a page of %d, and then %q", path, len(page), next)
				}
			}
			if len(all) != want || pages != (want+limit-1)/limit {
				t.Errorf("%s by %d: %d pages of %v", path, limit, pages, all)
			}
		}
	}
	if a := g.want(200, "GET", ns+"/checks?limit=0", ""); len(a.names(t)) != 7 || a.header.Get("Sensu-Continue") != "" {
		t.Error("a page of 0 is all:", a.body)
	}
	if a := g.want(200, "GET", ns+"/hooks", ""); a.body != "[]" {
		t.Error("no hooks:", a.body)
	}
}

func TestSelectors(t *testing.T) {
	g := newRig(t)
	g.want(201, "POST", ns+"/checks", `{"metadata":{"name":"cpu","labels":{"tier":"web"}},"command":"x","interval":10,`+
		`"publish":true,"subscriptions":["linux","web"],"handlers":["slack"]}`)
	g.want(201, "POST", ns+"/checks", `{"metadata":{"name":"disk","labels":{"tier":"db"}},"command":"x","interval":10,`+
		`"subscriptions":["linux"]}`)
	g.want(201, "POST", ns+"/checks", `{"metadata":{"name":"net"},"command":"x","interval":10,"round_robin":true,`+
		`"subscriptions":["windows"]}`)
	for query, want := range map[string]string{
		`labelSelector=tier == web`:                                         "cpu",
		`labelSelector=tier != web`:                                         "disk net",
		`labelSelector=tier in [web, db]`:                                   "cpu disk",
		`fieldSelector="linux" in check.subscriptions`:                      "cpu disk",
		`fieldSelector=check.publish == true`:                               "cpu",
		`fieldSelector=check.round_robin == "true"`:                         "net",
		`fieldSelector=check.name matches "is"`:                             "disk",
		`fieldSelector=check.namespace == default&labelSelector=tier == db`: "disk",
		`fieldSelector=slack in check.handlers`:                             "cpu",
		`labelSelector=tier == web&limit=1`:                                 "cpu",
	} {
		escaped := strings.NewReplacer(" ", "%20", `"`, "%22", "[", "%5B", "]", "%5D", "==", "%3D%3D", "!=",
			"!%3D").Replace(query)
		if got := strings.Join(g.want(200, "GET", ns+"/checks?"+escaped, "").names(t), " "); got != want {
			t.Errorf("%s: %q, not %q", query, got, want)
		}
	}
}

// Writes hold only under the conditions that their senders set.
func TestConditionsAndPatches(t *testing.T) {
	g := newRig(t)
	one := ns + "/checks/c1"
	g.want(412, "PUT", one, check("c1", ""), "If-Match", "*")
	g.want(201, "PUT", one, check("c1", ""), "If-None-Match", "*")
	g.want(412, "PUT", one, check("c1", ""), "If-None-Match", "*")
	tag := g.want(200, "GET", one, "").header.Get("ETag")
	if a := g.want(304, "GET", one, "", "If-None-Match", `"x", `+tag); a.body != "" {
		t.Error(a.body)
	}
	g.want(200, "GET", one, "", "If-None-Match", `"x"`)
	if _, code := g.want(412, "PUT", one, check("c1", ""), "If-Match", `"x"`).error(t); code != codePrecondition {
		t.Error("code", code)
	}
	g.want(201, "PUT", one, check("c1", `,"timeout":5`), "If-Match", `"x", `+tag)
	g.want(412, "DELETE", one, "", "If-Match", tag)
	newer := g.want(200, "GET", one, "").header.Get("ETag")
	if newer == tag {
		t.Fatal("a change left the tag")
	}
	patched := g.want(200, "PATCH", one, `{"timeout":null,"interval":20,"metadata":{"labels":{"a":"b"}}}`,
		"If-Match", newer)
	var c sensu.CheckConfig
	patched.into(t, &c)
	if c.Timeout != 0 || c.Interval != 20 || c.Labels["a"] != "b" || c.Command != "true" || c.CreatedBy != "admin" ||
		patched.header.Get("ETag") == newer {
		t.Errorf("patched: %s", patched.body)
	}
	g.want(412, "PATCH", one, `{}`, "If-Match", newer)
	g.want(200, "PATCH", one, `{"interval":30}`, "Content-Type", "application/merge-patch+json")
	for _, c := range []struct{ body, form, says string }{
		{`[]`, "application/json-patch+json", "JSON Patch"},
		{`{}`, "text/html", "text/html"},
		{`{"metadata":{"name":"c2"}}`, "", "metadata.name"},
		{`{"metadata":{"namespace":"dev"}}`, "", "metadata.namespace"},
		{`{"interval":-1}`, "", "interval"},
		{`{"interval":null}`, "", "interval"},
		{`[1]`, "", "not a JSON object"},
		{`{`, "", "patch"},
		{`{} {}`, "", "more than one"},
	} {
		if text, code := g.want(400, "PATCH", one, c.body, "Content-Type", c.form).error(t); code != codeInvalid ||
			!strings.Contains(text, c.says) {
			t.Errorf("%s: %q", c.body, text)
		}
	}
	g.want(404, "PATCH", ns+"/checks/none", `{}`)
	if a := g.want(200, "GET", one, ""); !strings.Contains(a.body, `"interval":30`) {
		t.Error("a refused patch changed something:", a.body)
	}
	g.want(204, "DELETE", one, "", "If-Match", "*")
}

func TestNamespaces(t *testing.T) {
	g := newRig(t)
	g.want(201, "POST", "/api/core/v2/namespaces", `{"name":"dev"}`)
	dev := "/api/core/v2/namespaces/dev"
	if got := g.want(200, "GET", dev+"/roles/system:pipeline", ""); !strings.Contains(got.body, `"events"`) {
		t.Error(got.body)
	}
	g.want(200, "GET", dev+"/rolebindings/system:pipeline", "")
	g.want(201, "POST", dev+"/hooks", `{"metadata":{"name":"k"},"command":"ps","timeout":1}`)
	if text, code := g.want(500, "DELETE", dev, "").error(t); code != codeInternal ||
		!strings.Contains(text, "not empty") {
		t.Error(text, code)
	}
	g.want(204, "DELETE", dev+"/hooks/k", "")
	g.want(201, "PUT", dev+"/events/router/up", `{"check":{"status":1}}`)
	g.want(500, "DELETE", dev, "")
	g.want(204, "DELETE", dev+"/entities/router", "")
	g.want(204, "DELETE", dev, "")
	g.want(404, "DELETE", dev, "")
	if got := g.want(200, "GET", "/api/core/v2/namespaces", "").names(t); !slices.Equal(got, []string{"default"}) {
		t.Error(got)
	}
}

func TestSilences(t *testing.T) {
	g := newRig(t)
	all := ns + "/silenced"
	g.want(201, "POST", all, `{"subscription":"linux","reason":"night","expire":3600}`)
	g.want(201, "POST", all, `{"check":"cpu"}`)
	g.want(409, "POST", all, `{"check":"cpu"}`)
	g.want(201, "PUT", all+"/entity:web:cpu", `{"subscription":"entity:web","check":"cpu","expire_on_resolve":true}`)
	var s sensu.Silenced
	g.want(200, "GET", all+"/linux:*", "").into(t, &s)
	if s.Creator != "admin" || s.Begin == 0 || s.ExpireAt != s.Begin+3600 || s.Expire < 3590 || s.Expire > 3600 ||
		s.Name != "linux:*" {
		t.Errorf("%+v", s)
	}
	g.want(200, "GET", all+"/*:cpu", "").into(t, &s)
	if s.Expire != -1 || s.ExpireAt != 0 {
		t.Errorf("without an end: %+v", s)
	}
	for path, want := range map[string]string{
		all: "*:cpu entity:web:cpu linux:*", all + "/checks/cpu": "*:cpu entity:web:cpu",
		all + "/subscriptions/linux": "linux:*", "/api/core/v2/silenced": "*:cpu entity:web:cpu linux:*",
		all + "/checks/none": "",
		all + "?fieldSelector=silenced.creator%3D%3Dadmin%20%26%26%20silenced.check%3D%3D%22cpu%22": "*:cpu entity:web:cpu",
	} {
		if got := strings.Join(g.want(200, "GET", path, "").names(t), " "); got != want {
			t.Errorf("%s: %q, not %q", path, got, want)
		}
	}
	g.now.Store(1800) // what is read shows the seconds that are left, and may be written back later
	half := g.want(200, "GET", all+"/linux:*", "")
	half.into(t, &s)
	if s.Expire > 1801 || s.Expire < 1780 {
		t.Errorf("half the time later: %+v", s)
	}
	g.want(201, "PUT", all+"/linux:*", half.body)
	var again sensu.Silenced
	g.want(200, "GET", all+"/linux:*", "").into(t, &again)
	if again.ExpireAt != s.ExpireAt {
		t.Errorf("written back, it ends at %d, not %d", again.ExpireAt, s.ExpireAt)
	}
	again.Expire = 7200
	b, err := json.Marshal(&again)
	if err != nil {
		t.Fatal(err)
	}
	g.want(201, "PUT", all+"/linux:*", string(b))
	g.want(200, "GET", all+"/linux:*", "").into(t, &again)
	if again.ExpireAt != again.Begin+7200 {
		t.Errorf("with another time: %+v", again)
	}
	g.now.Store(7300) // it has ended
	g.want(404, "GET", all+"/linux:*", "")
	if got := g.want(200, "GET", all, "").names(t); slices.Contains(got, "linux:*") {
		t.Error(got)
	}
	g.want(201, "POST", all, `{"subscription":"linux"}`)
	g.want(204, "DELETE", all+"/linux:*", "")
	if g.resources.View().Silences("default").Of(monitor.Subject{Check: "cpu"}, 1e10) == nil {
		t.Error("a silence does not hold at once")
	}
}

// Where the operator says so, a silence has an end, and not a late one.
func TestSilencesHaveAnEnd(t *testing.T) {
	g := newRigOf(t, subscribers.Config{}, func(c *Config) { c.SilenceTime, c.SilenceMost = time.Hour, 2*time.Hour })
	all := ns + "/silenced"
	g.want(201, "POST", all, `{"check":"cpu"}`)
	g.want(201, "POST", all, `{"check":"mem","expire":7200}`)
	g.want(201, "PUT", all+"/*:net", `{"check":"net","expire":-1}`) // as sensuctl says that there is none
	for check, want := range map[string]int64{"cpu": 3600, "mem": 7200, "net": 3600} {
		var s sensu.Silenced
		g.want(200, "GET", all+"/*:"+check, "").into(t, &s)
		if s.ExpireAt != s.Begin+want {
			t.Errorf("%s: from %d to %d", check, s.Begin, s.ExpireAt)
		}
	}
	for _, body := range []string{`{"check":"disk","expire":7201}`, `{"check":"disk","begin":1000,"expire_at":9000}`} {
		if text, code := g.want(400, "POST", all, body).error(t); code != codeThreshold ||
			!strings.Contains(text, "7200 seconds") {
			t.Errorf("%s: %q (%d)", body, text, code)
		}
	}
	read := g.want(200, "GET", all+"/*:mem", "")
	g.want(201, "PUT", all+"/*:mem", read.body)
}

func TestChecks(t *testing.T) {
	g := newRig(t)
	one := ns + "/checks/c1"
	g.want(404, "POST", one+"/execute", `{}`)
	g.want(201, "POST", ns+"/checks", check("c1", `,"subscriptions":["linux"]`))
	if a := g.want(202, "POST", one+"/execute",
		`{"check":"c1","subscriptions":["web"],"creator":"me","reason":"try"}`); a.body != `{"issued":77}` {
		t.Error(a.body)
	}
	if got := <-g.asked; got != "default/c1 [web] by admin: try" {
		t.Error(got)
	}
	g.want(202, "POST", one+"/execute", "")
	g.want(400, "POST", one+"/execute", "[")
	g.want(201, "PUT", one+"/hooks/non-zero", `{"non-zero":["ps","df"]}`)
	g.want(201, "PUT", one+"/hooks/ok", `{"ok":["date"]}`)
	g.want(400, "PUT", one+"/hooks/ok", `{"critical":["date"]}`)
	g.want(400, "PUT", one+"/hooks/never", `{"never":["date"]}`)
	g.want(204, "DELETE", one+"/hooks/non-zero/hook/ps", "")
	g.want(404, "DELETE", one+"/hooks/non-zero/hook/ps", "")
	g.want(204, "DELETE", one+"/hooks/ok/hook/date", "")
	if a := g.want(200, "GET", one, ""); !strings.Contains(a.body, `"check_hooks":[{"non-zero":["df"]}]`) {
		t.Error(a.body)
	}
	g.want(404, "GET", one+"/hooks/ok", "")
	g.want(404, "GET", one+"/else", "")
}

func TestClusterAndTessen(t *testing.T) {
	g := newRig(t)
	if a := g.want(200, "GET", "/api/core/v2/cluster/id", ""); a.body != `"1111111122223333"` {
		t.Error(a.body)
	}
	var list struct {
		Header  map[string]uint64
		Members []struct {
			ID         uint64
			Name       string
			PeerURLs   []string
			ClientURLs []string
		}
	}
	g.want(200, "GET", "/api/core/v2/cluster/members", "").into(t, &list)
	if len(list.Members) != 1 || list.Members[0].Name != "s1" || list.Header["raft_term"] != 3 {
		t.Errorf("%+v", list)
	}
	g.want(200, "GET", "/api/core/v2/cluster/members/1111111122223333", "")
	g.want(404, "GET", "/api/core/v2/cluster/members/77", "")
	g.want(400, "POST", "/api/core/v2/cluster/members?peer-addrs=http://x:2380", "")
	g.want(400, "DELETE", "/api/core/v2/cluster/members/1111111122223333", "")
	for _, m := range []string{"GET", "PUT"} {
		if a := g.want(200, m, "/api/core/v2/tessen", `{"opt_out":false}`); a.body != `{"opt_out":true}` {
			t.Error(a.body)
		}
	}
	g.want(201, "POST", "/api/core/v2/tessen/metrics", `[]`)
	if a := g.send("GET", "/", "", ""); a.code != 200 || !strings.Contains(a.body, "Corbel") {
		t.Error(a)
	}
}
