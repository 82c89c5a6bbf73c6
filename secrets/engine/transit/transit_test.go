package transit

import (
	"bytes"
	"context"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/enginetest"
	"corbel.dev/corbel/secrets/storage"
)

type body = map[string]any

func newDesk(t testing.TB) *enginetest.Desk {
	return enginetest.New(t, &Engine{Keys: limit.NewGate(limit.GateConfig{Slots: 2, MaxWaiting: 64})}, "transit/")
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func bytesOf(t testing.TB, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return b
}

// encryptOnce encrypts and gives the ciphertext.
func encryptOnce(d *enginetest.Desk, name string, b body) string {
	d.T.Helper()
	return d.OK(secrets.Update, "encrypt/"+name, b).Text("ciphertext")
}

func TestEncrypt(t *testing.T) {
	for _, kind := range []string{"aes128-gcm96", "aes256-gcm96", "chacha20-poly1305", "xchacha20-poly1305", "rsa-2048"} {
		t.Run(kind, func(t *testing.T) {
			d := newDesk(t)
			d.Refused(errkind.Invalid, "encryption key not found", secrets.Update, "encrypt/k", body{"plaintext": b64("x")})
			d.OK(secrets.Update, "keys/k", body{"type": kind})
			d.OK(secrets.Update, "keys/other", body{"type": kind})
			for _, plain := range []string{"", "hello", strings.Repeat("x", 150)} {
				one, two := encryptOnce(d, "k", body{"plaintext": b64(plain)}), encryptOnce(d, "k", body{"plaintext": b64(plain)})
				if one == two || !strings.HasPrefix(one, "vault:v1:") {
					t.Errorf("%q and %q", one, two)
				}
				if got := d.OK(secrets.Update, "decrypt/k", body{"ciphertext": one}); got.Text("plaintext") != b64(plain) {
					t.Errorf("%q came back as %v", plain, got)
				}
				d.Refused(errkind.Invalid, "unable to decrypt", secrets.Update, "decrypt/other", body{"ciphertext": one})
				raw := bytesOf(t, strings.TrimPrefix(one, "vault:v1:"))
				raw[len(raw)-1] ^= 1
				d.Refused(errkind.Invalid, "unable to decrypt", secrets.Update, "decrypt/k",
					body{"ciphertext": "vault:v1:" + encode(raw)})
			}
			if k := d.OK(secrets.Read, "keys/k", nil); k.Text("type") != kind || k["latest_version"] != 1.0 ||
				k["supports_encryption"] != true || k["min_decryption_version"] != 1.0 {
				t.Errorf("the key reads %v", k)
			}
		})
	}
	d := newDesk(t)
	d.OK(secrets.Update, "keys/k", nil)
	for text, why := range map[string]string{"": "missing ciphertext", "x": "no prefix", "vault:v1": "wrong number",
		"vault:vx:AA": "could not be decoded", "vault:v-1:AA": "could not be decoded",
		"vault:v1:!": "base64", "vault:v1:AA==": "length", "vault:v2:AAAA": "too new",
		"vault:v99999999999999999999:AA": "could not be decoded"} {
		d.Refused(errkind.Invalid, why, secrets.Update, "decrypt/k", body{"ciphertext": text})
	}
	for _, b := range []body{{}, {"plaintext": "!"}, {"plaintext": "AA==", "nonce": "AAAA"},
		{"plaintext": "AA==", "key_version": 2}, {"plaintext": "AA==", "key_version": -1},
		{"plaintext": "AA==", "associated_data": "!"}} {
		d.Refused(errkind.Invalid, "", secrets.Update, "encrypt/k", b)
	}
}

// What we make others open, and the other way round: nonce, ciphertext, tag.
func TestCiphertextForm(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "keys/k", body{"exportable": true})
	raw := bytesOf(t, d.OK(secrets.Read, "export/encryption-key/k/latest", nil)["keys"].(map[string]any)["1"].(string))
	block, err := aes.NewCipher(raw)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	ours := bytesOf(t, strings.TrimPrefix(encryptOnce(d, "k",
		body{"plaintext": b64("hello"), "associated_data": b64("aad")}), "vault:v1:"))
	if plain, err := gcm.Open(nil, ours[:12], ours[12:], []byte("aad")); err != nil || string(plain) != "hello" {
		t.Errorf("ours: %q, %v", plain, err)
	}
	nonce := []byte("twelve bytes")
	theirs := encode(gcm.Seal(nonce, nonce, []byte("theirs"), nil))
	for _, prefix := range []string{"vault:v1:", "vault:v0:"} {
		if got := d.OK(secrets.Update, "decrypt/k",
			body{"ciphertext": prefix + theirs}); got.Text("plaintext") != b64("theirs") {
			t.Errorf("theirs: %v", got)
		}
	}
	d.Refused(errkind.Invalid, "unable to decrypt", secrets.Update, "decrypt/k",
		body{"ciphertext": "vault:v1:" + theirs, "associated_data": b64("x")})
}

