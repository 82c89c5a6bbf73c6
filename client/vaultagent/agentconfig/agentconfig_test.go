package agentconfig

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

const full = `
pid_file = "./pidfile"
log_level = "warn"
vault {
  address = "https://vault.example:8200"
  retry { num_retries = 5 }
}
auto_auth {
  method "approle" {
    mount_path  = "auth/apps"
    namespace   = "team"
    min_backoff = "2s"
    max_backoff = 90
    config = {
      role_id_file_path = "role"
      secret_id_file_path = "secret"
      remove_secret_id_file_after_reading = false
    }
  }
  sink "file" { config = { path = "a" } }
  sink "file" {
    wrap_ttl = "5m"
    config = { path = "b" mode = 0600 }
  }
}
cache { }
api_proxy { use_auto_auth_token = "force" }
listener "unix" { address = "/run/agent.sock" tls_disable = true }
listener "tcp" {
  address = "127.0.0.1:8100"
  tls_disable = true
  role = "metrics_only"
  require_request_header = true
  agent_api { enable_quit = true }
}
template {
  contents = "{{ with secret \"secret/data/app\" }}x{{ end }}"
  destination = "/etc/app.conf"
  perms = "0600"
  exec { command = ["kill", "-HUP", "1"] timeout = "5s" }
  wait { min = "2s" }
}
template_config { static_secret_render_interval = "10s" exit_on_retry_failure = true }
telemetry { disable_hostname = true }
`

const fullJSON = `{
"pid_file": "./pidfile", "log_level": "warn",
"vault": [{"address": "https://vault.example:8200", "retry": {"num_retries": 5}}],
"auto_auth": {
  "method": [{"approle": {"mount_path": "auth/apps", "namespace": "team", "min_backoff": "2s", "max_backoff": 90,
    "config": {"role_id_file_path": "role", "secret_id_file_path": "secret",
      "remove_secret_id_file_after_reading": false}}}],
  "sinks": [{"sink": {"type": "file", "config": {"path": "a"}}},
    {"sink": {"file": {"wrap_ttl": "5m", "config": {"path": "b", "mode": 384}}}}]},
"cache": {}, "api_proxy": {"use_auto_auth_token": "force"},
"listener": [{"unix": {"address": "/run/agent.sock", "tls_disable": true}},
  {"tcp": {"address": "127.0.0.1:8100", "tls_disable": true, "role": "metrics_only", "require_request_header": true,
   "agent_api": {"enable_quit": true}}}],
"template": [{"contents": "{{ with secret \"secret/data/app\" }}x{{ end }}", "destination": "/etc/app.conf",
  "perms": "0600", "exec": {"command": ["kill", "-HUP", "1"], "timeout": "5s"}, "wait": {"min": "2s"}}],
"template_config": {"static_secret_render_interval": "10s", "exit_on_retry_failure": true},
"telemetry": {"disable_hostname": true}}`

// HCL and JSON say the same.
func TestParse(t *testing.T) {
	c, err := Parse(Agent, Source{"agent.hcl", []byte(full)})
	if err != nil {
		t.Fatal(err)
	}
	m := c.AutoAuth.Method
	want := Method{Type: "approle", MountPath: "auth/apps", Namespace: "team", MinBackoff: 2 * time.Second,
		MaxBackoff: 90 * time.Second, Config: map[string]string{"role_id_file_path": "role",
			"secret_id_file_path": "secret", "remove_secret_id_file_after_reading": "false"}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("method %+v, want %+v", m, want)
	}
	if s := c.AutoAuth.Sinks; len(s) != 2 || s[0].Mode != 0o640 || s[1].Mode != 0o600 || s[1].WrapTTL != 5*time.Minute {
		t.Errorf("sinks %+v", s)
	}
	if !c.Cache || !c.APIProxy.Force || c.Vault.Retries != 5 || len(c.Listeners) != 2 || !c.Listeners[1].EnableQuit ||
		!c.Listeners[1].MetricsOnly {
		t.Errorf("%+v", c)
	}
	if tm := c.Templates[0]; tm.Perms != 0o600 || tm.MaxWait != 8*time.Second || len(tm.Command) != 3 || !tm.CreateDirs {
		t.Errorf("template %+v", tm)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "agent.hcl:44: telemetry:") {
		t.Errorf("warnings %q", c.Warnings)
	}
	same, err := Parse(Agent, Source{"agent.json", []byte(fullJSON)})
	if err != nil {
		t.Fatal(err)
	}
	c.Warnings, same.Warnings = nil, nil
	if !reflect.DeepEqual(c, same) {
		t.Errorf("JSON gives\n%+v\nHCL\n%+v", same, c)
	}
}

