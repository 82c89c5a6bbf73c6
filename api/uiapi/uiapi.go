// Package uiapi is what the web UI asks: a login that serves all planes, aggregates and pages of what the planes know,
// and one stream that tells of changes. Whatever the wire contracts can do already goes through them, with the rights
// of the person: there is no second implementation of a write.
//
//	POST /ui/api/login         {"token"}, {"method", "token"} or {"user", "password"}: begins a session, whose cookie
//	                           no script can read
//	GET  /ui/api/logins        the providers (OIDC) that are offered
//	POST /ui/api/login/begin   {"method", "role", "origin"}: where the browser goes to log in at one of them
//	POST /ui/api/login/end     {"state", "code"}: what it came back with; begins a session
//	POST /ui/api/login/factor  {"handle", "codes"}: the passcodes that a login was answered to need, in the place of a
//	                           session; begins it
//	POST /ui/api/logout        ends it
//	GET  /ui/api/me            who is logged in; 401 without a session
//	GET  /ui/api/topic/NAME    a topic as it is now; the query belongs to the topic
//	POST /ui/api/stream        topics again and again as they change, one line of JSON each (Line)
//	GET  /ui/api/search?q=     places that a text leads to
//	any  /ui/api/as/PLANE/...  the plane's own API, with the person's token
//
// Requests that another site's page makes are refused. Rights are asked for anew with each answer, and of a stream at
// least every five seconds; a stream ends with its session. What a browser reads slowly is passed over in favour of the
// newest; streams, topics, sessions and logins that wait for a passcode
// are bounded in number.
package uiapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

const prefix = "/ui/api/"

const maxBody = 64 << 10

// Credentials are what a person logs in with: a token, or a user and a password. With Method, an auth method of the
// catalog, the token is the proof (a JWT) that it takes.
type Credentials struct {
	Method   string `json:"method"`
	Token    string `json:"token"`
	User     string `json:"user"`
	Password string `json:"password"`
}

// Topic is something that a page shows and that changes.
type Topic interface {
	// Wait returns what the person may see of the topic once its index differs from since, at once when since is 0. When
	// the context ends before, it returns Unchanged where it knows that since is still what there is, and else the
	// context's error. Errors of kind Denied and Invalid are told to the person.
	Wait(ctx context.Context, p Person, query url.Values, since uint64) (value any, index uint64, err error)
}

// Unchanged says that a topic is what it was, and as of when that is known.
type Unchanged struct{ At time.Time }

func (Unchanged) Error() string { return "nothing has changed" }

// Place is where a search leads.
type Place struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // what it is, in a word
	Path string `json:"path"` // below /ui
}

// Plane is an API that is reached with the person's rights.
type Plane struct {
	Handler http.Handler
	// Attach puts the person's token on a request.
	Attach func(*http.Request, *Person) error
}

// Config of an API. All but Clock, Keep, Browser, Leave and About is needed.
type Config struct {
	Clock clock.Clock // nil is the real one
	Keep  Keeping     // nil: sessions end with the server
	// Login judges credentials; an error of kind Denied says that they are wrong, a *Due that passcodes are lacking.
	Login func(*http.Request, *Credentials) (Person, error)
	// Browser logs in at providers; nil where there are none.
	Browser Browser
	// Leave gives back what a login made, when its person logs out; nil gives nothing back.
	Leave func(*http.Request, *Person)
	// Open is who asks without a session, nil where a login is needed.
	Open   func(*http.Request) *Person
	Topics map[string]Topic
	Search func(ctx context.Context, p Person, text string) ([]Place, error)
	Planes map[string]Plane
	// About is what the page is told of the server beside who is logged in.
	About func(*Person) map[string]any
}

// API serves the paths below /ui/api. It is safe for concurrent use.
type API struct {
	cfg      Config
	sessions *Sessions
	dues     dues
	mux      *http.ServeMux
	origins  *http.CrossOriginProtection
	streams  atomic.Int64
}

