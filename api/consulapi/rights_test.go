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

// TestRightsEnd: each stream ends, or shows nothing any more, within 5 s of when the right to it was taken, though an
// item comes each 10 ms and never a pause (row C12).
func TestRightsEnd(t *testing.T) {
	const may = `agent_prefix "" { policy = "read" } key_prefix "" { policy = "write" }`
	for _, path := range []string{"/v1/agent/monitor", "/v1/agent/metrics/stream", "/v1/watch"} {
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
					c.Authorizer, c.DefaultACLPolicy, c.Logs, c.MetricsHandler = auth, "deny", ceaseless{}, ceaseless{}
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
