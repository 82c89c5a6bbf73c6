package hothttp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// script answers /hot itself, parks /park until woken and declines the rest.
type script struct {
	mu     sync.Mutex
	parked map[string]*Call
	gone   []string
	event  chan struct{}
	server *Server
}

var okHead = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")

func (s *script) Serve(c *Call, r *Request) Outcome {
	path := string(r.Path)
	switch {
	case path == "/hot":
		reply := fmt.Appendf(nil, "%d %s %s %s", r.Method, r.Query, r.Token, r.Body)
		_ = c.Reply(okHead, reply)
		return Done
	case strings.HasPrefix(path, "/park/"):
		c.Park(func() { s.note(func() { s.gone = append(s.gone, path); delete(s.parked, path) }) })
		s.note(func() { s.parked[path] = c })
		return Parked
	}
	return Decline
}

func (s *script) note(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.event <- struct{}{}
}

func (s *script) wake(path string, body []byte) {
	s.mu.Lock()
	c := s.parked[path]
	delete(s.parked, path)
	s.mu.Unlock()
	_ = c.ReplyRendered(Render(okHead, body))
}

func start(t *testing.T) (*script, string) { return startWith(t, Config{}) }

// startWith is start with a configuration, whose Handler is set here.
func startWith(t *testing.T, cfg Config) (*script, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &script{parked: map[string]*Call{}, event: make(chan struct{}, 1000)}
	cfg.Handler, cfg.WriteTimeout = h, 5*time.Second
	s, err := New(l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.server = s
	fallback := &http.Server{ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "slow %s %s %s", r.Method, r.URL.Path, body)
		})}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	wg.Go(func() { _ = fallback.Serve(s.Fallback()) })
	t.Cleanup(func() { cancel(); _ = fallback.Close(); wg.Wait() })
	return h, l.Addr().String()
}

func dial(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return nc, bufio.NewReader(nc)
}

