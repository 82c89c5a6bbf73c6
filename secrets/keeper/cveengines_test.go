package keeper

import (
	"crypto/x509"
	"encoding/base64"
	"path/filepath"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/secrets"
)

// CVE-2024-5798: a role without audiences took tokens that were made for others.
func TestCVE_2024_5798_TokensForOthers(t *testing.T) {
	h, i := newHouse(t), jwkstest.New(t, "ES256")
	h.ok(secrets.Update, "sys/auth/jwt", `{"type":"jwt"}`)
	h.ok(secrets.Update, "auth/jwt/config", text(t, map[string]any{"jwt_validation_pubkeys": i.PublicKey()}))
	h.ok(secrets.Update, "auth/jwt/role/any", `{"role_type":"jwt","user_claim":"sub","bound_subject":"job-1"}`)
	h.ok(secrets.Update, "auth/jwt/role/ours", `{"role_type":"jwt","user_claim":"sub","bound_audiences":"vault"}`)
	for role, list := range map[string][]any{"any": {"other", []string{"other"}, []string{"vault", "other"}},
		"ours": {"other", []string{"other"}, nil, "vault.example", "VAULT", ""}} {
		for _, audience := range list {
			if _, err := h.jwt(role, i.Sign(h.claims(map[string]any{"aud": audience}))); err == nil {
				t.Errorf("role %s took a token for %v", role, audience)
			}
		}
	}
	for role, audience := range map[string]any{"any": nil, "ours": []string{"other", "vault"}} {
		if _, err := h.jwt(role, i.Sign(h.claims(map[string]any{"aud": audience}))); err != nil {
			t.Errorf("role %s refused a token for %v: %v", role, audience, err)
		}
	}
}

// CVE-2024-2048, CVE-2025-6037: a trusted certificate that is no authority was compared by parts of it, or let others
// in.
func TestCVE_2024_2048_LeafsAreComparedWhole(t *testing.T) {
	h := newHouse(t)
	ca, other := newSigner(t, h.now), newSigner(t, h.now)
	h.ok(secrets.Update, "sys/auth/cert", `{"type":"cert"}`)
	trusted := ca.leaf(nil)
	h.ok(secrets.Update, "auth/cert/certs/web",
		text(t, map[string]any{"certificate": pemOf(trusted.Raw), "token_policies": "app"}))
	alike := func(c *x509.Certificate) {
		c.SerialNumber, c.Subject, c.SubjectKeyId, c.DNSNames = trusted.SerialNumber, trusted.Subject, trusted.SubjectKeyId,
			trusted.DNSNames
	}
	for what, c := range map[string]*x509.Certificate{"a twin of another authority": other.leaf(alike),
		"a twin of the same authority": ca.leaf(alike), "its sister": ca.leaf(nil)} {
		if _, err := h.shows("", c, "auth/cert/login", `{"name":"web"}`); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s logged in: %v", what, err)
		}
	}
	if _, err := h.shows("", trusted, "auth/cert/login", `{"name":"web"}`); err != nil {
		t.Error(err)
	}
}

// CVE-2023-4680: whoever encrypted chose the nonce, and with it could read what others had encrypted.
func TestCVE_2023_4680_NoncesAreNotTheCallers(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/mounts/transit", `{"type":"transit"}`)
	h.ok(secrets.Update, "transit/keys/plain", `{}`)
	h.ok(secrets.Update, "transit/keys/convergent", `{"derived":true,"convergent_encryption":true}`)
	b64 := base64.StdEncoding.EncodeToString
	for key, more := range map[string]string{"plain": "", "convergent": `,"context":"` + b64([]byte("c")) + `"`} {
		seen := map[string]string{}
		for _, plaintext := range []string{"one", "two"} {
			r, err := h.as(h.root, secrets.Update, "transit/encrypt/"+key, `{"plaintext":"`+b64([]byte(plaintext))+`","nonce":"`+
				b64(make([]byte, 12))+`"`+more+`}`)
			if err != nil {
				continue // refused is fine
			}
			raw, err := base64.StdEncoding.DecodeString(string(r.Data)[len(`{"ciphertext":"vault:v1:`):][:16])
			if err != nil {
				t.Fatal(err)
			}
			nonce := string(raw[:12])
			if nonce == string(make([]byte, 12)) || seen[nonce] != "" {
				t.Errorf("%s: the caller's nonce was used", key)
			}
			seen[nonce] = plaintext
		}
	}
}

