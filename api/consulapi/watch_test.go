package consulapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

// watchEvent is a line of a stream.
type watchEvent struct {
	Stream, ID, Error string
	Index             uint64
	Status            int
	Body              json.RawMessage
}

// stream opens a stream over HTTP; its events come in a channel that is closed at its end.
func (r *rig) stream(server *httptest.Server, body, token string) (events <-chan watchEvent, id string, end func()) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/watch", strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("X-Consul-Token", token)
	resp, err := server.Client().Do(req)
	if err != nil {
		r.Fatal(err)
	}
	if resp.StatusCode != 200 {
		r.Fatalf("status %d", resp.StatusCode)
	}
	out, done := make(chan watchEvent, 10_000), make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		defer resp.Body.Close()
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			var e watchEvent
			if json.Unmarshal(in.Bytes(), &e) == nil && (e.ID != "" || e.Stream != "") {
				out <- e
			}
		}
	}()
	return out, polltest.Get(r, out, "the stream's ID").Stream, func() { cancel(); <-done }
}

func (r *rig) server() *httptest.Server {
	s := httptest.NewServer(r.api)
	r.Cleanup(s.Close)
	return s
}

func TestWatchManyOverOneConnection(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/kv/a", "1", 200, "true")
	server := r.server()
	events, id, end := r.stream(server,
		`[{"ID":"a","Path":"/v1/kv/a"},{"ID":"raw","Path":"/v1/kv/a?raw"},{"ID":"none","Path":"/v1/kv/none"},
		{"ID":"web","Path":"/v1/health/service/web?passing"},{"ID":"list","Path":"/v1/kv/x/?recurse&since=0"},{"ID":"leader","Path":"/v1/status/leader"}]`, "")
	defer end()
	first := map[string]watchEvent{}
	for range 6 {
		e := polltest.Get(t, events, "the first answers")
		first[e.ID] = e
	}
	for id, want := range map[string]string{"a": `"Key":"a"`, "raw": `"MQ=="`, "none": `null`, "web": `[]`,
		"list": `"Reset":true`} {
		if e := first[id]; !strings.Contains(string(e.Body), want) {
			t.Errorf("%s: %+v %s", id, e, e.Body)
		}
	}
	if e := first["none"]; e.Status != 404 || e.Index == 0 {
		t.Errorf("a key that is not there: %+v", e)
	}
	if e := first["leader"]; e.Status != 400 || !strings.Contains(e.Error, "cannot be watched") {
		t.Errorf("what does not block: %+v", e)
	}
	r.want("PUT", "/v1/kv/x/1", "1", 200, "true")
	for e := range events {
		if e.ID == "list" {
			if !strings.Contains(string(e.Body), `"Reset":false,"Set":[{`) {
				t.Errorf("the change: %s", e.Body)
			}
			break
		}
	}
	// Watches come and go while it runs; one that knows the index is told of what is after it.
	at := r.store.State().KV("a").ModifyIndex
	r.want("POST", "/v1/watch/"+id,
		fmt.Sprintf(`{"Remove":["raw","a","web"],"Add":[{"ID":"b","Path":"/v1/kv/a","Index":%d}]}`, at), 200,
		`{"Stream":"`+id+`","Watches":4}`)
	r.want("PUT", "/v1/kv/a", "2", 200, "true")
	for e := range events {
		if e.ID == "a" || e.ID == "raw" {
			t.Errorf("an event of a removed watch: %+v", e)
		}
		if e.ID == "b" {
			if e.Index <= at || !strings.Contains(string(e.Body), `"Mg=="`) {
				t.Errorf("%+v %s", e, e.Body)
			}
			break
		}
	}
	r.run([]step{
		{"POST", "/v1/watch/" + id, `{"Add":[{"ID":"b","Path":"/v1/kv/a"}]}`, 400,
			`ID "b" is in use on this stream: remove it first`},
		{"POST", "/v1/watch/" + id, `{"Add":[{"ID":"c","Path":"/v1/agent/monitor"}]}`, 400, "*"},
		{"POST", "/v1/watch/" + id, `{"Add":[{"ID":"c","Path":"/v1/kv/a?token=x"}]}`, 400, "*"},
		{"POST", "/v1/watch/" + id, `{"Add":[{"ID":"","Path":"/v1/kv/a"}]}`, 400, "*"},
		{"POST", "/v1/watch/" + id + "?token=other", `{}`, 404, "*"},
		{"POST", "/v1/watch/nothing", `{}`, 404, "*"},
	})
	end()
	polltest.Until(t, func() bool { return r.unwatched() }, "the watches to end with their stream")
}

