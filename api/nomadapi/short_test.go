package nomadapi

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/hothttp/hottest"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs/state"
)

var (
	differRequests = flag.Int("differ.requests", 10_000, "random requests that both paths are asked")
	differSeed     = flag.Uint64("differ.seed", 1, "of the first of them")
)

var differWords = hottest.Words{
	Paths: []string{"/v1/allocations", "/v1/allocations", "/v1/jobs", "/v1/nodes", "/v1/evaluations", "/v1/deployments",
		"/v1/allocation/" + allocID, "/v1/node/" + nodeID, "/v1/evaluation/" + evalID, "/v1/deployment/" + deployID,
		"/v1/allocation/none", "/v1/node/", "/v1/job/web", "/v1/job/web/allocations", "/v1/job/web/summary",
		"/v1/job/web/evaluations", "/v1/job/web/deployments", "/v1/job/web/deployment", "/v1/job/web/versions",
		"/v1/job/web/nothing", "/v1/job/none", "/v1/job/a/b", "/v1/job/a/b/summary", "/v1/job/a%2Fb", "/v1/job/web/dispatch",
		"/v1/job/none/dispatch", "/v1/job//dispatch", "/v1/job/[x]/summary", "/v1/job/w\"eb", "/v1/jobs/", "/v1//jobs",
		"/v1/./jobs", "/v1/job/../jobs", "/v1/vars", "/v1/status/leader", "/v1/", "/v1", "/", "/ui/", "*"},
	Queries: []string{"per_page=1", "per_page=0", "per_page=x", "prefix=ab", "prefix=abc", "prefix=zz", "namespace=*",
		"namespace=other", "namespace=default", "reverse=true", "reverse=x", "stale", "stale=", "pretty", "filter=x",
		"filter=ID%20==%20a", "next_token=5.a", "index=0", "wait=1s", "resources=true", "task_states=false",
		"region=global", "region=mars", "idempotency_token=t", "a=%zz", "", "="},
	Headers: []string{"X-Nomad-Token: full", "X-Nomad-Token: full", "X-Nomad-Token: reader", "X-Nomad-Token:",
		"X-Nomad-Token: nobody", "x-nomad-token: full", "X-Consul-Token: full", "X-Vault-Token: full",
		"Authorization: Bearer full"},
	Bodies: []string{"", "{}", `{"Meta":{"a":"b"}}`, `{"Payload":"aGk="}`, `{"Payload":`, "null", "[]", "x", "\xff",
		`{"Meta":{"a":"` + strings.Repeat("x", 9000) + `"}}`, `{"Meta":1}`, `{"JobID":"web"}`},
}

// drawn is what two equal states answer differently: what is drawn, and times.
var drawn = regexp.MustCompile(`"(DispatchedJobID|EvalID|SubmitTime)":("[^"]*"|[0-9]+)`)

// shortDoor serves an API by its short path, with net/http behind it.
func shortDoor(t testing.TB, a *API) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := hothttp.New(l, hothttp.Config{Handler: NewShort(a, func() bool { return true })})
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewUnstartedServer(hottest.Mark(a))
	_ = behind.Listener.Close()
	behind.Listener = s.Fallback()
	behind.Start()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		behind.Close()
	})
	return l.Addr().String()
}

// differing are two equal planes, one asked by the short path, one by the long.
func differing(t testing.TB, r nomadrows.Rights) *hottest.Pair {
	var both [2]*API
	for i := range both {
		needs := filled().needs()
		needs.Rights = r
		both[i] = New(Config{Needs: needs})
	}
	long := httptest.NewServer(hottest.Mark(both[1]))
	p := &hottest.Pair{Short: shortDoor(t, both[0]), Long: strings.TrimPrefix(long.URL, "http://"),
		Same: func(body []byte) []byte { return drawn.ReplaceAll(body, []byte(`"$1":""`)) }}
	t.Cleanup(func() { p.Close(); long.Close() })
	return p
}

