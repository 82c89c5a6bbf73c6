package consulapi

import (
	"flag"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/api/hothttp/hottest"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
)

var (
	differRequests = flag.Int("differ.requests", 10_000, "random requests that both paths are asked")
	differSeed     = flag.Uint64("differ.seed", 1, "of the first of them")
)

var differWords = hottest.Words{
	Paths: []string{"/v1/kv/a", "/v1/kv/a/b", "/v1/kv/app/x", "/v1/kv/app/", "/v1/kv/", "/v1/kv", "/v1/kv//a",
		"/v1/kv/a//b", "/v1/kv/a/../b", "/v1/kv/.", "/v1/kv/big", "/v1/kv/a%2Fb", "/v1/kv/%61",
		"/v1/kv/new", "/v1/kv/a;b", "/v1/kv/a+b", "/v1/kv/a:b", "/v1/health/service/web", "/v1/health/service/WEB",
		"/v1/health/service/none", "/v1/health/service/", "/v1/health/service/web/x",
		"/v1/catalog/service/web", "/v1/catalog/service/none", "/v1/catalog/service/web/", "/v1/catalog/register",
		"/v1/catalog/register", "/v1/catalog/register/", "/v1/catalog/nodes", "/v1/status/leader", "/", "/v2/kv/a", "*"},
	Queries: []string{"raw", "raw=", "raw=1", "stale", "stale=", "stale=1", "consistent", "recurse", "keys", "cas=0",
		"cas=1", "cas=x", "flags=5", "index=0", "index=1", "index=99999999&wait=1ms", "index=x", "wait=1ms", "wait=x",
		"passing", "passing=1", "passing=false", "passing=maybe", "tag=v1", "pretty", "token=reader", "token=", "dc=dc1",
		"dc=dc2", "ns=x", "near=_agent", "filter=x", "cached", "separator=/", "", "=", "a=%zz", "wait=-1s", "passing=%31",
		"acquire=x"},
	Headers: []string{"X-Consul-Token: reader", "X-Consul-Token: writer", "X-Consul-Token: nobody", "X-Consul-Token:",
		"X-Consul-Token: ", "x-consul-token: writer", "X-Consul-Token: writer ", "X-Consul-Token: \twriter",
		"Authorization: Bearer writer",
		"Authorization: bearer  reader", "X-Consul-Namespace: default", "X-Consul-Namespace: x", "X-Consul-Index: 5",
		"X-Vault-Token: writer", "X-Vault-Request: true", "X-Vault-Request: false"},
	Bodies: []string{"", "value", strings.Repeat("v", 2000), strings.Repeat("v", 9000), "\x00\xff", `{}`, `null`, `[]`,
		`{`, `{"Node":"n","Address":"10.0.0.9"}`, `{"Node":"n"}`, `{"Node":5}`,
		`{"Node":"n","Address":"a","Datacenter":"dc2"}`,
		`{"node":"n2","ADDRESS":"1","Service":{"Service":"s","Proxy":null},"Check":null}`,
		`{"Node":"n","Address":"10.0.0.9","Service":{"ID":"web","Service":"web","Port":81,"Tags":["x"]}}`,
		`{"Node":"n","Address":"a","Check":{"CheckID":"c","Status":"passing"}}`,
		`{"Node":"n","Address":"a","Check":{"CheckID":"c","ServiceID":"none","Status":"passing"}}`,
		`{"Node":"n","Address":"a","NodeMeta":{"a":"b"}} x`,
		`{"Node":"n","Address":"a","NodeMeta":{"corbel-lease-ttl":"soon"}}`, `{"Node":"n","Node":"m","Address":"a"}`,
		"{\"Node\":\"\xff\",\"Address\":\"a\"}"},
}

// differing makes two equal states, one asked by the short path, one by the long.
func differing(t testing.TB, change func(*Config)) *hottest.Pair {
	both := [2]*stage{}
	for i := range both {
		both[i] = (&stage{TB: t, store: newStore(), marked: true}).begin(func(c *Config) {
			c.Wait = httpx.WaitLimits{Default: time.Millisecond, Max: 2 * time.Millisecond}
			if change != nil {
				change(c)
			}
		})
	}
	for _, s := range both {
		s.service("node01", "passing")
		s.service("node02", "critical")
		for _, pair := range [][2]string{{"a", "1"}, {"a/b", "2"}, {"big", strings.Repeat("big ", 1000)}} {
			put(t, s.store, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: pair[0], Value: []byte(pair[1])}})
		}
	}
	p := &hottest.Pair{Short: both[0].addr, Long: both[1].slow}
	t.Cleanup(p.Close)
	return p
}

var differConfigs = []struct {
	name   string
	change func(*Config)
}{
	{"open", nil},
	{"tokens", func(c *Config) {
		c.DefaultACLPolicy = "deny"
		c.Authorizer = tokens{"writer": rules(acl.GlobalManagementRules),
			"reader": rules(`key_prefix "a" { policy = "read" } service_prefix "" { policy = "read" } node "node01" { policy ` +
				`= "read" }`), "": rules(``)}
	}},
	{"default token, small limits", func(c *Config) {
		c.DefaultACLPolicy, c.Pretty = "deny", true
		c.DefaultToken = func() string { return "reader" }
		c.Limits.KVValueBytes, c.Limits.BodyBytes, c.Limits.PathBytes, c.Limits.QueryBytes = 1000, 100, 40, 30
		c.Authorizer = tokens{"writer": rules(acl.GlobalManagementRules),
			"reader": rules(`key_prefix "" { policy = "read" } service "web" { policy = "read" }`), "": rules(``)}
	}},
}

// TestShortPathAnswersAsTheLongOne (C13) asks both paths the same random questions of two states that began alike:
// status, headers and body must be the same. A million: go test ./api/consulapi -run TestShortPathAnswersAsTheLongOne
// -differ.requests 1000000 -timeout 0
func TestShortPathAnswersAsTheLongOne(t *testing.T) {
	for i, cfg := range differConfigs {
		t.Run(cfg.name, func(t *testing.T) {
			p := differing(t, cfg.change)
			requests := *differRequests / len(differConfigs)
			p.CompareMany(t, differWords, *differSeed, uint64(i), requests, requests/10)
		})
	}
}

// FuzzShortPath is TestShortPathAnswersAsTheLongOne for a fuzzer.
func FuzzShortPath(f *testing.F) {
	f.Add("GET", "/v1/kv/a?raw", "X-Consul-Token: reader", "")
	f.Add("PUT", "/v1/kv/a", "X-Consul-Token:\nX-Consul-Token: writer", "x")
	f.Add("PUT", "/v1/catalog/register", "Content-Type: application/json", `{"Node":"n","Address":"10.0.0.9"}`)
	p := differing(f, differConfigs[1].change)
	f.Fuzz(func(t *testing.T, method, target, headers, body string) {
		if raw, whole := hottest.Sound(method, target, headers, body); whole {
			p.Compare(t, raw)
		}
	})
}