// watched is how many different things the streams ask for.
func (r *rig) watched() int {
	_, _, questions := r.api.watches.Counts()
	return questions
}

func (r *rig) unwatched() bool {
	streams, watches, questions := r.api.watches.Counts()
	return streams+watches+questions == 0
}

// Each watch has the rights of the stream's token, and nobody else may change the stream.
func TestWatchAsksForRights(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Authorizer, c.DefaultACLPolicy = readers(), "deny" })
	server := r.server()
	for token, want := range map[string]int{"reader": 404, "": 403} {
		events, id, end := r.stream(server, `[{"ID":"key","Path":"/v1/kv/a"}]`, token)
		if e := polltest.Get(t, events, "the answer"); e.Status != want {
			t.Errorf("token %q: %+v", token, e)
		}
		if a := r.do("POST", "/v1/watch/"+id+"?token=stranger", `{}`); a.status != 403 {
			t.Errorf("a stranger: %d %s", a.status, a.body)
		}
		end()
	}
}

func TestWatchLimits(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.Streams, c.Limits.StreamWatches, c.Limits.Watches = 2, 3, 4 })
	server := r.server()
	three := `[{"ID":"1","Path":"/v1/kv/1"},{"ID":"2","Path":"/v1/kv/2"},{"ID":"3","Path":"/v1/kv/3"}]`
	_, _, end := r.stream(server, three, "")
	defer end()
	for _, body := range []string{three, `[{"ID":"1","Path":"/v1/kv/1"},{"ID":"2","Path":"/v1/kv/2"}]`} {
		if a := r.do("POST", "/v1/watch", body); a.status != 429 {
			t.Errorf("over the limit of watches: %d %s", a.status, a.body)
		}
	}
	_, _, end2 := r.stream(server, `[]`, "")
	defer end2()
	if a := r.do("POST", "/v1/watch", `[]`); a.status != 429 {
		t.Errorf("over the limit of streams: %d %s", a.status, a.body)
	}
}

// A stream says that it lives, and as events when the client takes these.
func TestWatchHeartbeatsAsEvents(t *testing.T) {
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, "POST", "/v1/watch", strings.NewReader(`[{"ID":"a","Path":"/v1/kv/a"}]`))
	req.Header.Set("Accept", "text/event-stream")
	w := &lockedRecorder{header: http.Header{}}
	done := make(chan struct{})
	go func() { defer close(done); r.api.ServeHTTP(w, req) }()
	polltest.Until(t, func() bool { return strings.Contains(w.text(), `data: {"ID":"a",`) }, "the first event")
	cancel()
	<-done
	if !strings.HasPrefix(w.text(), `data: {"Stream":"`) || w.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%s", w.text())
	}
}

// lockedRecorder is a ResponseWriter that may be read while it is written.
type lockedRecorder struct {
	mu     sync.Mutex
	header http.Header
	Bytes  bytes.Buffer
}

func (w *lockedRecorder) Header() http.Header { return w.header }

func (w *lockedRecorder) WriteHeader(int) {}

func (w *lockedRecorder) Flush() {}

func (w *lockedRecorder) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Bytes.Write(p)
}

func (w *lockedRecorder) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Bytes.String()
}

// stuck is a client that reads nothing until it is let.
type stuck struct {
	lockedRecorder
	gate chan struct{}
}