// No nonce comes twice, whoever asks, and also not when the record is parsed anew.
func TestNoncesAreUnique(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "keys/k", nil)
	var mu sync.Mutex
	seen := map[string]bool{}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range 500 {
				resp, err := d.Ask(secrets.Update, "encrypt/k", body{"plaintext": ""})
				if err != nil {
					t.Error(err)
					return
				}
				var out struct{ Ciphertext string }
				if err := json.Unmarshal(resp.Data, &out); err != nil {
					t.Error(err)
					return
				}
				raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(out.Ciphertext, "vault:v1:"))
				mu.Lock()
				if n := string(raw[:12]); seen[n] {
					t.Errorf("the nonce %x came twice", n)
				} else {
					seen[n] = true
				}
				mu.Unlock()
				if i%100 == 0 {
					if _, err := d.Ask(secrets.Update, "keys/k/config", body{"deletion_allowed": i%200 == 0}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	workers.Wait()
	if len(seen) != 4000 {
		t.Errorf("%d nonces", len(seen))
	}
	var n nonces // the counter is never used up with the prefix that it had
	var first, last, next [12]byte
	n.next(first[:])
	n.count = 1<<32 - 2
	n.next(last[:])
	n.next(next[:])
	if binary.BigEndian.Uint32(last[8:]) != 1<<32-1 || !bytes.Equal(first[:8], last[:8]) ||
		bytes.Equal(last[:8], next[:8]) || binary.BigEndian.Uint32(next[8:]) != 1 {
		t.Errorf("%x %x %x", first, last, next)
	}
}

func TestVersions(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "keys/k", nil)
	first := encryptOnce(d, "k", body{"plaintext": b64("one")})
	for range 3 {
		d.OK(secrets.Update, "keys/k/rotate", nil)
	}
	if text := encryptOnce(d, "k", body{"plaintext": b64("x")}); !strings.HasPrefix(text, "vault:v4:") {
		t.Errorf("after three rotations: %s", text)
	}
	if text := encryptOnce(d, "k", body{"plaintext": b64("x"), "key_version": 2}); !strings.HasPrefix(text, "vault:v2:") {
		t.Errorf("by an older version: %s", text)
	}
	again := d.OK(secrets.Update, "rewrap/k", body{"ciphertext": first})
	if !strings.HasPrefix(again.Text("ciphertext"), "vault:v4:") || again["key_version"] != 4.0 ||
		again["plaintext"] != nil {
		t.Errorf("rewrapped: %v", again)
	}
	if got := d.OK(secrets.Update, "decrypt/k",
		body{"ciphertext": again.Text("ciphertext")}); got.Text("plaintext") != b64("one") {
		t.Errorf("after rewrap: %v", got)
	}
	d.Refused(errkind.Invalid, "minimum encryption version is not set", secrets.Update, "keys/k/trim",
		body{"min_available_version": 2})
	d.OK(secrets.Update, "keys/k/config", body{"min_decryption_version": 2, "min_encryption_version": 3})
	d.Refused(errkind.Invalid, "too old", secrets.Update, "decrypt/k", body{"ciphertext": first})
	d.Refused(errkind.Invalid, "less than the minimum", secrets.Update, "encrypt/k",
		body{"plaintext": "", "key_version": 2})
	for _, b := range []body{{"min_decryption_version": 5}, {"min_encryption_version": 5}, {"min_encryption_version": 1},
		{"min_encryption_version": -1}, {"auto_rotate_period": "1m"}, {"min_decryption_version": "x"}} {
		d.Refused(errkind.Invalid, "", secrets.Update, "keys/k/config", b)
	}
	d.Refused(errkind.Invalid, "cannot be higher", secrets.Update, "keys/k/trim", body{"min_available_version": 3})
	d.OK(secrets.Update, "keys/k/trim", body{"min_available_version": 2})
	d.Refused(errkind.Invalid, "cannot be decremented", secrets.Update, "keys/k/trim", body{"min_available_version": 1})
	d.Refused(errkind.Invalid, "min available", secrets.Update, "keys/k/config", body{"min_decryption_version": 1})
	if k := d.OK(secrets.Read, "keys/k", nil); len(k["keys"].(map[string]any)) != 3 || k["min_available_version"] != 2.0 {
		t.Errorf("trimmed: %v", k)
	}
	d.Refused(errkind.Invalid, "deletion is not allowed", secrets.Delete, "keys/k", nil)
	d.OK(secrets.Update, "keys/k/config", body{"deletion_allowed": true})
	d.OK(secrets.Delete, "keys/k", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "keys/k", nil)
	d.Refused(errkind.NotFound, "", secrets.List, "keys/", nil)
	d.Refused(errkind.Invalid, "not found", secrets.Update, "decrypt/k", body{"ciphertext": first})
}

