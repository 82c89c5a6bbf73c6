package check

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// once runs a spec one time.
func once(t *testing.T, s Spec) Result {
	t.Helper()
	s.complete()
	ctx, cancel := context.WithTimeout(t.Context(), s.Timeout)
	defer cancel()
	return New(Config{}).probe(s)(ctx)
}

func expect(t *testing.T, got Result, status catalog.Health, parts ...string) {
	t.Helper()
	if got.Status != status {
		t.Errorf("status %v, want %v (output %q)", got.Status, status, got.Output)
	}
	for _, p := range parts {
		if !strings.Contains(got.Output, p) {
			t.Errorf("output %q lacks %q", got.Output, p)
		}
	}
}

func TestHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/code":
			code, _ := strconv.Atoi(r.URL.Query().Get("c"))
			w.WriteHeader(code)
			fmt.Fprint(w, "hello")
		case "/echo":
			body := make([]byte, 64)
			n, _ := r.Body.Read(body)
			fmt.Fprintf(w, "%s|%s|%s|%s|%s|%s", r.Method, r.Host, r.UserAgent(), r.Header.Get("Accept"),
				r.Header.Get("X-A"), body[:n])
		case "/redirect":
			http.Redirect(w, r, "/code?c=200", http.StatusFound)
		case "/long":
			fmt.Fprint(w, strings.Repeat("a", 9000)+"end")
		case "/hang":
			<-r.Context().Done()
		}
	}))
	defer srv.Close()
	for code, want := range map[int]catalog.Health{200: catalog.Passing, 204: catalog.Passing, 299: catalog.Passing,
		300: catalog.Critical, 404: catalog.Critical, 429: catalog.Warning, 500: catalog.Critical, 503: catalog.Critical} {
		url := fmt.Sprintf("%s/code?c=%d", srv.URL, code)
		expect(t, once(t, Spec{Kind: KindHTTP, Target: url}), want, "HTTP GET "+url+": "+strconv.Itoa(code))
	}
	got := once(t, Spec{Kind: KindHTTP, Target: srv.URL + "/code?c=200"})
	if want := "HTTP GET " + srv.URL + "/code?c=200: 200 OK Output: hello"; got.Output != want {
		t.Errorf("output %q, want %q", got.Output, want)
	}
	expect(t, once(t, Spec{Kind: KindHTTP, Target: srv.URL + "/echo", HTTPRequest: HTTPRequest{Method: "PUT",
		Body: "ping", Header: map[string][]string{"Host": {"example.test"}, "x-a": {"1"}}}}),
		catalog.Passing, "PUT|example.test|Consul Health Check|text/plain, text/*, */*|1|ping")
	expect(t, once(t, Spec{Kind: KindHTTP, Target: srv.URL + "/redirect"}), catalog.Passing)
	expect(t, once(t, Spec{Kind: KindHTTP, Target: srv.URL + "/redirect",
		HTTPRequest: HTTPRequest{DisableRedirects: true}}),
		catalog.Critical, "302")
	got = once(t, Spec{Kind: KindHTTP, Target: srv.URL + "/long", OutputMaxSizeBytes: 100})
	if !strings.HasSuffix(got.Output, "aend") || strings.Count(got.Output, "a") > 110 {
		t.Errorf("the output's tail is to be kept: %q", got.Output)
	}
	expect(t, once(t, Spec{Kind: KindHTTP, Target: srv.URL + "/hang", Timeout: 30 * time.Millisecond}), catalog.Critical,
		"deadline")
	expect(t, once(t, Spec{Kind: KindHTTP, Target: "http://127.0.0.1:1/"}), catalog.Critical, "refused")
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "ok")
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = nil
	srv.StartTLS()
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	expect(t, once(t, Spec{Kind: KindHTTP, Target: srv.URL}), catalog.Critical, "certificate")
	expect(t, once(t, Spec{Kind: KindHTTP, Target: srv.URL, TLSSkipVerify: true}), catalog.Passing)
	expect(t, once(t, Spec{Kind: KindTCP, Target: addr, UseTLS: true}), catalog.Critical, "certificate")
	expect(t, once(t, Spec{Kind: KindTCP, Target: addr, UseTLS: true, TLSSkipVerify: true}), catalog.Passing)
	expect(t, once(t, Spec{Kind: KindH2Ping, Target: addr, UseTLS: true, TLSSkipVerify: true}), catalog.Passing,
		"HTTP2 ping was successful")
	// The server's certificate names example.com.
	base := srv.Client().Transport.(*http.Transport).TLSClientConfig
	s := Spec{Kind: KindTCP, Target: addr, UseTLS: true, TLSServerName: "example.com"}
	s.complete()
	expect(t, New(Config{TLS: base}).probe(s)(t.Context()), catalog.Passing)
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	expect(t, once(t, Spec{Kind: KindTCP, Target: addr}), catalog.Passing, "TCP connect "+addr+": Success")
	_ = l.Close()
	expect(t, once(t, Spec{Kind: KindTCP, Target: addr}), catalog.Critical, "refused")
}

