package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// serve runs a sidecar of web before an application, with the config entries; it returns its public port.
func serve(t *testing.T, program string, app int, entries ...string) (*live, mesh.Endpoint) {
	port := freePort(t)
	w := newWorld(t, append(entries, `{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "shop", `+
		`"Action": "allow"}]}`)...)
	l := start(t, program, w, sidecar(t, fmt.Sprintf(`{"LocalServicePort": %d, "Config": {"bind_port": %d}}`, app, port)))
	return l, mesh.Endpoint{Address: "127.0.0.1", Port: uint16(port), Weight: 1}
}

// call runs a sidecar of shop with upstreams web and api at the ports that it returns.
func call(t *testing.T, program string, instances map[string][]mesh.Endpoint, entries ...string) (l *live,
	web, api int) {
	w := newWorld(t, entries...)
	for subject, list := range instances {
		w.instances[subject] = list
	}
	var err error
	if w.leaf, err = envoy.Leaf(leafFor(t, "shop")); err != nil {
		t.Fatal(err)
	}
	web, api = freePort(t), freePort(t)
	r := sidecar(t, fmt.Sprintf(`{"DestinationServiceName": "shop", "LocalServicePort": 1, "Upstreams": [{`+
		`"DestinationName": "web", "LocalBindPort": %d}, {"DestinationName": "api", "LocalBindPort": %d}], "Config": {`+
		`"bind_port": %d}}`, web, api, freePort(t)))
	return start(t, program, w, r), web, api
}

func appThatSays(t *testing.T, what string) int {
	app := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(out, what)
	}))
	t.Cleanup(app.Close)
	return app.Listener.Addr().(*net.TCPAddr).Port
}

// ask gets a page from an upstream's listener.
func ask(t *testing.T, port int) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}
	return string(body), err
}

func says(t *testing.T, port int, want string) func() error {
	return func() error {
		got, err := ask(t, port)
		if err == nil && got != want {
			err = fmt.Errorf("answered by %q", got)
		}
		return err
	}
}

const (
	webSubsets = `"DefaultSubset": "v1", "Subsets": {"v1": {"Filter": "Service.Meta.v == 1"}, "v2": {"Filter": ` +
		`"Service.Meta.v == 2"}}`
	webSplitter = `{"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 90, "ServiceSubset": "v1"}, {` +
		`"Weight": 10, "ServiceSubset": "v2"}]}`
)

// TestRequestsThroughTwoSidecars: mutual TLS from end to end, a split, failover, and an upstream that is somebody else.
func TestRequestsThroughTwoSidecars(t *testing.T) {
	eachEnvoy(t, func(t *testing.T, program string) {
		one, at1 := serve(t, program, appThatSays(t, "v1"), httpForAll)
		two, at2 := serve(t, program, appThatSays(t, "v2"), httpForAll)
		l, web, api := call(t, program, map[string][]mesh.Endpoint{"endpoints/dc1/web/v1": {at1},
			"endpoints/dc1/web/v2": {at2}, "endpoints/dc1/api/": {at1}},
			httpForAll, `{"Kind": "service-resolver", "Name": "web", `+webSubsets+`}`, webSplitter)
		l.wait("both subsets", func() error {
			for _, want := range []string{"v1", "v2"} {
				found := false
				for i := 0; i < 200 && !found; i++ {
					got, err := ask(t, web)
					if err != nil {
						return err
					}
					found = got == want
				}
				if !found {
					return fmt.Errorf("200 requests and none answered by %s", want)
				}
			}
			return nil
		})
		const n = 1000
		second := 0
		for range n {
			got, err := ask(t, web)
			if err != nil {
				t.Fatal(err)
			}
			if got == "v2" {
				second++
			}
		}
		// five deviations: once in two million runs
		if off := math.Abs(float64(second) - n*0.1); off > 5*math.Sqrt(n*0.1*0.9) {
			t.Errorf("%d of %d requests went to the tenth", second, n)
		}
		if got, err := ask(t, api); err == nil {
			t.Errorf("a proxy of web was taken for one of api: %q", got)
		}
		delete(l.w.entries, "service-splitter/web")
		l.w.put(`{"Kind": "service-resolver", "Name": "web", ` + webSubsets +
			`, "Failover": {"v1": {"ServiceSubset": "v2"}}}`)
		l.step(l.w.change("upstream/dc1/web///"))
		l.wait("v1 alone", func() error {
			for range 30 {
				if err := says(t, web, "v1")(); err != nil {
					return err
				}
			}
			return nil
		})
		at1.Health = mesh.Unhealthy
		l.w.instances["endpoints/dc1/web/v1"] = []mesh.Endpoint{at1}
		l.step(l.w.change("endpoints/dc1/web/v1"))
		l.wait("v2 in the place of v1", says(t, web, "v2"))
		at1.Health = mesh.Healthy
		l.w.instances["endpoints/dc1/web/v1"] = []mesh.Endpoint{at1}
		l.step(l.w.change("endpoints/dc1/web/v1"))
		l.wait("v1 again", says(t, web, "v1"))
		for _, l := range []*live{one, two} {
			l.settled(1)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.refused) > 0 {
			t.Errorf("Envoy refused: %q", l.refused)
		}
	})
}

func TestConnectionsAndCallsThroughTwoSidecars(t *testing.T) {
	eachEnvoy(t, func(t *testing.T, program string) {
		_, at := serve(t, program, echoServer(t))
		l, web, _ := call(t, program, map[string][]mesh.Endpoint{"endpoints/dc1/web/": {at}})
		l.wait("an echo through both", func() error {
			conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", web), 5*time.Second)
			if err != nil {
				return err
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.WriteString(conn, "hello\n"); err != nil {
				return err
			}
			_, err = bufio.NewReader(conn).ReadString('\n')
			return err
		})
		l.settled(1)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		app := grpc.NewServer()
		healthv1.RegisterHealthServer(app, health.NewServer())
		go func() { _ = app.Serve(listener) }()
		t.Cleanup(app.Stop)
		const grpcForAll = `{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "grpc"}}`
		_, at = serve(t, program, listener.Addr().(*net.TCPAddr).Port, grpcForAll)
		l, web, _ = call(t, program, map[string][]mesh.Endpoint{"endpoints/dc1/web/": {at}}, grpcForAll)
		client, err := grpc.NewClient(fmt.Sprintf("passthrough:///127.0.0.1:%d", web),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		l.wait("a call through both", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := healthv1.NewHealthClient(client).Check(ctx, &healthv1.HealthCheckRequest{})
			return err
		})
		l.settled(1)
	})
}
