package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/enroll"
)

// introIssuer signs JWTs.
type introIssuer struct{ key *ecdsa.PrivateKey }

func (i introIssuer) jwt(t *testing.T, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// good are the claims that introduce a node.
func good(node string) map[string]any {
	return map[string]any{"iss": "ops", "aud": "consul", "host": node, "exp": time.Now().Add(time.Hour).Unix()}
}

const (
	introRoot   = "b3b5c9c8-0d2c-4b6e-9a0f-0f4b9ce0a001"
	introGossip = "mS1Cz7wWyYhyTKSwvJ0YzVVJp0hjOuKrQm8GtP1tn5o="
)

// introServers are three servers with TLS, encrypted gossip and ACLs that deny by default, which introduce agents.
func introServers(t *testing.T) (list []*testMember, issuer introIssuer, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	a := wiretest.NewAuthority(t)
	dir = t.TempDir()
	a.Store(dir, a.Issue(goodName, -time.Minute, time.Hour))
	list = startCluster(t, 3, fmt.Sprintf(`
encrypt = %q
acl { enabled = true default_policy = "deny" tokens { initial_management = %[2]q default = %[2]q agent = %[2]q } }
tls { defaults { ca_file = "%[3]s/ca.pem" cert_file = "%[3]s/cert.pem" key_file = "%[3]s/key.pem" verify_incoming = true verify_outgoing = true verify_server_hostname = true } }
auto_config { authorization { enabled = true static {
  jwt_validation_pub_keys = [%[4]q]
  jwt_supported_algs = ["ES256"]
  bound_issuer = "ops"
  bound_audiences = ["consul"]
  claim_mappings { host = "node" }
  claim_assertions = ["value.node == \"${node}\""]
} } }`, introGossip, introRoot, dir, public))
	return list, introIssuer{key}, dir
}

// introAgent is the configuration of an agent that has a JWT and the servers' authority alone.
func introAgent(dir, server, jwt string) string {
	return fmt.Sprintf(aclOff+`
auto_config { enabled = true intro_token = %q server_addresses = [%q] dns_sans = ["here.example"] }
tls { defaults { ca_file = "%s/ca.pem" verify_outgoing = true verify_server_hostname = true } }`, jwt, server, dir)
}

func TestAgentIsIntroduced(t *testing.T) {
	servers, issuer, dir := introServers(t)
	leader, others := leaderOf(t, servers)
	c := startMember(t, false, "c1", introAgent(dir, others[0].Wire.Addr().String(), issuer.jwt(t, good("c1"))))
	leader.awaitAsk("GET", "/v1/health/node/c1", "", http.StatusOK, "passing")
	leader.awaitAsk("GET", "/v1/acl/tokens", "", http.StatusOK, "auto_config: agent c1")
	if !c.Pool.Encrypted() || !c.Cfg.ACL.Enabled || c.Cfg.ACL.DefaultPolicy != "deny" ||
		c.Tokens.Get(base.TokenAgent) == "" {
		t.Errorf("encrypted %v, ACL %+v", c.Pool.Encrypted(), c.Cfg.ACL.Enabled)
	}
	c.awaitAsk("PUT", "/v1/kv/x", "x", http.StatusForbidden, "Permission denied") // without a token
	// Its own node it may write, with its token: the metadata that an agent alone knows come to the catalog.
	leader.awaitAsk("GET", "/v1/catalog/node/c1", "", http.StatusOK, `"consul-version"`)
	cert := c.Certs.Enrolled.Now.Load()
	if cert == nil || cert.Leaf.URIs[0].Path != "/agent/client/dc/dc1/id/c1" ||
		cert.Leaf.VerifyHostname("here.example") != nil {
		t.Fatalf("the certificate: %+v", cert)
	}
	// The next certificate comes over RPC, for its token.
	in, err := enroll.Read(c.FS, c.Cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if next, err := enrolled(c.Base).Renew(t.Context(), in); err != nil ||
		next.Leaf.SerialNumber.Cmp(cert.Leaf.SerialNumber) == 0 {
		t.Errorf("renewal: %v", err)
	}
	// A certificate that has ended is replaced by another introduction.
	domain, err := ca.TrustDomainOf(leader.registry.State())
	if err != nil {
		t.Fatal(err)
	}
	c.Certs.Enrolled.Now.Store(meshCert(t, leader, ca.ID{Kind: ca.AgentID, TrustDomain: domain, Datacenter: "dc1",
		Name: "c1"},
		time.Now().Add(-2*time.Hour)))
	_ = c.RPC.Close() // connections from before
	client := enroll.Client(c.Wire)
	defer client.Close()
	next, err := enrolled(c.Base).AskAsIntroduced(t.Context(), client)
	if err != nil || !time.Now().Before(next.Leaf.NotAfter) {
		t.Errorf("after the certificate's end: %v", err)
	}
	// What was given once is kept: a restart needs no good JWT.
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	cfg := c.config(false, introAgent(dir, "127.0.0.1:1", "spent"))
	if err := Introduce(t.Context(), cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	again := p.(*Agent)
	defer again.Wire.Close()
	if again.Certs.Enrolled.Now.Load() == nil || again.Cfg.Gossip.Encrypt != introGossip ||
		len(again.Cfg.Gossip.RetryJoin) != 3 {
		t.Errorf("after a restart: %+v", again.Cfg.Gossip)
	}
	if info, err := os.Stat(filepath.Join(cfg.DataDir, enroll.File)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}

	t.Run("strangers", func(t *testing.T) { strangersAreNotIntroduced(t, leader, issuer, dir) })
}

// strangersAreNotIntroduced: nobody gets anything whose JWT is not good for its name, and no token is left behind.
func strangersAreNotIntroduced(t *testing.T, leader *testMember, issuer introIssuer, dir string) {
	_, before := leader.ask("GET", "/v1/acl/tokens", "")
	with := func(change func(map[string]any)) string {
		claims := good("c2")
		change(claims)
		return issuer.jwt(t, claims)
	}
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ jwt, node, dc string }{
		"no JWT":              {"nothing", "c2", "dc1"},
		"of another key":      {introIssuer{otherKey}.jwt(t, good("c2")), "c2", "dc1"},
		"of another node":     {issuer.jwt(t, good("c3")), "c2", "dc1"},
		"expired":             {with(func(m map[string]any) { m["exp"] = time.Now().Add(-time.Hour).Unix() }), "c2", "dc1"},
		"of another issuer":   {with(func(m map[string]any) { m["iss"] = "others" }), "c2", "dc1"},
		"for somebody else":   {with(func(m map[string]any) { m["aud"] = "vault" }), "c2", "dc1"},
		"without the claim":   {with(func(m map[string]any) { delete(m, "host") }), "c2", "dc1"},
		"a name that asserts": {issuer.jwt(t, good("c2")), `x" or value.node != "x`, "dc1"},
		"another datacenter":  {issuer.jwt(t, good("c2")), "c2", "dc2"},
	} {
		cfg := &config.Config{}
		*cfg = *leader.config(true, introAgentTLS(dir))
		cfg.Node.Name, cfg.Node.Datacenter = c.node, "dc1"
		cfg.AutoConfig = config.AutoConfig{IntroToken: c.jwt, ServerAddresses: []string{leader.Wire.Addr().String()}}
		id, err := new(base.Enrolled).Identity(&cfg.TLS.InternalRPC, cfg)
		if err != nil {
			t.Fatal(err)
		}
		client, done, err := enroll.Stranger(id, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Node.Datacenter = c.dc
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		in, err := enroll.Ask(ctx, client, cfg)
		cancel()
		done()
		if in != nil || err == nil || strings.Contains(err.Error(), "deadline") {
			t.Errorf("%s: %+v, %v", name, in, err)
		}
	}
	if _, after := leader.ask("GET", "/v1/acl/tokens", ""); after != before {
		t.Errorf("tokens before %s\nand after %s", before, after)
	}
	// A request for another identity than the one that was judged.
	domain, err := ca.TrustDomainOf(leader.registry.State())
	if err != nil {
		t.Fatal(err)
	}
	_, csr, err := ca.NewRequest(ca.ID{Kind: ca.AgentID, TrustDomain: domain, Datacenter: "dc1", Name: "s0"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leader.introducer.Introduce(t.Context(), "test", &enroll.Request{Node: "c2", Datacenter: "dc1",
		CSR: csr}); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a certificate for another: %v", err)
	}
}

func introAgentTLS(dir string) string {
	return fmt.Sprintf(`bootstrap = true
tls { defaults { ca_file = "%[1]s/ca.pem" cert_file = "%[1]s/cert.pem" key_file = "%[1]s/key.pem" verify_outgoing = true verify_server_hostname = true } }`, dir)
}

func TestAutoConfigIsChecked(t *testing.T) {
	base := `data_dir = "/nowhere" bind_addr = "127.0.0.1" `
	const agent = `auto_config { enabled = true intro_token = "x" server_addresses = ["10.0.0.1"] } `
	for hcl, part := range map[string]string{
		`auto_config { enabled = true server_addresses = ["10.0.0.1"] } tls { defaults { ca_file = "x" } }`: "intro_token",
		`auto_config { enabled = true intro_token = "x" } tls { defaults { ca_file = "x" } }`:               "needs server_addresses",
		agent: "needs tls.defaults.ca_file",
		agent + `auto_encrypt { tls = true } tls { defaults { ca_file = "x" } }`:        "exclude each other",
		agent + `auto_config { ip_sans = ["here"] } tls { defaults { ca_file = "x" } }`: `ip_sans "here"`,
		`auto_config { authorization { enabled = true } }`:                              "is for servers",
		`auto_config { authorization { static { bound_issuers = "x" } } }`:              "bound_issuers",
	} {
		if _, err := config.Load(config.Options{Hostname: "h", Fragments: []string{base, hcl}}); err == nil ||
			!strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v does not say %s", hcl, err, part)
		}
	}
	const secure = `tls { defaults { ca_file = "x" cert_file = "y" key_file = "z" } } `
	rules := func(text string) string {
		return secure + `auto_config { authorization { enabled = true static { ` + text + ` } } }`
	}
	for hcl, part := range map[string]string{
		agent + secure: "is for client agents",
		`auto_config { authorization { enabled = true } }`: "needs tls.defaults",
		rules(``): "exactly one of",
		rules(`jwks_url = "https://x" claim_assertions = ["value.node == \"${node}\""]`): "value.node",
		rules(
			`jwks_url = "https://x" claim_mappings { host = "node" } claim_assertions = ["value.node = x"]`): "claim_assertions",
		rules(`jwt_validation_pub_keys = ["x"]`): "no PEM block",
	} {
		cfg, err := config.Load(config.Options{Server: true, Hostname: "h", Fragments: []string{base, hcl}})
		if err == nil {
			err = Check(cfg)
		}
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v does not say %s", hcl, err, part)
		}
	}
	cfg, err := config.Load(config.Options{Hostname: "h", Env: []string{"CONSUL_INTRO_TOKEN=y"},
		Fragments: []string{base, `auto_config { enabled = true server_addresses = ["10.0.0.1"] } tls { defaults { ` +
			`ca_file = "x" } }`}})
	if err != nil || cfg.AutoConfig.IntroToken != "y" {
		t.Errorf("%v, the token of the environment was not taken", err)
	}
}

// TestIntroductionEndsWithItsContext: an agent that waits for a server that says nothing can be stopped.
func TestIntroductionEndsWithItsContext(t *testing.T) {
	a := wiretest.NewAuthority(t)
	dir := t.TempDir()
	a.Store(dir, a.Issue(goodName, -time.Minute, time.Hour))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg, err := config.Load(config.Options{Hostname: "c1",
		Fragments: []string{`bind_addr = "127.0.0.1" data_dir = "` + dir + `/data"`,
			introAgent(dir, l.Addr().String(), "x")}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Introduce(ctx, cfg, slog.New(slog.DiscardHandler)) }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	if err := polltest.Get(t, done, "the end"); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
}
