package vaultconf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const full = `
storage "raft" {
  path    = "/data"
  node_id = "n1"
  retry_join { leader_api_addr = "http://a:8200" }
  retry_join { leader_api_addr = "http://b:8200" }
}
listener "tcp" {
  address       = "0.0.0.0:8200"
  tls_cert_file = "c.pem"
  tls_key_file  = "k.pem"
  telemetry { unauthenticated_metrics_access = true }
  custom_response_headers { "default" = { "X-A" = ["b", "c"] } }
}
listener "tcp" {
  address     = "127.0.0.1:8202"
  tls_disable = "true"
  disable_unauthed_rekey_endpoints = false
}
seal "static" { current_key_id = "k1" }
telemetry { prometheus_retention_time = "30s" statsd_address = "s:8125" usage_gauge_period = "5m" lease_metrics_epsilon = 1800 enable_hostname_label = true }
api_addr          = "https://x:8200"
cluster_addr      = "https://x:8201"
disable_mlock     = true
ui                = true
max_lease_ttl     = "10d"
default_lease_ttl = 3600
plugin_directory  = "/p"
foo               = 1
`

func TestParse(t *testing.T) {
	c, err := Parse([]Source{{Name: "a.hcl", Text: full}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Storage.Type != "raft" || c.Storage.Keys.String("path", "") != "/data" ||
		len(c.Storage.Keys.Blocks("retry_join")) != 2 {
		t.Errorf("storage: %+v", c.Storage)
	}
	if len(c.Listeners) != 2 || c.Listeners[0].TLS.CertFile != "c.pem" || !c.Listeners[0].UnauthenticatedMetrics ||
		!c.Listeners[1].TLS.Disable ||
		c.Listeners[0].OpenRekey || !c.Listeners[1].OpenRekey || c.Listeners[0].ResponseHeaders["default"]["x-a"] != "b,c" {
		t.Errorf("listeners: %+v", c.Listeners)
	}
	if c.MaxLeaseTTL != 240*time.Hour || c.DefaultLeaseTTL != time.Hour || !c.UI || c.APIAddr != "https://x:8200" ||
		c.Telemetry.PrometheusRetention != 30*time.Second || len(c.Seals) != 1 {
		t.Errorf("%+v", c)
	}
	if want := (Usage{Every: 5 * time.Minute, Most: 500, Epsilon: 30 * time.Minute,
		Buckets: 168}); c.Telemetry.Usage != want || !c.Telemetry.HostnameLabel {
		t.Errorf("gauges: %+v", c.Telemetry)
	}
	if text := strings.Join(c.Warnings, "\n"); !strings.Contains(text, "foo: unknown") || c.PluginDir != "/p" ||
		len(c.Warnings) != 1 {
		t.Errorf("warnings: %s", text)
	}
}

func TestParseRefuses(t *testing.T) {
	const good = `storage "inmem" {} listener "tcp" { tls_disable = true }` + "\n"
	for text, want := range map[string]string{
		``:                                       "storage: is missing",
		`storage "inmem" {}`:                     "listener: at least one",
		good + `storage "x" {}`:                  "storage: is given 2 times",
		`storage "inmem" {} listener "tcp" { }`:  "tls_cert_file: is missing",
		`storage "inmem" {} listener "pipe" { }`: `the type "pipe" is unknown`,
		`storage "inmem" {} listener "unix" { }`: "address: is missing",
		good + `max_lease_ttl = "soon"`:          `max_lease_ttl: must be a duration such as "30s", got "soon"`,
		good + `max_lease_ttl = "1h" default_lease_ttl = "2h"`: "default_lease_ttl: is greater",
		good + `ui = "maybe"`:                        "ui: must be true or false",
		good + `log_format = "xml"`:                  "log_format: must be",
		good + `seal "a" {} seal "b" {} seal "c" {}`: "seal: two stanzas",
		`storage = "raft"`:                           "storage: must be a block",
		`storage "inmem" {} listener "tcp" { tls_disable = true max_request_size = -1 }`: "max_request_size: must be a " +
			"whole number",
		good + `telemetry { usage_gauge_period = "often" }`:       "telemetry.usage_gauge_period: must be",
		good + `telemetry { maximum_gauge_cardinality = 100000 }`: "telemetry.maximum_gauge_cardinality: must be",
		good + `telemetry { lease_metrics_epsilon = "1ms" }`:      "telemetry.lease_metrics_epsilon: must be",
		good + `telemetry { num_lease_metrics_buckets = 0 }`:      "telemetry.num_lease_metrics_buckets: must be",
		`x = {`: "x.hcl",
	} {
		_, err := Parse([]Source{{Name: "x.hcl", Text: text}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestStockKeysStart: what stock servers start with starts here, with a line about each key that does nothing.
func TestStockKeysStart(t *testing.T) {
	const text = `storage "inmem" {}
ha_storage "consul" { path = "vault/" }
listener "tcp" {
  tls_disable     = true
  address         = "{{ GetInterfaceIP \"none9\" }}:8300"
  cluster_address = "{{ GetAllInterfaces | limit 0 | join \"address\" \" \" }}:8301"
}
api_addr = "http://{{ GetInterfaceIP \"none9\" }}:8300"
`
	c, err := Parse([]Source{{Name: "x.hcl", Text: text}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listeners[0].Address != "127.0.0.1:8300" || c.Listeners[0].ClusterAddress != "127.0.0.1:8301" ||
		c.APIAddr != "http://127.0.0.1:8300" {
		t.Errorf("%+v, %s", c.Listeners[0], c.APIAddr)
	}
	told := strings.Join(c.Warnings, "\n")
	if len(c.Warnings) != 4 || !strings.Contains(told, "ha_storage \"consul\": has no") {
		t.Errorf("warnings: %s", told)
	}
	if _, err = Parse([]Source{{Name: "x.hcl", Text: text + `cluster_addr = "{{ Nothing }}"`}}, nil); err == nil {
		t.Error("a template that is none")
	}
}

func TestUserLockout(t *testing.T) {
	const good = `storage "inmem" {} listener "tcp" { tls_disable = true }` + "\n"
	c, err := Parse([]Source{{Text: good + `user_lockout "all" { lockout_duration = "10m" lockout_counter_reset = 60 }`},
		{Text: `user_lockout "UserPass" { lockout_threshold = "25" disable_lockout = false }`}}, func(name string) string {
		return map[string]string{"VAULT_DISABLE_USER_LOCKOUT": "1"}[name]
	})
	if err != nil || len(c.Warnings) > 0 {
		t.Fatal(err, c)
	}
	all, own := c.Lockouts["all"], c.Lockouts["userpass"]
	if len(c.Lockouts) != 2 || !c.NoLockout || all != (Lockout{Duration: 10 * time.Minute, CounterReset: time.Minute}) ||
		own.Threshold != 25 || own.Disable == nil || *own.Disable {
		t.Errorf("%+v", c.Lockouts)
	}
	for text, want := range map[string]string{`user_lockout "github" { }`: `the type "github" is unknown`,
		`user_lockout "all" { lockout_threshold = -1 }`: "user_lockout.all.lockout_threshold: must be",
		`user_lockout "all" { disable_lockout = "x" }`:  "user_lockout.all.disable_lockout: must be"} {
		if _, err := Parse([]Source{{Text: good + text}}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestUsageGaugePeriod(t *testing.T) {
	for text, want := range map[string]time.Duration{"none": -1, "0": -1, "90": 90 * time.Second, "1h": time.Hour} {
		c, err := Parse([]Source{{Text: `storage "inmem" {} listener "tcp" { tls_disable = true }` + "\n" +
			`telemetry { usage_gauge_period = "` + text + `" }`}}, nil)
		if err != nil || c.Telemetry.Usage.Every != want {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
}

// TestSources: JSON beside HCL, folders, and variables that win.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.hcl": `storage "postgresql" { connection_url = "postgres://a" } listener "tcp" { tls_disable = 1 } log_level ` +
			`= "warn"`,
		"b.json": `{"listener": [{"tcp": {"address": "127.0.0.1:9200", "tls_disable": true}}], "log_level": "debug", ` +
			`"api_addr": "http://old"}`, "c.txt": "no",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"VAULT_API_ADDR": "http://env", "BAO_PG_CONNECTION_URL": "postgres://b",
		"VAULT_PG_CONNECTION_URL": "postgres://c"}
	c, err := Load([]string{dir}, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Storage.Keys.String("connection_url", ""); got != "postgres://b" || len(c.Listeners) != 2 ||
		c.LogLevel != "debug" || c.APIAddr != "http://env" {
		t.Errorf("%q, %+v", got, c)
	}
	env = map[string]string{"VAULT_LOCAL_CONFIG": `{"storage":{"raft":{"path":"/file","node_id":"file"}},"listener":{` +
		`"tcp":{"tls_disable":true}},"cluster_addr":"https://file:1"}`,
		"VAULT_RAFT_NODE_ID": "n7", "VAULT_RAFT_PATH": "/env", "VAULT_CLUSTER_ADDR": "https://env:8201"}
	c, err = Load(nil, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if k := c.Storage.Keys; k.String("node_id", "") != "n7" || k.String("path", "") != "/env" ||
		c.ClusterAddr != "https://env:8201" || len(c.Listeners) != 1 {
		t.Errorf("by the environment alone: %+v", c)
	}
	env = map[string]string{"VAULT_TRANSIT_SEAL_KEY_NAME": "k", "VAULT_TRANSIT_SEAL_DISABLE_RENEWAL": "true",
		"VAULT_SEAL_TYPE": "transit",
		"VAULT_LOCAL_CONFIG": `{"storage":{"inmem":{}},"listener":{"tcp":{"tls_disable":true}},"seal":{"transit":{` +
			`"disabled":true,"key_name":"old"}}}`}
	if c, err = Load(nil, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	if len(c.Seals) != 2 || c.Seals[0].Keys.String("key_name", "") != "old" || c.Seals[1].Type != "transit" ||
		c.Seals[1].Keys.String("key_name", "") != "k" || !c.Seals[1].Keys.Bool("disable_renewal", false) {
		t.Errorf("the seal by the environment, beside the one to come from: %+v", c.Seals)
	}
	if _, err := Load([]string{filepath.Join(dir, "none")}, nil); err == nil {
		t.Error("a path that is not there was accepted")
	}
}

func TestKeys(t *testing.T) {
	k := NewKeys(map[string]any{"A": "x", "n": "7", "list": "a, b", "bad": "x"})
	if k.String("a", "") != "x" || k.Int("n", 0) != 7 || !slices.Equal(k.Strings("list"), []string{"a", "b"}) ||
		k.Err() != nil {
		t.Errorf("%+v, %v", k, k.Err())
	}
	if k.Int("bad", 0); k.Err() == nil {
		t.Error("no error for a number that is none")
	}
	if rest := k.Rest(); len(rest) != 0 {
		t.Errorf("%v was not taken", rest)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full, "")
	f.Add(`{"storage": {"file": {"path": "/x"}}, "listener": {"tcp": {"tls_disable": 1}}}`, "json")
	f.Fuzz(func(t *testing.T, text, format string) {
		c, err := Parse([]Source{{Name: "x", Format: format, Text: text}}, nil)
		if err == nil && (c.Storage.Type == "" || len(c.Listeners) == 0) {
			t.Fatalf("accepted without storage or listener: %+v", c)
		}
	})
}
