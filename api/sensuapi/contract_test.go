package sensuapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	sensu "github.com/sensu/sensu-go/api/core/v2"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/users"
)

// The upgrade: where it is, which form the session has, and what is answered beside it (SA-1, SA-3, SA-4, SA-10).
func TestUpgrade(t *testing.T) {
	b := newBackend(t)
	for i, c := range []struct{ accept, form string }{
		{protobuf, protobuf}, {"application/json", jsonForm}, {"", jsonForm}, {"*/*", jsonForm},
		{protobuf + ", application/json", jsonForm},
	} {
		h := header(fmt.Sprint("e", i), "agent", users.AgentPassword)
		h.Set("Accept", c.accept)
		conn, answer := b.dial(t, h)
		if answer.StatusCode != 101 || answer.Header.Get("Sec-Websocket-Protocol") != "" ||
			answer.Header.Get("Sec-Websocket-Extensions") != "" || answer.Header.Get("Content-Type") != c.form ||
			!slices.Equal(answer.Header.Values("Accept"), []string{protobuf, jsonForm}) {
			t.Errorf("Accept %q: %+v", c.accept, answer.Header)
		}
		_, body := next(t, conn)
		if isJSON := json.Valid(body); isJSON != (c.form == jsonForm) {
			t.Errorf("Accept %q: %q", c.accept, body)
		}
		request := hub.NewMessage(hub.KindCheckRequest,
			&monitor.CheckRequest{Config: &monitor.CheckConfig{Meta: monitor.Meta{Name: "cpu"}}})
		b.cfg.Hub.Send("default", []string{fmt.Sprint("entity:e", i)}, request)
		if _, body = next(t, conn); json.Valid(body) != (c.form == jsonForm) {
			t.Errorf("Accept %q, a request: %q", c.accept, body)
		}
	}
	if _, answer, _ := websocket.DefaultDialer.DialContext(t.Context(), b.url+"/agents",
		header("x", "agent", users.AgentPassword)); answer == nil || answer.StatusCode != 404 {
		t.Errorf("another path: %+v", answer)
	}
	for _, ready := range []bool{true, false} {
		b.ready.Store(ready)
		for _, path := range []string{"/health", "/ready"} {
			answer, err := http.Get("http" + strings.TrimPrefix(b.url, "ws") + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if want := map[bool]int{true: 200, false: 503}[ready]; answer.StatusCode != want ||
				(answer.Header.Get("Retry-After") == "") != ready {
				t.Errorf("%s, ready %v: %d", path, ready, answer.StatusCode)
			}
		}
	}
}

// A session takes large messages, up to its limit, and ends with 1009 beyond it (SA-16).
func TestLargeMessages(t *testing.T) {
	b := newBackend(t)
	c, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	next(t, c)
	e := keepalive(t, "web-1", 1)
	e.Check.Name, e.Check.Output = "big", strings.Repeat("x", 1_400_000)
	send(t, c, "event", marshal(t, e))
	if got := b.event(t, "web-1", "big"); len(got.Check.Output) != 1_400_000 {
		t.Errorf("%d bytes of output", len(got.Check.Output))
	}
	// the other side may close before it has all
	_ = c.WriteMessage(websocket.BinaryMessage, append([]byte("event\n"), bytes.Repeat([]byte{1}, 8<<20)...))
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			if !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
				t.Error(err)
			}
			return
		}
	}
}

