package gcsstore

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
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

// service keeps objects as the documentation of the JSON API says, preconditions on generations included.
type service struct {
	mu         sync.Mutex
	objects    map[string]object
	generation int64
	page       int    // objects of a list's page
	token      string // wants it
	careless   bool   // ignores preconditions
	status     int    // answers with this alone
	lose       bool   // does what it is asked to, and hangs up
	hang       bool   // answers nothing
}

type object struct {
	data       []byte
	generation int64
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"errors":[{"domain":"global"}]}}`, status, text)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a test's own client
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hang {
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
		return
	}
	const objects, uploads = "/storage/v1/b/bucket/o", "/upload/storage/v1/b/bucket/o"
	q := r.URL.Query()
	route := r.Method + " " + r.URL.EscapedPath()
	key, named := strings.CutPrefix(r.URL.Path, objects+"/")
	named = named && !strings.Contains(r.URL.EscapedPath()[len(objects)+1:], "/") // a name's slash is to be escaped
	old, ok := s.objects[key]
	switch {
	case s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token:
		refuse(w, http.StatusUnauthorized, "Invalid Credentials")
	case s.status != 0:
		refuse(w, s.status, "told to")
	case !strings.Contains(r.URL.Path, "/b/bucket/"):
		refuse(w, http.StatusNotFound, "The specified bucket does not exist.")
	case route == "POST "+uploads && q.Get("uploadType") == "media" && q.Get("name") != "":
		s.insert(w, q.Get("name"), q.Get("ifGenerationMatch"), body)
	case route == "GET "+objects:
		s.list(w, r)
	case !named:
		refuse(w, http.StatusBadRequest, "unknown: "+route)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "No such object: bucket/%s", key) // media is not answered in JSON
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && q.Get("alt") == "media":
		w.Header().Set("x-goog-generation", strconv.FormatInt(old.generation, 10))
		_, _ = w.Write(old.data) // a test's own client
	default:
		refuse(w, http.StatusBadRequest, "unknown: "+route)
	}
}

func (s *service) insert(w http.ResponseWriter, key, match string, body []byte) {
	if match != strconv.FormatInt(s.objects[key].generation, 10) && !s.careless { // 0: no live object
		refuse(w, http.StatusPreconditionFailed, "At least one of the pre-conditions you specified did not hold.")
		return
	}
	s.generation++
	s.objects[key] = object{body, 1_700_000_000_000_000 + s.generation}
	if s.lose {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, `{"generation":"%d"}`, s.objects[key].generation)
}

// list gives pages; startOffset is inclusive, and a page may be without items.
func (s *service) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	type item struct {
		Name string `json:"name"`
	}
	var page struct {
		Items []item `json:"items,omitempty"`
		Next  string `json:"nextPageToken,omitempty"`
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key < q.Get("startOffset") || key <= q.Get("pageToken") {
			continue
		}
		if len(page.Items) == s.page {
			page.Next = page.Items[s.page-1].Name
			break
		}
		page.Items = append(page.Items, item{key})
	}
	_ = json.NewEncoder(w).Encode(page) // a test's own client
}

func start(t *testing.T, tokens *Tokens) (*service, *Bucket) {
	t.Helper()
	s := &service{objects: map[string]object{}, page: 3}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	b, err := New(Config{Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: "bucket", Tokens: tokens})
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
			_, b = start(t, nil)
			return reopen(t)
		}})
}

func TestOutcomes(t *testing.T) {
	s, b := start(t, nil)
	if err := b.Check(t.Context()); err != nil || len(s.objects) != 0 {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), "a b/k%", []byte("1")); err != nil ||
		!errkind.Is(b.Create(t.Context(), "a b/k%", []byte("2")), errkind.Conflict) {
		t.Fatal(err)
	}
	data, tag, err := b.Get(t.Context(), "a b/k%")
	if err != nil || string(data) != "1" || b.Replace(t.Context(), "a b/k%", []byte("3"), tag) != nil ||
		!errkind.Is(b.Replace(t.Context(), "a b/k%", nil, tag), errkind.Conflict) {
		t.Fatal("a replacement counts once:", err)
	}
	if _, _, err := b.Get(t.Context(), "none"); !errkind.Is(err, errkind.NotFound) ||
		!strings.Contains(err.Error(), "No such object") {
		t.Error(err)
	}
	if err := b.Delete(t.Context(), "none"); err != nil {
		t.Error(err)
	}
	for status, want := range map[int][2]errkind.Kind{ // of a write, of a read
		400: {errkind.Invalid, errkind.Invalid}, 401: {errkind.Denied, errkind.Denied}, 403: {errkind.Denied, errkind.Denied},
		408: {errkind.Unknown, errkind.Unavailable}, 409: {errkind.Unavailable, errkind.Unavailable},
		429: {errkind.Unavailable, errkind.Unavailable},
		500: {errkind.Unknown, errkind.Unavailable}, 503: {errkind.Unknown, errkind.Unavailable},
		307: {errkind.Invalid, errkind.Invalid},
	} {
		s.status = status
		_, _, readErr := b.Get(t.Context(), "x")
		for i, err := range []error{b.Create(t.Context(), "x", nil), readErr} {
			if !errkind.Is(err, want[i]) || !strings.Contains(err.Error(), "told to") {
				t.Errorf("%d: %v", status, err)
			}
		}
	}
	s.status, s.careless = 0, true
	if err := b.Check(t.Context()); !errkind.Is(err, errkind.Invalid) {
		t.Error("a service that ignores preconditions is taken:", err)
	}
	b.name = "other"
	if err := b.Check(t.Context()); !errkind.Is(err, errkind.Invalid) ||
		!strings.Contains(err.Error(), "bucket does not exist") {
		t.Error(err)
	}
}

// A list goes on after a key also where the page that begins with it holds nothing else.
func TestPages(t *testing.T) {
	for _, size := range []int{1, 2, 100} {
		s, b := start(t, nil)
		s.page = size
		var want, got []string
		for i := range 5 {
			want = append(want, fmt.Sprintf("p/%d", i))
			s.objects[want[i]] = object{}
		}
		s.objects["o"], s.objects["q"] = object{}, object{}
		for after := ""; ; after = got[len(got)-1] {
			keys, err := b.List(t.Context(), "p/", after)
			if err != nil {
				t.Fatal(err)
			}
			if len(keys) == 0 {
				break
			}
			got = append(got, keys...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q", size, got)
		}
	}
}

// The service does what it is asked and hangs up: the commit is found to be done, once.
func TestALostAnswer(t *testing.T) {
	s, b := start(t, nil)
	store, err := objectstore.Open(t.Context(), objectstore.Config{Bucket: b, Pause: time.Millisecond,
		CommitTime: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s.lose = true
	if err := store.Commit(t.Context(), 0, []storage.Op{storage.Put("a", []byte("1"))}); err != nil {
		t.Fatal(err)
	}
	if v, _, _ := store.Get(t.Context(), "a"); string(v) != "1" || len(s.objects) != 1 {
		t.Fatalf("%q, %d objects", v, len(s.objects))
	}
}

// The service throttles, fails or hangs under writers.
func TestOutage(t *testing.T) {
	var s *service
	storagetest.RunOutage(t, storagetest.Outage{Ways: []string{"429", "500", "503", "hang"},
		Open: func(t *testing.T) storage.Backend {
			var b *Bucket
			s, b = start(t, nil)
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
			s.status, _ = strconv.Atoi(way) // 0 where it is none
			s.hang = way == "hang"
		},
	})
}

func TestBadConfigurations(t *testing.T) {
	for want, cfg := range map[string]Config{"bucket: ": {}, "the endpoint ": {Bucket: "b", Endpoint: "ftp://a"}} {
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
