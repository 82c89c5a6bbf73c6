package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/config"
)

// uiRig is a dev server as somebody sees it who comes by a name that is not loopback's: nobody is logged in.
type uiRig struct {
	t      *testing.T
	http   http.Handler
	cookie *http.Cookie
}

func startUI(t *testing.T) *uiRig {
	t.Helper()
	ports, err := testport.Free(6)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{Dev: true, Style: config.Corbel, Hostname: "test", Sections: Sections(),
		Fragments: []string{fmt.Sprintf("log_level = \"ERROR\"\nnode_name = \"test\"\nports { http = %d, serf_lan = %d, "+
			"server = %d, secrets = %d, monitor = %d, monitor_agents = %d, serf_wan = -1, dns = -1, grpc = -1 }\n"+
			"monitor { agent { enabled = false } }\nacl { default_policy = \"deny\" }", ports[0], ports[1], ports[2],
			ports[3], ports[4], ports[5])}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*Server)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	polltest.Until(t, func() bool { return len(p.Health().Lacks) == 0 }, "readiness")
	return &uiRig{t: t, http: p.doors.Front(p.doctor)}
}

func (u *uiRig) do(method, path, body string, headers ...string) (int, string) {
	r := httptest.NewRequestWithContext(u.t.Context(), method, path, strings.NewReader(body))
	r.Host = "corbel.example"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if u.cookie != nil {
		r.AddCookie(u.cookie)
	}
	w := httptest.NewRecorder()
	u.http.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		u.cookie = c
	}
	return w.Code, w.Body.String()
}

// asRoot writes with the token of dev.
func (u *uiRig) asRoot(method, path, body string) string {
	u.t.Helper()
	var text string
	polltest.NoError(u.t, time.Minute, func() error {
		var code int
		if code, text = u.do(method, path, body, "X-Consul-Token", "root"); code != http.StatusOK {
			return fmt.Errorf("%s %s: %d %s", method, path, code, text)
		}
		return nil
	}, "%s", path)
	return text
}

// noAlloc is an allocation that is not there.
const noAlloc = "11111111-2222-3333-4444-555555555555"

// parts are what screens ask the planes' own APIs for, beside the topics.
var parts = []string{
	"/ui/api/as/jobs/v1/jobs?namespace=*", "/ui/api/as/jobs/v1/allocations?namespace=*", "/ui/api/as/jobs/v1/nodes",
	"/ui/api/as/jobs/v1/deployments?namespace=*", "/ui/api/as/jobs/v1/job/hidden-job",
	"/ui/api/as/jobs/v1/job/hidden-job/allocations", "/ui/api/as/jobs/v1/job/hidden-job/evaluations",
	"/ui/api/as/jobs/v1/job/hidden-job/deployments",
	"/ui/api/as/jobs/v1/node/" + noAlloc,
	"/ui/api/as/jobs/v1/client/fs/logs/" + noAlloc + "?task=t&type=stdout&plain=true",
	"/ui/api/as/catalog/v1/usage/products", "/ui/api/as/catalog/v1/usage/tenants", "/ui/api/as/catalog/v1/usage/limits",
	"/ui/api/as/catalog/v1/usage/top", "/ui/api/as/catalog/v1/usage/estimates?product=hidden_product",
	"/ui/api/as/secrets/v1/secret/metadata?list=true", "/ui/api/as/secrets/v1/secret/data/hidden/path",
	"/ui/api/as/secrets/v1/sys/leases/lookup/hidden/?list=true", "/ui/api/as/catalog/v1/query",
	"/ui/api/as/catalog/v1/config/service-defaults", "/ui/api/as/secrets/v1/secret/metadata/hidden/path",
	"/ui/api/as/secrets/v1/sys/internal/ui/mounts",
	"/ui/api/as/monitor/api/core/v2/events", "/ui/api/as/monitor/api/core/v2/silenced",
	"/ui/api/as/monitor/api/corbel/v1/events/fates?namespace=default&entity=hidden&check=hidden",
	"/ui/api/as/catalog/v1/kv/?recurse", "/ui/api/as/catalog/v1/connect/intentions",
	"/ui/api/as/catalog/v1/internal/mesh/topology", "/ui/api/as/catalog/v1/internal/mesh/leaves",
	"/ui/api/as/catalog/v1/internal/mesh/certificates", "/ui/api/as/catalog/v1/doctor",
	"/ui/api/as/catalog/v1/doctor/profile?format=tree",
	"/ui/api/as/catalog/v1/health/counts/services", "/ui/api/as/catalog/v1/health/counts/nodes",
	"/ui/api/as/elsewhere/hidden/api/core/v2/namespaces/default/silenced/x:y",
}

