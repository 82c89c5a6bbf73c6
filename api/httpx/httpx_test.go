package httpx

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// FuzzQuery compares with net/url, which drops the pairs that are malformed.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "a=1&b=2", "a", "a=&a=2", "%61=x%20y", "a=%zz&b=1", "a;b=1&c=2", "+=+", "&&=&a=b=c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		want, _ := url.ParseQuery(raw)
		got := url.Values{}
		for k, v := range Query(raw).Pairs() {
			got.Add(k, v)
		}
		if got.Encode() != want.Encode() {
			t.Fatalf("%q: got %v, want %v", raw, got, want)
		}
		for k, v := range want {
			first, ok := Query(raw).Get(k)
			if !ok || first != v[0] || len(Query(raw).All(k)) != len(v) {
				t.Fatalf("%q: Get(%q) is %q, %v", raw, k, first, ok)
			}
		}
	})
}

func TestQueryAllocatesNothing(t *testing.T) {
	q := Query("index=12&wait=5s&stale")
	if n := testing.AllocsPerRun(100, func() {
		q.Get("wait")
		q.Has("stale")
		q.Has("none")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseBlocking(t *testing.T) {
	for raw, want := range map[string]Blocking{
		"": {}, "wait=10s": {}, "index=0&wait=10s": {}, "index=5": {5, DefaultQueryTime},
		"index=5&wait=10s": {5, 10 * time.Second},
		"index=5&wait=24h": {5, MaxQueryTime}, "index=5&wait=-1s": {5, DefaultQueryTime},
		"index=5&wait=0s":                    {5, DefaultQueryTime},
		"index=18446744073709551615&wait=1s": {18446744073709551615, time.Second}, "index=": {}, "wait=": {},
	} {
		if got, err := ParseBlocking(Query(raw), WaitLimits{}); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", raw, got, err, want)
		}
	}
	for _, raw := range []string{"index=-1", "index=x", "index=18446744073709551616", "index=1&wait=5", "wait=x"} {
		if _, err := ParseBlocking(Query(raw), WaitLimits{}); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for range 1000 {
		if d := Jitter(16 * time.Second); d < 16*time.Second || d > 17*time.Second {
			t.Fatalf("jitter gave %v", d)
		}
	}
}

func TestReadBody(t *testing.T) {
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		want   int
		large  bool
	}{
		"announced":           {strings.NewReader("hello"), 5, 5, false},
		"chunked":             {strings.NewReader(strings.Repeat("x", 100)), -1, 100, false},
		"empty":               {strings.NewReader(""), 0, 0, false},
		"announced too large": {strings.NewReader("x"), 101, 0, true},
		"chunked too large":   {strings.NewReader(strings.Repeat("x", 101)), -1, 0, true},
	} {
		r := httptest.NewRequest("PUT", "/", c.body)
		r.ContentLength = c.length
		b, err := ReadBody(r, nil, 100)
		if _, large := err.(*TooLarge); large != c.large || len(b) != c.want {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

func TestBodyCacheEncodesOnce(t *testing.T) {
	var c BodyCache
	var encoded atomic.Int32
	release := make(chan struct{})
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			b := c.Get([]byte("key"), Version{Index: 1}, func(b []byte) []byte {
				encoded.Add(1)
				<-release
				return append(b, "body"...)
			})
			if string(b.Bytes()) != "body" {
				t.Error("wrong body")
			}
		})
	}
	close(release)
	wg.Wait()
	if n := encoded.Load(); n != 1 {
		t.Errorf("encoded %d times", n)
	}
	c.Get([]byte("key"), Version{Index: 2}, func(b []byte) []byte { encoded.Add(1); return append(b, "new"...) })
	if encoded.Load() != 2 {
		t.Error("another version must be encoded")
	}
}

func TestBodyCacheIsBounded(t *testing.T) {
	c := BodyCache{MaxBytes: 64 << 10}
	for i := range 1000 {
		c.Get(fmt.Appendf(nil, "key%d", i), Version{Index: 1},
			func(b []byte) []byte { return append(b, make([]byte, 1000)...) })
		if c.Bytes() > 64<<10 {
			t.Fatalf("it holds %d bytes", c.Bytes())
		}
	}
	c.Get([]byte("huge"), Version{Index: 1}, func(b []byte) []byte { return make([]byte, 32<<10) })
	again := false
	c.Get([]byte("huge"), Version{Index: 1}, func(b []byte) []byte { again = true; return nil })
	if !again {
		t.Error("a body over an eighth of the bound must not be kept")
	}
	c.Clear()
	if c.Bytes() != 0 {
		t.Error("Clear left bytes")
	}
}

func TestBodyCacheSurvivesAPanic(t *testing.T) {
	var c BodyCache
	func() {
		defer func() { _ = recover() }()
		c.Get([]byte("k"), Version{}, func([]byte) []byte { panic("encoder") })
	}()
	if b := c.Get([]byte("k"), Version{}, func(b []byte) []byte { return append(b, 'x') }); string(b.Bytes()) != "x" {
		t.Error("the failed entry stayed")
	}
}

func TestBodyCacheGzipTwin(t *testing.T) {
	var c BodyCache
	want := []byte(strings.Repeat("abc", 2000))
	b := c.Get([]byte("k"), Version{}, func(to []byte) []byte { return append(to, want...) })
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept-Encoding", "deflate, gzip;q=0.5")
	for range 2 {
		w := httptest.NewRecorder()
		c.WriteTo(w, r, b)
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	w := httptest.NewRecorder()
	r.Header.Set("Accept-Encoding", "gzip;q=0")
	c.WriteTo(w, r, b)
	if !bytes.Equal(w.Body.Bytes(), want) || w.Header().Get("Content-Encoding") != "" {
		t.Error("q=0 refuses gzip")
	}
}

// serve runs a server until the test ends.
func serve(t *testing.T, cfg ServerConfig) (*Server, context.CancelFunc, <-chan error) {
	t.Helper()
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bind(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, cancel, done
}

func TestConnectionsPerClientAreLimited(t *testing.T) {
	s, _, _ := serve(t, ServerConfig{Listen: []Listen{{Address: "127.0.0.1:0"}}, Conns: limit.NewConns(2, 0, nil),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })})
	addr := s.Addrs()[0].String()
	status := func(c net.Conn) string {
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 15)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		return string(b[9:12])
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b, c := dial(), dial(), dial()
	if x, y, z := status(a), status(b), status(c); x != "200" || y != "200" || z != "429" {
		t.Errorf("got %s %s %s", x, y, z)
	}
	_ = a.Close()
	for deadline := time.Now().Add(5 * time.Second); status(dial()) != "200"; {
		if time.Now().After(deadline) {
			t.Fatal("a closed connection never gave its place back")
		}
	}
}

func TestDrainAnswersParkedRequests(t *testing.T) {
	parked := make(chan struct{})
	s, cancel, done := serve(t, ServerConfig{Listen: []Listen{{Address: "127.0.0.1:0"}}, DrainGrace: time.Millisecond,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(parked)
			<-r.Context().Done()
			_, _ = w.Write([]byte("woken"))
		})})
	got := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + s.Addrs()[0].String())
		if err != nil {
			got <- err.Error()
			return
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		got <- string(b)
	}()
	<-parked
	cancel()
	if body := <-got; body != "woken" {
		t.Errorf("the parked request got %q", body)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// ownGroup is the name of the group that files of this process have anyhow.
func ownGroup(t *testing.T) string {
	g, err := user.LookupGroupId(strconv.Itoa(os.Getgid()))
	if err != nil {
		return "" // a system without the name
	}
	return g.Name
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, ServerConfig{Listen: []Listen{{Address: "unix://" + path}}, Unix: UnixMode{Mode: "0600", Group: ownGroup(t)},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hi")) })})
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://unix/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); string(b) != "hi" {
		t.Errorf("got %q", b)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || info.Mode().Type() != fs.ModeSocket {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	if gid := groupOf(info); gid != os.Getgid() {
		t.Errorf("the socket belongs to group %d, want %d", gid, os.Getgid())
	}
}

func TestGate(t *testing.T) {
	if _, err := NewGate(nil, []string{"not a network"}, nil); err == nil {
		t.Error("a wrong network must be refused")
	}
	g, err := NewGate([]string{"/v1/agent"}, []string{"10.0.0.0/8"}, map[string]string{"x-a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, from string
		pass               bool
	}{
		{"GET", "/v1/kv/a", "192.0.2.1:1", true}, {"PUT", "/v1/kv/a", "192.0.2.1:1", false},
		{"PUT", "/v1/kv/a", "10.2.3.4:1", true},
		{"PUT", "/v1/kv/a", "[::ffff:10.2.3.4]:1", true}, {"PUT", "/v1/kv/a", "@", true},
		{"GET", "/v1/agent/self", "10.2.3.4:1", false},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, c.path, nil)
		r.RemoteAddr = c.from
		if g.Pass(w, r) != c.pass || w.Header().Get("X-A") != "b" {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}
