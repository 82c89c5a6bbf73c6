package vaultapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/cluster"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/telemetry"
)

// Config is what an API is made of. Zero limits are Vault's.
type Config struct {
	Keeper      *keeper.Keeper
	Version     string // as semantic version: clients compare it
	StorageType string
	// Cluster is set where several servers share the storage.
	Cluster *cluster.Cluster
	// Doctor, where it is set, is served at sys/doctor (corbelapi.Doctor); vaultapi judges who may ask.
	Doctor http.Handler
	// Traces is where requests' spans go; nil is nowhere.
	Traces *telemetry.Traces
	// RequestLog, where it is set, is told of each request that was answered.
	RequestLog func(r *http.Request, status int, took time.Duration)
	// Bytes is the budget that requests count in which other servers hand on; nil has no end.
	Bytes *limit.Bytes
	Listener
}

// Listener is what may differ from one listener to another.
type Listener struct {
	// OpenRekey and OpenGenerateRoot let whoever has shares use sys/rekey and sys/generate-root without a token.
	OpenRekey, OpenGenerateRoot bool
	MaxBodyBytes                int64         // 32 MiB
	MaxRequestTime              time.Duration // 90 s
	// OpenMetrics, where it is set, answers sys/metrics to everybody, on standbys and while sealed too.
	OpenMetrics func(prometheus bool) (contentType string, body []byte, err error)
	// MetricsOnly answers sys/metrics and nothing else; NoMetrics everything else.
	MetricsOnly, NoMetrics bool
	// OpenProfiles, OpenInFlight and OpenDoctor answer sys/pprof, sys/in-flight-req and sys/doctor to everybody.
	OpenProfiles, OpenInFlight, OpenDoctor bool
	ForwardedFor                           ForwardedFor
}

// API is the handler.
type API struct {
	cfg     Config
	headers atomic.Pointer[ResponseHeaders] // on all answers; nil: none
}

// New makes the handler.
func New(cfg Config) *API {
	if cfg.MaxBodyBytes == 0 {
		cfg.MaxBodyBytes = 32 << 20
	}
	if cfg.MaxRequestTime == 0 {
		cfg.MaxRequestTime = 90 * time.Second
	}
	return &API{cfg: cfg}
}

// At makes the handler of another listener.
func (a *API) At(l Listener) *API {
	cfg := a.cfg
	cfg.Listener = l
	return New(cfg)
}

// SetHeaders puts other headers on all answers from now on; nil is none.
func (a *API) SetHeaders(h *ResponseHeaders) { a.headers.Store(h) }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.receive(w, r, cluster.Via{}) }

// ServeVia implements cluster.API; what a request holds counts in the budget.
func (a *API) ServeVia(w http.ResponseWriter, r *http.Request, via cluster.Via) {
	r, end := httpx.Budgeted(r, a.cfg.Bytes)
	defer end()
	a.receive(w, r, via)
}

func (a *API) receive(w http.ResponseWriter, r *http.Request, via cluster.Via) {
	if h := a.headers.Load(); h != nil {
		w = &headed{ResponseWriter: w, headers: h}
	}
	if parent := r.Header.Get("Traceparent"); parent != "" || a.cfg.Traces.On() {
		var end func(route string)
		w, r, end = httpx.Trace(a.cfg.Traces, "secrets", w, r)
		defer end(routeOf(r.URL.Path))
	}
	if a.cfg.RequestLog != nil {
		seen := &headed{ResponseWriter: w}
		defer func(begin time.Time) { a.cfg.RequestLog(r, seen.status, time.Since(begin)) }(time.Now())
		w = seen
	}
	if a.cfg.ForwardedFor.on() && !via.Handed { // another server has looked at the header
		if err := a.cfg.ForwardedFor.apply(r); err != nil {
			fail(w, err)
			return
		}
	}
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		writeError(w, http.StatusNotFound)
		return
	}
	if metrics := r.URL.Path == "/v1/sys/metrics"; a.cfg.MetricsOnly && !metrics || a.cfg.NoMetrics && metrics {
		writeError(w, http.StatusNotFound)
		return
	}
	if !a.cors(w, r) {
		return
	}
	// until the client leaves
	if r.URL.Path == "/v1/sys/monitor" || strings.HasPrefix(r.URL.Path, "/v1/sys/storage/raft/snapshot") {
		a.serve(w, r, via)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.MaxRequestTime)
	defer cancel()
	a.serve(w, r.WithContext(ctx), via)
}

