package consulapi

import (
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
)

// tricks are ways to write a path to secret/x, or to what looks like it, through or beside app/.
var tricks = []string{
	"secret/x", "/secret/x", "//secret/x", "./secret/x", "secret//x", "secret/./x", "secret/x/", "secret/x/.",
	"secret/x/..", "secret/../secret/x",
	"app/../secret/x", "app//../secret/x", "app/./../secret/x", "app/x/../../secret/x", "app/../../secret/x",
	"app/../app/../secret/x",
	"app/%2e%2e/secret/x", "app/%2E%2E/secret/x", "app/.%2e/secret/x", "app/%2e./secret/x", "app/..%2fsecret/x",
	"app/..%2Fsecret%2Fx",
	"app%2f..%2fsecret%2fx", "app%2F%2E%2E%2Fsecret%2Fx", "%2e%2e/secret/x", "%2e/secret/x", "..%2fsecret%2fx",
	"secret%2fx", "secret%2Fx",
	"%73ecret/x", "%73%65%63%72%65%74%2f%78", "secret/%78", "secret%252fx", "app/%252e%252e/secret/x",
	"app/..%252fsecret/x", "app%252f..%252fsecret/x",
	"app/..;/secret/x", "app/;/../secret/x", "app/..;a=b/secret/x", "secret;a=b/x", "app\\..\\secret\\x",
	"app/..\\secret\\x", "app/%5c..%5csecret/x",
	"app/%00/../secret/x", "app/../secret/x%00", "secret/x%00", "secret%00/x", "%00secret/x", "app/%0a../secret/x",
	"secret/x%0d%0a", "secret/x%20", "%20secret/x", "secret/x%09",
	"Secret/x", "SECRET/X", "sECRET/x", "secret/X", "%53ecret/x",
	"%c5%bfecret/x", "%ef%bd%93ecret/x", "s%cc%81ecret/x", "secret%e2%88%95x", "secret%ef%bc%8fx",
	"app/%e2%80%a6/secret/x", "app/%c0%ae%c0%ae/secret/x",
	"app%c0%af..%c0%afsecret/x", "secret%c0%afx", "%e2%80%8bsecret/x", "secret%e2%80%8b/x", "secret/x%ef%bb%bf",
	"%ff%fesecret/x",
	"app?/../secret/x", "app/%3f/../secret/x", "app/%23/../secret/x", "app/*", "app/**/secret/x", "*", "", "app", "ap",
	"secre", "app/../", "app/..", "app/.", "..", ".", "/", "//", "/app/../secret/x",
	strings.Repeat("a/../", 200) + "secret/x", "app/" + strings.Repeat("../", 300) + "secret/x",
	strings.Repeat("/", 400) + "secret/x",
}

// doors are ways to write the beginning of the path.
var doors = []string{"/v1/kv/", "/v1//kv/", "/v1/./kv/", "/v1/kv/../kv/", "/V1/KV/", "/v1/%6bv/", "//v1/kv/",
	"/v1/catalog/../kv/"}

// TestPathTricksOpenNothing asks for secret/x in many spellings with a token for app/ alone, through the
// hot path and net/http. Whatever is answered, it is never the secret, and nothing outside app/ changes.
func TestPathTricksOpenNothing(t *testing.T) {
	s := newStage(t, func(c *Config) {
		c.Authorizer,
			c.DefaultACLPolicy = tokens{"app": rules(`key_prefix "app/" { policy = "write" } key "secret" { policy = "deny" }`),
			"": rules("")}, "deny"
	})
	seed := map[string]string{"secret/x": "the-secret", "secret": "the-secret", "Secret/x": "the-secret", "app/x": "fine",
		"secret//x": "the-secret", "/secret/x": "the-secret"}
	for k, v := range seed {
		put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: k, Value: []byte(v)}})
	}
	cells := 0
	for _, addr := range []string{s.addr, s.slow} {
		for _, door := range doors {
			for _, trick := range tricks {
				if door != doors[0] && len(trick) > 100 {
					continue
				}
				for _, how := range []struct{ method, query, body string }{
					{"GET", "", ""}, {"GET", "?raw", ""}, {"GET", "?recurse", ""}, {"GET", "?keys", ""}, {"PUT", "", "pwned"},
					{"DELETE", "", ""}, {"DELETE", "?recurse", ""},
				} {
					if door != doors[0] && how.query != "" {
						continue
					}
					cells++
					target := strings.ReplaceAll(door+trick, " ", "%20") + how.query
					a := dialTo(t, addr).ask(how.method, target, "X-Consul-Token: app\r\nConnection: close\r\n", how.body)
					if strings.Contains(a.body, "the-secret") || strings.Contains(a.body, "dGhlLXNlY3JldA") ||
						strings.Contains(a.body, `secret/x"`) && a.status == 200 && !strings.Contains(a.body, `"app/`) {
						t.Errorf("%s %s: %d %s", how.method, target, a.status, a.body)
					}
				}
			}
		}
	}
	for p := range s.store.State().KVPrefix("") {
		if want, there := seed[p.Key]; there && string(p.Value) != want && p.Key != "app/x" {
			t.Errorf("%q was changed to %q", p.Key, p.Value)
		} else if !there && !strings.HasPrefix(p.Key, "app/") {
			t.Errorf("%q was written", p.Key)
		}
	}
	for k := range seed {
		if k != "app/x" && s.store.State().KV(k) == nil {
			t.Errorf("%q was deleted", k)
		}
	}
	if cells < 500 {
		t.Errorf("%d cells, at least 500 are wanted", cells)
	}
	t.Logf("%d cells", cells)
}
