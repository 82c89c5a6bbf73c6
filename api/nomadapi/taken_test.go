package nomadapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/ws"
)

// endless is a plane whose nodes and logs say something, and then nothing for ever.
type endless struct{ *plane }

func (endless) Read(context.Context, jobs.ID, string, any) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, `{"Data":"aGk="}`) }() // ends with the reader
	return r, nil
}

// session waits until it is closed.
type session struct {
	*io.PipeReader
	io.Writer
}

func (endless) Talk(context.Context, jobs.ID, string, any) (io.ReadWriteCloser, error) {
	r, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, `{"stdout":{"data":"aGk="}}`) }()
	return session{r, io.Discard}, nil
}

func (endless) Follow(ctx context.Context, _ slog.Level, _ bool, w io.Writer, flush func()) error {
	_, _ = io.WriteString(w, "a line\n")
	flush()
	<-ctx.Done()
	return ctx.Err()
}

// takable is a right to all until it is taken.
type takable struct{ taken atomic.Bool }

func (t *takable) Allows(token, _ string, _ nomadrows.Capability) (bool, error) {
	return token == "ops" && !t.taken.Load(), nil
}

// TestTakenRightsEndAnswers: what is followed ends when the right to it was taken, also while nothing comes.
func TestTakenRightsEndAnswers(t *testing.T) {
	header := http.Header{"X-Nomad-Token": {"ops"}}
	for name, path := range map[string]string{
		"logs":              "/v1/client/fs/logs/" + allocID + "?task=main&type=stdout&follow=true",
		"events":            "/v1/event/stream?namespace=default&topic=Job",
		"monitor":           "/v1/agent/monitor",
		"monitor of a node": "/v1/agent/monitor?node_id=" + nodeID,
		"exec":              "/v1/client/allocation/" + allocID + "/exec?task=main&command=%5B%22sh%22%5D",
		"exec, the token in its first message": "/v1/client/allocation/" + allocID +
			"/exec?task=main&command=%5B%22sh%22%5D&ws_handshake=true",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, right := endless{filled()}, &takable{}
			needs := p.needs()
			needs.Clients, needs.Logs, needs.Rights = p, p, right
			server := httptest.NewServer(New(Config{Needs: needs}))
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), polltest.Deadline)
			defer cancel()
			if strings.HasPrefix(name, "exec") {
				c, _, err := ws.Dial(ctx, "ws"+strings.TrimPrefix(server.URL, "http")+path, header, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				if strings.Contains(path, "ws_handshake") {
					if err := c.Write([]byte(`{"version":1,"auth_token":"ops"}`)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := c.Read(nil); err != nil {
					t.Fatal(err)
				}
				right.taken.Store(true)
				if text, err := c.Read(nil); err == nil || ctx.Err() != nil {
					t.Errorf("it goes on: %q, %v", text, ctx.Err())
				}
				return
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = header
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := resp.Body.Read(make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status, err)
			}
			right.taken.Store(true)
			_, _ = io.Copy(io.Discard, resp.Body)
			if ctx.Err() != nil {
				t.Error("it goes on")
			}
		})
	}
}
