package s3store

import (
	"encoding/xml"
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

// service keeps objects as the documentation of S3 says, conditions on writes included.
type service struct {
	mu       sync.Mutex
	objects  map[string]object
	writes   int
	careless string // ignores this condition
	status   int    // answers with this alone
	lose     bool   // does what it is asked to, and hangs up
	hang     bool   // answers nothing
}

type object struct {
	data []byte
	etag string
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
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
	key, inBucket := strings.CutPrefix(r.URL.Path, "/bucket/")
	old, ok := s.objects[key]
	switch {
	case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=id/"):
		refuse(w, http.StatusForbidden, "AccessDenied")
	case s.status != 0:
		refuse(w, s.status, "SlowDown")
	case !inBucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case key == "" && r.URL.Query().Has("location"):
		fmt.Fprint(w, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>`)
	case key == "":
		s.list(w, r)
	case r.Method == http.MethodPut:
		if none, match := r.Header.Get("If-None-Match"),
			r.Header.Get("If-Match"); none == "*" && ok && s.careless != "If-None-Match" ||
			s.careless != "If-Match" && (match != "" && (!ok || strings.Trim(match, `"`) != old.etag)) {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		s.writes++
		s.objects[key] = object{unchunk(r, body), fmt.Sprintf("%032x", s.writes)}
		if s.lose {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("ETag", `"`+s.objects[key].etag+`"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !ok:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", `"`+old.etag+`"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(old.data) // a test's own client
	}
}

// unchunk takes the signed pieces apart that the client sends over plain HTTP.
func unchunk(r *http.Request, body []byte) []byte {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return body
	}
	var out []byte
	for text := string(body); ; {
		head, rest, _ := strings.Cut(text, "\r\n")
		var n int
		if _, err := fmt.Sscanf(head, "%x", &n); err != nil || n == 0 || n > len(rest) {
			return out
		}
		out = append(out, rest[:n]...)
		text = strings.TrimPrefix(rest[n:], "\r\n")
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	type content struct {
		Key, LastModified, ETag string
		Size                    int
	}
	var page struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		Name        string
		KeyCount    int
		IsTruncated bool
		Contents    []content
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, q.Get("prefix")) && key > q.Get("start-after") {
			page.Contents = append(page.Contents, content{key, "2026-01-01T00:00:00.000Z", s.objects[key].etag,
				len(s.objects[key].data)})
		}
	}
	page.KeyCount = len(page.Contents)
	_ = xml.NewEncoder(w).Encode(page) // a test's own client
}

func start(t *testing.T) (*service, *Bucket) {
	t.Helper()
	s := &service{objects: map[string]object{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	b, err := New(Config{Endpoint: server.URL, Region: "eu-1", Bucket: "bucket", Path: "/vault/", AccessKey: "id",
		SecretKey: "secret", PathStyle: true})
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
	if err := b.Check(t.Context()); err != nil || len(s.objects) != 0 {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), "k", []byte("1")); err != nil || !errkind.Is(b.Create(t.Context(), "k", []byte("2")),
		errkind.Conflict) {
		t.Fatal(err)
	}
	data, tag, err := b.Get(t.Context(), "k")
	if err != nil || string(data) != "1" || b.Replace(t.Context(), "k", []byte("3"), tag) != nil ||
		!errkind.Is(b.Replace(t.Context(), "k", nil, tag), errkind.Conflict) {
		t.Fatal("a replacement counts once:", err)
	}
	if _, _, err := b.Get(t.Context(), "none"); !errkind.Is(err, errkind.NotFound) {
		t.Error(err)
	}
	if keys, err := b.List(t.Context(), "", ""); err != nil || !slices.Equal(keys, []string{"k"}) {
		t.Error(keys, err)
	}
	for status, want := range map[int]errkind.Kind{503: errkind.Unknown, 429: errkind.Unavailable,
		409: errkind.Unavailable, 500: errkind.Unknown, 403: errkind.Denied} {
		s.status = status
		if err := b.Create(t.Context(), "x", nil); !errkind.Is(err, want) {
			t.Errorf("%d: %v", status, err)
		}
	}
	s.status = 503
	if _, _, err := b.Get(t.Context(), "k"); !errkind.Is(err, errkind.Unavailable) {
		t.Error(err)
	}
	s.status = 0
	for _, s.careless = range []string{"If-None-Match", "If-Match"} {
		if err := b.Check(t.Context()); !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), s.careless) {
			t.Errorf("a service that ignores %s is taken: %v", s.careless, err)
		}
	}
}

// The service does what it is asked and hangs up: the commit is found to be done, once.
func TestALostAnswer(t *testing.T) {
	s, b := start(t)
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
			s.status, _ = strconv.Atoi(way) // 0 where it is none
			s.hang = way == "hang"
		},
	})
}

func TestBadConfigurations(t *testing.T) {
	for want, cfg := range map[string]Config{"bucket: ": {}, "access_key and": {Bucket: "b", AccessKey: "a"},
		"endpoint: ": {Bucket: "b", Endpoint: "a b"}} {
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
