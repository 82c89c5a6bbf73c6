package node

import (
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/polltest"
)

// TestAliasesReadWithTheirTokens: an alias of another service, here or on another node, shows what its registration's
// token may read.
func TestAliasesReadWithTheirTokens(t *testing.T) {
	const root, web = "5ba5c1c6-ea1a-4a9b-9f6e-2a0fbd4a6e15", "0d9ba1a5-6a4a-4c5a-8a6a-7d1a5a2b0c35"
	m := startServer(t, "aliases", `bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = "`+root+`", agent = "`+root+`" } }`)
	m.awaitAsk("PUT", "/v1/acl/policy?token="+root, `{"Name":"web","Rules":"service \"web\" { policy = \"write\" }"}`,
		200, "web")
	m.awaitAsk("PUT", "/v1/acl/token?token="+root, `{"SecretID":"`+web+`","Policies":[{"Name":"web"}]}`, 200, web)
	m.awaitAsk("PUT", "/v1/catalog/register?token="+root, `{"Node":"far","Address":"10.9.9.9","Service":{"ID":"db",`+
		`"Service":"db"},"Checks":[{"CheckID":"db","Name":"db","ServiceID":"db","Status":"warning","Output":"the secret `+
		`output"}]}`, 200, "true")
	m.awaitAsk("PUT", "/v1/agent/service/register?token="+root,
		`{"Name":"db","Check":{"CheckID":"here","TTL":"1h","Status":"passing"}}`, 200, "")
	aliases := `{"Name":"NAME","Checks":[{"CheckID":"NAME-far","Name":"n","AliasNode":"far","AliasService":"db"},{` +
		`"CheckID":"NAME-here","Name":"n","AliasService":"db"}]}`
	m.awaitAsk("PUT", "/v1/agent/service/register?token="+web, strings.ReplaceAll(aliases, "NAME", "web"), 200, "")
	m.awaitAsk("PUT", "/v1/agent/service/register?token="+root, strings.ReplaceAll(aliases, "NAME", "op"), 200, "")
	state := func(id string) *catalog.Check { return m.local.Check(id).Check }
	polltest.Until(t, func() bool {
		return state("op-far").Status == catalog.Warning && state("op-here").Status == catalog.Passing &&
			strings.Contains(state("web-far").Output, "token may not read")
	}, "the aliases to look: %+v %+v %+v", state("op-far"), state("op-here"), state("web-far"))
	for _, id := range []string{"web-far", "web-here"} {
		if c := state(id); c.Status != catalog.Critical || strings.Contains(c.Output, "secret") {
			t.Errorf("%s is %s: %s", id, c.Status, c.Output)
		}
	}
}
