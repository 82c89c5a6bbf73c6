// Package hub knows which agents are connected to this server and what they subscribed to, and sends them what they
// are to get.
//
// A message for many is encoded once in each of the two forms that agents speak, and shared.
// Sending never waits: an agent whose link takes nothing more is cut off by the link, and
// comes back. An agent that two subscriptions match gets a message once.
// All methods may be called from any goroutine.
package hub

import (
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
)

// Kinds of messages.
const (
	KindKeepalive    = "keepalive"     // from agents
	KindEvent        = "event"         // from agents
	KindCheckRequest = "check_request" // to agents
	KindEntityConfig = "entity_config" // to agents
)

// Link is what a session is connected by.
type Link interface {
	// Send sends a message without waiting. After an error the link is ending, and its owner will say Leave.
	Send(ws.Message) error
}

// Message is what is to be sent, encoded when the first agent of each form gets it.
type Message struct {
	kind   string
	object any
	once   [2]sync.Once
	forms  [2]ws.Message
	err    error
	other  *Message // for certified sessions; nil is the same
	held   bool     // certified sessions get nothing
}

// NewMessage makes a message of a kind; object is a pointer to one of package monitor's types, and must not change
// any more.
func NewMessage(kind string, object any) *Message { return &Message{kind: kind, object: object} }

// ForCertified gives the message another form for agents that are known by a certificate. nil is none: they get
// nothing, and Send says so.
func (m *Message) ForCertified(object any) {
	if m.held = object == nil; !m.held {
		m.other = NewMessage(m.kind, object)
	}
}

// errHeld is why a certified session does not get a message.
var errHeld = errors.New("what certified agents are to get is not known")

func (m *Message) form(asJSON bool) (ws.Message, error) {
	if asJSON {
		m.once[1].Do(func() {
			body, err := json.Marshal(m.object)
			if err != nil {
				m.err = err
				return
			}
			m.forms[1] = ws.NewMessage([]byte(m.kind), []byte{'\n'}, body)
		})
		return m.forms[1], m.err
	}
	m.once[0].Do(func() { m.forms[0] = ws.NewMessage([]byte(m.kind), []byte{'\n'}, tagproto.Append(nil, m.object)) })
	return m.forms[0], nil
}

// Session is an agent that is connected.
type Session struct {
	Namespace string
	Agent     string
	JSON      bool // the agent speaks JSON, not protobuf
	Certified bool // a certificate says who the agent is
	Link      Link

	topics []*topic // but the agent's own, which is in no list
	turn   uint64   // of the newest message to many that it got
}

// Send sends one message to the agent.
func (s *Session) Send(m *Message) error {
	if s.Certified {
		if m.held {
			return errHeld
		}
		if m.other != nil {
			m = m.other
		}
	}
	form, err := m.form(s.JSON)
	if err != nil {
		return err
	}
	return s.Link.Send(form)
}

// topic is a subscription that agents have. Its text is kept once, not with each of them.
type topic struct {
	topicKey
	members map[*Session]struct{}
}

type topicKey struct{ namespace, subscription string }

type agent struct{ namespace, name string }

// Hub is all sessions of a server.
type Hub struct {
	mu     sync.Mutex
	topics map[topicKey]*topic
	agents map[agent]*Session
	turn   uint64
	watch  func(namespace, subscription, agent string, joined bool)
}

// NewHub returns a hub without sessions.
func NewHub() *Hub {
	return &Hub{topics: map[topicKey]*topic{}, agents: map[agent]*Session{}}
}

// Watch sets who is told which agent has a subscription, and which has not any more; before the first Join.
// f is called under the hub's lock, in order: it must not block, and must not call the hub.
func (h *Hub) Watch(f func(namespace, subscription, agent string, joined bool)) { h.watch = f }

// Visit calls f with the agents that have a subscription now, in no order; what Watch tells follows on it. f is
// called as Watch's is.
func (h *Hub) Visit(namespace, subscription string, f func(agents []string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h.members(namespace, subscription))
}

// Join adds a session with its subscriptions, beside the one that is the agent's own. It returns
// the session that the agent had before, which is no member any more; its owner is to close its link.
func (h *Hub) Join(s *Session, subscriptions []string) (former *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := agent{s.Namespace, s.Agent}
	if former = h.agents[key]; former != nil {
		h.leave(former)
	}
	h.agents[key] = s
	h.subscribe(s, subscriptions)
	return former
}

