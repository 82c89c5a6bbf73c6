package agentconf

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/monitor/agent"
)

// load reads a configuration of a file's text, variables and flags.
func load(t *testing.T, file string, env map[string]string, flags ...Given) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	flags = append(flags, Given{Name: "config-file", Values: []string{path}})
	return Load(flags, func(name string) string { return env[name] })
}

func TestDefaults(t *testing.T) {
	c, err := load(t, "# nothing\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	a := c.Agent
	host, _ := os.Hostname()
	if a.Name != host || a.Namespace != "default" || a.API != "127.0.0.1:3031" || a.Sockets != "127.0.0.1:3030" ||
		a.Statsd.Address != "127.0.0.1:8125" || a.Statsd.Flush != 10*time.Second ||
		len(c.BackendURLs) != 1 || c.BackendURLs[0] != "ws://127.0.0.1:8081" || a.Keepalive.Interval != 20 ||
		a.Keepalive.Warning != 120 || a.Keepalive.Critical != 0 ||
		a.EventsRate != 10 || a.EventsBurst != 10 || a.Timing.RetryMax != 2*time.Minute || a.Timing.MaxSession != 0 ||
		c.CacheDir != "/var/cache/sensu/sensu-agent" || c.LogLevel != "INFO" || len(c.Warnings) != 0 {
		t.Errorf("%+v, %+v", c, a)
	}
}

func TestPrecedence(t *testing.T) {
	file := "name: file\nsubscriptions: [a, b]\nlabels: {Region: eu, n: '1'}\nbackend-url:\n- wss://one\n- " +
		"ws://two:9\nderegister: true\nretry-min: 5s\nevents-rate-limit: 0\n"
	c, err := load(t, file, nil)
	if err != nil || c.Agent.Name != "file" || strings.Join(c.Agent.Subscriptions, " ") != "a b" ||
		c.Agent.Labels["Region"] != "eu" || c.Agent.Labels["n"] != "1" ||
		strings.Join(c.BackendURLs, " ") != "wss://one:8081 ws://two:9" || !c.Agent.Deregister ||
		c.Agent.Timing.RetryMin != 5*time.Second || c.Agent.EventsRate != -1 {
		t.Fatalf("%+v, %v", c, err)
	}
	env := map[string]string{"SENSU_NAME": "env", "SENSU_SUBSCRIPTIONS": "c d", "SENSU_LABELS": `{"x": "y=z"}`,
		"SENSU_BACKEND_URL": "ws://three,ws://four"}
	if c, err = load(t, file, env); err != nil || c.Agent.Name != "env" ||
		strings.Join(c.Agent.Subscriptions, " ") != "c d" || c.Agent.Labels["x"] != "y=z" || len(c.Agent.Labels) != 1 ||
		len(c.BackendURLs) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	c, err = load(t, file, env, Given{"name", []string{"first", "flag"}}, Given{"subscriptions", []string{"e,f", "g"}},
		Given{"labels", []string{"a=b", "c=d=e"}}, Given{"disable-api", []string{"true"}},
		Given{"keepalive-pipelines", []string{"core/v2.Pipeline.p"}}, Given{"keepalive-check-labels", []string{"k=v"}})
	if err != nil || c.Agent.Name != "flag" || strings.Join(c.Agent.Subscriptions, " ") != "e f g" ||
		c.Agent.Labels["c"] != "d=e" || c.Agent.API != "" || c.Agent.Keepalive.Pipelines[0].Name != "p" ||
		c.Agent.Keepalive.Labels["k"] != "v" {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err = load(t, "id: old\nkeepalive-timeout: 30\nstrange: 1\n", nil); err != nil || c.Agent.Name != "old" ||
		c.Agent.Keepalive.Warning != 30 || len(c.Warnings) != 3 {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err = load(t, "cache-dir: /dev/null\n", nil); err != nil || c.Agent.CacheDir != "" || !c.Agent.DisableAssets {
		t.Fatalf("%+v, %v", c, err)
	}
}

// walk are all settings of 6.12's sensu-agent, each with a value that is not its default.
const walk = `
name=n namespace=ns backend-url=ws://b:1 user=u password=p subscriptions=a,b labels=a=b annotations=a=b redact=x deregister=true deregistration-handler=gone
agent-managed-entity=true strip-networks=true detect-cloud-provider=true keepalive-interval=5 keepalive-warning-timeout=50 keepalive-critical-timeout=60
keepalive-handlers=h keepalive-check-labels=a=b keepalive-check-annotations=a=b keepalive-pipelines=core/v2.Pipeline.p
backend-handshake-timeout=5 backend-heartbeat-interval=5 backend-heartbeat-timeout=9 retry-min=2s retry-max=3s retry-multiplier=3 max-session-length=1h
insecure-skip-tls-verify=true disable-api=true api-host=::1 api-port=3 events-rate-limit=3 events-burst-limit=3
disable-sockets=true socket-host=::1 socket-port=3 statsd-disable=true statsd-metrics-host=::1 statsd-metrics-port=3 statsd-flush-interval=3 statsd-event-handlers=h
disable-assets=true assets-rate-limit=3 assets-burst-limit=3 cache-dir=/tmp/c log-level=debug discover-processes=true require-fips=true`

// TestEachSetting: every setting is taken as a flag, as a variable and as a key of the file, and all three do the
// same; where it changes nothing, a warning says so.
func TestEachSetting(t *testing.T) {
	// files: TestAllowList, TestMistakesAreNamedTogether, sensu_agent.txtar
	tried := map[string]bool{"config-file": true, "allow-list": true, "trusted-ca-file": true, "cert-file": true,
		"key-file": true}
	shown := func(c *Config, err error) (any, []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		warnings := c.Warnings
		insecure := c.Agent.TLS.InsecureSkipVerify
		c.Warnings, c.Agent.Backends, c.Agent.TLS = nil, nil, nil
		return []any{c, insecure}, warnings
	}
	without, _ := shown(load(t, "# nothing\n", nil))
	for _, word := range strings.Fields(walk) {
		name, v, _ := strings.Cut(word, "=")
		tried[name] = true
		inFile := v
		if k, one, ok := strings.Cut(v, "="); ok {
			inFile = "{" + k + ": " + one + "}"
		} else if strings.Contains(v, ",") {
			inFile = "[" + v + "]"
		} else if strings.HasPrefix(v, ":") {
			inFile = "'" + v + "'"
		}
		flag, warnings := shown(load(t, "# nothing\n", nil, Given{name, []string{v}}))
		env, _ := shown(load(t, "# nothing\n", map[string]string{variable(name): v}))
		file, _ := shown(load(t, name+": "+inFile+"\n", nil))
		if !reflect.DeepEqual(flag, env) || !reflect.DeepEqual(flag, file) {
			t.Errorf("%s: as a flag, a variable and a key it is not the same:\n%+v\n%+v\n%+v", name, flag, env, file)
		}
		idle := reflect.DeepEqual(flag, without)
		if warned := len(warnings) == 1 && strings.HasPrefix(warnings[0], name+" (--"+name+") is ignored: "); warned != idle {
			t.Errorf("%s: it changes nothing: %v; warnings: %q", name, idle, warnings)
		}
	}
	for _, s := range Settings {
		if !tried[s.Name] {
			t.Errorf("%s is not tried", s.Name)
		}
	}
}

func TestMistakesAreNamedTogether(t *testing.T) {
	_, err := load(t, "api-port: 70000\nlabels: [a]\nretry-max: soon\n", map[string]string{"SENSU_DEREGISTER": "perhaps",
		"SENSU_LABELS": ""},
		Given{"backend-url", []string{"http://x"}}, Given{"log-level", []string{"loud"}},
		Given{"keepalive-pipelines", []string{"x"}}, Given{"annotations", []string{"novalue"}},
		Given{"events-rate-limit", []string{"-1"}}, Given{"allow-list", []string{"/nowhere/list.yml"}},
		Given{"cert-file", []string{"c.pem"}}, Given{"keepalive-interval", []string{"1.5"}})
	for _, want := range []string{`api-port (configuration file): "70000"`, "labels (configuration file)",
		"retry-max (configuration file)", "deregister (SENSU_DEREGISTER)", "backend-url (--backend-url)",
		"log-level (--log-level)",
		"keepalive-pipelines", "annotations (--annotations)", "events-rate-limit", "allow-list", "cert-file and key-file",
		"keepalive-interval"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
	if _, err := Load([]Given{{"config-file", []string{"/nowhere/agent.yml"}}},
		func(string) string { return "" }); err == nil {
		t.Error("a file that was asked for and is not there")
	}
	if _, err := load(t, "a: [", nil); err == nil {
		t.Error("a file that is no YAML")
	}
}

func TestAllowList(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yml": "- exec: /bin/x\n  args: ['-w']\n  enable_env: true\n",
		"a.json": `[{"exec":"/bin/x","args":["-w"],"enable_env":true}]`} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := AllowList(path)
		if err != nil || len(list) != 1 || list[0].Exec != "/bin/x" || !list[0].EnableEnv {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	for name, text := range map[string]string{"b.txt": "x", "b.yml": "", "b.json": "{"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := AllowList(path); err == nil {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add("name: x\nlabels: {a: b}\n", "a,b", "a=b")
	f.Add("subscriptions: 5\nlabels: [x]\n", "[", "{")
	path := filepath.Join(f.TempDir(), "agent.yml")
	f.Fuzz(func(t *testing.T, file, list, m string) {
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load([]Given{{"config-file", []string{path}}, {"subscriptions", []string{list}}, {"labels", []string{m}}},
			func(string) string { return "" })
		if err == nil {
			_ = agent.CheckURL(c.BackendURLs[0])
		}
	})
}
