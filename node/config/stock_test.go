package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestStockKeysStart: keys of stock configuration that do nothing here are told of once and stop nothing.
func TestStockKeysStart(t *testing.T) {
	text := `server = true
bootstrap = true
data_dir = "/tmp/none"
bind_addr = "127.0.0.1"
ports { grpc_tls = 8503 }
reconnect_timeout_wan = "9h"
server_rejoin_age_max = "9h"
enable_agent_tls_for_checks = true
serf_lan_allowed_cidrs = ["10.0.0.0/8"]
retry_join_wan = ["provider=other tag_key=x"]
tls { grpc { use_auto_cert = true } }
`
	path := filepath.Join(t.TempDir(), "c.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{Style: Consul, Hostname: "h", Files: []string{path, path}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ports.grpc_tls", "reconnect_timeout_wan", "server_rejoin_age_max", "retry_join_wan",
		"enable_agent_tls_for_checks", "serf_lan_allowed_cidrs", "tls.grpc.use_auto_cert"} {
		told := slices.DeleteFunc(slices.Clone(c.Warnings), func(w string) bool { return !strings.HasPrefix(w, want) })
		if len(told) != 1 {
			t.Errorf("%s: %q", want, told)
		}
	}
	if len(c.Listen.GRPCTLS) > 0 || len(c.Gossip.RetryJoinWAN) > 0 {
		t.Errorf("%+v, %+v", c.Listen, c.Gossip)
	}
}

// TestAllProblemsAtOnce: what the keys say and what is judged beyond them is told together.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Load(Options{Style: Consul, Hostname: "h", Fragments: []string{`colour = 1`},
		Judge: func(*Config) error { return os.ErrNotExist }})
	if got := strings.Join(Problems(err), "\n"); !strings.Contains(got, "colour") || !strings.Contains(got, "exist") {
		t.Error(got)
	}
}
