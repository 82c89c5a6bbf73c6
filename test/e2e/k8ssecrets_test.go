package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/kit/tokenreview/reviewtest"
)

// vaultCall sends a request as the Go client of Vault does, and returns the status and what is in the answer.
func vaultCall(t *testing.T, base, token, method, path, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Request", "true")
	if token != "" {
		req.Header.Set("X-Vault-Token", token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return resp.StatusCode, out
}

// The requests that External Secrets and the Vault agent injector's agents make, in their order, with a pod's account:
// login, look-up of the token, reads of both versions of kv, lists, pushes, renewals, revocation.
func TestKubernetesSecrets(t *testing.T) {
	t.Parallel()
	api, issuer := reviewtest.New(t), jwkstest.New(t, "RS256")
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", ports[0])
	server := exec.Command(filepath.Join(binDir, "corbel"), "vault", "server", "-dev", "-dev-root-token-id=root",
		"-dev-no-store-token", "-dev-listen-address="+address)
	server.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	base := "http://" + address + "/v1/"
	polltest.Within(t, time.Minute, func() bool {
		resp, err := http.Get(base + "sys/health")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "the server")
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, w := range [][2]string{{"sys/auth/kubernetes", `{"type":"kubernetes"}`},
		{"auth/kubernetes/config", text(map[string]any{"kubernetes_host": api.URL, "kubernetes_ca_cert": api.CA,
			"token_reviewer_jwt": reviewtest.Reviewer, "disable_local_ca_jwt": true})},
		{"auth/kubernetes/role/app", `{"bound_service_account_names":["web"],"bound_service_account_namespaces":["shop"],
"token_policies":["app"],"token_ttl":"1h"}`},
		{"sys/policies/acl/app", text(map[string]string{"policy": `
path "secret/data/app/*" { capabilities = ["create", "read", "update", "delete"] }
path "secret/metadata/app/*" { capabilities = ["create", "read", "update", "delete", "list"] }`})},
		{"secret/data/app/db", `{"data":{"password":"s3cret"}}`}, {"secret/data/other", `{"data":{"k":"v"}}`}} {
		if code, out := vaultCall(t, base, "root", http.MethodPut, w[0], w[1]); code/100 != 2 {
			t.Fatalf("%s: %d %v", w[0], code, out)
		}
	}
	now := time.Now()
	jwt := issuer.Sign(map[string]any{"iss": "https://kubernetes.default.svc",
		"aud": []string{"https://kubernetes.default.svc"}, "exp": now.Add(time.Hour).Unix(), "nbf": now.Unix() - 10,
		"sub": "system:serviceaccount:shop:web", "kubernetes.io": map[string]any{"namespace": "shop",
			"serviceaccount": map[string]any{"name": "web", "uid": "uid-1"}}})
	api.Vouch(jwt, "shop", "web", "uid-1")
	api.Put("shop/serviceaccounts/web", map[string]any{"name": "web", "namespace": "shop", "uid": "uid-1"})
	for client, requests := range map[string][]struct{ method, path, body, want string }{
		"External Secrets": {
			{"GET", "auth/token/lookup-self", "", `"policies":["app","default"]`},
			{"GET", "secret/data/app/db", "", `"password":"s3cret"`},
			{"GET", "secret/data/app/db?version=1", "", `"version":1`},
			{"GET", "secret/metadata/app/db", "", `"current_version":1`},
			{"GET", "secret/data/app/none", "", "404"},
			{"GET", "secret/data/other", "", "403"},
			{"GET", "secret/metadata/app/?list=true", "", `"keys":["db"`},
			{"GET", "secret/metadata/app/pushed", "", "404"},
			{"PUT", "secret/metadata/app/pushed", `{"custom_metadata":{"managed-by":"external-secrets"}}`, "204"},
			{"PUT", "secret/data/app/pushed", `{"data":{"token":"t"}}`, `"version":1`},
			{"GET", "secret/metadata/app/pushed", "", `"managed-by":"external-secrets"`},
			{"DELETE", "secret/data/app/pushed", "", "204"},
			{"DELETE", "secret/metadata/app/pushed", "", "204"},
			{"PUT", "auth/token/revoke-self", "", "204"},
			{"GET", "auth/token/lookup-self", "", "403"},
		},
		"Vault agent": {
			{"GET", "auth/token/lookup-self", "", `"renewable":true`},
			{"PUT", "auth/token/renew-self", `{"increment":0}`, `"client_token"`},
			{"GET", "sys/internal/ui/mounts/secret/data/app/db", "", `"version":"2"`},
			{"GET", "secret/data/app/db", "", `"password":"s3cret"`},
			{"PUT", "auth/token/revoke-self", "{}", "204"},
		},
	} {
		code, out := vaultCall(t, base, "", http.MethodPut, "auth/kubernetes/login", text(map[string]string{"role": "app",
			"jwt": jwt}))
		auth, _ := out["auth"].(map[string]any)
		token, _ := auth["client_token"].(string)
		if code != http.StatusOK || token == "" {
			t.Fatalf("%s: login: %d %v", client, code, out)
		}
		for _, r := range requests {
			code, out := vaultCall(t, base, token, r.method, r.path, r.body)
			got := text(out)
			if len(r.want) == 3 {
				if fmt.Sprint(code) != r.want {
					t.Errorf("%s: %s %s: %d, want %s", client, r.method, r.path, code, r.want)
				}
			} else if code != http.StatusOK || !strings.Contains(got, r.want) {
				t.Errorf("%s: %s %s: %d %s, want %s", client, r.method, r.path, code, got, r.want)
			}
		}
	}
}
