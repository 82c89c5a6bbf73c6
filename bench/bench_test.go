package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestAnswerStateFollowsSplitAnswers(t *testing.T) {
	plain := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Consul-Index: 42\r\n\r\nhello"
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-consul-index: 7\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	for _, c := range []struct {
		raw   string
		index uint64
	}{{plain, 42}, {chunked, 7}} {
		for cut := 1; cut < len(c.raw); cut++ {
			var s answerState
			for at := 0; at < len(c.raw); at += cut {
				if s.done {
					t.Fatalf("cut %d: done before the end, at %d", cut, at)
				}
				if err := s.feed([]byte(c.raw[at:min(at+cut, len(c.raw))])); err != nil {
					t.Fatal(err)
				}
			}
			if !s.done || s.index != c.index {
				t.Fatalf("cut %d: done=%v index=%d, want true and %d", cut, s.done, s.index, c.index)
			}
		}
	}
}

func TestAnswerStateRefusesErrors(t *testing.T) {
	var s answerState
	if err := s.feed([]byte("HTTP/1.1 500 no\r\n\r\n")); err == nil {
		t.Fatal("a 500 was taken as an answer")
	}
}

func TestRunLoadCountsAnswersAndErrors(t *testing.T) {
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n++; n%2 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")
	raw := Request("GET", addr, "/", "", nil)
	load, err := RunLoad(t.Context(), LoadSpec{Addr: addr, Connections: 1, Duration: 50 * time.Millisecond,
		Next: func(int, int64) []byte { return raw }})
	if err != nil {
		t.Fatal(err)
	}
	if load.Requests < 2 || load.Errors < load.Requests/2-1 || load.Errors > load.Requests/2+1 {
		t.Fatalf("%d requests, %d errors: want every second to be one", load.Requests, load.Errors)
	}
}

// A target that answers later than the load lasts has a figure all the same, and no better one than it earned.
func TestRunLoadOfASlowTarget(t *testing.T) {
	const answer = 100 * time.Millisecond
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(answer) }))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")
	raw := Request("GET", addr, "/", "", nil)
	load, err := RunLoad(t.Context(), LoadSpec{Addr: addr, Connections: 2, Duration: time.Millisecond,
		Warmup: time.Millisecond, Next: func(int, int64) []byte { return raw }})
	if err != nil {
		t.Fatal(err)
	}
	if row := load.Row("slow", ""); row.Requests != 2 || row.PerSecond > 2/answer.Seconds() {
		t.Fatalf("%d requests at %.1f per second: want 2, one by each connection, in %s or more", row.Requests,
			row.PerSecond, answer)
	}
}

func TestRunCountReadsChunkedAndFails(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			http.Error(w, "No cluster leader", http.StatusInternalServerError)
			return
		}
		for range 3 {
			_, _ = fmt.Fprint(w, strings.Repeat("x", 1000))
			w.(http.Flusher).Flush()
		}
	}))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")
	good := Request("GET", addr, "/", "", nil)
	load, err := RunCount(t.Context(), addr, 2, 5, func(int) []byte { return good })
	if err != nil || load.Requests != 5 {
		t.Fatalf("requests %d, error %v", load.Requests, err)
	}
	bad := Request("GET", addr, "/bad", "", nil)
	if _, err := RunCount(t.Context(), addr, 1, 1, func(int) []byte { return bad }); err == nil ||
		!strings.Contains(err.Error(), "No cluster leader") {
		t.Fatalf("want the server's words, got %v", err)
	}
}

func TestFleetBodiesAreTransactions(t *testing.T) {
	var b bytes.Buffer
	b.WriteByte('[')
	fleetNode(&b, 7)
	b.WriteByte(']')
	var ops []map[string]any
	if err := json.Unmarshal(b.Bytes(), &ops); err != nil {
		t.Fatal(err)
	}
	if want := 1 + fleetInstancesPerNode + fleetChecksPerNode; len(ops) != want {
		t.Fatalf("%d operations, want %d", len(ops), want)
	}
	if len(ops)*fleetNodesPerTxn > 64 {
		t.Fatalf("%d operations a transaction pass what older clients send", len(ops)*fleetNodesPerTxn)
	}
}

func TestOptionsNameTheWrongFlag(t *testing.T) {
	for flag, o := range map[string]Options{
		"--servers":     {Servers: 2},
		"--connections": {Connections: -1},
		"--duration":    {Duration: -time.Second},
	} {
		if _, err := RunKV(context.Background(), o); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("want an error that names %s, got %v", flag, err)
		}
	}
}
