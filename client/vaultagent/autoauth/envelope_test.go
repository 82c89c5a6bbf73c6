package autoauth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
)

// opened is what the reader of a sink does with it.
func opened(t *testing.T, key *ecdh.PrivateKey, text []byte, aad string) (string, error) {
	t.Helper()
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	theirs, err := ecdh.X25519().NewPublicKey(e.Key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := key.ECDH(theirs)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := aead.Open(nil, e.Nonce, e.Payload, []byte(aad))
	return string(plain), err
}

// wrapped is how many tokens the server wrapped.
func (s *fakeServer) wrapped() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.asked {
		if strings.HasSuffix(one, " sys/wrapping/wrap") {
			n++
		}
	}
	return n
}

// TestEncryptedSinks: its reader alone opens a sink, which waits for the key; a wrapped token is encrypted too,
// and none is wrapped before there is a key, nor again for a sink that has one.
func TestEncryptedSinks(t *testing.T) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := json.Marshal(publicKey{key.PublicKey().Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	dh, plain, wrapped := filepath.Join(dir, "dh"), filepath.Join(dir, "plain"), filepath.Join(dir, "wrapped")
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(string, string, any) (*vault.Answer, error) { return given("hidden-token", 0, false) }}
		a := started(t, s, func(c *Config) {
			c.Auth.Sinks = []agentconfig.Sink{{Path: plain, Mode: 0o600, DHPath: dh, AAD: "app"},
				{Path: wrapped, Mode: 0o600, DHPath: dh, WrapTTL: time.Minute},
				{Path: filepath.Join(dir, "open"), Mode: 0o600, WrapTTL: time.Minute}}
		})
		for _, text := range []string{"", "{}", `{"curve25519_public_key":"AAAA"}`} { // none, and no key
			if text != "" {
				if err := os.WriteFile(dh, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Minute)
			if _, err := os.Stat(plain); err == nil {
				t.Errorf("%q: the sink was written", text)
			}
		}
		if n := s.wrapped(); n != 1 {
			t.Errorf("%d tokens were wrapped while one sink waited for none and another for a key", n)
		}
		if err := os.WriteFile(dh, public, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		<-a.Delivered()
	})
	text, err := os.ReadFile(plain)
	if err != nil || strings.Contains(string(text), "hidden") {
		t.Fatalf("%s, %v", text, err)
	}
	if got, err := opened(t, key, text, "app"); err != nil || got != "hidden-token" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := opened(t, key, text, "another"); err == nil {
		t.Error("it opens with other data beside it")
	}
	if _, err := opened(t, other, text, "app"); err == nil {
		t.Error("it opens with another key")
	}
	if text, err = os.ReadFile(wrapped); err != nil {
		t.Fatal(err)
	}
	if got, err := opened(t, key, text, ""); err != nil || !strings.HasPrefix(got, `{"token":"wrapped-60s"`) {
		t.Errorf("%q, %v", got, err)
	}
}
