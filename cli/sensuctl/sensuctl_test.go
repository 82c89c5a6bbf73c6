package sensuctl

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/hex"
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
	"github.com/spf13/cobra"
)

// fake is a monitor with one check, which remembers what was written.
type fake struct {
	http.ServeMux
	wrote   map[string]string // by method and path
	renewed int
	expires int64
}

func newFake(t *testing.T) (*fake, string) {
	t.Helper()
	f := &fake{wrote: map[string]string{}, expires: 1 << 40}
	f.HandleFunc("GET /auth", func(w http.ResponseWriter, r *http.Request) {
		if user, word, _ := r.BasicAuth(); user != "admin" || word != "secret" {
			http.Error(w, `{"message":"bad credentials"}`, http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(tokens{"a1", "r1", f.expires})
	})
	f.HandleFunc("POST /auth/token", func(w http.ResponseWriter, r *http.Request) {
		f.renewed++
		_ = json.NewEncoder(w).Encode(tokens{"a2", "r2", 1 << 40})
	})
	f.HandleFunc("GET /api/core/v2/namespaces/default/checks", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer a") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `[{"metadata":{"name":"cpu","namespace":"default"},"command":"check-cpu","interval":60,`+
			`"subscriptions":["linux","web"],"publish":true}]`)
	})
	f.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		f.wrote[r.Method+" "+r.URL.Path] = string(b)
	})
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

