package httpx

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
)

// serveBounded runs a server of a handler; its address.
func serveBounded(t *testing.T, cfg ServerConfig) string {
	t.Helper()
	cfg.Listen = []Listen{{Address: "127.0.0.1:0"}}
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bind(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.Addrs()[0].String()
}

// TestClientsThatPipelineAndLeaveAreNoticed parks requests of 500 clients that send one more behind them and leave.
// net/http alone keeps their descriptors until the requests end by themselves.
func TestClientsThatPipelineAndLeaveAreNoticed(t *testing.T) {
	const clients = 500
	var parked, ended atomic.Int32
	addr := serveBounded(t, ServerConfig{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			parked.Add(1)
			defer ended.Add(1)
		}
		<-r.Context().Done()
	})})
	var conns []net.Conn
	for range clients {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, nc)
		if _, err := io.WriteString(nc, "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	polltest.Until(t, func() bool { return parked.Load() == clients }, "the requests to be parked")
	for _, nc := range conns[1:] {
		_ = nc.Close()
	}
	polltest.Until(t, func() bool { return ended.Load() >= clients-1 }, "the clients that left to be noticed")
	if n := ended.Load(); n != clients-1 {
		t.Errorf("%d requests ended, one client is there still", n)
	}
	_ = conns[0].Close()
}

// TestBodiesBeyondTheBudgetAreRefused has 32 clients send 1 MiB each to a server that may hold 8 MiB, all at once and
// none to its end. What does not fit is told so with 503, small requests pass meanwhile, and at the end nothing is
// held.
func TestBodiesBeyondTheBudgetAreRefused(t *testing.T) {
	budget := limit.NewBytes(16<<20, nil)
	addr := serveBounded(t, ServerConfig{Bytes: budget,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := ReadBody(r, nil, 32<<20)
			if errors.Is(err, limit.ErrBytes) {
				w.Header().Set("Retry-After", "1")
				WriteText(w, http.StatusServiceUnavailable, err.Error())
				return
			}
			if err == nil {
				_, _ = fmt.Fprint(w, len(b))
			}
		})})
	var wg sync.WaitGroup
	var refused, wrong atomic.Int32
	for range 32 {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		wg.Go(func() {
			_, _ = io.WriteString(nc, "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n")
			_, _ = nc.Write(make([]byte, 1<<20)) // who is refused may be cut meanwhile
		})
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			switch {
			case err != nil: // cut before it was read, or held to the end of the test
			case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
				refused.Add(1)
			default:
				wrong.Add(1)
			}
		}()
	}
	wg.Wait()
	polltest.Until(t, func() bool { return refused.Load() > 0 && budget.Stats().Refused >= 28 }, "most to be refused")
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d other answers", n)
	}
	resp, err := http.Post("http://"+addr, "", bytes.NewReader(make([]byte, 60<<10)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "61440" {
		t.Errorf("a small request: %s %s", resp.Status, body)
	}
	if s := budget.Stats(); s.High > s.Most || s.High == 0 {
		t.Errorf("held %d of %d", s.High, s.Most)
	}
}

// TestLargeBodiesGiveBackWhatTheyHeld sends bodies of all kinds, one after the other.
func TestLargeBodiesGiveBackWhatTheyHeld(t *testing.T) {
	budget := limit.NewBytes(64<<20, nil)
	addr := serveBounded(t, ServerConfig{Bytes: budget,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := ReadBody(r, nil, 4<<20)
			if err != nil {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
				return
			}
			Write(w, r, http.StatusOK, TextType, b)
		})})
	for _, n := range []int{0, 1, 511, 512, 513, 64 << 10, 64<<10 + 1, 128 << 10, 1 << 20, 4 << 20, 4<<20 + 1} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = bytes.NewReader(bytes.Repeat([]byte("x"), n))
			if chunked {
				body = io.MultiReader(body)
			}
			resp, err := http.Post("http://"+addr, "", body)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if ok := resp.StatusCode == http.StatusOK && len(got) == n; ok != (n <= 4<<20) {
				t.Errorf("%d bytes, chunked %v: %s, %d bytes", n, chunked, resp.Status, len(got))
			}
		}
	}
	polltest.Until(t, func() bool { return budget.Stats().Used == 0 }, "all to be given back")
}

// TestReusedBuffersCountAsNewOnes: a buffer that has grown for somebody else needs room in the budget, too.
func TestReusedBuffersCountAsNewOnes(t *testing.T) {
	budget := limit.NewBytes(2<<20, nil)
	grown := make([]byte, 0, 512<<10)
	for _, test := range []struct {
		n, announced int64
		full         bool
	}{{300 << 10, 300 << 10, false}, {400 << 10, 400 << 10, true}, {300 << 10, -1, true}, {60 << 10, 60 << 10, false}} {
		r := httptest.NewRequest(http.MethodPut, "/", io.LimitReader(rand.Reader, test.n))
		r.ContentLength = test.announced
		r, end := Budgeted(r, budget)
		b, err := ReadBody(r, grown[:0], 1<<20)
		if full := errors.Is(err, limit.ErrBytes); full != test.full || !full && int64(len(b)) != test.n {
			t.Errorf("%d bytes, announced as %d: %d, %v", test.n, test.announced, len(b), err)
		}
		end()
	}
	if s := budget.Stats(); s.Used != 0 {
		t.Errorf("afterwards: %+v", s)
	}
}
