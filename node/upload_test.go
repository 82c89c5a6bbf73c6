package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
)

// slowBody is a body that is never done: some bytes, then nothing until it is closed.
type slowBody struct {
	head io.Reader
	over <-chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if n, _ := b.head.Read(p); n > 0 {
		return n, nil
	}
	<-b.over
	return 0, io.ErrUnexpectedEOF
}

// TestUploadIsJudgedByItsHead: a snapshot that comes through an agent is judged before a piece of it is stored, and
// who may not restore takes no place of who may.
func TestUploadIsJudgedByItsHead(t *testing.T) {
	const root = "5ba5c1c6-ea1a-4a9b-9f6e-2a0fbd4a6e14"
	acl := `acl { enabled = true, default_policy = "deny", tokens { initial_management = "` + root + `", default = "" } }`
	first := startServer(t, "up1", `bootstrap = true
`+acl)
	agent := startMember(t, false, "upagent", acl+fmt.Sprintf("\nretry_join = [%q]", first.gossip))
	first.awaitAsk("PUT", "/v1/kv/a?token="+root, "x", 200, "true")
	agent.awaitAsk("GET", "/v1/kv/a?raw&token="+root, "", 200, "x")
	stored := func() (parts int, size int64) {
		first.uploads.mu.Lock()
		defer first.uploads.mu.Unlock()
		for _, part := range first.uploads.parts {
			size += part.size
		}
		return len(first.uploads.parts), size
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(over)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan int, 8)
	for i := range cap(answers) {
		wg.Go(func() {
			body := &slowBody{io.LimitReader(zeros{}, 3<<20), over}
			token := ""
			if i%2 == 1 {
				token = "?token=nobody"
			}
			r, err := http.NewRequestWithContext(ctx, "PUT", "http://"+agent.http+"/v1/snapshot"+token, body)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				answers <- -1
				return
			}
			_ = resp.Body.Close()
			answers <- resp.StatusCode
		})
	}
	for range cap(answers) {
		if code := polltest.Get(t, answers, "an answer before the body is there"); code != 403 {
			t.Errorf("without a right: %d", code)
		}
	}
	if parts, size := stored(); parts != 0 || size != 0 {
		t.Errorf("%d bodies of %d bytes were stored", parts, size)
	}
	if err := putBody(t, agent, "/v1/snapshot?token="+root, io.LimitReader(zeros{}, 3<<20)); err != 400 { // judged, stored, and no snapshot
		t.Errorf("with a right: %d", err)
	}
	if parts, _ := stored(); parts != 0 {
		t.Errorf("%d bodies are left", parts)
	}
	_, saved := agent.ask("GET", "/v1/snapshot?token="+root, "")
	if code := putBody(t, agent, "/v1/snapshot?token="+root, bytes.NewReader([]byte(saved))); code != 200 {
		t.Errorf("a snapshot: %d", code)
	}
}

// TestUploadNeedsAName: pieces go where a judged head made room, and nowhere else.
func TestUploadNeedsAName(t *testing.T) {
	u := &uploads{}
	t.Cleanup(u.close)
	if _, err := u.piece(t.Context(), pack.Bytes(pack.Uint(pack.String(nil, "made-up"), 0), []byte("x"))); err == nil || len(u.parts) != 0 {
		t.Errorf("a name that nobody gave: %v", err)
	}
	id, err := u.begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.piece(t.Context(), pack.Bytes(pack.Uint(pack.String(nil, id), 0), []byte("x"))); err != nil {
		t.Error(err)
	}
}

func putBody(t *testing.T, m *testMember, path string, body io.Reader) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "PUT", "http://"+m.http+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return -1
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
