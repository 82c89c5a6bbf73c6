package sensurest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	sensu "github.com/sensu/sensu-go/api/core/v2"

	"corbel.dev/corbel/kit/polltest"
)

// What names may hold (SK-15), and that a class is any name (SK-14).
func TestNames(t *testing.T) {
	g := newRig(t)
	entity := func(name, class string) (string, string) {
		return ns + "/entities/" + url.PathEscape(name), fmt.Sprintf(`{"metadata":{"name":%q},"entity_class":%q}`,
			name, class)
	}
	asset := func(name string) (string, string) {
		return ns + "/assets/" + url.PathEscape(name),
			fmt.Sprintf(`{"metadata":{"name":%q},"url":"https://example.com/a.tar.gz","sha512":%q}`, name,
				strings.Repeat("a", 128))
	}
	user := func(name string) (string, string) {
		return "/api/core/v2/users/" + url.PathEscape(name), fmt.Sprintf(`{"username":%q,"password":"long enough"}`, name)
	}
	subscription := func(name string) (string, string) {
		return ns + "/silenced/" + url.PathEscape(name+":c"), fmt.Sprintf(`{"subscription":%q,"check":"c"}`, name)
	}
	try := func(ok bool, path, body string) {
		t.Helper()
		a := g.do("PUT", path, body)
		if ok != (a.code == 200 || a.code == 201) || !ok && a.code != 400 {
			t.Errorf("%s %s: %d %s", path, body, a.code, a.body)
		}
	}
	for name, ok := range map[string]bool{"Web_1.example:8080-a": true, "a b": false, "a/b": false, "ä": false,
		"a;b": false} {
		path, body := entity(name, "proxy")
		try(ok, path, body)
	}
	for class, ok := range map[string]bool{"agent": true, "proxy": true, "backend": true, "service": true,
		"Router_2.x": true, "two words": false} {
		path, body := entity("e", class)
		try(ok, path, body)
	}
	for name, ok := range map[string]bool{"sensu/sensu-ruby-runtime:1.0_a": true, "a b": false} {
		path, body := asset(name)
		try(ok, path, body)
	}
	for name, ok := range map[string]bool{"ann_b.c-2": true, "Ann": false, "a b": false} {
		path, body := user(name)
		try(ok, path, body)
	}
	for name, ok := range map[string]bool{"linux": true, "entity:web-1": true, "a:b:c": false, "a b": false} {
		path, body := subscription(name)
		try(ok, path, body)
	}
}

// A result of a proxy is an event of the entity as it is stored, whatever the agent sent (SK-13); what is stored has
// no metrics (SE-9), and says who made it (SE-13).
func TestEventsOfProxies(t *testing.T) {
	g := newRig(t)
	g.want(200, "PUT", ns+"/entities/router",
		`{"metadata":{"name":"router","labels":{"site":"b"}},"entity_class":"proxy","subscriptions":["net"]}`)
	g.want(201, "POST", ns+"/events",
		`{"entity":{"metadata":{"name":"agent1","labels":{"site":"a"}},"entity_class":"agent"},
		"check":{"metadata":{"name":"ping"},"proxy_entity_name":"router","status":1,"output":"long output","max_output_size":4},"metrics":{"handlers":["x"],"points":[{"name":"a","value":1,"timestamp":1}]}}`)
	g.want(201, "POST", ns+"/events", `{"entity":{"metadata":{"name":"new"}},"check":{"metadata":{"name":"ping"},`+
		`"status":0}}`)
	var e sensu.Event
	got := g.want(200, "GET", ns+"/events/router/ping", "")
	got.into(t, &e)
	if e.Entity.Name != "router" || e.Entity.EntityClass != "proxy" || e.Entity.Labels["site"] != "b" ||
		!slices.Contains(e.Entity.Subscriptions, "net") || e.Check.ProcessedBy != "agent1" {
		t.Error(got.body)
	}
	if e.Metrics != nil || e.Check.Output != "long" || e.Labels["sensu.io/output_truncated_bytes"] != "7" ||
		e.CreatedBy != "admin" || e.Check.CreatedBy != "admin" {
		t.Error(got.body)
	}
	g.want(404, "GET", ns+"/events/agent1/ping", "")
	g.want(200, "GET", ns+"/events/new/ping", "").into(t, &e)
	if e.Entity.EntityClass != "proxy" || e.Entity.CreatedBy != "admin" {
		t.Errorf("%+v", e.Entity)
	}
}

// A keepalive that is posted is one: who sent it is missed afterwards.
func TestPostedKeepalive(t *testing.T) {
	g := newRig(t)
	g.want(201, "POST", ns+"/events", `{"entity":{"metadata":{"name":"web"},"entity_class":"agent"},"check":{`+
		`"metadata":{"name":"keepalive"},"interval":1,"timeout":1,"status":0}}`)
	go g.ingest.Watch(t.Context())
	var e sensu.Event
	polltest.Until(t, func() bool {
		g.want(200, "GET", ns+"/events/web/keepalive", "").into(t, &e)
		return e.Check.Status == 1
	}, "the keepalive to fail")
	if !strings.Contains(e.Check.Output, "No keepalive sent from web for ") || time.Now().Unix()-e.Timestamp > 60 {
		t.Errorf("%+v", e.Check)
	}
}

// The cluster's members are a resource of their own name, which a role in a namespace does not reach (SR-9).
func TestWhoSeesTheCluster(t *testing.T) {
	g := newRig(t)
	inNamespace := g.user("ann", `{"verbs":["*"],"resources":["*"]}`)
	g.user("bob", "")
	g.want(201, "PUT", "/api/core/v2/clusterroles/members",
		`{"rules":[{"verbs":["get","list"],"resources":["cluster-members"]}]}`)
	g.want(201, "PUT", "/api/core/v2/clusterrolebindings/members",
		`{"subjects":[{"type":"User","name":"bob"}],"role_ref":{"type":"ClusterRole","name":"members"}}`)
	bob := g.login("bob", "long enough")
	for _, path := range []string{"/api/core/v2/cluster/members", "/api/core/v2/cluster/members/1111111122223333"} {
		if a := g.send("GET", path, bearer(inNamespace.Access), ""); a.code != 403 {
			t.Errorf("ann, %s: %d", path, a.code)
		}
		if a := g.send("GET", path, bearer(bob.Access), ""); a.code != 200 {
			t.Errorf("bob, %s: %d %s", path, a.code, a.body)
		}
	}
	if a := g.send("DELETE", "/api/core/v2/cluster/members/1111111122223333", bearer(bob.Access), ""); a.code != 403 {
		t.Errorf("bob deletes: %d", a.code)
	}
}
