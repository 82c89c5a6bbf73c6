package uiapi

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// Cookie is the name of the session's cookie.
const Cookie = "corbel_session"

const (
	idleTime    = 8 * time.Hour  // that a session lives without a request
	wholeTime   = 24 * time.Hour // that it lives at most
	maxSessions = 10_000
	// maxOfOne bounds the sessions of one person, so that a cheap account pushes nobody else out.
	maxOfOne = 20
)

// Person is who has logged in. Its tokens never leave the server.
type Person struct {
	// Name is what the page shows, such as a policy's or a user's name.
	Name string
	// Catalog, Secrets and Monitor are tokens of the three planes, empty where the login gave none.
	Catalog, Secrets, Monitor string
	// Made tells that the login made the tokens of the catalog and the secrets plane: they end with the session.
	Made bool
	// Remote is the address that it logged in from.
	Remote string
}

// session is one login. Its id is known to the browser alone: the server keeps the hash.
type session struct {
	person     Person
	began, was time.Time
	end        chan struct{} // closed when it ends, for its streams
}

// Sessions are those of one server, in memory: a restart logs everybody out. It is safe for concurrent use.
type Sessions struct {
	clock clock.Clock

	mu   sync.Mutex
	live map[[sha256.Size]byte]*session
}

// NewSessions makes an empty list.
func NewSessions(c clock.Clock) *Sessions {
	return &Sessions{clock: c, live: map[[sha256.Size]byte]*session{}}
}

// Begin logs a person in and returns the cookie, always with a new id: one that the browser brought is ended, so that
// nobody can be made to use a session that somebody else knows.
func (s *Sessions) Begin(r *http.Request, p Person) *http.Cookie {
	s.End(r)
	id := rand.Text()
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoomLocked(now, p.Name)
	s.live[hash(id)] = &session{person: p, began: now, was: now, end: make(chan struct{})}
	return cookie(r, id, int(wholeTime/time.Second))
}

// makeRoomLocked ends what is over, then the oldest of the person's, then the oldest of all, until one more fits.
func (s *Sessions) makeRoomLocked(now time.Time, name string) {
	for key, v := range s.live {
		if v.over(now) {
			s.endLocked(key)
		}
	}
	s.trimLocked(maxOfOne, func(v *session) bool { return v.person.Name == name })
	s.trimLocked(maxSessions, func(*session) bool { return true })
}

func (s *Sessions) trimLocked(most int, counts func(*session) bool) {
	for {
		n := 0
		var oldest [sha256.Size]byte
		for key, v := range s.live {
			if !counts(v) {
				continue
			}
			if n == 0 || v.was.Before(s.live[oldest].was) {
				oldest = key
			}
			n++
		}
		if n < most {
			return
		}
		s.endLocked(oldest)
	}
}

func (v *session) over(now time.Time) bool {
	return now.Sub(v.was) >= idleTime || now.Sub(v.began) >= wholeTime
}

// Of returns who made the request, and what is closed when the session ends; false without a session that lives.
func (s *Sessions) Of(r *http.Request) (p Person, end <-chan struct{}, ok bool) {
	c, err := r.Cookie(Cookie)
	if err != nil {
		return Person{}, nil, false
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.live[hash(c.Value)]
	switch {
	case v == nil:
		return Person{}, nil, false
	case v.over(now):
		s.endLocked(hash(c.Value))
		return Person{}, nil, false
	}
	v.was = now
	return v.person, v.end, true
}

// End logs the request's session out and returns the cookie that takes it from the browser.
func (s *Sessions) End(r *http.Request) *http.Cookie {
	if c, err := r.Cookie(Cookie); err == nil {
		s.mu.Lock()
		s.endLocked(hash(c.Value))
		s.mu.Unlock()
	}
	return cookie(r, "", -1)
}

func (s *Sessions) endLocked(key [sha256.Size]byte) {
	if v := s.live[key]; v != nil {
		close(v.end)
		delete(s.live, key)
	}
}

func hash(id string) [sha256.Size]byte { return sha256.Sum256([]byte(id)) }

// cookie is for the browser alone: no script reads it, no other site sends it.
func cookie(r *http.Request, id string, age int) *http.Cookie {
	return &http.Cookie{Name: Cookie, Value: id, Path: "/", MaxAge: age, HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode}
}