func TestDerived(t *testing.T) {
	for _, kind := range []string{"aes256-gcm96", "chacha20-poly1305", "aes128-gcm96"} {
		d := newDesk(t)
		d.OK(secrets.Update, "keys/k", body{"type": kind, "derived": true})
		d.Refused(errkind.Invalid, "missing 'context'", secrets.Update, "encrypt/k", body{"plaintext": b64("x")})
		text := encryptOnce(d, "k", body{"plaintext": b64("x"), "context": b64("a")})
		if got := d.OK(secrets.Update, "decrypt/k",
			body{"ciphertext": text, "context": b64("a")}); got.Text("plaintext") != b64("x") {
			t.Errorf("%v", got)
		}
		d.Refused(errkind.Invalid, "unable to decrypt", secrets.Update, "decrypt/k",
			body{"ciphertext": text, "context": b64("b")})
		d.Refused(errkind.Invalid, "missing 'context'", secrets.Update, "decrypt/k", body{"ciphertext": text})

		d.OK(secrets.Update, "keys/c", body{"type": kind, "derived": true, "convergent_encryption": true})
		same := body{"plaintext": b64("x"), "context": b64("a")}
		one := encryptOnce(d, "c", same)
		if two := encryptOnce(d, "c", same); one != two {
			t.Errorf("the same comes out as %s and %s", one, two)
		}
		for _, b := range []body{{"plaintext": b64("y"), "context": b64("a")}, {"plaintext": b64("x"), "context": b64("b")},
			{"plaintext": b64("x"), "context": b64("a"), "associated_data": b64("d")}} {
			other := encryptOnce(d, "c", b)
			if bytes.Equal(bytesOf(t, one[9:])[:12], bytesOf(t, other[9:])[:12]) {
				t.Errorf("%v shares its nonce with another message", b)
			}
		}
		if got := d.OK(secrets.Update, "decrypt/c",
			body{"ciphertext": one, "context": b64("a")}); got.Text("plaintext") != b64("x") {
			t.Errorf("%v", got)
		}
	}
	d := newDesk(t)
	d.Refused(errkind.Invalid, "requires derivation", secrets.Update, "keys/k", body{"convergent_encryption": true})
	d.Refused(errkind.Invalid, "not supported", secrets.Update, "keys/k", body{"type": "rsa-2048", "derived": true})
	d.Refused(errkind.Invalid, "unknown key type", secrets.Update, "keys/k", body{"type": "des"})
	d.Refused(errkind.Invalid, "key_size", secrets.Update, "keys/k", body{"type": "hmac", "key_size": 16})
}

