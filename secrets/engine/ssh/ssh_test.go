package ssh

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
	xssh "golang.org/x/crypto/ssh"
)

type body = map[string]any

func newDesk(t testing.TB) *enginetest.Desk {
	return enginetest.New(t, &Engine{TTLs: func() (time.Duration, time.Duration) { return time.Hour, 24 * time.Hour },
		Hash: func(text string) string { return "h" + text }}, "ssh/")
}

// lines are public keys as users send them.
func line(t testing.TB, key any) string {
	t.Helper()
	pub, err := xssh.NewPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(xssh.MarshalAuthorizedKey(pub))
}

func edLine(t testing.TB) string {
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return line(t, pub)
}

// certOf reads a signed key.
func certOf(t testing.TB, d enginetest.Data) *xssh.Certificate {
	t.Helper()
	key, _, _, _, err := xssh.ParseAuthorizedKey([]byte(d.Text("signed_key")))
	if err != nil {
		t.Fatalf("%v: %v", d, err)
	}
	return key.(*xssh.Certificate)
}

// ready is a desk with an authority and a role.
func ready(t testing.TB, role body) (*enginetest.Desk, xssh.PublicKey) {
	d := newDesk(t)
	told := d.OK(secrets.Update, "config/ca", body{"key_type": "ed25519"})
	ca, _, _, _, err := xssh.ParseAuthorizedKey([]byte(told.Text("public_key")))
	if err != nil {
		t.Fatal(err)
	}
	role["key_type"] = "ca"
	d.OK(secrets.Update, "roles/r", role)
	return d, ca
}

// TestSign: a server that trusts the authority lets in who the certificate names, for as long as it says.
func TestSign(t *testing.T) {
	d, ca := ready(t, body{"allow_user_certificates": true, "allowed_users": "ann,bob", "default_user": "ann",
		"default_extensions": body{"permit-pty": ""}, "allowed_extensions": "permit-pty,permit-port-forwarding", "ttl": "30m",
		"max_ttl": "2h"})
	got := d.OK(secrets.Update, "sign/r", body{"public_key": edLine(t)})
	cert := certOf(t, got)
	checker := xssh.CertChecker{IsUserAuthority: func(k xssh.PublicKey) bool {
		return slices.Equal(k.Marshal(), ca.Marshal())
	}, Clock: d.Now}
	if err := checker.CheckCert("ann", cert); err != nil || !checker.IsUserAuthority(cert.SignatureKey) {
		t.Error(err)
	}
	if err := checker.CheckCert("bob", cert); err == nil {
		t.Error("bob came in with ann's certificate")
	}
	now := uint64(d.Now().Unix())
	if _, pty := cert.Extensions["permit-pty"]; !pty || cert.CertType != xssh.UserCert || cert.ValidBefore != now+1800 ||
		cert.ValidAfter != now-30 || !strings.HasPrefix(cert.KeyId, "vault-") {
		t.Errorf("%+v", cert)
	}
	if other := certOf(t, d.OK(secrets.Update, "sign/r", body{"public_key": edLine(t), "valid_principals": "bob",
		"ttl": "2h", "extensions": body{"permit-port-forwarding": ""}})); other.Serial == cert.Serial ||
		other.ValidPrincipals[0] != "bob" || len(other.Extensions) != 1 {
		t.Errorf("%+v", other)
	}
	for text, b := range map[string]body{
		"missing public_key":          {},
		"failed to parse public_key":  {"public_key": "ssh-ed25519 AAAA"},
		"it is a certificate":         {"public_key": got.Text("signed_key")},
		"eve is not a valid value":    {"valid_principals": "ann,eve"},
		"larger than maximum allowed": {"ttl": "3h"},
		"'host' is not allowed":       {"cert_type": "host"},
		"either 'user' or 'host'":     {"cert_type": "robot"},
		"not on allowed list":         {"extensions": body{"permit-agent-forwarding": ""}},
		"setting key_id":              {"key_id": "mine"},
		"field \"extensions\"":        {"extensions": 7},
	} {
		if _, has := b["public_key"]; !has && text != "missing public_key" {
			b["public_key"] = edLine(t)
		}
		d.Refused(errkind.Invalid, text, secrets.Update, "sign/r", b)
	}
	d.Refused(errkind.Invalid, "unknown role: no", secrets.Update, "sign/no", body{"public_key": edLine(t)})
}

// TestHosts: hosts are named by domain, bare or below it, and get no extensions.
func TestHosts(t *testing.T) {
	d, _ := ready(t, body{"allow_host_certificates": true, "allowed_domains": "example.com", "allow_subdomains": true})
	ask := func(name string) body {
		return body{"public_key": edLine(t), "cert_type": "host", "valid_principals": name}
	}
	if cert := certOf(t, d.OK(secrets.Update, "sign/r", ask("web.example.com"))); cert.CertType != xssh.HostCert ||
		len(cert.Extensions) != 0 {
		t.Errorf("%+v", cert)
	}
	for _, name := range []string{"example.com", "badexample.com", "example.com.evil.net"} {
		d.Refused(errkind.Invalid, "not a valid value", secrets.Update, "sign/r", ask(name))
	}
	d.Refused(errkind.Invalid, "empty valid principals", secrets.Update, "sign/r", ask(""))
}

