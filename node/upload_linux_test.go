package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/forward"
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
	stored := first.uploads.Kept
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
	// judged, stored, and no snapshot
	if err := putBody(t, agent, "/v1/snapshot?token="+root, io.LimitReader(zeros{}, 3<<20)); err != 400 {
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

// TestUploadIsOfItsConnection: who learns the name of a body that another connection began can neither add to it nor
// restore it, and it is good for the request alone whose head was judged.
func TestUploadIsOfItsConnection(t *testing.T) {
	t.Parallel()
	const root = "5ba5c1c6-ea1a-4a9b-9f6e-2a0fbd4a6e14"
	m := startServer(t, "upowner", `bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = "`+root+`" } }`)
	m.awaitAsk("PUT", "/v1/kv/a?token="+root, "x", 200, "true")
	_, saved := m.ask("GET", "/v1/snapshot?token="+root, "")
	own, other := callerAs(t, asUser(os.Getuid()), wire.ProtoRPC), callerAs(t, asUser(os.Getuid()), wire.ProtoRPC)
	head := func(path, token string) []byte {
		r, err := http.NewRequest(http.MethodPut, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Consul-Token", token)
		b, err := forward.Encode(r, rows.Journey{Hops: 1})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	offer := pack.Bytes(pack.Bool(nil, false), head("/v1/snapshot", root))
	reply, err := own.Call(t.Context(), m.RPCAddr(), forward.MethodOffer, offer)
	rd := pack.Read(reply)
	wanted, id := rd.Bool(), rd.String()
	if err != nil || !wanted || id == "" {
		t.Fatalf("the offer: %v, wanted %v", err, wanted)
	}
	send := func(c *rpc.Client, at int, data string) error {
		piece := pack.Bytes(pack.Uint(pack.String(nil, id), uint64(at)), []byte(data))
		_, err := c.Call(t.Context(), m.RPCAddr(), forward.MethodUpload, piece)
		return err
	}
	restore := func(c *rpc.Client, path, token string) (int, error) {
		s, err := c.Stream(t.Context(), m.RPCAddr(), forward.MethodStream,
			pack.Bytes(pack.String(nil, id), head(path, token)))
		if err != nil {
			return 0, err
		}
		defer s.Close()
		w := httptest.NewRecorder()
		err = forward.CopyStream(w, s)
		return w.Code, err
	}
	if err := send(own, 0, saved[:10]); err != nil {
		t.Fatal(err)
	}
	if err := send(other, 10, saved[10:]); err == nil {
		t.Error("another connection added a piece")
	}
	if err := send(own, 10, saved[10:]); err != nil {
		t.Error(err)
	}
	for what, try := range map[string]func() (int, error){
		"another connection": func() (int, error) { return restore(other, "/v1/snapshot", root) },
		"another token":      func() (int, error) { return restore(own, "/v1/snapshot", "nobody") },
		"another request":    func() (int, error) { return restore(own, "/v1/snapshot?dc=dc1", root) },
	} {
		if code, err := try(); err == nil {
			t.Errorf("%s restores the body: %d", what, code)
		}
	}
	if code, err := restore(own, "/v1/snapshot", root); err != nil || code != http.StatusOK {
		t.Errorf("whose body it is: %d, %v", code, err)
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
