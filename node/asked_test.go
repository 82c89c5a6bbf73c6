package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/forward"
	doctorplane "corbel.dev/corbel/node/planes/doctor"
)

// spy is a member of the pool, no server, that keeps what it is sent and answers nothing of use.
type spy struct {
	mu   sync.Mutex
	seen [][]byte
}

func (s *spy) take(req []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, bytes.Clone(req))
}

func (s *spy) all() (int, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen), bytes.Join(s.seen, []byte("\n"))
}

func startSpy(t *testing.T, like *testMember, name string) *spy {
	t.Helper()
	s := &spy{}
	w, err := wire.New(wire.Config{Bind: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{})
	for _, method := range []string{forward.MethodHTTP, doctorplane.MethodAsk, forward.MethodUpload} {
		srv.Handle(wire.Anyone, method, func(_ context.Context, req []byte) ([]byte, error) {
			s.take(req)
			return nil, errkind.New(errkind.Unavailable, "a spy")
		})
	}
	for _, method := range []string{forward.MethodStream, doctorplane.MethodAskStream} {
		srv.HandleStream(wire.Anyone, method, func(_ context.Context, req []byte, _ func([]byte) error) error {
			s.take(req)
			return errkind.New(errkind.Unavailable, "a spy")
		})
	}
	m, _ := like.sees(like.Cfg.Node.Name)
	tags := map[string]string{}
	for k, v := range m.Tags {
		tags[k] = v
	}
	_, tags["port"], _ = net.SplitHostPort(w.Addr().String())
	tags["role"], tags["id"] = base.RoleAgent, "0a1b2c3d-1111-4222-8333-444455556666"
	pool, err := member.New(member.Config{Name: name, Bind: "127.0.0.1:0", Tags: tags, Profile: member.Local})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	l := w.Listen(wire.ProtoRPC, 0, wire.Anyone)
	wg.Go(func() { _ = w.Run(ctx) })
	wg.Go(func() { _ = srv.Run(ctx, l) })
	wg.Go(func() { _ = pool.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	polltest.NoError(t, time.Minute, func() error { _, err := pool.Join(ctx, []string{like.gossip}); return err },
		"the spy to join")
	polltest.Until(t, func() bool { m, ok := like.sees(name); return ok && m.Status == member.Alive },
		"the server to know the spy")
	return s
}

// TestNoTokenTravelsToAnAgent: servers judge who asks about agents' proxies and processes, and ask on their own behalf.
func TestNoTokenTravelsToAnAgent(t *testing.T) {
	const root, web = "5ba5c1c6-ea1a-4a9b-9f6e-2a0fbd4a6e12", "0d9ba1a5-6a4a-4c5a-8a6a-7d1a5a2b0c34"
	m := startServer(t, "asker", `bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = "`+root+`" } }`)
	m.awaitAsk("PUT", "/v1/acl/token?token="+root, `{"SecretID":"`+web+`","ServiceIdentities":[{"ServiceName":"web"}]}`,
		200, web)
	s := startSpy(t, m, "spy")
	m.awaitAsk("PUT", "/v1/catalog/register?token="+root,
		`{"Node":"spy","Address":"127.0.0.1","Service":{"Kind":"connect-proxy","ID":"web-proxy","Service":"web-proxy","Port":1,"Proxy":{"DestinationServiceName":"web"}},
		"Check":{"CheckID":"_service_drain:web","Name":"drains"}}`, 200, "true")
	before := 0
	for _, path := range []string{"/v1/internal/mesh/status?all", "/v1/internal/mesh/find/web",
		"/v1/internal/mesh/settle/web?node=spy&id=web",
		doctorplane.ReachPrefix + "spy/v1/agent/self", doctorplane.ReachPrefix + "spy/v1/agent/metrics?format=prometheus"} {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		_, body := m.ask("GET", path+sep+"token="+root, "")
		calls, sent := s.all()
		if calls == before {
			t.Errorf("%s did not ask the agent: %s", path, body)
		}
		if bytes.Contains(sent, []byte(root)) {
			t.Fatalf("%s showed the caller's token to an agent: %q", path, sent)
		}
		before = calls
	}
	for _, token := range []string{"", web} {
		for _, path := range []string{doctorplane.ReachPrefix + "spy/v1/agent/self?token=",
			doctorplane.ReachPrefix + "spy/debug/pprof/heap?token=",
			"/v1/internal/mesh/status?token="} {
			if code, body := m.ask("GET", path+token, ""); code != 403 {
				t.Errorf("%s%s: %d %s", path, token, code, body)
			}
		}
	}
	if calls, _ := s.all(); calls != before {
		t.Error("the agent was asked for somebody who may not ask")
	}
}

// TestAgentsAnswerServersAlone: an agent takes no requests from the network but the questions of servers, which are
// about its proxies and its process.
func TestAgentsAnswerServersAlone(t *testing.T) {
	const root = "5ba5c1c6-ea1a-4a9b-9f6e-2a0fbd4a6e13"
	acl := `acl { enabled = true, default_policy = "deny", tokens { agent = "` + root + `" } }`
	first := startServer(t, "first", `bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = "`+root+`" } }`)
	agent := startMember(t, false, "asked", acl+fmt.Sprintf("\nretry_join = [%q]", first.gossip))
	agent.awaitAsk("GET", "/v1/agent/self?token="+root, "", 200, "asked")
	polltest.Until(t, func() bool { _, ok := first.sees("asked"); return ok }, "the server to know the agent")
	for _, method := range []string{forward.MethodHTTP, forward.MethodUpload, methodDNS} {
		if _, err := first.RPC.Call(t.Context(), agent.RPCAddr(), method, nil); !errkind.Is(err, errkind.NotFound) {
			t.Errorf("%s: %v", method, err)
		}
	}
	for path, want := range map[string]errkind.Kind{"/v1/kv/a": errkind.Denied, "/v1/agent/leave": errkind.Denied,
		"/v1/internal/mesh/../kv/a":      errkind.Denied,
		"http://elsewhere/v1/agent/self": errkind.Invalid} {
		if _, err := first.RPC.Call(t.Context(), agent.RPCAddr(), doctorplane.MethodAsk,
			pack.String(nil, path)); errkind.Of(err) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	first.awaitAsk("GET", "/v1/internal/mesh/status?token="+root, "", 200, `"Silent":[]`)
	for _, m := range []*testMember{first, agent} {
		m.awaitAsk("GET", doctorplane.ReachPrefix+"asked/v1/agent/self?token="+root, "", 200, `"NodeName":"asked"`)
		m.awaitAsk("GET", doctorplane.ReachPrefix+"first/v1/agent/self?token="+root, "", 200, `"NodeName":"first"`)
		m.awaitAsk("GET", doctorplane.ReachPrefix+"asked/v1/agent/self", "", 403, "Permission denied")
		m.awaitAsk("GET", doctorplane.ReachPrefix+"asked/debug/pprof/cmdline?token="+root, "", 200, "")
	}
}

// TestAskedStreamEndsWithItsRight: a log of another member, which a server fetches for a caller, ends when the
// caller's token does, however much is in it.
func TestAskedStreamEndsWithItsRight(t *testing.T) {
	const root, reader = "5ba5c1c6-ea1a-4a9b-9f6e-2a0fbd4a6e14", "0d9ba1a5-6a4a-4c5a-8a6a-7d1a5a2b0c35"
	acl := `acl { enabled = true, default_policy = "deny", tokens { agent = "` + root + `" } }`
	first := startServer(t, "first", `bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = "`+root+`" } }`)
	agent := startMember(t, false, "asked", acl+fmt.Sprintf("\nretry_join = [%q]", first.gossip))
	agent.awaitAsk("GET", "/v1/agent/self?token="+root, "", 200, "asked")
	first.awaitAsk("PUT", "/v1/acl/policy?token="+root,
		`{"Name":"logs","Rules":"agent_prefix \"\" { policy = \"read\" }"}`, 200, "logs")
	first.awaitAsk("PUT", "/v1/acl/token?token="+root, `{"SecretID":"`+reader+`","Policies":[{"Name":"logs"}]}`,
		200, reader)
	_, body := first.ask("GET", "/v1/acl/token/self?token="+reader, "")
	var token struct{ AccessorID string }
	if err := json.Unmarshal([]byte(body), &token); err != nil {
		t.Fatal(err, body)
	}
	const stream = doctorplane.ReachPrefix + "asked/v1/agent/monitor?loglevel=debug&token="
	first.awaitAsk("GET", doctorplane.ReachPrefix+"asked/v1/agent/self?token="+reader, "", 200, `"NodeName":"asked"`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+first.http+stream+reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // how it ends is the server's affair
			err = resp.Body.Close()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("the log ended while its reader may read it: %v", err)
	case <-time.After(3 * time.Second): // more than one judgement
	}
	first.awaitAsk("DELETE", "/v1/acl/token/"+token.AccessorID+"?token="+root, "", 200, "true")
	_ = polltest.Get(t, ended, "the log to end")
	if ctx.Err() != nil {
		t.Error("the log went on for a minute after its reader's token was deleted")
	}
}
