package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
	"corbel.dev/corbel/secrets/engine/pki/forms"
)

type body = map[string]any

func newDesk(t testing.TB) *enginetest.Desk {
	var d *enginetest.Desk
	e := New(Config{Now: func() time.Time { return d.Now() },
		TTLs: func() (time.Duration, time.Duration) { return 768 * time.Hour, 87600 * time.Hour },
		Keys: limit.NewGate(limit.GateConfig{Slots: 2, MaxWaiting: 64})})
	d = enginetest.New(t, e, "pki/")
	return d
}

// withRoot is a desk with an EC root.
func withRoot(t testing.TB) *enginetest.Desk {
	d := newDesk(t)
	d.OK(secrets.Update, "root/generate/internal", body{"common_name": "root", "key_type": "ec", "ttl": "8760h"})
	return d
}

func cert(t testing.TB, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("%q is no PEM", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verify lets crypto/x509 judge a certificate by a root and what is between.
func verify(t testing.TB, d *enginetest.Desk, leaf *x509.Certificate, root string, between ...string) error {
	t.Helper()
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: d.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	opts.Roots.AddCert(cert(t, root))
	for _, text := range between {
		opts.Intermediates.AddCert(cert(t, text))
	}
	_, err := leaf.Verify(opts)
	return err
}

func request(t testing.TB, q *x509.CertificateRequest) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, q, key)
	if err != nil {
		t.Fatal(err)
	}
	return forms.EncodePEM("CERTIFICATE REQUEST", der)
}

func TestIssue(t *testing.T) {
	for _, kind := range []string{"rsa", "ec", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			d := newDesk(t)
			d.Refused(errkind.Invalid, "unknown role", secrets.Update, "issue/web", body{"common_name": "a.example.com"})
			root := d.OK(secrets.Update, "root/generate/exported", body{"common_name": "root", "key_type": kind, "ttl": "8760h",
				"issuer_name": "first"})
			if root.Text("private_key_type") != kind || !strings.Contains(root.Text("private_key"), "PRIVATE KEY") ||
				root.Text("issuer_name") != "first" || root.Text("issuer_id") == "" || root.Text("key_id") == "" {
				t.Errorf("the root's answer: %v", root)
			}
			d.OK(secrets.Update, "config/urls", body{"issuing_certificates": "http://ca.example.com/ca",
				"crl_distribution_points": []string{"http://ca.example.com/crl"}, "ocsp_servers": "http://ca.example.com/ocsp"})
			d.OK(secrets.Update, "roles/web", body{"allowed_domains": "example.com", "allow_subdomains": true, "key_type": kind,
				"ttl": "1h", "max_ttl": "2h", "organization": "Example", "ou": []string{"Web"}})
			got := d.OK(secrets.Update, "issue/web", body{"common_name": "a.example.com", "alt_names": "b.example.com",
				"ip_sans": "10.1.2.3"})
			leaf := cert(t, got.Text("certificate"))
			if err := verify(t, d, leaf, root.Text("certificate")); err != nil {
				t.Error(err)
			}
			if leaf.Subject.CommonName != "a.example.com" || fmt.Sprint(leaf.DNSNames) != "[b.example.com a.example.com]" ||
				!leaf.IPAddresses[0].Equal(net.IPv4(10, 1, 2, 3)) ||
				leaf.Subject.Organization[0] != "Example" || leaf.Subject.OrganizationalUnit[0] != "Web" || leaf.IsCA {
				t.Errorf("the certificate: %v %v %v", leaf.Subject, leaf.DNSNames, leaf.IPAddresses)
			}
			if leaf.IssuingCertificateURL[0] != "http://ca.example.com/ca" ||
				leaf.CRLDistributionPoints[0] != "http://ca.example.com/crl" || leaf.OCSPServer[0] != "http://ca.example.com/ocsp" {
				t.Error("the URLs are missing")
			}
			if !leaf.NotAfter.Equal(d.Now().Add(time.Hour)) || !leaf.NotBefore.Equal(d.Now().Add(-30*time.Second)) ||
				got["expiration"] != float64(leaf.NotAfter.Unix()) {
				t.Errorf("it lasts from %v to %v", leaf.NotBefore, leaf.NotAfter)
			}
			if leaf.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyAgreement|x509.KeyUsageKeyEncipherment ||
				len(leaf.ExtKeyUsage) != 2 {
				t.Errorf("usages: %v %v", leaf.KeyUsage, leaf.ExtKeyUsage)
			}
			if got.Text("serial_number") != forms.Colons(leaf.SerialNumber) ||
				got.Text("issuing_ca") != root.Text("certificate") ||
				got.Text("private_key_type") != kind {
				t.Errorf("the answer: %v", got)
			}
			read := d.OK(secrets.Read, "cert/"+got.Text("serial_number"), nil)
			if read.Text("certificate") != got.Text("certificate") || read["revocation_time"] != 0.0 {
				t.Errorf("read: %v", read)
			}
			if list := d.OK(secrets.List, "certs/", nil); len(list["keys"].([]any)) != 2 {
				t.Errorf("certs: %v", list)
			}
			block, _ := pem.Decode([]byte(got.Text("private_key")))
			if key, err := forms.DecodeKey(block); err != nil || !forms.SamePublic(key.Public(), leaf.PublicKey) {
				t.Errorf("the key is not the certificate's: %v", err)
			}
		})
	}
}

func TestFormats(t *testing.T) {
	d := withRoot(t)
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec", "no_store": true})
	der := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b", "format": "der"})
	raw, err := base64.StdEncoding.DecodeString(der.Text("certificate"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x509.ParseCertificate(raw); err != nil {
		t.Error(err)
	}
	if raw, err = base64.StdEncoding.DecodeString(der.Text("private_key")); err != nil {
		t.Fatal(err)
	}
	if _, err := x509.ParseECPrivateKey(raw); err != nil {
		t.Error(err)
	}
	bundle := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b", "format": "pem_bundle",
		"private_key_format": "pkcs8"})
	if text := bundle.Text("certificate"); strings.Count(text, "BEGIN CERTIFICATE") != 2 ||
		!strings.HasPrefix(text, "-----BEGIN PRIVATE KEY") {
		t.Errorf("the bundle: %s", text)
	}
	if left := d.OK(secrets.Update, "issue/any",
		body{"common_name": "a.b", "remove_roots_from_chain": true}); len(left["ca_chain"].([]any)) != 0 {
		t.Errorf("the root is still in the chain: %v", left["ca_chain"])
	}
	d.Refused(errkind.Invalid, "format", secrets.Update, "issue/any", body{"common_name": "a.b", "format": "text"})
	if list := d.OK(secrets.List, "certs/", nil); len(list["keys"].([]any)) != 1 {
		t.Errorf("no_store stored: %v", list)
	}
}

