package keeper

import (
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
)

func TestMatches(t *testing.T) {
	for path, want := range map[string]bool{"ca": true, "ca/pem": false, "cert/x": true, "cert/x/y": true,
		"issuer/x/pem": true, "issuer//pem": false, "issuer/x/y/pem": false, "issuer/x": false, "issuer/x/pem/": false} {
		if got := engine.Matches([]string{"ca", "cert/*", "issuer/+/pem"}, path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}

// Certificates by the keeper: open paths, leases, work that nobody asks for, and nothing while sealed.
func TestPKI(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/mounts/pki", `{"type":"pki"}`)
	h.ok(secrets.Update, "pki/root/generate/internal", `{"common_name":"root","key_type":"ec"}`)
	h.ok(secrets.Update, "pki/roles/any", `{"allow_any_name":true,"key_type":"ec","ttl":"1h","generate_lease":true}`)
	for _, path := range []string{"pki/ca/pem", "pki/crl", "pki/issuer/default/pem"} {
		if r, err := h.as("", secrets.Read, path, ""); err != nil || r.Raw == nil {
			t.Errorf("%s without a token: %v", path, err)
		}
	}
	h.refused(errkind.Denied, "", secrets.List, "pki/certs/", "")
	h.refused(errkind.Denied, "", secrets.Read, "pki/roles/any", "")
	h.refused(errkind.Denied, "", secrets.Update, "pki/issue/any", `{"common_name":"a.b"}`)
	r := h.ok(secrets.Update, "pki/issue/any", `{"common_name":"a.b"}`)
	if r.Lease == nil || !strings.HasPrefix(r.Lease.ID, "pki/issue/any/") || r.Lease.Renewable {
		t.Fatalf("the lease: %+v", r.Lease)
	}
	h.ok(secrets.Update, "sys/leases/revoke", `{"lease_id":"`+r.Lease.ID+`"}`)
	if l := h.ok(secrets.List, "pki/certs/revoked/", ""); !strings.Contains(string(l.Data),
		field(t, r, "serial_number").(string)) {
		t.Errorf("revoked: %s", l.Data)
	}
	h.ok(secrets.Update, "pki/tidy", `{"tidy_cert_store":true,"tidy_revoked_certs":true,"safety_buffer":"1s"}`)
	h.wait(2 * time.Hour)
	for range 2 {
		if _, err := h.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := h.ok(secrets.Read, "pki/tidy-status", ""); field(t, s, "state") != "Finished" ||
		field(t, s, "revoked_cert_deleted_count") != 1.0 {
		t.Errorf("tidied: %s", s.Data)
	}
	h.Seal()
	if _, err := h.as("", secrets.Read, "pki/ca/pem", ""); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("while sealed: %v", err)
	}
	if n, err := h.Tend(t.Context()); n != 0 || err != nil {
		t.Errorf("work while sealed: %d, %v", n, err)
	}
}

// Who may update and not create makes no key by encrypting.
func TestTransit(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/mounts/transit", `{"type":"transit"}`)
	h.ok(secrets.Update, "sys/policy/use", `{"policy":"path \"transit/encrypt/*\" { capabilities = [\"update\"] }"}`)
	h.ok(secrets.Update, "sys/policy/make",
		`{"policy":"path \"transit/encrypt/*\" { capabilities = [\"create\", \"update\"] }"}`)
	use, make := h.token(`{"policies":["use"]}`), h.token(`{"policies":["make"]}`)
	h.refused(errkind.Denied, use, secrets.Update, "transit/encrypt/k", `{"plaintext":"eA=="}`)
	if _, err := h.as(make, secrets.Update, "transit/encrypt/k", `{"plaintext":"eA=="}`); err != nil {
		t.Fatal(err)
	}
	r, err := h.as(use, secrets.Update, "transit/encrypt/k", `{"plaintext":"eA=="}`)
	if err != nil {
		t.Fatal(err)
	}
	h.refused(errkind.Denied, make, secrets.Update, "transit/decrypt/k",
		`{"ciphertext":"`+field(t, r, "ciphertext").(string)+`"}`)
	h.Seal()
	h.refused(errkind.Unavailable, h.root, secrets.Update, "transit/decrypt/k",
		`{"ciphertext":"`+field(t, r, "ciphertext").(string)+`"}`)
	h.unseal()
	if r := h.ok(secrets.Update, "transit/decrypt/k", `{"ciphertext":"`+field(t, r, "ciphertext").(string)+`"}`); field(t,
		r, "plaintext") != "eA==" {
		t.Errorf("after the seal: %s", r.Data)
	}
}
