package node

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/enroll"
	"corbel.dev/corbel/node/raftgroup"
)

// meshCert is a certificate of a server's authority, valid from a time.
func meshCert(t *testing.T, m *testMember, id ca.ID, from time.Time) *tls.Certificate {
	t.Helper()
	root, err := ca.Active(m.registry.State())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ca.NewSigner(root.Root)
	if err != nil {
		t.Fatal(err)
	}
	key, csr, err := ca.NewRequest(id, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := signer.Sign(csr, ca.Grant{ID: id}, time.Hour, from)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(leaf.CertPEM), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// An agent that knows the servers' authority alone gets a certificate, speaks to servers that demand one, and
// serves HTTPS with it.
func TestAgentGetsItsCertificate(t *testing.T) {
	a := wiretest.NewAuthority(t)
	s, _, dir, _ := secured(t, a, "}\n} auto_encrypt { allow_tls = true } tls { defaults {")
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	hcl := fmt.Sprintf(aclOff+`
retry_join = [%q]
ports { https = %d }
auto_encrypt { tls = true dns_san = ["here.example"] }
tls { defaults { ca_file = "%s/ca.pem" verify_outgoing = true verify_server_hostname = true } }`,
		s.gossip, ports[0], dir)
	c := startMember(t, false, "c1", hcl)
	c.awaitAsk("GET", "/v1/kv/ready?raw", "", http.StatusOK, "x")
	c.awaitAsk("PUT", "/v1/agent/service/register", `{"Name":"web","Port":80}`, 200, "")
	c.awaitAsk("GET", "/v1/catalog/service/web", "", 200, `"c1"`)
	leafOf(t, c, "web")

	roots := x509.NewCertPool()
	for _, r := range rootsOf(t, s).Roots {
		roots.AppendCertsFromPEM([]byte(r.RootCert))
	}
	polltest.NoError(t, time.Minute, func() error {
		body, state, err := fetchHTTPS(httpsClient(roots, nil, 0), fmt.Sprintf("127.0.0.1:%d", ports[0]))
		if err != nil {
			return err
		}
		if cert := state.PeerCertificates[0]; body != "x" || cert.URIs[0].Path != "/agent/client/dc/dc1/id/c1" ||
			cert.VerifyHostname("here.example") != nil || cert.VerifyHostname("localhost") != nil {
			return fmt.Errorf("%q by %v, %v", body, cert.URIs, cert.DNSNames)
		}
		return nil
	}, "HTTPS with the agent's certificate")
	// It lasts through a rotation, and a reload keeps it.
	first := c.Certs.Enrolled.Now.Load()
	s.awaitAsk("PUT", "/v1/connect/ca/configuration", `{"Provider":"consul","Config":{"PrivateKeyBits":384}}`, 200, "")
	if err := c.Reload(c.config(false, hcl)); err != nil {
		t.Fatal(err)
	}
	if !knock(t, s, a, first, wire.ProtoRPC, 0, 0) || c.Certs.Enrolled.Now.Load() != first || c.certificateLeft() == 0 {
		t.Error("the certificate does not outlast a rotation and a reload")
	}
	// One that has ended, or is trusted no more, does not keep the agent from getting another.
	domain, err := ca.TrustDomainOf(s.registry.State())
	if err != nil {
		t.Fatal(err)
	}
	ended := meshCert(t, s, ca.ID{Kind: ca.AgentID, TrustDomain: domain, Datacenter: "dc1", Name: "c1"},
		time.Now().Add(-2*time.Hour+time.Minute))
	c.Certs.Enrolled.Now.Store(ended)
	client := enroll.Client(c.Wire)
	defer client.Close()
	cert, err := enrolled(c.Base).AskForToken(t.Context(), client)
	if err != nil || !knock(t, s, a, cert, wire.ProtoRPC, 0, 0) {
		t.Errorf("an agent whose certificate has ended: %v", err)
	}
}

// TestStrangersWhereAgentsEnrol is C7 for servers that let in agents with certificates of the mesh: nobody else gets
// in, and no agent to Raft.
func TestStrangersWhereAgentsEnrol(t *testing.T) {
	a, other := wiretest.NewAuthority(t), wiretest.NewAuthority(t)
	m, _, _, _ := secured(t, a, "}\n} auto_encrypt { allow_tls = true } tls { defaults {")
	m.awaitAsk("GET", "/v1/connect/ca/roots", "", 200, `"Active":true`) // by HTTP: that port demands nothing
	domain, err := ca.TrustDomainOf(m.registry.State())
	if err != nil {
		t.Fatal(err)
	}
	stranger := startServer(t, "stranger", aclOff+`bootstrap = true`)
	stranger.awaitAsk("GET", "/v1/connect/ca/roots", "", 200, `"Active":true`)
	agent := ca.ID{Kind: ca.AgentID, TrustDomain: domain, Datacenter: "dc1", Name: "c1"}
	with := func(change func(*ca.ID)) ca.ID { id := agent; change(&id); return id }
	now := time.Now()
	own := func(c tls.Certificate) *tls.Certificate { return &c }
	for name, c := range map[string]*tls.Certificate{
		"no certificate":          nil,
		"expired":                 meshCert(t, m, agent, now.Add(-time.Hour-time.Second)),
		"not yet valid":           meshCert(t, m, agent, now.Add(time.Hour)),
		"of another mesh":         meshCert(t, stranger, agent, now),
		"of another trust domain": meshCert(t, m, with(func(id *ca.ID) { id.TrustDomain = "other.consul" }), now),
		"of another datacenter":   meshCert(t, m, with(func(id *ca.ID) { id.Datacenter = "dc2" }), now),
		"of a service":            meshCert(t, m, with(func(id *ca.ID) { id.Kind = ca.ServiceID }), now),
		"of a gateway": meshCert(t, m, with(func(id *ca.ID) { id.Kind, id.Name = ca.MeshGatewayID, "" }),
			now),
		"of a server by the mesh":      meshCert(t, m, with(func(id *ca.ID) { id.Kind, id.Name = ca.ServerID, "" }), now),
		"of another authority":         own(other.Issue(goodName, -time.Minute, time.Hour)),
		"the operator's, but expired":  own(a.Issue(goodName, -time.Hour, -time.Minute)),
		"the operator's, for tomorrow": own(a.Issue(goodName, 30*time.Minute, time.Hour)),
	} {
		if knock(t, m, a, c, wire.ProtoRPC, 0, 0) {
			t.Errorf("%s: RPC was served", name)
		}
		if knock(t, m, a, c, wire.ProtoRaft, raftgroup.CatalogID, 30*time.Second) {
			t.Errorf("%s: Raft was served", name)
		}
		if c != nil && knock(t, m, a, c, wire.ProtoEnroll, 0, 0) {
			t.Errorf("%s: enrolled", name)
		}
	}
	good := meshCert(t, m, agent, now)
	switch {
	case !knock(t, m, a, good, wire.ProtoRPC, 0, 0):
		t.Error("an agent's certificate was refused")
	case knock(t, m, a, good, wire.ProtoRaft, raftgroup.CatalogID, 30*time.Second):
		t.Error("an agent speaks Raft")
	case !knock(t, m, a, nil, wire.ProtoEnroll, 0, 0):
		t.Error("who has no certificate cannot get one")
	case !knock(t, m, a, own(a.Issue(goodName, -time.Minute, time.Hour)), wire.ProtoRaft, raftgroup.CatalogID,
		time.Second):
		t.Error("a server's own certificate was refused")
	}
}

func TestAutoEncryptIsChecked(t *testing.T) {
	base := `data_dir = "/nowhere" bind_addr = "127.0.0.1" `
	for hcl, part := range map[string]string{
		`auto_encrypt { tls = true }`:       "needs tls.defaults.ca_file",
		`auto_encrypt { allow_tls = true }`: "is for servers",
		`auto_encrypt { tls = true ip_san = ["here"] } tls { defaults { ca_file = "x" } }`:              `ip_san "here"`,
		`auto_encrypt { tls = true } tls { defaults { ca_file = "x" cert_file = "y" key_file = "z" } }`: "exclude each other",
	} {
		if _, err := config.Load(config.Options{Hostname: "h", Fragments: []string{base, hcl}}); err == nil ||
			!strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v does not say %s", hcl, err, part)
		}
	}
	for hcl, part := range map[string]string{
		`auto_encrypt { tls = true } tls { defaults { ca_file = "x" } }`: "is for client agents",
		`auto_encrypt { allow_tls = true }`:                              "needs tls.defaults",
		`auto_encrypt { allow_tls = true } connect { enabled = false }`:  "needs connect.enabled",
	} {
		if _, err := config.Load(config.Options{Server: true, Hostname: "h", Fragments: []string{base, hcl}}); err == nil ||
			!strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v does not say %s", hcl, err, part)
		}
	}
}
