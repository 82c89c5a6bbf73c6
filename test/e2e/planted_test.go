//go:build unix

package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// plantedMark begins every secret that the test makes up.
const plantedMark = "PLANTED9x7Q"

// safe is a server of the secrets plane as a process, with all that it writes below one folder.
type safe struct {
	t     *testing.T
	dir   string
	base  string
	token string
	known map[string]bool // secrets that the server made: tokens, keys, ids
	n     int
}

// plant makes a secret up.
func (s *safe) plant() string {
	s.n++
	var b [8]byte
	_, _ = rand.Read(b[:])
	return plantedMark + hex.EncodeToString(b[:])
}

func (s *safe) knows(secret any) string {
	text, _ := secret.(string)
	if len(text) < 8 {
		s.t.Fatalf("%v is no secret", secret)
	}
	s.known[text] = true
	return text
}

// do sends a request and returns what it was answered with; status 0 is any.
func (s *safe) do(method, path, body string, want int, headers ...string) map[string]any {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", s.token)
	if s.n%2 == 0 { // the others take the short path, where only slow ones have spans
		req.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if want != 0 && resp.StatusCode != want {
		s.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	out := map[string]any{"raw": string(text)}
	_ = json.Unmarshal(text, &out) // not all answers are JSON
	return out
}

func member(m any, path ...string) any {
	for _, name := range path {
		o, _ := m.(map[string]any)
		m = o[name]
	}
	return m
}

func quoted(s string) string { return string(must(json.Marshal(s))) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// RELIABILITY C4: what clients keep here is in plain nowhere but in the answers to them.
func TestPlantedSecretsAreNowhereInPlain(t *testing.T) {
	for _, storage := range []string{"file", "raft"} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()
			s := &safe{t: t, dir: t.TempDir(), known: map[string]bool{}}
			cmd := s.start(storage)
			s.open()
			s.fill()
			s.fillKeys()
			s.fillOthers()
			s.misuse()
			s.look()
			_ = cmd.Process.Signal(syscall.SIGUSR2) // all stacks to the log
			polltest.Until(t, func() bool {
				text, err := os.ReadFile(filepath.Join(s.dir, "output"))
				return err == nil && bytes.Contains(text, []byte("goroutine 1 "))
			}, "the stacks to be written")
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			s.scan()
		})
	}
}

// collect takes what the server exports of its traces, into a file beside the others.
func (s *safe) collect() string {
	to := must(os.Create(filepath.Join(s.dir, "spans")))
	server := httptest.NewServer(&spanFile{to: to})
	s.t.Cleanup(func() { server.Close(); to.Close() })
	return server.URL
}

func (s *safe) start(storage string) *exec.Cmd {
	port, cluster := must(freePort()), must(freePort())
	s.base = fmt.Sprintf("http://127.0.0.1:%d/v1/", port)
	config := fmt.Sprintf(`
storage %q { path = "%[2]s/data" node_id = "one" }
listener "tcp" { address = "127.0.0.1:%[3]d" cluster_address = "127.0.0.1:%[4]d" tls_disable = true }
api_addr = "http://127.0.0.1:%[3]d"
cluster_addr = "https://127.0.0.1:%[4]d"
audit_dir = "%[2]s"
log_level = "trace"
log_file = "%[2]s/server.log"
telemetry { prometheus_retention_time = "24h" otlp_traces_endpoint = %[5]q }
`, storage, s.dir, port, cluster, s.collect())
	for _, dir := range []string{"data"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			s.t.Fatal(err)
		}
	}
	path := filepath.Join(s.t.TempDir(), "server.hcl")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	out := must(os.Create(filepath.Join(s.dir, "output")))
	cmd := exec.Command(filepath.Join(binDir, "corbel"), "vault", "server", "-config="+path)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out.Close()
	})
	polltest.Until(s.t, func() bool {
		resp, err := http.Get(s.base + "sys/seal-status")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	}, "the server to answer")
	return cmd
}

