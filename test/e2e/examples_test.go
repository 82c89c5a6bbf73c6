package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclparse"
	"go.yaml.in/yaml/v3"

	"corbel.dev/corbel/kit/loud"
)

const examples = "../../packaging/examples"

// validates has the binary judge a file of configuration, with certificates where it wants them.
func validates(t *testing.T, name, text string) {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{{"tls", "ca", "create"}, {"tls", "cert", "create", "-server"}} {
		cmd := exec.Command(filepath.Join(binDir, "corbel"), args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	text = strings.NewReplacer("/etc/corbel.d/ca.pem", dir+"/consul-agent-ca.pem", "/etc/corbel.d/cert.pem",
		dir+"/dc1-server-consul-0.pem", "/etc/corbel.d/key.pem", dir+"/dc1-server-consul-0-key.pem").Replace(text)
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(binDir, "corbel"), "validate", path).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s\n%s", name, err, out, text)
	}
}

// modules are those of ansible-core that the example may use, so that it needs no collection.
var modules = []string{"ansible.builtin.apt", "ansible.builtin.assert", "ansible.builtin.command",
	"ansible.builtin.copy", "ansible.builtin.meta", "ansible.builtin.systemd_service", "ansible.builtin.template"}

// keywords are what a task may say beside its module.
var keywords = []string{"name", "when", "loop", "notify", "register", "until", "retries", "delay", "changed_when"}

// The playbook's tasks use modules of ansible-core, handlers that there are, and templates that the binary takes.
func TestExamplesOfAnsible(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(examples, "ansible/site.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var plays []struct {
		Name, Hosts     string
		Become          bool
		Serial          any
		Vars            map[string]string
		Tasks, Handlers []map[string]any
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&plays); err != nil || len(plays) != 2 {
		t.Fatalf("%d plays, %v", len(plays), err)
	}
	for _, p := range plays {
		var handlers []string
		for _, h := range p.Handlers {
			handlers = append(handlers, h["name"].(string))
		}
		for _, task := range slices.Concat(p.Tasks, p.Handlers) {
			used := 0
			for key := range task {
				if slices.Contains(modules, key) {
					used++
				} else if !slices.Contains(keywords, key) {
					t.Errorf("%s: %s: what is %s?", p.Name, task["name"], key)
				}
			}
			if n, ok := task["notify"].(string); ok && !slices.Contains(handlers, n) || used != 1 {
				t.Errorf("%s: %s: %d modules, notifies %q of %v", p.Name, task["name"], used, n, handlers)
			}
		}
		name := p.Vars["role"] + ".hcl"
		template, err := os.ReadFile(filepath.Join(examples, "ansible/templates", name+".j2"))
		if err != nil {
			t.Fatal(err)
		}
		validates(t, name, strings.NewReplacer("{{ '{{' }}", "{{", "{{ '}}' }}", "}}", "{{ corbel_encrypt }}",
			"pUqJrVyVRj5jsiYEkM/tFQYfWyJIv4s3XkvDwy7Cu5s=", "{{ groups['servers'] | length }}", "3",
			"{{ groups['servers'] | to_json }}", `["10.0.0.5", "10.0.0.6", "10.0.0.7"]`).Replace(string(template)))
	}
}

// Files of Terraform are of its syntax, and what uses no provider does what it says: its user data is YAML, in which
// the configuration is one that the binary takes.
func TestExamplesOfTerraform(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(examples, "terraform/*/*.tf"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if _, wrong := hclparse.NewParser().ParseHCLFile(file); wrong.HasErrors() {
			t.Error(wrong)
		}
	}
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		loud.Skip(t, "terraform is needed")
	}
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(examples, "terraform/bootstrap/main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	vars, err := json.Marshal(map[string]any{"servers": []string{"10.0.0.5"},
		"package_url": "https://example.com/corbel.deb", "package_sha256": strings.Repeat("0a", 32),
		"encrypt": "pUqJrVyVRj5jsiYEkM/tFQYfWyJIv4s3XkvDwy7Cu5s=", "ca": "CA\n",
		"certs": []string{"CERT\n"}, "keys": []string{"KEY\n"}, "data_device": "/dev/nvme1n1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"main.tf": text, "terraform.tfvars.json": vars} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) []byte {
		cmd := exec.Command(terraform, append([]string{"-chdir=" + dir}, args...)...)
		cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "HOME="+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("terraform %v: %v\n%s", args, err, out)
		}
		return out
	}
	run("validate", "-no-color")
	run("apply", "-auto-approve", "-no-color")
	var out struct {
		Servers struct{ Value []string }
		Agent   struct{ Value string }
	}
	if err := json.Unmarshal(run("output", "-json"), &out); err != nil || len(out.Servers.Value) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	for name, text := range map[string]string{"server.json": out.Servers.Value[0], "agent.json": out.Agent.Value} {
		var data struct {
			WriteFiles []struct{ Path, Content, Permissions string } `yaml:"write_files"`
			RunCmd     []string                                      `yaml:"runcmd"`
		}
		if err := yaml.Unmarshal([]byte(text), &data); err != nil || !strings.HasPrefix(text, "#cloud-config\n") {
			t.Fatalf("%v in\n%s", err, text)
		}
		at := slices.IndexFunc(data.WriteFiles, func(f struct{ Path, Content, Permissions string }) bool {
			return f.Path == "/etc/corbel.d/"+name
		})
		if at < 0 || len(data.RunCmd) < 4 {
			t.Fatalf("%s: %+v", name, data)
		}
		validates(t, name, data.WriteFiles[at].Content)
	}
}
