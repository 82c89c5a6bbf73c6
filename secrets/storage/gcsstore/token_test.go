package gcsstore

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// authority grants tokens for assertions, as the token endpoint does.
type authority struct {
	key   *rsa.PublicKey
	clock clock.Clock
	url   string
	asked atomic.Int64
	fail  atomic.Int64 // the status that it answers with
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := a.asked.Add(1)
	if status := int(a.fail.Load()); status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
		return
	}
	if err := a.verify(r); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":"invalid_grant","error_description":%q}`, err.Error())
		return
	}
	fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":3599,"token_type":"Bearer"}`, n)
}

func (a *authority) verify(r *http.Request) error {
	if r.Method != http.MethodPost || r.FormValue("grant_type") != grantType {
		return fmt.Errorf("%s with the grant %q", r.Method, r.FormValue("grant_type"))
	}
	parts := strings.Split(r.FormValue("assertion"), ".")
	if len(parts) != 3 {
		return fmt.Errorf("%d parts", len(parts))
	}
	var raw [3][]byte
	for i, part := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return err
		}
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(a.key, crypto.SHA256, sum[:], raw[2]); err != nil {
		return err
	}
	var head struct{ Alg, Typ, Kid string }
	var claims struct {
		Iss, Scope, Aud string
		Iat, Exp        int64
	}
	if err := json.Unmarshal(raw[0], &head); err != nil {
		return err
	}
	if err := json.Unmarshal(raw[1], &claims); err != nil {
		return err
	}
	now := a.clock.Now().Unix()
	if head.Alg != "RS256" || head.Typ != "JWT" || head.Kid != "kid-1" || claims.Iss != "vault@example.com" ||
		claims.Scope != StorageScope || claims.Aud != a.url || claims.Iat != now || claims.Exp != now+3600 {
		return fmt.Errorf("head %+v, claims %+v", head, claims)
	}
	return nil
}

func accountFile(t *testing.T, key any, url string) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file, err := json.Marshal(account{"service_account", "vault@example.com", "kid-1",
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), url})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func grants(t *testing.T) (*authority, *Tokens, *clock.Fake) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	fake := clock.NewFake(time.Unix(1_800_000_000, 0))
	a := &authority{key: &key.PublicKey, clock: fake}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.url = server.URL + "/token"
	tokens, err := ServiceAccount(accountFile(t, key, a.url), StorageScope, fake)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.cl.CloseIdleConnections)
	return a, tokens, fake
}

func TestGrant(t *testing.T) {
	a, tokens, fake := grants(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if token, err := tokens.Get(t.Context()); err != nil || token != "token-1" {
				t.Errorf("%q, %v", token, err)
			}
		})
	}
	group.Wait()
	want := func(token string, asked int64) {
		t.Helper()
		got, err := tokens.Get(t.Context())
		if err != nil || got != token || a.asked.Load() != asked {
			t.Fatalf("%q after %d requests, %v; wanted %q after %d", got, a.asked.Load(), err, token, asked)
		}
	}
	want("token-1", 1) // one asked for all
	fake.Advance(3599*time.Second - tokenEarly - time.Second)
	want("token-1", 1)
	fake.Advance(time.Second)
	a.fail.Store(http.StatusServiceUnavailable)
	want("token-1", 2) // it still serves
	want("token-1", 2) // and nobody asks again at once
	fake.Advance(tokenAgain)
	want("token-1", 3)
	fake.Advance(tokenEarly - tokenAgain)
	if _, err := tokens.Get(t.Context()); !errkind.Is(err, errkind.Unavailable) {
		t.Fatal("a token that ended is used:", err)
	}
	a.fail.Store(http.StatusBadRequest)
	if _, err := tokens.Get(t.Context()); !errkind.Is(err, errkind.Denied) ||
		!strings.Contains(err.Error(), "invalid_grant: Invalid JWT Signature.") {
		t.Fatal(err)
	}
	a.fail.Store(0)
	want("token-6", 6)
}