// What a role lets be, and what not.
func TestRoleNames(t *testing.T) {
	sub := body{"allowed_domains": "example.com", "allow_subdomains": true}
	for i, c := range []struct {
		role   body
		ask    body
		allows bool
	}{
		{sub, body{"common_name": "a.example.com"}, true},
		{sub, body{"common_name": "A.EXAMPLE.com"}, true},
		{sub, body{"common_name": "a.b.example.com"}, true},
		{sub, body{"common_name": "*.example.com"}, true},
		{sub, body{"common_name": "w*.example.com"}, true},
		{sub, body{"common_name": "example.com"}, false},
		{sub, body{"common_name": "aexample.com"}, false},
		{sub, body{"common_name": "a.example.com.evil.org"}, false},
		{sub, body{"common_name": "a.example.com", "alt_names": "evil.org"}, false},
		{sub, body{"common_name": "a.example.com", "alt_names": "x@a.example.com"}, true},
		{sub, body{"common_name": "localhost"}, true},
		{sub, body{"common_name": "a b.example.com"}, false},
		{sub, body{"common_name": "a..example.com"}, false},
		{sub, body{"common_name": "*.*.example.com"}, false},
		{sub, body{"common_name": "a.*.example.com"}, false},
		{sub, body{"common_name": "*"}, false},
		{sub, body{}, false},
		{sub, body{"common_name": "a.example.com", "uri_sans": "spiffe://x/y"}, false},
		{sub, body{"common_name": "a.example.com", "other_sans": "1.3.6.1.4.1.311.20.2.3;UTF8:x"}, false},
		{sub, body{"common_name": "a.example.com", "serial_number": "7"}, false},
		{sub, body{"common_name": "a.example.com", "user_ids": "u"}, false},
		{body{"allowed_domains": "example.com", "allow_subdomains": true, "allow_wildcard_certificates": false},
			body{"common_name": "*.example.com"}, false},
		{body{"allowed_domains": "example.com", "allow_bare_domains": true}, body{"common_name": "example.com"}, true},
		{body{"allowed_domains": "example.com", "allow_bare_domains": true}, body{"common_name": "a.example.com"}, false},
		{body{"allowed_domains": "example.com", "allow_bare_domains": true}, body{"common_name": "x@example.com"}, true},
		{body{"allowed_domains": "x@example.com"}, body{"common_name": "x@example.com"}, true},
		{body{"allowed_domains": "x@example.com"}, body{"common_name": "y@example.com"}, false},
		{body{"allowed_domains": "f*.example.com", "allow_glob_domains": true}, body{"common_name": "foo.example.com"}, true},
		{body{"allowed_domains": "f*.example.com", "allow_glob_domains": true}, body{"common_name": "bar.example.com"},
			false},
		{body{"allowed_domains": "f*.example.com"}, body{"common_name": "foo.example.com"}, false},
		{body{"allow_localhost": false}, body{"common_name": "localhost"}, false},
		{body{"allow_any_name": true}, body{"common_name": "anything.at.all"}, true},
		{body{"allow_any_name": true}, body{"common_name": "not a host"}, false},
		{body{"allow_any_name": true, "enforce_hostnames": false}, body{"common_name": "not a host"}, true},
		{body{"allow_any_name": true, "require_cn": false}, body{"alt_names": "a.b"}, true},
		{body{"allow_any_name": true, "cn_validations": "email"}, body{"common_name": "a.b"}, false},
		{body{"allow_any_name": true, "cn_validations": "disabled", "enforce_hostnames": true}, body{"common_name": "My CA!"},
			true},
		{body{"allow_any_name": true, "allow_ip_sans": false}, body{"common_name": "a.b", "ip_sans": "1.2.3.4"}, false},
		{body{"allow_any_name": true}, body{"common_name": "a.b", "ip_sans": "1.2.3"}, false},
		{body{"allow_any_name": true, "allowed_ip_sans_cidr": "10.0.0.0/8"},
			body{"common_name": "a.b", "ip_sans": "10.2.3.4"}, true},
		{body{"allow_any_name": true, "allowed_ip_sans_cidr": "10.0.0.0/8"},
			body{"common_name": "a.b", "ip_sans": "11.2.3.4"}, false},
		{body{"allow_any_name": true, "allowed_uri_sans": "spiffe://x/*"},
			body{"common_name": "a.b", "uri_sans": "spiffe://x/y"}, true},
		{body{"allow_any_name": true, "allowed_uri_sans": "spiffe://x/*"},
			body{"common_name": "a.b", "uri_sans": "spiffe://z/y"}, false},
		{body{"allow_any_name": true, "allowed_other_sans": "1.2.3;UTF8:a*"},
			body{"common_name": "a.b", "other_sans": "1.2.3;UTF8:abc"}, true},
		{body{"allow_any_name": true, "allowed_other_sans": "1.2.3;UTF8:a*"},
			body{"common_name": "a.b", "other_sans": "1.2.3;UTF8:bc"}, false},
		{body{"allow_any_name": true, "allowed_serial_numbers": "7*"}, body{"common_name": "a.b", "serial_number": "77"},
			true},
		{body{"allow_any_name": true, "allowed_user_ids": "*"}, body{"common_name": "a.b", "user_ids": "u"}, true},
	} {
		d := withRoot(t)
		role := body{"key_type": "ec"}
		for k, v := range c.role {
			role[k] = v
		}
		d.OK(secrets.Update, "roles/r", role)
		_, err := d.Ask(secrets.Update, "issue/r", c.ask)
		if (err == nil) != c.allows || (err != nil && !errkind.Is(err, errkind.Invalid)) {
			t.Errorf("%d: %v asks for %v: %v", i, c.role, c.ask, err)
		}
	}
}

