package consulapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/statestore"
)

// cell says how one row of the route table is asked, and what it takes to be answered.
type cell struct {
	Rest string // after the pattern, with the query
	body string
	// rights are the rules that suffice, and no more. Each policy in them is needed.
	rights string
	// hides is for rows that answer everybody with what they may see: what is seen with the rights alone.
	hides string
	// open rows need no right; tokenless ones do not even look at the token.
	Open, tokenless bool
	// refuses is the status of a refusal, when it is not 403.
	refuses int
}

const (
	ruleWeb    = `service "web" { policy = "read" } `
	ruleWebW   = `service "web" { policy = "write" } `
	ruleNode   = `node "n2" { policy = "read" } `
	ruleNodeW  = `node "n2" { policy = "write" } `
	ruleAgent  = `agent "n1" { policy = "read" } `
	ruleAgentW = `agent "n1" { policy = "write" } `
	ruleACL    = `acl = "read" `
	ruleACLW   = `acl = "write" `
	ruleOp     = `operator = "read" `
	ruleOpW    = `operator = "write" `

	rulePeering = `peering = "read" `
)

const someID = "11111111-1111-1111-1111-111111111111"

// matrix has one cell for each method and pattern of the route table.
var matrix = map[string]cell{
	"GET /v1/kv/":    {Rest: "app/x", rights: `key "app/x" { policy = "read" }`},
	"PUT /v1/kv/":    {Rest: "app/x", body: "v", rights: `key "app/x" { policy = "write" }`},
	"DELETE /v1/kv/": {Rest: "app/?recurse", rights: `key_prefix "app/" { policy = "write" }`},
	"PUT /v1/txn": {body: `[{"KV":{"Verb":"set","Key":"app/x","Value":"eA=="}}]`,
		rights: `key "app/x" { policy = "write" }`, refuses: 409},

	// Each watch asks for its own rights when it is read (TestWatchAsksForRights); these are answered before there is one.
	"POST /v1/watch":  {body: `{}`, Open: true},
	"POST /v1/watch/": {Rest: "x", body: `[`, Open: true},

	"PUT /v1/session/create":   {body: `{"Node":"n2","NodeChecks":[]}`, rights: `session "n2" { policy = "write" }`},
	"PUT /v1/session/destroy/": {Rest: "$session", rights: `session "n2" { policy = "write" }`},
	"PUT /v1/session/renew/":   {Rest: "$session", rights: `session "n2" { policy = "write" }`},
	"GET /v1/session/info/":    {Rest: "$session", rights: `session "n2" { policy = "read" }`, hides: "n2"},
	"GET /v1/session/node/":    {Rest: "n2", rights: `session "n2" { policy = "read" }`, hides: "n2"},
	"GET /v1/session/list":     {rights: `session "n2" { policy = "read" }`, hides: "n2"},

	"PUT /v1/catalog/register": {body: `{"Node":"n2","Address":"10.0.0.77","Service":{"Service":"web"}}`,
		rights: ruleNodeW + ruleWebW},
	"PUT /v1/catalog/register-batch": {body: `[{"Node":"n2","Address":"10.0.0.77"},{"Node":"n2","Address":"10.0.0.77",` +
		`"Service":{"Service":"web"}}]`, rights: ruleNodeW + ruleWebW},
	"PUT /v1/catalog/deregister":  {body: `{"Node":"n2"}`, rights: ruleNodeW},
	"GET /v1/catalog/datacenters": {tokenless: true},
	"GET /v1/agent/health/ready":  {tokenless: true},
	"GET /v1/catalog/nodes":       {rights: ruleNode, hides: "n2"},
	"GET /v1/catalog/services":    {rights: ruleWeb, hides: "web"},
	"GET /v1/catalog/service/":    {Rest: "web", rights: ruleWeb + ruleNode, hides: "n2"},
	"GET /v1/catalog/connect/": {Rest: "web", rights: ruleWeb + ruleNode + `service "web-proxy" { policy = "read" }`,
		hides: "web-proxy"},
	"GET /v1/catalog/node/":          {Rest: "n2", rights: ruleNode, hides: "n2"},
	"PUT /v1/catalog/node/":          {Rest: "n2/renew", rights: ruleNodeW},
	"DELETE /v1/catalog/node/":       {Rest: "n2?force", rights: ruleNodeW},
	"GET /v1/catalog/node-bars":      {rights: `node "gone" { policy = "read" }`, hides: "gone"},
	"GET /v1/catalog/node-services/": {Rest: "n2", rights: ruleNode, hides: "n2"},

	"GET /v1/health/service/": {Rest: "web", rights: ruleWeb + ruleNode, hides: "n2"},
	"GET /v1/health/connect/": {Rest: "web", rights: ruleWeb + ruleNode + `service "web-proxy" { policy = "read" }`,
		hides: "web-proxy"},
	"GET /v1/health/ingress/": {Rest: "web", rights: ruleWeb + ruleNode + `service "edge" { policy = "read" }`,
		hides: "edge-1"},
	"GET /v1/health/node/":   {Rest: "n2", rights: ruleNode, hides: "nodecheck"},
	"GET /v1/health/checks/": {Rest: "web", rights: ruleWeb + ruleNode, hides: "webcheck"},
	"GET /v1/health/state/":  {Rest: "any", rights: ruleNode, hides: "nodecheck"},

	"GET /v1/health/counts/nodes":    {rights: ruleNode, hides: "n2"},
	"GET /v1/health/counts/services": {rights: ruleWeb, hides: "web"},

	"GET /v1/status/leader":                    {tokenless: true},
	"GET /v1/status/peers":                     {tokenless: true},
	"GET /v1/operator/raft/configuration":      {rights: ruleOp},
	"DELETE /v1/operator/raft/peer":            {Rest: "?id=x", rights: ruleOpW},
	"POST /v1/operator/raft/transfer-leader":   {rights: ruleOpW},
	"GET /v1/operator/autopilot/configuration": {rights: ruleOp},
	"PUT /v1/operator/autopilot/configuration": {body: `{}`, rights: ruleOpW},
	"GET /v1/operator/autopilot/health":        {rights: ruleOp},
	"GET /v1/operator/autopilot/state":         {rights: ruleOp},
	"GET /v1/snapshot":                         {rights: ruleACLW},
	"PUT /v1/snapshot":                         {body: "x", rights: ruleACLW},

	"GET /v1/coordinate/datacenters": {Open: true},
	"GET /v1/coordinate/nodes":       {rights: ruleNode, hides: "n2"},
	"GET /v1/coordinate/node/":       {Rest: "n2", rights: ruleNode},
	"PUT /v1/coordinate/update": {body: `{"Node":"n2","Coord":{"Vec":[0,0,0,0,0,0,0,0],"Error":1,"Height":1}}`,
		rights: ruleNodeW},

	"GET /v1/operator/keyring":    {rights: `keyring = "read"`},
	"POST /v1/operator/keyring":   {body: `{"Key":"x"}`, rights: `keyring = "write"`},
	"PUT /v1/operator/keyring":    {body: `{"Key":"x"}`, rights: `keyring = "write"`},
	"DELETE /v1/operator/keyring": {body: `{"Key":"x"}`, rights: `keyring = "write"`},
	"GET /v1/operator/usage":      {rights: ruleOp},

	"PUT /v1/event/fire/":                {Rest: "deploy", rights: `event "deploy" { policy = "write" }`},
	"GET /v1/discovery-chain/":           {Rest: "web", rights: ruleWeb},
	"POST /v1/discovery-chain/":          {Rest: "web", rights: ruleWeb},
	"GET /v1/internal/mesh/proxies":      {hides: "web-proxy", rights: ruleWeb},
	"GET /v1/internal/mesh/proxy/":       {Rest: "web-proxy", rights: ruleWeb},
	"GET /v1/internal/mesh/status":       {rights: ruleOp},
	"GET /v1/internal/mesh/find/":        {Rest: "web-proxy", rights: ruleWeb},
	"GET /v1/internal/mesh/leaves":       {rights: ruleWeb, hides: "aa:bb"},
	"GET /v1/internal/mesh/certificates": {Rest: "?service=web", rights: ruleWeb},
	"GET /v1/internal/mesh/topology":     {hides: `"web"`, rights: ruleWeb},
	"POST /v1/internal/mesh/central/":    {Rest: "web", body: `{}`, rights: ruleWeb},
	"GET /v1/catalog/gateway-services/":  {Rest: "web", rights: ruleWeb},
	"GET /v1/exported-services":          {Open: true},
	"GET /v1/peerings":                   {rights: rulePeering},
	"GET /v1/peering/":                   {Rest: "east", rights: rulePeering},
	"POST /v1/peering/token":             {body: `{"PeerName":"north"}`, rights: `peering = "write"`},
	"POST /v1/peering/establish": {body: `{"PeerName":"north","PeeringToken":"t"}`,
		rights: `peering = "write"`},
	"DELETE /v1/peering/": {Rest: "east", rights: `peering = "write"`},
	"GET /v1/event/list":  {rights: `event "deploy" { policy = "read" }`, hides: "deploy"},

	"GET /v1/query": {rights: `query "q-web" { policy = "read" }`, hides: "q-web"},
	"POST /v1/query": {body: `{"Name":"q2","Service":{"Service":"web"}}`,
		rights: `query "q2" { policy = "write" }`},
	"GET /v1/query/": {Rest: "$query", rights: `query "q-web" { policy = "read" }`},
	"PUT /v1/query/": {Rest: "$query", body: `{"Name":"q-web","Service":{"Service":"api"}}`,
		rights: `query "q-web" { policy = "write" }`},
	"DELETE /v1/query/": {Rest: "$query", rights: `query "q-web" { policy = "write" }`},
	"GET /v1/internal/query/execute": {Rest: "?definition=%7B%22Service%22%3A%7B%22Service%22%3A%22web%22%7D%7D",
		rights: ruleWeb + ruleNode, hides: "n2"},

	"POST /v1/internal/service-virtual-ip": {body: `{"Service":"web","ManualVIPs":["240.0.0.1"]}`,
		rights: `mesh = "write"`},
	"PUT /v1/internal/service-virtual-ip": {body: `{"Service":"web","ManualVIPs":["240.0.0.2"]}`,
		rights: `mesh = "write"`},
	"PUT /v1/config":     {body: `{"Kind":"service-defaults","Name":"web"}`, rights: ruleWebW},
	"GET /v1/config/":    {Rest: "service-defaults/web", rights: ruleWeb},
	"DELETE /v1/config/": {Rest: "service-defaults/web", rights: ruleWebW},

	"GET /v1/connect/intentions":       {rights: ruleWeb, hides: "web"},
	"GET /v1/connect/intentions/exact": {Rest: "?source=a&destination=web", rights: ruleWeb},
	"PUT /v1/connect/intentions/exact": {Rest: "?source=a&destination=web", body: `{"Action":"allow"}`,
		rights: `service "web" { policy = "read" intentions = "write" }`},
	"DELETE /v1/connect/intentions/exact": {Rest: "?source=a&destination=web",
		rights: `service "web" { policy = "read" intentions = "write" }`},
	"GET /v1/connect/intentions/match": {Rest: "?by=destination&name=web", rights: ruleWeb},
	"GET /v1/connect/intentions/check": {Rest: "?source=a&destination=web", rights: ruleWeb},

	"GET /v1/connect/ca/roots":       {Open: true},
	"GET /v1/agent/connect/ca/roots": {Open: true},
	"POST /v1/connect/intentions": {body: `{"SourceName":"c","DestinationName":"web","Action":"allow"}`,
		rights: `service "web" { policy = "read" intentions = "write" }`},
	"GET /v1/connect/intentions/": {Rest: "$intention", rights: ruleWeb},
	"PUT /v1/connect/intentions/": {Rest: "$intention",
		body:   `{"SourceName":"b","DestinationName":"web","Action":"deny"}`,
		rights: `service "web" { policy = "read" intentions = "write" }`},
	"DELETE /v1/connect/intentions/": {Rest: "$intention",
		rights: `service "web" { policy = "read" intentions = "write" }`},

	"GET /v1/agent/connect/ca/leaf/":   {Rest: "web", rights: ruleWebW},
	"POST /v1/agent/connect/authorize": {body: `{"Target":"web","ClientCertURI":"spiffe://x.consul/ns/default/dc/dc1/svc/a"}`, rights: ruleWebW},
	"GET /v1/connect/ca/configuration": {rights: ruleOpW},
	"PUT /v1/connect/ca/configuration": {body: `{"Provider":"consul"}`, rights: ruleOpW},

	"GET /v1/agent/self":                 {rights: ruleAgent},
	"GET /v1/agent/host":                 {rights: ruleOp},
	"GET /v1/agent/version":              {rights: ruleAgent},
	"GET /v1/agent/members":              {rights: `node "n1" { policy = "read" }`, hides: "n1"},
	"PUT /v1/agent/join/":                {Rest: "10.0.0.1", rights: ruleAgentW},
	"PUT /v1/agent/leave":                {rights: ruleAgentW},
	"PUT /v1/agent/force-leave/":         {Rest: "n1", rights: ruleOpW},
	"PUT /v1/agent/reload":               {rights: ruleAgentW},
	"PUT /v1/agent/maintenance":          {Rest: "?enable=true", rights: `node "n1" { policy = "write" }`},
	"GET /v1/agent/metrics":              {rights: ruleAgent},
	"GET /v1/agent/metrics/stream":       {rights: ruleAgent},
	"GET /v1/agent/monitor":              {rights: ruleAgent},
	"PUT /v1/agent/token/":               {Rest: "default", body: `{"Token":"x"}`, rights: ruleAgentW},
	"GET /v1/agent/services":             {rights: ruleWeb, hides: "web"},
	"GET /v1/agent/service/":             {Rest: "web", rights: ruleWeb},
	"GET /v1/agent/health/service/id/":   {Rest: "web", rights: ruleWeb},
	"GET /v1/agent/health/service/name/": {Rest: "web", rights: ruleWeb},
	"PUT /v1/agent/service/register":     {body: `{"Name":"web","Port":9}`, rights: ruleWebW},
	"PUT /v1/agent/services/register": {body: `[{"Name":"web"},{"Name":"api"}]`,
		rights: ruleWebW + `service "api" { policy = "write" }`},
	"PUT /v1/agent/service/deregister/":  {Rest: "web", rights: ruleWebW},
	"PUT /v1/agent/service/drain/":       {Rest: "web?wait=0s", rights: ruleWebW},
	"GET /v1/internal/mesh/settled":      {Rest: "?service=web&index=1", rights: ruleWeb},
	"GET /v1/internal/mesh/settle/":      {Rest: "web?node=n1&id=web", rights: ruleWeb},
	"PUT /v1/agent/service/maintenance/": {Rest: "web?enable=true", rights: ruleWebW},
	"GET /v1/agent/checks":               {rights: `node "n1" { policy = "read" }`, hides: "own"},
	"PUT /v1/agent/check/register":       {body: `{"Name":"more","TTL":"1m"}`, rights: `node "n1" { policy = "write" }`},
	"PUT /v1/agent/check/deregister/":    {Rest: "own", rights: `node "n1" { policy = "write" }`},
	"PUT /v1/agent/check/pass/":          {Rest: "own", rights: `node "n1" { policy = "write" }`},
	"PUT /v1/agent/check/warn/":          {Rest: "own", rights: `node "n1" { policy = "write" }`},
	"PUT /v1/agent/check/fail/":          {Rest: "own", rights: `node "n1" { policy = "write" }`},
	"PUT /v1/agent/check/update/": {Rest: "own", body: `{"Status":"passing"}`,
		rights: `node "n1" { policy = "write" }`},

	"PUT /v1/acl/bootstrap": {tokenless: true, refuses: 403},
	"POST /v1/acl/login": {body: `{"AuthMethod":"m","BearerToken":"t"}`, tokenless: true,
		refuses: 403},
	"POST /v1/acl/oidc/auth-url": {body: `{"AuthMethod":"m","RedirectURI":"https://a/b"}`, tokenless: true,
		refuses: 403},
	"POST /v1/acl/oidc/callback":            {body: `{"AuthMethod":"m","State":"s","Code":"c"}`, tokenless: true, refuses: 403},
	"GET /v1/internal/ui/oidc-auth-methods": {Open: true},
	"GET /v1/internal/acl/login-methods":    {Open: true},
	"POST /v1/acl/logout":                   {Open: true, refuses: 403},
	"GET /v1/acl/replication":               {Open: true},
	"PUT /v1/acl/token":                     {body: `{}`, rights: ruleACLW},
	"GET /v1/acl/token/self":                {Open: true},
	"GET /v1/acl/token/":                    {Rest: "$accessor", rights: ruleACL},
	"PUT /v1/acl/token/":                    {Rest: "$accessor", body: `{"Description":"d"}`, rights: ruleACLW},
	"DELETE /v1/acl/token/":                 {Rest: "$accessor", rights: ruleACLW},
	"GET /v1/acl/tokens":                    {rights: ruleACL},
	"PUT /v1/acl/policy":                    {body: `{"Name":"new"}`, rights: ruleACLW},
	"GET /v1/acl/policy/":                   {Rest: acl.GlobalReadOnlyID, rights: ruleACL},
	"GET /v1/acl/policy/name/":              {Rest: acl.GlobalManagementName, rights: ruleACL},
	"PUT /v1/acl/policy/":                   {Rest: "$policy", body: `{"Name":"changed"}`, rights: ruleACLW},
	"DELETE /v1/acl/policy/":                {Rest: "$policy", rights: ruleACLW},
	"GET /v1/acl/policies":                  {rights: ruleACL},
	"PUT /v1/acl/role":                      {body: `{"Name":"new"}`, rights: ruleACLW},
	"GET /v1/acl/role/":                     {Rest: "$role", rights: ruleACL},
	"GET /v1/acl/role/name/":                {Rest: "a-role", rights: ruleACL},
	"PUT /v1/acl/role/":                     {Rest: "$role", body: `{"Name":"changed"}`, rights: ruleACLW},
	"DELETE /v1/acl/role/":                  {Rest: "$role", rights: ruleACLW},
	"GET /v1/acl/roles":                     {rights: ruleACL},
	"PUT /v1/acl/auth-method":               {body: `{"Name":"m2","Type":"jwt"}`, rights: ruleACLW},
	"GET /v1/acl/auth-method/":              {Rest: "m", rights: ruleACL},
	"PUT /v1/acl/auth-method/":              {Rest: "m", body: `{"Type":"jwt"}`, rights: ruleACLW},
	"DELETE /v1/acl/auth-method/":           {Rest: "m", rights: ruleACLW},
	"GET /v1/acl/auth-methods":              {rights: ruleACL},
	"PUT /v1/acl/binding-rule": {body: `{"AuthMethod":"m","BindType":"service","BindName":"b"}`,
		rights: ruleACLW},
	"GET /v1/acl/binding-rule/": {Rest: "$rule", rights: ruleACL},
	"PUT /v1/acl/binding-rule/": {Rest: "$rule", body: `{"BindType":"service","BindName":"b"}`,
		rights: ruleACLW},
	"DELETE /v1/acl/binding-rule/":            {Rest: "$rule", rights: ruleACLW},
	"GET /v1/acl/binding-rules":               {rights: ruleACL},
	"GET /v1/acl/templated-policies":          {rights: ruleACL},
	"GET /v1/acl/templated-policy/name/":      {Rest: "builtin/dns", rights: ruleACL},
	"POST /v1/acl/templated-policy/preview/":  {Rest: "builtin/dns", rights: ruleACL},
	"POST /v1/internal/acl/authorize":         {body: `[]`, Open: true},
	"POST /v1/internal/acl/one-time":          {Open: true},
	"POST /v1/internal/acl/one-time/exchange": {body: `{"OneTimeSecretID":"x"}`, tokenless: true, refuses: 403},
}

