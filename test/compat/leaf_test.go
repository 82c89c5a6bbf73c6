package compat

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/consul/api/watch"
)

// TestAgentServiceLeaf is the client's own test of a service's certificate, and what its users do with it.
func TestAgentServiceLeaf(t *testing.T) {
	c := consul(t)
	var leaf *api.LeafCert
	var meta *api.QueryMeta
	eventually(t, "a certificate", func() (err error) {
		leaf, meta, err = c.Agent().ConnectCALeaf("leaf-web", nil)
		return err
	})
	if meta.LastIndex == 0 || meta.LastIndex != leaf.ModifyIndex || leaf.SerialNumber == "" ||
		leaf.Service != "leaf-web" || !strings.HasSuffix(leaf.ServiceURI, "/svc/leaf-web") ||
		!leaf.ValidAfter.Before(time.Now()) || !leaf.ValidBefore.After(time.Now()) {
		t.Errorf("certificate %+v, %+v", leaf, meta)
	}
	pair, err := tls.X509KeyPair([]byte(leaf.CertPEM), []byte(leaf.PrivateKeyPEM))
	must(t, err)
	roots, _, err := c.Agent().ConnectCARoots(nil)
	must(t, err)
	trusted, between := x509.NewCertPool(), x509.NewCertPool()
	for _, r := range roots.Roots {
		trusted.AppendCertsFromPEM([]byte(r.RootCertPEM))
	}
	for block, rest := pem.Decode([]byte(leaf.CertPEM)); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		between.AddCert(cert)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between}); err != nil {
		t.Error(err)
	}
	again, meta, err := c.Agent().ConnectCALeaf("leaf-web", nil)
	must(t, err)
	if again.SerialNumber != leaf.SerialNumber || !meta.CacheHit {
		t.Errorf("asked again: %+v, %+v", again, meta)
	}
	begin := time.Now()
	again, _, err = c.Agent().ConnectCALeaf("leaf-web", &api.QueryOptions{WaitIndex: leaf.ModifyIndex,
		WaitTime: 200 * time.Millisecond})
	must(t, err)
	if again.SerialNumber != leaf.SerialNumber || time.Since(begin) < 200*time.Millisecond {
		t.Errorf("blocked for %s: %+v", time.Since(begin), again)
	}
}

// TestAuthorize is the client's own test of the decision on a connection.
func TestAuthorize(t *testing.T) {
	c := consul(t)
	var roots *api.CARootList
	eventually(t, "roots", func() (err error) {
		roots, _, err = c.Agent().ConnectCARoots(nil)
		return err
	})
	ask := func(source string) *api.AgentAuthorize {
		t.Helper()
		auth, err := c.Agent().ConnectAuthorize(&api.AgentAuthorizeParams{Target: "authorize-db", ClientCertSerial: "fake",
			ClientCertURI: "spiffe://" + roots.TrustDomain + "/ns/default/dc/ny1/svc/" + source})
		must(t, err)
		return auth
	}
	byDefault := os.Getenv(api.HTTPTokenEnvName) == "" // the run with ACLs denies
	if auth := ask("authorize-web"); auth.Authorized != byDefault || auth.Reason != "Default behavior configured by ACLs" {
		t.Errorf("by default: %+v", auth)
	}
	_, err := c.Connect().IntentionUpsert(&api.Intention{SourceName: "authorize-web", DestinationName: "authorize-db",
		Action: api.IntentionActionDeny}, nil)
	must(t, err)
	if auth := ask("authorize-web"); auth.Authorized || !strings.HasPrefix(auth.Reason, "Matched intention: ") {
		t.Errorf("denied: %+v", auth)
	}
}

// TestWatchPlans are the watches of the client's watch package that an agent answers by itself.
func TestWatchPlans(t *testing.T) {
	c := consul(t)
	must(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "plan-web", Port: 80}))
	for kind, params := range map[string]map[string]any{
		"connect_roots": {}, "connect_leaf": {"service": "plan-web"}, "agent_service": {"service_id": "plan-web"},
	} {
		params["type"] = kind
		plan, err := watch.Parse(params)
		must(t, err)
		told := make(chan any, 1)
		plan.HybridHandler = func(_ watch.BlockingParamVal, v any) {
			select {
			case told <- v:
			default:
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- plan.RunWithClientAndHclog(c, nil) }()
		select {
		case v := <-told:
			switch v := v.(type) {
			case *api.CARootList:
				if v.TrustDomain == "" {
					t.Errorf("%s told %+v", kind, v)
				}
			case *api.LeafCert:
				if v.Service != "plan-web" {
					t.Errorf("%s told %+v", kind, v)
				}
			case *api.AgentService:
				if v.Port != 80 {
					t.Errorf("%s told %+v", kind, v)
				}
			default:
				t.Errorf("%s told %T", kind, v)
			}
		case err := <-ended:
			t.Fatalf("%s ended: %v", kind, err)
		case <-time.After(time.Minute):
			t.Fatalf("%s told nothing", kind)
		}
		plan.Stop()
		must(t, <-ended)
	}
}
