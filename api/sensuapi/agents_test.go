package sensuapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	sensu "github.com/sensu/sensu-go/api/core/v2"
	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/ingest/ingesttest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
	"corbel.dev/corbel/monitor/users"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// backend is the agents' port over a real intake.
type backend struct {
	*Agents
	url       string
	conns     *limit.Conns
	resources *resources.Resources
	ingest    *ingest.Ingest
	ready     atomic.Bool
	published chan *monitor.Event
	Close     func() // ends the sessions
}

func newBackend(t testing.TB) *backend {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	config, _ := resourcestest.New()
	b := &backend{resources: config, published: make(chan *monitor.Event, 1000)}
	b.ready.Store(true)
	ops, err := users.Seed("admin", "correct horse", "", bcrypt.MinCost, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.resources.Write(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	b.ingest, err = ingest.New(ingesttest.Config(log, &ingesttest.Double{T: t, Resources: b.resources,
		Published: func(e *monitor.Event) { b.published <- e }}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.ingest.Run(ctx) }()
	b.Agents, err = NewAgents(AgentsConfig{Resources: b.resources,
		Users: users.New(users.Config{Resources: b.resources, Cost: bcrypt.MinCost}), Hub: hub.NewHub(), Events: b.ingest,
		Backend: "backend-1",
		Ready:   b.ready.Load, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Agents.Run(serving) }()
	b.Close = sync.OnceFunc(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	b.resources.Watch(b.Agents.Changed)
	b.conns = limit.NewConns(0, 0, nil)
	s := httptest.NewUnstartedServer(b.Agents)
	s.Listener = b.conns.Listener(s.Listener)
	s.Start()
	b.url = "ws" + strings.TrimPrefix(s.URL, "http")
	t.Cleanup(func() {
		b.Close()
		s.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

func header(name, user, password string) http.Header {
	return http.Header{
		"Sensu-Namespace": {"default"}, "Sensu-Agentname": {name}, "Sensu-Subscriptions": {"linux,web"}, "Sensu-User": {user},
		"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}, "Accept": {protobuf},
	}
}

// dial connects as the reference's agent does: by its library, with its headers.
func (b *backend) dial(t *testing.T, h http.Header) (*websocket.Conn, *http.Response) {
	t.Helper()
	c, answer, err := websocket.DefaultDialer.DialContext(t.Context(), b.url, h)
	if err != nil {
		t.Fatalf("%v, %+v", err, answer)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(polltest.Deadline))
	return c, answer
}

// next reads a message and returns its kind and body.
func next(t *testing.T, c *websocket.Conn) (kind string, body []byte) {
	t.Helper()
	typ, b, err := c.ReadMessage()
	if err != nil || typ != websocket.BinaryMessage {
		t.Fatalf("%v, type %d", err, typ)
	}
	head, rest, _ := strings.Cut(string(b), "\n")
	return head, []byte(rest)
}

func send(t *testing.T, c *websocket.Conn, kind string, body []byte) {
	t.Helper()
	if err := c.WriteMessage(websocket.BinaryMessage, append([]byte(kind+"\n"), body...)); err != nil {
		t.Fatal(err)
	}
}

// keepalive is one as the reference's types write it.
func keepalive(t testing.TB, name string, sequence int64) *sensu.Event {
	t.Helper()
	return &sensu.Event{Timestamp: time.Now().Unix(), Sequence: sequence,
		Entity: &sensu.Entity{EntityClass: "agent", ObjectMeta: sensu.ObjectMeta{Name: name, Namespace: "default"},
			Subscriptions: []string{"linux", "web", "entity:" + name}, User: "agent"},
		Check: &sensu.Check{ObjectMeta: sensu.ObjectMeta{Name: "keepalive", Namespace: "default"}, Interval: 20,
			Timeout: 120}}
}

func marshal(t testing.TB, e *sensu.Event) []byte {
	t.Helper()
	b, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *backend) event(t *testing.T, entity, check string) *monitor.Event {
	t.Helper()
	var got *monitor.Event
	polltest.Until(t, func() bool {
		var err error
		got, err = b.ingest.Get("default", entity, check)
		if err != nil && !errkind.Is(err, errkind.NotFound) {
			t.Fatal(err)
		}
		return err == nil
	}, "the event of %s", check)
	return got
}

func TestAnAgentComesAndIsKnown(t *testing.T) {
	b := newBackend(t)
	c, answer := b.dial(t, header("web-1", "agent", users.AgentPassword))
	if got := answer.Header.Values("Accept"); len(got) != 2 || got[0] != protobuf ||
		answer.Header.Get("Content-Type") != protobuf || answer.Header.Get("Backend-ID") != "backend-1" {
		t.Fatal(answer.Header)
	}
	kind, body := next(t, c)
	var config monitor.EntityConfig
	if err := tagproto.Unmarshal(body, &config); err != nil || kind != "entity_config" || config.Name != "not found" ||
		config.Class != "agent" {
		t.Fatal(kind, config, err)
	}
	send(t, c, "keepalive", marshal(t, keepalive(t, "web-1", 1)))
	if kind, body = next(t, c); kind != "entity_config" || tagproto.Unmarshal(body, &config) != nil ||
		config.Name != "web-1" {
		t.Fatal("what was stored of it comes back:", kind, config)
	}
	if e := polltest.Get(t, b.published, "its registration"); e.Check.Name != "registration" ||
		e.Check.Handlers[0] != "registration" || e.Entity.Name != "web-1" {
		t.Fatalf("%+v", e.Check)
	}
	e := b.event(t, "web-1", "keepalive")
	if e.Check.Status != 0 || e.Check.State != "passing" || len(e.Check.Handlers) != 1 ||
		e.Check.Handlers[0] != "keepalive" || len(e.ID) != 16 || e.Check.Executed == 0 {
		t.Fatalf("%+v", e.Check)
	}
	result := keepalive(t, "web-1", 2)
	result.Check = &sensu.Check{ObjectMeta: sensu.ObjectMeta{Name: "cpu", Namespace: "default"}, Interval: 10, Status: 1,
		Output: "busy\nvery", Executed: 5, Issued: 4}
	send(t, c, "event", marshal(t, result))
	if e = b.event(t, "web-1", "cpu"); e.Check.Output != "busy\nvery" || e.Check.State != "failing" ||
		e.Entity.Class != "agent" {
		t.Fatalf("%+v", e.Check)
	}
	request := hub.NewMessage(hub.KindCheckRequest,
		&monitor.CheckRequest{Config: &monitor.CheckConfig{Meta: monitor.Meta{Name: "cpu"}}, Issued: 7})
	if n := b.cfg.Hub.Send("default", []string{"linux", "entity:web-1"}, request); n != 1 {
		t.Fatalf("%d sessions", n)
	}
	kind, body = next(t, c)
	var got sensu.CheckRequest
	if err := got.Unmarshal(body); err != nil || kind != "check_request" || got.Config.Name != "cpu" || got.Issued != 7 {
		t.Fatal(kind, got, err)
	}
}

func TestResultsOfOthersMakeProxyEntities(t *testing.T) {
	b := newBackend(t)
	c, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	for i := range int64(2) {
		result := keepalive(t, "web-1", 1)
		result.Check = &sensu.Check{ObjectMeta: sensu.ObjectMeta{Name: "ping", Namespace: "default"}, Interval: 10, Status: 1,
			Executed: 5 + i, ProxyEntityName: "router", ProcessedBy: "web-1"}
		send(t, c, "event", marshal(t, result))
	}
	e := b.event(t, "router", "ping")
	if e.Entity.Class != "proxy" || len(e.Entity.Subscriptions) != 1 || e.Entity.Subscriptions[0] != "entity:router" ||
		e.Check.ProcessedBy != "web-1" {
		t.Fatalf("%+v", e.Entity)
	}
	if item := b.resources.View().Get("entities", "default", "router"); item == nil ||
		item.Object().(*monitor.EntityConfig).Class != "proxy" {
		t.Fatal("the proxy entity is not there")
	}
	if b.resources.View().Get("entities", "default", "web-1") != nil {
		t.Fatal("a result made an agent's entity")
	}
	result := keepalive(t, "web-1", 1)
	result.Check = &sensu.Check{ObjectMeta: sensu.ObjectMeta{Name: "ping", Namespace: "default"}, Interval: 10,
		ProxyEntityName: "not valid"}
	send(t, c, "event", marshal(t, result))
	send(t, c, "keepalive", marshal(t, keepalive(t, "web-1", 2)))
	b.event(t, "web-1", "keepalive")
	if list := b.ingest.List("default", "not valid"); len(list) != 0 {
		t.Fatal("an entity whose name is not valid")
	}
}

func TestAgentsThatSpeakJSON(t *testing.T) {
	b := newBackend(t)
	h := header("web-1", "agent", users.AgentPassword)
	h.Set("Accept", "application/json")
	c, answer := b.dial(t, h)
	if answer.Header.Get("Content-Type") != jsonForm {
		t.Fatal(answer.Header)
	}
	kind, body := next(t, c)
	var config monitor.EntityConfig
	if err := json.Unmarshal(body, &config); err != nil || kind != "entity_config" || config.Name != "not found" {
		t.Fatal(kind, string(body), err)
	}
	text, err := json.Marshal(keepalive(t, "web-1", 1))
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, "keepalive", text)
	b.event(t, "web-1", "keepalive")
}

func TestWhoMayConnect(t *testing.T) {
	b := newBackend(t)
	change := func(f func(http.Header)) http.Header {
		h := header("web-1", "agent", users.AgentPassword)
		f(h)
		return h
	}
	for name, c := range map[string]struct {
		h    http.Header
		want int
	}{
		"no credentials":    {change(func(h http.Header) { h.Del("Authorization") }), 401},
		"a wrong password":  {header("web-1", "agent", "wrong"), 401},
		"nobody":            {header("web-1", "x", "y"), 401},
		"no such namespace": {change(func(h http.Header) { h.Set("Sensu-Namespace", "dev") }), 404},
		"no name":           {change(func(h http.Header) { h.Del("Sensu-AgentName") }), 400},
		"a bad name":        {change(func(h http.Header) { h.Set("Sensu-AgentName", "not found") }), 400},
	} {
		_, answer, err := websocket.DefaultDialer.DialContext(t.Context(), b.url, c.h)
		if err == nil || answer == nil || answer.StatusCode != c.want {
			t.Errorf("%s: %v, %+v", name, err, answer)
		}
	}
	if got := b.Refused(); got != (Refused{Logins: 2}) {
		t.Errorf("%+v", got)
	}
	op := objects.Op{Verb: objects.Delete, Type: "clusterrolebindings", Name: "system:agent"}
	if err := b.resources.Write(t.Context(), op); err != nil {
		t.Fatal(err)
	}
	if _, answer, _ := websocket.DefaultDialer.DialContext(t.Context(), b.url,
		header("web-1", "agent", users.AgentPassword)); answer == nil || answer.StatusCode != 403 {
		t.Errorf("without rights: %+v", answer)
	}
	b.ready.Store(false)
	if _, answer, _ := websocket.DefaultDialer.DialContext(t.Context(), b.url,
		header("web-1", "agent", users.AgentPassword)); answer == nil || answer.StatusCode != 503 ||
		answer.Header.Get("Retry-After") == "" {
		t.Errorf("before it is ready: %+v", answer)
	}
}

func TestBadMessagesEndNothing(t *testing.T) {
	b := newBackend(t)
	c, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	next(t, c)
	other := keepalive(t, "web-2", 1)
	noTime := keepalive(t, "web-1", 1)
	noTime.Timestamp = 0
	foreign := keepalive(t, "web-1", 1)
	foreign.Entity.Namespace = "prod"
	foreign.Check.Name = "cpu"
	for _, m := range [][]byte{
		[]byte("no newline"), []byte("strange\nbody"), []byte("event\nrubbish"), []byte("keepalive\n\xff\xff"), []byte("\n"),
		append([]byte("keepalive\n"), marshal(t, other)...), append([]byte("keepalive\n"), marshal(t, noTime)...),
		append([]byte("event\n"), marshal(t, foreign)...),
	} {
		if err := c.WriteMessage(websocket.BinaryMessage, m); err != nil {
			t.Fatal(err)
		}
	}
	send(t, c, "keepalive", marshal(t, keepalive(t, "web-1", 1)))
	b.event(t, "web-1", "keepalive")
	if list := b.ingest.List("", ""); len(list) != 1 {
		t.Errorf("%d events", len(list))
	}
	if got := b.Refused(); got != (Refused{Messages: 8}) {
		t.Errorf("%+v", got)
	}
}

func TestConfigurationReachesTheAgent(t *testing.T) {
	b := newBackend(t)
	put := func(subs ...string) {
		c := &monitor.EntityConfig{Meta: monitor.Meta{Name: "web-1", Namespace: "default",
			Labels: map[string]string{managedBy: managedByAgent, "a": "b"}}, Class: "agent", Subscriptions: subs}
		if err := b.resources.Write(t.Context(), objects.Op{Verb: objects.Put, Type: "entities", Namespace: "default",
			Name: "web-1", Encoded: tagproto.Append(nil, c)}); err != nil {
			t.Fatal(err)
		}
	}
	put("db")
	c, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	_, body := next(t, c)
	var config monitor.EntityConfig
	if err := tagproto.Unmarshal(body, &config); err != nil || config.Name != "web-1" || len(config.Labels) != 1 {
		t.Fatal(config, err)
	}
	m := hub.NewMessage(hub.KindCheckRequest, &monitor.CheckRequest{})
	if b.cfg.Hub.Send("default", []string{"linux"}, m) != 0 || b.cfg.Hub.Send("default", []string{"db"}, m) != 1 {
		t.Fatal("the stored subscriptions count, not the header's")
	}
	next(t, c)
	put("cache")
	if kind, _ := next(t, c); kind != "entity_config" || b.cfg.Hub.Send("default", []string{"cache"}, m) != 1 ||
		b.cfg.Hub.Send("default", []string{"db"}, m) != 0 {
		t.Fatal("a change of subscriptions holds at once")
	}
	next(t, c)
	if err := b.resources.Write(t.Context(), objects.Op{Verb: objects.Delete, Type: "entities", Namespace: "default",
		Name: "web-1"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Fatal("a deleted entity's session ends:", err)
	}
}

func TestASecondSessionReplacesTheFirst(t *testing.T) {
	b := newBackend(t)
	first, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	next(t, first)
	second, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	next(t, second)
	if _, _, err := first.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Fatal(err)
	}
	if b.cfg.Hub.Send("default", []string{"linux"}, hub.NewMessage(hub.KindCheckRequest, &monitor.CheckRequest{})) != 1 {
		t.Fatal("the second session is not there")
	}
	next(t, second)
}

func TestAFleetConnectsAtOnce(t *testing.T) {
	b := newBackend(t)
	const agents = 100
	for i := range agents {
		c, _ := b.dial(t, header(fmt.Sprint("a", i), "agent", users.AgentPassword))
		next(t, c)
	}
	if n := b.cfg.Hub.Counts()["default"]; n != agents {
		t.Fatalf("%d sessions", n)
	}
}

// TestAgentsAreCountedByAddress: a session is no stranger, and has its place until it ends; who says nothing keeps
// strangers of its address out, and no agents that are connected.
func TestAgentsAreCountedByAddress(t *testing.T) {
	b := newBackend(t)
	b.conns.Set(3, 1)
	here := netip.MustParseAddr("127.0.0.1")
	counted := func(open, strangers int) {
		t.Helper()
		polltest.Until(t, func() bool {
			n, s := b.conns.Open(here)
			return n == open && s == strangers
		}, "%d connections, %d strangers", open, strangers)
	}
	first, _ := b.dial(t, header("web-1", "agent", users.AgentPassword))
	counted(1, 0)
	silent, err := net.Dial("tcp", strings.TrimPrefix(b.url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	counted(2, 1)
	refused := func(name string) {
		t.Helper()
		h := header(name, "agent", users.AgentPassword)
		if c, _, err := websocket.DefaultDialer.DialContext(t.Context(), b.url, h); err == nil {
			_ = c.Close()
			t.Error("a connection beyond the bound was taken")
		}
	}
	refused("web-2")
	_ = silent.Close()
	counted(1, 0)
	for i, name := range []string{"web-2", "web-3"} {
		b.dial(t, header(name, "agent", users.AgentPassword))
		counted(2+i, 0)
	}
	refused("web-4")
	_ = first.Close()
	counted(2, 0)
	b.dial(t, header("web-4", "agent", users.AgentPassword))
	counted(3, 0)
}
