package node

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/kit/polltest"
)

// leafOf asks a member for a service's certificate until it gets one.
func leafOf(t *testing.T, m *testMember, path string) (leaf meshrows.CALeaf) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		status, body := m.ask("GET", "/v1/agent/connect/ca/leaf/"+path, "")
		if status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return json.Unmarshal([]byte(body), &leaf)
	}, "a leaf certificate")
	return leaf
}

// verifyLeaf checks a certificate with its key against the roots that somebody was told.
func verifyLeaf(leaf meshrows.CALeaf, roots rootsAnswer, at time.Time) error {
	pair, err := tls.X509KeyPair([]byte(leaf.CertPEM), []byte(leaf.PrivateKeyPEM))
	if err != nil {
		return err
	}
	trusted, between := x509.NewCertPool(), x509.NewCertPool()
	for _, r := range roots.Roots {
		trusted.AppendCertsFromPEM([]byte(r.RootCert))
	}
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		between.AddCert(c)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// A client agent's certificates are signed by a server and kept: the key is made by the agent, and what
// it has goes on to be served while every server is down.
func TestClientAgentHasLeaves(t *testing.T) {
	s := startServer(t, "s1", aclOff+`bootstrap = true`)
	c := startMember(t, false, "c1", aclOff+fmt.Sprintf("retry_join = [%q]", s.gossip))
	leaf := leafOf(t, c, "web")
	roots := rootsOf(t, s)
	if want := "spiffe://" + roots.TrustDomain + "/ns/default/dc/dc1/svc/web"; leaf.ServiceURI != want ||
		leaf.Service != "web" {
		t.Errorf("identity %s, want %s", leaf.ServiceURI, want)
	}
	if err := verifyLeaf(leaf, roots, time.Now()); err != nil {
		t.Error(err)
	}
	if own := leafOf(t, s, "web"); own.SerialNumber == leaf.SerialNumber {
		t.Error("the server has the agent's certificate")
	}
	c.awaitAsk("POST", "/v1/agent/connect/authorize", `{"Target":"db","ClientCertURI":"`+leaf.ServiceURI+`"}`, 200,
		`"Authorized":true`)
	c.awaitAsk("GET", "/v1/agent/connect/ca/roots", "", 200, roots.ActiveRootID)
	s.stop()
	for path, part := range map[string]string{"/v1/agent/connect/ca/leaf/web": leaf.SerialNumber,
		"/v1/agent/connect/ca/roots": roots.ActiveRootID} {
		if status, body := c.ask("GET", path, ""); status != 200 || !strings.Contains(body, part) {
			t.Errorf("%s without servers: %d %s", path, status, body)
		}
	}
}

// While roots are rotated, whatever certificate a server gives verifies against the roots that any server tells at
// that time: those that lag and those that lead understand each other by the cross-signed certificates.
func TestLeavesDuringRotationVerifyEverywhere(t *testing.T) {
	servers := startCluster(t, 3, aclOff)
	for _, m := range servers {
		leafOf(t, m, "warm")
	}
	const rotations = 4
	stop := make(chan struct{})
	var asking sync.WaitGroup
	verified := make([]int, len(servers))
	for i, m := range servers {
		asking.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				leaf := leafOf(t, m, fmt.Sprintf("s%d", n)) // a service never asked for: signed now
				for _, other := range servers {
					_, body := other.ask("GET", "/v1/connect/ca/roots?stale", "")
					var roots rootsAnswer
					if err := json.Unmarshal([]byte(body), &roots); err != nil {
						t.Errorf("%v in %s", err, body)
						return
					}
					if err := verifyLeaf(leaf, roots, time.Now()); err != nil {
						t.Errorf("signed by server %d: %v", i, err)
						return
					}
					verified[i]++
				}
			}
		})
	}
	for n := range rotations {
		body := fmt.Sprintf(`{"Provider":"consul","Config":{"PrivateKeyBits":%d}}`, 384-128*(n%2))
		servers[n%3].awaitAsk("PUT", "/v1/connect/ca/configuration", body, 200, "")
		for _, m := range servers {
			leafOf(t, m, fmt.Sprintf("after%d", n))
		}
	}
	close(stop)
	asking.Wait()
	for i, n := range verified {
		if n == 0 {
			t.Errorf("server %d signed nothing meanwhile", i)
		}
	}
}