// New makes an API.
func New(cfg Config) *API {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	a := &API{cfg: cfg, sessions: NewSessions(cfg.Clock, cfg.Keep), mux: http.NewServeMux(),
		dues: dues{clock: cfg.Clock, list: map[[sha256.Size]byte]*waiting{}}, origins: http.NewCrossOriginProtection()}
	a.mux.HandleFunc("POST /ui/api/login", a.login)
	a.mux.HandleFunc("GET /ui/api/logins", a.methods)
	a.mux.HandleFunc("POST /ui/api/login/begin", a.begin)
	a.mux.HandleFunc("POST /ui/api/login/end", a.end)
	a.mux.HandleFunc("POST /ui/api/login/factor", a.factor)
	a.mux.HandleFunc("POST /ui/api/logout", a.logout)
	a.mux.HandleFunc("GET /ui/api/me", a.me)
	a.mux.HandleFunc("GET /ui/api/topic/{name}", a.topic)
	a.mux.HandleFunc("POST /ui/api/stream", a.stream)
	a.mux.HandleFunc("GET /ui/api/search", a.search)
	a.mux.HandleFunc("/ui/api/as/{plane}/", a.as)
	return a
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if err := a.check(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// check refuses what another site's page asks: reads too, since the answer to a person without a session may be theirs
// by the address alone.
func (a *API) check(r *http.Request) error {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return errors.New("this page belongs to another site")
	}
	// A connection that is upgraded is a write, whatever its method, and browsers send no Sec-Fetch-Site over plain HTTP.
	if from := r.Header.Get("Origin"); r.Header.Get("Upgrade") != "" {
		if u, err := url.Parse(from); err != nil || u.Host == "" || u.Host != r.Host {
			return errors.New("this page belongs to another site")
		}
	}
	return a.origins.Check(r)
}

// person is who asks; it answers 401 itself when that is nobody.
func (a *API) person(w http.ResponseWriter, r *http.Request) (p Person, end <-chan struct{}, ok bool) {
	if p, end, ok = a.sessions.Of(r); ok {
		return p, end, true
	}
	if open := a.cfg.Open(r); open != nil {
		return *open, nil, true
	}
	http.Error(w, "log in first", http.StatusUnauthorized)
	return p, nil, false
}

func (a *API) login(w http.ResponseWriter, r *http.Request) {
	var in Credentials
	if !read(w, r, &in) {
		return
	}
	p, err := a.cfg.Login(r, &in)
	a.enter(w, r, p, err)
}

func (a *API) logout(w http.ResponseWriter, r *http.Request) {
	p, _, ok := a.sessions.Of(r)
	http.SetCookie(w, a.sessions.End(r))
	if ok && a.cfg.Leave != nil {
		a.cfg.Leave(r, &p)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *API) me(w http.ResponseWriter, r *http.Request) {
	if p, _, ok := a.person(w, r); ok {
		_, _, session := a.sessions.Of(r)
		about := map[string]any{"name": p.Name, "open": !session}
		if a.cfg.About != nil {
			maps.Copy(about, a.cfg.About(&p))
		}
		answer(w, about)
	}
}

func (a *API) topic(w http.ResponseWriter, r *http.Request) {
	p, _, ok := a.person(w, r)
	if !ok {
		return
	}
	t := a.cfg.Topics[r.PathValue("name")]
	if t == nil {
		fail(w, a.unknown(r.PathValue("name")))
		return
	}
	value, index, err := t.Wait(r.Context(), p, r.URL.Query(), 0)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, Line{Topic: r.PathValue("name"), Index: index, Value: value})
}

func (a *API) unknown(name string) error {
	var names []string
	for n := range a.cfg.Topics {
		names = append(names, n)
	}
	slices.Sort(names)
	return errkind.Errorf(errkind.NotFound, "no topic %q: there are %s", name, strings.Join(names, ", "))
}

func (a *API) search(w http.ResponseWriter, r *http.Request) {
	p, _, ok := a.person(w, r)
	if !ok {
		return
	}
	places, err := a.cfg.Search(r.Context(), p, r.URL.Query().Get("q"))
	if err != nil {
		fail(w, err)
		return
	}
	if places == nil {
		places = []Place{}
	}
	answer(w, places)
}

// as hands the request to a plane's own API with the person's token; the session's cookie stays here.
func (a *API) as(w http.ResponseWriter, r *http.Request) {
	p, _, ok := a.person(w, r)
	if !ok {
		return
	}
	name := r.PathValue("plane")
	plane, ok := a.cfg.Planes[name]
	if !ok {
		http.Error(w, "no plane "+name, http.StatusNotFound)
		return
	}
	to := r.Clone(r.Context())
	at := prefix + "as/" + name
	to.URL.Path, to.URL.RawPath = strings.TrimPrefix(r.URL.Path, at), strings.TrimPrefix(r.URL.RawPath, at)
	to.RequestURI = to.URL.RequestURI()
	to.Header.Del("Cookie")
	if err := plane.Attach(to, &p); err != nil {
		fail(w, err)
		return
	}
	plane.Handler.ServeHTTP(w, to)
}

// read decodes a request's body; it answers itself when that fails.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		http.Error(w, "the request's body: "+err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the browser may be gone
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errkind.Is(err, errkind.Denied):
		status = http.StatusForbidden
	case errkind.Is(err, errkind.Invalid):
		status = http.StatusBadRequest
	case errkind.Is(err, errkind.NotFound):
		status = http.StatusNotFound
	case errkind.Is(err, errkind.Unavailable), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	}
	http.Error(w, err.Error(), status)
}