// A request (CSR) brings no name past its role. GHSA-g892-p242-8g86, CVE-2026-115369: its IP addresses did, past
// allowed_ip_sans_cidr.
func TestCVE_2026_115369_SignChecksTheRequest(t *testing.T) {
	d := withRoot(t)
	d.OK(secrets.Update, "roles/web", body{"allowed_domains": "example.com", "allow_subdomains": true, "key_type": "ec",
		"allow_ip_sans": false})
	d.OK(secrets.Update, "roles/net", body{"allowed_domains": "example.com", "allow_subdomains": true, "key_type": "ec",
		"allowed_ip_sans_cidr": "10.0.0.0/8"})
	d.OK(secrets.Update, "roles/own", body{"allowed_domains": "example.com", "allow_subdomains": true, "key_type": "ec",
		"use_csr_sans": false, "use_csr_common_name": false})
	d.OK(secrets.Update, "roles/rsa", body{"allow_any_name": true})
	evil, _ := url.Parse("spiffe://evil/x")
	name := pkix.Name{CommonName: "a.example.com"}
	others, err := forms.MarshalSANs(&forms.Names{Others: []forms.OtherName{{Type: "1.2.3", Value: "evil"}}})
	if err != nil {
		t.Fatal(err)
	}
	for what, q := range map[string]*x509.CertificateRequest{
		"an address": {Subject: name, IPAddresses: []net.IP{net.IPv4(192, 168, 0, 1)}},
		"a URI":      {Subject: name, URIs: []*url.URL{evil}},
		"a DNS name": {Subject: name, DNSNames: []string{"evil.org"}},
		"a mailbox":  {Subject: name, EmailAddresses: []string{"x@evil.org"}},
		"an other":   {Subject: name, ExtraExtensions: []forms.Extension{{Id: forms.OIDSAN, Value: others}}},
		"a name":     {Subject: pkix.Name{CommonName: "evil.org"}},
		"a serial":   {Subject: pkix.Name{CommonName: "a.example.com", SerialNumber: "7"}},
		"a user id": {Subject: pkix.Name{CommonName: "a.example.com",
			ExtraNames: []pkix.AttributeTypeAndValue{{Type: forms.OIDUserID, Value: "root"}}}},
		"a foreign IP": {Subject: name, IPAddresses: []net.IP{net.IPv4(11, 0, 0, 1)}},
	} {
		csr := request(t, q)
		for _, role := range []string{"web", "net"} {
			d.Refused(errkind.Invalid, "", secrets.Update, "sign/"+role, body{"csr": csr})
		}
		if what == "a serial" || what == "a user id" {
			continue
		}
		got := d.OK(secrets.Update, "sign/own", body{"csr": csr, "common_name": "b.example.com"})
		if leaf := cert(t, got.Text("certificate")); fmt.Sprint(leaf.DNSNames) != "[b.example.com]" || len(leaf.IPAddresses)+
			len(leaf.URIs)+len(leaf.EmailAddresses) > 0 || leaf.Subject.CommonName != "b.example.com" {
			t.Errorf("%s came through: %v %v", what, leaf.DNSNames, leaf.IPAddresses)
		}
	}
	good := request(t, &x509.CertificateRequest{Subject: name, DNSNames: []string{"b.example.com"},
		IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}})
	got := d.OK(secrets.Update, "sign/net", body{"csr": good})
	if leaf := cert(t, got.Text("certificate")); len(leaf.IPAddresses) != 1 || len(leaf.DNSNames) != 2 ||
		got["private_key"] != nil {
		t.Errorf("signed: %v %v", leaf.DNSNames, leaf.IPAddresses)
	}
	d.Refused(errkind.Invalid, "keys of type rsa", secrets.Update, "sign/rsa", body{"csr": good})
	block, _ := pem.Decode([]byte(good))
	block.Bytes[len(block.Bytes)-1] ^= 1
	for _, csr := range []string{"", "x", string(pem.EncodeToMemory(block)), good + good} {
		d.Refused(errkind.Invalid, "", secrets.Update, "sign/net", body{"csr": csr})
	}
	ca := request(t, &x509.CertificateRequest{Subject: name,
		ExtraExtensions: []forms.Extension{{Id: forms.OIDBasicConstraints, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}}})
	d.Refused(errkind.Invalid, "refusing to generate CA certificate", secrets.Update, "sign-verbatim", body{"csr": ca})
	if leaf := cert(t, d.OK(secrets.Update, "sign/net", body{"csr": ca}).Text("certificate")); leaf.IsCA {
		t.Error("a role made an authority")
	}
	verbatim := cert(t, d.OK(secrets.Update, "sign-verbatim",
		body{"csr": request(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "Any One", Country: []string{"DE"}},
			URIs: []*url.URL{evil}}), "ttl": "1h"}).Text("certificate"))
	if verbatim.Subject.CommonName != "Any One" || verbatim.Subject.Country[0] != "DE" || len(verbatim.URIs) != 1 ||
		verbatim.IsCA || verbatim.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Errorf("verbatim: %v %v", verbatim.Subject, verbatim.URIs)
	}
	d.Refused(errkind.Invalid, "issuers alone", secrets.Update, "sign-verbatim",
		body{"csr": good, "key_usage": "CertSign"})
}

// Name constraints of an issuer hold for what it issues, not for verifiers alone.
func TestNameConstraints(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "root/generate/internal", body{"common_name": "root", "key_type": "ec", "ttl": "8760h",
		"permitted_dns_domains": "example.com", "permitted_ip_ranges": "10.0.0.0/8", "max_path_length": 1})
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	d.OK(secrets.Update, "issue/any", body{"common_name": "a.example.com", "ip_sans": "10.1.1.1"})
	d.Refused(errkind.Invalid, "would not verify", secrets.Update, "issue/any", body{"common_name": "a.example.org"})
	d.Refused(errkind.Invalid, "would not verify", secrets.Update, "issue/any",
		body{"common_name": "a.example.com", "ip_sans": "11.1.1.1"})
	d.Refused(errkind.Invalid, "would not verify", secrets.Update, "sign-verbatim",
		body{"csr": request(t, &x509.CertificateRequest{DNSNames: []string{"evil.org"}})})

	sub := newDesk(t)
	csr := sub.OK(secrets.Update, "intermediate/generate/internal", body{"common_name": "The Sub", "key_type": "ec"})
	d.Refused(errkind.Invalid, "path length", secrets.Update, "root/sign-intermediate",
		body{"csr": csr.Text("csr"), "common_name": "The Sub", "max_path_length": 1})
	signed := d.OK(secrets.Update, "root/sign-intermediate", body{"csr": csr.Text("csr"), "common_name": "The Sub",
		"ttl": "4000h"})
	if c := cert(t, signed.Text("certificate")); !c.IsCA || !c.MaxPathLenZero {
		t.Errorf("its path length is %d", c.MaxPathLen)
	}
	sub.OK(secrets.Update, "intermediate/set-signed",
		body{"certificate": signed.Text("certificate") + "\n" + signed.Text("issuing_ca")})
	sub.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	sub.Refused(errkind.Invalid, "would not verify", secrets.Update, "issue/any", body{"common_name": "a.example.org"})
	got := sub.OK(secrets.Update, "issue/any", body{"common_name": "a.example.com"})
	if len(got["ca_chain"].([]any)) != 2 {
		t.Errorf("the chain: %v", got["ca_chain"])
	}
	if err := verify(t, sub, cert(t, got.Text("certificate")), signed.Text("issuing_ca"),
		signed.Text("certificate")); err != nil {
		t.Error(err)
	}
}

