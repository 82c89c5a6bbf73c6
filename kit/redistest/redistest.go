// Package redistest starts a real redis-server for tests, or another program that is started like it, and says loudly
// what does not run where there is none.
package redistest

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
)

// Start starts a redis-server on a free port of this host that keeps nothing, and ends it with the test. more are
// options of its command line.
func Start(t testing.TB, more ...string) (addr string) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		loud.Skip(t, "no redis-server is installed (Debian: apt-get install redis-server)")
	}
	return StartOf(t, path, more...)
}

// StartOf starts a program that takes the options of redis-server, as valkey-server does.
func StartOf(t testing.TB, path string, more ...string) (addr string) {
	t.Helper()
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(ports[0])
	addr = net.JoinHostPort("127.0.0.1", port)
	cmd := exec.CommandContext(t.Context(), path, append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "",
		"--appendonly", "no", "--dir", t.TempDir()}, more...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	Say(t, addr, "+PONG", "PING")
	return addr
}

// Cluster starts a cluster of so many hosts without replicas.
func Cluster(t testing.TB, hosts int) (addrs []string) {
	t.Helper()
	return cluster(t, hosts, Start)
}

// ClusterOf is Cluster of a program that takes the options of redis-server.
func ClusterOf(t testing.TB, path string, hosts int) (addrs []string) {
	t.Helper()
	return cluster(t, hosts, func(t testing.TB, more ...string) string { return StartOf(t, path, more...) })
}

func cluster(t testing.TB, hosts int, start func(testing.TB, ...string) string) (addrs []string) {
	t.Helper()
	bus, err := testport.Free(hosts)
	if err != nil {
		t.Fatal(err)
	}
	const slots = 16384
	for i := range hosts {
		addr := start(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus[i]), "--cluster-node-timeout", "2000")
		Say(t, addr, "+OK", fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", slots*i/hosts, slots*(i+1)/hosts-1))
		if i > 0 {
			host, port, _ := net.SplitHostPort(addr) // it has both
			Say(t, addrs[0], "+OK", fmt.Sprintf("CLUSTER MEET %s %s %d", host, port, bus[i]))
		}
		addrs = append(addrs, addr)
	}
	for _, addr := range addrs {
		Say(t, addr, "cluster_state:ok", "CLUSTER INFO")
	}
	return addrs
}

// Say sends a line until the beginning of the answer has a text.
func Say(t testing.TB, addr, want, line string) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer func() { _ = nc.Close() }()
		if err := nc.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if _, err := nc.Write([]byte(line + "\r\n")); err != nil {
			return err
		}
		in, text := bufio.NewReader(nc), ""
		for range 2 { // a bulk has its length first
			part, err := in.ReadString('\n')
			if text += part; strings.Contains(text, want) {
				return nil
			}
			if err != nil || !strings.HasPrefix(text, "$") {
				return fmt.Errorf("%s: %q, want %q: %v", line, text, want, err)
			}
		}
		return fmt.Errorf("%s: %q, want %q", line, text, want)
	}, "an answer of the server at %s", addr)
}
