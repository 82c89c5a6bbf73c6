package sensuapi

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/users"
)

// protobuf is what an agent accepts that wants protobuf; the other form is JSON.
const (
	protobuf = "application/octet-stream"
	jsonForm = "application/json"
)

// notFound is the name of the configuration that an agent gets of which nothing is known: it has a space, and is no valid name.
const notFound = "not found"

// managedBy is the label of an entity whose agent decides on its configuration itself.
const (
	managedBy      = "sensu.io/managed_by"
	managedByAgent = "sensu-agent"
)

// Taker takes what agents send, here or at the server that has the entity: a *spread.Spread, or a *ingest.Ingest.
type Taker interface {
	// Frame takes an event in protobuf. It waits for room, for half a minute when ctx has no deadline.
	Frame(ctx context.Context, namespace string, b []byte) error
	// Announce publishes an event that is not stored.
	Announce(*monitor.Event) error
}

// AgentsConfig is what the agents' port is made of.
type AgentsConfig struct {
	Resources *resources.Resources
	Users     *users.Users
	Hub       *hub.Hub
	Events    Taker
	// Backend is this server's name, which agents log.
	Backend string
	Limits  ws.Limits
	// Ready says whether sessions are taken; before, agents are told to come again (503).
	Ready func() bool
	Log   *slog.Logger
}

// Agents answers agents (contract section 1). Each session has one goroutine, which holds no buffer while it waits.
type Agents struct {
	cfg      AgentsConfig
	revoked  func(*x509.Certificate) error // nil: certificates log nobody in
	sessions sync.WaitGroup
	refused  *refusals

	mu     sync.Mutex
	links  map[*session]struct{}
	closed bool
}

// NewAgents makes the handler. Close must be called.
func NewAgents(cfg AgentsConfig) *Agents {
	return &Agents{cfg: cfg, links: map[*session]struct{}{}, refused: newRefusals()}
}

// Close ends all sessions (1001) and waits for them.
func (a *Agents) Close() {
	a.mu.Lock()
	for s := range a.links {
		a.sessions.Go(func() { _ = s.link.CloseWith(ws.CloseGoingAway, "the backend is stopping") })
	}
	a.closed = true
	a.mu.Unlock()
	a.sessions.Wait()
}

// end closes a link beside, since that may take a second; its reader ends with it.
func (a *Agents) end(link hub.Link, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.sessions.Go(func() { _ = link.(*ws.Conn).CloseWith(ws.CloseGoingAway, why) })
	}
}

// session is one agent that is connected.
type session struct {
	hub.Session
	link *ws.Conn
	// managed is set once the agent's own configuration was taken over, if it sends one: the first keepalive's.
	managed bool
}