func TestTTLs(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "root/generate/internal", body{"common_name": "root", "key_type": "ec", "ttl": "100h"})
	d.OK(secrets.Update, "roles/r", body{"allow_any_name": true, "key_type": "ec", "ttl": "1h", "max_ttl": "50h",
		"not_before_duration": "2m"})
	for ask, want := range map[string]time.Duration{"": time.Hour, "2h": 2 * time.Hour, "90h": 50 * time.Hour,
		"3600": time.Hour} {
		b := body{"common_name": "a.b"}
		if ask != "" {
			b["ttl"] = ask
		}
		leaf := cert(t, d.OK(secrets.Update, "issue/r", b).Text("certificate"))
		if got := leaf.NotAfter.Sub(d.Now()); got != want || d.Now().Sub(leaf.NotBefore) != 2*time.Minute {
			t.Errorf("ttl %q: %v", ask, got)
		}
	}
	end := d.Now().Add(5 * time.Hour).Format(time.RFC3339)
	if leaf := cert(t, d.OK(secrets.Update, "issue/r",
		body{"common_name": "a.b", "not_after": end}).Text("certificate")); leaf.NotAfter.Sub(d.Now()) != 5*time.Hour {
		t.Errorf("not_after: %v", leaf.NotAfter)
	}
	d.Refused(errkind.Invalid, "past", secrets.Update, "issue/r",
		body{"common_name": "a.b", "not_after": "2001-01-01T00:00:00Z"})
	d.OK(secrets.Update, "roles/long", body{"allow_any_name": true, "key_type": "ec", "ttl": "200h"})
	d.Refused(errkind.Invalid, "beyond the expiration of the CA certificate", secrets.Update, "issue/long",
		body{"common_name": "a.b"})
	for behaviour, want := range map[string]time.Duration{"truncate": 100 * time.Hour, "permit": 200 * time.Hour} {
		d.OK(secrets.Patch, "issuer/default", body{"leaf_not_after_behavior": behaviour})
		if leaf := cert(t, d.OK(secrets.Update, "issue/long",
			body{"common_name": "a.b"}).Text("certificate")); leaf.NotAfter.Sub(d.Now()) != want {
			t.Errorf("%s: %v", behaviour, leaf.NotAfter.Sub(d.Now()))
		}
	}
	d.Wait(101 * time.Hour)
	d.Refused(errkind.Invalid, "has expired", secrets.Update, "issue/long", body{"common_name": "a.b"})
}

func TestRoles(t *testing.T) {
	d := withRoot(t)
	d.OK(secrets.Update, "roles/r", body{"allowed_domains": "a.b,c.d", "key_usage": "DigitalSignature",
		"ext_key_usage": "EmailProtection", "policy_identifiers": "1.2.3.4", "key_type": "ec", "allow_bare_domains": true})
	r := d.OK(secrets.Read, "roles/r", nil)
	if fmt.Sprint(r["allowed_domains"]) != "[a.b c.d]" || r["key_bits"] != 256.0 || r["allow_localhost"] != true ||
		r["not_before_duration"] != 30.0 || r["issuer_ref"] != "default" {
		t.Errorf("the role reads %v", r)
	}
	d.OK(secrets.Patch, "roles/r", body{"ttl": "30m"})
	if r := d.OK(secrets.Read, "roles/r", nil); r["ttl"] != 1800.0 || fmt.Sprint(r["allowed_domains"]) != "[a.b c.d]" {
		t.Errorf("patched: %v", r)
	}
	leaf := cert(t, d.OK(secrets.Update, "issue/r", body{"common_name": "a.b"}).Text("certificate"))
	if leaf.KeyUsage != x509.KeyUsageDigitalSignature || len(leaf.ExtKeyUsage) != 3 || len(leaf.Policies) != 1 ||
		leaf.Policies[0].String() != "1.2.3.4" {
		t.Errorf("%v %v %v", leaf.KeyUsage, leaf.ExtKeyUsage, leaf.Policies)
	}
	d.OK(secrets.Update, "roles/r", body{"key_type": "any"})
	if r := d.OK(secrets.Read, "roles/r", nil); r["ttl"] != 0.0 || len(r["allowed_domains"].([]any)) != 0 {
		t.Errorf("written anew: %v", r)
	}
	d.Refused(errkind.Invalid, "only signing", secrets.Update, "issue/r", body{"common_name": "localhost"})
	for field, bad := range map[string]any{"key_type": "dsa", "key_bits": 1024, "ttl": "x", "key_usage": "CertSign",
		"ext_key_usage": "Nothing", "policy_identifiers": "x", "signature_bits": 100,
		"allowed_other_sans": "x", "allowed_ip_sans_cidr": "x", "cn_validations": "x", "not_after": "tomorrow"} {
		d.Refused(errkind.Invalid, "", secrets.Update, "roles/bad", body{field: bad})
	}
	d.Refused(errkind.Invalid, "must be less than", secrets.Update, "roles/bad", body{"ttl": "2h", "max_ttl": "1h"})
	if l := d.OK(secrets.List, "roles/", nil); fmt.Sprint(l["keys"]) != "[r]" {
		t.Errorf("roles: %v", l)
	}
	d.OK(secrets.Delete, "roles/r", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "roles/r", nil)
	d.Refused(errkind.NotFound, "", secrets.List, "roles/", nil)
	d.Refused(errkind.Conflict, "unsupported operation", secrets.Read, "issue/r", nil)
	d.Refused(errkind.NotFound, "unsupported path", secrets.Read, "no/such/path", nil)
}

