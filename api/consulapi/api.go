package consulapi

import (
	"net"
	"net/http"
	"net/url"
	gopath "path"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// API answers the contract's requests. Make it with New.
type API struct {
	cfg      Config
	table    *table
	gate     httpx.Gate
	cache    *httpx.BodyCache
	filters  filterCache
	kept     keptAnswers
	agent    *AgentCache // nil on a server
	outgoing outgoing
	watches  watchHub
	// discoveryStale is discovery_max_stale of now.
	discoveryStale atomic.Int64
	open           bool // every request has every right
	blocking       atomic.Int64
	policy         []string // value of X-Consul-Default-ACL-Policy
	started        time.Time
	queries        *telemetry.Counter
	failures       *telemetry.Counter
	requests       *telemetry.Counter
	limits         requestLimits
	// logDropped counts refusals that were not logged.
	logDropped *telemetry.Counter
	tenants    *telemetry.Tenants
	traces     *telemetry.Traces
	reads      *telemetry.Stages // of one kind; writes are accounted for where they are proposed
}

// New checks the configuration and builds the tables; it starts nothing.
func New(cfg Config) (*API, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	gate, err := httpx.NewGate(cfg.BlockEndpoints, cfg.AllowWriteFrom, cfg.ResponseHeaders)
	if err != nil {
		return nil, err
	}
	a := &API{
		cfg: cfg, gate: gate, cache: &httpx.BodyCache{MaxBytes: cfg.Limits.CacheBytes},
		policy: []string{cfg.DefaultACLPolicy}, started: cfg.Clock.Now(),
		queries:  cfg.Metrics.Counter("rpc.query"),
		requests: cfg.Metrics.Counter("rpc.request"),
		failures: cfg.Metrics.Counter("rpc.request_error"),
		limits:   requestLimits{lines: limit.NewBucket(logPerSecond, logPerSecond), started: cfg.Clock.Now()},

		logDropped: cfg.Metrics.Counter("rpc.rate_limit.log_dropped"),
	}
	a.SetRequestLimits(cfg.RequestLimits)
	a.watches = watchHub{api: a, streams: map[string]*watchStream{}, questions: map[watchKey]*watched{}}
	a.watches.meter(cfg.Metrics)
	_, a.open = cfg.Authorizer.(AllowAll)
	a.outgoing.meter(cfg.Metrics)
	a.tenants, a.reads = cfg.Metrics.Tenants("catalog"), cfg.Metrics.Stages("catalog", "read")
	a.traces = cfg.Metrics.Traces()
	a.discoveryStale.Store(int64(cfg.DiscoveryMaxStale))
	if cfg.Registry == nil {
		a.agent = newAgentCache(a)
	}
	a.table = newTable(routes(), cfg.Metrics)
	cfg.Metrics.GaugeFunc("rpc.queries_blocking", func() float64 { return float64(a.blocking.Load()) })
	return a, nil
}

// Blocking returns how many blocking queries are parked.
func (a *API) Blocking() int { return int(a.blocking.Load()) }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.gate.Pass(w, r) || !a.cleanPath(w, r) {
		return
	}
	e, rest := a.table.find(r.URL.Path)
	if e == nil {
		a.noRoute(w, r)
		return
	}
	n := methodOf(r.Method)
	if n < 0 || e.rows[n] == nil {
		w.Header()["Allow"] = e.allow
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusOK)
			return
		}
		httpx.WriteText(w, http.StatusMethodNotAllowed, "method "+r.Method+" not allowed")
		return
	}
	if a.tenants.Turn() {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		a.tenants.Add("address " + host)
	}
	if header := r.Header["Traceparent"]; !again(w) && (len(header) > 0 || a.traces.On()) {
		var end func(route string)
		w, r, end = httpx.Trace(a.traces, "catalog", w, r)
		defer end(e.pattern)
	}
	begun := a.cfg.Clock.Now()
	q := requests.Get().(*request)
	q.begin(a, w, r, e.rows[n], rest)
	err := q.serve()
	if err != nil && err != errAnswered {
		q.fail(err)
	}
	ended, committed, notify := a.cfg.Clock.Now(), q.committed, q.notify
	if q.route.class == read && !q.waits() {
		a.reads.Done(r.Context(), 0, ended.Sub(begun), &q.spent)
	}
	q.end()
	e.timings[n].Observe(ended.Sub(begun))
	if !committed.IsZero() {
		notify.told(w, committed, ended)
	}
}

// again tells whether a question is asked anew for a watch: the stream has its span, and each answer needs none.
func again(w http.ResponseWriter) bool {
	_, is := w.(*watchRecorder)
	return is
}

var requests = sync.Pool{New: func() any { return new(request) }}

func (a *API) noRoute(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		httpx.WriteText(w, http.StatusOK, "Corbel agent\n")
		return
	}
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		httpx.WriteText(w, http.StatusNotFound, "Invalid URL path: not a recognized HTTP API endpoint")
		return
	}
	httpx.WriteText(w, http.StatusNotFound, "404 page not found\n")
}

// cleanPath refuses what no path may hold and redirects dot segments. It
// reports whether the request goes on.
func (a *API) cleanPath(w http.ResponseWriter, r *http.Request) bool {
	path := r.URL.Path
	if len(path) > a.cfg.Limits.PathBytes || len(r.URL.RawQuery) > a.cfg.Limits.QueryBytes {
		httpx.WriteText(w, http.StatusRequestURITooLong, "Request URI too long")
		return false
	}
	if !a.cfg.AllowUnprintable && !printable(path) {
		httpx.WriteText(w, http.StatusBadRequest, "Bad Request")
		return false
	}
	if strings.Contains(path, "/.") && hasDotSegment(path) {
		to := url.URL{Path: cleanDots(path), RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
		return false
	}
	return true
}

func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f {
			return c >= utf8.RuneSelf && strings.IndexFunc(s, unprintable) < 0
		}
	}
	return true
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func hasDotSegment(path string) bool {
	for s := range strings.SplitSeq(path, "/") {
		if s == "." || s == ".." {
			return true
		}
	}
	return false
}

func cleanDots(path string) string {
	clean := gopath.Clean("/" + path)
	if clean != "/" && strings.HasSuffix(path, "/") {
		clean += "/"
	}
	return clean
}
