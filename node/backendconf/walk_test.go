package backendconf

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// ofInit are the options that `sensu-backend init` alone reads.
var ofInit = []string{"api-url", "insecure-skip-tls-verify"}

// silent are the options that a server follows whatever they say: its log has always more digits than milliseconds.
var silent = []string{"log-millisecond-timestamps"}

// walk are all options of 6.12, each with a value that is not its default.
const walk = `
agent-host=127.0.0.1 agent-port=9081 api-listen-address=127.0.0.1:9080 api-url=http://x:1 api-request-limit=600000 api-write-timeout=20s
assets-rate-limit=2.5 assets-burst-limit=7 cache-dir=/tmp/cache state-dir=/tmp/state labels=a=b annotations=a=b log-level=error debug=true
log-millisecond-timestamps=true deregistration-handler=gone cert-file=c.pem key-file=k.pem trusted-ca-file=ca.pem insecure-skip-tls-verify=true
agent-auth-cert-file=c.pem agent-auth-key-file=k.pem agent-auth-trusted-ca-file=ca.pem agent-auth-crl-urls=/x.crl
jwt-private-key-file=j.pem jwt-public-key-file=p.pem agent-write-timeout=20 agent-serve-wait-time=3s api-serve-wait-time=3s agent-burst-limit=5 agent-rate-limit=5
eventd-workers=7 eventd-buffer-size=7 keepalived-workers=7 keepalived-buffer-size=7 pipelined-workers=7 pipelined-buffer-size=7
event-log-file=/tmp/e.log event-log-buffer-size=7 event-log-buffer-wait=20ms event-log-parallel-encoders=true
disable-platform-metrics=true platform-metrics-log-file=/tmp/m.log platform-metrics-logging-interval=5s metrics-refresh-interval=5m
default-silenced-expiry-time=60m max-silenced-expiry-time-allowed=1440m enable-cert-revocation-check=true require-fips=true
dashboard-host=:: dashboard-port=3001 dashboard-cert-file=c.pem dashboard-key-file=k.pem dashboard-write-timeout=20s
etcd-advertise-client-urls=http://a:1 etcd-cert-file=c.pem etcd-cipher-suites=TLS_X etcd-client-cert-auth=true etcd-client-urls=http://a:1
etcd-client-username=u etcd-client-password=p etcd-client-log-level=warn etcd-discovery=http://d etcd-discovery-srv=d.example etcd-election-timeout=1000
etcd-heartbeat-interval=100 etcd-initial-advertise-peer-urls=http://a:2 etcd-initial-cluster=a=http://a:2 etcd-initial-cluster-state=existing
etcd-initial-cluster-token=t etcd-key-file=k.pem etcd-listen-client-urls=http://a:1 etcd-listen-peer-urls=http://a:2 etcd-log-level=warn
etcd-max-request-bytes=1000000 etcd-name=a etcd-peer-cert-file=c.pem etcd-peer-client-cert-auth=true etcd-peer-key-file=k.pem etcd-peer-trusted-ca-file=ca.pem
etcd-quota-backend-bytes=1000000 etcd-trusted-ca-file=ca.pem etcd-unsafe-no-fsync=true no-embed-etcd=true
`

// together are options that are of no use alone.
var together = map[string][]string{
	"cert-file": {"key-file"}, "key-file": {"cert-file"}, "trusted-ca-file": {"cert-file", "key-file"},
	"agent-auth-cert-file": {"agent-auth-key-file"}, "agent-auth-key-file": {"agent-auth-cert-file"},
	"agent-auth-trusted-ca-file": {"agent-auth-cert-file", "agent-auth-key-file"},
	"agent-auth-crl-urls":        {"agent-auth-trusted-ca-file", "agent-auth-cert-file", "agent-auth-key-file"},
}

// TestEachOption: every option of sensu-backend is taken as a flag, as a variable and as a key of the file, and all
// three do the same; where it changes nothing, a warning names it and says why.
func TestEachOption(t *testing.T) {
	values := map[string]string{}
	for _, word := range strings.Fields(walk) {
		name, value, _ := strings.Cut(word, "=")
		values[name] = value
	}
	for _, s := range Settings {
		if _, ok := values[s.Name]; !ok && s.Name != "config-file" {
			t.Errorf("%s is not tried", s.Name)
		}
	}
	for name, value := range values {
		base, other := map[string]string{}, map[string]string{}
		for _, need := range together[name] {
			base[need], other[need] = values[need], values[need]
			other[name] = "/another" // none at all would be refused
		}
		without := loaded(t, "without "+name, other, nil)
		flags := map[string]string{name: value}
		env, file := map[string]string{variable(name): value}, name+": "+value+"\n"
		for k, v := range base {
			flags[k], env[variable(k)], file = v, v, file+k+": "+v+"\n"
		}
		path := filepath.Join(t.TempDir(), "backend.yml")
		if err := os.WriteFile(path, []byte(strings.Replace(file, ": ::", ": '::'", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		byFlag, byEnv := loaded(t, "--"+name, flags, nil), loaded(t, variable(name), nil, env)
		byFile := loaded(t, name+" in the file", map[string]string{"config-file": path}, nil)
		if !reflect.DeepEqual(shown(byFlag), shown(byEnv)) || !reflect.DeepEqual(shown(byFlag), shown(byFile)) {
			t.Errorf("%s: as a flag, a variable and a key it is not the same", name)
		}
		warned := slices.ContainsFunc(byFlag.Warnings, func(w string) bool {
			return strings.HasPrefix(w, name+" (--"+name+") is ignored: ")
		})
		changed := !reflect.DeepEqual(shown(byFlag), shown(without)) ||
			slices.Contains(ofInit, name) && byFlag.Get(name) != without.Get(name) || slices.Contains(silent, name)
		if warned == changed {
			t.Errorf("%s: it changes something: %v; a warning says that it does not: %v", name, changed, warned)
		}
	}
}

func loaded(t *testing.T, what string, flags, env map[string]string) *Config {
	t.Helper()
	c, err := Load(flags, func(k string) string { return env[k] })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return c
}

// shown is what a configuration makes a server do, without where its values stand.
func shown(c *Config) any {
	p := *c.Process
	return []any{p.Monitor, p.Ports, p.Listen, p.DataDir, p.Logging, p.TLS.Monitor, p.UI}
}
