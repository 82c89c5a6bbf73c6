package compat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	vault "github.com/hashicorp/vault/api"
)

// newVault starts `vault server -dev` of the binary and returns Vault's own client of it, with the root token.
func newVault(t *testing.T) (*vault.Client, *child) {
	t.Helper()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	c, err := launch(bin, "vault", "server", "-dev", "-dev-root-token-id=root", "-dev-no-store-token",
		"-dev-listen-address="+addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.finish(); err != nil {
			t.Error(err)
		}
	})
	cfg := vault.DefaultConfig()
	cfg.Address = "http://" + addr
	cl, err := vault.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cl.SetToken("root")
	cl.ClearNamespace()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(60 * time.Second); ; <-tick.C {
		h, err := cl.Sys().Health()
		if err == nil && h.Initialized && !h.Sealed {
			return cl, c
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer: %v\n%s", err, c.logs.String())
		}
	}
}

// status is the HTTP status of a refusal, 0 of anything else.
func status(err error) int {
	var r *vault.ResponseError
	if errors.As(err, &r) {
		return r.StatusCode
	}
	return 0
}

// needed ends the test when a call fails, and gives its value.
func needed[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestVaultKV does the everyday work with both versions of KV by Vault's Go client.
func TestVaultKV(t *testing.T) {
	cl, _ := newVault(t)
	ctx := context.Background()
	v2 := cl.KVv2("secret")
	first := needed[*vault.KVSecret](t)(v2.Put(ctx, "app", map[string]any{"a": "1"}))
	if first.VersionMetadata.Version != 1 || first.VersionMetadata.CreatedTime.IsZero() {
		t.Errorf("first version: %+v", first.VersionMetadata)
	}
	if _, err := v2.Put(ctx, "app", map[string]any{"a": "2"},
		vault.WithCheckAndSet(0)); status(err) != http.StatusBadRequest || !strings.Contains(err.Error(),
		"check-and-set parameter did not match") {
		t.Errorf("put with a wrong cas: %v", err)
	}
	needed[*vault.KVSecret](t)(v2.Patch(ctx, "app", map[string]any{"b": "2"}))
	if s := needed[*vault.KVSecret](t)(v2.Get(ctx, "app")); s.Data["a"] != "1" || s.Data["b"] != "2" ||
		s.VersionMetadata.Version != 2 {
		t.Errorf("after patch: %v %+v", s.Data, s.VersionMetadata)
	}
	if s := needed[*vault.KVSecret](t)(v2.GetVersion(ctx, "app", 1)); s.Data["b"] != nil {
		t.Errorf("version 1: %v", s.Data)
	}
	if err := v2.Delete(ctx, "app"); err != nil {
		t.Fatal(err)
	}
	if s := needed[*vault.KVSecret](t)(v2.Get(ctx, "app")); s.Data != nil || s.VersionMetadata.DeletionTime.IsZero() {
		t.Errorf("deleted: %v %+v", s.Data, s.VersionMetadata)
	}
	if err := v2.Undelete(ctx, "app", []int{2}); err != nil {
		t.Fatal(err)
	}
	needed[*vault.KVSecret](t)(v2.Rollback(ctx, "app", 1))
	if err := v2.PutMetadata(ctx, "app", vault.KVMetadataPutInput{MaxVersions: 5,
		CustomMetadata: map[string]any{"team": "web"}}); err != nil {
		t.Fatal(err)
	}
	if m := needed[*vault.KVMetadata](t)(v2.GetMetadata(ctx, "app")); m.CurrentVersion != 3 || m.MaxVersions != 5 ||
		m.CustomMetadata["team"] != "web" || len(m.Versions) != 3 {
		t.Errorf("metadata: %+v", m)
	}
	if l := needed[*vault.Secret](t)(cl.Logical().List("secret/metadata")); fmt.Sprint(l.Data["keys"]) != "[app]" {
		t.Errorf("list: %v", l.Data)
	}
	if err := v2.DeleteMetadata(ctx, "app"); err != nil {
		t.Fatal(err)
	}
	if _, err := v2.Get(ctx, "app"); !errors.Is(err, vault.ErrSecretNotFound) {
		t.Errorf("after the metadata went: %v", err)
	}

	if err := cl.Sys().Mount("old", &vault.MountInput{Type: "kv", Options: map[string]string{"version": "1"},
		Description: "one"}); err != nil {
		t.Fatal(err)
	}
	v1 := cl.KVv1("old")
	if err := v1.Put(ctx, "x", map[string]any{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	if s := needed[*vault.KVSecret](t)(v1.Get(ctx, "x")); s.Data["a"] != "b" || s.Raw.LeaseDuration != 2764800 {
		t.Errorf("v1: %v, lease %d", s.Data, s.Raw.LeaseDuration)
	}
	if err := v1.Delete(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	if s, err := cl.Logical().Read("old/x"); s != nil || err != nil {
		t.Errorf("deleted in v1: %v, %v", s, err)
	}
}

// TestVaultSystem looks after mounts, policies, tokens and the seal by Vault's Go client.
func TestVaultSystem(t *testing.T) {
	cl, server := newVault(t)
	sys := cl.Sys()
	if err := sys.Mount("team", &vault.MountInput{Type: "kv-v2"}); err != nil {
		t.Fatal(err)
	}
	hour, most := "1h", "2h"
	if err := sys.TuneMountAllowNil("team", vault.TuneMountConfigInput{DefaultLeaseTTL: &hour,
		MaxLeaseTTL: &most}); err != nil {
		t.Fatal(err)
	}
	if m := needed[map[string]*vault.MountOutput](t)(sys.ListMounts()); m["team/"] == nil ||
		m["team/"].Config.DefaultLeaseTTL != 3600 || m["team/"].Options["version"] != "2" {
		t.Errorf("mounts: %+v", m["team/"])
	}
	if err := sys.Unmount("team"); err != nil {
		t.Fatal(err)
	}
	const rules = `path "secret/data/app" { capabilities = ["read"] }`
	if err := sys.PutPolicy("app", rules); err != nil {
		t.Fatal(err)
	}
	if text := needed[string](t)(sys.GetPolicy("app")); text != rules {
		t.Errorf("policy: %q", text)
	}
	if list := needed[[]string](t)(sys.ListPolicies()); strings.Join(list, " ") != "app default root" {
		t.Errorf("policies: %v", list)
	}
	needed[*vault.KVSecret](t)(cl.KVv2("secret").Put(context.Background(), "app", map[string]any{"a": "1"}))
	made := needed[*vault.Secret](t)(cl.Auth().Token().Create(&vault.TokenCreateRequest{Policies: []string{"app"},
		TTL: "1h", DisplayName: "app"}))
	user := needed[*vault.Client](t)(cl.Clone())
	user.SetToken(made.Auth.ClientToken)
	needed[*vault.KVSecret](t)(user.KVv2("secret").Get(context.Background(), "app"))
	if _, err := user.KVv2("secret").Put(context.Background(), "app",
		map[string]any{"a": "2"}); status(err) != http.StatusForbidden {
		t.Errorf("a write without the right: %v", err)
	}
	if caps := needed[[]string](t)(user.Sys().CapabilitiesSelf("secret/data/app")); strings.Join(caps, " ") != "read" {
		t.Errorf("capabilities: %v", caps)
	}
	if renewed := needed[*vault.Secret](t)(user.Auth().Token().RenewSelf(1800)); renewed.Auth == nil ||
		!renewed.Auth.Renewable {
		t.Errorf("renewed: %+v", renewed)
	}
	self := needed[*vault.Secret](t)(user.Auth().Token().LookupSelf())
	if ttl := needed[time.Duration](t)(self.TokenTTL()); ttl <= 0 || ttl > time.Hour {
		t.Errorf("ttl %s", ttl)
	}
	if err := cl.Auth().Token().RevokeAccessor(made.Auth.Accessor); err != nil {
		t.Fatal(err)
	}
	if _, err := user.Auth().Token().LookupSelf(); status(err) != http.StatusForbidden {
		t.Errorf("a revoked token: %v", err)
	}
	sealAndBack(t, cl, server)
}

func sealAndBack(t *testing.T, cl *vault.Client, server *child) {
	t.Helper()
	sys := cl.Sys()
	if !needed[bool](t)(sys.InitStatus()) {
		t.Error("not initialized")
	}
	if _, err := sys.Init(&vault.InitRequest{SecretShares: 1, SecretThreshold: 1}); status(err) != http.StatusBadRequest {
		t.Errorf("a second init: %v", err)
	}
	before := needed[*vault.KeyStatus](t)(sys.KeyStatus())
	if err := sys.Rotate(); err != nil {
		t.Fatal(err)
	}
	if after := needed[*vault.KeyStatus](t)(sys.KeyStatus()); after.Term != before.Term+1 {
		t.Errorf("term %d after %d", after.Term, before.Term)
	}
	if err := sys.Seal(); err != nil {
		t.Fatal(err)
	}
	if h := needed[*vault.HealthResponse](t)(sys.Health()); !h.Sealed {
		t.Errorf("health: %+v", h)
	}
	cl.SetMaxRetries(0) // 503 is what is expected
	if _, err := cl.Logical().Read("secret/data/app"); status(err) != http.StatusServiceUnavailable {
		t.Errorf("a read while sealed: %v", err)
	}
	_, rest, _ := strings.Cut(server.logs.String(), "Unseal Key: ")
	key, _, _ := strings.Cut(rest, "\n")
	if st := needed[*vault.SealStatusResponse](t)(sys.Unseal(key)); st.Sealed || st.T != 1 || st.N != 1 {
		t.Errorf("unsealed: %+v", st)
	}
	needed[*vault.KVSecret](t)(cl.KVv2("secret").Get(context.Background(), "app"))
}