// ServeHTTP implements http.Handler.
func (a *Agents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health", "/ready":
		if !a.cfg.Ready() {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	case "/":
		a.connect(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (a *Agents) connect(w http.ResponseWriter, r *http.Request) {
	if !a.cfg.Ready() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this backend is not ready for agents yet", http.StatusServiceUnavailable)
		return
	}
	s, status, text := a.admit(r)
	if status != 0 {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="sensu"`)
		}
		http.Error(w, text, status)
		return
	}
	form := jsonForm
	if r.Header.Get("Accept") == protobuf {
		form = protobuf
	}
	s.JSON = form == jsonForm
	header := http.Header{"Accept": {protobuf, jsonForm}, "Content-Type": {form}, "Backend-Id": {a.cfg.Backend}} // two lines of Accept: agents look for one that is theirs
	link, err := ws.Upgrade(w, r, header, &a.cfg.Limits)
	if err != nil {
		return
	}
	s.link, s.Link = link, link
	wanted := words(r.Header.Get("Sensu-Subscriptions"))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		_ = link.CloseWith(ws.CloseGoingAway, "the backend is stopping")
		return
	}
	a.links[s] = struct{}{}
	a.sessions.Go(func() { a.run(s, wanted) })
}

func words(list string) (out []string) {
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}

// admit finds out who asks for a session, and whether it may have one.
func (a *Agents) admit(r *http.Request) (s *session, status int, text string) {
	who, certified, status, text := a.identify(r)
	if status != 0 {
		return nil, status, text
	}
	s = &session{}
	s.Certified = certified
	s.Namespace, s.Agent = r.Header.Get("Sensu-Namespace"), r.Header.Get("Sensu-AgentName")
	if s.Namespace == "" {
		s.Namespace = "default"
	}
	if err := monitor.ValidateName(s.Agent); err != nil {
		return nil, http.StatusBadRequest, "Sensu-AgentName " + err.Error()
	}
	view := a.cfg.Resources.View()
	if view.Get("namespaces", "", s.Namespace) == nil {
		return nil, http.StatusNotFound, "namespace " + s.Namespace + " does not exist"
	}
	if !view.Access().Allows(who, "create", "events", s.Namespace, s.Agent) {
		return nil, http.StatusForbidden, "user " + who.User + " may not create events of " + s.Agent + " in namespace " + s.Namespace
	}
	return s, 0, ""
}

func address(hostPort string) string {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return hostPort
	}
	return host
}

// run is a session from its first message to its end.
func (a *Agents) run(s *session, wanted []string) {
	log := a.cfg.Log.With("agent", s.Agent, "namespace", s.Namespace)
	defer func() {
		if p := recover(); p != nil { // one agent's message ends its own session, and nothing else
			log.Error("a session failed", "panic", p, "stack", string(debug.Stack()))
		}
		a.cfg.Hub.Leave(&s.Session)
		_ = s.link.Close()
		a.mu.Lock()
		delete(a.links, s)
		a.mu.Unlock()
	}()
	if stored := a.configOf(s); stored != nil {
		wanted = stored.Subscriptions
	}
	if former := a.cfg.Hub.Join(&s.Session, wanted); former != nil {
		a.end(former.Link, "the agent has connected again")
	}
	if err := a.configure(s); err != nil {
		log.Debug("a session ended", "error", err)
		return
	}
	var in []byte
	for {
		var err error
		if in, err = s.link.Read(in[:0]); err != nil {
			a.ended(s, log, err)
			return
		}
		if err := a.message(s, in); err != nil {
			a.dropped(s, log, err)
		}
		if cap(in) > keepBytes {
			in = nil
		}
	}
}

// keepBytes is how large a buffer may be that a session keeps between messages.
const keepBytes = 4 << 10

// configOf returns what is stored of the agent's entity; nil is nothing.
func (a *Agents) configOf(s *session) *monitor.EntityConfig {
	item := a.cfg.Resources.View().Get("entities", s.Namespace, s.Agent)
	if item == nil {
		return nil
	}
	return item.Object.(*monitor.EntityConfig)
}

// configure sends the agent its configuration, as it is stored, or that there is none.
func (a *Agents) configure(s *session) error {
	c := a.configOf(s)
	if c == nil {
		c = &monitor.EntityConfig{Meta: monitor.Meta{Name: notFound, Namespace: s.Namespace}, Class: monitor.ClassAgent}
	} else if c.Labels[managedBy] == managedByAgent {
		shown := *c
		shown.Labels = make(map[string]string, len(c.Labels))
		for k, v := range c.Labels {
			if k != managedBy {
				shown.Labels[k] = v
			}
		}
		c = &shown
	}
	return s.Send(hub.NewMessage(hub.KindEntityConfig, c))
}

// Changed tells of changes of the configuration (resources.Resources.Watch): agents get theirs anew, and those whose entity is gone are closed.
func (a *Agents) Changed(ops []objects.Op) {
	for _, op := range ops {
		if op.Type != "entities" {
			continue
		}
		h := a.cfg.Hub.Get(op.Namespace, op.Name)
		if h == nil {
			continue
		}
		s := &session{Session: hub.Session{Namespace: h.Namespace, Agent: h.Agent, JSON: h.JSON, Certified: h.Certified, Link: h.Link}}
		c := a.configOf(s)
		if c == nil {
			a.end(h.Link, "the entity was deleted")
			continue
		}
		a.cfg.Hub.Subscribe(h, c.Subscriptions)
		_ = a.configure(s) // a link that takes nothing ends by itself
	}
}

// takeTime bounds how long a message waits to be registered and for room in the store before it is dropped.
const takeTime = 30 * time.Second

func (a *Agents) message(s *session, b []byte) error {
	head, payload, ok := bytes.Cut(b, []byte{'\n'})
	if !ok || len(head) > maxKind {
		return errkind.Errorf(errkind.Invalid, "a message without a type")
	}
	isEvent := string(head) == hub.KindEvent
	if isEvent && !s.JSON { // nearly all: nothing is allocated
		return a.cfg.Events.Frame(context.Background(), s.Namespace, payload)
	}
	if !isEvent && string(head) != hub.KindKeepalive {
		return errkind.Errorf(errkind.Invalid, "a message of type %q", head)
	}
	e := new(monitor.Event)
	var err error
	if s.JSON {
		err = json.Unmarshal(payload, e)
	} else {
		err = tagproto.Unmarshal(payload, e)
	}
	if err != nil {
		return errkind.E(errkind.Invalid, string(head), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), takeTime)
	defer cancel()
	if !isEvent {
		return a.keepalive(ctx, s, e)
	}
	return a.cfg.Events.Frame(ctx, s.Namespace, tagproto.Append(nil, e))
}

// maxKind is more than the longest type of a message has.
const maxKind = 64

// keepalive takes a sign of life: it makes the agent's entity when there is none, and is a result of the check keepalive.
func (a *Agents) keepalive(ctx context.Context, s *session, e *monitor.Event) error {
	if e.Timestamp == 0 {
		return errkind.Errorf(errkind.Invalid, "keepalive: timestamp is 0")
	}
	if e.Entity == nil || e.Check == nil {
		return errkind.Errorf(errkind.Invalid, "keepalive: entity or check is missing")
	}
	if e.Entity.Name != s.Agent {
		return errkind.Errorf(errkind.Invalid, "keepalive: it is of %q, and the session of %q", e.Entity.Name, s.Agent)
	}
	e.Entity.Namespace = s.Namespace
	if e.Entity.Class == "" {
		e.Entity.Class = monitor.ClassAgent
	}
	if err := e.Entity.Validate(); err != nil {
		return errkind.E(errkind.Invalid, "keepalive", err)
	}
	if err := a.register(ctx, s, e); err != nil {
		return err
	}
	id := uuid.New()
	e.ID = id[:]
	c := e.Check
	c.Name, c.Namespace = monitor.KeepaliveCheck, s.Namespace
	c.Status, c.Executed, c.Issued, c.ProcessedBy = 0, e.Timestamp, e.Timestamp, s.Agent
	c.Output = "Keepalive last sent from " + s.Agent + " at " + time.Unix(e.Timestamp, 0).UTC().Format(time.RFC3339)
	c.Handlers = e.Entity.KeepaliveHandlers
	if len(c.Handlers) == 0 {
		c.Handlers = []string{monitor.KeepaliveCheck}
	}
	return a.cfg.Events.Frame(ctx, s.Namespace, tagproto.Append(nil, e))
}

// register stores the configuration of an entity that is new, or that its agent manages.
func (a *Agents) register(ctx context.Context, s *session, e *monitor.Event) error {
	managed := e.Entity.Labels[managedBy] == managedByAgent
	stored := a.configOf(s)
	if stored != nil && (!managed || s.managed || e.Sequence != 1) {
		return nil
	}
	c, _ := monitor.Split(e.Entity)
	op := objects.Op{Verb: objects.Put, Type: "entities", Namespace: s.Namespace, Name: s.Agent, Encoded: tagproto.Append(nil, c)}
	if stored == nil {
		op.Verb = objects.Create
	}
	if err := a.cfg.Resources.Write(ctx, op); err != nil && !errkind.Is(err, errkind.Conflict) {
		return err
	}
	s.managed = true
	if stored != nil {
		return nil
	}
	return a.cfg.Events.Announce(&monitor.Event{
		Timestamp: e.Timestamp, Entity: e.Entity,
		Check: &monitor.Check{Meta: monitor.Meta{Name: "registration", Namespace: s.Namespace}, Interval: 1, Status: 1, Issued: e.Timestamp, Executed: e.Timestamp, Handlers: []string{"registration"}},
	})
}
