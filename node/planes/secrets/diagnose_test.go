package secretsplane

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/node/diagnosis"
)

// diagnosed runs the checks of a configuration and finds those of a name.
func diagnosed(t *testing.T, text, name string) (list []*diagnosis.Check) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vault.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var walk func(c *diagnosis.Check)
	walk = func(c *diagnosis.Check) {
		if c.Name == name {
			list = append(list, c)
		}
		for _, child := range c.Children {
			walk(child)
		}
	}
	walk(Diagnose(t.Context(), DiagnoseConfig{Paths: []string{path}, Getenv: func(string) string { return "" }}))
	if len(list) == 0 {
		t.Fatalf("no check is called %q", name)
	}
	return list
}

const diagnoseListener = "\nlistener \"tcp\" {\n  address = \"127.0.0.1:0\"\n  cluster_address = \"127.0.0.1:0\"\n  " +
	"tls_disable = 1\n}\n"

// A storage behind a service is asked without a write; what it refuses is told.
func TestDiagnoseStorageAccess(t *testing.T) {
	status := 404
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Header.Get("X-Consul-Token"))
		w.WriteHeader(status)
	}))
	defer s.Close()
	for _, c := range []struct {
		status int
		want   diagnosis.Status
	}{{404, diagnosis.OK}, {403, diagnosis.Fail}, {500, diagnosis.Fail}} {
		status, asked = c.status, nil
		got := diagnosed(t, fmt.Sprintf("storage \"consul\" {\n  address = %q\n  token = \"secret-token\"\n}", s.URL)+
			diagnoseListener, "Check Storage Access")
		if got[0].Status != c.want || len(asked) == 0 || strings.Contains(got[0].Message, "secret-token") {
			t.Errorf("%d: %+v; asked %v", c.status, got[0], asked)
		}
		for _, a := range asked {
			if a != "GET secret-token" {
				t.Errorf("asked %s", a)
			}
		}
	}
}

// A transit seal has to give back what it took.
func TestDiagnoseTransit(t *testing.T) {
	lies := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Plaintext, Ciphertext string }
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &in)
		switch {
		case strings.HasSuffix(r.URL.Path, "/encrypt/k"):
			fmt.Fprintf(w, `{"data":{"ciphertext":"vault:v1:%s"}}`, in.Plaintext)
		case lies:
			fmt.Fprint(w, `{"data":{"plaintext":"bGllcw=="}}`)
		default:
			fmt.Fprintf(w, `{"data":{"plaintext":"%s"}}`, strings.TrimPrefix(in.Ciphertext, "vault:v1:"))
		}
	}))
	text := fmt.Sprintf("storage \"inmem\" {}\nseal \"transit\" {\n  address = %q\n  token = \"t\"\n  key_name = \"k\"\n}",
		s.URL) + diagnoseListener
	const name = "Check Autounseal Encryption"
	if got := diagnosed(t, text, name)[0]; got.Status != diagnosis.OK {
		t.Errorf("%+v", got)
	}
	lies = true
	if got := diagnosed(t, text, name)[0]; got.Status != diagnosis.Fail ||
		!strings.Contains(got.Message, "not what was encrypted") {
		t.Errorf("of a server that gives back something else: %+v", got)
	}
	s.Close()
	if got := diagnosed(t, text, name)[0]; got.Status != diagnosis.Fail || !strings.Contains(got.Message, "refused") {
		t.Errorf("of a server that is not there: %+v", got)
	}
}

// Certificates are judged with their keys; sockets without making any.
func TestDiagnoseListeners(t *testing.T) {
	dir := t.TempDir()
	other := t.TempDir()
	a := wiretest.NewAuthority(t)
	a.Store(dir, a.Issue("one", -time.Hour, 90*24*time.Hour))
	a.Store(other, a.Issue("two", -time.Hour, time.Hour))
	cert, key, wrong := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(other, "key.pem")
	listener := func(key, more string) string {
		return fmt.Sprintf("storage \"inmem\" {}\nlistener \"tcp\" {\n  address = \"127.0.0.1:0\"\n  tls_cert_file = %q\n "+
			" tls_key_file = %q\n%s}\n", cert, key, more)
	}
	const name = "Check Listener TLS"
	if got := diagnosed(t, listener(wrong, ""), name)[0]; got.Status != diagnosis.Fail ||
		!strings.Contains(got.Message, "private key does not match") {
		t.Errorf("with another key: %+v", got)
	}
	if got := diagnosed(t, listener(key, fmt.Sprintf("  tls_client_ca_file = %q\n", cert)),
		name)[0]; got.Status != diagnosis.Fail || len(got.Children) != 2 || got.Children[0].Status != diagnosis.OK {
		t.Errorf("with a client authority that is none: %+v", got)
	}
	if got := diagnosed(t, listener(key, "  tls_min_version = \"tls10\"\n"), name)[0]; got.Status != diagnosis.Warn ||
		len(got.Warnings) != 1 {
		t.Errorf("with an old TLS: %+v", got)
	}
	socket := filepath.Join(dir, "sock")
	unix := fmt.Sprintf("storage \"inmem\" {}\nlistener \"unix\" {\n  address = %q\n}\n", socket)
	if got := diagnosed(t, unix, "Create Listeners")[0]; got.Status != diagnosis.OK {
		t.Errorf("a free socket: %+v", got)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket was made")
	}
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := diagnosed(t, unix, "Create Listeners")[0]; got.Status != diagnosis.Fail ||
		!strings.Contains(got.Message, "not a socket") {
		t.Errorf("a file in the socket's place: %+v", got)
	}
}
