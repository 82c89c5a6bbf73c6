package consulapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// ceaseless is a log, and metrics, of which a line comes each 10 ms.
type ceaseless struct{}

func (ceaseless) Follow(ctx context.Context, _ slog.Level, _ bool, w io.Writer, flush func()) error {
	return ceaseless{}.Stream(ctx, w, flush)
}

func (ceaseless) Stream(ctx context.Context, w io.Writer, flush func()) error {
	for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		if _, err := io.WriteString(w, "line\n"); err != nil {
			return err
		}
		flush()
	}
	return nil
}

func (ceaseless) ServeHTTP(http.ResponseWriter, *http.Request) {}

// ceaselessSnapshots saves an archive of lines without an end, and restores one by reading it to its end.
type ceaselessSnapshots struct {
	begun    chan struct{}
	restored chan error
}

// Save implements Snapshots.
func (ceaselessSnapshots) Save(ctx context.Context) (io.ReadCloser, uint64, error) {
	r, w := io.Pipe()
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := io.WriteString(w, strings.Repeat("line\n", 1000)); err != nil {
				return
			}
			<-tick.C
		}
	}()
	return r, 1, nil
}

// Restore implements Snapshots.
func (s ceaselessSnapshots) Restore(_ context.Context, in io.Reader) error {
	close(s.begun)
	_, err := io.Copy(io.Discard, in)
	s.restored <- err
	return err
}

// TestRestoreRightEnds: a snapshot whose body takes its time restores nothing when the right to it was taken meanwhile.
func TestRestoreRightEnds(t *testing.T) {
	t.Parallel()
	auth := &changing{known: tokens{}}
	auth.set("s", rules(`acl = "write"`))
	begun, restored := make(chan struct{}), make(chan error, 1)
	r := newRig(t, func(c *Config) {
		c.Authorizer, c.DefaultACLPolicy, c.Operator.Snapshots = auth, "deny", ceaselessSnapshots{begun, restored}
	})
	srv := httptest.NewServer(r.api)
	defer srv.Close()
	body, out := io.Pipe()
	defer out.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL+"/v1/snapshot", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Consul-Token", "s")
	answered := make(chan int, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- -1
			return
		}
		_ = resp.Body.Close()
		answered <- resp.StatusCode
	}()
	if _, err := out.Write([]byte("a piece")); err != nil {
		t.Fatal(err)
	}
	polltest.Get(t, begun, "the body to be read")
	auth.set("s", nil)
	go func() {
		for range 300 { // 3 s
			<-time.After(10 * time.Millisecond)
			if _, err := out.Write([]byte("a piece")); err != nil {
				return
			}
		}
		_ = out.Close()
	}()
	if err := polltest.Get(t, restored, "the end of the body"); err == nil {
		t.Error("the body was read to its end, and restored")
	}
	if code := polltest.Get(t, answered, "an answer"); code == http.StatusOK {
		t.Errorf("it is answered with %d", code)
	}
}

// TestRightsEnd: each stream ends, or shows nothing any more, within 5 s of when the right to it was taken, though an
// item comes each 10 ms and never a pause (row C12).
func TestRightsEnd(t *testing.T) {
	const may = `acl = "write" agent_prefix "" { policy = "read" } key_prefix "" { policy = "write" }`
	for _, path := range []string{"/v1/agent/monitor", "/v1/agent/metrics/stream", "/v1/watch", "/v1/snapshot"} {
		for name, take := range map[string]func(*changing){
			"the token is gone": func(c *changing) { c.set("s", nil) },
			"it allows less":    func(c *changing) { c.set("s", rules(`operator = "read"`)) },
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				auth := &changing{known: tokens{}}
				auth.set("s", rules(may))
				auth.set("writer", rules(may))
				r := newRig(t, func(c *Config) {
					c.Authorizer, c.DefaultACLPolicy, c.Agent.Logs, c.Agent.MetricsHandler = auth, "deny", ceaseless{}, ceaseless{}
					c.Operator.Snapshots = ceaselessSnapshots{}
				})
				srv := httptest.NewServer(r.api)
				defer srv.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				method, body := "GET", io.Reader(http.NoBody)
				if path == "/v1/watch" {
					method, body = "POST", strings.NewReader(`[{"ID":"a","Path":"/v1/kv/a"}]`)
				}
				req, err := http.NewRequestWithContext(ctx, method, srv.URL+path, body)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Consul-Token", "s")
				resp, err := http.DefaultClient.Do(req)
				if err != nil || resp.StatusCode != 200 {
					t.Fatal(resp, err)
				}
				defer resp.Body.Close()
				traffic := make(chan struct{})
				defer func() { cancel(); <-traffic }()
				go func() {
					defer close(traffic)
					for n, tick := 0, time.NewTicker(10*time.Millisecond); ctx.Err() == nil; <-tick.C {
						n++
						w, req := httptest.NewRecorder(), httptest.NewRequest("PUT", "/v1/kv/a", strings.NewReader(fmt.Sprint(n)))
						req.Header.Set("X-Consul-Token", "writer")
						r.api.ServeHTTP(w, req)
					}
				}()
				lines := make(chan string, 1000)
				go func() {
					defer close(lines)
					for in := bufio.NewScanner(resp.Body); in.Scan(); {
						lines <- in.Text()
					}
				}()
				for range 20 {
					polltest.Get(t, lines, "an item")
				}
				take(auth)
				taken := time.Now()
				deadline := time.After(15 * time.Second)
				for {
					select {
					case line, open := <-lines:
						if !open {
							return
						}
						if took := time.Since(taken); took > 10*time.Second && !strings.Contains(line, `"Status":403`) &&
							!strings.Contains(line, "Heartbeat") {
							t.Fatalf("%s after the right was taken: %s", took, line)
						}
					case <-deadline:
						if path != "/v1/watch" { // a watch tells that it is refused, and goes on to ask
							t.Fatal("the stream goes on")
						}
						return
					}
				}
			})
		}
	}
}