// routeOf is what a span says of a path: no name of a mount, and nothing below one, since both may be secrets by
// mistake.
func routeOf(path string) string {
	for _, route := range []string{"/v1/sys/", "/v1/auth/"} {
		if strings.HasPrefix(path, route) {
			return route
		}
	}
	return "/v1/{mount}/"
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, via cluster.Via) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	space, err := namespaceOf(r)
	if own := openPaths[strings.TrimSuffix(path, "/")]; own != nil {
		if (space != "" || err != nil) && r.Method != http.MethodGet && r.Method != http.MethodHead {
			fail(w, cmp.Or(err, errRootOnly))
			return
		} // health and the like are asked by whoever has VAULT_NAMESPACE set, and tell of no namespace
		own(a, w, r)
		return
	}
	if err != nil {
		fail(w, err)
		return
	}
	if name := r.Header.Get("X-Vault-Namespace"); name != "" {
		w.Header().Set("X-Vault-Namespace", name)
	}
	if space == "" && a.ofServer(w, r, path, via) {
		return
	}
	if a.cfg.Cluster != nil && a.cfg.Keeper.Standby() && (space != "" || !neverHanded(path)) {
		if a.readHere(w, r, path, via) {
			return
		}
		if space == "" && keeper.IsLocal(path) && !via.Handed {
			a.localHere(w, r, path)
			return
		}
		a.handOn(w, r, nil, via)
		return
	}
	if space == "" && strings.HasPrefix(path, "sys/") && a.keys(w, r, path) {
		return
	}
	q, raw, err := a.decode(r, path, via)
	if err != nil {
		fail(w, err)
		return
	}
	if q.Op == secrets.Read && helps(r.URL.Query()) {
		about, err := a.cfg.Keeper.Help(r.Context(), q)
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, about)
		return
	}
	reply, err := a.cfg.Keeper.Handle(r.Context(), q)
	switch {
	case err == nil:
		if a.standbyReads() {
			w.Header().Set(indexHeader, a.told())
		}
		answer(w, r, q, reply)
	case a.cfg.Cluster != nil && errkind.Is(err, errkind.NotLeader) &&
		(space != "" || !neverHanded(path)): // nothing was done here
		a.handOn(w, r, raw, via)
	default:
		fail(w, err)
	}
}

// ofServer answers paths that are not the keeper's: of the server and its storage.
func (a *API) ofServer(w http.ResponseWriter, r *http.Request, path string, via cluster.Via) bool {
	if path == "sys/metrics" && a.cfg.OpenMetrics != nil {
		a.openMetrics(w, r)
		return true
	}
	return a.insight(w, r, path) || a.doctor(w, r, path, via) ||
		strings.HasPrefix(path, "sys/storage/raft/") && (raftAPI{a}).route(w, r, path, via)
}

var errNoActive = errkind.New(errkind.Unavailable, "local node not active but active cluster node not found")

// statusError is an error with a status that no kind has.
type statusError struct {
	status int
	texts  []string
}

// Error implements error.
func (e *statusError) Error() string { return strings.Join(e.texts, "; ") }

func withStatus(status int, texts ...string) error { return &statusError{status, texts} }

// decode makes the keeper's request of an HTTP one; raw is its body as it came.
func (a *API) decode(r *http.Request, path string, via cluster.Via) (q *secrets.Request, raw []byte, err error) {
	if err := checkPath(path); err != nil {
		return nil, nil, err
	}
	query := r.URL.Query()
	space, err := namespaceOf(r)
	if err != nil {
		return nil, nil, err
	}
	from := remote(r)
	q = &secrets.Request{ID: requestID(), Path: path,
		Caller: secrets.Caller{Token: tokenOf(r), Factors: r.Header.Values("X-Vault-MFA"),
			Basic: basicOf(r)},
		Origin: secrets.Origin{Remote: from.Addr(), RemotePort: from.Port()}}
	q.Space = space
	a.cfg.Keeper.AuditedHeaders(func(name string) {
		if values := r.Header.Values(name); len(values) > 0 {
			if q.Headers == nil {
				q.Headers = map[string][]string{}
			}
			q.Headers[name] = values
		}
	})
	q.From = via.Host
	if r.TLS != nil {
		for _, c := range r.TLS.PeerCertificates {
			q.Certificates = append(q.Certificates, c.Raw)
		}
	}
	if q.Op, err = operation(r, query); err != nil {
		return nil, nil, err
	}
	if (q.Op == secrets.List || q.Op == secrets.Scan) && !strings.HasSuffix(q.Path, "/") {
		q.Path += "/"
	}
	if q.Op.Writes() && q.Op != secrets.Delete && strings.HasSuffix(q.Path, "/") {
		return nil, nil, withStatus(http.StatusBadRequest, "cannot write to a path ending in '/'")
	}
	if text := r.Header.Get("X-Vault-Wrap-TTL"); text != "" {
		if q.Wrap, err = secrets.ParseDuration(text); err != nil || q.Wrap < 0 {
			return nil, nil, withStatus(http.StatusBadRequest,
				"X-Vault-Wrap-TTL: must be a duration that is not negative, and 1280000h at most")
		}
	}
	if len(query) > 0 {
		q.Query = secrets.FieldsOf(queryValues(query))
	}
	if q.Op == secrets.Create || q.Op == secrets.Update || q.Op == secrets.Patch {
		if raw, err = a.read(r); err == nil {
			q.Body, err = bodyOf(r, raw)
		}
	}
	return q, raw, err
}

