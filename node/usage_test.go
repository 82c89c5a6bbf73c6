package node

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/config"
)

// usageServer starts a server of its own with a data folder and a usage section, and returns how to ask it and how to
// end it.
func usageServer(t *testing.T, dir, usage string) (ask func(method, path, body, want string), end func()) {
	t.Helper()
	ports, err := testport.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("log_level = \"ERROR\"\nnode_name = \"test\"\ndata_dir = %q\nserver = true\n"+
		"bootstrap_expect = 1\nbind_addr = \"127.0.0.1\"\nacl { enabled = false }\n"+
		"tls { disabled = true }\nports { http = %d, serf_lan = %d, "+
		"server = %d, secrets = -1, serf_wan = -1, dns = -1, grpc = -1 }\nmonitor { enabled = false, agent { enabled = "+
		"false } }\nusage { enabled = true, own_planes = false, %s }", dir, ports[0], ports[1], ports[2], usage)
	cfg, err := config.Load(config.Options{Style: config.Corbel, Fragments: []string{text}, Hostname: "test",
		Sections: Sections()})
	if err != nil {
		t.Fatal(err)
	}
	made, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*Server)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	ask = func(method, path, body, want string) {
		t.Helper()
		polltest.NoError(t, time.Minute, func() error {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			w := httptest.NewRecorder()
			p.doctor.ServeHTTP(w, r)
			if got := fmt.Sprint(w.Code, " ", w.Body); !strings.Contains(got, want) {
				return fmt.Errorf("%s: %s, want %s", path, got, want)
			}
			return nil
		}, "an answer")
	}
	return ask, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestUsageOfBrokers: where brokers have the log, a server whose folder of the usage plane is gone counts the same.
func TestUsageOfBrokers(t *testing.T) {
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer brokers.Close()
	dir := t.TempDir()
	section := fmt.Sprintf("log { kafka { brokers = [%q] } }", brokers.ListenAddrs()[0])
	ask, end := usageServer(t, dir, section)
	ask("PUT", "/v1/usage/products/calls", `{"kind":"sum"}`, "200")
	ask("POST", "/v1/usage/events", `[{"id":"1","source":"a","product":"calls","value":42}]`, "202")
	ask("GET", "/v1/usage/estimates?product=calls&window=1h", "", `"value":42`)
	end()
	if err := os.RemoveAll(filepath.Join(dir, "usage", "state")); err != nil {
		t.Fatal(err)
	}
	ask, end = usageServer(t, dir, section)
	defer end()
	ask("GET", "/v1/usage/estimates?product=calls&window=1h", "", `"value":42`)
	ask("POST", "/v1/usage/events", `[{"id":"1","source":"a","product":"calls","value":42}]`, `"duplicates":1`)
}