func TestBatch(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "keys/k", nil)
	got := d.OK(secrets.Update, "encrypt/k",
		body{
			"batch_input": []body{{"plaintext": b64("a"), "reference": "r1"}, {"plaintext": b64("b")}},
		})["batch_results"].([]any)
	if len(got) != 2 || got[0].(map[string]any)["reference"] != "r1" {
		t.Fatalf("%v", got)
	}
	input := []body{{"ciphertext": got[0].(map[string]any)["ciphertext"]}, {"ciphertext": "vault:v1:AAAA"}}
	resp, err := d.Ask(secrets.Update, "decrypt/k", body{"batch_input": input})
	if err != nil || resp.Status != 400 || !strings.Contains(string(resp.Data), `"plaintext":"`+b64("a")) ||
		!strings.Contains(string(resp.Data), `"error":"invalid ciphertext`) {
		t.Errorf("a part fails: %+v %v", resp, err)
	}
	if resp, err := d.Ask(secrets.Update, "decrypt/k",
		body{"batch_input": input, "partial_failure_response_code": 206}); err != nil || resp.Status != 206 {
		t.Errorf("with a status of its own: %+v %v", resp, err)
	}
	for _, b := range []any{[]body{}, "x", []string{"x"}} {
		d.Refused(errkind.Invalid, "", secrets.Update, "encrypt/k", body{"batch_input": b})
	}
}

// Who may create, makes the key by encrypting; of two at once none loses what it encrypted.
func TestUpsert(t *testing.T) {
	d := newDesk(t)
	e := d.Engine.(*Engine)
	ask := func(name string) (*secrets.Response, error) {
		return e.Handle(context.Background(), d.Store, &secrets.Request{Op: secrets.Create, Rest: "encrypt/" + name,
			Body: []byte(`{"plaintext":"` + b64("x") + `"}`), Now: d.Now()})
	}
	one, err := ask("new")
	if err != nil {
		t.Fatal(err)
	}
	two, err := ask("new") // before the first is stored
	if err != nil {
		t.Fatal(err)
	}
	for _, resp := range []*secrets.Response{one, two} {
		if err := d.Store.Commit(context.Background(), 0, resp.Ops); err != nil {
			t.Fatal(err)
		}
	}
	for _, resp := range []*secrets.Response{one, two} {
		var out struct{ Ciphertext string }
		if err := json.Unmarshal(resp.Data, &out); err != nil {
			t.Fatal(err)
		}
		if got := d.OK(secrets.Update, "decrypt/new", body{"ciphertext": out.Ciphertext}); got.Text("plaintext") != b64("x") {
			t.Errorf("%v", got)
		}
	}
	if exists, ok, err := e.Exists(context.Background(), d.Store, &secrets.Request{Rest: "encrypt/none"}); exists || !ok ||
		err != nil {
		t.Error("a key that is not there exists")
	}
	d.OK(secrets.Update, "config/keys", body{"disable_upsert": true})
	if _, err := ask("other"); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with upsert switched off: %v", err)
	}
}

