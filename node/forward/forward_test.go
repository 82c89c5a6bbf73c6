package forward

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

func TestForwardedRequestKeepsWhatMatters(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Consul-Index", "7")
		w.Header().Add("Vary", "a")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.URL.RawQuery+" "+r.Header.Get("X-Consul-Token")+" "+
			string(body))
	})
	r := httptest.NewRequest(http.MethodPut, "/v1/kv/a//b%2Fc?cas=1", strings.NewReader("value"))
	r.Header.Set("X-Consul-Token", "t")
	raw, err := Encode(r, rows.Journey{Hops: 1})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := serve(api, t.Context(), new(atomic.Bool))(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if err := writeReply(w, reply); err != nil {
		t.Fatal(err)
	}
	if got, want := w.Body.String(), "PUT /v1/kv/a//b/c cas=1 t value"; got != want || w.Code != http.StatusTeapot {
		t.Fatalf("%d %q, want %q", w.Code, got, want)
	}
	if w.Header().Get("X-Consul-Index") != "7" {
		t.Fatal("a header was lost")
	}
}

func TestForwardStopsAfterTooManyHops(t *testing.T) {
	f := New(Config{Leader: func() string { return "nowhere" }})
	r := httptest.NewRequest(http.MethodGet, "/v1/kv/a", nil)
	raw, err := Encode(r, rows.Journey{Hops: MaxHops})
	if err != nil {
		t.Fatal(err)
	}
	r, err = decodeRequest(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Forward(httptest.NewRecorder(), r, true); !errkind.Is(err, errkind.Unavailable) {
		t.Fatalf("want unavailable, got %v", err)
	}
}

// TestRoundTripsGoBack: a request that went round among servers is for who passed it on, which waits for a leader; any
// other error is an answer.
func TestRoundTripsGoBack(t *testing.T) {
	for _, c := range []struct {
		hops int
		text string
		kind errkind.Kind
	}{{MaxHops, "No cluster leader", errkind.NotLeader}, {MaxHops, "disk failure", 0}, {1, "No cluster leader", 0}} {
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			httpx.WriteText(w, http.StatusInternalServerError, c.text)
		})
		raw, err := Encode(httptest.NewRequest("PUT", "/v1/kv/a", strings.NewReader("v")), rows.Journey{Hops: c.hops})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = serve(api, t.Context(), new(atomic.Bool))(t.Context(), raw); errkind.Of(err) != c.kind {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func FuzzForwardFrames(f *testing.F) {
	r := httptest.NewRequest(http.MethodPut, "/v1/kv/a?cas=1", strings.NewReader("value"))
	raw, err := Encode(r, rows.Journey{Hops: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(EncodeReply(&httpx.Recorder{Head: http.Header{"A": {"b"}}, Body: []byte("x")}))
	f.Fuzz(func(t *testing.T, p []byte) {
		if r, err := decodeRequest(t.Context(), p); err == nil && r.URL == nil {
			t.Fatal("a request without a URL")
		}
		w := httptest.NewRecorder()
		_ = writeReply(w, p)
	})
}

// TestParkedQueriesPart: a query of another process that waits is answered when this one is about to stop, or left
// for another server.
func TestParkedQueriesPart(t *testing.T) {
	for _, c := range []struct {
		path   string
		status int
		kind   errkind.Kind
	}{{"/v1/kv/a?index=7", 200, 0}, {"/v1/kv/a?since=7", 500, errkind.Unavailable},
		{"/v1/kv/a", 500, errkind.Unavailable}, {"/v1/kv/a", 404, 0}} {
		parting, part := context.WithCancel(t.Context())
		var ending atomic.Bool
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ending.Store(true)
			part()
			if blocks(r) {
				<-r.Context().Done()
			}
			w.WriteHeader(c.status)
		})
		raw, err := Encode(httptest.NewRequest("GET", c.path, nil), rows.Journey{})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := serve(api, parting, &ending)(t.Context(), raw)
		if errkind.Of(err) != c.kind {
			t.Errorf("%s: %v", c.path, err)
		}
		if err != nil {
			continue
		}
		if status, _, _, err := DecodeReply(reply); err != nil || status != c.status {
			t.Errorf("%s: %d %v", c.path, status, err)
		}
	}
}

// TestForwardedRequestsGoOnTheTrace: while the trace of a request is exported, its span here is the parent of the one
// there; else the header goes on as it came.
func TestForwardedRequestsGoOnTheTrace(t *testing.T) {
	const came = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	metrics := telemetry.New(telemetry.Config{})
	queue := telemetry.NewSpanQueue(clock.Real{}, nil)
	got := func() string {
		r := httptest.NewRequest(http.MethodGet, "/v1/kv/a", nil)
		r.Header.Set("traceparent", came)
		_, r, end := httpx.Trace(metrics.Traces(), "catalog", httptest.NewRecorder(), r)
		defer end("/v1/kv/")
		raw, err := Encode(r, rows.Journey{Hops: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r, err = decodeRequest(t.Context(), raw); err != nil {
			t.Fatal(err)
		}
		return r.Header.Get("traceparent")
	}
	if passed := got(); passed != came {
		t.Errorf("without traces it is %q", passed)
	}
	defer metrics.Traces().Attach(queue)()
	passed := got()
	if span := (<-queue.C)[0]; passed != "00-"+came[3:35]+"-"+span.ID.String()+"-01" ||
		span.Parent.String() != came[36:52] {
		t.Errorf("passed on is %q from %+v", passed, span)
	}
}

// TestCameFrom: what is left of an address that somebody claims.
func TestCameFrom(t *testing.T) {
	const agent = "10.0.0.7:8300"
	for _, said := range []string{"127.0.0.1:5000", "[::1]:5000", "@", "", "0.0.0.0:0", "10.1.1.1:5000"} {
		if got := CameFrom(said, nil, agent); got != agent {
			t.Errorf("somebody says %q: %s", said, got)
		}
	}
}