// acceptAll is a Verifier that takes any configuration and no credential.
type acceptAll struct{}

func (acceptAll) Check(*acl.AuthMethod) error { return nil }

func (acceptAll) Begin(context.Context, *acl.AuthMethod, *grants.Visit) (string, error) {
	return "", errRefusedHere
}
func (acceptAll) End(context.Context, *acl.AuthMethod, *grants.Back) (grants.Claims, map[string]string, error) {
	return grants.Claims{}, nil, errRefusedHere
}
func (acceptAll) Fields(*acl.AuthMethod) grants.Claims { return grants.Claims{} }

func (acceptAll) Login(context.Context, *acl.AuthMethod, string) (grants.Claims, error) {
	return grants.Claims{}, errRefusedHere
}

var errRefusedHere = (&acl.Grant{Authorizer: acl.Compile(acl.Deny)}).Check(acl.ACL, "", acl.Write)

// guarded is a rig under default_policy deny, with something in it to be seen and changed.
type guarded struct {
	*rig
	keeper *grants.Keeper
	vars   map[string]string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{vars: map[string]string{}}
	g.rig = newRig(t, func(c *Config) {
		st := c.Registry.(*store)
		g.keeper = grants.NewKeeper(grants.KeeperConfig{Store: st, Datacenter: "dc1", Verifier: acceptAll{}})
		c.ACL.Keeper, c.DefaultACLPolicy = g.keeper, "deny"
		c.Authorizer = grants.NewResolver(grants.Config{Datacenter: "dc1", NodeName: "n1",
			Now: func() (uint64, *statestore.State) {
				gen := st.Generation()
				return gen, st.State()
			}})
		c.Agent.SetToken = func(string, string) error { return nil }
	})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(g.keeper.EnsureBuiltins(ctx))
	root, err := g.keeper.Bootstrap(ctx, "")
	must(err)
	g.vars["$root"] = root.SecretID
	g.fill(root.SecretID)
	g.peer("east")
	tok, err := g.keeper.CreateToken(ctx, grants.TokenRequest{})
	must(err)
	pol, err := g.keeper.SetPolicy(ctx, acl.Policy{Name: "a-policy"})
	must(err)
	role, err := g.keeper.SetRole(ctx, acl.Role{Name: "a-role"})
	must(err)
	_, err = g.keeper.SetAuthMethod(ctx, acl.AuthMethod{Name: "m", Type: "jwt"}, true)
	must(err)
	rule, err := g.keeper.SetBindingRule(ctx, acl.BindingRule{AuthMethod: "m", BindType: acl.BindService, BindName: "s"})
	must(err)
	g.vars["$accessor"], g.vars["$policy"], g.vars["$role"], g.vars["$rule"] = tok.AccessorID, pol.ID, role.ID, rule.ID
	return g
}

