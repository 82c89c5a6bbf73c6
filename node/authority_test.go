package node

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi"
)

type rootsAnswer struct {
	ActiveRootID, TrustDomain string
	Roots                     []consulapi.CARoot
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
	m.awaitAsk("GET", "/v1/connect/ca/configuration", "", 200, `"Config":{"IntermediateCertTTL":"8760h","LeafCertTTL":"72h","RootCertTTL":"87600h"},"State":{}`)
	first := rootsOf(t, m)
	if len(first.Roots) != 1 || first.Roots[0].ID != first.ActiveRootID || first.TrustDomain != first.Roots[0].ExternalTrustDomain+".consul" {
		t.Fatalf("first roots %+v", first)
	}
	if status, body := m.ask("PUT", "/v1/connect/ca/configuration", `{"Provider":"consul","Config":{"LeafCertTTL":"1m"}}`); status != 400 {
		t.Errorf("a lifetime of one minute: %d %s", status, body)
	}
	if status, body := m.ask("PUT", "/v1/connect/ca/configuration", `{"Provider":"consul","Config":{"LeafCertTTL":"2h","test_state":{"foo":"bar"}}}`); status != 200 {
		t.Fatalf("a lifetime: %d %s", status, body)
	}
	m.awaitAsk("GET", "/v1/connect/ca/configuration", "", 200, `"State":{"foo":"bar"}`)
	if now := rootsOf(t, m); len(now.Roots) != 1 || now.ActiveRootID != first.ActiveRootID {
		t.Errorf("a lifetime rotates: %+v", now)
	}
	if status, body := m.ask("PUT", "/v1/connect/ca/configuration", `{"Provider":"consul","Config":{"PrivateKeyBits":384}}`); status != 200 {
		t.Fatalf("rotation: %d %s", status, body)
	}
	now := rootsOf(t, m)
	if len(now.Roots) != 2 || !now.Roots[0].Active || now.Roots[1].Active || now.Roots[0].ID != now.ActiveRootID || now.Roots[1].ID != first.ActiveRootID || len(now.Roots[0].IntermediateCerts) != 1 {
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
	if status, body := m.ask("GET", "/v1/agent/connect/ca/roots?pem=true", ""); status != 200 || body != now.Roots[0].RootCert+now.Roots[1].RootCert {
		t.Errorf("bundle %d %s", status, body)
	}
}