func TestSign(t *testing.T) {
	for _, kind := range []string{"ed25519", "ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "rsa-2048"} {
		t.Run(kind, func(t *testing.T) {
			d := newDesk(t)
			d.OK(secrets.Update, "keys/k", body{"type": kind})
			d.OK(secrets.Update, "keys/other", body{"type": kind})
			k := d.OK(secrets.Read, "keys/k", nil)["keys"].(map[string]any)["1"].(map[string]any)
			digest := sha256.Sum256([]byte("hello"))
			for _, m := range []body{{}, {"marshaling_algorithm": "jws"}, {"signature_algorithm": "pkcs1v15"},
				{"hash_algorithm": "sha2-512"}, {"salt_length": "hash"}, {"prehashed": true, "input": encode(digest[:])},
				{"hash_algorithm": "none", "signature_algorithm": "pkcs1v15", "prehashed": true, "input": encode(digest[:])}} {
				if (m["prehashed"] != nil && kind == "ed25519") || (m["hash_algorithm"] == "none" && kind != "rsa-2048") {
					continue
				}
				b := body{"input": b64("hello")}
				for name, v := range m {
					b[name] = v
				}
				got := d.OK(secrets.Update, "sign/k", b)
				b["signature"] = got.Text("signature")
				if v := d.OK(secrets.Update, "verify/k", b); v["valid"] != true {
					t.Errorf("%v: its own signature is not good", m)
				}
				if v := d.OK(secrets.Update, "verify/other", b); v["valid"] != false {
					t.Errorf("%v: another key's signature is good", m)
				}
				if m["prehashed"] == nil {
					b["input"] = b64("hellO")
					if v := d.OK(secrets.Update, "verify/k", b); v["valid"] != false {
						t.Errorf("%v: the signature is good for something else", m)
					}
				}
			}
			sig := bytesOf(t, strings.TrimPrefix(d.OK(secrets.Update, "sign/k/sha2-256",
				body{"input": b64("hello")}).Text("signature"), "vault:v1:"))
			public := k["public_key"].(string)
			if kind == "ed25519" {
				if !ed25519.Verify(bytesOf(t, public), []byte("hello"), sig) {
					t.Error("crypto/ed25519 does not verify it")
				}
				return
			}
			block, _ := pem.Decode([]byte(public))
			parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			switch p := parsed.(type) {
			case *ecdsa.PublicKey:
				if !ecdsa.VerifyASN1(p, digest[:], sig) {
					t.Error("crypto/ecdsa does not verify it")
				}
				jws, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(d.OK(secrets.Update, "sign/k",
					body{"input": b64("hello"), "marshaling_algorithm": "jws"}).Text("signature"), "vault:v1:"))
				half := len(jws) / 2
				if err != nil || !ecdsa.Verify(p, digest[:], new(big.Int).SetBytes(jws[:half]), new(big.Int).SetBytes(jws[half:])) {
					t.Errorf("the form of JWS: %v", err)
				}
			case *rsa.PublicKey:
				if rsa.VerifyPSS(p, crypto.SHA256, digest[:], sig, nil) != nil {
					t.Error("crypto/rsa does not verify it")
				}
			}
		})
	}
	d := newDesk(t)
	d.OK(secrets.Update, "keys/k", body{"type": "ecdsa-p256"})
	d.OK(secrets.Update, "keys/e", body{"type": "ed25519", "derived": true})
	d.OK(secrets.Update, "keys/a", nil)
	for path, b := range map[string]body{"sign/a": {"input": ""}, "encrypt/k": {"plaintext": ""},
		"sign/none": {"input": ""}, "sign/k": {}, "sign/k/md5": {"input": ""}, "verify/k": {"input": ""},
		"verify/k/sha2-256": {"input": "", "signature": "x"}, "sign/e": {"input": ""}} {
		d.Refused(errkind.Invalid, "", secrets.Update, path, b)
	}
	for name, v := range map[string]any{"marshaling_algorithm": "x", "signature_algorithm": "x", "salt_length": "x",
		"prehashed": true, "hash_algorithm": "none", "key_version": 2} {
		d.Refused(errkind.Invalid, "", secrets.Update, "sign/k", body{"input": b64("hello"), name: v})
	}
	got := d.OK(secrets.Update, "sign/e", body{"input": b64("hello"), "context": b64("c")})
	if v := d.OK(secrets.Update, "verify/e", body{"input": b64("hello"), "context": b64("c"),
		"signature": got.Text("signature")}); v["valid"] != true || !ed25519.Verify(bytesOf(t, got.Text("public_key")),
		[]byte("hello"), bytesOf(t, got.Text("signature")[9:])) {
		t.Errorf("a derived key: %v", v)
	}
	if v := d.OK(secrets.Update, "verify/e", body{"input": b64("hello"), "context": b64("d"),
		"signature": got.Text("signature")}); v["valid"] != false {
		t.Error("a signature is good in another context")
	}
}