// fill puts into the catalog what the cells ask for.
func (g *guarded) fill(root string) {
	g.Helper()
	for _, c := range []struct{ method, target, body string }{
		{"PUT", "/v1/kv/app/x", "v"}, {"PUT", "/v1/kv/app/deep/y", "v"},
		{"PUT", "/v1/catalog/register",
			`{"Node":"n2","Address":"10.0.0.2","Service":{"ID":"web","Service":"web","Connect":{"Native":true}},
			"Checks":[{"CheckID":"nodecheck","Name":"nodecheck","Status":"passing"},{"CheckID":"webcheck","Name":"webcheck","ServiceID":"web","Status":"passing"}]}`},
		{"PUT", "/v1/catalog/register",
			`{"Node":"n2","Address":"10.0.0.2","Service":{"Kind":"connect-proxy","ID":"web-proxy","Service":"web-proxy",` +
				`"Port":1,"Proxy":{"DestinationServiceName":"web"}}}`},
		{"PUT", "/v1/agent/service/register", `{"Name":"web","Port":1,"Check":{"TTL":"1m"}}`},
		{"PUT", "/v1/agent/check/register", `{"Name":"own","TTL":"1m"}`},
		{"DELETE", "/v1/catalog/node/gone?force", ""},
		{"PUT", "/v1/config", `{"Kind":"service-defaults","Name":"web"}`},
		{"PUT", "/v1/config",
			`{"Kind":"ingress-gateway","Name":"edge","Listeners":[{"Port":80,"Protocol":"tcp","Services":[{"Name":"web"}]}]}`},
		{"PUT", "/v1/catalog/register",
			`{"Node":"n2","Address":"10.0.0.2","Service":{"Kind":"ingress-gateway","ID":"edge-1","Service":"edge","Port":8443}}`},
		{"PUT", "/v1/connect/intentions/exact?source=a&destination=web", `{"Action":"allow"}`},
	} {
		if a := g.as(root, c.method, c.target, c.body); a.status != 200 {
			g.Fatalf("%s %s: %d %s", c.method, c.target, a.status, a.body)
		}
	}
	g.lies("n2", time.Millisecond)
	for name, made := range map[string]response{
		"$session": g.as(root, "PUT", "/v1/session/create", `{"Node":"n2","NodeChecks":[]}`),
		"$intention": g.as(root, "POST", "/v1/connect/intentions",
			`{"SourceName":"b","DestinationName":"web","Action":"allow"}`),
		"$query": g.as(root, "POST", "/v1/query", `{"Name":"q-web","Service":{"Service":"web"}}`),
	} {
		_, after, _ := strings.Cut(made.body, `:"`)
		g.vars[name], _, _ = strings.Cut(after, `"`)
	}
}

