package forward

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/spool"
	"corbel.dev/corbel/telemetry"
)

// farServer answers RPCs on loopback as a server of another datacenter.
func farServer(t *testing.T, api http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{Drain: time.Second})
	u := &spool.Bodies{}
	t.Cleanup(u.Close)
	Answers{API: api, Streamed: api, Uploads: u, Parting: t.Context(), Ending: new(atomic.Bool)}.Register(srv, wire.Anyone)
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

// datacenters are the ways to servers of dc2, which gossip believes to live.
func datacenters(t *testing.T, addrs ...string) Datacenters {
	t.Helper()
	client := rpc.NewClient(rpc.ClientConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}})
	t.Cleanup(func() { _ = client.Close() })
	paths := wan.NewPaths(client, slog.New(slog.DiscardHandler), telemetry.New(telemetry.Config{}))
	var servers []member.Member
	for _, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, member.Member{Name: "s" + port + ".dc2", Addr: host, Status: member.Alive,
			Tags: map[string]string{"dc": "dc2", "port": port}})
	}
	paths.Follow(t.Context(), servers)
	t.Cleanup(paths.Stop)
	return Datacenters{paths, Limits{30 * time.Second, time.Minute}}
}

func TestForwardDCAsksAnotherServerWhenOneIsGone(t *testing.T) {
	var asked atomic.Int32
	good := farServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("X-Consul-Index", "9")
		_, _ = io.WriteString(w, r.URL.RequestURI()+" "+r.Header.Get("X-Consul-Token"))
	}))
	w := datacenters(t, "127.0.0.1:1", good)
	for range 8 { // whichever comes first
		r := httptest.NewRequest(http.MethodPut, "/v1/kv/a?dc=dc2", strings.NewReader("x"))
		r.Header.Set("X-Consul-Token", "secret")
		answer, err := w.ForwardDC(t.Context(), "dc2", r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		if string(body) != "/v1/kv/a?dc=dc2 secret" || answer.Header.Get("X-Consul-Index") != "9" {
			t.Fatalf("%q %v", body, answer.Header)
		}
	}
	if asked.Load() != 8 {
		t.Errorf("8 writes were done %d times", asked.Load())
	}
}

func TestForwardDCFailsAtOnceWithoutAPath(t *testing.T) {
	w := datacenters(t)
	_, err := w.ForwardDC(t.Context(), "dc3", httptest.NewRequest(http.MethodGet, "/v1/kv/a?dc=dc3", nil))
	if !errkind.Is(err, errkind.Unavailable) || errkind.Text(err) != "No path to datacenter" {
		t.Fatalf("got %v", err)
	}
	w = datacenters(t, "127.0.0.1:1")
	if _, err := w.ForwardDC(t.Context(), "dc2", httptest.NewRequest(http.MethodGet, "/v1/kv/a?dc=dc2",
		nil)); errkind.Text(err) != "No path to datacenter" {
		t.Fatalf("nobody listens there: got %v", err)
	}
}

func TestForwardDCDoesNotGoInCircles(t *testing.T) {
	w := datacenters(t, "127.0.0.1:1")
	raw, err := Encode(httptest.NewRequest(http.MethodGet, "/v1/kv/a?dc=dc2", nil), rows.Journey{Hops: 1, Crossed: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := decodeRequest(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ForwardDC(r.Context(), "dc2", r); !errors.Is(err, wan.ErrNoPath) {
		t.Fatalf("a request that crossed once goes on: %v", err)
	}
}

// countingWriter counts an answer's body; it stands for a client on a slow line in that it keeps nothing.
type countingWriter struct {
	*httptest.ResponseRecorder
	bytes int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.bytes += len(p)
	return len(p), nil
}

// A snapshot goes to and from another datacenter in pieces, also one that is larger than any message.
func TestForwardDCStream(t *testing.T) {
	const pieces = maxForwardBytes>>20 + 2 // of 1 MiB
	good := farServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if errors.Is(err, errOffered) {
			return
		}
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Body", strconv.FormatInt(n, 10))
		for range pieces {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	}))
	w := datacenters(t, "127.0.0.1:1", good)
	for range 4 { // whichever comes first
		r := httptest.NewRequest(http.MethodPut, "/v1/snapshot?dc=dc2", io.LimitReader(zeros{}, pieces<<20))
		rw := &countingWriter{ResponseRecorder: httptest.NewRecorder()}
		if err := w.ForwardDCStream(rw, "dc2", r); err != nil {
			t.Fatal(err)
		}
		if rw.bytes != pieces<<20 || rw.Header().Get("X-Body") != strconv.Itoa(pieces<<20) || rw.Code != http.StatusOK {
			t.Fatalf("%d: %d bytes came, %s went", rw.Code, rw.bytes, rw.Header().Get("X-Body"))
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/v1/snapshot?dc=dc3", nil)
	if err := w.ForwardDCStream(httptest.NewRecorder(), "dc3", r); !errors.Is(err, wan.ErrNoPath) {
		t.Errorf("an unknown datacenter: %v", err)
	}
	r = r.WithContext(rows.Forwarded(t.Context(), rows.Journey{Hops: 1, Crossed: true}))
	if err := w.ForwardDCStream(httptest.NewRecorder(), "dc2", r); !errors.Is(err, wan.ErrNoPath) {
		t.Errorf("a request that crossed once goes on: %v", err)
	}
}

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