// A token that the service no longer takes is replaced, once a request; without one nothing is sent.
func TestTokensOfRequests(t *testing.T) {
	a, tokens, _ := grants(t)
	s, b := start(t, tokens)
	s.token = "token-1"
	if err := b.Check(t.Context()); err != nil || a.asked.Load() != 1 {
		t.Fatal(a.asked.Load(), err)
	}
	s.token = "token-2"
	if err := b.Create(t.Context(), "k", []byte("1")); err != nil || a.asked.Load() != 2 ||
		string(s.objects["k"].data) != "1" {
		t.Fatal(a.asked.Load(), err)
	}
	s.token = "another"
	if err := b.Create(t.Context(), "l", nil); !errkind.Is(err, errkind.Denied) || a.asked.Load() != 3 {
		t.Fatal(a.asked.Load(), err)
	}
	tokens.Drop(t.Context(), "token-3")
	a.fail.Store(http.StatusInternalServerError)
	if err := b.Create(t.Context(), "l", nil); !errkind.Is(err, errkind.Unavailable) {
		t.Fatal("nothing was sent, and that is known:", err)
	}
}

// Who waits for another's request for a token does not wait longer than it may.
func TestAWaitEnds(t *testing.T) {
	_, tokens, _ := grants(t)
	tokens.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tokens.Get(ctx); !errkind.Is(err, errkind.Unavailable) {
		t.Fatal(err)
	}
	tokens.Drop(ctx, "")
}

func TestInstance(t *testing.T) {
	answer := `{"access_token":"of-the-machine","expires_in":100,"token_type":"Bearer"}`
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Metadata-Flavor") != "Google" ||
			r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	fake := clock.NewFake(time.Unix(1_800_000_000, 0))
	tokens := Instance(strings.TrimPrefix(server.URL, "http://"), fake)
	defer tokens.cl.CloseIdleConnections()
	for _, step := range []struct {
		wait  time.Duration
		asked int64
	}{{0, 1}, {74 * time.Second, 1}, {time.Second, 2}} { // a short token is not asked for at each request
		fake.Advance(step.wait)
		if token, err := tokens.Get(t.Context()); err != nil || token != "of-the-machine" || asked.Load() != step.asked {
			t.Fatalf("%q, %v, asked %d, wanted %d", token, err, asked.Load(), step.asked)
		}
	}
	fake.Advance(time.Hour)
	for _, answer = range []string{"", "{}", `{"access_token":"a"}`, `{"access_token":"a","expires_in":-1}`} {
		if _, err := tokens.Get(t.Context()); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestBadAccounts(t *testing.T) {
	pemOf := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for want, a := range map[string]account{
		"type: ":                  {Type: "authorized_user"},
		"client_email: ":          {Type: "service_account"},
		"token_uri: ":             {Type: "service_account", ClientEmail: "a", TokenURI: "a"},
		"private_key: it is miss": {Type: "service_account", ClientEmail: "a", TokenURI: "https://a"},
		"private_key: asn1": {Type: "service_account", ClientEmail: "a", TokenURI: "https://a",
			PrivateKey: pemOf("PRIVATE KEY", []byte("x"))},
	} {
		file, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ServiceAccount(file, StorageScope, clock.Real{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if _, err := ServiceAccount([]byte("{"), StorageScope, clock.Real{}); err == nil {
		t.Error("half a file is taken")
	}
}

func FuzzServiceAccount(f *testing.F) {
	f.Add([]byte(`{"type":"service_account","client_email":"a","private_key":"-----BEGIN PRIVATE KEY-----\n-----END ` +
		`PRIVATE KEY-----"}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		if tokens, err := ServiceAccount(file, StorageScope, clock.Real{}); (tokens == nil) == (err == nil) {
			t.Fatal(tokens, err)
		}
	})
}