// as asks with a token in the header.
func (g *guarded) as(secret, method, target, body string) response {
	g.Helper()
	return g.by(0, secret, method, target, body)
}

// by asks with a token in one of the places that it may stand in.
func (g *guarded) by(way int, secret, method, target, body string) response {
	g.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	ctx, cancel := context.WithTimeout(g.Context(), 30*time.Second)
	defer cancel()
	if strings.Contains(target, "/monitor") || strings.Contains(target, "/stream") {
		cancel() // an endless answer ends after its first word
	}
	r = r.WithContext(ctx)
	switch {
	case secret == "":
	case way == 0:
		r.Header.Set("X-Consul-Token", secret)
	case way == 1:
		r.Header.Set("Authorization", "Bearer "+secret)
	default:
		joint := "?"
		if r.URL.RawQuery != "" {
			joint = "&"
		}
		r.URL.RawQuery += strings.TrimPrefix(joint, "?") + "token=" + secret
	}
	rec := httptest.NewRecorder()
	g.api.ServeHTTP(rec, r)
	b, _ := io.ReadAll(rec.Result().Body)
	return response{rec.Code, rec.Header(), string(b)}
}

// token makes a token with rules, in one of the conditions of the matrix.
func (g *guarded) token(rules, condition string) string {
	g.Helper()
	ctx := g.Context()
	in := acl.Token{}
	if rules != "" {
		p, err := g.keeper.SetPolicy(ctx, acl.Policy{Name: fmt.Sprintf("p%d", g.store.applies), Rules: rules})
		if err != nil {
			g.Fatal(err)
		}
		in.Policies = []acl.Link{{ID: p.ID}}
	}
	t, err := g.keeper.CreateToken(ctx, grants.TokenRequest{Token: in})
	if err != nil {
		g.Fatal(err)
	}
	switch condition {
	case "accessor":
		return t.AccessorID
	case "revoked":
		g.as(t.SecretID, "GET", "/v1/catalog/nodes", "") // it is known before
		if err := g.keeper.DeleteToken(ctx, t.AccessorID); err != nil {
			g.Fatal(err)
		}
	case "expired":
		past := time.Now().Add(-time.Second)
		t.ExpirationTime = &past
		op := catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordACLToken,
			Key:  t.AccessorID,
			Name: grants.SecretName(t.SecretID), Value: acl.Encode(t)}}
		if _, ok, err := g.store.SetRecords(ctx, op); !ok || err != nil {
			g.Fatal(ok, err)
		}
	}
	return t.SecretID
}