func crlOf(t testing.TB, d *enginetest.Desk, path string) *x509.RevocationList {
	t.Helper()
	l, err := x509.ParseRevocationList(d.Raw(secrets.Read, path, nil))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ocspOf(t testing.TB, d *enginetest.Desk, leaf, ca *x509.Certificate) *ocsp.Response {
	t.Helper()
	q, err := ocsp.CreateRequest(leaf, ca, nil)
	if err != nil {
		t.Fatal(err)
	}
	posted, err := ocsp.ParseResponseForCert(d.Raw(secrets.Update, "ocsp", q), leaf, ca)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ocsp.ParseResponseForCert(d.Raw(secrets.Read, "ocsp/"+base64.StdEncoding.EncodeToString(q), nil), leaf, ca)
	if err != nil || got.Status != posted.Status {
		t.Errorf("GET says %v (%v), POST %v", got, err, posted.Status)
	}
	return posted
}

func TestRevoke(t *testing.T) {
	for _, kind := range []string{"ec", "rsa", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			d := newDesk(t)
			root := cert(t, d.OK(secrets.Update, "root/generate/internal", body{"common_name": "root", "key_type": kind,
				"ttl": "8760h"}).Text("certificate"))
			d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
			d.OK(secrets.Update, "roles/unstored", body{"allow_any_name": true, "key_type": "ec", "no_store": true})
			if l := crlOf(t, d, "crl"); len(l.RevokedCertificateEntries) != 0 || l.CheckSignatureFrom(root) != nil {
				t.Errorf("the first list: %v", l.RevokedCertificateEntries)
			}
			one, two, three := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b"}),
				d.OK(secrets.Update, "issue/unstored", body{"common_name": "c.d"}),
				d.OK(secrets.Update, "issue/any", body{"common_name": "e.f"})
			signs := kind != "ed25519" // golang.org/x/crypto/ocsp does not sign with it
			if signs {
				if r := ocspOf(t, d, cert(t, one.Text("certificate")), root); r.Status != ocsp.Good {
					t.Errorf("OCSP of a good one: %v", r.Status)
				}
			}
			rv := d.OK(secrets.Update, "revoke", body{"serial_number": one.Text("serial_number")})
			if rv["revocation_time"] != float64(d.Now().Unix()) || rv.Text("state") != "revoked" {
				t.Errorf("revoked: %v", rv)
			}
			d.Refused(errkind.Invalid, "not found", secrets.Update, "revoke", body{"serial_number": two.Text("serial_number")})
			d.OK(secrets.Update, "revoke", body{"certificate": two.Text("certificate")})
			d.Wait(time.Minute)
			if again := d.OK(secrets.Update, "revoke",
				body{"serial_number": strings.ReplaceAll(one.Text("serial_number"), ":",
					"-")}); again["revocation_time"] != rv["revocation_time"] {
				t.Errorf("revoked again: %v", again)
			}
			d.Refused(errkind.Invalid, "does not match", secrets.Update, "revoke-with-key",
				body{"certificate": three.Text("certificate"), "private_key": one.Text("private_key")})
			d.OK(secrets.Update, "revoke-with-key", body{"certificate": three.Text("certificate"),
				"private_key": three.Text("private_key")})
			l := crlOf(t, d, "crl")
			if len(l.RevokedCertificateEntries) != 3 || l.CheckSignatureFrom(root) != nil || !l.ThisUpdate.Equal(d.Now()) ||
				l.NextUpdate.Sub(l.ThisUpdate) != 72*time.Hour {
				t.Errorf("the list: %v", l.RevokedCertificateEntries)
			}
			if l.RevokedCertificateEntries[0].SerialNumber.Cmp(cert(t, one.Text("certificate")).SerialNumber) != 0 {
				t.Error("the list names another certificate")
			}
			if signs {
				if r := ocspOf(t, d, cert(t, one.Text("certificate")), root); r.Status != ocsp.Revoked ||
					r.RevokedAt.Unix() != int64(rv["revocation_time"].(float64)) {
					t.Errorf("OCSP of a revoked one: %v", r)
				}
			}
			if r := d.OK(secrets.Read, "cert/"+one.Text("serial_number"), nil); r["revocation_time"] != rv["revocation_time"] {
				t.Errorf("cert reads %v", r)
			}
			if l := d.OK(secrets.List, "certs/revoked", nil); len(l["keys"].([]any)) != 3 {
				t.Errorf("revoked: %v", l)
			}
			d.Refused(errkind.Invalid, "its own CRL", secrets.Update, "revoke", body{"certificate": forms.CertPEM(root.Raw)})
			other := withRoot(t)
			other.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
			foreign := other.OK(secrets.Update, "issue/any", body{"common_name": "a.b"}).Text("certificate")
			d.Refused(errkind.Invalid, "no issuer of this mount", secrets.Update, "revoke", body{"certificate": foreign})
			for _, b := range []body{{}, {"serial_number": "xyz"}, {"certificate": "x"},
				{"serial_number": "aa", "certificate": "x"}} {
				d.Refused(errkind.Invalid, "", secrets.Update, "revoke", b)
			}
		})
	}
}

// A new engine over the same records (a restart, another active server) knows all that is revoked.
func TestListsAfterARestart(t *testing.T) {
	d := withRoot(t)
	d.OK(secrets.Update, "config/crl", body{"enable_delta": true})
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	revoke := func() {
		d.OK(secrets.Update, "revoke", body{"serial_number": d.OK(secrets.Update, "issue/any",
			body{"common_name": "a.b"}).Text("serial_number")})
	}
	for range 5 {
		revoke()
	}
	whole := crlOf(t, d, "crl")
	revoke()
	d.Wait(time.Second)
	delta := crlOf(t, d, "crl/delta")
	if len(whole.RevokedCertificateEntries) != 5 || len(delta.RevokedCertificateEntries) != 1 ||
		delta.Number.Cmp(whole.Number) <= 0 {
		t.Errorf("%d in the list, %d in the delta", len(whole.RevokedCertificateEntries),
			len(delta.RevokedCertificateEntries))
	}
	var base *big.Int
	for _, ext := range delta.Extensions {
		if ext.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 27}) && ext.Critical {
			base = new(big.Int).SetBytes(ext.Value[2:])
		}
	}
	if base == nil || base.Cmp(whole.Number) != 0 {
		t.Errorf("the delta is of %v, the list's number is %v", base, whole.Number)
	}
	old := d.Engine.(*Engine)
	d.Engine = New(old.cfg)
	d.Wait(time.Second)
	next := crlOf(t, d, "crl")
	if len(next.RevokedCertificateEntries) != 6 || next.Number.Cmp(delta.Number) <= 0 {
		t.Errorf("after the restart %d in the list, number %v after %v", len(next.RevokedCertificateEntries), next.Number,
			delta.Number)
	}
	// Entries of another writer, some of them late, are found by the engine that read before.
	revoke()
	d.Engine = old
	d.Wait(time.Minute)
	if l := crlOf(t, d, "crl"); len(l.RevokedCertificateEntries) != 7 {
		t.Errorf("the former engine's list has %d", len(l.RevokedCertificateEntries))
	}
	d.OK(secrets.Update, "config/crl", body{"auto_rebuild": true})
	was := crlOf(t, d, "crl")
	revoke()
	if l := crlOf(t, d, "crl"); l.Number.Cmp(was.Number) != 0 {
		t.Error("auto_rebuild signs before its time")
	}
	if l := crlOf(t, d, "crl/delta"); len(l.RevokedCertificateEntries) != 1 {
		t.Errorf("the first delta has %d", len(l.RevokedCertificateEntries))
	}
	revoke()
	if l := crlOf(t, d, "crl/delta"); len(l.RevokedCertificateEntries) != 1 {
		t.Errorf("a delta before its time has %d", len(l.RevokedCertificateEntries))
	}
	d.Wait(15 * time.Minute)
	if l := crlOf(t, d, "crl/delta"); len(l.RevokedCertificateEntries) != 2 {
		t.Errorf("the next delta has %d", len(l.RevokedCertificateEntries))
	}
	d.Wait(60 * time.Hour)
	if l := crlOf(t, d, "crl"); len(l.RevokedCertificateEntries) != 9 {
		t.Errorf("within the grace period the list has %d", len(l.RevokedCertificateEntries))
	}
	d.OK(secrets.Update, "config/crl", body{"disable": true, "auto_rebuild": false})
	if l := crlOf(t, d, "crl"); len(l.RevokedCertificateEntries) != 0 {
		t.Error("a disabled list has entries")
	}
	for _, b := range []body{{"expiry": "0s"}, {"auto_rebuild": true, "auto_rebuild_grace_period": "100h"},
		{"delta_rebuild_interval": "80h"}} {
		d.Refused(errkind.Invalid, "", secrets.Update, "config/crl", b)
	}
}