// run runs one command line as the binary would.
func run(t *testing.T, home, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	e := &command.Env{Sensu: "sensuctl", In: strings.NewReader(in), Out: &out, Err: io.Discard,
		Getenv: func(name string) string { return map[string]string{"HOME": home}[name] }}
	defer e.Close()
	s := New(e)
	root := &cobra.Command{Use: "sensuctl", SilenceErrors: true, SilenceUsage: true}
	s.Flags(root)
	for _, c := range s.Commands() {
		sub := &cobra.Command{Use: c.Name}
		c.Build(e, sub)
		root.AddCommand(sub)
	}
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSensuctl(t *testing.T) {
	f, url := newFake(t)
	home := t.TempDir()
	if _, err := run(t, home, "", "check", "list"); err == nil || !strings.Contains(err.Error(), "sensuctl configure") {
		t.Error(err)
	}
	as := []string{"configure", "-n", "--url", url, "--username", "admin", "--password"}
	if _, err := run(t, home, "", append(as, "wrong")...); err == nil {
		t.Error("a wrong password")
	}
	if _, err := run(t, home, url+"\nadmin\nsecret\n\ntabular\n", "configure"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(home, ".config/sensu/sensuctl/cluster"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for want, args := range map[string][]string{
		"cpu   check-cpu  60":                  {"check", "list"},
		"type: CheckConfig\napi_version: core": {"check", "list", "--format", "yaml"},
		`"interval": 60`:                       {"dump", "checks", "--format", "wrapped-json"},
		`"name": "cpu"`:                        {"--namespace", "default", "check", "list", "--format", "json"},
		"core/v2.CheckConfig":                  {"describe-type", "checks"},
	} {
		if out, err := run(t, home, "", args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	handler := "type: Handler\napi_version: core/v2\nmetadata:\n  name: mail\nspec:\n  type: pipe\n  command: cat\n"
	if _, err := run(t, home, handler, "create"); err != nil ||
		!strings.Contains(f.wrote["PUT /api/core/v2/namespaces/default/handlers/mail"], `"command":"cat"`) {
		t.Errorf("%v: %v", err, f.wrote)
	}
	if _, err := run(t, home, handler, "delete", "-f", "-"); err != nil {
		t.Error(err)
	} else if _, ok := f.wrote["DELETE /api/core/v2/namespaces/default/handlers/mail"]; !ok {
		t.Errorf("%v", f.wrote)
	}
	if _, err := run(t, home, "", "check", "create", "disk", "--command", "x", "--interval", "5", "--subscriptions",
		"a,b"); err != nil || !strings.Contains(f.wrote["POST /api/core/v2/namespaces/default/checks"],
		`"subscriptions":["a","b"]`) {
		t.Errorf("%v: %v", err, f.wrote)
	}
	if _, err := run(t, home, "n\n", "check", "delete", "disk"); err == nil {
		t.Error("it was not sure")
	}
	if _, err := run(t, home, "", "check", "list", "--format", "xml"); err == nil {
		t.Error("a format that is none")
	}
}

// TestLoginIsRenewed: a login that ends soon is renewed with its refresh token, once.
func TestLoginIsRenewed(t *testing.T) {
	f, url := newFake(t)
	f.expires = 1
	home := t.TempDir()
	as := []string{"configure", "-n", "--url", url, "--username", "admin", "--password", "secret"}
	if _, err := run(t, home, "", as...); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := run(t, home, "", "check", "list"); err != nil {
			t.Fatal(err)
		}
	}
	if f.renewed != 1 {
		t.Errorf("renewed %d times", f.renewed)
	}
}

// assetOf is the archive of a command with one script.
func assetOf(t *testing.T, name, script string) (body []byte, sum string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(script))})
	if err == nil {
		_, err = io.WriteString(w, script)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	digest := sha512.Sum512(b.Bytes())
	return b.Bytes(), hex.EncodeToString(digest[:])
}

// TestCommands: a command is installed whole or not at all, and runs with the login in its environment.
func TestCommands(t *testing.T) {
	f, url := newFake(t)
	home := t.TempDir()
	as := []string{"configure", "-n", "--url", url, "--username", "admin", "--password", "secret"}
	if _, err := run(t, home, "", as...); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho $SENSU_API_URL $SENSU_ACCESS_TOKEN $SENSU_NAMESPACE \"$@\"; exit 3\n"
	good, sum := assetOf(t, "bin/entrypoint", script)
	other, otherSum := assetOf(t, "bin/else", script)
	outside, outsideSum := assetOf(t, "../bin/entrypoint", script)
	for path, body := range map[string][]byte{"/good.tar": good, "/other.tar": other, "/outside.tar": outside} {
		f.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(body) })
	}
	install := func(path, sum string, more ...string) error {
		_, err := run(t, home, "", append([]string{"command", "install", "hello", "--url", url + path, "--checksum", sum},
			more...)...)
		return err
	}
	for want, err := range map[string]error{
		"is not that of":         install("/good.tar", otherSum),
		"bin/entrypoint":         install("/other.tar", otherSum),
		"outside of its folder":  install("/outside.tar", outsideSum),
		"128 hexadecimal digits": install("/good.tar", "abc"),
		"404":                    install("/api/missing", sum),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if out, err := run(t, home, "", "command", "list", "--format", "json"); err != nil || strings.TrimSpace(out) != "[]" {
		t.Errorf("%v: %s", err, out)
	}
	if err := install("/good.tar", sum); err != nil {
		t.Fatal(err)
	}
	if err := install("/good.tar", sum); err == nil || !strings.Contains(err.Error(), "--update") {
		t.Error(err)
	}
	if err := install("/good.tar", sum, "--update"); err != nil {
		t.Error(err)
	}
	if _, err := run(t, home, "", "command", "install", "archive", "--url", url+"/good.tar",
		"--checksum", sum); err != nil {
		t.Error(err) // an alias is not in the way of what is downloaded
	}
	out, err := run(t, home, "", "command", "exec", "hello", "--flag", "a b")
	var code command.ExitCode
	if !errors.As(err, &code) || int(code) != 3 || out != url+" a1 default --flag a b\n" {
		t.Errorf("%v: %q", err, out)
	}
	if _, err := run(t, home, "", "command", "delete", "../hello", "--skip-confirm"); err == nil {
		t.Error("an alias that is a path")
	}
	if _, err := run(t, home, "", "command", "delete", "hello", "--skip-confirm"); err != nil {
		t.Error(err)
	}
	if _, err := run(t, home, "", "command", "exec", "hello"); err == nil {
		t.Error("it is deleted")
	}
}

// TestLoginByPassword: who is known to a directory logs in as anybody else does; the backend finds out which one it is.
func TestLoginByPassword(t *testing.T) {
	f, url := newFake(t)
	home := t.TempDir()
	_, err := run(t, home, "", "login", "ldap", "--url", url)
	if err == nil || !strings.Contains(err.Error(), "--username") {
		t.Error(err)
	}
	if _, err := run(t, home, "wrong\n", "login", "ad", "--url", url, "--username", "admin"); err == nil {
		t.Error("a wrong password")
	}
	out, err := run(t, home, "secret\n", "login", "ldap", "--url", url, "--username", "admin")
	if err != nil || !strings.Contains(out, "logged in at "+url) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err = run(t, home, "", "check", "list"); err != nil || !strings.Contains(out, "cpu") {
		t.Errorf("%v: %s", err, out)
	}
	// What is dumped is what it was: providers are of several types.
	f.HandleFunc("GET /api/enterprise/authentication/v2/authproviders", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `[{"type":"ldap","api_version":"authentication/v2","metadata":{"name":"house"},"spec":{}}]`)
	})
	if out, err = run(t, home, "", "dump", "authproviders"); err != nil || !strings.HasPrefix(out, "type: ldap\n") {
		t.Errorf("%v: %s", err, out)
	}
}