// target is the cell's request line in this rig.
func (g *guarded) target(pattern string, c cell) string {
	rest := c.Rest
	for name, value := range g.vars {
		rest = strings.ReplaceAll(rest, name, value)
	}
	return pattern + rest
}

// weaker gives the rules with one of their policies lowered by a step, for each of them.
func weaker(rules string) (all []string) {
	for _, step := range [][2]string{{`"write"`, `"read"`}, {`"read"`, `"deny"`}} {
		for i := range strings.Count(rules, step[0]) {
			at := 0
			for range i {
				at += strings.Index(rules[at:], step[0]) + len(step[0])
			}
			at += strings.Index(rules[at:], step[0])
			if all = append(all, rules[:at]+step[1]+rules[at+len(step[0]):]); strings.Contains(rules, "intentions") &&
				strings.HasSuffix(rules[:at], "policy = ") {
				all = all[:len(all)-1] // there the intentions decide
			}
		}
	}
	return all
}

// unrelated are rights that no cell asks for.
const unrelated = `event "other" { policy = "write" } key "other" { policy = "write" } service "other" { policy = "write" } node "other" { policy = "write" }
	agent "other" { policy = "write" } session "other" { policy = "write" } query "other" { policy = "write" }`

// TestDefaultDenyMatrix asks every row of the route table with every kind of token.
func TestDefaultDenyMatrix(t *testing.T) {
	a, _ := bareAPI(t)
	cells := 0
	seen := map[string]bool{}
	for _, row := range a.table.Rows {
		for method := range strings.FieldsSeq(row.Methods) {
			name := method + " " + row.Pattern
			c, ok := matrix[name]
			if !ok {
				t.Errorf("the route %s has no cell in the matrix: say what right it needs", name)
				continue
			}
			seen[name] = true
			t.Run(name, func(t *testing.T) { cells += checkRow(t, method, row.Pattern, c) })
		}
	}
	for name := range matrix {
		if !seen[name] {
			t.Errorf("the cell %s is for no route", name)
		}
	}
	t.Logf("%d cells", cells)
	if cells < 2000 {
		t.Errorf("%d cells, at least 2000 are wanted", cells)
	}
}

