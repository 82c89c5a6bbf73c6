package backendconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backend.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPrecedence: a flag before a variable before the file before the default.
func TestPrecedence(t *testing.T) {
	path := write(t, "state-dir: /from/file\nagent-port: 9001\nlog-level: debug\napi-request-limit: "+
		"100000\nderegistration-handler: gone\netcd-name: a\n")
	env := map[string]string{"SENSU_BACKEND_CONFIG_FILE": path, "SENSU_BACKEND_AGENT_PORT": "9002",
		"SENSU_BACKEND_LOG_LEVEL": "error"}
	c, err := Load(map[string]string{"log-level": "info", "api-listen-address": "127.0.0.1:9003",
		"agent-host": "127.0.0.1"}, func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	p := c.Process
	if p.DataDir != "/from/file" || p.Ports.MonitorAgents != 9002 || p.Logging.Level != "INFO" ||
		p.Monitor.RequestMax != 100000 || p.Monitor.DeregistrationHandler != "gone" ||
		p.Monitor.AssetsBurst != 100 {
		t.Errorf("%+v %+v %s", p.Monitor, p.Ports, p.Logging.Level)
	}
	if got := p.Listen.Monitor; len(got) != 1 || got[0] != "127.0.0.1:9003" || !p.Monitor.Enabled ||
		len(p.Listen.HTTP)+len(p.Listen.DNS) > 0 {
		t.Errorf("listens at %+v", p.Listen)
	}
	if !strings.Contains(strings.Join(c.Warnings, "\n"), "etcd-name ("+path+") is ignored: there is no etcd here") {
		t.Errorf("warnings: %q", c.Warnings)
	}
}

func TestDefaults(t *testing.T) {
	c, err := Load(nil, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	p := c.Process
	if p.Listen.Monitor[0] != "[::]:8080" || p.Listen.MonitorAgents[0] != "[::]:8081" ||
		p.DataDir != "/var/lib/sensu/sensu-backend" || p.Logging.Level != "WARN" {
		t.Errorf("%+v %s", p.Listen, p.DataDir)
	}
}

func TestWrong(t *testing.T) {
	path := write(t, "agent-port: many\nno-embed-etcd: perhaps\n")
	_, err := Load(map[string]string{"config-file": path, "api-write-timeout": "15"}, func(string) string { return "" })
	for _, part := range []string{"agent-port (" + path + `): "many" is no whole number`, "no-embed-etcd",
		"api-write-timeout (--api-write-timeout)"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	for _, flags := range []map[string]string{{"config-file": "/nowhere/backend.yml"}, {"log-level": "loud"},
		{"api-listen-address": "8080"}} {
		if _, err := Load(flags, func(string) string { return "" }); err == nil {
			t.Errorf("%v is taken", flags)
		}
	}
}

func FuzzYAML(f *testing.F) {
	f.Add([]byte("agent-port: 1\nlabels:\n  a: b\netcd-client-urls: [a, b]\n"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := &Config{values: map[string]given{}}
		_ = c.yaml("f", b)
	})
}