// A keepalive registers its agent once, and is an event with what the agent said of it (SK-1, SK-2, SK-3).
func TestKeepalivesAreEvents(t *testing.T) {
	b := newBackend(t)
	c, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	next(t, c)
	e := keepalive(t, "web-1", 1)
	e.Labels, e.Annotations = map[string]string{"tier": "web"}, map[string]string{"runbook": "x"}
	e.Pipelines = []*sensu.ResourceReference{{Name: "p", Type: "Pipeline", APIVersion: "core/v2"}}
	e.Check.Interval, e.Check.Timeout, e.Check.Ttl = 10, 60, 300
	e.Entity.System, e.Entity.SensuAgentVersion, e.Entity.LastSeen = sensu.System{Hostname: "web-1.example", OS: "linux"},
		"6.12.0", e.Timestamp
	send(t, c, "keepalive", marshal(t, e))
	first := b.event(t, "web-1", "keepalive")
	if k := first.Check; first.Labels["tier"] != "web" || first.Annotations["runbook"] != "x" ||
		len(first.Pipelines) != 1 || k.Interval != 10 || k.Timeout != 60 || k.TTL != 300 || k.Status != 0 ||
		!slices.Equal(k.Handlers, []string{"keepalive"}) || first.Sequence != 1 || len(first.ID) != 16 ||
		bytes.Equal(first.ID, make([]byte, 16)) {
		t.Errorf("%+v, %+v", first, k)
	}
	if r := polltest.Get(t, b.published, "the registration"); r.Check.Name != "registration" || r.Check.Status != 1 ||
		r.Check.Interval != 1 || !slices.Equal(r.Check.Handlers, []string{"registration"}) {
		t.Errorf("%+v", r.Check)
	}
	e.Sequence, e.Entity.System.Hostname, e.Entity.SensuAgentVersion, e.Entity.KeepaliveHandlers = 2, "renamed", "6.13.0",
		[]string{"pager"}
	e.Timestamp++
	e.Entity.LastSeen = e.Timestamp
	send(t, c, "keepalive", marshal(t, e))
	var second *monitor.Event
	polltest.Until(t, func() bool { second = b.event(t, "web-1", "keepalive"); return second.Sequence == 2 },
		"the second keepalive")
	if bytes.Equal(first.ID, second.ID) || !slices.Equal(second.Check.Handlers, []string{"pager"}) ||
		second.Entity.System.Hostname != "renamed" || second.Entity.AgentVersion != "6.13.0" ||
		second.Entity.LastSeen != e.Timestamp {
		t.Errorf("%+v, %+v", second, second.Entity)
	}
	if _, err := b.ingest.Get("default", "web-1", "registration"); err == nil {
		t.Error("a registration is stored")
	}
	for len(b.published) > 0 {
		if r := <-b.published; r.Check.Name == "registration" {
			t.Error("registered twice")
		}
	}
}

// A stored entity keeps its configuration, but for that of an agent that manages it, whose first keepalive of each
// session counts; the class of one that has an agent is agent (SA-20, SA-21).
func TestStoredConfiguration(t *testing.T) {
	b := newBackend(t)
	stored := func() *monitor.EntityConfig {
		return b.resources.View().Get("entities", "default", "web-1").Object().(*monitor.EntityConfig)
	}
	c := &monitor.EntityConfig{Meta: monitor.Meta{Name: "web-1", Namespace: "default",
		Labels: map[string]string{"by": "api"}}, Class: "proxy", Subscriptions: []string{"db"}}
	if err := b.resources.Write(t.Context(), objects.Op{Verb: objects.Put, Type: "entities", Namespace: "default",
		Name: "web-1", Encoded: tagproto.Append(nil, c)}); err != nil {
		t.Fatal(err)
	}
	conn, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	_, body := next(t, conn)
	var told monitor.EntityConfig
	if err := tagproto.Unmarshal(body, &told); err != nil || told.Class != "agent" || told.Labels["by"] != "api" {
		t.Fatal(told, err)
	}
	send(t, conn, "keepalive", marshal(t, keepalive(t, "web-1", 1)))
	polltest.Until(t, func() bool { return stored().Class == "agent" }, "the class to be mended")
	if got := stored(); got.Labels["by"] != "api" || !slices.Equal(got.Subscriptions, []string{"db"}) {
		t.Errorf("%+v", got)
	}
	_ = conn.Close()
	for session, sequences := range [][]int64{{1, 2}, {5, 1}} {
		conn, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
		next(t, conn)
		for i, sequence := range sequences {
			e := keepalive(t, "web-1", sequence)
			e.Timestamp += int64(session*10 + i)
			e.Entity.Labels = map[string]string{managedBy: managedByAgent, "v": fmt.Sprint(session, "-", sequence)}
			send(t, conn, "keepalive", marshal(t, e))
			polltest.Until(t, func() bool {
				got, err := b.ingest.Get("default", "web-1", "keepalive")
				return err == nil && got.Timestamp == e.Timestamp
			}, "keepalive %d of session %d", i, session)
		}
		if want := fmt.Sprint(session, "-1"); stored().Labels["v"] != want || stored().Labels[managedBy] != managedByAgent {
			t.Errorf("session %d: %v, want %s", session, stored().Labels, want)
		}
		_ = conn.Close()
	}
}

// Pings are answered with what they held (SA-14), and a session ends with 1001 when the backend does (SA-15).
func TestPongs(t *testing.T) {
	b := newBackend(t)
	c, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	next(t, c)
	pong := make(chan string, 1)
	c.SetPongHandler(func(text string) error { pong <- text; return nil })
	if err := c.WriteControl(websocket.PingMessage, []byte("there?"), time.Now().Add(polltest.Deadline)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, _, err := c.ReadMessage(); ended <- err }()
	if got := polltest.Get(t, pong, "a pong"); got != "there?" {
		t.Error(got)
	}
	b.Close()
	if err := polltest.Get(t, ended, "the end"); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Error(err)
	}
}