// What is wrong is told with its line, its path and what to do.
func TestWrong(t *testing.T) {
	method := "auto_auth {\n method \"approle\" {\n config = { role_id_file_path = \"r\" }\n }\n"
	sink := method + " sink \"file\" { config = { path = \"t\" } }\n}\n"
	for _, test := range []struct{ text, want string }{
		{"auto_auht { }",
			"f:1: auto_auht: there is no such key; did you mean auto_auth?"},
		{method + " sink \"file\" {\n confg = { path = \"t\" }\n }\n}",
			"f:6: auto_auth.sink.file.confg: there is no such key; did you mean config?"},
		{method + " sink \"file\" { dh_type = \"curve25519\" config = { path = \"t\" } } }",
			"dh_type and dh_path: one needs the other"},
		{method + " sink \"file\" { dh_type = \"rsa\" dh_path = \"k\" config = { path = \"t\" } } }",
			"dh_type must be curve25519"},
		{method + " sink \"file\" { aad = \"x\" config = { path = \"t\" } } }", "are for sinks with dh_type"},
		{method + " sink \"file\" { dh_type = \"curve25519\" dh_path = \"k\" derive_key = true config = { path = \"t\" } } }",
			"documented nowhere"},
		{method + " sink \"file\" { dh_type = \"curve25519\" dh_path = \"k\" aad_env_var = \"NO_SUCH\" " +
			"config = { path = \"t\" } } }",
			"the variable NO_SUCH is not set"},
		{"auto_auth {\n method \"aws\" { config = { role = \"x\" } }\n}",
			"f:2: auto_auth.method: the method aws is not built here"},
		{"auto_auth {\n method \"aprole\" { }\n}",
			`there is no method "aprole": it is one of approle, cert`},
		{"auto_auth {\n method \"approle\" {\n config = { role_id = \"x\" } } }",
			"give the file that holds it, in role_id_file_path"},
		{"auto_auth { }",
			"a method is missing"},
		{method + "}",
			"nobody gets the token"},
		{sink + "listener \"tcp\" { address = \"127.0.0.1:1\" }",
			"tls_cert_file and tls_key_file are missing"},
		{sink + "template { contents = \"x\" }",
			"f:7: template: destination is missing"},
		{sink + "template { destination = \"x\" }",
			"give one of source and contents"},
		{sink + "template {\n source = \"/none\"\n destination = \"x\" }",
			"/none: no such file"},
		{sink + "template { contents = \"x\" destination = \"y\" perms = 640 }",
			"the rights of a file in octal"},
		{sink + "env_template \"A\" { contents = \"x\" }",
			"env_template needs exec"},
		{sink + "exec { command = [\"x\"] }",
			"exec needs at least one env_template"},
		{sink + "exit_after_auth = \"perhaps\"",
			"must be true or false, not \"perhaps\""},
		{sink + "cache { persist \"kubernetes\" { } }",
			"the cache is in memory alone"},
		{sink + "pid_file = [\"a\"]",
			"f:7: pid_file: must be a text, not a list"},
		{"{\n\"auto_auth\": null}",
			"f:2: null is no value"},
		{"{\n\"exit_after_auth\": true,\n\"log_levle\": \"info\"}",
			"f:3: log_levle: there is no such key; did you mean log_level?"},
		{"a {\n",
			"f:2:"},
		{strings.Repeat("[", 40),
			"f:1: more than 32 brackets"},
		{"api_proxy { use_auto_auth_token = true }\nlistener \"tcp\" { tls_disable = true }",
			"needs auto_auth"},
	} {
		_, err := Parse(Agent, Source{"f", []byte(test.text)})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
	if _, err := Parse(Proxy, Source{"f", []byte(sink + "template { }")}); err == nil ||
		!strings.Contains(err.Error(), "f:7: template: a proxy renders nothing") {
		t.Error(err)
	}
	// All at once.
	_, err := Parse(Agent, Source{"f", []byte("a = 1\nb = 2\n")}, Source{"g", []byte("c = 3")})
	if err == nil || strings.Count(err.Error(), "there is no such key") != 3 {
		t.Error(err)
	}
}

// Files of a folder are one configuration.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.hcl":   "auto_auth {\n method \"token_file\" { config = { token_file_path = \"t\" } }\n}",
		"b.json":  `{"auto_auth": {"sink": {"file": {"config": {"path": "x"}}}}}`,
		"c.notes": "not read",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(Agent, []string{dir})
	if err != nil || len(c.AutoAuth.Sinks) != 1 || c.AutoAuth.Method.Type != "token_file" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Load(Agent, []string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no file that ends in") {
		t.Error(err)
	}
	if _, err := Load(Agent, []string{filepath.Join(dir, "none")}); err == nil {
		t.Error("a file that is not there")
	}
}

