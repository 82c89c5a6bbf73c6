package node

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/node/config"
)

type rootsAnswer struct {
	ActiveRootID, TrustDomain string
	Roots                     []meshrows.CARoot
}

func rootsOf(t *testing.T, m *testMember) (out rootsAnswer) {
	t.Helper()
	_, body := m.ask("GET", "/v1/connect/ca/roots", "")
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return out
}

// A rotation leaves the old root in the bundle, and whoever trusts only that follows to the new one.
func TestAuthorityRotates(t *testing.T) {
	m := startServer(t, "ca1", aclOff+`bootstrap = true`)
	m.awaitAsk("GET", "/v1/connect/ca/roots", "", 200, `"Active":true`)
	m.awaitAsk("GET", "/v1/connect/ca/configuration", "", 200,
		`"Config":{"IntermediateCertTTL":"8760h","LeafCertTTL":"72h","RootCertTTL":"87600h"},"State":{}`)
	first := rootsOf(t, m)
	if len(first.Roots) != 1 || first.Roots[0].ID != first.ActiveRootID ||
		first.TrustDomain != first.Roots[0].ExternalTrustDomain+".consul" {
		t.Fatalf("first roots %+v", first)
	}
	if status, body := m.ask("PUT", "/v1/connect/ca/configuration",
		`{"Provider":"consul","Config":{"LeafCertTTL":"1m"}}`); status != 400 {
		t.Errorf("a lifetime of one minute: %d %s", status, body)
	}
	if status, body := m.ask("PUT", "/v1/connect/ca/configuration",
		`{"Provider":"consul","Config":{"LeafCertTTL":"2h","test_state":{"foo":"bar"}}}`); status != 200 {
		t.Fatalf("a lifetime: %d %s", status, body)
	}
	m.awaitAsk("GET", "/v1/connect/ca/configuration", "", 200, `"State":{"foo":"bar"}`)
	if now := rootsOf(t, m); len(now.Roots) != 1 || now.ActiveRootID != first.ActiveRootID {
		t.Errorf("a lifetime rotates: %+v", now)
	}
	if status, body := m.ask("PUT", "/v1/connect/ca/configuration",
		`{"Provider":"consul","Config":{"PrivateKeyBits":384}}`); status != 200 {
		t.Fatalf("rotation: %d %s", status, body)
	}
	now := rootsOf(t, m)
	if len(now.Roots) != 2 || !now.Roots[0].Active || now.Roots[1].Active || now.Roots[0].ID != now.ActiveRootID ||
		now.Roots[1].ID != first.ActiveRootID || len(now.Roots[0].IntermediateCerts) != 1 {
		t.Fatalf("after the rotation %+v", now)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(first.Roots[0].RootCert))
	block, _ := pem.Decode([]byte(now.Roots[0].IntermediateCerts[0]))
	cross, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cross.Verify(x509.VerifyOptions{Roots: trusted, CurrentTime: time.Now()}); err != nil {
		t.Errorf("cross-signed certificate: %v", err)
	}
	if status, body := m.ask("GET", "/v1/agent/connect/ca/roots?pem=true", ""); status != 200 ||
		body != now.Roots[0].RootCert+now.Roots[1].RootCert {
		t.Errorf("bundle %d %s", status, body)
	}
}

// A new cluster's authority is as the configuration wants it, under either spelling of the keys.
func TestAuthorityBeginsAsConfigured(t *testing.T) {
	const id = "11111111-2222-3333-4444-555555555555"
	m := startServer(t, "ca1", aclOff+`bootstrap = true
connect {
  enabled = true
  ca_provider = "consul"
  ca_config { cluster_id = "`+id+`" leaf_cert_ttl = "2h" PrivateKeyType = "ec" private_key_bits = 384 csr_max_per_second = 100 }
}`)
	m.awaitAsk("GET", "/v1/connect/ca/configuration", "", 200,
		`"Config":{"CSRMaxPerSecond":100,"IntermediateCertTTL":"8760h","LeafCertTTL":"2h","PrivateKeyBits":384,`+
			`"PrivateKeyType":"ec","RootCertTTL":"87600h"}`)
	roots := rootsOf(t, m)
	if len(roots.Roots) != 1 || roots.TrustDomain != id+".consul" || roots.Roots[0].PrivateKeyBits != 384 {
		t.Errorf("roots %+v", roots)
	}
	if left := m.feeds.RootLeft(); left < 87500*3600 || left > 87600*3600 {
		t.Errorf("the root has %v seconds left", left)
	}
	leaf := leafOf(t, m, "web")
	if life := leaf.ValidBefore.Sub(leaf.ValidAfter); life > 2*time.Hour+2*time.Minute {
		t.Errorf("a certificate lasts %s", life)
	}
}

func TestAuthorityConfigurationIsChecked(t *testing.T) {
	for hcl, part := range map[string]string{
		`connect { ca_provider = "vault" ca_config { address = "x" } }`: `connect.ca_provider: "vault" is not ` +
			`supported`,
		`connect { ca_provider = "aws-pca" }`:                                       `root_cert and private_key`,
		`connect { ca_config { leaf_ttl = "1h" } }`:                                 `connect.ca_config.leaf_ttl`,
		`connect { ca_config { leaf_cert_ttl = "1m" } }`:                            `LeafCertTTL: must be at least 1h`,
		`connect { ca_config { LeafCertTTL = "soon" cluster_id = "me" } }`:          `cluster_id: me is no UUID`,
		`connect { ca_config { root_cert = "x" } }`:                                 `PrivateKey: is needed with RootCert`,
		`connect { ca_config { private_key_type = "rsa" private_key_bits = 512 } }`: `PrivateKeyBits`,
	} {
		cfg, err := config.Load(config.Options{Server: true, Hostname: "h",
			Fragments: []string{`data_dir = "/nowhere" bind_addr = "127.0.0.1"`, hcl}})
		if err != nil {
			t.Errorf("%s: %v", hcl, err)
			continue
		}
		if err := Check(cfg); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v does not say %s", hcl, err, part)
		}
	}
}

func TestMeshSwitchedOff(t *testing.T) {
	m := startServer(t, "ca1", aclOff+`bootstrap = true
connect { enabled = false }
default_intention_policy = "deny"`)
	m.awaitAsk("PUT", "/v1/kv/ready", "x", 200, "true")
	for _, path := range []string{"/v1/connect/ca/roots", "/v1/agent/connect/ca/roots", "/v1/agent/connect/ca/leaf/web",
		"/v1/connect/ca/configuration"} {
		if status, body := m.ask("GET", path, ""); status != 500 || !strings.Contains(body, "Connect must be enabled") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	m.awaitAsk("GET", "/v1/connect/intentions/check?source=a&destination=b", "", 200, `"Allowed":false`)
}