// open initialises, unseals, and mounts one of each engine.
func (s *safe) open() {
	first := s.do("PUT", "sys/init", `{"secret_shares":3,"secret_threshold":2}`, 200)
	s.token = s.knows(first["root_token"])
	for i, key := range first["keys"].([]any) {
		s.knows(key)
		s.knows(first["keys_base64"].([]any)[i])
		if i < 2 {
			s.do("PUT", "sys/unseal", `{"key":`+quoted(key.(string))+`}`, 200)
		}
	}
	polltest.Until(s.t, func() bool { return s.do("GET", "sys/health", "", 0)["standby"] == false },
		"the server to be the active one")
	s.do("PUT", "sys/audit/file", `{"type":"file","options":{"file_path":"`+s.dir+`/audit.log"}}`, 204)
	for path, kind := range map[string]string{"kv": `{"type":"kv"}`, "kv2": `{"type":"kv-v2"}`, "pki": `{"type":"pki"}`,
		"transit": `{"type":"transit"}`, "database": `{"type":"database"}`} {
		s.do("POST", "sys/mounts/"+path, kind, 204)
	}
	for _, kind := range []string{"userpass", "approle", "jwt", "kubernetes", "cert"} {
		s.do("POST", "sys/auth/"+kind, `{"type":"`+kind+`"}`, 204)
	}
	s.do("POST", "sys/quotas/rate-limit/all", `{"rate":100000}`, 204)
}

// fill keeps a thousand secrets of all kinds.
func (s *safe) fill() {
	for i := range 300 {
		s.do("PUT", fmt.Sprintf("kv/a/%d", i), `{"v":"`+s.plant()+`","deep":{"list":["`+s.plant()+`"]}}`, 204)
		s.do("PUT", fmt.Sprintf("kv2/data/a/%d", i), `{"data":{"v":"`+s.plant()+`"}}`, 200)
		if i%10 == 0 {
			s.do("GET", fmt.Sprintf("kv/a/%d", i), "", 200)
			s.do("GET", fmt.Sprintf("kv2/data/a/%d", i), "", 200)
			s.do("PATCH", fmt.Sprintf("kv2/data/a/%d", i), `{"data":{"w":"`+s.plant()+`"}}`, 200, "Content-Type",
				"application/merge-patch+json")
		}
	}
	for i := range 40 {
		made := s.do("POST", "auth/token/create", `{"policies":["default"],"ttl":"1h"}`, 200)
		token := s.knows(member(made, "auth", "client_token"))
		s.do("GET", "auth/token/lookup-self", "", 200, "X-Vault-Token", token)
		s.do("PUT", "cubbyhole/x", `{"v":"`+s.plant()+`"}`, 204, "X-Vault-Token", token)
		s.do("POST", "auth/token/lookup", `{"token":"`+token+`"}`, 200)
		batch := s.do("POST", "auth/token/create", `{"policies":["default"],"type":"batch","ttl":"1h"}`, 200)
		s.knows(member(batch, "auth", "client_token"))
		wrapped := s.do("POST", "sys/wrapping/wrap", `{"v":"`+s.plant()+`"}`, 200, "X-Vault-Wrap-TTL", "1h")
		wrapping := s.knows(member(wrapped, "wrap_info", "token"))
		if i%2 == 0 {
			s.do("POST", "sys/wrapping/unwrap", `{"token":"`+wrapping+`"}`, 200)
		}
	}
	for i := range 3 { // a password takes time
		name, password := fmt.Sprint("user", i), s.plant()
		s.do("POST", "auth/userpass/users/"+name, `{"password":"`+password+`"}`, 204)
		in := s.do("POST", "auth/userpass/login/"+name, `{"password":"`+password+`"}`, 200, "X-Vault-Token", "")
		s.knows(member(in, "auth", "client_token"))
		s.do("POST", "auth/userpass/login/"+name, `{"password":"`+s.plant()+`"}`, 400, "X-Vault-Token", "")
	}
	s.do("POST", "auth/approle/role/app", `{"token_policies":"default"}`, 204)
	role := member(s.do("GET", "auth/approle/role/app/role-id", "", 200), "data", "role_id")
	for range 20 {
		id := s.knows(member(s.do("POST", "auth/approle/role/app/secret-id", `{}`, 200), "data", "secret_id"))
		in := s.do("POST", "auth/approle/login", fmt.Sprintf(`{"role_id":%q,"secret_id":%q}`, role, id), 200,
			"X-Vault-Token", "")
		s.knows(member(in, "auth", "client_token"))
		custom := s.plant()
		s.do("POST", "auth/approle/role/app/custom-secret-id", `{"secret_id":"`+custom+`"}`, 200)
	}
	root := s.do("POST", "pki/root/generate/exported", `{"common_name":"example.org","key_type":"ec","key_bits":256}`, 200)
	s.pem(member(root, "data", "private_key"))
	s.do("POST", "pki/roles/r", `{"allow_any_name":true,"key_type":"ec","key_bits":256}`, 0)
	for range 10 {
		leaf := s.do("POST", "pki/issue/r", `{"common_name":"a.example.org","ttl":"1h"}`, 200)
		s.pem(member(leaf, "data", "private_key"))
	}
}

