package sensuapi

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"runtime/debug"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
)

// session is one agent that is connected. It is a ws.Handler: its methods are called one at a time. There are very many
// of them, so what they have in common is not in here.
type session struct {
	hub.Session
	agents *Agents
	wanted []string // what the agent asked to subscribe to; nil once it has
	beats  beats
	user   string            // whose right it is
	cert   *x509.Certificate // nil where a password said so
	// managed is set once the agent's own configuration was taken over, if it sends one: the first keepalive's.
	managed bool
	place   limit.Place // among those of its address, until it ends
}

var errStopping = errkind.New(errkind.Unavailable, "the backend is stopping")

// Begin implements ws.Handler: the agent becomes a member, and gets its configuration.
func (s *session) Begin(link ws.Link) error {
	a := s.agents
	s.Link = link
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		_ = link.CloseWith(ws.CloseGoingAway, errStopping.Error())
		return errStopping
	}
	a.links[s] = struct{}{}
	a.mu.Unlock()
	wanted := s.wanted
	s.wanted = nil
	if stored := a.configOf(&s.Session); stored != nil {
		wanted = stored.Subscriptions
	}
	if former := a.cfg.Hub.Join(&s.Session, wanted); former != nil {
		a.end(former.Link, "the agent has connected again")
	}
	return a.configure(&s.Session)
}

// Message implements ws.Handler. One agent's message ends its own session at most, and nothing else.
func (s *session) Message(ctx context.Context, b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.agents.logOf(s).Error("a session failed", "panic", p, "stack", string(debug.Stack()))
			err = errkind.Errorf(errkind.Internal, "a session failed")
		}
	}()
	if err := s.take(ctx, b); err != nil {
		s.agents.dropped(s, err)
	}
	return nil
}

// Ended implements ws.Handler.
func (s *session) Ended(err error) {
	a := s.agents
	defer a.sessions.Done()
	a.cfg.Hub.Leave(&s.Session)
	a.mu.Lock()
	delete(a.links, s)
	a.mu.Unlock()
	s.place.Release()
	a.ended(s, err)
}

// maxKind is more than the longest type of a message has.
const maxKind = 64

func (s *session) take(ctx context.Context, b []byte) error {
	head, payload, ok := bytes.Cut(b, []byte{'\n'})
	if !ok || len(head) > maxKind {
		return errkind.Errorf(errkind.Invalid, "a message without a type")
	}
	switch string(head) {
	case hub.KindKeepalive:
		return s.keepalive(ctx, payload)
	case hub.KindEvent:
		if s.JSON {
			e := new(monitor.Event)
			if err := json.Unmarshal(payload, e); err != nil {
				return errkind.E(errkind.Invalid, hub.KindEvent, err)
			}
			payload = tagproto.Append(nil, e)
		}
		return s.agents.cfg.Events.Frame(ctx, s.Namespace, payload)
	}
	return errkind.Errorf(errkind.Invalid, "a message of type %q", head)
}
