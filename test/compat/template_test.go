package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	vault "github.com/hashicorp/vault/api"
)

// The go command checks the module against its public checksum database.
const (
	templateModule  = "github.com/hashicorp/consul-template"
	templateVersion = "v0.41.4"
)

// templateProgram builds consul-template into the cache, once per version.
func templateProgram(t *testing.T) string {
	t.Helper()
	cache, err := filepath.Abs(filepath.Join("..", "..", ".cache", "consul-template"))
	must(t, err)
	program := filepath.Join(cache, templateVersion, "consul-template")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	must(t, os.MkdirAll(cache, 0o755))
	part, err := os.MkdirTemp(cache, "part-")
	must(t, err)
	defer func() { _ = os.RemoveAll(part) }()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", templateModule+"@"+templateVersion)
	cmd.Dir = part // outside this module: its dependencies are its own
	cmd.Env = append(os.Environ(), "GOBIN="+part, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		notRun(t, "consul-template cannot be built: %v: %s", err, lines[len(lines)-1])
	}
	must(t, os.MkdirAll(filepath.Dir(program), 0o755))
	must(t, os.Rename(filepath.Join(part, "consul-template"), program)) // whoever comes last replaces it by the same
	return program
}

const templateText = `{{ range service "ct-web" }}{{ .Name }} {{ .Address }}:{{ .Port }} {{ .Status }}
{{ end }}color={{ keyOrDefault "ct/color" "none" }}
{{ range ls "ct/list" }}{{ .Key }}={{ .Value }}
{{ end }}`

// consul-template renders services and keys, and again at each change, from one run.
func TestConsulTemplate(t *testing.T) {
	t.Parallel()
	program := templateProgram(t)
	c := consul(t)
	dir := t.TempDir()
	from, to := filepath.Join(dir, "in.ctmpl"), filepath.Join(dir, "out")
	must(t, os.WriteFile(from, []byte(templateText), 0o600))
	put := func(key, value string) {
		t.Helper()
		_, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte(value)}, nil)
		must(t, err)
	}
	put("ct/list/a", "1")
	t.Cleanup(func() { _, _ = c.KV().DeleteTree("ct/", nil) })
	p, err := launch(program, "-consul-addr="+server.http, "-template="+from+":"+to)
	must(t, err)
	t.Cleanup(p.kill)
	awaitText := func(want string) {
		t.Helper()
		eventually(t, "consul-template to render", func() error {
			select {
			case <-p.done:
				return errors.New("it ended: " + p.logs.String())
			default:
			}
			got, err := os.ReadFile(to)
			if err == nil && string(got) != want {
				err = fmt.Errorf("rendered %q, want %q\n%s", got, want, p.logs.String())
			}
			return err
		})
	}
	awaitText("color=none\na=1\n")
	register := func(id string, port int) {
		t.Helper()
		must(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: id, Name: "ct-web", Address: "10.3.3.3",
			Port: port}))
		t.Cleanup(func() { _ = c.Agent().ServiceDeregister(id) })
	}
	register("ct-1", 81)
	awaitText("ct-web 10.3.3.3:81 passing\ncolor=none\na=1\n")
	put("ct/color", "red")
	awaitText("ct-web 10.3.3.3:81 passing\ncolor=red\na=1\n")
	register("ct-2", 82)
	put("ct/list/b", "2")
	awaitText("ct-web 10.3.3.3:81 passing\nct-web 10.3.3.3:82 passing\ncolor=red\na=1\nb=2\n")
	must(t, c.Agent().ServiceDeregister("ct-1"))
	_, err = c.KV().Delete("ct/list/a", nil)
	must(t, err)
	awaitText("ct-web 10.3.3.3:82 passing\ncolor=red\nb=2\n")
}

const secretsText = `{{ with secret "kv2/data/app" }}v2 {{ .Data.data.password }} {{ .Data.metadata.version }}
{{ end }}{{ with secret "kv2/app" }}shortened {{ .Data.data.password }}
{{ end }}{{ with secret "kv1/app" }}v1 {{ .Data.password }}
{{ end }}{{ range secrets "kv1/" }}key {{ . }}
{{ end }}{{ with secret "pki/issue/web" "common_name=a.example.com" "ttl=1h" }}serial {{ len .Data.serial_number }} chain {{ len .Data.ca_chain }}
{{ end }}`

// consul-template reads both versions of KV and has certificates issued, with a wrapped token that it unwraps and
// renews.
func TestConsulTemplateSecrets(t *testing.T) {
	t.Parallel()
	program := templateProgram(t)
	cl, _ := newVault(t)
	for path, kind := range map[string]string{"kv1": "kv", "kv2": "kv-v2", "pki": "pki"} {
		must(t, cl.Sys().Mount(path, &vault.MountInput{Type: kind}))
	}
	written(t, cl, "kv1/app", map[string]any{"password": "one"})
	written(t, cl, "kv2/data/app", map[string]any{"data": map[string]any{"password": "two"}})
	written(t, cl, "pki/root/generate/internal", map[string]any{"common_name": "root", "key_type": "ec"})
	written(t, cl, "pki/roles/web", map[string]any{"allowed_domains": "example.com", "allow_subdomains": true,
		"key_type": "ec"})
	must(t, cl.Sys().PutPolicy("app", `path "kv1/*" { capabilities = ["read", "list"] } path "kv2/data/app" { `+
		`capabilities = ["read"] } path "pki/issue/web" { capabilities = ["update"] }`))
	cl.SetWrappingLookupFunc(func(string, string) string { return "5m" })
	token, err := cl.Auth().Token().Create(&vault.TokenCreateRequest{Policies: []string{"app"}, TTL: "1h"})
	must(t, err)
	dir := t.TempDir()
	from, to := filepath.Join(dir, "in.ctmpl"), filepath.Join(dir, "out")
	must(t, os.WriteFile(from, []byte(secretsText), 0o600))
	p, err := launch(program, "-once", "-vault-addr="+cl.Address(), "-vault-token="+token.WrapInfo.Token,
		"-vault-unwrap-token", "-vault-renew-token", "-template="+from+":"+to)
	must(t, err)
	t.Cleanup(p.kill)
	select {
	case <-p.done:
	case <-time.After(90 * time.Second):
		t.Fatal("consul-template does not end\n" + p.logs.String())
	}
	got, err := os.ReadFile(to)
	if want := "v2 two 1\nshortened two\nv1 one\nkey app\nserial 59 chain 1\n"; err != nil || string(got) != want {
		t.Errorf("rendered %q, %v, want %q\n%s", got, err, want, p.logs.String())
	}
}