// fillKeys has transit make, take, use and show keys.
func (s *safe) fillKeys() {
	b64 := func() string { return base64.StdEncoding.EncodeToString([]byte(s.plant())) }
	s.do("POST", "transit/keys/k", `{"exportable":true,"allow_plaintext_backup":true}`, 0)
	s.do("POST", "transit/keys/sign", `{"type":"ecdsa-p256","exportable":true}`, 0)
	for range 20 {
		sealed := s.do("POST", "transit/encrypt/k", `{"plaintext":"`+b64()+`"}`, 200)
		s.do("POST", "transit/decrypt/k", `{"ciphertext":`+quoted(member(sealed, "data", "ciphertext").(string))+`}`, 200)
		s.do("POST", "transit/encrypt/k", `{"batch_input":[{"plaintext":"`+b64()+`"},{"plaintext":"`+b64()+`"}]}`, 200)
		s.knows(member(s.do("POST", "transit/datakey/plaintext/k", `{}`, 200), "data", "plaintext"))
		s.do("POST", "transit/hmac/k", `{"input":"`+b64()+`"}`, 200)
		s.do("POST", "transit/sign/sign", `{"input":"`+b64()+`"}`, 200)
	}
	keys, _ := member(s.do("GET", "transit/export/encryption-key/k", "", 200), "data", "keys").(map[string]any)
	for _, key := range keys {
		s.knows(key)
	}
	keys, _ = member(s.do("GET", "transit/export/signing-key/sign", "", 200), "data", "keys").(map[string]any)
	for _, key := range keys {
		s.pem(key)
	}
	s.knows(member(s.do("GET", "transit/backup/k", "", 200), "data", "backup"))
	s.do("POST", "transit/decrypt/k", `{"ciphertext":"vault:v1:`+b64()+`"}`, 400)
	s.do("POST", "transit/encrypt/k", `{"plaintext":"`+s.plant()+`!"}`, 400)
	s.do("POST", "transit/keys/wrong/import", `{"ciphertext":"`+b64()+`"}`, 0)
}

