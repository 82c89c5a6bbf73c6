// Package sensurest speaks the REST half of Sensu Go's contract: /auth and /api (sections 7 and 8), and what is
// beside it in Corbel alone: /api/corbel/v1. What needs no login is in package sensuapi.
//
// It decodes, authorises, asks the plane, and encodes. Everybody who may be answered is known by an access token or
// an API key; what is open to all is in one table (open). Every decision on access is made from memory. A body is
// bounded, and so is the time of a request, except where somebody follows events. Lists are written as they are
// walked: nothing is as large in memory as a list may be. Nothing is half applied: what is wrong with a body is found
// before anything is written, and a write is one command.
package sensurest

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/fates"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/mirror"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/subscribers"
	"corbel.dev/corbel/monitor/users"
)

// Events is where results are, whichever server has them: a *shardrouter.Spread, or an ingest.Local. An error of kind
// Unavailable names the server that does not answer.
type Events interface {
	// List lists events in order, page by page; an error ends it.
	List(ctx context.Context, r ingest.Range) iter.Seq2[*ingest.Published, error]
	// Events lists an entity's events by check.
	Events(ctx context.Context, namespace, entity string) ([]*ingest.Published, error)
	Get(ctx context.Context, namespace, entity, check string) (*monitor.Event, error)
	// EntityState returns what the agent of an entity, or whoever sends results for it, said of it last; nil is nothing.
	EntityState(ctx context.Context, namespace, entity string) (*monitor.EntityState, error)
	// EntityStates is EntityState of many entities, in their order.
	EntityStates(ctx context.Context, names []ingest.EntityName) ([]*monitor.EntityState, error)
	// Frame takes an event in protobuf.
	Frame(ctx context.Context, namespace string, b []byte) error
	// Delete removes the event of a check, all of an entity's without one, and reports whether there was any.
	Delete(ctx context.Context, namespace, entity, check string) (bool, error)
}

// Documents knows what objects say that are kept as they came.
type Documents interface {
	// Review says what is wrong with one (kind Invalid), and what whoever wrote it should know.
	Review(ctx context.Context, typ string, o monitor.Object) (warnings []string, err error)
	// Results names the events that one has made, as ENTITY/CHECK: who writes it needs the right to write those.
	Results(typ string, o monitor.Object) []string
	// Builtin is one that is there without having been stored; nil is none.
	Builtin(typ, name string) *monitor.Provider
}

// Config is what an API is made of. Zero limits are the contract's.
type Config struct {
	Resources *resources.Resources
	Users     *users.Users
	Logins    *logins.Logins
	Events    Events
	// Follow begins to follow what is stored, on whichever server.
	Follow func(subscribers.Filter) (*subscribers.Follower, error)
	// Execute asks agents to run a check now, whether or not it is published: those of subscriptions, or of the check's
	// own where there are none. It returns the Unix second that the requests bear.
	Execute func(ctx context.Context, namespace, check string, subscriptions []string, creator,
		reason string) (issued int64, err error)
	// History returns what is kept of a check's past beyond its event, the newest first; nil where nothing is.
	History func(ctx context.Context, k eventstore.Key, before time.Time, most int) ([]eventstore.Run, error)
	// Fates tells what became of the newest event of a check at its handlers; nil where nobody remembers.
	Fates func(ctx context.Context, k fates.Key) ([]fates.Fate, error)
	// Replicators tells what came of the copying from other clusters; nil where nothing is copied.
	Replicators func(ctx context.Context) ([]mirror.Status, error)
	// Compiles reads a program of a filter, or with body of a mutator, without running it; an error of kind Invalid says
	// what is wrong with it. nil takes any.
	Compiles func(ctx context.Context, source string, body bool) error
	// Directory knows passwords that no user here has, and by which provider; nil knows none. Errors of kind Denied are
	// wrong names and passwords; from is whose turn it is, an address.
	Directory interface {
		Login(ctx context.Context, from, name, password string) (monitor.Caller, *monitor.AuthProvider, error)
	}
	// Documents knows objects that are kept as they came; nil takes any.
	Documents Documents
	// Cluster describes the servers.
	Cluster func() sensuapi.Cluster
	Now     func() time.Time
	Log     *slog.Logger

	MaxBodyBytes   int64         // 512,000
	MaxRequestTime time.Duration // 15 s

	// SilenceTime is how long a new silence holds that names no end, SilenceMost the longest that one may be asked for;
	// 0 is for ever.
	SilenceTime, SilenceMost time.Duration
}