func TestOCSPRefuses(t *testing.T) {
	d := withRoot(t)
	for _, q := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte{0x30}, 5000)} {
		resp, err := d.Ask(secrets.Update, "ocsp", q)
		if err != nil || resp.Raw.Status != 400 {
			t.Errorf("%.10q: %v", q, err)
		}
	}
	other := cert(t, newDesk(t).OK(secrets.Update, "root/generate/internal",
		body{"common_name": "other", "key_type": "ec"}).Text("certificate"))
	q, err := ocsp.CreateRequest(other, other, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := d.Ask(secrets.Update, "ocsp", q); err != nil || resp.Raw.Status != 401 {
		t.Errorf("of another issuer: %v", err)
	}
	d.OK(secrets.Update, "config/crl", body{"ocsp_disable": true})
	if resp, err := d.Ask(secrets.Update, "ocsp", q); err != nil || resp.Raw.Status != 401 {
		t.Errorf("while it is off: %v", err)
	}
}

func TestIssuers(t *testing.T) {
	d := newDesk(t)
	if resp, err := d.Ask(secrets.Read, "ca/pem", nil); err != nil || resp.Raw.Status != 204 {
		t.Errorf("the certificate of no issuer: %v", err)
	}
	first := d.OK(secrets.Update, "root/generate/internal", body{"common_name": "one", "key_type": "ec",
		"issuer_name": "one", "key_name": "k1"})
	d.Refused(errkind.Invalid, "already in use", secrets.Update, "root/generate/internal",
		body{"common_name": "two", "key_type": "ec", "issuer_name": "one"})
	second := d.OK(secrets.Update, "root/rotate/internal", body{"common_name": "two", "key_type": "ec"})
	if string(d.Raw(secrets.Read, "ca/pem", nil)) != first.Text("certificate") ||
		string(d.Raw(secrets.Read, "issuer/next/pem", nil)) != second.Text("certificate") {
		t.Error("the issuers are mixed up")
	}
	if c := d.OK(secrets.Read, "config/issuers", nil); c.Text("default") != first.Text("issuer_id") {
		t.Errorf("the default: %v", c)
	}
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	if got := d.OK(secrets.Update, "issuer/next/issue/any",
		body{"common_name": "a.b"}); got.Text("issuing_ca") != second.Text("certificate") {
		t.Error("another issuer issued")
	}
	d.OK(secrets.Update, "root/replace", nil)
	old := d.OK(secrets.Update, "issuer/one/issue/any", body{"common_name": "a.b"})
	if got := d.OK(secrets.Update, "issue/any",
		body{"common_name": "a.b"}); got.Text("issuing_ca") != second.Text("certificate") {
		t.Error("the former default issued")
	}
	d.OK(secrets.Update, "revoke", body{"serial_number": old.Text("serial_number")})
	if a, b := crlOf(t, d, "crl"), crlOf(t, d, "issuer/one/crl/der"); len(a.RevokedCertificateEntries) != 0 ||
		len(b.RevokedCertificateEntries) != 1 {
		t.Errorf("the lists have %d and %d", len(a.RevokedCertificateEntries), len(b.RevokedCertificateEntries))
	}
	l := d.OK(secrets.List, "issuers/", nil)
	if info := l["key_info"].(map[string]any)[second.Text("issuer_id")].(map[string]any); len(l["keys"].([]any)) != 2 ||
		info["is_default"] != true || info["issuer_name"] != "next" {
		t.Errorf("issuers: %v", l)
	}
	d.OK(secrets.Update, "issuer/one", body{"issuer_name": "former", "usage": "read-only,crl-signing",
		"issuing_certificates": "http://x.y/z"})
	d.Refused(errkind.Invalid, "usage", secrets.Update, "issuer/former/issue/any", body{"common_name": "a.b"})
	d.Refused(errkind.Invalid, "unable to find PKI issuer", secrets.Read, "issuer/one", nil)
	for _, b := range []body{{"issuer_name": "default"}, {"issuer_name": "next"}, {"issuer_name": "a/b"}, {"usage": "all"},
		{"leaf_not_after_behavior": "x"}, {"manual_chain": "none"}, {"ocsp_servers": "x"}} {
		d.Refused(errkind.Invalid, "", secrets.Update, "issuer/former", b)
	}
	d.Refused(errkind.Invalid, "depends on it", secrets.Delete, "key/k1", nil)
	d.OK(secrets.Delete, "issuer/former", nil)
	d.OK(secrets.Delete, "key/k1", nil)
	if l := d.OK(secrets.List, "keys/", nil); len(l["keys"].([]any)) != 1 {
		t.Errorf("keys: %v", l)
	}
	d.OK(secrets.Update, "key/"+second.Text("key_id"), body{"key_name": "k2"})
	d.OK(secrets.Update, "root/generate/existing", body{"common_name": "three", "key_ref": "k2"})
	d.OK(secrets.Delete, "root", nil)
	d.Refused(errkind.Invalid, "no default issuer", secrets.Update, "issue/any", body{"common_name": "a.b"})
}