// fillOthers gives passwords and tokens to engines and methods that talk to others, who are away here, and logs in by
// JWT.
func (s *safe) fillOthers() {
	s.do("POST", "database/config/pg", `{"plugin_name":"postgresql-database-plugin","allowed_roles":"*",`+
		`"verify_connection":false,"username":"u","password":"`+s.plant()+`",
		"connection_url":"postgresql://{{username}}:{{password}}@127.0.0.1:1/x?sslmode=disable"}`, 0)
	s.do("POST", "database/config/url", `{"plugin_name":"postgresql-database-plugin","connection_url":"postgresql://u:`+
		s.plant()+`@127.0.0.1:1/x?sslmode=disable"}`, 0)
	s.do("POST", "database/roles/app", `{"db_name":"pg","creation_statements":"CREATE ROLE x PASSWORD '`+s.plant()+`'"}`,
		204)
	for _, path := range []string{"database/config/pg", "database/creds/app"} {
		s.do("GET", path, "", 0)
	}
	s.do("POST", "database/rotate-root/pg", `{}`, 0)
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY",
		Bytes: must(x509.MarshalPKIXPublicKey(&key.PublicKey))}))
	s.do("POST", "auth/jwt/config", `{"jwt_validation_pubkeys":[`+quoted(public)+`],"oidc_client_secret":"`+s.plant()+`"}`,
		0)
	s.do("POST", "auth/jwt/config", `{"jwt_validation_pubkeys":[`+quoted(public)+`]}`, 204)
	s.do("POST", "auth/jwt/role/r", `{"role_type":"jwt","user_claim":"sub","bound_audiences":["us"],`+
		`"token_policies":"default"}`, 0)
	for range 10 {
		in := s.do("POST", "auth/jwt/login", `{"role":"r","jwt":"`+s.jwt(key, "us")+`"}`, 200, "X-Vault-Token", "")
		s.knows(member(in, "auth", "client_token"))
		s.do("POST", "auth/jwt/login", `{"role":"r","jwt":"`+s.jwt(key, "others")+`"}`, 0, "X-Vault-Token", "")
	}
	s.do("POST", "auth/kubernetes/config", `{"kubernetes_host":"http://127.0.0.1:1","token_reviewer_jwt":"`+
		s.jwt(key, "us")+`"}`, 0)
	s.do("POST", "auth/kubernetes/role/r", `{"bound_service_account_names":"*","bound_service_account_namespaces":"*",`+
		`"token_policies":"default"}`, 0)
	s.do("POST", "auth/kubernetes/login", `{"role":"r","jwt":"`+s.jwt(key, "us")+`"}`, 0, "X-Vault-Token", "")
	s.do("POST", "auth/cert/config", `{"mesh_address":"http://127.0.0.1:1","mesh_token":"`+s.plant()+`"}`, 0)
	s.do("POST", "auth/cert/certs/c", `{"certificate":"`+s.plant()+`"}`, 400)
	s.do("POST", "auth/cert/login", `{"name":"`+s.plant()+`"}`, 0, "X-Vault-Token", "")
}

// jwt is a token with a planted name of its own, which must not be found either.
func (s *safe) jwt(key *ecdsa.PrivateKey, audience string) string {
	part := base64.RawURLEncoding.EncodeToString
	head := part([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." +
		part(fmt.Appendf(nil, `{"iss":"them","sub":"ann","aud":%q,"jti":%q,"exp":%d}`, audience, s.plant(),
			time.Now().Add(time.Hour).Unix()))
	sum := sha256.Sum256([]byte(head))
	r, v, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		s.t.Fatal(err)
	}
	token := head + "." + part(append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...))
	s.knows(token)
	return token
}

// pem remembers the lines of a private key, which are its base64.
func (s *safe) pem(key any) {
	text, _ := key.(string)
	if !strings.Contains(text, "PRIVATE KEY") {
		s.t.Fatalf("%v is no private key", key)
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) > 40 && !strings.HasPrefix(line, "---") &&
			!strings.HasPrefix(line, "MHcCAQEE") && !strings.HasPrefix(line, "MIGH") {
			s.knows(line)
		}
	}
}