// The configuration that an injector of Kubernetes writes is taken as it stands, empty values too.
func TestInjected(t *testing.T) {
	text := `{"auto_auth":{"method":{"type":"kubernetes","mount_path":"auth/kubernetes","namespace":"","max_backoff":"5m",
"config":{"role":"app","token_path":"/var/run/secrets/kubernetes.io/serviceaccount/token"}},
"sink":[{"type":"file","config":{"path":"/vault/agent/.vault-token"}}]},
"exit_after_auth":false,"pid_file":"/vault/agent/.pid","vault":{"address":"https://vault.vault.svc:8200","ca_cert":""},
"template":[{"destination":"/vault/secrets/app","contents":"x","left_delimiter":"{{","right_delimiter":"}}",
"error_on_missing_key":false,"command":""}],
"template_config":{"exit_on_retry_failure":true},"disable_idle_connections":["auto-auth"]}`
	c, err := Parse(Agent, Source{"config.json", []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	if c.AutoAuth.Method.Config["role"] != "app" || len(c.AutoAuth.Sinks) != 1 || len(c.Templates) != 1 ||
		!c.TemplateConfig.ExitOnRetryFailure || c.Templates[0].LeftDelim != "{{" {
		t.Errorf("%+v", c)
	}
}

// The files of docs/vault-agent.md are good as they stand.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/vault-agent.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range regexp.MustCompile("(?s)```text\n(.*?)```").FindAllSubmatch(page, -1) {
		if !Holds(m[1]) {
			continue
		}
		n++
		role := Agent
		if bytes.Contains(m[1], []byte("proxy_api")) {
			role = Proxy
		}
		if _, err := Parse(role, Source{"page", m[1]}); err != nil {
			t.Error(err)
		}
	}
	if n < 3 {
		t.Errorf("the page has %d files", n)
	}
}

func TestHolds(t *testing.T) {
	for text, want := range map[string]bool{full: true, fullJSON: true, `server = true`: false,
		`listener "tcp" { }`: false, "((": false} {
		if got := Holds([]byte(text)); got != want {
			t.Errorf("%.30q: %t", text, got)
		}
	}
}

// Nothing panics, and what is accepted has what its parts need.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{full, fullJSON, `auto_auth { method "jwt" { config = { path = "a" role = "b" } } }`,
		"a = <<EOF\nhi\nEOF\n", `{"auto_auth": {"method": {"type": "cert"}, "sink": []}}`, `"${` + "`", "a = 0x1F",
		`listener { }`, `listener "unix" { address = "x" } cache {}`, `{"template": [[{}]]}`, "\ufeffpid_file = 1",
		`env_template "A=" { contents = "x" } exec { command = "a" }`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, role := range []Role{Agent, Proxy} {
			c, err := Parse(role, Source{"f", text})
			if err != nil {
				continue
			}
			if c.AutoAuth == nil && len(c.Listeners) == 0 && len(c.Templates)+len(c.EnvTemplates) == 0 {
				t.Fatalf("%q does nothing", text)
			}
			if a := c.AutoAuth; a != nil && (a.Method.Type == "" || a.Method.MinBackoff <= 0) {
				t.Fatalf("%q: %+v", text, a.Method)
			}
			if (c.Exec == nil) != (len(c.EnvTemplates) == 0) {
				t.Fatalf("%q: a process without variables, or the other way round", text)
			}
		}
		Holds(text)
	})
}