// helps is whether a query asks what may be done at a path.
func helps(query url.Values) bool {
	on, err := strconv.ParseBool(query.Get("help"))
	return err == nil && on
}

// queryValues are a query's parameters as data: what is there several times is a list.
func queryValues(query url.Values) map[string]any {
	values := make(map[string]any, len(query))
	for name, list := range query {
		values[name] = list[0]
		if len(list) > 1 {
			values[name] = anyList(list)
		}
	}
	return values
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// checkPath refuses what is no path of records.
func checkPath(path string) error {
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
		return withStatus(http.StatusBadRequest, "path cannot contain non-printable characters")
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == ".." || segment == "." {
			return withStatus(http.StatusBadRequest, "relative path in request")
		}
	}
	return nil
}

// operation is what a method means; "list" is taken out of the query.
func operation(r *http.Request, query url.Values) (secrets.Operation, error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		list, err := wants(query, "list")
		if err != nil {
			return 0, err
		}
		scan, err := wants(query, "scan")
		switch {
		case err != nil:
			return 0, err
		case list && scan:
			return 0, withStatus(http.StatusBadRequest, "list and scan cannot be asked for at once")
		case list:
			return secrets.List, nil
		case scan:
			return secrets.Scan, nil
		}
		return secrets.Read, nil
	case http.MethodPost, http.MethodPut:
		return secrets.Update, nil
	case http.MethodDelete:
		return secrets.Delete, nil
	case "LIST":
		return secrets.List, nil
	case "SCAN":
		return secrets.Scan, nil
	case http.MethodPatch:
		if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"),
			";"); strings.TrimSpace(kind) != "application/merge-patch+json" {
			return 0, withStatus(http.StatusUnsupportedMediaType, "PATCH requires Content-Type of application/merge-patch+json")
		}
		return secrets.Patch, nil
	}
	return 0, withStatus(http.StatusMethodNotAllowed)
}

// wants takes a truth out of the query.
func wants(query url.Values, name string) (bool, error) {
	text, ok := query[name]
	query.Del(name)
	if !ok {
		return false, nil
	}
	on, err := strconv.ParseBool(text[0])
	if err != nil {
		return false, withStatus(http.StatusBadRequest)
	}
	return on, nil
}

// openBytes bounds a body that nobody's rights are asked for: a login, keys for an initialisation.
const openBytes = 1 << 20

// read reads a body within the limit; a large one of a caller who may send it.
func (a *API) read(r *http.Request) ([]byte, error) {
	most := a.cfg.MaxBodyBytes
	if r.ContentLength > most {
		return nil, errBodyTooLarge
	}
	if httpx.MayBeLarge(r) {
		var err error
		if most, err = a.mayBeLarge(r, most); err != nil {
			return nil, err
		}
	}
	return readBody(r, most)
}

// readOpen reads the body of a path that is served before anybody's rights are asked for.
func (a *API) readOpen(r *http.Request) ([]byte, error) {
	return readBody(r, min(a.cfg.MaxBodyBytes, openBytes))
}

func readBody(r *http.Request, most int64) ([]byte, error) {
	b, err := httpx.ReadBody(r, nil, most)
	var large *httpx.TooLarge
	switch {
	case errors.As(err, &large):
		return nil, errBodyTooLarge
	case errors.Is(err, limit.ErrBytes):
		return nil, err
	case err != nil:
		return nil, withStatus(http.StatusBadRequest, "failed to read the body")
	}
	return b, nil
}

var errBodyTooLarge = withStatus(http.StatusRequestEntityTooLarge, "request body too large")