// API is the handler.
type API struct{ cfg Config }

// New makes the handler.
func New(cfg Config) *API {
	if cfg.MaxBodyBytes == 0 {
		cfg.MaxBodyBytes = 512_000
	}
	if cfg.MaxRequestTime == 0 {
		cfg.MaxRequestTime = 15 * time.Second
	}
	return &API{cfg}
}

// open are the paths that anybody may ask for.
var open = map[string]func(*API, http.ResponseWriter, *http.Request){
	"/":            (*API).root,
	"/auth":        (*API).login,
	"/auth/test":   (*API).testLogin,
	"/auth/token":  (*API).refresh,
	"/auth/logout": (*API).logout,
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{API: a, w: w, r: r, lasting: r.Context()}
	path := r.URL.EscapedPath()
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	// these last as long as their reader
	if !strings.HasSuffix(path, "/events/watch") && !strings.HasSuffix(path, "/events/export") {
		ctx, cancel := context.WithTimeout(r.Context(), a.cfg.MaxRequestTime)
		defer cancel()
		q.r = r.WithContext(ctx)
	}
	if f := open[path]; f != nil {
		f(a, w, q.r)
		return
	}
	words, err := split(path)
	if err != nil {
		q.fail(err)
		return
	}
	serve := q.route(words)
	if serve == nil {
		q.fail(errNotFound)
		return
	}
	if q.who, err = a.authenticate(r); err != nil {
		q.unauthenticated(err)
		return
	}
	if err := serve(); err != nil {
		q.fail(err)
	}
}

// split takes a path apart; each element is unescaped by itself, so a name may hold what would part it.
func split(path string) ([]string, error) {
	words := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, word := range words {
		plain, err := url.PathUnescape(word)
		if err != nil || plain == "" || plain == "." || plain == ".." ||
			strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
			return nil, errNotFound
		}
		words[i] = plain
	}
	return words, nil
}

// request is one request on its way.
type request struct {
	*API
	w       http.ResponseWriter
	r       *http.Request
	lasting context.Context // of the request, without the time that a short answer has
	who     monitor.Caller

	kind      *kind
	namespace string // "" is none, or all of them
	name      string // "" is none in particular
	rest      []string
}

// by is what serves a request from one side of it: of events, of users and so on.
func by[N interface{ ~struct{ *request } }](serve func(N) error) func(*request) error {
	return func(q *request) error { return serve(N{q}) }
}

// route finds who answers a path; nil is nobody. It sets what the path names.
func (q *request) route(words []string) func() error {
	if len(words) < 4 || words[0] != "api" {
		return nil
	}
	group, version := words[1], words[2]
	words = words[3:]
	if group == "corbel" && version == "v1" {
		return q.routeOwn(words)
	}
	if group == "enterprise" {
		if len(words) < 2 {
			return nil
		}
		group, version, words = version, words[0], words[1:]
	}
	api := group + "/" + version
	if words[0] == "namespaces" && len(words) >= 3 {
		q.namespace, words = words[1], words[2:]
	}
	if len(words) > 1 {
		q.name, q.rest = words[1], words[2:]
	}
	if api == "core/v2" && q.namespace == "" {
		switch words[0] {
		case "cluster":
			return cluster{q}.members
		case "tessen":
			return cluster{q}.tessen
		}
	}
	if api == "core/v2" && words[0] == "events" {
		q.kind = eventKind
		return events{q}.serve
	}
	for _, k := range kinds {
		if k.APIVersion != api || k.path != words[0] {
			continue
		}
		if k.Scoped != (q.namespace != "") && (!k.Scoped || q.name != "") {
			return nil
		}
		q.kind = k
		return q.object
	}
	return nil
}

// may refuses what the caller is not allowed to do; name is that of one object, "" for none in particular.
func (q *request) may(verb, resource, namespace, name string) error {
	if !q.cfg.Resources.View().Access().Allows(q.who, verb, resource, namespace, name) {
		return errDenied
	}
	return nil
}

// verb is what the request's method does to objects, in the words of roles.
func (q *request) verb() string {
	switch q.r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut, http.MethodPatch:
		return "update"
	case http.MethodDelete:
		return "delete"
	}
	if q.name == "" {
		return "list"
	}
	return "get"
}

// body reads the request's body. Who asks is known by then.
func (q *request) body() ([]byte, error) { return httpx.ReadBody(q.r, nil, q.cfg.MaxBodyBytes) }
