package vaultagent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/kit/polltest"
)

// Flags win over the environment, and that over the file.
func TestServer(t *testing.T) {
	file := agentconfig.Vault{Address: "http://file:1", Namespace: "file", CACert: "file.pem", Retries: 12}
	for _, test := range []struct {
		env                       map[string]string
		flags                     vault.Config
		address, namespace, trust string
		retries                   int
	}{
		{nil, vault.Config{}, "http://file:1", "file", "file.pem", 12},
		{map[string]string{"VAULT_ADDR": "http://env:1", "VAULT_MAX_RETRIES": "2"}, vault.Config{}, "http://env:1", "file",
			"file.pem", 2},
		{map[string]string{"VAULT_ADDR": "http://env:1", "VAULT_AGENT_ADDR": "http://self:1", "VAULT_NAMESPACE": "env"},
			vault.Config{Address: "http://flag:1"}, "http://flag:1", "env", "file.pem", 12},
	} {
		got, err := Server(file, test.flags, func(name string) string { return test.env[name] })
		if err != nil || got.Address != test.address || got.Namespace != test.namespace || got.CAFile != test.trust ||
			got.Retries != test.retries {
			t.Errorf("%v %+v: %+v, %v", test.env, test.flags, got, err)
		}
	}
	if got, _ := Server(agentconfig.Vault{}, vault.Config{}, func(string) string { return "" }); got.Address == "" {
		t.Error("no default address")
	}
}

// An agent has its process ID in a file while it runs, and ends with its context.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `pid_file = "` + filepath.Join(dir, "pid") + `"
auto_auth {
  method "token_file" { config = { token_file_path = "` + token + `" } }
  sink "file" { config = { path = "` + filepath.Join(dir, "sink") + `" } }
}`
	f, err := agentconfig.Parse(agentconfig.Agent, agentconfig.Source{Name: "f", Text: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{Role: agentconfig.Agent, File: f, Vault: vault.Config{Address: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	polltest.Until(t, func() bool {
		text, err := os.ReadFile(f.PIDFile)
		return err == nil && strings.TrimSpace(string(text)) != ""
	}, "the pid_file")
	stop()
	if err := polltest.Get(t, done, "the end"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.PIDFile); !os.IsNotExist(err) {
		t.Errorf("the pid_file stays: %v", err)
	}
}

// A file is judged by what it is for.
func TestCheck(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "f.hcl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	auth := "auto_auth {\n method \"cert\" { }\n}\napi_proxy { use_auto_auth_token = true }\n"
	listener := "listener \"tcp\" {\n tls_disable = true\n %s { enable_quit = true }\n}"
	for text, want := range map[string]string{
		auth + strings.Replace(listener, "%s", "agent_api", 1): "",
		auth + strings.Replace(listener, "%s", "proxy_api", 1): "",
		auth + "cache { nothing = 1 }":                         "f.hcl:5: cache.nothing: there is no such key",
	} {
		path := write(text)
		if !Configures(path) {
			t.Errorf("%q is not known", text)
		}
		if err := Check(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if Configures(write("server = true")) || Configures("/none") {
		t.Error("another program's file is taken for an agent's")
	}
}