func read(t *testing.T, br *bufio.Reader) string {
	t.Helper()
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end below
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func send(t *testing.T, nc net.Conn, raw string) {
	t.Helper()
	if _, err := io.WriteString(nc, raw); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestHotAndFallbackOnOneConnection(t *testing.T) {
	_, addr := start(t)
	nc, br := dial(t, addr)
	send(t, nc, "GET /hot?a=b HTTP/1.1\r\nHost: x\r\nX-Consul-Token: t\r\n\r\n")
	expect(t, read(t, br), "1 a=b t ")
	send(t, nc, "PUT /hot HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
	expect(t, read(t, br), "2   abc")
	send(t, nc, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
	expect(t, read(t, br), "slow GET /other ")
	send(t, nc, "GET /hot HTTP/1.1\r\nHost: x\r\n\r\n")
	expect(t, read(t, br), "slow GET /hot ")
}

func TestUnusualRequestsGoToNetHTTP(t *testing.T) {
	_, addr := start(t)
	for name, raw := range map[string]string{
		"chunked":  "PUT /hot HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"escaped":  "GET /%68ot HTTP/1.1\r\nHost: x\r\n\r\n",
		"old":      "GET /hot HTTP/1.0\r\nHost: x\r\n\r\n",
		"close":    "GET /hot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"method":   "DELETE /hot HTTP/1.1\r\nHost: x\r\n\r\n",
		"unknown":  "GET /hot HTTP/1.1\r\nHost: x\r\nX-Something: 1\r\n\r\n",
		"big body": "PUT /hot HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("a", 20000),
	} {
		t.Run(name, func(t *testing.T) {
			nc, br := dial(t, addr)
			send(t, nc, raw)
			if got := read(t, br); !strings.HasPrefix(got, "slow ") {
				t.Fatalf("the hot path answered: %q", got)
			}
		})
	}
}

func TestRequestInPiecesIsServed(t *testing.T) {
	_, addr := start(t)
	nc, br := dial(t, addr)
	raw := "PUT /hot HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
	send(t, nc, raw[:20])
	send(t, nc, raw[20:])
	if got := read(t, br); got != "slow PUT /hot abc" && got != "2   abc" {
		t.Fatalf("got %q", got)
	}
}

// Who connects and says nothing is cut; who said something may be idle after it.
func TestConnectionThatNeverSendsIsClosed(t *testing.T) {
	_, addr := startWith(t, Config{FirstByteTimeout: 3 * time.Second})
	talker, answers := dial(t, addr)
	send(t, talker, "GET /hot HTTP/1.1\r\nHost: x\r\n\r\n")
	first := read(t, answers)
	_, silent := dial(t, addr)
	if _, err := silent.ReadByte(); err != io.EOF {
		t.Fatalf("the silent connection ended with %v", err)
	}
	send(t, talker, "GET /hot HTTP/1.1\r\nHost: x\r\n\r\n")
	expect(t, read(t, answers), first)
}

// TestIdleConnectionIsClosed sweeps at chosen times: one connection is idle, one asks between the sweeps, one
// holds a parked call, and one has not asked yet.
func TestIdleConnectionIsClosed(t *testing.T) {
	h, addr := startWith(t, Config{IdleTimeout: time.Hour})
	const request = "GET /hot HTTP/1.1\r\nHost: x\r\n\r\n"
	idle, idleAnswers := dial(t, addr)
	busy, busyAnswers := dial(t, addr)
	parked, parkedAnswers := dial(t, addr)
	fresh, freshAnswers := dial(t, addr)
	send(t, idle, request)
	expect(t, read(t, idleAnswers), "1   ")
	send(t, busy, request)
	expect(t, read(t, busyAnswers), "1   ")
	send(t, parked, "GET /park/idle HTTP/1.1\r\nHost: x\r\n\r\n")
	<-h.event
	begin := time.Now()
	h.server.sweep(begin)
	h.server.sweep(begin.Add(59 * time.Minute))
	send(t, busy, request)
	expect(t, read(t, busyAnswers), "1   ")
	h.server.sweep(begin.Add(time.Hour))
	if _, err := idleAnswers.ReadByte(); err != io.EOF {
		t.Errorf("the idle connection ends with %v", err)
	}
	for range 3 { // however long it takes
		begin = begin.Add(time.Hour)
		send(t, busy, request)
		expect(t, read(t, busyAnswers), "1   ")
		h.server.sweep(begin)
	}
	send(t, fresh, request)
	expect(t, read(t, freshAnswers), "1   ")
	h.wake("/park/idle", []byte("woken"))
	expect(t, read(t, parkedAnswers), "woken")
	send(t, parked, request)
	expect(t, read(t, parkedAnswers), "1   ")
	h.server.sweep(begin)
	h.server.sweep(begin.Add(time.Hour))
	if _, err := parkedAnswers.ReadByte(); err != io.EOF {
		t.Errorf("after its answer the connection that was parked is idle too: %v", err)
	}
}

func TestPipelinedRequestsKeepTheirOrder(t *testing.T) {
	_, addr := start(t)
	nc, br := dial(t, addr)
	var all strings.Builder
	for i := range 50 {
		fmt.Fprintf(&all, "GET /hot?%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
	}
	send(t, nc, all.String())
	for i := range 50 {
		expect(t, read(t, br), fmt.Sprintf("1 %d  ", i))
	}
}

func TestParkedCallIsAnsweredByAnother(t *testing.T) {
	h, addr := start(t)
	nc, br := dial(t, addr)
	// The second request comes early: it must wait for the first one's answer.
	send(t, nc, "GET /park/1 HTTP/1.1\r\nHost: x\r\n\r\nGET /hot HTTP/1.1\r\nHost: x\r\n\r\n")
	<-h.event
	h.wake("/park/1", []byte("woken"))
	expect(t, read(t, br), "woken")
	expect(t, read(t, br), "1   ")
}

func TestVanishedClientFreesItsParkedCall(t *testing.T) {
	h, addr := start(t)
	nc, _ := dial(t, addr)
	send(t, nc, "GET /park/2 HTTP/1.1\r\nHost: x\r\n\r\n")
	<-h.event
	if err := nc.Close(); err != nil {
		t.Fatal(err)
	}
	<-h.event
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.gone) != 1 || len(h.parked) != 0 {
		t.Fatalf("gone %v, parked %v", h.gone, h.parked)
	}
}

func TestSlowClientDoesNotHoldTheWaker(t *testing.T) {
	h, addr := start(t)
	nc, br := dial(t, addr)
	send(t, nc, "GET /park/3 HTTP/1.1\r\nHost: x\r\n\r\n")
	<-h.event
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // far past any socket buffer
	done := make(chan struct{})
	go func() { h.wake("/park/3", big); close(done) }()
	select {
	case <-done: // returned although nobody has read a byte yet
	case <-time.After(10 * time.Second):
		t.Fatal("the waker waits for a client that does not read")
	}
	if got := read(t, br); got != string(big) {
		t.Fatalf("got %d bytes, want %d", len(got), len(big))
	}
	send(t, nc, "GET /hot HTTP/1.1\r\nHost: x\r\n\r\n")
	expect(t, read(t, br), "1   ")
}

func TestStopFreesParkedCalls(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &script{parked: map[string]*Call{}, event: make(chan struct{}, 1000)}
	s, err := New(l, Config{Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	nc, _ := dial(t, l.Addr().String())
	send(t, nc, "GET /park/4 HTTP/1.1\r\nHost: x\r\n\r\n")
	<-h.event
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(h.gone) != 1 {
		t.Fatal("the parked call was not told")
	}
}

// TestSettleWaitsForWhoWasLetIn: a connection that came before the listener closed is heard, by whichever path.
func TestSettleWaitsForWhoWasLetIn(t *testing.T) {
	for _, first := range []string{"GET /hot HTTP/1.1\r\nHost: x\r\n\r\n", "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(l, Config{Handler: &script{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		nc, _ := dial(t, l.Addr().String())
		polltest.Until(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.conns) == 1
		}, "the connection")
		_ = l.Close()
		settled := make(chan struct{})
		go func() { s.Settle(t.Context()); close(settled) }()
		select {
		case <-settled:
			t.Fatal("settled before the first request")
		default:
		}
		send(t, nc, first)
		if first[5] == 'o' { // Settle ends when net/http reads it
			nc, err := s.Fallback().Accept()
			if err != nil {
				t.Fatal(err)
			}
			if s.settled() {
				t.Error("settled before net/http knows the connection")
			}
			if _, err := nc.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		}
		polltest.Get(t, settled, "Settle")
		cancel()
		if err := polltest.Get(t, ran, "the end"); err != nil {
			t.Error(err)
		}
	}
}

// FuzzParse holds parse against net/http: what parse takes, net/http reads the same way.
func FuzzParse(f *testing.F) {
	f.Add([]byte("GET /v1/kv/a?raw HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"))
	f.Add([]byte("PUT /v1/kv/a HTTP/1.1\r\nHost: x:1\r\nContent-Length: 3\r\nX-Consul-Token: root\r\n\r\nabcGET"))
	f.Add([]byte("POST /v1/secret/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Vault-Request: " +
		"true\r\nX-Vault-Token: t\r\n\r\n{}"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"))
	f.Add([]byte("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 3\r\n\r\nabc"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r Request
		n, v := parse(raw, &r)
		if v != complete {
			return
		}
		want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw[:n])))
		if err != nil {
			t.Fatalf("net/http refuses what the hot path took: %v\n%q", err, raw[:n])
		}
		body, err := io.ReadAll(want.Body)
		if err != nil {
			t.Fatal(err)
		}
		method := map[Method]string{GET: "GET", PUT: "PUT", POST: "POST"}[r.Method]
		if want.Method != method || want.URL.Path != string(r.Path) || want.URL.RawQuery != string(r.Query) ||
			want.Header.Get("X-Consul-Token") != string(r.Token) || want.Header.Get("X-Vault-Token") != string(r.VaultToken) ||
			want.Header.Get("X-Nomad-Token") != string(r.NomadToken) ||
			!bytes.Equal(body, r.Body) || want.Close {
			t.Fatalf("read differently: %q", raw[:n])
		}
	})
}

func BenchmarkHot(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(l, Config{Handler: &script{}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close() //nolint:errcheck // the benchmark is over
	raw := []byte("GET /hot HTTP/1.1\r\nHost: x\r\n\r\n")
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(raw); err != nil {
			b.Fatal(err)
		}
		if _, err := nc.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}
