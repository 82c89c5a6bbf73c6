package kvrows

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
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
	var s bodies.Span
	if err := s.UnmarshalJSON(b); err != nil {
		return err
	}
	if len(b) > 0 && b[0] != '"' && s > -lockDelaySecondsTop && s < lockDelaySecondsTop {
		s *= bodies.Span(time.Second)
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
	var s bodies.Span
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

func (kr *Rows) sessionCreate(q *rows.Request) error {
	var in wireSession
	if q.R.ContentLength != 0 {
		b, err := q.Body(q.Limits.BodyBytes)
		if err != nil {
			return err
		}
		if len(b) > 0 {
			if err := bodies.Decode(b, &in); err != nil {
				return err
			}
		}
	}
	if err := q.BodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	s := in.session(q.Identity.NodeName)
	if err := q.Allow(acl.Session, s.Node, acl.Write); err != nil {
		return err
	}
	if err := kr.checkSession(q, &s); err != nil {
		return err
	}
	id, err := kr.Sessions.CreateSession(q.R.Context(), s)
	if err != nil {
		return answer.Refused(err)
	}
	b := answer.StringField(q.Buffer(), `{"ID":`, id)
	return q.ReplyScratch(append(b, '}'))
}

func (kr *Rows) checkSession(q *rows.Request, s *catalog.Session) error {
	if s.Behavior != catalog.BehaviorRelease && s.Behavior != catalog.BehaviorDelete {
		return answer.Fail(http.StatusInternalServerError, fmt.Sprintf("Invalid Behavior setting '%s'", s.Behavior))
	}
	if s.TTL == "" {
		return nil
	}
	least := kr.SessionTTLMin
	d, err := time.ParseDuration(s.TTL)
	if err == nil && d == 0 {
		s.TTL = ""
		return nil
	}
	if err != nil {
		return answer.Fail(http.StatusInternalServerError, fmt.Sprintf("Session TTL '%s' invalid: %v", s.TTL, err))
	}
	if d < least || d > sessionTTLMax {
		return answer.Fail(http.StatusInternalServerError,
			fmt.Sprintf("Invalid Session TTL '%d', must be between [%v=%v]", d, least, sessionTTLMax))
	}
	return nil
}

var errMissingSession = answer.Invalidf("Missing session")

func (kr *Rows) sessionDestroy(q *rows.Request) error {
	if q.Rest == "" {
		return errMissingSession
	}
	if err := sessionRight(q, acl.Write); err != nil {
		return err
	}
	if err := kr.Sessions.DestroySession(q.R.Context(), q.Rest); err != nil && !errkind.Is(err, errkind.NotFound) {
		return answer.Refused(err)
	}
	return q.ReplyBool(true)
}

// sessionRight asks for a right on the session's node; an unknown session hurts nobody.
func sessionRight(q *rows.Request, l acl.Level) error {
	if q.Open {
		return nil
	}
	if s := q.Registry.State().Session(q.Rest); s != nil {
		return q.Allow(acl.Session, s.Node, l)
	}
	return nil
}

func (kr *Rows) sessionRenew(q *rows.Request) error {
	if q.Rest == "" {
		return errMissingSession
	}
	if err := sessionRight(q, acl.Write); err != nil {
		return err
	}
	s, err := kr.Sessions.RenewSession(q.R.Context(), q.Rest)
	if errkind.Is(err, errkind.NotFound) || err == nil && s == nil {
		return answer.Fail(http.StatusNotFound, fmt.Sprintf("Session id '%s' not found", q.Rest))
	}
	if err != nil {
		return answer.Refused(err)
	}
	b := append(q.Buffer(), '[')
	return q.ReplyScratch(append(answer.AppendSession(b, s), ']'))
}

func sessionInfo(q *rows.Request) error {
	id := q.Rest
	if id == "" {
		return errMissingSession
	}
	st, err := q.Read(registry.Subject{Topic: registry.TopicSession, Key: id}, func(s *statestore.State) uint64 {
		if found := s.Session(id); found != nil {
			return found.ModifyIndex
		}
		return s.SessionsIndex()
	})
	if err != nil {
		return err
	}
	b := append(q.Buffer(), '[')
	if s := st.Session(id); s != nil && q.Sees(acl.Session, s.Node) {
		b = answer.AppendSession(b, s)
	}
	return q.ReplyScratch(append(b, ']'))
}

func sessionList(q *rows.Request) error {
	st, err := q.Read(registry.Subject{Topic: registry.TopicSessions}, (*statestore.State).SessionsIndex)
	if err != nil {
		return err
	}
	list := answer.List{Bytes: q.Buffer()}
	for s := range st.Sessions() {
		if q.Sees(acl.Session, s.Node) {
			list.Bytes = answer.AppendSession(list.Next(), s)
		}
	}
	return q.ReplyScratch(list.End())
}

func sessionNode(q *rows.Request) error {
	if q.Rest == "" {
		return answer.Invalidf("Missing node name")
	}
	st, err := q.Read(registry.Subject{Topic: registry.TopicSessions}, (*statestore.State).SessionsIndex)
	if err != nil {
		return err
	}
	list := answer.List{Bytes: q.Buffer()}
	for s := range st.SessionsOfNode(q.Rest) {
		if q.Sees(acl.Session, s.Node) {
			list.Bytes = answer.AppendSession(list.Next(), s)
		}
	}
	return q.ReplyScratch(list.End())
}