func checkRow(t *testing.T, method, pattern string, c cell) (cells int) {
	g := newGuarded(t)
	target := g.target(pattern, c)
	ask := func(what, secret string, check func(response) bool) {
		t.Helper()
		for way := range 3 {
			if way > 0 && secret == "" {
				break
			}
			cells++
			if a := g.by(way, secret, method, target, c.body); !check(a) {
				t.Errorf("%s: %s %s: %d %.200s", what, method, target, a.status, a.body)
			}
		}
	}
	unknown := func(a response) bool { return a.status == http.StatusForbidden && a.body == "ACL not found" }
	refused := func(a response) bool {
		switch {
		case c.hides != "":
			return a.status == 200 && !strings.Contains(a.body, c.hides)
		case c.refuses > 0 && !c.Open && !c.tokenless:
			return a.status == c.refuses && strings.Contains(a.body, "Permission denied")
		}
		return a.status == http.StatusForbidden && strings.HasPrefix(a.body, "Permission denied: token with AccessorID")
	}
	answered := func(a response) bool {
		if c.refuses == http.StatusForbidden {
			return a.status == c.refuses
		}
		return a.status != http.StatusForbidden && a.status != http.StatusConflict &&
			(a.status != http.StatusNotFound || strings.Contains(a.body, "there is no peer")) &&
			strings.Contains(a.body, c.hides)
	}
	for _, kind := range []string{"expired", "revoked", "accessor"} {
		if check := unknown; c.tokenless {
			ask(kind, g.token(c.rights, kind), answered)
		} else {
			ask(kind, g.token(c.rights, kind), check)
		}
	}
	for _, secret := range []string{"no-such-token", someID, "root", "Anonymous"} {
		if c.tokenless {
			ask("wrong", secret, answered)
		} else {
			ask("wrong", secret, unknown)
		}
	}
	if c.Open || c.tokenless {
		ask("open", g.token(c.rights, ""), answered)
		return cells
	}
	ask("no token", "", refused)
	ask("no token", acl.AnonymousSecret, refused)
	ask("unrelated", g.token(unrelated, ""), refused)
	ask("no policy", g.token("", ""), refused)
	for _, rules := range weaker(c.rights) {
		ask("too little: "+rules, g.token(rules, ""), refused)
	}
	right := g.token(c.rights, "")
	cells++
	if a := g.as(right, method, target, c.body); !answered(a) {
		t.Errorf("the right one: %s %s: %d %.200s", method, target, a.status, a.body)
	}
	return cells
}