func (w *stuck) Write(p []byte) (int, error) {
	<-w.gate
	return w.lockedRecorder.Write(p)
}

// Whoever does not read gets the latest state when it does, and no queue of old ones;
// what is followed by since loses no change.
func TestWatchConflatesForSlowReaders(t *testing.T) {
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &stuck{lockedRecorder{header: http.Header{}}, make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.api.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/watch",
			strings.NewReader(`[{"ID":"a","Path":"/v1/kv/p/a"},{"ID":"since","Path":"/v1/kv/p/?recurse&since=0"}]`)))
	}()
	polltest.Until(t, func() bool { return r.watched() == 2 }, "the watches")
	for i := range 50 {
		r.want("PUT", "/v1/kv/p/a", fmt.Sprint(i), 200, "true")
		r.want("PUT", fmt.Sprintf("/v1/kv/p/%d", i), "x", 200, "true")
	}
	last := r.store.State().KV("p/a").ModifyIndex
	polltest.Until(t, func() bool { return r.api.watches.Seen("/v1/kv/p/a") == last },
		"the watch to have seen the last change")
	close(w.gate)
	polltest.Until(t, func() bool {
		return strings.Contains(w.text(), fmt.Sprintf(`{"ID":"a","Index":%d,`, last)) &&
			strings.Contains(w.text(), `"Key":"p/49"`)
	}, "the latest state")
	cancel()
	<-done
	if n := strings.Count(w.text(), `{"ID":"a",`); n > 2 {
		t.Errorf("%d states were sent to who read none:\n%s", n, w.text())
	}
	for i := range 50 {
		if !strings.Contains(w.text(), fmt.Sprintf(`"Key":"p/%d"`, i)) {
			t.Errorf("the change of p/%d was lost", i)
		}
	}
}

// Ten thousand watches over a hundred connections that ask a hundred different things
// are a hundred parked queries: a change is one query and one encoding, and reaches all.
func TestTenThousandWatches(t *testing.T) {
	const streams, each = 100, 100
	r := newRig(t, func(c *Config) { c.Metrics = telemetry.New(telemetry.Config{}) })
	r.want("PUT", "/v1/kv/w/0", "1", 200, "true")
	body := list(each, func(i int) string { return fmt.Sprintf(`{"ID":"%d","Path":"/v1/kv/w/%d"}`, i, i) })
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	all := make([]*lockedRecorder, streams)
	for i := range all {
		all[i] = &lockedRecorder{header: http.Header{}}
		wg.Go(func() {
			r.api.ServeHTTP(all[i], httptest.NewRequestWithContext(ctx, "POST", "/v1/watch", strings.NewReader(body)))
		})
	}
	told := func(text string) func() bool {
		return func() bool {
			for _, w := range all {
				if !strings.Contains(w.text(), text) {
					return false
				}
			}
			return true
		}
	}
	polltest.Until(t, told(`{"ID":"99","Index"`), "all streams to have been told of their watches")
	polltest.Until(t, func() bool { return r.api.Blocking() == each }, "one parked query for each thing watched")
	if n := r.watched(); n != each {
		t.Errorf("%d questions, want %d", n, each)
	}
	if n := runtime.NumGoroutine() - before; n > streams+each+10 {
		t.Errorf("%d goroutines for %d streams and %d questions", n, streams, each)
	}
	queries := r.api.Core.Queries.Value()
	r.want("PUT", "/v1/kv/w/0", "changed", 200, "true")
	polltest.Until(t, told(`"Y2hhbmdlZA=="`), "all streams to have been told of the change")
	// A missing key's index is that of the whole store, so the test's registry wakes them too; w/0 itself is asked once.
	if n := r.api.Core.Queries.Value() - queries; n > each {
		t.Errorf("%d queries for one change", n)
	}
	cancel()
	wg.Wait()
	if !r.unwatched() {
		t.Error("watches are left")
	}
}
