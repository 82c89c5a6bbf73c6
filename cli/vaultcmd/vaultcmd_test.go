package vaultcmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/cli/vaultcmd/operate"
	"github.com/spf13/cobra"
)

// asked is a server that answers by method and path and keeps what it was sent.
type asked struct {
	answers map[string]string // "PUT /v1/sys/init" -> "STATUS BODY"
	bodies  map[string]string
	header  http.Header
}

// ServeHTTP implements http.Handler.
func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	name := r.Method + " " + r.URL.RequestURI()
	a.bodies[name], a.header = string(body), r.Header
	code, text, _ := strings.Cut(a.answers[name], " ")
	status := map[string]int{"200": 200, "204": 204, "400": 400, "403": 403, "404": 404, "503": 503}[code]
	if status == 0 {
		status, text = 404, `{"errors":[]}`
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// run calls one command and gives its output and exit code.
func run(t *testing.T, a *asked, env map[string]string, build func(*command.Env, *cobra.Command), in string,
	args ...string) (out, errs string, code int) {
	t.Helper()
	s := httptest.NewServer(a)
	defer s.Close()
	a.bodies = map[string]string{}
	var stdout, stderr bytes.Buffer
	e := &command.Env{In: strings.NewReader(in), Out: &stdout, Err: &stderr, Vault: "vault",
		Getenv: func(name string) string {
			if name == "VAULT_ADDR" {
				return s.URL
			}
			return env[name]
		}}
	defer e.Close()
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
	build(e, cmd)
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err := cmd.ExecuteContext(context.Background())
	var exit command.ExitCode
	switch {
	case errors.As(err, &exit):
		code = int(exit)
	case err != nil:
		code = 1
		stderr.WriteString(err.Error())
	}
	return stdout.String(), stderr.String(), code
}

const sealed = `{"type":"shamir","initialized":false,"sealed":true,"t":0,"n":0,"progress":0,"nonce":"",` +
	`"version":"1.20.0","storage_type":"inmem"}`

// TestInit holds what bootstrap scripts read of a first start.
func TestInit(t *testing.T) {
	a := &asked{answers: map[string]string{"GET /v1/sys/seal-status": "200 " + sealed,
		"PUT /v1/sys/init": `200 {"keys":["aa","bb"],"keys_base64":["qg==","uw=="],"root_token":"hvs.r"}`}}
	out, errs, code := run(t, a, nil, operate.Operator, "", "init", "--format=json", "--key-shares=2",
		"--key-threshold=2")
	if code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"unseal_keys_b64", "unseal_keys_hex", "unseal_shares", "unseal_threshold",
		"recovery_keys_b64", "recovery_keys_hex",
		"recovery_keys_shares", "recovery_keys_threshold", "root_token"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if len(got) != 9 || got["root_token"] != "hvs.r" || got["unseal_shares"] != 2.0 {
		t.Errorf("got %v", got)
	}
	if sent := a.bodies["PUT /v1/sys/init"]; sent != `{"secret_shares":2,"secret_threshold":2}` {
		t.Errorf("sent %s", sent)
	}
	out, _, _ = run(t, a, nil, operate.Operator, "", "init")
	if !strings.HasPrefix(out, "Unseal Key 1: qg==\nUnseal Key 2: uw==\n\nInitial Root Token: hvs.r\n\n") {
		t.Errorf("table: %s", out)
	}
}

// TestExitCodes: 1 for what is wrong here, 2 for what the server refused; status keeps 2 for "sealed".
func TestExitCodes(t *testing.T) {
	a := &asked{answers: map[string]string{"GET /v1/sys/seal-status": "200 " + sealed,
		"GET /v1/secret/a":               `403 {"errors":["permission denied"]}`,
		"GET /v1/auth/token/lookup-self": `403 {"errors":["permission denied"]}`,
		"PUT /v1/auth/ldap/login/a":      `403 {"errors":["permission denied"]}`,
		"GET /v1/secret/plain":           `404 {"request_id":"1","data":null,"warnings":["use 'vault kv get'"]}`,
		"GET /v1/sys/leader":             `503 {"errors":["Vault is sealed"]}`,
		"GET /v1/lease/a":                `200 {"lease_id":"lease/a/1","lease_duration":3600,"renewable":true,"data":{"n":1}}`}}
	for _, tt := range []struct {
		build func(*command.Env, *cobra.Command)
		args  string
		env   map[string]string
		code  int
		want  string
	}{
		{vaultcmd.Status, "", nil, 2, "Unseal Progress    0/0"},
		{vaultcmd.Read, "secret/a", nil, 2, "Code: 403. Errors:\n\n* permission denied"},
		{vaultcmd.Read, "secret/a", nil, 2, "No token was sent: log in"},
		{vaultcmd.Read, "sys/leader", nil, 2, "* Vault is sealed\n\"vault operator unseal\" opens it"},
		{vaultcmd.Login, "bad", nil, 2, "does not know this token"},
		{vaultcmd.Login, "--method=ldap username=a password=b", nil, 2, "Is that method enabled at this path?"},
		{vaultcmd.Read, "none", nil, 2, "No value found at none"},
		{vaultcmd.Read, "secret/plain", nil, 2, "  * use 'vault kv get'\n\nNo value found at secret/plain\n"},
		{vaultcmd.Status, "--field=ha_enabled", nil, 2, "true"},
		{vaultcmd.Status, "--format=json", nil, 2, `"active_time": "0001-01-01T00:00:00Z"`},
		{vaultcmd.Read, "", nil, 1, "Not enough arguments"},
		{vaultcmd.Read, "lease/a", nil, 0, "Key                Value\n---                -----\nlease_id           " +
			"lease/a/1\nlease_duration     1h\nlease_renewable    true\nn                  1\n"},
		{vaultcmd.Read, "lease/a", map[string]string{"VAULT_FORMAT": "json", "BAO_FORMAT": "yaml"}, 0, "lease_id: lease/a/1"},
		{vaultcmd.Read, "lease/a", map[string]string{"VAULT_FORMAT": "xml"}, 1, "Invalid output format"},
		{vaultcmd.Read, "lease/a", map[string]string{"VAULT_CLIENT_TIMEOUT": "soon"}, 1, "VAULT_CLIENT_TIMEOUT"},
		{vaultcmd.Read, "lease/a", map[string]string{"VAULT_CLIENT_CERT": "x"}, 1, "CLIENT_KEY"},
		{vaultcmd.Status, "--address=http://127.0.0.1:1", nil, 1, "is a server running there"},
		{vaultcmd.Read, "--address=http://127.0.0.1:1 x", nil, 2, "is a server running there"},
	} {
		out, errs, code := run(t, a, tt.env, tt.build, "", strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%s %v: code %d, want %d\n%s%s", tt.args, tt.env, code, tt.code, out, errs)
		}
	}
}

// TestTokenHelper: a program of the user's keeps the token in the file's place.
func TestTokenHelper(t *testing.T) {
	dir := t.TempDir()
	helper := filepath.Join(dir, "helper")
	script := "#!/bin/sh\ncase $1 in get) cat " + dir + "/kept;; store) cat >" + dir + "/kept; echo \"$VAULT_ADDR\" >" +
		dir + "/addr;; erase) rm " + dir + "/kept;; esac\n"
	if err := os.WriteFile(helper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".vault"), []byte(`token_helper = "`+helper+`"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &asked{answers: map[string]string{"GET /v1/auth/token/lookup-self": `200 {"data":{"id":"hvs.x","accessor":"a",` +
		`"policies":["root"],"ttl":0,"renewable":false}}`,
		"GET /v1/secret/a": `200 {"data":{"n":1}}`}}
	env := map[string]string{"HOME": dir}
	if _, errs, code := run(t, a, env, vaultcmd.Login, "hvs.x", "-"); code != 0 {
		t.Fatal(errs)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(kept) != "hvs.x" {
		t.Errorf("kept %q, %v", kept, err)
	}
	if at, err := os.ReadFile(filepath.Join(dir, "addr")); err != nil ||
		!strings.HasPrefix(string(at), "http://127.0.0.1") {
		t.Errorf("the helper was told the address %q, %v", at, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".vault-token")); err == nil {
		t.Error("the token is in a file too")
	}
	if _, errs, code := run(t, a, env, vaultcmd.Read, "", "secret/a"); code != 0 ||
		a.header.Get("X-Vault-Token") != "hvs.x" {
		t.Errorf("sent the token %q: %s", a.header.Get("X-Vault-Token"), errs)
	}
	if err := os.WriteFile(filepath.Join(dir, ".vault"), []byte(`token_helper = "`+dir+`/none"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := run(t, a, env, vaultcmd.Read, "", "secret/a"); code != 1 ||
		!strings.Contains(errs, "token helper") {
		t.Errorf("without its program: %d %s", code, errs)
	}
}

// TestWrite: the forms of data, and the headers that go along.
func TestWrite(t *testing.T) {
	a := &asked{answers: map[string]string{"PUT /v1/p": "204 "}}
	env := map[string]string{"VAULT_TOKEN": "v", "BAO_TOKEN": "b", "VAULT_NAMESPACE": "team", "VAULT_WRAP_TTL": "60s"}
	out, errs, code := run(t, a, env, vaultcmd.Write, `{"n":12345678901234567}`, "p", "-", "a=1", "a=2", `b=\@x`, "c==")
	if code != 0 || out != "Success! Data written to: p\n" {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	if got, want := a.bodies["PUT /v1/p"], `{"a":["1","2"],"b":"@x","c":"=","n":12345678901234567}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	for name, want := range map[string]string{"X-Vault-Token": "b", "X-Vault-Namespace": "team", "X-Vault-Wrap-Ttl": "60s",
		"X-Vault-Request": "true"} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, errs, code = run(t, a, nil, vaultcmd.Write, "", "p", "novalue"); code != 1 ||
		!strings.Contains(errs, "format must be key=value") {
		t.Errorf("code %d: %s", code, errs)
	}
}