// TestIssue: the key that is made fits its certificate, for each type.
func TestIssue(t *testing.T) {
	d, _ := ready(t, body{"allow_user_certificates": true, "allowed_users": "*", "allow_user_key_ids": true})
	for _, kind := range []string{"ed25519", "ec", "rsa"} {
		got := d.OK(secrets.Update, "issue/r", body{"key_type": kind, "valid_principals": "ann", "key_id": "of ann"})
		signer, err := xssh.ParsePrivateKey([]byte(got.Text("private_key")))
		if err != nil {
			t.Fatal(kind, err)
		}
		cert := certOf(t, got)
		if !slices.Equal(cert.Key.Marshal(), signer.PublicKey().Marshal()) || cert.KeyId != "of ann" {
			t.Errorf("%s: the certificate is of another key, or %q", kind, cert.KeyId)
		}
	}
	d.Refused(errkind.Invalid, "key_bits", secrets.Update, "issue/r", body{"key_type": "rsa", "key_bits": 512,
		"valid_principals": "a"})
	d.Refused(errkind.Invalid, "unknown key_type", secrets.Update, "issue/r", body{"key_type": "dsa",
		"valid_principals": "a"})
}

// TestKeyLengths: a role may refuse keys by type and size.
func TestKeyLengths(t *testing.T) {
	d, _ := ready(t, body{"allow_user_certificates": true, "allowed_users": "*", "default_user": "u",
		"allowed_user_key_lengths": body{"ec": "384", "rsa": "2048,4096"}})
	key := func(curve elliptic.Curve) string {
		made, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return line(t, made.Public())
	}
	d.OK(secrets.Update, "sign/r", body{"public_key": key(elliptic.P384())})
	d.Refused(errkind.Invalid, "invalid size: 256", secrets.Update, "sign/r", body{"public_key": key(elliptic.P256())})
	d.Refused(errkind.Invalid, "key type is not allowed: ed25519", secrets.Update, "sign/r",
		body{"public_key": edLine(t)})
	d.OK(secrets.Update, "issue/r", body{"key_type": "rsa"})
}

// someone is who asks, by the name ann.
type someone struct{}

func (someone) Variable(name string) (string, bool) { return "ann", name == "identity.entity.name" }

// TestTemplates: a role that names who asks lets each have a certificate of their own name alone.
func TestTemplates(t *testing.T) {
	d, _ := ready(t, body{"allow_user_certificates": true, "allowed_users": "{{identity.entity.name}}",
		"allowed_users_template": true, "default_user": "{{identity.entity.name}}", "default_extensions_template": true,
		"default_extensions": body{"login@example.com": "{{identity.entity.name}}", "gone@example.com": "{{nobody}}"}})
	ask := func(who secrets.Identity, principals string) (*secrets.Response, error) {
		raw := `{"public_key":` + quote(edLine(t)) + `,"valid_principals":"` + principals + `"}`
		return d.Engine.Handle(context.Background(), d.Store, &secrets.Request{Op: secrets.Update, Rest: "sign/r",
			Body: []byte(raw), Now: d.Now(), Caller: secrets.Caller{Who: who}})
	}
	resp, err := ask(someone{}, "")
	if err != nil || !strings.Contains(string(resp.Data), "signed_key") {
		t.Fatal(err)
	}
	if _, err := ask(someone{}, "bob"); err == nil {
		t.Error("ann got a certificate of bob")
	}
	if _, err := ask(nil, ""); err == nil {
		t.Error("nobody got a certificate")
	}
}

func quote(text string) string { return `"` + strings.TrimSpace(text) + `"` }

