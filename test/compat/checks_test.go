package compat

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/miekg/dns"
)

// ask sends one DNS question to a node.
func ask(t *testing.T, n *node, network, name string, kind uint16) (*dns.Msg, error) {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, kind)
	answer, _, err := (&dns.Client{Net: network, Timeout: 3 * time.Second}).Exchange(m, n.dns)
	return answer, err
}

// seen waits until both HTTP and DNS show the service as the status wants: DNS
// leaves out the critical, ?passing leaves out warnings too.
func seen(t *testing.T, n *node, service, status string) {
	t.Helper()
	eventually(t, service+" to be "+status+" over HTTP and DNS", func() error {
		entries, _, err := n.client(t).Health().Service(service, "", false, nil)
		if err != nil {
			return err
		}
		if len(entries) != 1 || entries[0].Checks.AggregatedStatus() != status {
			return fmt.Errorf("HTTP has %d entries: %s", len(entries), describe(entries))
		}
		passing, _, err := n.client(t).Health().Service(service, "", true, nil)
		if err != nil || (len(passing) == 1) != (status == api.HealthPassing) {
			return fmt.Errorf("?passing has %d entries, error %v", len(passing), err)
		}
		m, err := ask(t, n, "udp", service+".service.consul.", dns.TypeSRV)
		if err != nil {
			return err
		}
		if want := status != api.HealthCritical; (len(m.Answer) == 1) != want {
			return fmt.Errorf("DNS has %v", m.Answer)
		}
		return nil
	})
}

func describe(entries []*api.ServiceEntry) (s string) {
	for _, e := range entries {
		for _, c := range e.Checks {
			s += c.CheckID + "=" + c.Status + " (" + c.Output + ") "
		}
	}
	return s
}

// withCheck registers a service with one check, for the test's length.
func withCheck(t *testing.T, service string, check *api.AgentServiceCheck) {
	t.Helper()
	must(t, consul(t).Agent().ServiceRegister(&api.AgentServiceRegistration{Name: service, Port: 80, Address: "127.0.0.1",
		Check: check}))
	t.Cleanup(func() { _ = consul(t).Agent().ServiceDeregister(service) })
}

func TestCheckHTTP(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(200)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Probe") != "yes" || r.Method != "HEAD" {
			w.WriteHeader(400)
			return
		}
		w.WriteHeader(int(status.Load()))
	}))
	defer web.Close()
	withCheck(t, "chk-http", &api.AgentServiceCheck{HTTP: web.URL, Method: "HEAD",
		Header: map[string][]string{"X-Probe": {"yes"}}, Interval: "1s", Timeout: "2s"})
	seen(t, server, "chk-http", api.HealthPassing)
	status.Store(429)
	seen(t, server, "chk-http", api.HealthWarning)
	status.Store(503)
	seen(t, server, "chk-http", api.HealthCritical)
	status.Store(204)
	seen(t, server, "chk-http", api.HealthPassing)
	web.Close()
	seen(t, server, "chk-http", api.HealthCritical)
}

// The process behind a TCP check is killed, and comes back on the same port.
func TestCheckTCPFollowsAKilledProcess(t *testing.T) {
	t.Parallel()
	ports, err := freePorts(1)
	must(t, err)
	addr := "127.0.0.1:" + strconv.Itoa(ports[0])
	serve := func() *child {
		c, err := launch(os.Args[0], listenWord, addr)
		must(t, err)
		return c
	}
	c := serve()
	withCheck(t, "chk-tcp", &api.AgentServiceCheck{TCP: addr, Interval: "1s"})
	seen(t, server, "chk-tcp", api.HealthPassing)
	c.kill()
	seen(t, server, "chk-tcp", api.HealthCritical)
	c = serve()
	defer c.kill()
	seen(t, server, "chk-tcp", api.HealthPassing)
}

// listenWord as the first argument makes this test binary a process that only listens.
const listenWord = "listen-only"

// listenOnly is the main of the child that TestCheckTCPFollowsAKilledProcess kills.
func listenOnly(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
}

func TestCheckTTL(t *testing.T) {
	t.Parallel()
	withCheck(t, "chk-ttl", &api.AgentServiceCheck{CheckID: "chk-ttl", TTL: "2s"})
	agent := consul(t).Agent()
	seen(t, server, "chk-ttl", api.HealthCritical)
	must(t, agent.UpdateTTL("chk-ttl", "slow", api.HealthWarning))
	seen(t, server, "chk-ttl", api.HealthWarning)
	must(t, agent.UpdateTTL("chk-ttl", "good", api.HealthPassing))
	seen(t, server, "chk-ttl", api.HealthPassing)
	seen(t, server, "chk-ttl", api.HealthCritical) // silence
}

func TestCheckScript(t *testing.T) {
	t.Parallel()
	code := filepath.Join(t.TempDir(), "code")
	set := func(n string) {
		must(t, os.WriteFile(code+".new", []byte(n), 0o600))
		must(t, os.Rename(code+".new", code))
	}
	set("0")
	withCheck(t, "chk-script", &api.AgentServiceCheck{Args: []string{"/bin/sh", "-c", "echo from the script; exit $(cat " +
		code + ")"}, Interval: "1s"})
	seen(t, server, "chk-script", api.HealthPassing)
	set("1")
	seen(t, server, "chk-script", api.HealthWarning)
	set("2")
	seen(t, server, "chk-script", api.HealthCritical)
	checks, err := consul(t).Agent().ChecksWithFilter(`ServiceName == "chk-script"`)
	must(t, err)
	for _, c := range checks {
		if c.Output != "from the script\n" && c.Output != "from the script" {
			t.Errorf("output %q", c.Output)
		}
	}
	if len(checks) != 1 {
		t.Errorf("%d checks", len(checks))
	}
}

// The gRPC server is hand-made: HTTP/2 in clear and the health service's frames.
func TestCheckGRPC(t *testing.T) {
	t.Parallel()
	var serving atomic.Bool
	serving.Store(true)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/grpc.health.v1.Health/Check" {
			w.WriteHeader(404)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		state := byte(2) // NOT_SERVING
		if serving.Load() {
			state = 1
		}
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 8, state}) // frame header, then field 1 as a varint
		w.Header().Set("Grpc-Status", "0")
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = srv.Serve(l) }()
	defer func() { _ = srv.Close() }()
	withCheck(t, "chk-grpc", &api.AgentServiceCheck{GRPC: l.Addr().String() + "/some.Service", Interval: "1s"})
	seen(t, server, "chk-grpc", api.HealthPassing)
	serving.Store(false)
	seen(t, server, "chk-grpc", api.HealthCritical)
	serving.Store(true)
	seen(t, server, "chk-grpc", api.HealthPassing)
}