// TestHiddenProxyIsAsAbsent: whoever may not read a service does not learn from the mesh's paths whether it is there,
// by no status and no word; who may read it is told that there is none.
func TestHiddenProxyIsAsAbsent(t *testing.T) {
	g := newGuarded(t)
	other := g.token(`service "other" { policy = "read" } service "none-proxy" { policy = "read" }`, "")
	for _, path := range []string{"/v1/internal/mesh/find/", "/v1/internal/mesh/proxy/", "/v1/internal/mesh/settle/",
		"/v1/internal/mesh/certificates?service="} {
		for _, secret := range []string{"", other} {
			hidden := g.as(secret, "GET", path+"web-proxy", "")
			absent := g.as(secret, "GET", path+"gone-proxy", "")
			if hidden.status != http.StatusForbidden || absent.status != hidden.status ||
				strings.ReplaceAll(absent.body, "gone-proxy", "web-proxy") != hidden.body {
				t.Errorf("%s: hidden: %d %s; absent: %d %s", path, hidden.status, hidden.body, absent.status, absent.body)
			}
		}
	}
	for _, path := range []string{"/v1/internal/mesh/find/", "/v1/internal/mesh/proxy/"} {
		for _, secret := range []string{other, g.vars["$root"]} {
			if a := g.as(secret, "GET", path+"none-proxy", ""); a.status != http.StatusNotFound {
				t.Errorf("%s: a proxy that is not there: %d %s", path, a.status, a.body)
			}
		}
	}
}
