// Package s3test is a service of the S3 protocol in the process of a test.
package s3test

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bucket is the name of the only bucket.
const Bucket = "bucket"

// Service keeps objects as the documentation of S3 says, with conditions and pages of two. Make one with New. It is for
// any goroutine.
type Service struct {
	// Careless says that it takes no notice of conditions. It is set before the first request.
	Careless bool

	mu      sync.Mutex // guards what follows
	objects map[string][]byte
	delay   time.Duration
	reads   int
}

// New makes an empty one.
func New() *Service { return &Service{objects: map[string][]byte{}} }

// Slow has objects that are read come so much later from now on.
func (s *Service) Slow(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = by
}

// Reads is how many objects were read.
func (s *Service) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// wait is what a reader of an object waits.
func (s *Service) wait(r *http.Request) {
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	if r.Method != http.MethodGet || strings.HasSuffix(r.URL.Path, "/"+Bucket+"/") || delay == 0 {
		return
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code) // a test's own client
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a test's own client
	s.wait(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/"+Bucket+"/")
	old, there := s.objects[key]
	conditions := r.Header.Get("If-None-Match") == "*" && there ||
		r.Header.Get("If-Match") != "" && strings.Trim(r.Header.Get("If-Match"), `"`) != etag(old)
	switch {
	case key == "":
		s.list(w, r)
	case r.Method == http.MethodPut && conditions && !s.Careless:
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
		s.reads++
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

func (s *Service) list(w http.ResponseWriter, r *http.Request) {
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