// TestAuthority: an authority is made or given once, and shown without its private key.
func TestAuthority(t *testing.T) {
	d := newDesk(t)
	d.Refused(errkind.Invalid, "haven't been configured", secrets.Read, "public_key", nil)
	d.Refused(errkind.Invalid, "key_type", secrets.Update, "config/ca", body{"key_type": "dsa"})
	made, err := newKey("ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	private, public, err := texts(made)
	if err != nil {
		t.Fatal(err)
	}
	d.Refused(errkind.Invalid, "do not belong", secrets.Update, "config/ca", body{"private_key": private,
		"public_key": edLine(t)})
	d.Refused(errkind.Invalid, "must not be set", secrets.Update, "config/ca", body{"private_key": private,
		"public_key": public, "generate_signing_key": true})
	d.Refused(errkind.Invalid, "both required", secrets.Update, "config/ca", body{"private_key": private})
	d.OK(secrets.Update, "config/ca", body{"private_key": private, "public_key": public})
	d.Refused(errkind.Invalid, "already configured", secrets.Update, "config/ca", body{})
	if got := d.Raw(secrets.Read, "public_key", nil); string(got) != public {
		t.Errorf("%s", got)
	}
	if got := d.OK(secrets.Read, "config/ca", nil); len(got) != 1 || got.Text("public_key") != public {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Delete, "config/ca", nil)
	d.Refused(errkind.Invalid, "haven't been configured", secrets.Read, "config/ca", nil)
}

// TestPasswords: a one-time password lets one in once, at the host that it was made for.
func TestPasswords(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "roles/o", body{"key_type": "otp", "default_user": "ubuntu", "cidr_list": "10.0.0.0/24",
		"exclude_cidr_list": "10.0.0.9/32", "allowed_users": "ann"})
	got := d.OK(secrets.Update, "creds/o", body{"ip": "10.0.0.7"})
	if got.Text("username") != "ubuntu" || got["port"] != 22.0 || got.Text("key_type") != "otp" {
		t.Errorf("%v", got)
	}
	told := d.OK(secrets.Update, "verify", body{"otp": got.Text("key")})
	if told.Text("username") != "ubuntu" || told.Text("ip") != "10.0.0.7" || told.Text("role_name") != "o" {
		t.Errorf("%v", told)
	}
	d.Refused(errkind.Invalid, "OTP not found", secrets.Update, "verify", body{"otp": got.Text("key")})
	if echo := d.OK(secrets.Update, "verify", body{"otp": verifyEcho}); echo.Text("message") != "verify-echo-response" {
		t.Error(echo)
	}
	for text, b := range map[string]body{
		"does not belong to role": {"ip": "10.0.0.9"},
		"IP 10.0.1.1 does not":    {"ip": "10.0.1.1"},
		"invalid IP":              {"ip": "web"},
		"username is not present": {"ip": "10.0.0.7", "username": "root"},
	} {
		d.Refused(errkind.Invalid, text, secrets.Update, "creds/o", b)
	}
	resp, err := d.Ask(secrets.Update, "creds/o", body{"ip": "10.0.0.7", "username": "ann"})
	if err != nil || resp.Lease == nil {
		t.Fatal(err)
	}
	ended, err := d.Engine.(engine.Leaser).Revoke(t.Context(), d.Store, engine.Lease{Internal: resp.Lease.Internal})
	if err != nil || d.Store.Commit(context.Background(), 0, ended.Ops) != nil {
		t.Fatal(err)
	}
	var key struct{ Key string }
	if err := json.Unmarshal(resp.Data, &key); err != nil {
		t.Fatal(err)
	}
	d.Refused(errkind.Invalid, "OTP not found", secrets.Update, "verify", body{"otp": key.Key})
	for ip, want := range map[string]int{"10.0.0.7": 1, "10.0.0.9": 0} {
		if roles := d.OK(secrets.Update, "lookup", body{"ip": ip})["roles"].([]any); len(roles) != want {
			t.Errorf("%s: %v", ip, roles)
		}
	}
}

// TestRoles: what a role must have, and how it is shown.
func TestRoles(t *testing.T) {
	d := newDesk(t)
	for text, b := range map[string]body{
		"missing key type":    {},
		"key_type must be":    {"key_type": "dynamic"},
		"either 'allow_user":  {"key_type": "ca"},
		`"ttl" value must be`: {"key_type": "ca", "allow_user_certificates": true, "ttl": "2h", "max_ttl": "1h"},
		"unknown algorithm":   {"key_type": "ca", "allow_user_certificates": true, "algorithm_signer": "md5"},
		"is no number of bits": {"key_type": "ca", "allow_user_certificates": true,
			"allowed_user_key_lengths": body{"rsa": "big"}},
		"missing default user":  {"key_type": "otp", "cidr_list": "10.0.0.0/8"},
		"cidr_list is required": {"key_type": "otp", "default_user": "u"},
		"failed to validate":    {"key_type": "otp", "default_user": "u", "cidr_list": "10.0.0.0"},
		"port must be from 1":   {"key_type": "otp", "default_user": "u", "cidr_list": "10.0.0.0/8", "port": 70000},
	} {
		d.Refused(errkind.Invalid, text, secrets.Update, "roles/r", b)
	}
	d.OK(secrets.Update, "roles/r", body{"key_type": "ca", "allow_user_certificates": "true", "allowed_users": "a,b",
		"default_extensions": body{"permit-pty": ""}})
	d.OK(secrets.Update, "roles/r", body{"ttl": "5m"}) // the rest stays
	got := d.OK(secrets.Read, "roles/r", nil)
	if got.Text("allowed_users") != "a,b" || got["ttl"] != 300.0 || got["not_before_duration"] != 30.0 ||
		got["allow_user_certificates"] != true || got.Text("algorithm_signer") != "default" {
		t.Errorf("%v", got)
	}
	list := d.OK(secrets.List, "roles", nil)
	if info := list["key_info"].(map[string]any); info["r"].(map[string]any)["key_type"] != "ca" {
		t.Error(list)
	}
	d.OK(secrets.Delete, "roles/r", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "roles/r", nil)
	d.Refused(errkind.NotFound, "unsupported path", secrets.Read, "roles/a/b", nil)
	d.Refused(errkind.Conflict, "unsupported operation", secrets.Delete, "sign/r", nil)
}