// CVE-2025-12044: bodies were read before the rate limit was asked.
func TestCVE_2025_12044_LimitsComeFirst(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/quotas/rate-limit/kv", `{"rate":1,"interval":"1h","path":"secret"}`)
	_ = h.from("1.2.3.4", secrets.Read, "secret/a")
	q := &secrets.Request{Op: secrets.Update, Path: "secret/a", Caller: secrets.Caller{Token: h.root}, Body: []byte(`{"a":[[[[`)}
	if err := h.from("1.2.3.4", secrets.Read, "secret/a"); !errkind.Is(err, errkind.Overloaded) {
		t.Fatal(err)
	}
	_, _ = h.Handle(t.Context(), q)
	if _, err := h.Handle(t.Context(), &secrets.Request{Op: secrets.Update, Path: "secret/a",
		Caller: secrets.Caller{Token: h.root},
		Body:   []byte(`{"a":[[[[`)}); !errkind.Is(err, errkind.Overloaded) {
		t.Errorf("a body that is no JSON past the limit: %v", err)
	}
}

// CVE-2024-8365: tokens and accessors stood in the audit log as they were.
func TestCVE_2024_8365_TokensAreHashed(t *testing.T) {
	h := newHouse(t)
	h.audits.Config.Rules.Folder = t.TempDir()
	log := filepath.Join(h.audits.Config.Rules.Folder, "a.log")
	t.Cleanup(h.Seal)
	h.ok(secrets.Update, "sys/audit/file", text(t,
		map[string]any{"type": "file", "options": map[string]string{"file_path": log}}))
	made := h.ok(secrets.Update, "auth/token/create", `{"policies":["default"]}`).Token
	for _, path := range []string{"lookup", "renew"} {
		h.ok(secrets.Update, "auth/token/"+path, `{"token":"`+made.ID+`"}`)
		h.ok(secrets.Update, "auth/token/"+path+"-accessor", `{"accessor":"`+made.Accessor+`"}`)
	}
	h.ok(secrets.Update, "sys/capabilities", `{"token":"`+made.ID+`","path":"secret/a"}`)
	h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+made.ID+`"}`)
	if lines := logged(t, log, made.ID, made.Accessor, h.root); len(lines) < 12 {
		t.Errorf("only %d lines", len(lines))
	}
}

// CVE-2022-25243: wildcard certificates were issued by roles that do not allow them.
func TestCVE_2022_25243_WildcardsAskTheRole(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/mounts/pki", `{"type":"pki"}`)
	h.ok(secrets.Update, "pki/root/generate/internal", `{"common_name":"root","key_type":"ec"}`)
	h.ok(secrets.Update, "pki/roles/r", `{"allowed_domains":"example.com","allow_subdomains":true,`+
		`"allow_bare_domains":true,"allow_glob_domains":true,"allow_wildcard_certificates":false,"key_type":"ec"}`)
	for _, name := range []string{"*.example.com", "*.a.example.com", "*"} {
		for _, body := range []string{`{"common_name":"` + name + `"}`, `{"common_name":"a.example.com","alt_names":"` +
			name + `"}`} {
			h.refused(errkind.Invalid, h.root, secrets.Update, "pki/issue/r", body)
		}
	}
	h.ok(secrets.Update, "pki/issue/r", `{"common_name":"a.example.com"}`)
}