func TestUDP(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.LocalAddr().String()
	silent := once(t, Spec{Kind: KindUDP, Target: addr, Timeout: 50 * time.Millisecond})
	expect(t, silent, catalog.Passing, "UDP connect "+addr+": Success")
	_ = l.Close()
	expect(t, once(t, Spec{Kind: KindUDP, Target: addr, Timeout: 5 * time.Second}), catalog.Critical, "refused")
}

func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, hs := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(srv, hs)
	hs.SetServingStatus("web", grpc_health_v1.HealthCheckResponse_SERVING)
	hs.SetServingStatus("db", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	addr := l.Addr().String()
	expect(t, once(t, Spec{Kind: KindGRPC, Target: addr}), catalog.Passing, "gRPC check "+addr+": success")
	expect(t, once(t, Spec{Kind: KindGRPC, Target: addr + "/web"}), catalog.Passing)
	expect(t, once(t, Spec{Kind: KindGRPC, Target: addr + "/db"}), catalog.Critical, "NOT_SERVING")
	expect(t, once(t, Spec{Kind: KindGRPC, Target: addr + "/none"}), catalog.Critical, "code = 5")
	expect(t, once(t, Spec{Kind: KindH2Ping, Target: addr}), catalog.Passing, "HTTP2 ping was successful")
	srv.Stop()
	<-done
	expect(t, once(t, Spec{Kind: KindGRPC, Target: addr}), catalog.Critical, "refused")
	expect(t, once(t, Spec{Kind: KindH2Ping, Target: addr}), catalog.Critical, "refused")
}

func TestSilentPeerEndsAtTheDeadline(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, kind := range []Kind{KindGRPC, KindH2Ping} {
		expect(t, once(t, Spec{Kind: kind, Target: l.Addr().String(), Timeout: 50 * time.Millisecond}), catalog.Critical)
	}
}

func TestScript(t *testing.T) {
	for code, want := range map[int]catalog.Health{0: catalog.Passing, 1: catalog.Warning, 2: catalog.Critical,
		127: catalog.Critical} {
		got := once(t, Spec{Kind: KindScript, Args: []string{"sh", "-c",
			fmt.Sprintf("echo out; echo err >&2; exit %d", code)}})
		expect(t, got, want, "out\n", "err\n")
	}
	expect(t, once(t, Spec{Kind: KindScript, Args: []string{"/does/not/exist"}}), catalog.Critical, "no such file")
	long := once(t, Spec{Kind: KindScript, OutputMaxSizeBytes: 10, Args: []string{"sh", "-c", "printf 0123456789abcdef"}})
	if long.Output != "6789abcdef" {
		t.Errorf("output %q is not the tail", long.Output)
	}
}

// TestScriptTimeoutKillsTheGroup: the child of the script dies with it.
func TestScriptTimeoutKillsTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	s := Spec{Kind: KindScript, Timeout: 300 * time.Millisecond,
		Args: []string{"sh", "-c", "sleep 600 & echo $! > " + file + "; echo begun; wait"}}
	expect(t, once(t, s), catalog.Critical, "Timed out (300ms) running check", "begun")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return gone(pid) || err != nil || strings.Contains(string(stat), ") Z ")
	}, "the script's child %d to be killed", pid)
}

// gone says that there is no such process.
func gone(pid int) bool {
	p, err := os.FindProcess(pid)
	return err != nil || p.Signal(syscall.Signal(0)) != nil
}

func TestUnsupportedKindsAreCritical(t *testing.T) {
	for _, kind := range []Kind{KindDocker, KindOSService} {
		expect(t, once(t, Spec{Kind: kind, Target: "x"}), catalog.Critical, "not supported yet")
	}
}

func FuzzParseServing(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 8, 1})
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 2, 8, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := parseServing(body); err == nil && (len(body) < 5 || body[0] != 0) {
			t.Fatal("a malformed frame was taken")
		}
	})
}

func TestGRPCOverTLS(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, and as a peer without HTTP/2
	defer web.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() { srv.Stop(); <-done }()
	addr := l.Addr().String()
	expect(t, once(t, Spec{Kind: KindGRPC, Target: addr, UseTLS: true, TLSSkipVerify: true}), catalog.Passing)
	expect(t, once(t, Spec{Kind: KindGRPC, Target: addr, UseTLS: true}), catalog.Critical, "certificate")
	expect(t, once(t, Spec{Kind: KindGRPC, Target: addr, Timeout: time.Second}), catalog.Critical)
	for _, kind := range []Kind{KindGRPC, KindH2Ping} {
		expect(t, once(t, Spec{Kind: kind, Target: web.Listener.Addr().String(), UseTLS: true, TLSSkipVerify: true,
			Timeout: time.Second}), catalog.Critical)
	}
}
