package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/kit/vfs"
)

func get(t *testing.T, a *Agent, path string) (int, string) {
	t.Helper()
	var status int
	var body string
	polltest.NoError(t, polltest.Deadline, func() error {
		r, err := http.Get("http://" + a.APIAddr().String() + path)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		status, body = r.StatusCode, string(b)
		return err
	}, "an answer of %s", path)
	http.DefaultClient.CloseIdleConnections()
	return status, body
}

func post(t *testing.T, a *Agent, body string, want int) string {
	t.Helper()
	r, err := http.Post("http://"+a.APIAddr().String()+"/events", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	if r.StatusCode != want {
		t.Fatalf("%.80s: %d %s", body, r.StatusCode, b)
	}
	return string(b)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", ports[0])
}

// damage changes a byte of the first frame of a spool.
func damage(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	path := filepath.Join(dir, files[0].Name())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[22] ^= 0xff
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheAPI(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, func(c *Config) {
		c.API = "127.0.0.1:0"
		c.MetricsHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics here") })
	})
	connected(t, a)
	post(t, a, `{"check":{"metadata":{"name":"backup"},"output":"failed","status":2,"handlers":["mail"]}}`, 202)
	if e := b.event(t, "web-1", "backup", nil); e.Check.Status != 2 || e.Check.Interval != 1 || e.Check.Executed == 0 ||
		len(e.ID) != 16 || e.Entity.Class != "agent" {
		t.Fatalf("%+v", e)
	}
	post(t, a, `{"entity":{"metadata":{"name":"router"},"entity_class":"proxy"},"check":{"metadata":{"name":"up"},`+
		`"status":1}}`, 202)
	if e := b.event(t, "router", "up", nil); e.Check.ProxyEntityName != "router" || e.Check.ProcessedBy != "web-1" {
		t.Fatalf("%+v", e.Check)
	}
	for body, word := range map[string]string{
		"":                                      "EOF",
		"[]":                                    "cannot unmarshal",
		"{}":                                    "check or metrics",
		`{"check":{"metadata":{}}}`:             "check name",
		`{"check":{"metadata":{"name":"a b"}}}`: "special characters",
		`{"check":{"metadata":{"name":"a"},"ttl":2}}`:     "ttl",
		`{"check":{"metadata":{"name":"a"}},"id":"x"}`:    "UUID",
		`{"check":{"metadata":{"name":"a"},"status":-1}}`: "status",
	} {
		if got := post(t, a, body, 400); !strings.Contains(got, word) {
			t.Errorf("%s: %s", body, got)
		}
	}
	post(t, a, `{"check":{"metadata":{"name":"a"},"output":"`+strings.Repeat("x", maxEventBytes)+`"}}`, 413)
	if got, body := get(t, a, "/metrics"); got != 200 || body != "metrics here" {
		t.Error(got, body)
	}
	if got, _ := get(t, a, "/events"); got != 405 {
		t.Error(got)
	}
	if got, _ := get(t, a, "/other"); got != 404 {
		t.Error(got)
	}
}

func TestTheSockets(t *testing.T) {
	b := newBackend(t)
	address := freeAddress(t)
	a, _ := start(t, b, func(c *Config) { c.Sockets = address })
	connected(t, a)
	say := func(parts ...string) string {
		t.Helper()
		var c net.Conn
		polltest.NoError(t, polltest.Deadline, func() (err error) { c, err = net.Dial("tcp", address); return err },
			"the socket")
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(polltest.Deadline))
		for _, p := range parts {
			if _, err := io.WriteString(c, p); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.(*net.TCPConn).CloseWrite()
		answer, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	for in, want := range map[string]string{" ping ": "pong", "ping\n": "pong", "{": "invalid", "{}": "invalid",
		`{"name":"x"}`: "invalid", `{"name":"a b","output":"x"}`: "invalid", "": ""} {
		if got := say(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := say(`{"name":"old","out`, `put":"from 1.x","status":1,"handler":"mail"}`); got != "ok" {
		t.Fatal(got)
	}
	if e := b.event(t, "web-1", "old", nil); e.Check.Status != 1 || e.Check.Handlers[0] != "mail" ||
		e.Check.Output != "from 1.x" {
		t.Fatalf("%+v", e.Check)
	}
	u, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for _, text := range []string{" ping ", "rubbish", `{"name":"gram","output":"x","source":"switch-1"}`} {
		if _, err := io.WriteString(u, text); err != nil {
			t.Fatal(err)
		}
	}
	if e := b.event(t, "switch-1", "gram", nil); e.Check.ProxyEntityName != "switch-1" {
		t.Fatalf("%+v", e.Check)
	}
}

func TestStatsd(t *testing.T) {
	b := newBackend(t)
	address := freeAddress(t)
	a, _ := start(t, b, func(c *Config) {
		c.Statsd = Statsd{Address: address, Flush: 20 * time.Millisecond, Handlers: []string{"influx"}}
	})
	connected(t, a)
	u, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	begin := time.Now()
	for {
		_, _ = io.WriteString(u, "heat:21|g|#room:a") // refused until somebody listens
		select {
		case e := <-b.published:
			if e.Metrics == nil {
				continue // the registration
			}
			p := e.Metrics.Points[0]
			if e.Check != nil || e.Metrics.Handlers[0] != "influx" || p.Name != "heat.value" || p.Value != 21 ||
				p.Tags[0].Value != "a" || p.Timestamp < begin.UnixNano() {
				t.Fatalf("%+v %+v", e, p)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Since(begin) > polltest.Deadline {
			t.Fatal("no metrics came")
		}
	}
}

func FuzzLegacyEvent(f *testing.F) {
	for _, s := range []string{`{"name":"a","output":"b"}`,
		`{"name":"a","output":"b","source":"c","status":1,"handlers":["x"]}`, "ping", "{}", "[]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := legacyEvent(text)
		if (e == nil) == (err == nil) {
			t.Fatal(e, err)
		}
		if e != nil && (e.Check == nil || e.Check.Name == "" || e.Check.Output == "") {
			t.Fatalf("%+v", e)
		}
	})
}

// TestTheSpoolIsBounded fills a spool for which nobody comes.
func TestTheSpoolIsBounded(t *testing.T) {
	a, err := New(Config{Entity: Entity{Name: "web-1"}, Backends: func() []string { return nil }, CacheDir: "/c",
		FS:         vfs.NewMem(),
		SpoolBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.handed.run(ctx) }()
	const events, size = 64, 1 << 18
	for range events {
		if err := a.handed.put(t.Context(), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	for _, s := range a.handed.journal.Segments() {
		total += s.Bytes
	}
	if total > 8<<20 || total < 4<<20 || a.handed.waiting() > 32 || a.handed.waiting() < 16 {
		t.Errorf("%d bytes, %d events", total, a.handed.waiting())
	}
	cancel()
	if err := errors.Join(<-done, a.results.close()); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutAFolderTheQueueIsTheBound(t *testing.T) {
	a, err := New(Config{Entity: Entity{Name: "web-1"}, Backends: func() []string { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range queueLength {
		if err := a.results.put(t.Context(), []byte("e")); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := a.results.put(ctx, []byte("e")); !errkind.Is(err, errkind.Overloaded) {
		t.Fatal(err)
	}
	if err := a.results.run(ctx); err != nil {
		t.Fatal(err)
	}
}