// TestShortPathAnswersAsTheLongOne (C13) asks both paths the same random questions of two states that began alike:
// status, headers and body must be the same. A million: go test ./api/nomadapi -run TestShortPathAnswersAsTheLongOne
// -differ.requests 1000000 -timeout 0
func TestShortPathAnswersAsTheLongOne(t *testing.T) {
	for i, r := range []nomadrows.Rights{nil, rights{}} {
		t.Run(fmt.Sprint("access control ", r != nil), func(t *testing.T) {
			p := differing(t, r)
			requests := *differRequests / 2
			p.CompareMany(t, differWords, *differSeed, uint64(i), requests, requests/20)
		})
	}
}

// FuzzShortPath is TestShortPathAnswersAsTheLongOne for a fuzzer.
func FuzzShortPath(f *testing.F) {
	f.Add("GET", "/v1/allocations?per_page=1", "X-Nomad-Token: full", "")
	f.Add("PUT", "/v1/job/web/dispatch", "X-Nomad-Token:\nX-Nomad-Token: full", `{"Meta":{}}`)
	f.Add("GET", "/v1/job/web/summary", "Accept-Encoding: gzip", "")
	p := differing(f, nil)
	f.Fuzz(func(t *testing.T, method, target, headers, body string) {
		if raw, whole := hottest.Sound(method, target, headers, body); whole {
			p.Compare(t, raw)
		}
	})
}

// nothing takes an answer and forgets it.
type nothing struct{ header http.Header }

func (w *nothing) Header() http.Header         { return w.header }
func (w *nothing) Write(p []byte) (int, error) { return len(p), nil }
func (w *nothing) WriteHeader(int)             {}

// TestKeptPageCosts counts what a page costs that was asked for before: nothing is encoded, sorted or copied.
func TestKeptPageCosts(t *testing.T) {
	a := New(Config{Needs: filled().needs()})
	for path, most := range map[string]float64{"/v1/allocations?per_page=1": 16, "/v1/nodes": 14} {
		r := httptest.NewRequest("GET", path, nil)
		w := &nothing{http.Header{}}
		if n := testing.AllocsPerRun(200, func() { a.ServeHTTP(w, r) }); n > most {
			t.Errorf("%s: %.0f allocations, at most %.0f", path, n, most)
		} else {
			t.Logf("%s: %.0f allocations", path, n)
		}
	}
}

// wholeOf is how long an answer is, by its head.
func wholeOf(b *testing.B, text []byte) int {
	head := bytes.Index(text, []byte("\r\n\r\n"))
	_, length, ok := bytes.Cut(text[:max(head, 0)], []byte("Content-Length: "))
	digits, _, _ := bytes.Cut(length, []byte("\r\n"))
	n, err := strconv.Atoi(string(digits))
	if head < 0 || !ok || err != nil {
		b.Fatalf("no length: %q", text[:min(len(text), 500)])
	}
	return head + 4 + n
}

// BenchmarkKeptPage is a page over a connection, by the short path and by net/http.
func BenchmarkKeptPage(b *testing.B) {
	full := filled()
	full.edit(func(e *state.Edit) {
		one := full.view.state.Allocation(id(allocID))
		for i := range 60 {
			more := *one
			more.ID[0], more.ID[1] = 1, byte(i)
			e.PutAllocation(&more)
		}
	}, nomadrows.Allocations)
	a := New(Config{Needs: full.needs()})
	long := httptest.NewServer(a)
	defer long.Close()
	for name, addr := range map[string]string{"short": shortDoor(b, a), "long": strings.TrimPrefix(long.URL, "http://")} {
		b.Run(name, func(b *testing.B) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			buf := make([]byte, 256<<10)
			for b.Loop() {
				if _, err := c.Write([]byte("GET /v1/allocations?per_page=50 HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
					b.Fatal(err)
				}
				for got, whole := 0, 1; got < whole; {
					n, err := c.Read(buf[got:])
					if err != nil {
						b.Fatal(err)
					}
					if got += n; whole == 1 {
						whole = wholeOf(b, buf[:got])
					}
				}
			}
		})
	}
}
