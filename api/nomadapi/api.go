// Package nomadapi speaks the Nomad HTTP API: it decodes a request, asks for the caller's rights, calls the jobs plane
// through the interfaces of nomadrows, and encodes the answer. It takes no decision on state.
//
// Invariants:
//   - The tables of the row packages say what exists; the first row that fits a path counts, and ids of jobs may hold
//     slashes, escaped or not.
//   - Each row asks for its right before it touches anything; where an id names the object, in the object's namespace.
//   - An answer that many ask for is encoded once per version of its content (httpx.BodyCache), as long as access
//     control is off: with it, what is seen differs from token to token.
//   - A blocking query answers when what it reads has a higher index, and holds no buffer meanwhile.
//
// A server that does not lead passes writes and consistent reads on (Cluster.Forward). The API starts no goroutine but
// one for an exec session, which its handler waits for. API is safe for concurrent use.
package nomadapi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi/accessrows"
	"corbel.dev/corbel/api/nomadapi/allocrows"
	"corbel.dev/corbel/api/nomadapi/clusterrows"
	"corbel.dev/corbel/api/nomadapi/evalrows"
	"corbel.dev/corbel/api/nomadapi/eventrows"
	"corbel.dev/corbel/api/nomadapi/jobrows"
	"corbel.dev/corbel/api/nomadapi/namerows"
	"corbel.dev/corbel/api/nomadapi/noderows"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/api/nomadapi/varrows"
	"corbel.dev/corbel/kit/clock"
)

// Config is what an API is made of.
type Config struct {
	nomadrows.Needs
	Log    *slog.Logger
	Clock  clock.Clock
	Limits httpx.WaitLimits // of blocking queries; zero is maxWait
	// Ending ends streams and blocking queries; nil leaves that to the server.
	Ending context.Context
	// Page answers "/" and what is below /ui/; nil redirects the first and knows none of the second.
	Page http.Handler
}

// maxWait is how long a blocking query is held at most, jitter not counted (NA-2).
const maxWait = 5 * time.Minute

// cacheBytes bounds the answers that are kept: an eighth of it must hold a list of 10,000 allocations and its
// compressed twin.
const cacheBytes = 128 << 20

// API is the handler.
type API struct {
	core  *nomadrows.Core
	match *nomadrows.Matcher
	page  http.Handler
}

// New makes the API.
func New(cfg Config) *API {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Limits.Max == 0 {
		cfg.Limits.Max = maxWait
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	return &API{
		core: &nomadrows.Core{Needs: cfg.Needs, Log: cfg.Log, Now: cfg.Clock.Now, Seed: seed, Random: rand.Reader,
			Limits: cfg.Limits, Ending: cfg.Ending, Bodies: httpx.BodyCache{MaxBytes: cacheBytes}},
		match: nomadrows.NewMatcher(Rows()),
		page:  cfg.Page,
	}
}

// Rows are all rows.
func Rows() []nomadrows.Row {
	return slices.Concat(accessrows.Rows(), jobrows.Rows(), noderows.Rows(), allocrows.Rows(), evalrows.Rows(),
		namerows.Rows(), varrows.Rows(), eventrows.Rows(), clusterrows.Rows())
}

func seed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:])
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case path == "/" && a.page == nil:
		w.Header()["Location"] = []string{"/ui/"}
		w.WriteHeader(http.StatusTemporaryRedirect)
	case a.page != nil && (path == "/" || path == "/ui" || strings.HasPrefix(path, "/ui/")):
		a.page.ServeHTTP(w, r)
	default:
		a.match.Serve(a.core, w, r)
	}
}

// Compact forgets encoded answers: for when memory is short.
func (a *API) Compact() { a.core.Bodies.Clear() }
