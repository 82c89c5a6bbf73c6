package consulapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
)

// sink is a ResponseWriter that keeps nothing, so that only the handler is measured.
type sink struct {
	h http.Header
	n int
}

func (s *sink) Header() http.Header { return s.h }

func (s *sink) WriteHeader(int) {}

func (s *sink) Write(b []byte) (int, error) { s.n += len(b); return len(b), nil }

// body is a request body that can be read again.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

func bareAPI(t testing.TB) (*API, *store) {
	s := newStore()
	a, err := New(Config{Config: rows.Config{Identity: rows.Identity{Datacenter: "dc1", NodeName: "n1"}, Registry: s}})
	if err != nil {
		t.Fatal(err)
	}
	return a, s
}

func put(t testing.TB, s *store, c catalog.Command) {
	if res, err := s.Apply(t.Context(), c); err != nil || res.Err != nil {
		t.Fatal(err, res.Err)
	}
}

func TestAllocations(t *testing.T) {
	a, s := bareAPI(t)
	put(t, s, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/key", Value: make([]byte, 512)}})
	w := &sink{h: http.Header{}}
	get := httptest.NewRequest("GET", "/v1/kv/a/key", nil)
	if n := testing.AllocsPerRun(500, func() { a.ServeHTTP(w, get) }); n > 4 {
		t.Errorf("KV GET allocates %v times, want at most 4", n)
	}
	set := httptest.NewRequest("PUT", "/v1/kv/a/key", nil)
	value := make([]byte, 512)
	b := &body{}
	set.Body, set.ContentLength = b, 512
	fixed := &stubRegistry{store: s}
	a.Registry = fixed
	if n := testing.AllocsPerRun(500, func() {
		b.Reset(value)
		a.ServeHTTP(w, set)
	}); n > 4 {
		t.Errorf("KV PUT allocates %v times beside Apply, want at most 4", n)
	}
}

func BenchmarkKVGetHandler(b *testing.B) {
	a, s := bareAPI(b)
	put(b, s, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/key", Value: make([]byte, 512)}})
	r := httptest.NewRequest("GET", "/v1/kv/a/key", nil)
	b.ReportAllocs()
	for b.Loop() {
		a.ServeHTTP(&sink{h: make(http.Header, 8)}, r)
	}
}

func BenchmarkKVPutHandler(b *testing.B) {
	a, s := bareAPI(b)
	a.Registry = &stubRegistry{store: s}
	r := httptest.NewRequest("PUT", "/v1/kv/a/key", nil)
	value, in := make([]byte, 512), &body{}
	r.Body, r.ContentLength = in, 512
	b.ReportAllocs()
	for b.Loop() {
		in.Reset(value)
		a.ServeHTTP(&sink{h: make(http.Header, 8)}, r)
	}
}

// BenchmarkHealth120 is health/service of 120 instances from the body cache.
func BenchmarkHealth120(b *testing.B) {
	a, s := bareAPI(b)
	for i := range 120 {
		put(b, s, &catalog.Register{Node: catalog.Node{Name: fmt.Sprintf("node%03d", i), Address: "10.0.0.1"},
			Service: &catalog.Service{ID: "web", Name: "web", Port: 80, Tags: []string{"v1"}},
			Checks:  []*catalog.Check{{ID: "serfHealth", Name: "Serf Health Status"}, {ID: "c", Name: "c", ServiceID: "web"}}})
	}
	r := httptest.NewRequest("GET", "/v1/health/service/web?passing", nil)
	b.ReportAllocs()
	for b.Loop() {
		a.ServeHTTP(&sink{h: make(http.Header, 8)}, r)
	}
}

// BenchmarkOverListener compares KV GET with a bare hello over a real connection.
func BenchmarkOverListener(b *testing.B) {
	a, s := bareAPI(b)
	put(b, s, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/key", Value: make([]byte, 512)}})
	hello := make([]byte, 800)
	for name, h := range map[string]http.Handler{"kvget": a,
		"hello": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(hello)
		})} {
		b.Run(name, func(b *testing.B) {
			srv := httptest.NewServer(h)
			defer srv.Close()
			for b.Loop() {
				res, err := srv.Client().Get(srv.URL + "/v1/kv/a/key")
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					b.Fatal(err)
				}
				res.Body.Close()
			}
		})
	}
}
