package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/spool"
	"corbel.dev/corbel/telemetry"
)

var discard = slog.New(slog.DiscardHandler)

func wanMember(name, dc, addr, port string) member.Member {
	return member.Member{Name: name + "." + dc, Addr: addr, Status: member.Alive,
		Tags: map[string]string{"dc": dc, "port": port, "role": base.RoleServer}}
}

// network answers pings by address: after a while, or not at all.
type network struct {
	mu  sync.Mutex
	rtt map[string]time.Duration
	cut map[string]bool
}

func (n *network) ping(ctx context.Context, addr string) error {
	n.mu.Lock()
	rtt, cut := n.rtt[addr], n.cut[addr]
	n.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(rtt):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (n *network) set(addr string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[addr] = cut
}

func TestPathsSortBreakAndHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{rtt: map[string]time.Duration{"10.0.0.1:8300": 80 * time.Millisecond,
			"10.0.0.2:8300": 20 * time.Millisecond}, cut: map[string]bool{"10.0.0.3:8300": true}}
		p := newWANPaths(discard, n.ping)
		all := []member.Member{wanMember("a", "far", "10.0.0.1", "8300"), wanMember("b", "near", "10.0.0.2", "8300"),
			wanMember("c", "gone", "10.0.0.3", "8300")}
		p.follow(t.Context(), all)
		if got := p.to("gone", 3); len(got) != 1 {
			t.Fatalf("a server nobody judged yet is worth a try, got %v", got)
		}
		time.Sleep(30 * time.Second)
		if got, want := p.datacenters("own"), []string{"own", "near", "far", "gone"}; !slices.Equal(got, want) {
			t.Errorf("datacenters %v, want %v", got, want)
		}
		if got := p.to("gone", 3); len(got) != 0 {
			t.Errorf("a path that never answered is offered: %v", got)
		}
		if !p.knows("gone") || p.knows("nowhere") {
			t.Error("a datacenter is known by its servers, reachable or not")
		}
		near := p.to("near", 3)[0]
		broken := near.broken()
		n.set("10.0.0.2:8300", true)
		time.Sleep(pathMisses*(pingTimeout+pingInterval) + time.Second)
		if broken.Err() == nil || len(p.to("near", 3)) != 0 {
			t.Error("a cut path still counts as good, or its calls go on")
		}
		n.set("10.0.0.2:8300", false)
		time.Sleep(2*pingInterval + pingTimeout)
		if got := p.to("near", 3); len(got) != 1 || got[0].broken().Err() != nil {
			t.Error("a healed path is not used again")
		}
		p.follow(t.Context(), all[:1])
		if got, want := p.datacenters("own"), []string{"own", "far"}; !slices.Equal(got, want) {
			t.Errorf("datacenters %v after two left, want %v", got, want)
		}
		p.stop()
	})
}

// farServer answers RPCs on loopback as a server of another datacenter.
func farServer(t *testing.T, api http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{Drain: time.Second})
	srv.Handle(wire.Anyone, methodHTTP, serveForwarded(api, t.Context(), new(atomic.Bool)))
	u := &spool.Bodies{}
	t.Cleanup(u.Close)
	srv.HandleStream(wire.Anyone, methodHTTPStream, serveStreamed(api, u))
	srv.Handle(wire.Anyone, methodHTTPOffer, serveOffer(api, u))
	srv.Handle(wire.Anyone, methodHTTPUpload, u.Piece)
	srv.Handle(wire.Anyone, methodPing, servePing())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Run(ctx, l)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l.Addr().String()
}

// testWAN is a wan whose paths were judged by hand.
func testWAN(t *testing.T, addrs ...string) *wan {
	t.Helper()
	w := &wan{b: &base.Base{Logging: base.Logging{Log: discard},
		Meters: base.Meters{Metrics: telemetry.New(telemetry.Config{})}},
		callTimeout:  30 * time.Second,
		blockTimeout: time.Minute}
	w.rpc = rpc.NewClient(rpc.ClientConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}})
	t.Cleanup(func() { _ = w.rpc.Close() })
	w.paths = newWANPaths(discard, nil)
	for _, addr := range addrs {
		one := &wanPath{name: "s.dc2", dc: "dc2", addr: addr, poke: make(chan struct{}, 1), alive: true}
		one.life, one.end = context.WithCancel(context.Background())
		w.paths.all[addr] = one
	}
	return w
}

func TestForwardDCAsksAnotherServerWhenOneIsGone(t *testing.T) {
	var asked atomic.Int32
	good := farServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("X-Consul-Index", "9")
		_, _ = io.WriteString(w, r.URL.RequestURI()+" "+r.Header.Get("X-Consul-Token"))
	}))
	w := testWAN(t, "127.0.0.1:1", good)
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
	w := testWAN(t)
	_, err := w.ForwardDC(t.Context(), "dc3", httptest.NewRequest(http.MethodGet, "/v1/kv/a?dc=dc3", nil))
	if !errkind.Is(err, errkind.Unavailable) || errkind.Text(err) != "No path to datacenter" {
		t.Fatalf("got %v", err)
	}
	w = testWAN(t, "127.0.0.1:1")
	if _, err := w.ForwardDC(t.Context(), "dc2", httptest.NewRequest(http.MethodGet, "/v1/kv/a?dc=dc2",
		nil)); errkind.Text(err) != "No path to datacenter" {
		t.Fatalf("nobody listens there: got %v", err)
	}
}

func TestForwardDCDoesNotGoInCircles(t *testing.T) {
	w := testWAN(t, "127.0.0.1:1")
	raw, err := encodeRequest(httptest.NewRequest(http.MethodGet, "/v1/kv/a?dc=dc2", nil), journey{hops: 1, crossed: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := decodeRequest(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ForwardDC(r.Context(), "dc2", r); !errors.Is(err, errNoPath) {
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
	w := testWAN(t, "127.0.0.1:1", good)
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
	if err := w.ForwardDCStream(httptest.NewRecorder(), "dc3", r); !errors.Is(err, errNoPath) {
		t.Errorf("an unknown datacenter: %v", err)
	}
	r = r.WithContext(context.WithValue(t.Context(), journeyKey{}, journey{hops: 1, crossed: true}))
	if err := w.ForwardDCStream(httptest.NewRecorder(), "dc2", r); !errors.Is(err, errNoPath) {
		t.Errorf("a request that crossed once goes on: %v", err)
	}
}

// A path that breaks ends the calls on it; a client that leaves ends its call at the other end.
func TestForwardDCEndsWhatIsParked(t *testing.T) {
	parked := make(chan context.Context, 2)
	addr := farServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parked <- r.Context()
		<-r.Context().Done()
	}))
	w := testWAN(t, addr)
	get := func(ctx context.Context) chan error {
		out := make(chan error, 1)
		go func() {
			_, err := w.ForwardDC(ctx, "dc2", httptest.NewRequest(http.MethodPut, "/v1/kv/a?dc=dc2&index=7", nil))
			out <- err
		}()
		return out
	}
	ctx, leave := context.WithCancel(t.Context())
	result := get(ctx)
	far := <-parked
	leave()
	<-far.Done()
	if err := <-result; err == nil {
		t.Error("a client that left got an answer")
	}
	result = get(t.Context())
	far = <-parked
	w.paths.all[addr].judge(errors.New("silence"), 0)
	w.paths.all[addr].judge(errors.New("silence"), 0)
	if err := <-result; errkind.Text(err) != "No path to datacenter" || !errkind.Is(err, errkind.Unknown) {
		t.Errorf("a parked call on a broken path: %v", err)
	}
	<-far.Done()
}
