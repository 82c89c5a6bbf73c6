//go:build linux

package plugins

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
)

const (
	kvPlugin  = "vault-plugin-secrets-kv"
	jwtPlugin = "vault-plugin-auth-jwt"
)

// sum is the SHA-256 of a file.
func sum(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// TestStockPlugins: HashiCorp's own plug-ins for KV and for logins by JWT, as they are released, run under the server:
// registered, mounted and used by its command line and by Vault's client, killed, stopped, sealed away and brought back.
func TestStockPlugins(t *testing.T) {
	s := newServer(t)
	kv := built(t, s.plugins(), ".", "github.com/hashicorp/"+kvPlugin+"/cmd/"+kvPlugin)
	jwt := built(t, s.plugins(), ".", "github.com/hashicorp/"+jwtPlugin+"/cmd/"+jwtPlugin)
	s.must("plugin", "register", "-sha256="+sum(t, kv), "-command="+kvPlugin, "secret", "my-kv")
	s.must("plugin", "register", "-sha256="+sum(t, jwt), "-command="+jwtPlugin, "auth", "my-jwt")
	if out := s.must("plugin", "info", "secret", "my-kv"); !strings.Contains(out, sum(t, kv)) {
		t.Error(out)
	}
	if out := s.must("plugin", "list"); !strings.Contains(out, "my-kv") || !strings.Contains(out, "my-jwt") {
		t.Error(out)
	}
	s.must("secrets", "enable", "-path=ext", "-version=2", "my-kv")
	s.must("auth", "enable", "-path=ext", "my-jwt")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *server)
	}{{"secrets", secretsKept}, {"logins", loggedIn}, {"killed", killed}, {"stopped", stopped}, {"restarted", restarted},
		{"another file", anotherFile}, {"gone", gone}} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, s) }) {
			return // what follows goes on from there
		}
	}
}