func TestImport(t *testing.T) {
	d := newDesk(t)
	root := newDesk(t).OK(secrets.Update, "root/generate/exported", body{"common_name": "root", "key_type": "ec"})
	bundle := root.Text("certificate") + "\n" + root.Text("private_key")
	d.Refused(errkind.Invalid, "not allowed by the path", secrets.Update, "issuers/import/cert",
		body{"pem_bundle": bundle})
	got := d.OK(secrets.Update, "config/ca", body{"pem_bundle": bundle})
	if len(got["imported_issuers"].([]any)) != 1 || len(got["imported_keys"].([]any)) != 1 ||
		got["mapping"].(map[string]any)[got["imported_issuers"].([]any)[0].(string)] != got["imported_keys"].([]any)[0] {
		t.Errorf("imported: %v", got)
	}
	if again := d.OK(secrets.Update, "issuers/import/bundle",
		body{"pem_bundle": bundle}); len(again["imported_issuers"].([]any)) != 0 ||
		len(again["existing_issuers"].([]any)) != 1 {
		t.Errorf("again: %v", again)
	}
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	leaf := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b"})
	d.Refused(errkind.Invalid, "no authority", secrets.Update, "issuers/import/cert",
		body{"pem_bundle": leaf.Text("certificate")})
	for _, b := range []string{"", "x", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----",
		leaf.Text("private_key") + "rubbish"} {
		d.Refused(errkind.Invalid, "", secrets.Update, "issuers/import/bundle", body{"pem_bundle": b})
	}
	other := withRoot(t)
	self := other.OK(secrets.Update, "root/sign-self-issued", body{"certificate": root.Text("certificate")})
	if c := cert(t, self.Text("certificate")); c.Subject.CommonName != "root" ||
		c.CheckSignatureFrom(cert(t, self.Text("issuing_ca"))) != nil {
		t.Errorf("signed %v by %v", c.Subject, c.Issuer)
	}
	if err := verify(t, d, cert(t, leaf.Text("certificate")), self.Text("issuing_ca"),
		self.Text("certificate")); err != nil {
		t.Errorf("by the other root: %v", err)
	}
	other.Refused(errkind.Invalid, "not a CA", secrets.Update, "root/sign-self-issued",
		body{"certificate": leaf.Text("certificate")})
	key := d.OK(secrets.Update, "keys/generate/exported", body{"key_type": "ed25519", "key_name": "own"})
	if k := d.OK(secrets.Update, "keys/import",
		body{"pem_bundle": key.Text("private_key")}); k.Text("key_id") != key.Text("key_id") {
		t.Errorf("a key that is there was imported: %v", k)
	}
	if csr := d.OK(secrets.Update, "intermediate/cross-sign",
		body{"common_name": "x", "key_ref": "own", "add_basic_constraints": true}); csr.Text("csr") == "" ||
		csr["private_key"] != nil {
		t.Errorf("cross-sign: %v", csr)
	}
}

func TestTidy(t *testing.T) {
	d := withRoot(t)
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec", "ttl": "1h"})
	for i := range 4 {
		got := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b"})
		if i%2 == 0 {
			d.OK(secrets.Update, "revoke", body{"serial_number": got.Text("serial_number")})
		}
	}
	d.OK(secrets.Update, "issue/any", body{"common_name": "a.b", "ttl": "500h"})
	if n := len(crlOf(t, d, "crl").RevokedCertificateEntries); n != 2 {
		t.Fatalf("%d revoked", n)
	}
	if resp, err := d.Ask(secrets.Update, "tidy", body{}); err != nil || resp.Status != 202 || len(resp.Warnings) != 1 {
		t.Errorf("a tidy of nothing: %+v, %v", resp, err)
	}
	if s := d.OK(secrets.Read, "tidy-status", nil); s.Text("state") != "Inactive" {
		t.Errorf("before: %v", s)
	}
	d.Wait(10 * time.Hour)
	resp, err := d.Ask(secrets.Update, "tidy", body{"tidy_cert_store": true, "tidy_revoked_certs": true,
		"safety_buffer": "2h"})
	if err != nil || resp.Status != 202 {
		t.Fatalf("%+v, %v", resp, err)
	}
	d.Tend()
	if s := d.OK(secrets.Read, "tidy-status", nil); s.Text("state") != "Finished" ||
		s["cert_store_deleted_count"] != 4.0 || s["revoked_cert_deleted_count"] != 2.0 || s["safety_buffer"] != 7200.0 {
		t.Errorf("after: %v", s)
	}
	if l := d.OK(secrets.List, "certs/", nil); len(l["keys"].([]any)) != 2 {
		t.Errorf("left: %v", l)
	}
	d.Refused(errkind.NotFound, "", secrets.List, "certs/revoked", nil)
	if n := len(crlOf(t, d, "crl").RevokedCertificateEntries); n != 0 {
		t.Errorf("%d on the list after tidying", n)
	}
	d.Refused(errkind.Invalid, "no tidy operations", secrets.Update, "config/auto-tidy", body{"enabled": true})
	d.OK(secrets.Update, "config/auto-tidy", body{"enabled": true, "tidy_cert_store": true, "interval_duration": "24h",
		"safety_buffer": "1h"})
	d.Wait(600 * time.Hour)
	d.Tend()
	if s := d.OK(secrets.Read, "tidy-status", nil); s["cert_store_deleted_count"] != 1.0 ||
		s["last_auto_tidy_finished"] == nil {
		t.Errorf("by itself: %v", s)
	}
	d.OK(secrets.Update, "tidy", body{"tidy_cert_store": true})
	if s := d.OK(secrets.Update, "tidy-cancel", nil); s.Text("state") != "Cancelled" {
		t.Errorf("cancelled: %v", s)
	}
}

