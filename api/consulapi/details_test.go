package consulapi

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
)

// TestUncommonDetails: small rows of the contract that no other test asks for.
func TestUncommonDetails(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		// What the catalog's own rows take, though agents refuse it.
		{"PUT", "/v1/catalog/register", `{"Node":"odd","Address":"10.0.0.9","NodeMeta":{"a b":"c"}}`, 200, "true"},
		{"GET", "/v1/catalog/node-services/odd", "", 200, "*"},
		{"GET", "/v1/acl/list", "", 404, "*"},
		{"PUT", "/v1/acl/create", "{}", 404, "*"},
		{"GET", "/v1/operator/license", "", 404, "*"},
		{"GET", "/v1/operator/segment", "", 404, "*"},
		{"PUT", "/v1/txn", strings.Repeat("[", 100) + strings.Repeat("]", 100), 400, "*"},
		{"PUT", "/v1/catalog/register", "{\"Node\":\"\xff\"}", 400, "*"},
		{"PUT", "/v1/agent/service/register", `{"name":"web","port":80,"check":{"ttl":"10s"}}`, 200, ""},
	})
	if a := r.do("GET", "/v1/agent/health/service/id/web", ""); a.status != 503 ||
		a.header.Get("X-Consul-Reason") != "critical" {
		t.Errorf("%d %v", a.status, a.header)
	}
	req := httptest.NewRequest("PUT", "/v1/kv/form", strings.NewReader("a=b"))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if a := r.send(req); a.status != 200 || a.body != "true" {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.want("GET", "/v1/kv/form?raw", "", 200, "a=b")
}

// TestDiscoveryMaxStale: catalog and health are stale within the bound unless the client says otherwise; keys are not.
func TestDiscoveryMaxStale(t *testing.T) {
	r := newRig(t, func(c *Config) { c.DiscoveryMaxStale = 5 * time.Second })
	r.store.contact = registry.Contact{KnownLeader: true, LastContact: 3 * time.Second}
	for path, want := range map[string]string{"/v1/catalog/nodes": "stale", "/v1/health/state/any": "stale",
		"/v1/catalog/nodes?consistent": "consistent"} {
		if a := r.do("GET", path, ""); a.header.Get("X-Consul-Effective-Consistency") != want {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
	r.store.contact.LastContact = 6 * time.Second
	if a := r.do("GET", "/v1/catalog/nodes", ""); a.header.Get("X-Consul-Effective-Consistency") != "leader" {
		t.Errorf("beyond the bound: %v", a.header)
	}
}

// TestKeyListPolicy: with it a listing needs the right to list, without it a listing shows what may be read.
func TestKeyListPolicy(t *testing.T) {
	for _, on := range []bool{false, true} {
		r := newRig(t, func(c *Config) {
			c.KV.KeyListPolicy, c.DefaultACLPolicy = on, "deny"
			c.Authorizer = tokens{"w": rules(acl.GlobalManagementRules), "r": rules(`key_prefix "app/" { policy = "read" }`),
				"l": rules(`key_prefix "app/" { policy = "list" }`)}
		})
		r.want("PUT", "/v1/kv/app/x?token=w", "1", 200, "true")
		status := 200
		if on {
			status = 403
		}
		for _, query := range []string{"?keys", "?recurse"} {
			r.want("GET", "/v1/kv/app/"+query+"&token=r", "", status, "*")
			r.want("GET", "/v1/kv/app/"+query+"&token=l", "", 200, "*")
			r.want("GET", "/v1/kv/"+query+"&token=w", "", 200, "*")
		}
	}
}
