package snapstore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/tls"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// service is the part of the S3 protocol that targets use, for one bucket. It
// refuses requests that are not signed with its key, bodies that do not have the
// sum they claim, and it lists in pages of three.
type service struct {
	t      *testing.T
	bucket string
	region string
	mu     sync.Mutex
	held   map[string][]byte
	heads  map[string]http.Header
	pages  int
	fail   int // answers 500 so many times
}

// kept is a copy of what is held.
func (s *service) kept() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.held)
}

// failNext makes the next n requests fail.
func (s *service) failNext(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = n
}

func (s *service) refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/")
	if !strings.HasPrefix(r.Host, s.bucket+".") { // virtual host or path style
		var ok bool
		if key, ok = strings.CutPrefix(key, s.bucket+"/"); !ok {
			s.refuse(w, 404, "NoSuchBucket")
			return
		}
	}
	auth := r.Header.Get("Authorization")
	if !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=key/") ||
		!strings.Contains(auth, "/"+s.region+"/s3/aws4_request") ||
		!strings.Contains(auth, "Signature=") || r.Header.Get("X-Amz-Date") == "" ||
		r.Header.Get("X-Amz-Content-Sha256") == "" {
		s.refuse(w, 403, "AccessDenied")
		return
	}
	if s.fail > 0 {
		s.fail--
		s.refuse(w, 500, "InternalError")
		return
	}
	switch {
	case r.Method == http.MethodGet && key == "" && r.URL.Query().Get("list-type") == "2":
		s.list(w, r)
	case r.Method == http.MethodPut && key != "":
		s.put(w, r, key)
	case r.Method == http.MethodDelete && key != "":
		delete(s.held, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.t.Errorf("unexpected request %s %s", r.Method, r.URL)
		s.refuse(w, 405, "MethodNotAllowed")
	}
}

func (s *service) put(w http.ResponseWriter, r *http.Request, key string) {
	body, err := io.ReadAll(r.Body)
	if err == nil && strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		body, err = dechunk(body)
		if want := r.Header.Get("X-Amz-Decoded-Content-Length"); want != strconv.Itoa(len(body)) {
			s.refuse(w, 400, "IncompleteBody")
			return
		}
	}
	sum := md5.Sum(body)
	if err != nil || r.Header.Get("Content-Md5") != base64.StdEncoding.EncodeToString(sum[:]) {
		s.refuse(w, 400, "BadDigest")
		return
	}
	s.held[key], s.heads[key] = body, r.Header.Clone()
	w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%x", sum)))
}