// misuse sends secrets where they are refused: errors and logs must not repeat them.
func (s *safe) misuse() {
	for _, q := range []struct{ method, path, body string }{
		{"PUT", "kv/broken", `{"v":"` + s.plant()}, {"PUT", "kv/broken", s.plant()},
		{"PUT", "kv2/data/x", `{"data":"` + s.plant() + `"}`},
		{"PUT", "kv2/data/x", `{"data":{"v":"` + s.plant() + `"},"options":{"cas":"` + s.plant() + `"}}`},
		{"POST", "auth/token/create", `{"ttl":"` + s.plant() + `"}`},
		{"POST", "auth/token/create", `{"id":{"a":"` + s.plant() + `"}}`},
		{"POST", "auth/token/lookup", `{"token":"` + s.plant() + `"}`},
		{"POST", "auth/token/renew", `{"token":"` + s.plant() + `"}`},
		{"POST", "auth/token/revoke", `{"token":"` + s.plant() + `"}`},
		{"POST", "sys/wrapping/unwrap", `{"token":"` + s.plant() + `"}`},
		{"POST", "auth/userpass/users/x", `{"password":{"a":"` + s.plant() + `"}}`},
		{"POST", "auth/userpass/users/x", `{"password_hash":"` + s.plant() + `"}`},
		{"POST", "auth/userpass/login/none", `{"password":"` + s.plant() + `"}`},
		{"POST", "auth/approle/login", `{"role_id":"` + s.plant() + `","secret_id":"` + s.plant() + `"}`},
		{"POST", "auth/approle/role/app/secret-id/lookup", `{"secret_id":"` + s.plant() + `"}`},
		{"PUT", "sys/unseal", `{"key":"` + s.plant() + `"}`},
		{"POST", "pki/config/ca", `{"pem_bundle":"-----BEGIN EC PRIVATE KEY-----\n` + s.plant() +
			`\n-----END EC PRIVATE KEY-----"}`},
		{"POST", "sys/tools/hash", `{"input":"` + s.plant() + `"}`},
		{"POST", "sys/capabilities", `{"token":"` + s.plant() + `","paths":["kv/a"]}`},
		{"PUT", "none/such", `{"v":"` + s.plant() + `"}`}, {"PUT", "sys/none", `{"v":"` + s.plant() + `"}`},
	} {
		s.do(q.method, q.path, q.body, 0)
		s.do(q.method, q.path, q.body, 0, "X-Vault-Token", s.plant())
	}
	s.do("GET", "kv/a/1", "", 403, "X-Vault-Token", s.plant())
	s.do("GET", "kv/a/1?token="+s.plant(), "", 200)
}

// look asks for everything that the server tells of itself, and keeps it with what it writes.
func (s *safe) look() {
	for i, path := range []string{"sys/metrics", "sys/metrics?format=prometheus", "sys/pprof/goroutine?debug=2",
		"sys/pprof/heap?debug=1", "sys/pprof/heap", "sys/pprof/allocs?debug=1", "sys/pprof/block?debug=1",
		"sys/pprof/mutex?debug=1", "sys/pprof/threadcreate?debug=1", "sys/pprof/cmdline", "sys/pprof/trace?seconds=1",
		"sys/in-flight-req", "sys/host-info", "sys/config/state/sanitized", "sys/internal/specs/openapi",
		"sys/mounts", "sys/auth", "sys/audit", "sys/seal-status", "sys/health", "sys/leader", "sys/key-status",
		"sys/plugins/catalog", "sys/locked-users", "sys/internal/ui/resultant-acl", "auth/userpass/users/user0",
		"auth/approle/role/app", "transit/keys/k", "database/config/pg", "auth/jwt/config", "auth/kubernetes/config",
		"auth/cert/config", "pki/ca/pem", "pki/crl/pem", "sys/policies/acl/default"} {
		s.keep(fmt.Sprintf("answer-%d", i), []byte(s.do("GET", path, "", 200)["raw"].(string)))
	}
	s.lookAtDoctor()
}

