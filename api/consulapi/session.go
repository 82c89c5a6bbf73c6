package consulapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

const (
	sessionTTLMax       = 24 * time.Hour
	lockDelayMax        = 60 * time.Second
	lockDelayDefault    = 15 * time.Second
	lockDelaySecondsTop = 1000 // smaller numbers are seconds, larger ones nanoseconds
)

// lockDelay is a duration whose small numbers mean seconds.
type lockDelay time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (l *lockDelay) UnmarshalJSON(b []byte) error {
	var s span
	if err := s.UnmarshalJSON(b); err != nil {
		return err
	}
	if len(b) > 0 && b[0] != '"' && s > -lockDelaySecondsTop && s < lockDelaySecondsTop {
		s *= span(time.Second)
	}
	*l = lockDelay(s)
	return nil
}

// sessionTTL is a TTL that is kept as the client wrote it.
type sessionTTL string

// UnmarshalJSON implements json.Unmarshaler.
func (t *sessionTTL) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(t))
	}
	var s span
	if err := s.UnmarshalJSON(b); err != nil {
		return err
	}
	if s != 0 {
		*t = sessionTTL(time.Duration(s).String())
	}
	return nil
}

type wireSession struct {
	Datacenter    string
	Name          string
	Node          string
	LockDelay     *lockDelay
	Behavior      string
	TTL           sessionTTL
	NodeChecks    []string
	ServiceChecks []catalog.ServiceCheckRef
	Checks        []string
}

func (w *wireSession) session(node string) catalog.Session {
	s := catalog.Session{Name: w.Name, Node: w.Node, Behavior: w.Behavior, TTL: string(w.TTL),
		LockDelay: lockDelayDefault, ServiceChecks: w.ServiceChecks}
	if s.Node == "" {
		s.Node = node
	}
	if s.Behavior == "" {
		s.Behavior = catalog.BehaviorRelease
	}
	if w.LockDelay != nil {
		s.LockDelay = min(max(time.Duration(*w.LockDelay), 0), lockDelayMax)
	}
	switch {
	case w.NodeChecks != nil:
		s.NodeChecks = w.NodeChecks
	case w.Checks != nil:
		s.NodeChecks = w.Checks
	default:
		s.NodeChecks = []string{catalog.SerfHealthID}
	}
	return s
}

func sessionCreate(q *request) error {
	var in wireSession
	if q.r.ContentLength != 0 {
		b, err := q.body(q.api.cfg.Limits.BodyBytes)
		if err != nil {
			return err
		}
		if len(b) > 0 {
			if err := decodeJSON(b, &in); err != nil {
				return err
			}
		}
	}
	if err := q.bodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	s := in.session(q.api.cfg.Identity.NodeName)
	if err := q.allow(acl.Session, s.Node, acl.Write); err != nil {
		return err
	}
	if err := q.checkSession(&s); err != nil {
		return err
	}
	id, err := q.api.cfg.Registry.CreateSession(q.r.Context(), s)
	if err != nil {
		return refused(err)
	}
	b := strField(q.buffer(), `{"ID":`, id)
	return q.replyScratch(append(b, '}'))
}

func (q *request) checkSession(s *catalog.Session) error {
	if s.Behavior != catalog.BehaviorRelease && s.Behavior != catalog.BehaviorDelete {
		return failWith(http.StatusInternalServerError, fmt.Sprintf("Invalid Behavior setting '%s'", s.Behavior))
	}
	if s.TTL == "" {
		return nil
	}
	least := q.api.cfg.SessionTTLMin
	d, err := time.ParseDuration(s.TTL)
	if err == nil && d == 0 {
		s.TTL = ""
		return nil
	}
	if err != nil {
		return failWith(http.StatusInternalServerError, fmt.Sprintf("Session TTL '%s' invalid: %v", s.TTL, err))
	}
	if d < least || d > sessionTTLMax {
		return failWith(http.StatusInternalServerError,
			fmt.Sprintf("Invalid Session TTL '%d', must be between [%v=%v]", d, least, sessionTTLMax))
	}
	return nil
}

var errMissingSession = invalidf("Missing session")

func sessionDestroy(q *request) error {
	if q.rest == "" {
		return errMissingSession
	}
	if err := q.sessionRight(acl.Write); err != nil {
		return err
	}
	if err := q.api.cfg.Registry.DestroySession(q.r.Context(), q.rest); err != nil && !errkind.Is(err, errkind.NotFound) {
		return refused(err)
	}
	return q.replyBool(true)
}

// sessionRight asks for a right on the session's node; an unknown session hurts nobody.
func (q *request) sessionRight(l acl.Level) error {
	if q.api.open {
		return nil
	}
	if s := q.api.cfg.Registry.State().Session(q.rest); s != nil {
		return q.allow(acl.Session, s.Node, l)
	}
	return nil
}

func sessionRenew(q *request) error {
	if q.rest == "" {
		return errMissingSession
	}
	if err := q.sessionRight(acl.Write); err != nil {
		return err
	}
	s, err := q.api.cfg.Registry.RenewSession(q.r.Context(), q.rest)
	if errkind.Is(err, errkind.NotFound) || err == nil && s == nil {
		return failWith(http.StatusNotFound, fmt.Sprintf("Session id '%s' not found", q.rest))
	}
	if err != nil {
		return refused(err)
	}
	b := append(q.buffer(), '[')
	return q.replyScratch(append(appendSession(b, s), ']'))
}

func sessionInfo(q *request) error {
	id := q.rest
	if id == "" {
		return errMissingSession
	}
	st, err := q.read(registry.Subject{Topic: registry.TopicSession, Key: id}, func(s *catalog.State) uint64 {
		if found := s.Session(id); found != nil {
			return found.ModifyIndex
		}
		return s.SessionsIndex()
	})
	if err != nil {
		return err
	}
	b := append(q.buffer(), '[')
	if s := st.Session(id); s != nil && q.sees(acl.Session, s.Node) {
		b = appendSession(b, s)
	}
	return q.replyScratch(append(b, ']'))
}

func sessionList(q *request) error {
	st, err := q.read(registry.Subject{Topic: registry.TopicSessions}, (*catalog.State).SessionsIndex)
	if err != nil {
		return err
	}
	list := listWriter{b: q.buffer()}
	for s := range st.Sessions() {
		if q.sees(acl.Session, s.Node) {
			list.b = appendSession(list.next(), s)
		}
	}
	return q.replyScratch(list.end())
}

func sessionNode(q *request) error {
	if q.rest == "" {
		return invalidf("Missing node name")
	}
	st, err := q.read(registry.Subject{Topic: registry.TopicSessions}, (*catalog.State).SessionsIndex)
	if err != nil {
		return err
	}
	list := listWriter{b: q.buffer()}
	for s := range st.SessionsOfNode(q.rest) {
		if q.sees(acl.Session, s.Node) {
			list.b = appendSession(list.next(), s)
		}
	}
	return q.replyScratch(list.end())
}

// listWriter builds a JSON list.
type listWriter struct {
	b     []byte
	begun bool
}

// next appends what comes before the next element.
func (l *listWriter) next() []byte {
	if l.begun {
		return append(l.b, ',')
	}
	l.begun = true
	return append(l.b, '[')
}

func (l *listWriter) end() []byte {
	if !l.begun {
		l.b = append(l.b, '[')
	}
	return append(l.b, ']')
}
