package vaultapi

import (
	"flag"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"corbel.dev/corbel/api/hothttp/hottest"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/storage/memstore"
)

var (
	differRequests = flag.Int("differ.requests", 10_000, "random requests that both paths are asked")
	differSeed     = flag.Uint64("differ.seed", 1, "of the first of them")
)

var differWords = hottest.Words{
	Paths: []string{"/v1/secret/a", "/v1/secret/b", "/v1/secret/a/b", "/v1/secret/a/", "/v1/secret/", "/v1/secret",
		"/v1/secret//a", "/v1/secret/../a", "/v1/secret/.a", "/v1/secret/%61", "/v1/secret/a%2Fb", "/v1/secret/none",
		"/v1/kv2/data/a", "/v1/kv2/data/b", "/v1/kv2/metadata/a", "/v1/kv2/delete/a", "/v1/kv2/destroy/a",
		"/v1/kv2/undelete/a", "/v1/kv2/config", "/v1/kv2/data/", "/v1/kv2/data", "/v1/cubbyhole/x",
		"/v1/auth/token/lookup-self", "/v1/auth/token/lookup",
		"/v1/auth/userpass/login/u", "/v1/auth/userpass/login/none", "/v1/auth/userpass/users/u", "/v1/transit/keys/k",
		"/v1/transit/nothing", "/v1/nowhere/a", "/v1/", "/v1", "/", "/v1/sys/mounts", "/v1/sys/seal-status", "/v1/sys/health",
		"/v1/identity/entity/id/x", "*", "/v1/secret/a;b",
		"/v1/team/kv/a", "/v1/team/kv/none", "/v1/team/app/kv/a", "/v1/team//kv/a", "/v1/team/kv", "/v1/team", "/v1/team/",
		"/v1/team/auth/token/lookup-self", "/v1/team/sys/mounts", "/v1/team/sys/health", "/v1/team/sys/wrapping/unwrap",
		"/v1/team/cubbyhole/x", "/v1/team/none/kv/a", "/v1/none/kv/a", "/v1/kv/a", "/v1/app/kv/a",
		"/v1/team/sys/internal/ui/mounts", "/v1/team/identity/entity/id/x", "/v1/team/auth/token/create",
		"/v1/secret/a+b", "/ui"},
	Queries: []string{"list=true", "list=false", "list=maybe", "scan=true", "version=1", "version=x", "help=1", "a=b", "",
		"=", "a=%zz", "limit=1", "list=true&after=a"},
	Headers: []string{"X-Vault-Token: root", "X-Vault-Token: root", "X-Vault-Token: root", "X-Vault-Token: weak",
		"X-Vault-Token: nobody", "X-Vault-Namespace: team", "X-Vault-Namespace: team/app/", "X-Vault-Namespace: team/../",
		"X-Vault-Namespace: team//app", "X-Vault-Namespace: sys", "X-Vault-Namespace: root",
		"X-Vault-Token:", "X-Vault-Token: ", "x-vault-token: root", "X-Vault-Token: root ",
		"X-Vault-Token: \troot", "Authorization: Bearer root",
		"Authorization: bearer  weak", "X-Vault-Request: true", "X-Vault-Request: false", "X-Vault-Namespace: x",
		"X-Vault-Namespace:", "X-Vault-Wrap-TTL: 0", "X-Vault-Wrap-TTL: x", "X-Consul-Token: root",
		"X-Vault-No-Request-Forwarding: true", "X-Vault-Index: 5", "X-Vault-Policy-Override: true"},
	Bodies: []string{"", "{}", `{"x":1}`, `{"x":"y","z":[1,2]}`, `{"data":{"x":1}}`,
		`{"data":{"x":1},"options":{"cas":0}}`, `{"versions":[1]}`, `{"x":`, "null", "[]", "[1]", " {}", "\n{\"x\":1}\n",
		"x=1&y=2", "x", "\x00", "\xff\xfe", `{"x":"` + "\xff" + `"}`, `{"x":1,"x":2}`, `{"password":"p"}`,
		`{"x":"` + strings.Repeat("x", 9000) + `"}`, `{"x":"` + strings.Repeat("x", 500) + `"}`, `{"token":"weak"}`,
		strings.Repeat(`{"x":`, 100), `{"x":1}{"x":2}`, `{"max_versions":2}`},
}

