package regions

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// server answers on loopback as one of a region; without a name it runs no jobs.
func server(t *testing.T, region string, api http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{Drain: time.Second})
	g := New(Config{Region: region, Clock: clock.Real{}, API: func() http.Handler { return api }})
	if region != "" {
		srv.Handle(wire.Anyone, MethodName, g.Name)
		srv.HandleStream(wire.Anyone, MethodHTTP, g.Serve)
	}
	srv.Handle(wire.Anyone, wan.MethodPing, wan.AnswerPing)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Run(ctx, l)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l.Addr().String()
}

// ways are those of a server of the region east to servers of datacenters, by their addresses.
func ways(t *testing.T, datacenters map[string]string) *Regions {
	t.Helper()
	client := rpc.NewClient(rpc.ClientConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}})
	t.Cleanup(func() { _ = client.Close() })
	paths := wan.NewPaths(client, slog.New(slog.DiscardHandler), telemetry.New(telemetry.Config{}))
	var servers []member.Member
	for addr, dc := range datacenters {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, member.Member{Name: "s" + port + "." + dc, Addr: host, Status: member.Alive,
			Tags: map[string]string{"dc": dc, "port": port}})
	}
	paths.Follow(t.Context(), servers)
	t.Cleanup(paths.Stop)
	return New(Config{Region: "east", Paths: paths, Clock: clock.Real{}, Call: 30 * time.Second})
}

// TestForward: a request and its answer come over whole, from a server that runs jobs, marked as one that crossed.
func TestForward(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("large", 1<<20)
	var answered atomic.Int32
	west := server(t, "west", func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get(nomadrows.Crossed) == "" || r.Header.Get("X-Nomad-Token") != "secret" {
			t.Errorf("%v %v", err, r.Header)
		}
		w.Header()["X-Nomad-Index"] = []string{"7"}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append([]byte(r.Method+" "+r.URL.RequestURI()+" "), body...))
	})
	g := ways(t, map[string]string{west: "dc2", server(t, "", nil): "dc2", "127.0.0.1:1": "dc2"})
	for range 6 { // whichever server comes first
		r := httptest.NewRequest(http.MethodPut, "/v1/jobs?region=west", http.NoBody)
		r.Header.Set("X-Nomad-Token", "secret")
		w := httptest.NewRecorder()
		if err := g.Forward(w, r, nomadrows.Elsewhere{Region: "west", Body: []byte(large)}, false); err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusTeapot || w.Header().Get("X-Nomad-Index") != "7" ||
			w.Body.String() != "PUT /v1/jobs?region=west "+large {
			t.Fatalf("%d %v %d bytes", w.Code, w.Header(), w.Body.Len())
		}
	}
	if n := answered.Load(); n != 6 {
		t.Errorf("6 requests were answered %d times", n)
	}
	if names := g.Names(); len(names) != 1 || names[0] != "west" {
		t.Errorf("regions: %v", names)
	}
}

// TestForwardToTheSilent: servers that take connections and say nothing cost seconds.
func TestForwardToTheSilent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := ways(t, map[string]string{l.Addr().String(): "dc2"})
	g.last["dc2"] = "west"
	begin := time.Now()
	err = g.Forward(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/jobs", http.NoBody),
		nomadrows.Elsewhere{Region: "west"}, true)
	if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), nomadrows.NoPath) || took > 2*search {
		t.Errorf("%v after %s", err, took)
	}
}

// TestForwardRefuses: a region that nobody is, one that two datacenters are, one whose servers are gone; and what
// another region takes for itself.
func TestForwardRefuses(t *testing.T) {
	t.Parallel()
	never := func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }
	g := ways(t, map[string]string{server(t, "west", never): "dc2", server(t, "north", never): "dc3",
		server(t, "north", never): "dc4"})
	try := func(region string) error {
		r := httptest.NewRequest(http.MethodGet, "/v1/jobs", http.NoBody)
		return g.Forward(httptest.NewRecorder(), r, nomadrows.Elsewhere{Region: region}, false)
	}
	if err := try("mars"); errkind.Text(err) != nomadrows.NoPath {
		t.Errorf("nobody is that: %v", err)
	}
	if err := try("north"); err == nil || !strings.Contains(err.Error(), "dc3, dc4 all say") {
		t.Errorf("two are that: %v", err)
	}
	g.last["dc2"] = "south" // it was, once
	g.at = time.Now()
	if err := try("south"); err == nil || !strings.Contains(err.Error(), `of region "south", datacenter dc2, answers`) {
		t.Errorf("the server is of another region by now: %v", err)
	}
	wrong := encode(httptest.NewRequest(http.MethodGet, "/v1/jobs", http.NoBody), nomadrows.Elsewhere{Region: "west"})
	if err := g.Serve(t.Context(), wrong, nil); err == nil || !strings.Contains(err.Error(), nomadrows.NoPath) {
		t.Errorf("it takes east for west: %v", err)
	}
	for cut := range len(wrong) - 1 {
		if _, _, err := decode(t.Context(), wrong[:cut]); err == nil {
			t.Fatalf("%d bytes of %d were read as a request", cut, len(wrong))
		}
	}
}