func (s *safe) keep(name string, text []byte) {
	if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// lookAtDoctor keeps what the doctor tells: report, evidence with the slowest requests and who asks most, profiles
// with their labels, flame graphs, and the archive for support, unpacked.
func (s *safe) lookAtDoctor() {
	evidence := ""
	polltest.Until(s.t, func() bool {
		s.do("PUT", "kv/slow", `{"v":"`+s.plant()+`"}`, 204, "traceparent",
			"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		evidence = s.do("GET", "sys/doctor/evidence?cluster", "", 200)["raw"].(string)
		return strings.Contains(evidence, `"tenant.requests"`) && strings.Contains(evidence, `"stages":`)
	}, "evidence of requests and of who asks")
	s.keep("doctor-evidence", []byte(evidence))
	s.keep("doctor-report", []byte(s.do("GET", "sys/doctor", "", 200)["raw"].(string)))
	for _, kind := range []string{"cpu", "heap"} {
		polltest.Within(s.t, time.Minute, func() bool {
			return member(s.do("GET", "sys/doctor/profile?kind="+kind, "", 0), "raw").(string)[:2] == "\x1f\x8b"
		}, "a profile of kind %s", kind)
		z := must(gzip.NewReader(strings.NewReader(s.do("GET", "sys/doctor/profile?kind="+kind, "", 200)["raw"].(string))))
		s.keep("doctor-"+kind, must(io.ReadAll(z)))
		s.keep("doctor-"+kind+".svg", []byte(s.do("GET", "sys/doctor/profile?format=svg&kind="+kind, "",
			200)["raw"].(string)))
	}
	debug := exec.CommandContext(s.t.Context(), filepath.Join(binDir, "corbel"), "vault", "debug", "-duration=1s",
		"-compress=false", "-output="+filepath.Join(s.dir, "debug"))
	debug.Env = append(os.Environ(), "VAULT_ADDR="+strings.TrimSuffix(s.base, "/v1/"), "VAULT_TOKEN="+s.token)
	if out, err := debug.CombinedOutput(); err != nil {
		s.t.Fatalf("vault debug: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "debug", "cluster", "doctor.json")); err != nil {
		s.t.Error(err)
	}
}

// needles are what a mistake would leave, with what it would be.
func (s *safe) needles() map[string]string {
	out := map[string]string{plantedMark: "a planted secret",
		hex.EncodeToString([]byte(plantedMark)): "a planted secret in hexadecimal"}
	for shift := range 3 { // base64 of a text that stands anywhere in what was encoded
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + plantedMark))
		out[text[(shift*8+5)/6:(shift+len(plantedMark))*8/6]] = "a planted secret in base64"
	}
	for secret := range s.known {
		out[secret] = "a secret that the server made"
	}
	return out
}

// TestNeedlesFind makes sure that a secret that is there is found, in each form.
func TestNeedlesFind(t *testing.T) {
	s := &safe{t: t, known: map[string]bool{"hvs.token": true}}
	for _, text := range []string{"a " + s.plant(), "hvs.token", hex.EncodeToString([]byte("ab" + s.plant())),
		base64.StdEncoding.EncodeToString([]byte(s.plant())),
		base64.StdEncoding.EncodeToString([]byte("a" + s.plant() + "b")),
		base64.RawURLEncoding.EncodeToString([]byte("ab" + s.plant()))} {
		found := false
		for needle := range s.needles() {
			found = found || strings.Contains(text, needle)
		}
		if !found {
			t.Errorf("%q is not found", text)
		}
	}
}

// scan looks for every secret in every file, in the forms that a mistake would leave.
func (s *safe) scan() {
	if s.n < 1000 {
		s.t.Errorf("only %d secrets were planted", s.n)
	}
	needles := s.needles()
	files, total := 0, 0
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		total += len(text)
		for needle, what := range needles {
			if at := bytes.Index(text, []byte(needle)); at >= 0 {
				s.t.Errorf("%s: %s at %d: %q", strings.TrimPrefix(path, s.dir), what, at, text[max(at-80, 0):min(at+80, len(text))])
			}
		}
		return err
	})
	if err != nil || files < 30 || total < 1<<20 {
		s.t.Errorf("%d files of %d bytes were looked through, %v", files, total, err)
	}
	spans := string(must(os.ReadFile(filepath.Join(s.dir, "spans"))))
	for _, part := range []string{"0af7651916cd43dd8448eb211c80319c ", "PUT /v1/{mount}/ ", "POST /v1/auth/ ",
		"GET /v1/sys/ ", " secrets write ", "corbel.stage.storage_ms"} {
		if !strings.Contains(spans, part) {
			s.t.Errorf("no span of %q was exported", part)
		}
	}
	if info, err := os.Stat(filepath.Join(s.dir, "audit.log")); err != nil || info.Size() < 1<<20 {
		s.t.Errorf("the audit log is %v, %v", info, err)
	}
	s.t.Logf("%d planted, %d made by the server; %d files, %d bytes", s.n, len(s.known), files, total)
}