func TestHMACHashRandom(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "keys/k", body{"type": "hmac", "key_size": 64, "exportable": true})
	raw := bytesOf(t, d.OK(secrets.Read, "export/hmac-key/k", nil)["keys"].(map[string]any)["1"].(string))
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte("hello"))
	got := d.OK(secrets.Update, "hmac/k", body{"input": b64("hello")}).Text("hmac")
	if len(raw) != 64 || got != "vault:v1:"+encode(mac.Sum(nil)) {
		t.Errorf("%d bytes, %s", len(raw), got)
	}
	for text, want := range map[string]bool{got: true, "vault:v1:AAAA": false} {
		if v := d.OK(secrets.Update, "verify/k", body{"input": b64("hello"), "hmac": text}); v["valid"] != want {
			t.Errorf("%s: %v", text, v)
		}
	}
	if got := d.OK(secrets.Update, "hmac/k/sha2-512", body{"input": b64("hello")}).Text("hmac"); len(bytesOf(t,
		got[9:])) != 64 {
		t.Errorf("sha2-512: %s", got)
	}
	if s := d.OK(secrets.Update, "hash", body{"input": b64("abc")}); s.Text(
		"sum") != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("hash: %v", s)
	}
	if s := d.OK(secrets.Update, "hash/sha3-256",
		body{"input": b64("abc"), "format": "hex"}); s.Text(
		"sum") != "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532" {
		t.Errorf("sha3: %v", s)
	}
	if r := d.OK(secrets.Update, "random/16", body{"format": "hex"}); len(r.Text("random_bytes")) != 32 {
		t.Errorf("random: %v", r)
	}
	if r := d.OK(secrets.Update, "random", nil); len(bytesOf(t, r.Text("random_bytes"))) != 32 {
		t.Errorf("random: %v", r)
	}
	for _, path := range []string{"random/0", "random/999999999", "random/moon"} {
		d.Refused(errkind.Invalid, "", secrets.Update, path, nil)
	}
	d.OK(secrets.Update, "keys/e", nil)
	for kind, bits := range map[string]int{"plaintext": 512, "wrapped": 128} {
		k := d.OK(secrets.Update, "datakey/"+kind+"/e", body{"bits": bits})
		plain := d.OK(secrets.Update, "decrypt/e", body{"ciphertext": k.Text("ciphertext")}).Text("plaintext")
		if len(bytesOf(t, plain)) != bits/8 || (kind == "plaintext") != (k.Text("plaintext") == plain) {
			t.Errorf("%s: %v", kind, k)
		}
	}
	d.Refused(errkind.Invalid, "plaintext' or 'wrapped", secrets.Update, "datakey/x/e", nil)
	d.Refused(errkind.Invalid, "bit length", secrets.Update, "datakey/wrapped/e", body{"bits": 100})
	d.Refused(errkind.Conflict, "unsupported operation", secrets.Read, "encrypt/e", nil)
	d.Refused(errkind.NotFound, "unsupported path", secrets.Read, "nothing/e", nil)
}

func TestExportBackupRestore(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "keys/closed", nil)
	d.Refused(errkind.Invalid, "not exportable", secrets.Read, "export/encryption-key/closed", nil)
	d.Refused(errkind.Invalid, "disallowed", secrets.Read, "backup/closed", nil)
	d.OK(secrets.Update, "keys/k", body{"exportable": true, "allow_plaintext_backup": true})
	d.Refused(errkind.Invalid, "cannot be taken back", secrets.Update, "keys/k/config", body{"exportable": false})
	text := encryptOnce(d, "k", body{"plaintext": b64("x")})
	d.OK(secrets.Update, "keys/k/rotate", nil)
	saved := d.OK(secrets.Read, "backup/k", nil).Text("backup")
	d.Refused(errkind.Invalid, "already exists", secrets.Update, "restore", body{"backup": saved})
	d.OK(secrets.Update, "restore/copy", body{"backup": saved})
	if got := d.OK(secrets.Update, "decrypt/copy", body{"ciphertext": text}); got.Text("plaintext") != b64("x") {
		t.Errorf("after restore: %v", got)
	}
	other := newDesk(t)
	other.OK(secrets.Update, "restore", body{"backup": saved})
	other.OK(secrets.Update, "restore", body{"backup": saved, "force": true})
	if k := other.OK(secrets.Read, "keys/k", nil); k["latest_version"] != 2.0 {
		t.Errorf("restored: %v", k)
	}
	for _, bad := range []string{"", "x", b64("{}"),
		b64(`{"corbel_transit_backup":"1","key":{"type":"aes256-gcm96","latest":1,"versions":{"1":{"key":"AAAA"}}}}`)} {
		other.Refused(errkind.Invalid, "", secrets.Update, "restore/bad", body{"backup": bad})
	}
	d.OK(secrets.Update, "keys/s", body{"type": "ecdsa-p256", "exportable": true})
	if pub := d.OK(secrets.Read, "export/public-key/s/1",
		nil)["keys"].(map[string]any)["1"].(string); !strings.Contains(pub, "BEGIN PUBLIC KEY") {
		t.Errorf("the public half: %s", pub)
	}
	d.Refused(errkind.Invalid, "not available", secrets.Read, "export/encryption-key/s", nil)
	d.Refused(errkind.Invalid, "does not exist", secrets.Read, "export/signing-key/s/7", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "export/signing-key/none", nil)
}