// hide puts something on the planes that only root may see.
func (u *uiRig) hide() {
	u.t.Helper()
	if code, text := u.do("POST", "/ui/api/login", `{"token":"root"}`); code != http.StatusOK {
		u.t.Fatalf("login of root: %d %s", code, text)
	}
	for _, w := range [][3]string{
		{"PUT", "jobs/v1/jobs", `{"Job":{"ID":"hidden-job","Name":"hidden-job","Type":"service","Datacenters":["*"],` +
			`"TaskGroups":[{"Name":"hidden","Count":0,"Tasks":[{"Name":"hidden","Driver":"raw_exec",` +
			`"Config":{"command":"/bin/true"}}]}]}}`},
		{"POST", "secrets/v1/secret/data/hidden/path", `{"data":{"hidden":"v"}}`},
		{"PUT", "catalog/v1/usage/products/hidden_product", `{"kind":"sum"}`},
	} {
		polltest.NoError(u.t, time.Minute, func() error {
			if code, text := u.do(w[0], "/ui/api/as/"+w[1], w[2]); code/100 != 2 {
				return fmt.Errorf("%d %s", code, text)
			}
			return nil
		}, "%s", w[1])
	}
}

// topicsAre tells whether the answer about a topic that is not there names none that is not tried.
func topicsAre(text string, tried []string) bool {
	_, list, found := strings.Cut(strings.TrimSpace(text), "there are ")
	return found && !slices.ContainsFunc(strings.Split(list, ", "), func(name string) bool {
		return !slices.ContainsFunc(tried, func(one string) bool {
			topic, _, _ := strings.Cut(one, "?")
			return topic == name
		})
	})
}

// writesNothing presses what the screens offer without the right to it: all is refused, and nothing changed.
func (u *uiRig) writesNothing(root *uiRig) {
	u.t.Helper()
	for _, w := range [][3]string{
		{"PUT", "catalog/v1/kv/a?cas=0", "x"}, {"DELETE", "catalog/v1/kv/hidden/key?cas=1", ""},
		{"PUT", "catalog/v1/txn", `[{"KV":{"Verb":"set","Key":"hidden/key","Value":"eA=="}}]`},
		{"PUT", "catalog/v1/connect/intentions/exact?source=a&destination=hidden-db", `{"Action":"allow"}`},
		{"PUT", "catalog/v1/config?cas=0", `{"Kind":"service-defaults","Name":"hidden-db"}`},
		{"DELETE", "catalog/v1/config/service-defaults/hidden-db?cas=1", ""},
		{"POST", "catalog/v1/query", `{"Name":"mine","Service":{"Service":"web"}}`},
		{"PUT", "jobs/v1/jobs", `{"Job":{"ID":"mine","Type":"service","TaskGroups":[]}}`},
		{"DELETE", "jobs/v1/job/hidden-job", ""},
		{"PUT", "jobs/v1/job/hidden-job/scale", `{"Count":3,"Target":{"Group":"hidden"}}`},
		{"PUT", "jobs/v1/deployment/promote/" + noAlloc, `{"DeploymentID":"` + noAlloc + `","All":true}`},
		{"PUT", "jobs/v1/deployment/fail/" + noAlloc, `{}`},
		{"PUT", "jobs/v1/node/" + noAlloc + "/drain", `{"DrainSpec":{"Deadline":1}}`},
		{"POST", "secrets/v1/secret/delete/hidden/path", `{"versions":[1]}`},
		{"POST", "secrets/v1/secret/undelete/hidden/path", `{"versions":[1]}`},
		{"PUT", "secrets/v1/secret/destroy/hidden/path", `{"versions":[1]}`},
		{"PUT", "secrets/v1/sys/leases/revoke-prefix/database/creds/hidden", `{"sync":false}`},
		{"PUT", "monitor/api/core/v2/namespaces/default/silenced/x:y", `{"metadata":{"name":"x:y","namespace":"default"}}`},
		{"PUT", "monitor/api/core/v2/namespaces/default/events/e/c", `{}`},
		{"PUT", "elsewhere/dc1/api/core/v2/namespaces/default/silenced/x:y",
			`{"metadata":{"name":"x:y","namespace":"default"}}`},
	} {
		if code, text := u.do(w[0], "/ui/api/as/"+w[1], w[2]); code < 400 { // an absent rollout is a 500 of the contract
			u.t.Errorf("%s %s without the right: %d %s", w[0], w[1], code, text)
		}
	}
	for path, want := range map[string]string{"jobs/v1/job/hidden-job": `"Stop":false`,
		"secrets/v1/secret/metadata/hidden/path": `"destroyed":false`, "catalog/v1/kv/hidden/key?raw": "v"} {
		if code, text := root.do("GET", "/ui/api/as/"+path, ""); code != http.StatusOK || !strings.Contains(text, want) {
			u.t.Errorf("%s was changed: %d %s", path, code, text)
		}
	}
}

