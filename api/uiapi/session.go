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
	// keepEvery is how exactly a record knows when a session was used last.
	keepEvery = 10 * time.Minute
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
	kept       time.Time     // was, as the record has it; zero without one
	record     []byte        // what holds the person until the browser comes; nil once it was opened
}

// Keeping holds records of sessions over a restart of the server. A record opens with the browser's cookie alone: see
// seal. Its methods are called one at a time.
type Keeping interface {
	// Load gives the records that are there, by key.
	Load() map[string][]byte
	// Put keeps a record, in place of one with its key. Where that fails, the session ends with the server.
	Put(key string, record []byte)
	// Drop removes one; it may not be there.
	Drop(key string)
}

// Sessions are those of one server. It is safe for concurrent use.
type Sessions struct {
	clock clock.Clock
	keep  Keeping // nil: they end with the server

	// writing is held while a record is written or removed, so that none comes after its session's end.
	writing sync.Mutex

	mu   sync.Mutex
	live map[[sha256.Size]byte]*session
	gone [][sha256.Size]byte // whose records are to be removed
}

// NewSessions makes a list of the sessions that were kept; of none where keep is nil.
func NewSessions(c clock.Clock, keep Keeping) *Sessions {
	s := &Sessions{clock: c, keep: keep, live: map[[sha256.Size]byte]*session{}}
	if keep == nil {
		return s
	}
	now := c.Now()
	for name, record := range keep.Load() {
		key, began, was, ok := readRecord(name, record)
		v := &session{began: began, was: was, kept: was, record: record, end: make(chan struct{})}
		if !ok || v.over(now) || began.After(now) || len(s.live) >= maxSessions {
			keep.Drop(name)
			continue
		}
		s.live[key] = v
	}
	return s
}

// Begin logs a person in and returns the cookie, always with a new id: one that the browser brought is ended, so that
// nobody can be made to use a session that somebody else knows.
func (s *Sessions) Begin(r *http.Request, p Person) *http.Cookie {
	s.End(r)
	id := rand.Text()
	now := s.clock.Now()
	s.mu.Lock()
	s.makeRoomLocked(now, p.Name)
	s.live[hash(id)] = &session{person: p, began: now, was: now, end: make(chan struct{})}
	s.mu.Unlock()
	s.write(id)
	return cookie(r, id, int(wholeTime/time.Second))
}

// write brings the records up to what there is: those of sessions that ended go, that of an id is made anew.
func (s *Sessions) write(id string) {
	if s.keep == nil {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	gone := s.gone
	s.gone = nil
	var record []byte
	key := hash(id)
	if v := s.live[key]; v != nil && v.record == nil {
		record = seal(id, &v.person, v.began, v.was)
		v.kept = v.was
	}
	s.mu.Unlock()
	for _, key := range gone {
		s.keep.Drop(nameOf(key))
	}
	if record != nil {
		s.keep.Put(nameOf(key), record)
	}
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
	p, end, stale, ok := s.look(c.Value)
	if stale {
		s.write(c.Value)
	}
	return p, end, ok
}

// look finds a session; stale tells that the records are older than they may be.
func (s *Sessions) look(id string) (p Person, end <-chan struct{}, stale, ok bool) {
	now, key := s.clock.Now(), hash(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.live[key]
	if v == nil {
		return Person{}, nil, false, false
	}
	if v.record != nil && !v.over(now) {
		person, err := open(id, v.record)
		if err != nil { // it was changed on the disk
			s.endLocked(key)
			return Person{}, nil, true, false
		}
		v.person, v.record = *person, nil
	}
	if v.over(now) {
		s.endLocked(key)
		return Person{}, nil, true, false
	}
	v.was = now
	return v.person, v.end, now.Sub(v.kept) >= keepEvery, true
}

// End logs the request's session out and returns the cookie that takes it from the browser.
func (s *Sessions) End(r *http.Request) *http.Cookie {
	if c, err := r.Cookie(Cookie); err == nil {
		s.mu.Lock()
		s.endLocked(hash(c.Value))
		s.mu.Unlock()
		s.write(c.Value)
	}
	return cookie(r, "", -1)
}

func (s *Sessions) endLocked(key [sha256.Size]byte) {
	if v := s.live[key]; v != nil {
		close(v.end)
		delete(s.live, key)
		s.gone = append(s.gone, key)
	}
}

func hash(id string) [sha256.Size]byte { return sha256.Sum256([]byte(id)) }

// cookie is for the browser alone: no script reads it, no other site sends it.
func cookie(r *http.Request, id string, age int) *http.Cookie {
	return &http.Cookie{Name: Cookie, Value: id, Path: "/", MaxAge: age, HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode}
}