// The vectors of RFC 5649.
func TestUnwrapKey(t *testing.T) {
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	kek := unhex("5840df6e29b02af1ab493b705bf16ea1ae8338f4dcc176a8")
	for wrapped, want := range map[string]string{
		"138bdeaa9b8fa7fc61f97742e72248ee5ae6ae5360d1ae6a5f54f373fa543b6a": "c37b7e6492584340bed12207808941155068f738",
		"afbeb0f07dfbf5419200f2ccb50bb24f":                                 "466f7250617369",
	} {
		if got, err := unwrapKey(kek, unhex(wrapped)); err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%x, %v", got, err)
		}
		bad := unhex(wrapped)
		bad[3] ^= 1
		if _, err := unwrapKey(kek, bad); err == nil {
			t.Error("a damaged key opens")
		}
	}
	for _, n := range []int{0, 8, 15, 17} {
		if _, err := unwrapKey(kek, make([]byte, n)); err == nil {
			t.Errorf("%d bytes open", n)
		}
	}
}

// wrapKey is RFC 5649 the other way, as who imports does it.
func wrapKey(t testing.TB, kek, plain []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(kek)
	if err != nil {
		t.Fatal(err)
	}
	a := append([]byte{0xa6, 0x59, 0x59, 0xa6}, binary.BigEndian.AppendUint32(nil, uint32(len(plain)))...)
	r := append([]byte{}, plain...)
	for len(r)%8 != 0 {
		r = append(r, 0)
	}
	if len(r) == 8 {
		out := append(a, r...)
		block.Encrypt(out, out)
		return out
	}
	buf := make([]byte, 16)
	n := len(r) / 8
	for j := range 6 {
		for i := 1; i <= n; i++ {
			copy(buf, a)
			copy(buf[8:], r[8*(i-1):8*i])
			block.Encrypt(buf, buf)
			binary.BigEndian.PutUint64(a, binary.BigEndian.Uint64(buf)^uint64(n*j+i))
			copy(r[8*(i-1):], buf[8:])
		}
	}
	return append(a, r...)
}

func TestImport(t *testing.T) {
	d := newDesk(t)
	d.Refused(errkind.Invalid, "wrapping_key", secrets.Update, "keys/k/import",
		body{"ciphertext": encode(make([]byte, 600))})
	// A smaller key in the place of the one of 4096 bits would not do; it is made once for the test.
	text := d.OK(secrets.Read, "wrapping_key", nil).Text("public_key")
	if again := d.OK(secrets.Read, "wrapping_key", nil).Text("public_key"); again != text {
		t.Error("the wrapping key changes")
	}
	block, _ := pem.Decode([]byte(text))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	wrap := func(raw []byte) string {
		kek := random(32)
		head, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, public.(*rsa.PublicKey), kek, nil)
		if err != nil {
			t.Fatal(err)
		}
		return encode(append(head, wrapKey(t, kek, raw)...))
	}
	raw := random(32)
	d.OK(secrets.Update, "keys/k/import", body{"ciphertext": wrap(raw), "exportable": true})
	if got := d.OK(secrets.Read, "export/encryption-key/k", nil)["keys"].(map[string]any)["1"]; got != encode(raw) {
		t.Errorf("imported %v", got)
	}
	first := encryptOnce(d, "k", body{"plaintext": b64("x")})
	d.Refused(errkind.Invalid, "does not allow rotation", secrets.Update, "keys/k/rotate", nil)
	d.Refused(errkind.Invalid, "existing key", secrets.Update, "keys/k/import", body{"ciphertext": wrap(raw)})
	d.OK(secrets.Update, "keys/k/import_version", body{"ciphertext": wrap(random(32))})
	if got := d.OK(secrets.Update, "rewrap/k", body{"ciphertext": first}); got["key_version"] != 2.0 {
		t.Errorf("after the second version: %v", got)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	d.OK(secrets.Update, "keys/s/import", body{"ciphertext": wrap(der), "type": "ed25519", "allow_rotation": true})
	sig := d.OK(secrets.Update, "sign/s", body{"input": b64("hello")}).Text("signature")
	if !ed25519.Verify(private.Public().(ed25519.PublicKey), []byte("hello"), bytesOf(t, sig[9:])) {
		t.Error("another key signed")
	}
	d.OK(secrets.Update, "keys/s/rotate", nil)
	for _, b := range []body{{"ciphertext": wrap(raw[:16])}, {"ciphertext": wrap(der), "type": "ecdsa-p256"},
		{"ciphertext": wrap([]byte("rubbish that is no key")), "type": "ed25519"}, {"ciphertext": encode(random(600))},
		{"ciphertext": "!"}, {}, {"ciphertext": wrap(raw), "hash_function": "MD5"}} {
		d.Refused(errkind.Invalid, "", secrets.Update, "keys/bad/import", b)
	}
	pub, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	d.OK(secrets.Update, "keys/p/import",
		body{"public_key": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})), "type": "ed25519"})
	if v := d.OK(secrets.Update, "verify/p", body{"input": b64("hello"), "signature": sig}); v["valid"] != true {
		t.Error("the public half does not verify")
	}
	d.Refused(errkind.Invalid, "is not here", secrets.Update, "sign/p", body{"input": b64("x")})
}