// dechunk takes the signed chunks of a streamed body apart.
func dechunk(body []byte) ([]byte, error) {
	in, out := bufio.NewReader(bytes.NewReader(body)), []byte{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, signature, ok := strings.Cut(strings.TrimSpace(line), ";chunk-signature=")
		n, err := strconv.ParseInt(size, 16, 32)
		if err != nil || !ok || len(signature) != 64 {
			return nil, fmt.Errorf("chunk head %q", line)
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		if n == 0 {
			return out, nil
		}
		out = append(out, chunk[:n]...)
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	type object struct{ Key string }
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name                  string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []object
		CommonPrefixes        []struct{ Prefix string }
	}
	page.Name = s.bucket
	for _, key := range slices.Sorted(maps.Keys(s.held)) {
		rest, ok := strings.CutPrefix(key, q.Get("prefix"))
		if !ok || key <= q.Get("continuation-token") || q.Get("delimiter") != "" && strings.Contains(rest,
			q.Get("delimiter")) {
			continue
		}
		if len(page.Contents) == 3 {
			page.IsTruncated, page.NextContinuationToken = true, page.Contents[2].Key
			break
		}
		page.Contents = append(page.Contents, object{key})
	}
	s.pages++
	w.Header().Set("Content-Type", "application/xml")
	if err := xml.NewEncoder(w).Encode(page); err != nil {
		s.t.Error(err)
	}
}

func newService(t *testing.T, region string) *service {
	return &service{t: t, bucket: "backups", region: region, held: map[string][]byte{}, heads: map[string]http.Header{}}
}

func start(t *testing.T, s *service, cfg BucketConfig) *Bucket {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	cfg.Endpoint, cfg.Bucket, cfg.Region = server.URL, s.bucket, s.region
	if cfg.AccessKey == "" {
		cfg.AccessKey, cfg.SecretKey = "key", "secret"
	}
	b, err := NewBucket(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestS3(t *testing.T) {
	s := newService(t, "eu-central-1")
	b := start(t, s, BucketConfig{Prefix: "/fleet/", Encrypt: "aws:kms", KMSKey: "mine"})
	s.held["elsewhere/consul-1.snap"], s.held["fleet/below/consul-1.snap"] = nil, nil
	keepsAndPrunes(t, b)
	put(t, b, "a.snap", "text")
	if got := string(s.kept()["fleet/a.snap"]); got != "text" {
		t.Errorf("fleet/a.snap holds %q", got)
	}
	s.mu.Lock()
	h, pages := s.heads["fleet/a.snap"], s.pages
	s.mu.Unlock()
	if h.Get("X-Amz-Server-Side-Encryption") != "aws:kms" ||
		h.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id") != "mine" {
		t.Errorf("encryption was not asked for: %v", h)
	}
	for _, key := range []string{"elsewhere/consul-1.snap", "fleet/below/consul-1.snap"} {
		if _, ok := s.kept()[key]; !ok {
			t.Errorf("%s is gone", key)
		}
	}
	if pages < 3 {
		t.Errorf("%d pages were listed: were all read?", pages)
	}
}

// TestGoogle speaks to the name of Google's service, which the library treats in its own ways.
func TestGoogle(t *testing.T) {
	s := newService(t, "auto")
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	dialer := &net.Dialer{}
	var hosts sync.Map
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
			ServerName: "example.com"},
		DialContext: func(ctx context.Context, network, host string) (net.Conn, error) {
			hosts.Store(host, true)
			return dialer.DialContext(ctx, network, server.Listener.Addr().String())
		},
	}
	b, err := NewGoogle(BucketConfig{Bucket: "backups", Prefix: "fleet", AccessKey: "key", SecretKey: "secret",
		Transport: tr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	keepsAndPrunes(t, b)
	for host := range hosts.Range {
		if name := host.(string); !strings.HasSuffix(name, "storage.googleapis.com:443") {
			t.Errorf("spoke to %s", name)
		}
	}
	if _, err := NewGoogle(BucketConfig{Bucket: "backups"}); err == nil ||
		!strings.Contains(err.Error(), "GOOGLE_ACCESS_KEY_ID") {
		t.Errorf("without a key: %v", err)
	}
}

// TestS3Refusals: what the service refuses is an error, and nothing is kept.
func TestS3Refusals(t *testing.T) {
	s := newService(t, "us-east-1")
	b := start(t, s, BucketConfig{AccessKey: "other", SecretKey: "secret"})
	if err := b.Put(t.Context(), "a.snap", strings.NewReader("x"), 1); err == nil ||
		!strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("with a wrong key: %v", err)
	}
	if _, err := b.List(t.Context()); err == nil {
		t.Error("the list of a refused key is no error: Prune would believe in an empty bucket")
	}
	b = start(t, s, BucketConfig{})
	if err := b.Put(t.Context(), "a.snap", strings.NewReader("x"), 2); err == nil {
		t.Error("a short archive was kept")
	}
	if kept := s.kept(); len(kept) != 0 {
		t.Errorf("kept: %v", kept)
	}
	s.failNext(1)
	put(t, b, "a.snap", "x") // one failure of the service is tried again
	s.failNext(100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.List(ctx); err == nil {
		t.Error("List after the end of its context is no error")
	}
}

func TestStaticName(t *testing.T) {
	s := newService(t, "us-east-1")
	b := start(t, s, BucketConfig{StaticName: "latest.snap"})
	put(t, b, "consul-1.snap", "1")
	put(t, b, "consul-2.snap", "2")
	if gone, err := Prune(t.Context(), b, "consul", 1); err != nil || len(gone) != 0 {
		t.Errorf("deleted %q, %v", gone, err)
	}
	if kept := s.kept(); len(kept) != 1 || string(kept["latest.snap"]) != "2" {
		t.Errorf("kept: %q", kept)
	}
}

func TestWrongBuckets(t *testing.T) {
	for text, cfg := range map[string]BucketConfig{
		"endpoint":   {Endpoint: "ftp://x"},
		"must be":    {Endpoint: "https://host/path"},
		"its secret": {AccessKey: "key"},
		"AES256":     {Encrypt: "rot13"},
		"KMS":        {KMSKey: "k"},
	} {
		cfg.Bucket = "b"
		if _, err := NewBucket(cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