// Subscribe replaces a session's subscriptions. A session that left stays so.
func (h *Hub) Subscribe(s *Session, subscriptions []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.agents[agent{s.Namespace, s.Agent}] != s {
		return
	}
	h.unsubscribe(s)
	h.subscribe(s, subscriptions)
}

func (h *Hub) subscribe(s *Session, subscriptions []string) {
	own := monitor.EntitySubscription(s.Agent)
	for _, sub := range subscriptions {
		t := h.topics[topicKey{s.Namespace, sub}]
		if t == nil {
			t = &topic{topicKey{s.Namespace, strings.Clone(sub)}, map[*Session]struct{}{}}
		}
		if _, has := t.members[s]; has || sub == own {
			continue
		}
		h.topics[t.topicKey] = t
		t.members[s] = struct{}{}
		s.topics = append(s.topics, t)
	}
	s.topics = slices.Clip(s.topics)
	h.tell(s, own, true)
}

func (h *Hub) unsubscribe(s *Session) {
	for _, t := range s.topics {
		delete(t.members, s)
		if len(t.members) == 0 {
			delete(h.topics, t.topicKey)
		}
	}
	h.tell(s, monitor.EntitySubscription(s.Agent), false)
	s.topics = nil
}

// tell says who has which subscriptions, or has not any more.
func (h *Hub) tell(s *Session, own string, joined bool) {
	if h.watch == nil {
		return
	}
	h.watch(s.Namespace, own, s.Agent, joined)
	for _, t := range s.topics {
		h.watch(s.Namespace, t.subscription, s.Agent, joined)
	}
}

// Leave removes a session; one that was replaced changes nothing.
func (h *Hub) Leave(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leave(s)
}

func (h *Hub) leave(s *Session) {
	if key := (agent{s.Namespace, s.Agent}); h.agents[key] == s {
		h.unsubscribe(s)
		delete(h.agents, key)
	}
}

// Get returns an agent's session; nil when it is not connected here.
func (h *Hub) Get(namespace, name string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agents[agent{namespace, name}]
}

// Send sends a message to all agents of a namespace that have one of the subscriptions, to each once,
// and returns how many links took it.
func (h *Hub) Send(namespace string, subscriptions []string, m *Message) (sent int) {
	for _, s := range h.Subscribers(namespace, subscriptions) {
		if s.Send(m) == nil {
			sent++
		}
	}
	return sent
}

// Subscribers returns the sessions of agents that have one of the subscriptions, each once, in no order.
func (h *Hub) Subscribers(namespace string, subscriptions []string) (out []*Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn++
	for _, sub := range subscriptions {
		for s := range h.having(namespace, sub) {
			if s.turn != h.turn {
				s.turn = h.turn
				out = append(out, s)
			}
		}
	}
	return out
}

// having yields the sessions with a subscription: those that asked for it, and the agent whose own it is. The lock is
// held.
func (h *Hub) having(namespace, subscription string) iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		if name, is := strings.CutPrefix(subscription, monitor.EntitySubscription("")); is {
			if s := h.agents[agent{namespace, name}]; s != nil && !yield(s) {
				return
			}
		}
		t := h.topics[topicKey{namespace, subscription}]
		if t == nil {
			return
		}
		for s := range t.members {
			if !yield(s) {
				return
			}
		}
	}
}

// Members returns the names of the agents that have a subscription, sorted: this server's part of a ring for round
// robin.
func (h *Hub) Members(namespace, subscription string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.members(namespace, subscription)
	slices.Sort(out)
	return out
}

func (h *Hub) members(namespace, subscription string) []string {
	out := []string{}
	if t := h.topics[topicKey{namespace, subscription}]; t != nil {
		out = make([]string, 0, len(t.members)+1)
	}
	for s := range h.having(namespace, subscription) {
		out = append(out, s.Agent)
	}
	return out
}

// Counts returns the number of sessions in each namespace.
func (h *Hub) Counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]int{}
	for a := range h.agents {
		out[a.namespace]++
	}
	return out
}
