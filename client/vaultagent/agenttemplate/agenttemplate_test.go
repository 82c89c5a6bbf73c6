package agenttemplate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/client/vaultagent/autoauth"
	"corbel.dev/corbel/kit/polltest"
)

// fakeVault has one secret, whose value changes, for the token t1.
func fakeVault(t *testing.T) (address string, value *atomic.Int64) {
	value = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Vault-Token") != "t1":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"errors":["permission denied"]}`)
		case strings.HasPrefix(r.URL.Path, "/v1/sys/internal/ui/mounts/"):
			fmt.Fprint(w, `{"data":{"path":"secret/","type":"kv","options":{"version":"2"}}}`)
		case r.URL.Path == "/v1/secret/data/app":
			fmt.Fprintf(w, `{"data":{"data":{"n":"%d"},"metadata":{"version":1}}}`, value.Load())
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":[]}`)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, value
}

// render runs a renderer for the test's time.
func render(t *testing.T, address string, change func(c *Config), list ...agentconfig.Template) (*Renderer,
	chan error) {
	t.Helper()
	cfg := Config{Templates: list, Vault: vault.Config{Address: address}, Tokens: autoauth.NewTokens("t1"),
		Settings: agentconfig.TemplateConfig{StaticSecretInterval: time.Second, LeaseRenewalThreshold: 0.9,
			MaxConnectionsPerHost: 10}}
	if change != nil {
		change(&cfg)
	}
	r := New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return r, done
}

const secret = `{{ with secret "secret/data/app" }}{{ .Data.data.n }}{{ end }}`

func says(text string) agentconfig.Text { return agentconfig.Text{Contents: text} }

// Files and variables are rendered, and again when the secret changes.
func TestRender(t *testing.T) {
	address, value := fakeVault(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "new", "file")
	r, _ := render(t, address, nil,
		agentconfig.Template{Text: says("n=" + secret), Destination: file, CreateDirs: true, Perms: 0o600,
			Command: []string{"echo ran >>" + filepath.Join(dir, "ran")}, CommandTimeout: 30 * time.Second},
		agentconfig.Template{Name: "N", Text: says(secret)}, agentconfig.Template{Name: "FIX", Text: agentconfig.Text{
			Contents: secret + `<< "" >>`, LeftDelim: "<<", RightDelim: ">>"}})
	polltest.Get(t, r.Rendered(), "all is rendered")
	if got := polltest.Get(t, r.Changes(), "the variables"); got["N"] != "0" || got["FIX"] != secret {
		t.Errorf("%q", got)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	value.Store(7)
	polltest.Until(t, func() bool {
		text, err := os.ReadFile(file)
		return err == nil && string(text) == "n=7"
	}, "the file has the new value")
	polltest.Until(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "ran"))
		return err == nil && string(text) == "ran\nran\n"
	}, "the command ran twice")
	polltest.Until(t, func() bool { return polltest.Get(t, r.Changes(), "a change")["N"] == "7" }, "the variable is new")
}

// A template that cannot be read ends it; a server that refuses does so where the configuration says.
func TestGivesUp(t *testing.T) {
	address, _ := fakeVault(t)
	_, done := render(t, address, nil, agentconfig.Template{Name: "A", Text: says("{{ nothing }}")})
	if err := polltest.Get(t, done, "the end"); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Error(err)
	}
	_, done = render(t, address, func(c *Config) {
		c.Settings.ExitOnRetryFailure, c.Retries, c.Tokens = true, 2, autoauth.NewTokens("wrong")
	}, agentconfig.Template{Name: "A", Text: says(secret)})
	if err := polltest.Get(t, done, "the end"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Error(err)
	}
}
