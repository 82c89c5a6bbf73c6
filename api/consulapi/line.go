package consulapi

import (
	"net"
	"net/http"
	"net/url"
	gopath "path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"corbel.dev/corbel/api/consulapi/agentcache"
	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/telemetry"
)

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.serve(w, r, nil) }

// answerSelf answers what a row or a watch of this process asks, with the same rights, limits and forwarding.
func (a *API) answerSelf(w *rows.Recorder, r *http.Request) { a.serve(w, r, w) }

func (a *API) serve(w http.ResponseWriter, r *http.Request, self *rows.Recorder) {
	if !a.gate.Pass(w, r) || !a.cleanPath(w, r) {
		return
	}
	e, rest := a.table.Find(r.URL.Path)
	if e == nil {
		a.noRoute(w, r)
		return
	}
	n := rows.MethodOf(r.Method)
	if n < 0 || e.Rows[n] == nil {
		w.Header()["Allow"] = e.Allow
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
	// A watch's stream has its span, and each answer needs none.
	if header := r.Header["Traceparent"]; self == nil && (len(header) > 0 || a.traces.On()) {
		var end func(route string)
		w, r, end = httpx.Trace(a.traces, "catalog", w, r)
		defer end(e.Pattern)
	}
	begun := a.Clock.Now()
	q := a.Begin(w, r, e, e.Rows[n], rest)
	q.Recorder = self
	err := a.run(q)
	if err != nil && err != rows.ErrAnswered {
		q.Fail(err)
	}
	ended := a.Clock.Now()
	if q.Row.Class == rows.ClassRead && !waits(q) {
		a.Reads.Done(r.Context(), 0, ended.Sub(begun), &q.Spent)
	}
	q.Told(ended)
	q.End()
	e.Timings[n].Observe(ended.Sub(begun))
}

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
	if len(path) > a.Limits.PathBytes || len(r.URL.RawQuery) > a.Limits.QueryBytes {
		httpx.WriteText(w, http.StatusRequestURITooLong, "Request URI too long")
		return false
	}
	if !a.unprintable && !printable(path) {
		httpx.WriteText(w, http.StatusBadRequest, "Bad Request")
		return false
	}
	if strings.HasPrefix(path, "/v1/") && strings.Contains(path, "//") && !strings.HasPrefix(path, rows.KVPattern) {
		to := url.URL{Path: doubled.ReplaceAllString(path, "/"), RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
		return false
	}
	if strings.Contains(path, "/.") && rows.HasDotSegment(path) {
		to := url.URL{Path: cleanDots(path), RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
		return false
	}
	return true
}

var doubled = regexp.MustCompile("/{2,}")

func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f {
			return c >= utf8.RuneSelf && strings.IndexFunc(s, unprintable) < 0
		}
	}
	return true
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func cleanDots(path string) string {
	clean := gopath.Clean("/" + path)
	if clean != "/" && strings.HasSuffix(path, "/") {
		clean += "/"
	}
	return clean
}

// crossing sends a request whose query names another datacenter there. What an agent tells
// about itself knows no datacenter.
func crossing(q *rows.Request) error {
	if q.Query == "" || strings.HasPrefix(q.Row.Pattern, "/v1/agent/") {
		return nil
	}
	return q.Cross(q.Datacenter())
}

// serve runs the checks that all rows share, then the row's handler.
func (a *API) run(q *rows.Request) error {
	q.W.Header()["X-Consul-Default-Acl-Policy"] = q.Policy
	if q.TranslateWAN {
		q.W.Header()["X-Consul-Translate-Addresses"] = rows.ValueTrue
	}
	if q.Query != "" || q.R.Header["X-Consul-Namespace"] != nil {
		if err := tenancy(q); err != nil {
			return err
		}
	}
	if q.Row.Class != rows.ClassOwn && q.Registry == nil {
		return a.answers.Answer(q, forwardToAny)
	}
	if !q.Row.Exempt() {
		if _, err := q.Admit(q.Row.Class, q.R.Method, q.Row.Pattern, q.R.RemoteAddr); err != nil {
			return err
		}
	}
	if err := crossing(q); err != nil {
		return err
	}
	if err := timedAuthenticate(q); err != nil {
		return err
	}
	return a.answers.Answer(q, q.Row.Handle)
}

// timedAuthenticate is authenticate on the account of the request.
func timedAuthenticate(q *rows.Request) error {
	if q.Open || q.Reads == nil {
		return q.Authenticate()
	}
	begun := q.Clock.Now()
	err := q.Authenticate()
	q.Spent[telemetry.StageToken] = q.Clock.Since(begun)
	return err
}

// waits reports whether the request may be held on purpose.
func waits(q *rows.Request) bool {
	return q.Block.Index > 0 || q.After != "" || q.Row.Streams || q.Query != "" && q.Query.Has("index")
}

// forwardToAny passes the request to a server, from a client agent.
func forwardToAny(q *rows.Request) error {
	if agentcache.Streams(q) {
		q.W = agentcache.Streamed{ResponseWriter: q.W}
	}
	return q.PassOn(false)
}

// tenancy refuses namespaces and partitions other than the default ones.
func tenancy(q *rows.Request) error {
	for _, p := range [...][2]string{{"ns", "Namespaces"}, {"namespace", "Namespaces"}, {"partition", "Partitions"},
		{"ap", "Partitions"}} {
		if p[0] == "ns" && q.Row.Pattern == "/v1/catalog/nodes" {
			continue // nodes have none, and stock does not look at it
		}
		if v, _ := q.Query.Get(p[0]); v != "" && v != "default" {
			return answer.Invalidf("Invalid query parameter: %q - %s are a Consul Enterprise feature", p[0], p[1])
		}
	}
	if v := q.R.Header["X-Consul-Namespace"]; len(v) > 0 && v[0] != "" && v[0] != "default" {
		return answer.Invalidf("Invalid header: %q - Namespaces are a Consul Enterprise feature", "X-Consul-Namespace")
	}
	return nil
}
