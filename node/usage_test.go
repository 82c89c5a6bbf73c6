package node

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
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
	"corbel.dev/corbel/node/plane"
	usagecacheplane "corbel.dev/corbel/node/planes/usagecache"
)

// usageServer starts a server of its own with a data folder and a usage section, and returns how to ask it and how to
// end it.
func usageServer(t *testing.T, dir, usage string) (p *Server, ask func(method, path, body, want string), end func()) {
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
	p = made.(*Server)
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
	return p, ask, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// hasCopies waits until a cache has copies of what was counted.
func hasCopies(t *testing.T, addr string) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	in := bufio.NewReader(nc)
	polltest.NoError(t, time.Minute, func() error {
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		if _, err := nc.Write([]byte("EXISTS usage-snapshots:index\r\n")); err != nil {
			return err
		}
		if got, err := in.ReadString('\n'); err != nil || got != ":1\r\n" {
			return fmt.Errorf("%q, %w", got, cmp.Or(err, errors.New("there is no copy")))
		}
		return nil
	}, "a copy in the cache")
}

// TestUsageOfBrokers: where brokers have the log, a server whose folder of the usage plane is gone counts the same.
// Copies of what it counted are in its cache.
func TestUsageOfBrokers(t *testing.T) {
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer brokers.Close()
	dir := t.TempDir()
	section := fmt.Sprintf("log { kafka { brokers = [%q] } }", brokers.ListenAddrs()[0])
	p, ask, end := usageServer(t, dir, section+"\ncache { port = 0 }\ndrain { ceiling = \"0s\" }\n"+
		"snapshots { cache = true, every = \"1s\" }\nstate { snapshot = \"1s\" }")
	ask("PUT", "/v1/usage/products/calls", `{"kind":"sum"}`, "200")
	ask("POST", "/v1/usage/events", `[{"id":"1","source":"a","product":"calls","value":42}]`, "202")
	ask("GET", "/v1/usage/estimates?product=calls&window=1h", "", `"value":42`)
	hasCopies(t, plane.Find[*usagecacheplane.Plane](p.doors.Planes).Addr().String())
	ask("GET", "/v1/agent/metrics", "", "usage.cache.roundtrip")
	end()
	if err := os.RemoveAll(filepath.Join(dir, "usage", "state")); err != nil {
		t.Fatal(err)
	}
	_, ask, end = usageServer(t, dir, section)
	defer end()
	ask("GET", "/v1/usage/estimates?product=calls&window=1h", "", `"value":42`)
	ask("POST", "/v1/usage/events", `[{"id":"1","source":"a","product":"calls","value":42}]`, `"duplicates":1`)
}