func TestAutoRotation(t *testing.T) {
	d := newDesk(t)
	d.Refused(errkind.Invalid, "at least an hour", secrets.Update, "keys/k", body{"auto_rotate_period": "10m"})
	d.OK(secrets.Update, "keys/k", body{"auto_rotate_period": "2h"})
	d.OK(secrets.Update, "keys/still", nil)
	d.Tend()
	d.Wait(2*time.Hour + time.Minute)
	d.Tend()
	if k := d.OK(secrets.Read, "keys/k", nil); k["latest_version"] != 2.0 || k["auto_rotate_period"] != 7200.0 {
		t.Errorf("after its period: %v", k)
	}
	d.Tend()
	d.Wait(time.Hour)
	d.OK(secrets.Update, "keys/k/rotate", nil)
	d.Wait(90 * time.Minute)
	d.Tend()
	if k := d.OK(secrets.Read, "keys/k", nil); k["latest_version"] != 3.0 {
		t.Errorf("by hand the period begins anew: %v", k)
	}
	d.OK(secrets.Update, "keys/k/config", body{"auto_rotate_period": 0})
	d.Wait(100 * time.Hour)
	d.Tend()
	if k := d.OK(secrets.Read, "keys/k", nil); k["latest_version"] != 3.0 {
		t.Errorf("switched off: %v", k)
	}
	left, err := d.Store.Scan(context.Background(), rotatePrefix, storage.After(rotatePrefix), 0)
	if err != nil || len(left) != 0 {
		t.Errorf("%v, %v is left", left, err)
	}
}

func FuzzCiphertext(f *testing.F) {
	d := newDesk(f)
	d.OK(secrets.Update, "keys/k", nil)
	d.OK(secrets.Update, "keys/s", body{"type": "ecdsa-p256"})
	good := encryptOnce(d, "k", body{"plaintext": b64("x")})
	f.Add(good)
	f.Add("vault:v1:")
	f.Add(d.OK(secrets.Update, "sign/s", body{"input": b64("x")}).Text("signature"))
	f.Fuzz(func(t *testing.T, text string) {
		for path, b := range map[string]body{"decrypt/k": {"ciphertext": text}, "rewrap/k": {"ciphertext": text},
			"verify/s": {"input": b64("y"), "signature": text},
			"verify/k": {"input": b64("x"), "hmac": text}, "restore/r": {"backup": text, "force": true}} {
			resp, err := d.Ask(secrets.Update, path, b)
			if err != nil && !errkind.Is(err, errkind.Invalid) {
				t.Errorf("%s %q: %v", path, text, err)
			}
			if err == nil && path == "verify/s" && strings.Contains(string(resp.Data), "true") {
				t.Errorf("%q is a signature of what was never signed", text)
			}
		}
	})
}

func BenchmarkTransit(b *testing.B) {
	d := newDesk(b)
	d.OK(secrets.Update, "keys/e", body{"type": "ed25519"})
	d.OK(secrets.Update, "keys/a", nil)
	for name, r := range map[string][2]string{"sign-ed25519": {"sign/e", `{"input":"aGVsbG8="}`},
		"encrypt": {"encrypt/a", `{"plaintext":"aGVsbG8="}`}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Ask(secrets.Update, r[0], []byte(r[1])); err != nil {
					b.Fatal(fmt.Errorf("%s: %w", name, err))
				}
			}
		})
	}
}
