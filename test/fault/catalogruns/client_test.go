package catalogruns

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	faultrun "corbel.dev/corbel/test/fault"
)

// TestOutcomes pins down what may be concluded from each end of a write.
func TestOutcomes(t *testing.T) {
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	hang := make(chan struct{})
	defer close(hang)
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    history.Outcome
	}{
		{"done", text(200, "true"), history.OK},
		{"refused by a condition", text(200, "false"), history.OK},
		{"conflict of a transaction", text(409, `{"Errors":[]}`), history.Failed},
		{"bad request", text(400, "no"), history.Failed},
		{"too many", text(429, "rate limit exceeded, try again later or against a different server"), history.Failed},
		{"overloaded", text(503, "rate limit exceeded, try again later or against a different server"), history.Failed},
		{"another 503", text(503, "a proxy's page"), history.Unknown},
		{"no leader", text(500, "No cluster leader"), history.Failed},
		{"no servers", text(500, "No known Consul servers"), history.Failed},
		{"leadership lost on the way", text(500, "leadership lost while committing log"), history.Unknown},
		{"another 500", text(500, "x"), history.Unknown},
		{"reset after the request", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}, history.Unknown},
		{"answer cut short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("true"))
		}, history.Unknown},
		{"timeout", func(http.ResponseWriter, *http.Request) { <-hang }, history.Unknown},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(test.handler)
			defer server.CloseClientConnections()
			c := faultrun.NewClient(server.Listener.Addr().String())
			defer c.Close()
			c.Timeout = 200 * time.Millisecond
			if r := c.Do(t.Context(), "PUT", "/", []byte("x")); r.Outcome != test.want {
				t.Errorf("outcome %s, want %s (%s)", r.Outcome, test.want, r)
			}
		})
	}
}

// TestRefusedConnection: nothing was sent to an address where nobody listens.
func TestRefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	c := faultrun.NewClient(addr)
	defer c.Close()
	if r := c.Do(t.Context(), "PUT", "/", nil); r.Outcome != history.Failed || r.Err == nil {
		t.Errorf("outcome %s (%s)", r.Outcome, r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r := c.Do(ended, "PUT", "/", nil); r.Outcome != history.Failed {
		t.Errorf("never dialled: outcome %s (%s)", r.Outcome, r)
	}
}

// TestClosedIdleConnection: a kept connection that the server closed may have carried the request.
func TestClosedIdleConnection(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 2 { // read, and then no answer
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close()
		}
	}))
	defer server.Close()
	c := faultrun.NewClient(server.Listener.Addr().String())
	defer c.Close()
	for i, want := range []history.Outcome{history.OK, history.Unknown} {
		if r := c.Do(t.Context(), "PUT", "/", []byte("x")); r.Outcome != want {
			t.Errorf("request %d: outcome %s, want %s (%s)", i+1, r.Outcome, want, r)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("the server saw %d requests for 2: one was repeated behind our back", n)
	}
}

// TestBounds: a validator that cannot fail proves nothing.
func TestBounds(t *testing.T) {
	ms := time.Millisecond
	acked := []time.Duration{100 * ms, 200 * ms, 0, 2000 * ms} // the third was never answered
	tests := []struct {
		name string
		read faultrun.BoundedRead
		ok   bool
	}{
		{"newest", faultrun.BoundedRead{Start: 3000 * ms, Value: 4}, true},
		{"not yet acknowledged", faultrun.BoundedRead{Start: 300 * ms, Value: 3}, true},
		{"stale within the lease", faultrun.BoundedRead{Start: 600 * ms, Value: 1}, true},
		{"stale beyond the lease", faultrun.BoundedRead{Start: 800 * ms, Value: 1}, false},
		{"stale since the first newer write", faultrun.BoundedRead{Start: 2100 * ms, Value: 1}, false},
		{"never answered, landed late", faultrun.BoundedRead{Start: 9000 * ms, Value: 3}, true},
		{"stale beneath one never answered", faultrun.BoundedRead{Start: 9000 * ms, Value: 2}, false},
		{"never sent", faultrun.BoundedRead{Start: 300 * ms, Value: 5}, false},
		{"stale and said so", faultrun.BoundedRead{Start: 2000 * ms, Value: 1, Stale: true, LastContact: 1800 * ms}, true},
		{"stale and said too little", faultrun.BoundedRead{Start: 2000 * ms, Value: 1, Stale: true, LastContact: 1500 * ms},
			false},
		{"stale and silent", faultrun.BoundedRead{Start: 2000 * ms, Value: 1, Stale: true, LastContact: 20 * ms}, false},
	}
	for _, test := range tests {
		b := faultrun.NewBounds(1)
		b.Regs[0].Acked = acked
		b.Reads = []faultrun.BoundedRead{test.read}
		if _, err := b.Judge(); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestLedger(t *testing.T) {
	l := faultrun.NewLedger()
	l.Note(history.OK, "1", "a", "b")
	l.Note(history.Unknown, "2", "a")
	l.Note(history.OK, faultrun.Absent, "gone")
	l.Note(history.Failed, "3", "b")
	for _, test := range []struct {
		name  string
		found map[string]string
		ok    bool
	}{
		{"as acknowledged", map[string]string{"a": "1", "b": "1"}, true},
		{"the unknown one came", map[string]string{"a": "2", "b": "1"}, true},
		{"lost", map[string]string{"a": "1"}, false},
		{"resurrected", map[string]string{"a": "1", "b": "1", "gone": "0"}, false},
		{"a refused write came", map[string]string{"a": "1", "b": "3"}, false},
		{"out of nowhere", map[string]string{"a": "1", "b": "1", "c": "1"}, false},
	} {
		if err := l.Judge(test.found); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestWatcherJudges(t *testing.T) {
	type answer struct {
		state watchState
		index uint64
	}
	for _, test := range []struct {
		name    string
		answers []answer
		ok      bool
	}{
		{"forward", []answer{{watchState{"k": 1}, 5}, {watchState{"k": 4}, 9}}, true},
		{"woken for nothing", []answer{{watchState{"k": 1}, 5}, {watchState{"k": 1}, 5}}, true},
		{"removed", []answer{{watchState{"k": 1}, 5}, {watchState{}, 6}}, true},
		{"index back", []answer{{watchState{"k": 1}, 5}, {watchState{"k": 2}, 4}}, false},
		{"value back", []answer{{watchState{"k": 2}, 5}, {watchState{"k": 1}, 6}}, false},
		{"back to a write of unknown outcome", []answer{{watchState{"k": 9}, 5}, {watchState{"k": 7}, 6}}, true},
		{"no index", []answer{{watchState{}, 0}}, false},
	} {
		w := &watcher{name: "key"}
		for _, a := range test.answers {
			w.take(a.state, a.index, nil)
		}
		if err := w.verdict(doubts{"k": {7: true}}); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
