//go:build linux

package simhosts

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/childcall"
	"corbel.dev/corbel/kit/polltest"
)

// TestFleetIsPlayed: each host comes to the servers from its own address, and its discovery service answers there; all
// end with the calls.
func TestFleetIsPlayed(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	calls, answers := io.Pipe()
	done := make(chan error, 1)
	out, reply := io.Pipe()
	go func() { done <- Serve(context.Background(), calls, reply) }()
	caller := childcall.NewCaller(answers, out)
	ask := func(method string, params, result any) {
		t.Helper()
		if err := caller.Call(t.Context(), method, params, result); err != nil {
			t.Fatal(err)
		}
	}
	var addrs []string
	ask("start", config{Servers: []string{server.Addr().String()}, Datacenter: "dc1", Upstream: "db", UpstreamPort: 5000,
		Hosts: []hostConfig{{Node: "h1", Bind: "127.64.3.1", Proxies: []proxyConfig{{Service: "web", ID: "web-1",
			Port: 8000}}}, {Node: "h2", Bind: "127.64.3.2"}}}, &addrs)
	for i, want := range []string{"127.64.3.1", "127.64.3.2"} {
		if host, _, err := net.SplitHostPort(addrs[i]); err != nil || host != want {
			t.Errorf("host %d answers at %s", i, addrs[i])
		}
	}
	seen := map[string]bool{}
	polltest.Within(t, time.Minute, func() bool {
		c, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		seen[host] = true
		_ = c.Close()
		return seen["127.64.3.1"] && seen["127.64.3.2"]
	}, "both hosts to come")
	ask("settle", nil, nil)
	var lines []string
	ask("state", []int{1, 2}, &lines)
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "h2 is connected to []") {
		t.Errorf("the state of a host without a server: %q", lines)
	}
	_ = answers.Close()
	if err := polltest.Get(t, done, "the end"); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