func TestLeases(t *testing.T) {
	d := withRoot(t)
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec", "generate_lease": true, "ttl": "1h"})
	resp, err := d.Ask(secrets.Update, "issue/any", body{"common_name": "a.b"})
	if err != nil || resp.Lease == nil || resp.Lease.TTL != time.Hour || resp.Lease.Renewable {
		t.Fatalf("%+v, %v", resp, err)
	}
	d.Wait(400 * time.Millisecond)
	last, err := d.Ask(secrets.Update, "issue/any",
		body{"common_name": "a.b", "not_after": d.Now().Add(600 * time.Millisecond).Format(time.RFC3339)})
	if err != nil || last.Lease == nil || last.Lease.TTL != time.Second || last.Lease.MaxTTL != time.Second {
		t.Fatalf("of a certificate whose end is near: %+v, %v", last, err)
	}
	e := d.Engine.(*Engine)
	for range 2 { // twice is no error
		got, err := e.Revoke(context.Background(), d.Store, engine.Lease{Internal: resp.Lease.Internal})
		if err != nil {
			t.Fatal(err)
		}
		if got != nil {
			if err := d.Store.Commit(context.Background(), 0, got.Ops); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(crlOf(t, d, "crl").RevokedCertificateEntries); n != 1 {
		t.Errorf("%d on the list", n)
	}
	if _, err := e.Revoke(context.Background(), d.Store, engine.Lease{Internal: []byte("aa-bb")}); err != nil {
		t.Errorf("of a certificate that is gone: %v", err)
	}
}

func TestURLTemplates(t *testing.T) {
	d := newDesk(t)
	root := d.OK(secrets.Update, "root/generate/internal", body{"common_name": "root", "key_type": "ec"})
	d.OK(secrets.Update, "config/cluster", body{"path": "https://vault.example.com/v1/pki",
		"aia_path": "http://cdn.example.com"})
	d.OK(secrets.Update, "config/urls", body{"enable_templating": true,
		"issuing_certificates": "{{cluster_aia_path}}/issuer/{{issuer_id}}/der"})
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	leaf := cert(t, d.OK(secrets.Update, "issue/any", body{"common_name": "a.b"}).Text("certificate"))
	if want := "http://cdn.example.com/issuer/" + root.Text("issuer_id") + "/der"; leaf.IssuingCertificateURL[0] != want {
		t.Errorf("%v, want %s", leaf.IssuingCertificateURL, want)
	}
	d.Refused(errkind.Invalid, "invalid URL", secrets.Update, "config/urls",
		body{"enable_templating": false, "ocsp_servers": "nothing"})
	d.Refused(errkind.Invalid, "non-URL", secrets.Update, "config/cluster", body{"path": "nothing"})
}

// OpenSSL agrees: the chain, the list, the answer of OCSP.
func TestOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		loud.Skip(t, "openssl is not installed: certificates, lists and OCSP are not compared with it")
	}
	for _, kind := range []string{"ec", "rsa"} {
		d := newDesk(t)
		root := d.OK(secrets.Update, "root/generate/internal", body{"common_name": "root", "key_type": kind,
			"ttl": "8760h"}).Text("certificate")
		d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": kind, "allowed_other_sans": "*",
			"allowed_uri_sans": "*"})
		good := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b", "ip_sans": "::1", "uri_sans": "spiffe://x/y",
			"other_sans": "1.3.6.1.4.1.311.20.2.3;UTF8:me@x"}).Text("certificate")
		bad := d.OK(secrets.Update, "issue/any", body{"common_name": "c.d"}).Text("certificate")
		d.OK(secrets.Update, "revoke", body{"certificate": bad})
		dir := t.TempDir()
		q, err := ocsp.CreateRequest(cert(t, bad), cert(t, root), nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{"root.pem": []byte(root), "good.pem": []byte(good), "bad.pem": []byte(bad),
			"crl.pem": d.Raw(secrets.Read, "crl/pem", nil), "ocsp.der": d.Raw(secrets.Update, "ocsp", q)} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for args, want := range map[string]string{
			"verify -crl_check -CAfile root.pem -CRLfile crl.pem good.pem":                           "good.pem: OK",
			"verify -crl_check -CAfile root.pem -CRLfile crl.pem bad.pem":                            "certificate revoked",
			"ocsp -respin ocsp.der -issuer root.pem -cert bad.pem -CAfile root.pem -VAfile root.pem": "bad.pem: revoked",
			"x509 -in good.pem -noout -text":                                                         "URI:spiffe://x/y",
		} {
			cmd := exec.CommandContext(t.Context(), "openssl", strings.Fields(args)...)
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput() // its status is that of the verification
			if !strings.Contains(string(out), want) {
				t.Errorf("openssl %s: %s", args, out)
			}
		}
	}
}

func FuzzRequests(f *testing.F) {
	f.Add(request(f, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "a.b"}, DNSNames: []string{"*.x"}}))
	d := withRoot(f)
	d.OK(secrets.Update, "roles/r", body{"allowed_domains": "example.com", "allow_subdomains": true, "key_type": "any"})
	f.Add(d.OK(secrets.Update, "root/sign-self-issued",
		body{"certificate": string(d.Raw(secrets.Read, "ca/pem", nil))}).Text("certificate"))
	f.Fuzz(func(t *testing.T, text string) {
		for _, path := range []string{"sign/r", "sign-verbatim", "root/sign-intermediate", "revoke", "root/sign-self-issued",
			"issuers/import/bundle"} {
			b, err := json.Marshal(body{"csr": text, "certificate": text, "pem_bundle": text, "common_name": "a.example.com"})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := d.Engine.Handle(context.Background(), d.Store, &secrets.Request{Op: secrets.Update, Rest: path, Body: b,
				Now: d.Now()})
			if err != nil && !errkind.Is(err, errkind.Invalid) {
				t.Errorf("%s: %v", path, err)
			}
			if path == "sign/r" && err == nil {
				var out struct{ Certificate string }
				if err := json.Unmarshal(resp.Data, &out); err != nil {
					t.Fatal(err)
				}
				leaf := cert(t, out.Certificate)
				if leaf.IsCA {
					t.Error("an authority by a role")
				}
				for _, name := range leaf.DNSNames {
					if !strings.HasSuffix(strings.ToLower(strings.TrimSuffix(name, ".")), ".example.com") && name != "localhost" {
						t.Errorf("signed for %q", name)
					}
				}
			}
		}
		_, _ = d.Ask(secrets.Update, "ocsp", []byte(text))
	})
}

func BenchmarkIssue(b *testing.B) {
	for _, store := range []bool{true, false} {
		b.Run(fmt.Sprintf("stored=%v", store), func(b *testing.B) {
			d := withRoot(b)
			d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec", "no_store": !store})
			b.ReportAllocs()
			for b.Loop() {
				d.OK(secrets.Update, "issue/any", body{"common_name": "a.b"})
			}
		})
	}
}

func BenchmarkRevoke(b *testing.B) {
	d := withRoot(b)
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	for b.Loop() {
		b.StopTimer()
		got := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b"})
		b.StartTimer()
		d.OK(secrets.Update, "revoke", body{"serial_number": got.Text("serial_number")})
	}
}
