package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/config"
)

// member is a whole process of Corbel inside the test: nothing but its main function is missing.
type testMember struct {
	*localAgent
	*Server // nil on a client agent
	t       testing.TB
	hcl     string
	http    string // host:port
	gossip  string
	cancel  context.CancelFunc
	done    chan error
}

// startServer runs a server with more configuration; %-verbs of it are filled from a test's folder by the caller.
func startServer(t testing.TB, name, more string) *testMember {
	t.Helper()
	return startMember(t, true, name, more)
}

func startMember(t testing.TB, server bool, name, more string) *testMember {
	t.Helper()
	ports, err := testport.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	m := &testMember{t: t, http: fmt.Sprintf("127.0.0.1:%d", ports[0]), gossip: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	m.hcl = fmt.Sprintf(`
node_name = %q
data_dir = %q
bind_addr = "127.0.0.1"
log_level = "ERROR"
disable_update_check = true
ports { http = %d, serf_lan = %d, server = %d, serf_wan = -1, dns = -1 }
`, name, filepath.Join(t.TempDir(), "data"), ports[0], ports[1], ports[2])
	cfg := m.config(server, more)
	introducing, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if err := Introduce(introducing, cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	m.start(cfg)
	t.Cleanup(func() { m.stop() })
	return m
}

// start makes the process and runs it.
func (m *testMember) start(cfg *config.Config) {
	m.t.Helper()
	p, err := New(cfg)
	if err != nil {
		m.t.Fatalf("%s: %v", cfg.Node.Name, err)
	}
	switch p := p.(type) {
	case *Server:
		m.localAgent, m.Server = p.localAgent, p
	case *Agent:
		m.localAgent = p.localAgent
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	m.done = make(chan error, 1)
	go func() { m.done <- p.Run(ctx) }()
}

// config loads the member's configuration with more of it.
func (m *testMember) config(server bool, more string) *config.Config {
	m.t.Helper()
	o := config.Options{Server: server, Fragments: []string{m.hcl, more}, Hostname: "test"}
	// Otherwise no plane has a section, and those that need one are off.
	if strings.Contains(more, "jobs {") || strings.Contains(more, "usage {") {
		o.Sections = Sections()
	}
	cfg, err := config.Load(o)
	if err != nil {
		m.t.Fatal(err)
	}
	return cfg
}

// stop ends it as a signal does and returns what Run returned.
func (m *testMember) stop() error {
	m.cancel()
	err, ok := <-m.done
	if ok {
		close(m.done)
	}
	return err
}

// ask sends one request and returns status and body; -1 when there was no answer.
func (m *testMember) ask(method, path, body string) (int, string) {
	code, text, _ := m.answer(method, path, body)
	return code, text
}

// answer is ask, with the headers of the answer.
func (m *testMember) answer(method, path, body string) (int, string, http.Header) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+m.http+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return -1, err.Error(), nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1, err.Error(), nil
	}
	return resp.StatusCode, string(b), resp.Header
}

// awaitAsk asks until the status and a part of the body are as wanted.
func (m *testMember) awaitAsk(method, path, body string, status int, part string) {
	m.t.Helper()
	polltest.NoError(m.t, time.Minute, func() error {
		if code, text := m.ask(method, path, body); code != status || !strings.Contains(text, part) {
			return fmt.Errorf("%s %s: %d %q, want %d %q", method, path, code, text, status, part)
		}
		return nil
	}, "the answer")
}

// cluster starts n servers that know each other and returns them when one leads and all know it.
func startCluster(t testing.TB, n int, more string) []*testMember {
	t.Helper()
	var list []*testMember
	for i := range n {
		extra := fmt.Sprintf("bootstrap_expect = %d\n%s", n, more)
		if i > 0 {
			extra += fmt.Sprintf("\nretry_join = [%q]\n", list[0].gossip)
		}
		list = append(list, startServer(t, fmt.Sprintf("s%d", i), extra))
	}
	for _, m := range list {
		m.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	}
	return list
}

func leaderOf(t testing.TB, list []*testMember) (leader *testMember, others []*testMember) {
	t.Helper()
	polltest.Until(t, func() bool {
		leader, others = nil, nil
		for _, m := range list {
			if m.raft.LeaseHeld() {
				leader = m
			} else {
				others = append(others, m)
			}
		}
		return leader != nil
	}, "a leader")
	return leader, others
}

// sees is what the member knows of another one by gossip.
func (m *testMember) sees(name string) (member.Member, bool) {
	return m.Pool.Member(member.ActShow, name)
}
