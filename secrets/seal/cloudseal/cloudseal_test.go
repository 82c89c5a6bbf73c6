package cloudseal

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets/seal/cloudseal/cloudsealtest"
)

// everywhere is a client for which every host, with TLS or without, is one handler.
func everywhere(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	plain, secure := httptest.NewServer(h), httptest.NewTLSServer(h)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	to := func(s *httptest.Server) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
		}
	}
	transport := &http.Transport{DialContext: to(plain)}
	transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := to(secure)(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), nil // a test's certificate
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// cloud is one that the same tests are for.
type cloud struct {
	seal, wrong *Seal // wrong has a credential that is not good
	faults      *cloudsealtest.Faults
	rotate      func()
	decrypt     string // the name of the call
	throttle    cloudsealtest.Failure
	advice      string // in the error of wrong
	secret      string
}

func clouds(t *testing.T) map[string]*cloud {
	kms := cloudsealtest.NewKMS("eu-west-1", "AKIDEXAMPLE", "hidden-secret")
	kms.SessionToken = "session"
	amazon := func(secret string) *Seal {
		return made(t)(NewAWS(AWSConfig{KeyID: "alias/unseal", Region: "eu-west-1", Endpoint: "https://kms.test",
			AccessKey: "AKIDEXAMPLE", SecretKey: secret, SessionToken: "session", HTTP: everywhere(t, kms)}))
	}
	const name = "projects/shop/locations/global/keyRings/ring/cryptoKeys/unseal"
	google := cloudsealtest.NewGoogleKMS(name, "good")
	of := func(h http.Handler, client *http.Client) *Seal {
		s := made(t)(NewGoogle(GoogleConfig{Project: "shop", Region: "global", KeyRing: "ring", CryptoKey: "unseal",
			MetadataHost: metadataOf(t, h), HTTP: client}))
		return s
	}
	vault := cloudsealtest.NewKeyVault("https://shop.vault.azure.net", "unseal")
	vault.Tenant, vault.Client, vault.Secret = "tenant", "client", "hidden-secret"
	azure := func(secret string) *Seal {
		return made(t)(NewAzure(AzureConfig{TenantID: "tenant", ClientID: "client", ClientSecret: secret,
			VaultName: "shop", KeyName: "unseal", HTTP: everywhere(t, vault)}))
	}
	return map[string]*cloud{
		"awskms": {amazon("hidden-secret"), amazon("hidden-wrong"), &kms.Faults, func() { kms.AddKey("second") },
			"Decrypt", cloudsealtest.Failure{Status: 400,
				Body: `{"__type":"ThrottlingException","message":"Rate exceeded"}`}, "clock", "hidden"},
		"gcpckms": {of(google, everywhere(t, google)), of(cloudsealtest.NewGoogleKMS(name, "hidden-wrong"),
			everywhere(t, google)), &google.Faults, google.Rotate, "decrypt", cloudsealtest.Failure{Status: 429,
			Body: `{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}`}, "credentials", "hidden"},
		"azurekeyvault": {azure("hidden-secret"), azure("hidden-wrong"), &vault.Faults, vault.Rotate,
			"POST unwrapkey", cloudsealtest.Failure{Status: 429, RetryAfter: "1",
				Body: `{"error":{"code":"Throttled","message":"slow down"}}`}, "client_secret", "hidden"},
	}
}

