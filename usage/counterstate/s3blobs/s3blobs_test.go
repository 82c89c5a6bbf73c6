package s3blobs

import (
	"encoding/xml"
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
	"corbel.dev/corbel/kit/s3bucket"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/counterstate/blobstest"
)

// service keeps objects as the documentation of S3 says, with If-None-Match and pages of two.
type service struct {
	mu       sync.Mutex
	objects  map[string][]byte
	careless bool // takes no notice of conditions
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code) // a test's own client
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a test's own client
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/bucket/")
	old, there := s.objects[key]
	conditions := r.Header.Get("If-None-Match") == "*" && there ||
		r.Header.Get("If-Match") != "" && strings.Trim(r.Header.Get("If-Match"), `"`) != etag(old)
	switch {
	case key == "":
		s.list(w, r)
	case r.Method == http.MethodPut && conditions && !s.careless:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		s.objects[key] = unchunk(r, body)
		w.Header().Set("ETag", `"`+etag(s.objects[key])+`"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", `"`+etag(old)+`"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(old) // a test's own client
	}
}

func etag(b []byte) string { return fmt.Sprintf("%032x", len(b)*31+int(append(b, 0)[0])) }

// unchunk takes the signed pieces apart that the client sends over plain HTTP.
func unchunk(r *http.Request, body []byte) (out []byte) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return body
	}
	for text := string(body); ; {
		head, rest, _ := strings.Cut(text, "\r\n")
		var n int
		if _, err := fmt.Sscanf(head, "%x", &n); err != nil || n == 0 || n > len(rest) {
			return out
		}
		out, text = append(out, rest[:n]...), strings.TrimPrefix(rest[n:], "\r\n")
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	type content struct {
		Key, LastModified, ETag string
		Size                    int
	}
	var page struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		KeyCount    int
		IsTruncated bool
		Contents    []content
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, r.URL.Query().Get("prefix")) && key > r.URL.Query().Get("start-after") {
			page.Contents = append(page.Contents, content{key, "2026-01-01T00:00:00.000Z", "x", len(s.objects[key])})
		}
	}
	page.Contents = page.Contents[:min(len(page.Contents), 2)]
	page.KeyCount = len(page.Contents)
	_ = xml.NewEncoder(w).Encode(page) // a test's own client
}

func open(t *testing.T, url string) *Blobs {
	t.Helper()
	b, err := New(s3bucket.Config{Endpoint: url, Region: "eu-1", Bucket: "bucket", Path: "/usage/", AccessKey: "id",
		SecretKey: "secret", PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// TestBlobs is the kit against a service in this process.
func TestBlobs(t *testing.T) {
	s := &service{objects: map[string][]byte{}}
	server := httptest.NewServer(s)
	defer server.Close()
	again := func(t *testing.T) counterstate.Blobs { return open(t, server.URL) }
	blobstest.Run(t, again, again)
	if err := open(t, server.URL).Check(t.Context()); err != nil {
		t.Error(err)
	}
	s.careless = true
	if err := open(t, server.URL).Check(t.Context()); !errkind.Is(err, errkind.Invalid) {
		t.Error("a service that takes no notice of conditions: ", err)
	}
	if _, err := New(s3bucket.Config{}); !errkind.Is(err, errkind.Invalid) {
		t.Error(err)
	}
}
