package compat

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-acme/lego/v4/certcrypto"
	"github.com/go-acme/lego/v4/certificate"
	"github.com/go-acme/lego/v4/challenge/dns01"
	"github.com/go-acme/lego/v4/challenge/http01"
	"github.com/go-acme/lego/v4/lego"
	"github.com/go-acme/lego/v4/registration"
	vault "github.com/hashicorp/vault/api"
	"github.com/miekg/dns"
)

// acmeWeb is where pages for http-01 are served: the engine looks at port 80.
const acmeWeb = "127.0.0.77"

// acmeNames answers for acme.test: every host is at acmeWeb, and TXT records are what lego puts up.
type acmeNames struct {
	mu  sync.Mutex
	txt map[string][]string
}

func (n *acmeNames) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, of := range q.Question {
		head := dns.RR_Header{Name: of.Name, Rrtype: of.Qtype, Class: dns.ClassINET, Ttl: 1}
		switch of.Qtype {
		case dns.TypeA:
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: net.ParseIP(acmeWeb)})
		case dns.TypeTXT:
			for _, text := range n.txt[strings.ToLower(of.Name)] {
				m.Answer = append(m.Answer, &dns.TXT{Hdr: head, Txt: []string{text}})
			}
		}
	}
	_ = w.WriteMsg(m)
}

// Present implements lego's challenge.Provider.
func (n *acmeNames) Present(domain, _, keyAuth string) error {
	info := dns01.GetChallengeInfo(domain, keyAuth)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.txt[info.EffectiveFQDN] = append(n.txt[info.EffectiveFQDN], info.Value)
	return nil
}

// CleanUp implements lego's challenge.Provider.
func (n *acmeNames) CleanUp(domain, _, keyAuth string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.txt, dns01.GetChallengeInfo(domain, keyAuth).EffectiveFQDN)
	return nil
}

// acmeUser implements lego's registration.User.
type acmeUser struct {
	key crypto.PrivateKey
	reg *registration.Resource
}

func (u *acmeUser) GetEmail() string                        { return "ops@example.com" }
func (u *acmeUser) GetRegistration() *registration.Resource { return u.reg }
func (u *acmeUser) GetPrivateKey() crypto.PrivateKey        { return u.key }

func newLego(t *testing.T, front *httptest.Server, directory string) (*lego.Client, *acmeUser) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	user := &acmeUser{key: key}
	cfg := lego.NewConfig(user)
	cfg.CADirURL, cfg.Certificate.KeyType, cfg.HTTPClient = directory, certcrypto.EC256, front.Client()
	cl, err := lego.NewClient(cfg)
	must(t, err)
	return cl, user
}

// TestVaultACME gets and revokes certificates by lego, with proofs by the DNS and by a page.
func TestVaultACME(t *testing.T) {
	t.Setenv("LEGO_DISABLE_CNAME_SUPPORT", "true") // it would ask the machine's own servers
	cl, _ := newVault(t)
	names := &acmeNames{txt: map[string][]string{}}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	up := make(chan struct{})
	server := &dns.Server{PacketConn: conn, Handler: names, NotifyStartedFunc: func() { close(up) }}
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	<-up
	t.Cleanup(func() {
		_ = server.Shutdown()
		<-ended
	})

	must(t, cl.Sys().Mount("pki-acme", &vault.MountInput{Type: "pki",
		Config: vault.MountConfigInput{MaxLeaseTTL: "87600h"}}))
	written(t, cl, "pki-acme/root/generate/internal", map[string]any{"common_name": "root", "key_type": "ec",
		"ttl": "8760h"})
	written(t, cl, "pki-acme/roles/web", map[string]any{"allowed_domains": []string{"acme.test"},
		"allow_subdomains": true, "allow_bare_domains": true, "key_type": "ec"})
	to, err := url.Parse(cl.Address())
	must(t, err)
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(to)) // lego asks no server without TLS
	t.Cleanup(front.Close)
	base := front.URL + "/v1/pki-acme"
	written(t, cl, "pki-acme/config/cluster", map[string]any{"path": base})
	written(t, cl, "pki-acme/config/acme", map[string]any{"enabled": true, "dns_resolver": conn.LocalAddr().String(),
		"eab_policy": "new-account-required"})

	client, user := newLego(t, front, base+"/roles/web/acme/directory")
	_, err = client.Registration.Register(registration.RegisterOptions{TermsOfServiceAgreed: true})
	if err == nil || !strings.Contains(err.Error(), "externalAccountRequired") {
		t.Errorf("an account without a binding: %v", err)
	}
	eab := written(t, cl, "pki-acme/roles/web/acme/new-eab", nil)
	user.reg, err = client.Registration.RegisterWithExternalAccountBinding(registration.RegisterEABOptions{
		TermsOfServiceAgreed: true, Kid: eab["id"].(string), HmacEncoded: eab["key"].(string)})
	must(t, err)
	must(t, client.Challenge.SetDNS01Provider(names, dns01.WrapPreCheck(
		func(_, _, _ string, _ dns01.PreCheckFunc) (bool, error) { return true, nil })))
	got, err := client.Certificate.Obtain(certificate.ObtainRequest{Domains: []string{"*.acme.test", "acme.test"},
		Bundle: true})
	must(t, err)
	leaf := pemCert(t, string(got.Certificate))
	pool := x509.NewCertPool()
	_, ca := rawBody(t, cl, "pki-acme/ca/pem")
	pool.AppendCertsFromPEM(ca)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "any.acme.test"}); err != nil {
		t.Error(err)
	}
	must(t, client.Certificate.Revoke(got.Certificate))
	serials, err := cl.Logical().List("pki-acme/certs/revoked")
	must(t, err)
	if serials == nil || len(serials.Data["keys"].([]any)) != 1 {
		t.Errorf("revoked: %v", serials)
	}
	_, err = client.Certificate.Obtain(certificate.ObtainRequest{Domains: []string{"other.example"}})
	if err == nil {
		t.Error("a certificate for a name that the role does not allow")
	}

	web, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(acmeWeb, "80"))
	if err != nil {
		t.Logf("NOT RUN http-01: no port 80 here: %v", err)
		return
	}
	must(t, web.Close())
	client, user = newLego(t, front, base+"/roles/web/acme/directory")
	eab = written(t, cl, "pki-acme/roles/web/acme/new-eab", nil)
	user.reg, err = client.Registration.RegisterWithExternalAccountBinding(registration.RegisterEABOptions{
		TermsOfServiceAgreed: true, Kid: eab["id"].(string), HmacEncoded: eab["key"].(string)})
	must(t, err)
	must(t, client.Challenge.SetHTTP01Provider(http01.NewProviderServer(acmeWeb, "80")))
	got, err = client.Certificate.Obtain(certificate.ObtainRequest{Domains: []string{"www.acme.test"}})
	must(t, err)
	if leaf := pemCert(t, string(got.Certificate)); !slices.Equal(leaf.DNSNames, []string{"www.acme.test"}) {
		t.Errorf("%v", leaf.DNSNames)
	}
}
