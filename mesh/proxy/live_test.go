package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/test/fetch"
)

// patience is how long a loaded machine may take for what takes milliseconds.
const patience = 60 * time.Second

// plane is a discovery server for tests: the state of the world, to one Envoy.
// The product's own server is api/xds; this one is the simplest that a real Envoy takes.
type plane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	mu      sync.Mutex
	proxy   *Proxy
	changed chan struct{} // closed when something was touched
	serial  [8]int        // pushes of each type
	refused []string
	acked   [8]string // version of each type that Envoy took last
}

// step gives the proxy a value and pushes what it touches.
func (s *plane) step(c Change) mesh.Types {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.proxy.Step(c)
	for _, t := range mesh.Every {
		if d.Touched.Has(t) {
			s.serial[t]++
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return d.Touched
}

// rules gives the proxy the rules of its service, after the first intention that names it.
func (l *live) rules() mesh.Types {
	return l.step(l.w.change("service/web")) | l.step(l.w.change("rules/web"))
}

func (s *plane) response(t mesh.Type) (*discoveryv3.DiscoveryResponse, int) {
	r := &discoveryv3.DiscoveryResponse{TypeUrl: t.URL(), VersionInfo: fmt.Sprint(s.serial[t]),
		Nonce: fmt.Sprintf("%d-%d", t, s.serial[t])}
	for _, one := range s.proxy.Set(t).All() {
		var wrapped anypb.Any
		_ = proto.Unmarshal(one.Any, &wrapped)
		r.Resources = append(r.Resources, &wrapped)
	}
	return r, s.serial[t]
}

// StreamAggregatedResources implements the service.
func (s *plane) StreamAggregatedResources(
	stream grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	requests := make(chan *discoveryv3.DiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	sent := map[mesh.Type]int{}
	wanted := map[mesh.Type]string{}
	for {
		s.mu.Lock()
		changed := s.changed
		var out []*discoveryv3.DiscoveryResponse
		for _, t := range mesh.Every {
			if _, ok := wanted[t]; ok && sent[t] != s.serial[t] {
				r, n := s.response(t)
				out, sent[t] = append(out, r), n
			}
		}
		s.mu.Unlock()
		for _, r := range out {
			if err := stream.Send(r); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			t, known := mesh.TypeOf(r.TypeUrl)
			if !known {
				continue
			}
			s.mu.Lock()
			if r.ErrorDetail != nil {
				s.refused = append(s.refused, fmt.Sprintf("%s: %s", t, r.ErrorDetail.Message))
			} else if r.ResponseNonce != "" {
				s.acked[t] = r.VersionInfo
			}
			s.mu.Unlock()
			names := strings.Join(r.ResourceNames, " ")
			if before, ok := wanted[t]; !ok || before != names {
				sent[t] = -1
			}
			wanted[t] = names
		}
	}
}

// live is a real Envoy with a plane of its own.
type live struct {
	*plane
	t     *testing.T
	w     *world
	admin string
}

func start(t *testing.T, program string, w *world, r *Registration) *live {
	t.Helper()
	p := New(r, "dc1", NewCache())
	w.feed(p)
	l := &live{plane: &plane{proxy: p, changed: make(chan struct{})}, t: t, w: w}
	for i := range l.serial {
		l.serial[i] = 1
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, l.plane)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	dir := t.TempDir()
	file, admin := filepath.Join(dir, "envoy.json"), filepath.Join(dir, "admin")
	if err := os.WriteFile(file, bootstrap(t, listener.Addr().(*net.TCPAddr).Port), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-c", file, "--disable-hot-restart", "--concurrency", "1", "--admin-address-path", admin)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("envoy:\n%s", text[max(0, len(text)-4000):])
		}
		_ = log.Close()
	})
	l.wait("the admin address", func() error {
		text, err := os.ReadFile(admin)
		l.admin = strings.TrimSpace(string(text))
		if err == nil && l.admin == "" {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	return l
}

func (l *live) wait(what string, try func() error) {
	l.t.Helper()
	polltest.NoError(l.t, patience, try, "%s", what)
}

func bootstrap(t *testing.T, port int) []byte {
	type o = map[string]any
	socket := func(port int) o {
		return o{"socket_address": o{"address": "127.0.0.1", "port_value": port}}
	}
	text, err := json.Marshal(o{"node": o{"id": "web-sidecar-proxy", "cluster": "web"}, "admin": o{"address": socket(0)},
		"dynamic_resources": o{"lds_config": o{"ads": o{}, "resource_api_version": "V3"},
			"cds_config": o{"ads": o{}, "resource_api_version": "V3"},
			"ads_config": o{"api_type": "GRPC", "transport_api_version": "V3",
				"grpc_services": o{"envoy_grpc": o{"cluster_name": "plane"}}}},
		"static_resources": o{"clusters": []any{o{"name": "plane", "type": "STATIC", "connect_timeout": "5s",
			"load_assignment": o{"cluster_name": "plane",
				"endpoints": []any{o{"lb_endpoints": []any{o{"endpoint": o{"address": socket(port)}}}}}},
			"typed_extension_protocol_options": o{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": o{
				"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": o{"http2_protocol_options": o{}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// dial connects to the proxy's public listener as another service.
func (l *live) dial(port int, service string) (*tls.Conn, error) {
	cert, key := leafFor(l.t, service)
	return l.dialAs(port, cert, key)
}

func (l *live) dialAs(port int, cert, key string) (*tls.Conn, error) {
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(testRoot(l.t)))
	ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Second)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			return err
		}}}
	conn, err := d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	return conn.(*tls.Conn), nil
}

// echo sends a line through and wants it back.
func (l *live) echo(port int, service string) error {
	return echoOver(l.dial(port, service))
}

// echoOver is echo over a connection that was tried.
func echoOver(conn *tls.Conn, err error) error {
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && line != "hello\n" {
		err = fmt.Errorf("got %q", line)
	}
	return err
}

func freePort(t *testing.T) int {
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

func refusedOnly(err error) error {
	if err == nil {
		return fmt.Errorf("still let through")
	}
	return nil
}

func echoServer(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// settled checks that Envoy refused nothing, and that rules came without a change of listeners.
func (l *live) settled(listeners int) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) > 0 {
		l.t.Errorf("Envoy refused: %q", l.refused)
	}
	if l.serial[mesh.TypeListener] != listeners {
		l.t.Errorf("listeners were sent %d times, want %d", l.serial[mesh.TypeListener], listeners)
	}
}

func eachEnvoy(t *testing.T, test func(t *testing.T, program string)) {
	for _, name := range fetch.Envoys {
		t.Run(name, func(t *testing.T) { test(t, fetch.Need(t, name)) })
	}
}

// TestRulesOfConnectionsComeByThemselves: a network filter's configuration may come by
// extension discovery on the aggregated stream, and change without the listener.
func TestRulesOfConnectionsComeByThemselves(t *testing.T) {
	eachEnvoy(t, func(t *testing.T, program string) {
		w := newWorld(t)
		port := freePort(t)
		r := sidecar(t, fmt.Sprintf(`{"LocalServicePort": %d, "Config": {"bind_port": %d}}`, echoServer(t), port))
		l := start(t, program, w, r)
		allow := `{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "shop", "Action": "allow"}]}`
		w.put(allow)
		if touched := l.rules(); touched != mesh.Types(0).With(mesh.TypeExtension) {
			t.Fatalf("an intention touched %b", touched)
		}
		l.wait("shop to be let in", func() error { return l.echo(port, "shop") })
		if l.echo(port, "other") == nil {
			t.Error("another service was let in")
		}
		held, err := l.dial(port, "shop")
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		line := func() error {
			if _, err := io.WriteString(held, "x\n"); err != nil {
				return err
			}
			_, err := held.Read(make([]byte, 2))
			return err
		}
		if err := line(); err != nil {
			t.Fatal(err)
		}
		w.put(`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "shop", "Action": "deny"}]}`)
		l.rules()
		l.wait("shop to be refused", func() error { return refusedOnly(l.echo(port, "shop")) })
		_ = held.SetDeadline(time.Now().Add(patience))
		if err := line(); err != nil {
			t.Errorf("a connection that was let in before: %v", err)
		}
		w.put(allow)
		l.rules()
		l.wait("shop to be let in again", func() error { return l.echo(port, "shop") })
		l.settled(1)
	})
}

func TestRulesOfRequestsComeByThemselves(t *testing.T) {
	eachEnvoy(t, func(t *testing.T, program string) {
		w := newWorld(t, httpForAll)
		app := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			fmt.Fprint(out, in.Header.Get("x-forwarded-client-cert"))
		}))
		t.Cleanup(app.Close)
		port := freePort(t)
		l := start(t, program, w, sidecar(t, fmt.Sprintf(`{"LocalServicePort": %d, "Config": {"bind_port": %d}}`,
			app.Listener.Addr().(*net.TCPAddr).Port, port)))
		w.put(`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "shop", "Permissions": [
			{"Action": "deny", "HTTP": {"PathPrefix": "/admin"}}, {"Action": "allow", "HTTP": {"PathPrefix": "/", "Methods": ["GET"]}}]}]}`)
		l.rules()
		get := func(service, method, path string) (int, string, error) {
			conn, err := l.dial(port, service)
			if err != nil {
				return 0, "", err
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n", method,
				path); err != nil {
				return 0, "", err
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return 0, "", err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return resp.StatusCode, string(body), err
		}
		l.wait("shop to be let in", func() error {
			code, _, err := get("shop", "GET", "/")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("status %d", code)
			}
			return err
		})
		for _, c := range []struct {
			service, method, path string
			want                  int
		}{{"shop", "GET", "/x", 200}, {"shop", "POST", "/x", 403}, {"shop", "GET", "/admin/x", 403},
			{"shop", "GET", "/x/../admin", 403}, {"shop", "GET", "/%61dmin", 403}, {"other", "GET", "/x", 403}} {
			code, body, err := get(c.service, c.method, c.path)
			if err != nil || code != c.want {
				t.Errorf("%s %s %s: %d, %v, want %d", c.service, c.method, c.path, code, err, c.want)
			}
			if code == 200 && !strings.Contains(body, "URI=spiffe://"+testDomain+"/ns/default/dc/dc1/svc/shop") {
				t.Errorf("the application saw %q", body)
			}
		}
		l.settled(1)
	})
}