// secretsKept writes, reads, lists and deletes versions.
func secretsKept(t *testing.T, s *server) {
	kv := s.client.KVv2("ext")
	for _, value := range []string{"one", "two"} {
		if _, err := kv.Put(t.Context(), "team/app", map[string]any{"v": value}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := kv.Get(t.Context(), "team/app")
	if err != nil || got.Data["v"] != "two" || got.VersionMetadata.Version != 2 {
		t.Fatal(err, got)
	}
	if got, err = kv.GetVersion(t.Context(), "team/app", 1); err != nil || got.Data["v"] != "one" {
		t.Error(err, got)
	}
	list, err := s.client.Logical().List("ext/metadata/team")
	if err != nil || list == nil || len(list.Data["keys"].([]any)) != 1 {
		t.Error(err, list)
	}
	if list, err = s.client.Logical().List("ext/metadata/none"); err != nil || list != nil {
		t.Error("a list of nothing:", err, list)
	}
	if err := kv.Delete(t.Context(), "team/app"); err != nil {
		t.Fatal(err)
	}
	if got, err = kv.Get(t.Context(), "team/app"); err != nil || got.Data != nil || got.VersionMetadata.DeletionTime.IsZero() {
		t.Error("deleted:", err, got)
	}
	if err := kv.Undelete(t.Context(), "team/app", []int{2}); err != nil {
		t.Error(err)
	}
	s.must("kv", "put", "ext/cli", "password=x")
	if out := s.must("kv", "get", "-field=password", "ext/cli"); out != "x" {
		t.Errorf("%q", out)
	}
	if _, err := s.client.Logical().Write("ext/data/cli", map[string]any{"data": "no object"}); err == nil ||
		!strings.Contains(err.Error(), "Code: 400") {
		t.Error("an error of the plug-in's:", err)
	}
	reader, err := s.client.Clone()
	if err != nil {
		t.Fatal(err)
	}
	reader.SetToken("")
	if _, err := reader.Logical().Read("ext/data/cli"); err == nil {
		t.Error("read without a token")
	}
}

// signed is a JWT of a subject.
func signed(t *testing.T, key *ecdsa.PrivateKey, subject string) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	now := time.Now().Unix()
	text := part(map[string]any{"alg": "ES256", "typ": "JWT"}) + "." + part(map[string]any{"sub": subject, "iat": now,
		"nbf": now - 5, "exp": now + 600, "aud": "corbel"})
	hash := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	both := make([]byte, 64)
	r.FillBytes(both[:32])
	v.FillBytes(both[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(both)
}

// loggedIn logs in with a JWT, and renews the token.
func loggedIn(t *testing.T, s *server) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	for path, data := range map[string]map[string]any{"auth/ext/config": {"jwt_validation_pubkeys": public},
		"auth/ext/role/app": {"role_type": "jwt", "user_claim": "sub", "bound_audiences": "corbel",
			"token_policies": "reader", "token_ttl": "10m"}} {
		if _, err := s.client.Logical().Write(path, data); err != nil {
			t.Fatal(path, err)
		}
	}
	if err := s.client.Sys().PutPolicy("reader", `path "ext/data/*" { capabilities = ["read"] }`); err != nil {
		t.Fatal(err)
	}
	user, err := s.client.Clone()
	if err != nil {
		t.Fatal(err)
	}
	user.SetToken("")
	if _, err := user.Logical().Write("auth/ext/login", map[string]any{"role": "app", "jwt": "x.y.z"}); err == nil {
		t.Error("logged in with nothing")
	}
	got, err := user.Logical().Write("auth/ext/login", map[string]any{"role": "app", "jwt": signed(t, key, "jane")})
	if err != nil || got.Auth == nil {
		t.Fatal(err, got)
	}
	if got.Auth.LeaseDuration != 600 || got.Auth.EntityID == "" || !got.Auth.Renewable ||
		got.Auth.Metadata["role"] != "app" || strings.Join(got.Auth.TokenPolicies, " ") != "default reader" {
		t.Errorf("%+v", got.Auth)
	}
	user.SetToken(got.Auth.ClientToken)
	if self, err := user.Auth().Token().LookupSelf(); err != nil || self.Data["display_name"] != "ext-jane" {
		t.Error(err, self)
	}
	if secret, err := user.KVv2("ext").Get(t.Context(), "cli"); err != nil || secret.Data["password"] != "x" {
		t.Error(err, secret)
	}
	if _, err := user.KVv2("ext").Put(t.Context(), "cli", map[string]any{"a": "b"}); err == nil {
		t.Error("written without the right to")
	}
	if again, err := user.Auth().Token().RenewSelf(0); err != nil || again.Auth.LeaseDuration != 600 {
		t.Error(err, again)
	}
}

// readable is that a secret is there.
func readable(t *testing.T, s *server) {
	t.Helper()
	if got, err := s.client.KVv2("ext").Get(t.Context(), "cli"); err != nil || got.Data["password"] != "x" {
		t.Fatal(err, got)
	}
}

// killed: a plug-in that dies is there again for the next request.
func killed(t *testing.T, s *server) {
	pids := s.programs(kvPlugin)
	if len(pids) != 1 {
		t.Fatal("processes:", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.within("its end", func() bool { return !slices.Contains(s.programs(kvPlugin), pids[0]) })
	readable(t, s)
	s.must("plugin", "reload", "-plugin=my-kv")
	readable(t, s)
}

// stopped: one that hangs holds up its own requests alone; the server is sealed all the same, and the process is gone.
func stopped(t *testing.T, s *server) {
	s.within("one process", func() bool { return len(s.programs(kvPlugin)) == 1 })
	pid := s.programs(kvPlugin)[0]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	hung := make(chan error, 1)
	go func() { _, err := s.client.Logical().Read("ext/data/cli"); hung <- err }()
	if err := s.client.Sys().Mount("plain", &api.MountInput{Type: "kv"}); err != nil {
		t.Error("another mount:", err)
	}
	begin := time.Now()
	if err := s.client.Sys().Seal(); err != nil || time.Since(begin) > 20*time.Second {
		t.Error("sealing:", err, time.Since(begin))
	}
	if err := <-hung; err == nil {
		t.Error("answered by a process that is stopped")
	}
	s.within("its end", func() bool { return len(s.programs(kvPlugin)) == 0 && len(s.programs(jwtPlugin)) == 0 })
	s.unseal()
	readable(t, s)
}

// restarted: nothing outlives the server, and all is there after it was started again.
func restarted(t *testing.T, s *server) {
	pids := append(s.programs(kvPlugin), s.programs(jwtPlugin)...)
	s.kill()
	s.within("their end", func() bool {
		for _, pid := range pids {
			if text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat")); err == nil &&
				!strings.Contains(string(text), ") Z ") {
				return false
			}
		}
		return true
	})
	s.start()
	s.unseal()
	readable(t, s)
}

// anotherFile: what is not the file that was registered is not run, nor registered.
func anotherFile(t *testing.T, s *server) {
	path := filepath.Join(s.plugins(), kvPlugin)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	s.must("plugin", "reload", "-mounts=ext/")
	if _, err := s.client.KVv2("ext").Get(t.Context(), "cli"); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Error(err)
	}
	if out, err := s.vault("plugin", "register", "-sha256="+strings.Repeat("0", 64), "-command="+kvPlugin, "secret",
		"my-kv"); err == nil || !strings.Contains(out, "SHA-256") {
		t.Error(err, out)
	}
	s.must("plugin", "register", "-sha256="+sum(t, path), "-command="+kvPlugin, "secret", "my-kv")
	s.within("the new one", func() bool { _, err := s.client.KVv2("ext").Get(t.Context(), "cli"); return err == nil })
	readable(t, s)
}

// gone: the process goes with its mount.
func gone(t *testing.T, s *server) {
	s.must("secrets", "disable", "ext")
	s.within("its end", func() bool { return len(s.programs(kvPlugin)) == 0 })
	s.must("plugin", "deregister", "secret", "my-kv")
	if out, err := s.vault("secrets", "enable", "-path=ext", "my-kv"); err == nil ||
		!strings.Contains(out, "plugin not found in the catalog") {
		t.Error(err, out)
	}
}
