package consulstore

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/objectstore"
	"corbel.dev/corbel/secrets/storage/storagetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// kv answers as Consul's KV does, as far as the bucket asks; Corbel's own is tried in test/e2e.
type kv struct {
	mu    sync.Mutex
	index uint64
	keys  map[string]entry
	fail  string // the text of a 500; "hang": no answer
}

type entry struct {
	Value       []byte
	ModifyIndex uint64
}

func (s *kv) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a test's own client
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == "hang" {
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
		return
	}
	q := r.URL.Query()
	key := strings.TrimPrefix(r.URL.Path, "/v1/kv/")
	old, ok := s.keys[key]
	switch {
	case r.Header.Get("X-Consul-Token") != "t":
		http.Error(w, "Permission denied", http.StatusForbidden)
	case s.fail != "":
		http.Error(w, s.fail, http.StatusInternalServerError)
	case r.Method == http.MethodPut && len(body) > valueBytes:
		http.Error(w, "Request body is larger than 524288 bytes", http.StatusRequestEntityTooLarge)
	case r.Method == http.MethodPut:
		if fmt.Sprint(old.ModifyIndex) != q.Get("cas") {
			fmt.Fprint(w, "false")
			return
		}
		s.index++
		s.keys[key] = entry{body, s.index}
		fmt.Fprint(w, "true")
	case r.Method == http.MethodDelete:
		delete(s.keys, key)
		fmt.Fprint(w, "true")
	case q.Has("keys"):
		out := []string{}
		for _, k := range slices.Sorted(maps.Keys(s.keys)) {
			if strings.HasPrefix(k, key) {
				out = append(out, k)
			}
		}
		if len(out) == 0 {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(out) // a test's own client
	case !ok:
		http.NotFound(w, r)
	default:
		_ = json.NewEncoder(w).Encode([]entry{old}) // a test's own client
	}
}

func start(t *testing.T) (*kv, *Bucket) {
	t.Helper()
	s := &kv{keys: map[string]entry{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	b, err := New(Config{Address: strings.TrimPrefix(server.URL, "http://"), Path: "a b/vault/", Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return s, b
}

func TestConformance(t *testing.T) {
	var b *Bucket
	reopen := func(t *testing.T) storage.Backend {
		s, err := objectstore.Open(t.Context(), objectstore.Config{Bucket: b, JournalBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	storagetest.Run(t, storagetest.Kit{Steps: 100, Reopen: reopen, Second: reopen,
		Open: func(t *testing.T) storage.Backend {
			_, b = start(t)
			return reopen(t)
		}})
}

func TestOutcomes(t *testing.T) {
	s, b := start(t)
	if err := b.Create(t.Context(), "k", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), "k", []byte("2")); !errkind.Is(err, errkind.Conflict) {
		t.Error(err)
	}
	_, tag, err := b.Get(t.Context(), "k")
	if err != nil || b.Replace(t.Context(), "k", []byte("3"), tag) != nil ||
		!errkind.Is(b.Replace(t.Context(), "k", nil, tag), errkind.Conflict) {
		t.Error("a replacement counts once:", err)
	}
	for text, want := range map[string]errkind.Kind{"No cluster leader": errkind.Unavailable,
		"leadership lost while committing log": errkind.Unknown} {
		s.fail = text
		if err := b.Create(t.Context(), "x", nil); !errkind.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	s.fail = ""
	b.cfg.Token = "wrong"
	if err := b.Create(t.Context(), "x", nil); !errkind.Is(err, errkind.Denied) {
		t.Error(err)
	}
	gone, err := New(Config{Address: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Create(t.Context(), "x", nil); !errkind.Is(err, errkind.Unknown) {
		t.Error(err)
	}
	if _, _, err := gone.Get(t.Context(), "x"); !errkind.Is(err, errkind.Unavailable) {
		t.Error(err)
	}
}

// Consul without a leader, shedding load, or silent, under writers.
func TestOutage(t *testing.T) {
	var s *kv
	storagetest.RunOutage(t, storagetest.Outage{Ways: []string{"No cluster leader", "rpc error making call", "hang"},
		Open: func(t *testing.T) storage.Backend {
			var b *Bucket
			s, b = start(t)
			store, err := objectstore.Open(t.Context(), objectstore.Config{Bucket: b, CommitTime: 200 * time.Millisecond,
				Pause: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
		Break: func(way string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fail = way
		},
	})
}

func TestBadAddresses(t *testing.T) {
	for _, a := range []string{"ftp://x", "http://", "http://a b"} {
		if _, err := New(Config{Address: a}); err == nil || !strings.HasPrefix(err.Error(), "address: ") {
			t.Errorf("%q: %v", a, err)
		}
	}
}
