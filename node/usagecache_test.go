package node

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	usagecacheplane "corbel.dev/corbel/node/planes/usagecache"
)

// TestUsageCacheDrains: the cache of a whole dev server is in the catalog, answers clients, and is waited for while a
// client uses it before the process ends.
func TestUsageCacheDrains(t *testing.T) {
	ports, err := testport.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("log_level = \"ERROR\"\nnode_name = \"test\"\nports { http = %d, serf_lan = %d, server = %d, "+
		"secrets = -1, serf_wan = -1, dns = -1, grpc = -1 }\nmonitor { enabled = false, agent { enabled = false } }\n"+
		"usage { cache { port = 0, cluster = true } }", ports[0], ports[1], ports[2])
	cfg, err := config.Load(config.Options{Dev: true, Style: config.Corbel, Fragments: []string{text}, Hostname: "test",
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
	defer func() { cancel(); <-done }()
	ask := func(method, path, want string) {
		t.Helper()
		polltest.NoError(t, time.Minute, func() error {
			r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
			r.Header.Set("X-Consul-Token", "root")
			w := httptest.NewRecorder()
			p.doctor.ServeHTTP(w, r)
			if got := fmt.Sprint(w.Code, " ", w.Body); !strings.Contains(got, want) {
				return fmt.Errorf("%s: %s, want %s", path, got, want)
			}
			return nil
		}, "an answer")
	}
	ask("GET", "/v1/health/service/usage-cache?passing", `"usage-cache"`)
	nc, err := net.Dial("tcp", plane.Find[*usagecacheplane.Plane](p.doors.Planes).Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	in := bufio.NewReader(nc)
	say := func(line, want string) {
		t.Helper()
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		if _, err := nc.Write([]byte(line + "\r\n")); err != nil {
			t.Fatal(err)
		}
		if got, err := in.ReadString('\n'); err != nil || strings.TrimSpace(got) != want {
			t.Fatalf("%s: %q %v, want %q", line, got, err, want)
		}
	}
	say("AUTH root", "+OK")
	say("SET a 1", "+OK")
	drained := make(chan struct{})
	go func() { defer close(drained); p.Drain(ctx, false) }()
	ask("GET", "/v1/usage/drain", `"waiting":1`)
	ask("GET", "/v1/health/checks/usage-cache", "Service Draining")
	say("EXISTS MAINTENANCE_MODE", ":1")
	say("DEL a", ":1") // nobody else is there: it keeps its slots
	_ = nc.Close()
	<-drained
	ask("GET", "/v1/usage/drain", `"drained"`)
	ask("GET", "/v1/agent/metrics", "usage.drain.waiting")
}