// mayBeLarge judges who sends a large body before it is read, and says how large it may be.
func (a *API) mayBeLarge(r *http.Request, most int64) (_ int64, err error) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	small := min(most, openBytes)
	for _, prefix := range []string{"sys/rekey", "sys/rotate/", "sys/generate-root/", "sys/storage/raft/"} {
		if strings.HasPrefix(path, prefix) { // shares, and keys to give them out under
			return small, nil
		}
	}
	if a.cfg.Keeper.Sealed() {
		return small, nil
	}
	from := remote(r)
	q := &secrets.Request{ID: requestID(), Path: path, Caller: secrets.Caller{Token: tokenOf(r)}, Op: secrets.Update,
		Origin: secrets.Origin{Remote: from.Addr(),
			RemotePort: from.Port()}}
	if q.Space, err = namespaceOf(r); err != nil {
		return 0, err
	}
	bytes := r.ContentLength
	if bytes < 0 {
		bytes = openBytes // it is held to that below
	}
	err = a.cfg.Keeper.MayBeLarge(r.Context(), q, bytes, openBytes)
	if err == nil && q.Token == "" {
		most = small
	}
	return most, err
}

// rewound is a body to be read again.
func rewound(b []byte) io.ReadCloser {
	if b == nil {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(b))
}

// body is the body of a write at an open path.
func (a *API) body(r *http.Request) ([]byte, error) {
	b, err := a.readOpen(r)
	if err != nil {
		return nil, err
	}
	return bodyOf(r, b)
}

// bodyOf is a write's body of what was read: JSON whatever the content type says, but for forms that do not look like
// JSON.
func bodyOf(r *http.Request, b []byte) ([]byte, error) {
	trimmed := bytes.TrimSpace(b)
	if len(trimmed) == 0 || trimmed[0] == '{' || trimmed[0] == '[' {
		return b, nil
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"),
		";"); strings.TrimSpace(kind) != "application/x-www-form-urlencoded" {
		return b, nil
	}
	form, err := url.ParseQuery(string(b))
	if err != nil {
		return nil, withStatus(http.StatusBadRequest, "failed to parse the form")
	}
	out := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(form)) { // what was written once is always stored alike
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = appendJSON(append(appendJSON(out, name), ':'), strings.Join(form[name], ","))
	}
	return append(out, '}'), nil
}

// tokenOf is the caller's token: X-Vault-Token, else a bearer's.
func tokenOf(r *http.Request) string {
	if t := r.Header.Get("X-Vault-Token"); t != "" {
		return t
	}
	if scheme, t, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(t)
	}
	return ""
}

// basicOf is what a client of OAuth shows.
func basicOf(r *http.Request) string {
	if scheme, t, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Basic") {
		return strings.TrimSpace(t)
	}
	return ""
}

func remote(r *http.Request) netip.AddrPort {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr)
	return ap
}

// requestID draws a UUID. It names a request and opens nothing, so a cheap source is enough.
func requestID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], rand.Uint64())
	binary.BigEndian.PutUint64(b[8:], rand.Uint64())
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var out [36]byte
	hex.Encode(out[:8], b[:4])
	hex.Encode(out[9:13], b[4:6])
	hex.Encode(out[14:18], b[6:8])
	hex.Encode(out[19:23], b[8:10])
	hex.Encode(out[24:], b[10:])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// statusOf is the contract's status and text of an error.
func statusOf(err error) (int, []string) {
	var s *statusError
	if errors.As(err, &s) {
		return s.status, s.texts
	}
	text := errkind.Text(err)
	texts := []string{text}
	if text == "" {
		texts = nil
	}
	switch errkind.Of(err) {
	case errkind.Invalid:
		return http.StatusBadRequest, texts
	case errkind.Denied:
		if text == "permission denied" {
			texts = []string{"1 error occurred:\n\t* permission denied\n\n"}
		}
		return http.StatusForbidden, texts
	case errkind.NotFound:
		return http.StatusNotFound, texts
	case errkind.Conflict:
		return http.StatusMethodNotAllowed, texts
	case errkind.TooLarge:
		return http.StatusRequestEntityTooLarge, texts
	case errkind.Overloaded:
		return http.StatusTooManyRequests, texts
	case errkind.NotLeader, errkind.Unavailable:
		return http.StatusServiceUnavailable, texts
	}
	return http.StatusInternalServerError, []string{"internal error"}
}

func fail(w http.ResponseWriter, err error) {
	var a made
	a.failed(err)
	a.write(w)
}
