package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/objects"
)

// runner is an agent that counts the check requests it gets.
type runner struct {
	mu  sync.Mutex
	got map[string][]*monitor.CheckRequest // by check
}

// runs connects an agent that reads until its connection ends.
func (m *testMember) runs(name string, subscriptions ...string) *runner {
	m.t.Helper()
	conn := m.agent(name, subscriptions...)
	r := &runner{got: map[string][]*monitor.CheckRequest{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			b, err := conn.Read(nil)
			if err != nil {
				return
			}
			kind, body, _ := bytes.Cut(b, []byte{'\n'})
			if string(kind) != hub.KindCheckRequest {
				continue
			}
			q := new(monitor.CheckRequest)
			if err := tagproto.Unmarshal(body, q); err != nil {
				m.t.Error(err)
				return
			}
			r.mu.Lock()
			r.got[q.Config.Name] = append(r.got[q.Config.Name], q)
			r.mu.Unlock()
		}
	}()
	m.t.Cleanup(func() { _ = conn.Close(); <-done })
	return r
}

func (r *runner) count(check string) int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.got[check]) }

func (r *runner) last(check string) *monitor.CheckRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[check][len(r.got[check])-1]
}

// more waits until each agent got so many more requests of a check.
func more(t *testing.T, agents []*runner, check string, n int) {
	t.Helper()
	before := make([]int, len(agents))
	for i, a := range agents {
		before[i] = a.count(check)
	}
	polltest.Until(t, func() bool {
		for i, a := range agents {
			if a.count(check) < before[i]+n {
				return false
			}
		}
		return true
	}, "%d more requests of %s", n, check)
}

func (m *testMember) put(c *monitor.CheckConfig) {
	m.t.Helper()
	c.Namespace = "default"
	op := objects.Op{Verb: objects.Put, Type: "checks", Namespace: "default", Name: c.Name,
		Encoded: tagproto.Append(nil, c)}
	polltest.NoError(m.t, time.Minute, func() error { return m.monitor().Group.Resources.Write(m.t.Context(), op) },
		"check %s to be written", c.Name)
}

func everySecond(name string, subscriptions ...string) *monitor.CheckConfig {
	return &monitor.CheckConfig{Meta: monitor.Meta{Name: name}, Command: "true", Interval: 1, Publish: true,
		Subscriptions: subscriptions}
}