// TestUIRights: whoever may read one service on one node sees nothing else in any topic, any count and any error, and
// nothing at all without a login. What is not to be seen has hidden in its name.
func TestUIRights(t *testing.T) {
	u := startUI(t)
	for _, s := range []string{
		`{"Node":"n1","Address":"10.0.0.1","Service":{"ID":"web","Service":"web"}}`,
		`{"Node":"n1","Address":"10.0.0.1","Service":{"ID":"hidden-db","Service":"hidden-db"},"Check":{"CheckID":"x",` +
			`"Name":"hidden","ServiceID":"hidden-db","Status":"critical","Output":"hidden output"}}`,
		`{"Node":"hidden-n2","Address":"10.0.0.2","Service":{"ID":"web2","Service":"web","Tags":["v2"]}}`,
		`{"Node":"n1","Address":"10.0.0.1","Service":{"Kind":"connect-proxy","ID":"hidden-proxy","Service":"hidden-proxy",` +
			`"Port":1,"Proxy":{"DestinationServiceName":"hidden-db","Upstreams":[{"DestinationName":"web",` +
			`"LocalBindPort":2}]}}}`} {
		u.asRoot("PUT", "/v1/catalog/register", s)
	}
	u.asRoot("PUT", "/v1/kv/hidden/key", "v")
	u.asRoot("PUT", "/v1/connect/intentions/exact?source=hidden-a&destination=hidden-db", `{"Action":"deny"}`)
	u.asRoot("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"hidden-db"}`)
	u.asRoot("POST", "/v1/query", `{"Name":"hidden-query","Service":{"Service":"hidden-db"}}`)
	rules, _ := json.Marshal(`service "web" { policy = "read" } node "n1" { policy = "read" }`)
	u.asRoot("PUT", "/v1/acl/policy", `{"Name":"web","Rules":`+string(rules)+`}`)
	var token struct{ SecretID string }
	if err := json.Unmarshal([]byte(u.asRoot("PUT", "/v1/acl/token", `{"Description":"web","Policies":[{"Name":"web"}]}`)),
		&token); err != nil {
		t.Fatal(err)
	}
	root := &uiRig{t: t, http: u.http}
	root.hide()
	if _, text := root.do("GET", "/ui/api/topic/key?name=hidden/key", ""); !strings.Contains(text, `"by":"`) ||
		!strings.Contains(text, `"name":"`) {
		t.Errorf("who wrote a key: %s", text)
	}
	topics := []string{"overview", "services", "instances", "instances?service=hidden-db", "instances?service=web",
		"nodes", "nodemap", "nodemap?by=hidden", "room", "roommap?of=cpu", "roommap?of=memory",
		"counted?product=hidden_product", "kv", "kv?prefix=hidden/&all=1", "key?name=hidden/key", "doctor", "incidents",
		"silences", "secrets", "mesh", "mesh?service=hidden-db", "mesh?service=web", "mesh?prefix=hidden", "standing",
		"standing?service=hidden-db", "standing?service=web", "entries", "queries",
		"whomay?resource=key&name=a&level=read",
		"cluster", "keyring", "propagation", "applied?from=0&to=9e12&low=0&high=0", "jobs", "usage", "changes", "federation",
		"everywhere?of=incidents", "everywhere?of=entities"}
	endpoints := []string{"/ui/api/me", "/ui/api/search?q=hid", "/ui/api/as/catalog/v1/catalog/services",
		"/ui/api/as/secrets/v1/sys/mounts", "/ui/api/as/monitor/api/core/v2/namespaces"}
	endpoints = append(endpoints, parts...)
	for _, topic := range topics {
		endpoints = append(endpoints, "/ui/api/topic/"+topic)
	}
	for _, path := range endpoints {
		if code, text := u.do("GET", path, ""); code != http.StatusUnauthorized || strings.Contains(text, "web") {
			t.Errorf("%s without a login: %d %s", path, code, text)
		}
	}
	if code, text := u.do("POST", "/ui/api/login", `{"token":"wrong"}`); code != http.StatusForbidden {
		t.Fatalf("a wrong token: %d %s", code, text)
	}
	for _, body := range []string{`{}`, `{"handle":"","codes":{"":"1"}}`, `{"handle":"x","codes":{"app":"123456"}}`} {
		if code, text := u.do("POST", "/ui/api/login/factor", body); code != http.StatusForbidden ||
			!strings.Contains(text, "no login waits") || u.cookie != nil {
			t.Errorf("a passcode for no login, %s: %d %s", body, code, text)
		}
	}
	if code, text := u.do("POST", "/ui/api/login", `{"token":"`+token.SecretID+`"}`); code != http.StatusOK {
		t.Fatalf("login: %d %s", code, text)
	}
	for _, path := range endpoints {
		code, text := u.do("GET", path, "")
		if code == http.StatusUnauthorized && strings.HasPrefix(path, "/ui/api/topic/") || strings.Contains(text, "hidden") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	for path, want := range map[string]string{
		"/ui/api/topic/services":  `{"rows":[{"name":"web","instances":1,"passing":1,`,
		"/ui/api/topic/instances": `"matching":1,"all":1`,
		"/ui/api/topic/nodes":     `{"name":"n1","address":"10.0.0.1","state":"passing","instances":1,"failing":0}`,
		"/ui/api/topic/overview":  `"words":"1 service, 1 instance, 1 passing"`,
		"/ui/api/topic/kv":        `"all":0`,
		"/ui/api/topic/doctor":    "Permission denied",
		"/ui/api/topic/roommap":   "Permission denied",
		"/ui/api/topic/incidents": "log in with a user and password",
	} {
		if _, text := u.do("GET", path, ""); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
	if _, text := u.do("GET", "/ui/api/topic/none", ""); !topicsAre(text, topics) {
		t.Errorf("topics of which some are not tried: %s", text)
	}
	u.writesNothing(root)
	for _, path := range []string{"logout", "login", "login/begin", "login/end", "login/factor"} {
		if code, text := u.do("POST", "/ui/api/"+path, "{}", "Sec-Fetch-Site", "cross-site"); code != http.StatusForbidden ||
			!strings.Contains(text, "another site") {
			t.Errorf("another site's page at %s: %d %s", path, code, text)
		}
	}
	for _, from := range []string{"", "null", "http://evil.example", "http://corbel.example.evil"} {
		if code, _ := u.do("GET", "/ui/api/as/jobs/v1/client/allocation/x/exec", "", "Upgrade", "websocket",
			"Origin", from); code != http.StatusForbidden {
			t.Errorf("a session of the origin %q: %d", from, code)
		}
	}
	if code, _ := u.do("GET", "/ui/api/as/jobs/v1/client/allocation/x/exec", "", "Upgrade", "websocket",
		"Origin", "http://corbel.example"); code == http.StatusUnauthorized {
		t.Errorf("a session of the page's own: %d", code)
	}
	known := u.cookie.Value
	if code, _ := u.do("POST", "/ui/api/login", `{"token":"`+token.SecretID+`"}`); code != http.StatusOK ||
		u.cookie.Value == known || u.cookie.Value == "" {
		t.Errorf("a login keeps the session that the browser brought: %d", code)
	}
	u.cookie.Value = known
	if code, _ := u.do("GET", "/ui/api/me", ""); code != http.StatusUnauthorized {
		t.Errorf("the session from before the login lives on: %d", code)
	}
}
