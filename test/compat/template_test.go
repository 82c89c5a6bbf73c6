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
		must(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: id, Name: "ct-web", Address: "10.3.3.3", Port: port}))
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
