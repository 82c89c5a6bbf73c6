package sensuapi

import (
	"cmp"
	"context"
	"crypto/x509"
	"hash/maphash"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/limit"
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

// notFound is the name of the configuration that an agent gets of which nothing is known: it has a space, and is no
// valid name.
const notFound = "not found"

// managedBy is the label of an entity whose agent decides on its configuration itself.
const (
	managedBy      = "sensu.io/managed_by"
	managedByAgent = "sensu-agent"
)

// Taker takes what agents send, here or at the server that has the entity: a *shardrouter.Spread, or a *ingest.Ingest.
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

// Agents answers agents (contract section 1). Sessions that wait have no goroutine, and no buffer (ws.Loop).
type Agents struct {
	cfg      AgentsConfig
	revoked  func(*x509.Certificate) error // nil: certificates log nobody in
	loop     *ws.Loop
	beats    beatChecks
	opening  chan struct{} // held by those whose first keepalive makes their entity
	refused  *refusals
	sessions sync.WaitGroup // whose Ended was not called yet
	ends     sync.WaitGroup // links that are being closed

	mu     sync.Mutex
	links  map[*session]struct{}
	closed bool
}

// NewAgents makes the handler. Run must be called for sessions to begin.
func NewAgents(cfg AgentsConfig) (*Agents, error) {
	loop, err := ws.NewLoop(ws.LoopConfig{Limits: cfg.Limits, Take: takeTime})
	if err != nil {
		return nil, err
	}
	return &Agents{cfg: cfg, loop: loop, beats: beatChecks{seed: maphash.MakeSeed()},
		opening: make(chan struct{}, openingMost), links: map[*session]struct{}{}, refused: newRefusals()}, nil
}

// takeTime bounds how long a message waits for room in the store before it is dropped.
const takeTime = 30 * time.Second

// openingMost bounds how many first keepalives are decoded and written to the plane's group at once: as many as fill
// its commits. When all agents come at once the others wait with what came of them and no more; what thousands of
// them would have made there leaves holes in the heap that stay.
const openingMost = 128

// Run serves sessions until ctx ends, then ends them all (1001) and returns when they have.
func (a *Agents) Run(ctx context.Context) error {
	within, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done := make(chan error, 1)
	go func() { done <- a.loop.Run(within) }()
	a.ends.Go(func() { a.keepRights(ctx) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	a.mu.Lock()
	for s := range a.links {
		a.ends.Go(func() { _ = s.Link.(ws.Link).CloseWith(ws.CloseGoingAway, errStopping.Error()) })
	}
	a.closed = true
	a.mu.Unlock()
	a.sessions.Wait()
	a.ends.Wait()
	stop()
	return <-done
}

// end closes a link beside, since that may take a second; its session ends with it.
func (a *Agents) end(link hub.Link, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.ends.Go(func() { _ = link.(ws.Link).CloseWith(ws.CloseGoingAway, why) })
	}
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
	// two lines of Accept: agents look for one that is theirs
	header := http.Header{"Accept": {protobuf, jsonForm}, "Content-Type": {form}, "Backend-Id": {a.cfg.Backend}}
	link, err := ws.Upgrade(w, r, header, &a.cfg.Limits)
	if err != nil {
		return
	}
	s.place = limit.Claim(link.NetConn())
	s.wanted = words(r.Header.Get("Sensu-Subscriptions"))
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		_ = link.CloseWith(ws.CloseGoingAway, errStopping.Error())
		s.place.Release()
		return
	}
	a.sessions.Add(1)
	a.mu.Unlock()
	a.loop.Serve(link, s)
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
	s = &session{agents: a}
	if s.Certified = certified; certified {
		s.cert = r.TLS.PeerCertificates[0]
	}
	s.user = who.User
	if item := a.cfg.Resources.View().Get("users", "", who.User); item != nil {
		s.user = item.Object().(*monitor.User).Username // one string for all sessions of a user
	}
	namespace := cmp.Or(r.Header.Get("Sensu-Namespace"), "default")
	s.Agent = strings.Clone(r.Header.Get("Sensu-AgentName")) // else all headers stay as long as the session
	if err := monitor.ValidateName(s.Agent); err != nil {
		return nil, http.StatusBadRequest, "Sensu-AgentName " + err.Error()
	}
	view := a.cfg.Resources.View()
	known := view.Get("namespaces", "", namespace)
	if known == nil {
		return nil, http.StatusNotFound, "namespace " + namespace + " does not exist"
	}
	s.Namespace = known.Name
	if !view.Access().Allows(who, "create", "events", s.Namespace, s.Agent) {
		return nil, http.StatusForbidden, "user " + who.User + " may not create events of " + s.Agent + " in namespace " +
			s.Namespace
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

// configOf returns what is stored of the agent's entity; nil is nothing.
func (a *Agents) configOf(s *hub.Session) *monitor.EntityConfig {
	item := a.cfg.Resources.View().Get("entities", s.Namespace, s.Agent)
	if item == nil {
		return nil
	}
	return item.Object().(*monitor.EntityConfig)
}

// knows reports whether the agent's entity is there.
func (a *Agents) knows(s *hub.Session) bool {
	return a.cfg.Resources.View().Get("entities", s.Namespace, s.Agent) != nil
}

// configure sends the agent its configuration, as it is stored, or that there is none.
func (a *Agents) configure(s *hub.Session) error {
	c := a.configOf(s)
	if c == nil {
		c = &monitor.EntityConfig{Meta: monitor.Meta{Name: notFound, Namespace: s.Namespace}, Class: monitor.ClassAgent}
	} else if c.Labels[managedBy] == managedByAgent || c.Class != monitor.ClassAgent {
		shown := *c
		shown.Class = monitor.ClassAgent
		shown.Labels = maps.Clone(c.Labels)
		if shown.Labels[managedBy] == managedByAgent {
			delete(shown.Labels, managedBy)
		}
		c = &shown
	}
	return s.Send(hub.NewMessage(hub.KindEntityConfig, c))
}

// Changed tells of changes of the configuration (resources.Resources.Watch): agents get theirs anew, and those whose
// entity is gone are closed.
func (a *Agents) Changed(ops []objects.Op) {
	for _, op := range ops {
		if op.Type != "entities" {
			continue
		}
		h := a.cfg.Hub.Get(op.Namespace, op.Name)
		if h == nil {
			continue
		}
		c := a.configOf(h)
		if c == nil {
			a.end(h.Link, "the entity was deleted")
			continue
		}
		a.cfg.Hub.Subscribe(h, c.Subscriptions)
		_ = a.configure(h) // a link that takes nothing ends by itself
	}
}
