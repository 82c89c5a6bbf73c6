package compat

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	bao "github.com/openbao/openbao/api/v2"
)

// signedJWT is a token for the subject "job" and the audience "vault", with the key that signed it as PEM.
func signedJWT(t *testing.T) (token, key string) {
	t.Helper()
	private := needed[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := needed[[]byte](t)(x509.MarshalPKIXPublicKey(&private.PublicKey))
	claims := needed[[]byte](t)(json.Marshal(map[string]any{"sub": "job", "aud": "vault",
		"exp": time.Now().Add(time.Hour).Unix()}))
	signer := needed[jose.Signer](t)(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: private},
		(&jose.SignerOptions{}).WithType("JWT")))
	signed := needed[*jose.JSONWebSignature](t)(signer.Sign(claims))
	return needed[string](t)(signed.CompactSerialize()),
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// TestVaultPython does everyday work by hvac; what it asserts is in testdata/vaultclient.py.
func TestVaultPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		notRun(t, "python3 is not installed")
	}
	libraries := pythonLibraries(t, python)
	cl, _ := newVault(t)
	token, key := signedJWT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "vaultclient.py"), cl.Address(), "root", key, token)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "VAULT_") })
	cmd.Env = append(cmd.Env, "PYTHONPATH="+libraries, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ALL WELL") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestOpenBaoClient does everyday work by OpenBao's Go client.
func TestOpenBaoClient(t *testing.T) {
	started, _ := newVault(t)
	ctx := t.Context()
	cfg := bao.DefaultConfig()
	cfg.Address = started.Address()
	cl := needed[*bao.Client](t)(bao.NewClient(cfg))
	cl.SetToken("root")
	write := func(path string, data map[string]any) *bao.Secret {
		t.Helper()
		return needed[*bao.Secret](t)(cl.Logical().Write(path, data))
	}
	as := func(token string) *bao.Client {
		t.Helper()
		other := needed[*bao.Client](t)(cl.Clone())
		other.SetToken(token)
		return other
	}
	needed[*bao.KVSecret](t)(cl.KVv2("secret").Put(ctx, "app", map[string]any{"a": "1"}))
	if err := cl.Sys().PutPolicy("app",
		`path "secret/data/{{identity.entity.name}}" { capabilities = ["read"] }`); err != nil {
		t.Fatal(err)
	}
	token, key := signedJWT(t)
	for _, method := range []string{"jwt", "approle", "userpass"} {
		if err := cl.Sys().EnableAuthWithOptions(method, &bao.EnableAuthOptions{Type: method}); err != nil {
			t.Fatal(err)
		}
	}
	write("auth/jwt/config", map[string]any{"jwt_validation_pubkeys": key})
	write("auth/jwt/role/ci", map[string]any{"role_type": "jwt", "user_claim": "sub", "bound_audiences": "vault",
		"token_policies": "app"})
	login := write("auth/jwt/login", map[string]any{"role": "ci", "jwt": token})
	job := as(login.Auth.ClientToken)
	if _, err := job.KVv2("secret").Get(ctx, "app"); err == nil {
		t.Error("a template lets somebody else in")
	}
	write("identity/entity/id/"+login.Auth.EntityID, map[string]any{"name": "app"})
	if s := needed[*bao.KVSecret](t)(job.KVv2("secret").Get(ctx, "app")); s.Data["a"] != "1" {
		t.Errorf("by a template: %v", s.Data)
	}
	group := write("identity/group", map[string]any{"name": "g", "policies": "more",
		"member_entity_ids": []string{login.Auth.EntityID}})
	if self := needed[*bao.Secret](t)(job.Auth().Token().LookupSelf()); self.Data["entity_id"] != login.Auth.EntityID ||
		len(self.Data["identity_policies"].([]any)) != 1 {
		t.Errorf("the token: %v", self.Data)
	}
	if g := needed[*bao.Secret](t)(cl.Logical().Read("identity/group/id/" + group.Data["id"].(string))); len(
		g.Data["member_entity_ids"].([]any)) != 1 {
		t.Errorf("the group: %v", g.Data)
	}
	write("auth/approle/role/app", map[string]any{"token_policies": "app", "token_type": "batch"})
	roleID := needed[*bao.Secret](t)(cl.Logical().Read("auth/approle/role/app/role-id")).Data["role_id"]
	wrapped := needed[*bao.Client](t)(cl.Clone())
	wrapped.SetToken("root")
	wrapped.SetWrappingLookupFunc(func(string, string) string { return "1m" })
	box := needed[*bao.Secret](t)(wrapped.Logical().Write("auth/approle/role/app/secret-id", nil))
	secretID := needed[*bao.Secret](t)(cl.Logical().Unwrap(box.WrapInfo.Token)).Data["secret_id"]
	batch := write("auth/approle/login", map[string]any{"role_id": roleID, "secret_id": secretID})
	if batch.Auth.Renewable || !strings.HasPrefix(batch.Auth.ClientToken, "hvb.") {
		t.Errorf("a batch token: %+v", batch.Auth)
	}
	write("auth/userpass/users/ann", map[string]any{"password": "s3cret"})
	ann := as(write("auth/userpass/login/ann", map[string]any{"password": "s3cret"}).Auth.ClientToken)
	if renewed := needed[*bao.Secret](t)(ann.Auth().Token().RenewSelf(600)); renewed.Auth.LeaseDuration != 600 {
		t.Errorf("renewed: %+v", renewed.Auth)
	}
	if err := ann.Auth().Token().RevokeSelf(""); err != nil {
		t.Error(err)
	}
	if h := needed[*bao.HealthResponse](t)(cl.Sys().Health()); !h.Initialized || h.Sealed {
		t.Errorf("health: %+v", h)
	}
	if _, err := ann.Auth().Token().LookupSelf(); err == nil ||
		!strings.Contains(err.Error(), http.StatusText(http.StatusForbidden)) && !strings.Contains(err.Error(), "403") {
		t.Errorf("a revoked token: %v", err)
	}
}
