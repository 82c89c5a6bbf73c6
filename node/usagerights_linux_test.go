package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/relay"
	"corbel.dev/corbel/usage/router"
)

// rightsOfTokens are tokens, by the tenants that each may deliver for, and whether it may learn the products.
var rightsOfTokens = []struct {
	name, rules string
	may         []string
	learns      bool
}{
	{"nothing", `service "web" { policy = "write" }`, nil, false},
	{"reads", `usage "acme" { policy = "read" }`, nil, false},
	{"one", `usage "acme" { policy = "write" }`, []string{"acme"}, true},
	{"default", `usage "default" { policy = "write" }`, []string{""}, true},
	{"denied", `usage_prefix "" { policy = "write" } usage "acme" { policy = "deny" }`, []string{"", "other"}, true},
	{"all", `usage_prefix "" { policy = "write" }`, []string{"", "acme", "other"}, true},
}

// TestUsageRights: an agent's token delivers events of the tenants that it may write and of no others, also where one
// batch has both, and learns products only where it may write some usage.
func TestUsageRights(t *testing.T) {
	t.Parallel()
	const root = "11111111-1111-1111-1111-111111111111"
	m := startServer(t, "rights", fmt.Sprintf(`
bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = %[1]q, agent = %[1]q } }
`, root)+usageOn)
	polltest.Until(t, func() bool { _, err := m.access.tokens.Grant(t.Context(), root); return err == nil }, "the token")
	client := callerAs(t, asUser(os.Getuid()), wire.ProtoRPC)
	call := func(method, token string, rest []byte) ([]byte, error) {
		return client.Call(t.Context(), m.RPCAddr(), method, append(pack.String(nil, token), rest...))
	}
	// A server that has just begun says that it is not there yet.
	asked := func(method, token string, rest []byte) (answer []byte, err error) {
		polltest.NoError(t, time.Minute, func() error {
			answer, err = call(method, token, rest)
			if errkind.Is(err, errkind.Unavailable) {
				return err
			}
			return nil
		}, "an answer of %s", method)
		return answer, err
	}
	events := func(tenants ...string) []byte {
		b := &batch.Batch{}
		for _, tenant := range tenants {
			b.Events = append(b.Events, usage.Event{Tenant: tenant, Product: "unheard_of", ID: "1", Source: "a"})
		}
		return pack.Bytes(nil, batch.Append(nil, b))
	}
	if _, err := asked(relay.MethodDeliver, "", events("acme")); !errkind.Is(err, errkind.Denied) {
		t.Errorf("without a token: %v", err)
	}
	if _, err := asked(relay.MethodProducts, "no-such-token", nil); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a token that nobody made: %v", err)
	}
	for _, row := range rightsOfTokens {
		secret := tokenFor(t, m, row.name, row.rules)
		may := map[string]bool{}
		for _, tenant := range row.may {
			may[tenant] = true
		}
		for _, tenants := range [][]string{{""}, {"acme"}, {"other"}, {"", "acme"}, {"acme", "other"}} {
			all := true
			for _, tenant := range tenants {
				all = all && may[tenant]
			}
			answer, err := asked(relay.MethodDeliver, secret, events(tenants...))
			var got router.Answer
			if all && (err != nil || json.Unmarshal(answer, &got) != nil || len(got.Rejected) != len(tenants) ||
				!strings.Contains(string(answer), "unheard_of")) {
				t.Errorf("%s delivers for %q: %s, %v; the events were not judged", row.name, tenants, answer, err)
			}
			if !all && !errkind.Is(err, errkind.Denied) {
				t.Errorf("%s delivers for %q: %v, want a denial", row.name, tenants, err)
			}
		}
		if _, err := asked(relay.MethodProducts, secret, nil); (err == nil) != row.learns ||
			!row.learns && !errkind.Is(err, errkind.Denied) {
			t.Errorf("%s asks for products: %v, may %v", row.name, err, row.learns)
		}
	}
	t.Run("default token", func(t *testing.T) { doorsUseTheDefaultToken(t, m, root) })
}

// doorsUseTheDefaultToken: at each of the plane's doors, a request without a token is judged by that of the server for
// such requests. One that came from another process is not: that one has a default of its own.
func doorsUseTheDefaultToken(t *testing.T, m *testMember, root string) {
	ask := func(door string, forwarded bool) int {
		method, path, _ := strings.Cut(door, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{}"))
		if forwarded {
			r = r.WithContext(rows.Forwarded(r.Context(), rows.Journey{Hops: 1}))
		}
		w := httptest.NewRecorder()
		m.doctor.ServeHTTP(w, r)
		return w.Code
	}
	doors := []string{"POST /v1/usage/events", "POST /v1/usage/batch", "GET /v1/usage/estimates?product=x",
		"GET /v1/usage/products", "PUT /v1/usage/products/x", "DELETE /v1/usage/products/x", "PUT /v1/usage/tenants/x",
		"GET /v1/usage/explain?id=x", "PUT /v1/usage/limits/x", "POST /v1/usage/corrections", "GET /v1/usage/periods",
		"GET /v1/usage/accuracy", "GET /v1/usage/metrics", "GET /v1/usage/servers", "GET /v1/usage/drain",
		"GET /api/v1/meters", "POST /api/v1/meters", "GET /api/v1/events"}
	for _, door := range doors {
		if got := ask(door, false); got != http.StatusForbidden && door[:4] != "POST" { // its body is wrong
			t.Errorf("%s without a token, and without a default one: %d", door, got)
		}
	}
	if err := m.Tokens.Change("default", root); err != nil {
		t.Fatal(err)
	}
	for _, door := range doors {
		if got := ask(door, false); got == http.StatusForbidden {
			t.Errorf("%s without a token: %d, though the default token has all rights", door, got)
		}
		if got := ask(door, true); got != http.StatusForbidden && door[:4] != "POST" {
			t.Errorf("%s from another process, without a token: %d", door, got)
		}
	}
}

// tokenFor makes a token with a policy of its own.
func tokenFor(t *testing.T, m *testMember, name, rules string) (secret string) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		if _, err := m.keeper.SetPolicy(t.Context(), acl.Policy{Name: name, Rules: rules}); err != nil &&
			!strings.Contains(err.Error(), "already") {
			return err
		}
		made, err := m.keeper.CreateToken(t.Context(),
			grants.TokenRequest{Token: acl.Token{Grants: acl.Grants{Policies: []acl.Link{{Name: name}}}}})
		if err == nil {
			secret = made.SecretID
		}
		return err
	}, "a token of %s", name)
	return secret
}