// TestMonitorSchedules: a check that is written reaches agents over their sessions, once though two subscriptions
// match; subdued or deleted it does not.
func TestMonitorSchedules(t *testing.T) {
	t.Parallel()
	m := startServer(t, "mon", monitorOn+"bootstrap = true")
	a := m.runs("web-1", "linux", "web")
	m.put(everySecond("disk", "linux", "web"))
	m.put(everySecond("beat", "linux"))
	more(t, []*runner{a}, "disk", 3)
	a.mu.Lock()
	for i, q := range a.got["disk"][1:] {
		if before := a.got["disk"][i]; q.Issued <= before.Issued || q.Config.Command != "true" {
			t.Errorf("%+v after %+v", q, before)
		}
	}
	a.mu.Unlock()
	silent := func(why string) {
		t.Helper()
		more(t, []*runner{a}, "beat", 2) // what was on its way has come
		n := a.count("disk")
		if more(t, []*runner{a}, "beat", 3); a.count("disk") != n {
			t.Errorf("%s: the check still runs", why)
		}
	}
	c := everySecond("disk", "linux")
	c.Subdues = []*monitor.Subdue{{Begin: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
		End: time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}
	m.put(c)
	silent("subdued")
	m.put(everySecond("disk", "linux"))
	more(t, []*runner{a}, "disk", 2)
	if err := m.monitor().Group.Resources.Write(t.Context(), objects.Op{Verb: objects.Delete, Type: "checks",
		Namespace: "default", Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	silent("deleted")
}

// TestMonitorClusterRoundRobin: agents of three servers share a check that goes round, also after the leader has gone,
// and a check that is executed on request reaches all.
func TestMonitorClusterRoundRobin(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3, monitorOn)
	var agents []*runner
	for i, m := range servers {
		for j := range 2 {
			agents = append(agents, m.runs(fmt.Sprintf("agent-%d-%d", i, j), "linux"))
		}
	}
	c := everySecond("shared", "linux")
	c.RoundRobin = true
	servers[0].put(c)
	more(t, agents, "shared", 2)
	if s := agents[5].last("shared").Config.Scheduler; s != "corbel" {
		t.Error(s)
	}
	asked := everySecond("asked", "linux")
	asked.Publish = false
	servers[1].put(asked)
	issued, err := servers[1].monitor().Checks.Scheduler.Execute(t.Context(), "default", "asked", nil, "admin", "a look")
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range agents {
		polltest.Until(t, func() bool { return a.count("asked") == 1 }, "agent %d to run what was asked for", i)
		if at := a.last("asked").Issued; at < issued { // a server that hears of it later issues it in that second
			t.Errorf("agent %d: issued %d, before %d", i, at, issued)
		}
	}
	var leader int
	polltest.Until(t, func() bool {
		for i, m := range servers {
			if m.monitor().Group.Raft.LeaseHeld() {
				leader = i
				return true
			}
		}
		return false
	}, "a leader of the plane")
	if err := servers[leader].stop(); err != nil {
		t.Error(err)
	}
	more(t, slices.Delete(agents, 2*leader, 2*leader+2), "shared", 2)
}

// rest asks the plane's API as its first user does.
func (m *testMember) rest(method, path, body string) (int, string) {
	m.t.Helper()
	api, _ := m.MonitorAddrs()
	ask := func(method, path, body string, authorize func(*http.Request)) (int, string) {
		req, err := http.NewRequestWithContext(m.t.Context(), method, "http://"+api+path, strings.NewReader(body))
		if err != nil {
			m.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		authorize(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return -1, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return -1, err.Error()
		}
		return resp.StatusCode, string(b)
	}
	var login struct {
		Token string `json:"access_token"`
	}
	polltest.NoError(m.t, polltest.Deadline, func() error { // under the race detector a password's hash takes seconds
		code, text := ask("GET", "/auth", "", func(r *http.Request) { r.SetBasicAuth("admin", "P@ssw0rd!") })
		if err := json.Unmarshal([]byte(text), &login); err != nil || code != http.StatusOK {
			return fmt.Errorf("login: %d %q", code, text)
		}
		return nil
	}, "a login at %s", m.Cfg.Node.Name)
	return ask(method, path, body, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+login.Token) })
}

// TestMonitorChecksOverREST: what sensuctl does to have a check run: write it with its asset and hook, deal its
// entities out, execute it.
func TestMonitorChecksOverREST(t *testing.T) {
	t.Parallel()
	m := startServer(t, "mon", monitorOn+"bootstrap = true")
	a, b := m.runs("web-1", "linux"), m.runs("web-2", "linux")
	put := func(path, body string) {
		t.Helper()
		if code, text := m.rest("PUT", "/api/core/v2/namespaces/default/"+path, body); code/100 != 2 {
			t.Fatalf("%s: %d %s", path, code, text)
		}
	}
	put("hooks/ps", `{"metadata":{"name":"ps","namespace":"default"},"command":"ps","timeout":5}`)
	put("assets/sensu-disk", `{"metadata":{"name":"sensu-disk","namespace":"default"},`+
		`"url":"https://example.com/a.tgz","sha512":"`+strings.Repeat("a", 128)+`"}`)
	for _, name := range []string{"site-1", "site-2"} {
		put("entities/"+name, `{"metadata":{"name":"`+name+`","namespace":"default","labels":{"url":"https://`+name+
			`"}},"entity_class":"proxy"}`)
	}
	put("checks/http",
		`{"metadata":{"name":"http","namespace":"default"},"command":"check-http {{ .labels.url }} {{ .labels.path | default \"/\" }}","interval":1,"publish":true,
		"round_robin":true,"subscriptions":["linux"],"runtime_assets":["sensu"],"check_hooks":[{"non-zero":["ps"]}],"proxy_requests":{"entity_attributes":["entity.entity_class == 'proxy'"]}}`)
	more(t, []*runner{a, b}, "http", 3)
	q := a.last("http")
	if name := q.Config.ProxyEntityName; q.Config.Command != "check-http https://"+name+" /" || len(q.Assets) != 1 ||
		len(q.Hooks) != 1 {
		t.Errorf("%+v", q)
	}
	put("checks/once", `{"metadata":{"name":"once","namespace":"default"},"command":"true","interval":60,`+
		`"publish":false,"subscriptions":["none"]}`)
	code, text := m.rest("POST", "/api/core/v2/namespaces/default/checks/once/execute",
		`{"check":"once","subscriptions":["entity:web-2"],"reason":"a try"}`)
	if code != http.StatusAccepted || !strings.Contains(text, `"issued":`) {
		t.Fatalf("%d %s", code, text)
	}
	polltest.Until(t, func() bool { return b.count("once") == 1 }, "the request that was asked for")
	if a.count("once") != 0 || !strings.Contains(text, fmt.Sprint(b.last("once").Issued)) {
		t.Errorf("%s, issued %d", text, b.last("once").Issued)
	}
}