// drawn is what two equal states answer differently: what is drawn, and times.
var drawn = regexp.MustCompile(
	`"(request_id|client_token|accessor|created_time|updated_time|creation_time|issue_time|expire_time|deletion_time|lease_id|last_renewal_time|creation_ttl|ttl|entity_id|server_time_utc|uuid|cluster_id|id)":("[^"]*"|[0-9]+)`)

// differing makes two equal states, one asked by the short path, one by the long.
func differing(t testing.TB, listener Listener) *hottest.Pair {
	var both [2]*API
	for i := range both {
		k, err := keeper.New(keeper.Config{Storage: memstore.New(), ClusterName: "test"})
		if err != nil {
			t.Fatal(err)
		}
		first, err := k.Init(t.Context(), 1, 1, "root")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Unseal(t.Context(), first.Shares[0]); err != nil {
			t.Fatal(err)
		}
		both[i] = New(Config{Keeper: k, Version: "1.20.0", StorageType: "inmem", Listener: listener})
		for _, made := range [][2]string{{"sys/mounts/secret", `{"type":"kv"}`},
			{"sys/mounts/kv2", `{"type":"kv","options":{"version":"2"}}`}, {"sys/mounts/transit", `{"type":"transit"}`},
			{"sys/auth/userpass", `{"type":"userpass"}`},
			{"sys/policies/acl/weak", `{"policy":"path \"secret/a\" { capabilities = [\"read\", \"update\"] }\n` +
				`path \"team/kv/a\" { capabilities = [\"read\", \"update\"] }"}`},
			{"auth/token/create", `{"id":"weak","policies":["weak"]}`}, {"secret/a", `{"x":1}`},
			{"kv2/data/a", `{"data":{"x":1}}`}, {"sys/namespaces/team", `{}`}, {"sys/namespaces/team/app", `{}`},
			{"team/sys/mounts/kv", `{"type":"kv"}`}, {"team/app/sys/mounts/kv", `{"type":"kv"}`},
			{"team/kv/a", `{"x":1}`}, {"team/app/kv/a", `{"x":2}`}} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("POST", "/v1/"+made[0], strings.NewReader(made[1]))
			r.Header.Set("X-Vault-Token", "root")
			if New(Config{Keeper: k}).ServeHTTP(w, r); w.Code >= 300 {
				t.Fatalf("%s: %d %s", made[0], w.Code, w.Body)
			}
		}
	}
	addr, _ := hotDoor(t, both[0], hottest.Mark)
	long := httptest.NewServer(hottest.Mark(both[1]))
	p := &hottest.Pair{Short: addr, Long: strings.TrimPrefix(long.URL, "http://"),
		Same: func(body []byte) []byte { return drawn.ReplaceAll(body, []byte(`"$1":""`)) }}
	t.Cleanup(func() { p.Close(); long.Close() })
	return p
}

// TestShortPathAnswersAsTheLongOne (C13) asks both paths the same random questions of two states that began alike:
// status, headers and body must be the same. A million: go test ./api/vaultapi -run TestShortPathAnswersAsTheLongOne
// -differ.requests 1000000 -timeout 0
func TestShortPathAnswersAsTheLongOne(t *testing.T) {
	for i, cfg := range []struct {
		name     string
		listener Listener
	}{{"usual", Listener{}}, {"small limit", Listener{MaxBodyBytes: 100}}} {
		t.Run(cfg.name, func(t *testing.T) {
			p := differing(t, cfg.listener)
			requests := *differRequests / 2
			p.CompareMany(t, differWords, *differSeed, uint64(i), requests, requests/20)
		})
	}
}

// FuzzShortPath is TestShortPathAnswersAsTheLongOne for a fuzzer.
func FuzzShortPath(f *testing.F) {
	f.Add("GET", "/v1/secret/a", "X-Vault-Token: root", "")
	f.Add("PUT", "/v1/secret/a", "X-Vault-Token:\nX-Vault-Token: root", `{"x":1}`)
	f.Add("POST", "/v1/kv2/data/a", "X-Vault-Token: root\nX-Vault-Request: true", `{"data":{}}`)
	p := differing(f, Listener{})
	f.Fuzz(func(t *testing.T, method, target, headers, body string) {
		if raw, whole := hottest.Sound(method, target, headers, body); whole {
			p.Compare(t, raw)
		}
	})
}