// metadataOf is the address of a machine's metadata server.
func metadataOf(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "metadata"
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func made(t *testing.T) func(*Seal, error) *Seal {
	return func(s *Seal, err error) *Seal {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// TestCloudSeals: what was wrapped opens again, also after the key was changed, which is noticed.
func TestCloudSeals(t *testing.T) {
	for kind, c := range clouds(t) {
		t.Run(kind, func(t *testing.T) {
			root := []byte("the root key of thirty-two bytes")
			old, err := c.seal.Wrap(t.Context(), root)
			if err != nil {
				t.Fatal(err)
			}
			if c.seal.Type() != kind || c.seal.Stale(old) || bytes.Contains(old, root) {
				t.Fatal(c.seal.Type(), c.seal.Stale(old))
			}
			c.rotate()
			if got, err := c.seal.Unwrap(t.Context(), old); err != nil || !bytes.Equal(got, root) {
				t.Fatal(got, err)
			}
			if !c.seal.Stale(old) {
				t.Error("nobody notices that the key was changed")
			}
			fresh, err := c.seal.Wrap(t.Context(), root)
			if err != nil || c.seal.Stale(fresh) {
				t.Fatal(err, c.seal.Stale(fresh))
			}
			if got, err := c.seal.Unwrap(t.Context(), fresh); err != nil || !bytes.Equal(got, root) {
				t.Fatal(got, err)
			}
			for _, damaged := range [][]byte{nil, []byte("{}"), bytes.Replace(old, []byte(kind), []byte("other"), 1),
				bytes.Replace(old, []byte(`"blob":"`), []byte(`"blob":"AAAA`), 1)} {
				if got, err := c.seal.Unwrap(t.Context(), damaged); err == nil {
					t.Errorf("%s opens as %q", damaged, got)
				}
			}
		})
	}
}

// TestCloudSealsRefuse: a credential that is not good ends at once, with what to do and without the credential.
func TestCloudSealsRefuse(t *testing.T) {
	for kind, c := range clouds(t) {
		t.Run(kind, func(t *testing.T) {
			_, err := c.wrong.Wrap(t.Context(), []byte("root"))
			if err == nil || !strings.Contains(err.Error(), "seal "+kind) || !strings.Contains(err.Error(), c.advice) ||
				strings.Contains(err.Error(), c.secret) || !errkind.Is(err, errkind.Unavailable) {
				t.Error(err)
			}
			if calls := c.faults.Calls(); len(calls) != 1 {
				t.Error("it was asked again:", calls)
			}
		})
	}
}

// TestCloudSealsUnderStress: what passes is tried again, a few times; a cloud that hangs holds nobody up for long.
func TestCloudSealsUnderStress(t *testing.T) {
	for kind, c := range clouds(t) {
		t.Run(kind, func(t *testing.T) {
			wrapped, err := c.seal.Wrap(t.Context(), []byte("root"))
			if err != nil {
				t.Fatal(err)
			}
			c.faults.Calls()
			c.faults.Fail(c.throttle, cloudsealtest.Failure{Status: 503})
			if got, err := c.seal.Unwrap(t.Context(), wrapped); err != nil || string(got) != "root" {
				t.Fatal(string(got), err)
			}
			calls := c.faults.Calls()
			if n := len(slices.DeleteFunc(calls, func(s string) bool { return s != c.decrypt })); n != 3 {
				t.Errorf("asked %d times: %v", n, calls)
			}
			for range maxTries {
				c.faults.Fail(cloudsealtest.Failure{Status: 500, Body: "oops"})
			}
			within, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := c.seal.Unwrap(within, wrapped); err == nil || !strings.Contains(err.Error(), "answered 500") {
				t.Error(err)
			}
			release := c.faults.Hang()
			defer release()
			brief, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer end()
			start := time.Now()
			if _, err := c.seal.Unwrap(brief, wrapped); err == nil || !strings.Contains(err.Error(), "in time") {
				t.Error(err)
			}
			if took := time.Since(start); took > callsWithin {
				t.Error("it took", took)
			}
		})
	}
}

// TestNewestIsNotNeeded: a cloud that opens the key and does not say which is the newest is no reason not to start.
func TestNewestIsNotNeeded(t *testing.T) {
	kms := cloudsealtest.NewKMS("eu-west-1", "a", "b")
	log := &words{}
	s := made(t)(NewAWS(AWSConfig{KeyID: "alias/unseal", Region: "eu-west-1", Endpoint: "https://kms.test", AccessKey: "a",
		SecretKey: "b", HTTP: everywhere(t, denied{kms}), Log: log.logger()}))
	wrapped, err := s.Wrap(t.Context(), []byte("root"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Unwrap(t.Context(), wrapped); err != nil || string(got) != "root" || s.Stale(wrapped) {
		t.Fatal(got, err)
	}
	polltest.Within(t, time.Second, func() bool {
		return strings.Contains(log.String(), "not authorized; allow") && strings.Contains(log.String(), "kms:DescribeKey")
	}, "the log")
}

// denied is a KMS that does not let its keys be described.
type denied struct{ kms http.Handler }

// ServeHTTP implements http.Handler.
func (d denied) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "DescribeKey") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"__type":"AccessDeniedException","Message":"User is not authorized"}`))
		return
	}
	d.kms.ServeHTTP(w, r)
}

// TestAzureIdentities: a machine's own identity, and a workload's federated token, which is read anew; a token that the
// key vault no longer takes is replaced.
func TestAzureIdentities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for name, c := range map[string]AzureConfig{
		"machine":  {},
		"workload": {TenantID: "tenant", ClientID: "client", FederatedTokenFile: file},
	} {
		t.Run(name, func(t *testing.T) {
			vault := cloudsealtest.NewKeyVault("https://shop.vault.azure.net", "unseal")
			vault.Tenant, vault.Client, vault.Secret, vault.Assertion = "tenant", "client", "none", "assertion-1"
			c.VaultName, c.KeyName, c.HTTP = "shop", "unseal", everywhere(t, vault)
			s := made(t)(NewAzure(c))
			if err := os.WriteFile(file, []byte("assertion-1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			wrapped, err := s.Wrap(t.Context(), []byte("root"))
			if err != nil {
				t.Fatal(err)
			}
			vault.Assertion = "assertion-2"
			vault.Expire()
			if err := os.WriteFile(file, []byte("assertion-2"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Unwrap(t.Context(), wrapped); err == nil {
				t.Fatal("a token that has ended was taken")
			}
			if got, err := s.Unwrap(t.Context(), wrapped); err != nil || string(got) != "root" {
				t.Fatal(got, err)
			}
		})
	}
}

// A record does not lead to another key vault: the token is for the configured one.
func TestAzureStaysAtItsVault(t *testing.T) {
	vault := cloudsealtest.NewKeyVault("https://evil.vault.azure.net", "unseal")
	s := made(t)(NewAzure(AzureConfig{VaultName: "shop", KeyName: "unseal", HTTP: everywhere(t, vault)}))
	_, err := s.Unwrap(t.Context(), []byte(`{"seal":"azurekeyvault","key":"`+"https://evil.vault.azure.net/keys/unseal/1"+
		`","blob":"AAAA"}`))
	if err == nil || !strings.Contains(err.Error(), "vault_name") || len(vault.Calls()) != 0 {
		t.Fatal(err)
	}
}

func TestConfigsRefuse(t *testing.T) {
	for want, err := range map[string]error{
		"kms_key_id: ":             second(NewAWS(AWSConfig{})),
		"access_key, secret_key: ": second(NewAWS(AWSConfig{KeyID: "k", AccessKey: "a"})),
		"session_token: ":          second(NewAWS(AWSConfig{KeyID: "k", SessionToken: "a"})),
		"endpoint: ":               second(NewAWS(AWSConfig{KeyID: "k", Endpoint: "ftp://x"})),
		"project: ":                second(NewGoogle(GoogleConfig{})),
		"region: ":                 second(NewGoogle(GoogleConfig{Project: "p"})),
		"key_ring: \"a/b\"": second(NewGoogle(GoogleConfig{Project: "p", Region: "r", KeyRing: "a/b",
			CryptoKey: "c"})),
		"crypto_key: ": second(NewGoogle(GoogleConfig{Project: "p", Region: "r", KeyRing: "k"})),
		"credentials: ": second(NewGoogle(GoogleConfig{Project: "p", Region: "r", KeyRing: "k", CryptoKey: "c",
			Credentials: "/nowhere"})),
		"vault_name: is":        second(NewAzure(AzureConfig{})),
		"vault_name: \"a.b\"":   second(NewAzure(AzureConfig{VaultName: "a.b", KeyName: "k"})),
		"key_name: is":          second(NewAzure(AzureConfig{VaultName: "vault"})),
		"environment: ":         second(NewAzure(AzureConfig{VaultName: "vault", KeyName: "k", Environment: "Moon"})),
		"resource: ":            second(NewAzure(AzureConfig{VaultName: "vault", KeyName: "k", Resource: "a/b"})),
		"tenant_id, client_id:": second(NewAzure(AzureConfig{VaultName: "vault", KeyName: "k", ClientSecret: "s"})),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func second(_ *Seal, err error) error { return err }

// words is a log.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// String is what was logged.
func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *words) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
