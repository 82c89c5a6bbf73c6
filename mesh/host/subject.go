package host

import (
	"slices"

	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
	"corbel.dev/corbel/mesh/leaf"
	"corbel.dev/corbel/mesh/proxy"
)

// subjectKey is a subject as it is followed. Certificates go by the service beside
// the text that they have for every proxy.
type subjectKey struct{ text, service, token string }

// subject is followed once for all its members. Guarded by Host.mu.
type subject struct {
	key     subjectKey
	kind    mesh.SubjectKind // 0 for a certificate
	members []*member
	value   any // as proxy.Change has it
	known   bool
	err     error  // why there is none
	stop    func() // nil until the Follower has returned
	dead    bool   // nobody needs it: what still comes is not looked at
}

// keyLocked is what a member follows under the text.
func (m *member) subjectKey(text string) subjectKey {
	k := subjectKey{text: text, token: m.key.token}
	k.service = proxy.LeafService(text, m.proxy.Registration().Service())
	return k
}

// joinLocked makes the member one of the subject's.
func (h *Host) joinLocked(m *member, text string, w *work) *subject {
	k := m.subjectKey(text)
	s := h.subjects[k]
	if s == nil {
		s = &subject{key: k}
		if k.service == "" {
			parsed, err := mesh.ParseSubject(text)
			s.kind, s.err, s.known = parsed.Kind, err, err != nil // one that cannot be is known to hold nothing
		}
		h.subjects[k] = s
		if s.err == nil {
			w.follow = append(w.follow, s)
		}
	}
	if !slices.Contains(s.members, m) {
		s.members, m.subjects = append(s.members, m), append(m.subjects, s)
	}
	return s
}

// leaveLocked takes the member out; the last one ends the subject.
func (h *Host) leaveLocked(m *member, text string, w *work) {
	k := m.subjectKey(text)
	s := h.subjects[k]
	if s == nil {
		return
	}
	s.members = slices.DeleteFunc(s.members, func(o *member) bool { return o == m })
	m.subjects = slices.DeleteFunc(m.subjects, func(o *subject) bool { return o == s })
	if len(s.members) > 0 {
		return
	}
	s.dead = true
	delete(h.subjects, k)
	if s.stop != nil {
		h.stopLocked(s.key, s.stop, w)
		s.stop = nil
	}
}

// stopLocked has the stop called. That of a certificate waits for the call that is under way, which may be the
// caller's own: Run does it.
func (h *Host) stopLocked(k subjectKey, stop func(), w *work) {
	if k.service != "" {
		h.later = append(h.later, stop)
		return
	}
	w.stops = append(w.stops, stop)
}

// stopLater stops what could not be stopped at once.
func (h *Host) stopLater() {
	h.mu.Lock()
	list := h.later
	h.later = nil
	h.mu.Unlock()
	for _, stop := range list {
		stop()
	}
}

// refusedLocked ends a member that cannot become ready, since what it needs for itself was refused.
func (h *Host) refusedLocked(m *member, s *subject, w *work) bool {
	if s.err == nil || m.sets.Load() != nil {
		return false
	}
	switch {
	case s.kind == mesh.SubjectService, s.kind == mesh.SubjectRules && s.key.text == m.proxy.RulesSubject(),
		s.key.text == proxy.LeafSubject:
	default:
		return false
	}
	m.failed = s.err
	h.endLocked(m, w)
	return true
}

// follow begins to follow; values may come before it returns.
func (h *Host) follow(s *subject) {
	h.mu.Lock()
	dead := s.dead
	h.mu.Unlock()
	if dead {
		return
	}
	failed := func(err error) { h.failed(s, err) }
	var stop func()
	if s.key.service != "" {
		stop = h.cfg.Leaves.FollowSubject(leaf.Service(s.key.service), s.key.token, func(l leaf.Leaf) { h.setLeaf(s, l) },
			failed)
	} else {
		stop = h.cfg.Follower.Follow(s.key.text, s.key.token, func(v feed.Value) { h.set(s, v) }, failed)
	}
	var w work
	h.mu.Lock()
	if s.dead {
		h.stopLocked(s.key, stop, &w)
	} else {
		s.stop = stop
	}
	h.mu.Unlock()
	h.do(&w)
}

// set takes a new value: it is decoded once, and given to all members before any stream is woken.
func (h *Host) set(s *subject, v feed.Value) {
	value, err := decode(s.kind, v)
	h.meters.value(v.At, h.cfg.Clock.Now())
	if err != nil { // of a server that is newer or older: what is known goes on to hold
		h.meters.undecodable.Add(1)
		h.cfg.Logger.Error("a value from the servers cannot be read", "subject", s.key.text, "err", err)
		return
	}
	h.give(s, value, nil)
}

func (h *Host) setLeaf(s *subject, l leaf.Leaf) {
	r, err := envoy.Certificate(proxy.LeafSecret(s.key.text), l.CertPEM, l.PrivateKeyPEM)
	if err != nil {
		h.cfg.Logger.Error("cannot hand a leaf certificate to proxies", "service", s.key.service, "err", err)
		return
	}
	h.give(s, r, nil)
}

// failed is told why a subject has no value. A proxy that lives on keeps its own settings and certificate;
// upstreams that it may not read are taken from it.
func (h *Host) failed(s *subject, err error) {
	h.cfg.Logger.Warn("cannot follow a subject of the mesh", "subject", s.key.text, "service", s.key.service, "err", err)
	h.give(s, nil, err)
}

func (h *Host) give(s *subject, value any, err error) {
	var w work
	h.mu.Lock()
	if s.dead {
		h.mu.Unlock()
		return
	}
	s.value, s.known, s.err = value, true, err
	if errkind.Is(err, errkind.Denied) {
		h.suspectLocked(s.key.token)
	}
	change := proxy.Change{Subject: s.key.text, Value: value, Gone: value == nil && err == nil}
	w.wakes = make([]wake, 0, len(s.members))
	for _, m := range slices.Clone(s.members) {
		if !h.refusedLocked(m, s, &w) {
			h.deltaLocked(m, m.proxy.Step(change), &w)
		}
	}
	h.mu.Unlock()
	h.do(&w)
}

// decode reads a value as the proxies take it, nil is none.
func decode(kind mesh.SubjectKind, v feed.Value) (any, error) {
	if v.Body == nil {
		return nil, nil
	}
	switch kind {
	case mesh.SubjectEndpoints:
		return mesh.ReadResource(v.Body, v.At)
	case mesh.SubjectService:
		return mesh.ReadService(v.Body)
	case mesh.SubjectRules:
		return mesh.ReadRules(v.Body, v.At)
	case mesh.SubjectUpstream:
		return mesh.ReadUpstream(v.Body)
	case mesh.SubjectRoots:
		return mesh.ReadRoots(v.Body)
	case mesh.SubjectVirtual:
		return mesh.ReadVirtual(v.Body)
	case mesh.SubjectInstances:
		return mesh.ReadInstances(v.Body)
	case mesh.SubjectPassages:
		return mesh.ReadPassages(v.Body)
	}
	return nil, errkind.Errorf(errkind.Invalid, "subject kind %d", kind)
}
