package consulapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
	limits "corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// errAnswered ends a handler whose answer has been written (by a forward or a stream).
var errAnswered = errors.New("answered")

// request is one request on its way through a handler. It is pooled: a handler
// keeps no reference to it.
type request struct {
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	q      httpx.Query
	rest   string // the path after the route's pattern
	route  *route
	grant  *acl.Grant
	rights []right // what the handler asked for so far
	hidden bool    // something was left out of the answer for want of rights
	mode   registry.Mode
	block  httpx.Blocking
	after  string  // the index of a read of changes, "" for any other
	buf    *[]byte // scratch for the body read or the answer, from httpx's pool
	bound  time.Duration
	// committed is when the change was committed that woke this blocking query; zero without one.
	committed time.Time
	notify    *notifyTimings // of the endpoint that was woken
	gen       uint64         // the registry's generation, read before the State that read returned
	bare      bool           // the body has been read into buf
	spent     telemetry.Spent
	// cached is cacheMiss or cacheHit on a server when the client asked for the cache.
	cached int
}

func (q *request) begin(a *API, w http.ResponseWriter, r *http.Request, row *route, rest string) {
	*q = request{api: a, w: w, r: r, q: httpx.Query(r.URL.RawQuery), rest: rest, route: row, grant: acl.Unlimited, rights: q.rights[:0], bound: -1}
}

func (q *request) end() {
	q.releaseBuffer()
	clear(q.rights)
	*q = request{rights: q.rights[:0]}
	requests.Put(q)
}

// buffer returns the request's empty scratch buffer.
func (q *request) buffer() []byte {
	if q.buf == nil {
		q.buf = httpx.GetBuffer()
	}
	return (*q.buf)[:0]
}

func (q *request) releaseBuffer() {
	if q.buf != nil {
		httpx.PutBuffer(q.buf)
		q.buf = nil
	}
}

// serve runs the checks that all rows share, then the row's handler.
func (q *request) serve() error {
	q.w.Header()["X-Consul-Default-Acl-Policy"] = q.api.policy
	if q.api.cfg.TranslateWAN {
		q.w.Header()["X-Consul-Translate-Addresses"] = valueTrue
	}
	if q.q != "" || q.r.Header["X-Consul-Namespace"] != nil {
		if err := q.tenancy(); err != nil {
			return err
		}
	}
	if q.route.class != own && q.api.cfg.Registry == nil {
		return q.answer((*request).forwardToAny)
	}
	if !q.route.exempt() {
		if _, err := q.api.admit(q.route.class, q.op, q.r.RemoteAddr); err != nil {
			return err
		}
	}
	if err := q.crossing(); err != nil {
		return err
	}
	if err := q.timedAuthenticate(); err != nil {
		return err
	}
	return q.answer(q.route.handle)
}

// timedAuthenticate is authenticate on the account of the request.
func (q *request) timedAuthenticate() error {
	if q.api.open || q.api.reads == nil {
		return q.authenticate()
	}
	begun := q.api.cfg.Clock.Now()
	err := q.authenticate()
	q.spent[telemetry.StageToken] = q.api.cfg.Clock.Since(begun)
	return err
}

// waits reports whether the request may be held on purpose.
func (q *request) waits() bool {
	return q.block.Index > 0 || q.after != "" || q.route.streams() || q.q != "" && q.q.Has("index")
}

// answer answers by handle, or from the cache where the client allows that.
func (q *request) answer(handle func(*request) error) error {
	kind, control, err := q.cacheKind()
	switch {
	case err != nil:
		return err
	case kind == uncached:
		return handle(q)
	case q.api.cfg.Registry == nil: // a server judges the questions, and this agent who may have the kept answers
		if err := q.authenticate(); err != nil {
			return err
		}
	}
	return q.answerCached(kind, control, handle)
}

// forwardToAny passes the request to a server, from a client agent.
func (q *request) forwardToAny() error {
	if q.streams() {
		q.w = streamed{q.w}
	}
	return q.forward(false)
}

// op names the request in metrics and logs.
func (q *request) op() string { return q.r.Method + " " + q.route.pattern }

// tenancy refuses namespaces and partitions other than the default ones.
func (q *request) tenancy() error {
	for _, p := range [...][2]string{{"ns", "Namespaces"}, {"namespace", "Namespaces"}, {"partition", "Partitions"}, {"ap", "Partitions"}} {
		if v, _ := q.q.Get(p[0]); v != "" && v != "default" {
			return answer.Invalidf("Invalid query parameter: %q - %s are a Consul Enterprise feature", p[0], p[1])
		}
	}
	if v := q.r.Header["X-Consul-Namespace"]; len(v) > 0 && v[0] != "" && v[0] != "default" {
		return answer.Invalidf("Invalid header: %q - Namespaces are a Consul Enterprise feature", "X-Consul-Namespace")
	}
	return nil
}

// forward passes the request on as it came; the body already read goes with it.
func (q *request) forward(toLeader bool) error {
	if q.api.cfg.Forward == nil {
		return answer.ErrNoLeader
	}
	if q.bare {
		q.r.Body = io.NopCloser(bytes.NewReader(*q.buf))
	}
	q.carryToken()
	q.nameNear()
	delete(q.w.Header(), "X-Consul-Default-Acl-Policy") // the answer brings its own
	pass := q.api.cfg.Forward.Forward
	if q.route.streams() {
		pass = q.api.cfg.Forward.ForwardStream
	}
	client := q.api.cfg.Registry == nil
	if client {
		if err := q.api.outgoing.take(); err != nil {
			return err
		}
	}
	if err := pass(q.w, q.r, toLeader); err != nil {
		if client {
			q.api.outgoing.failed.Add(1)
		}
		return err
	}
	return errAnswered
}

// body reads the request's body into the scratch buffer.
func (q *request) body(limit int64) ([]byte, error) {
	if q.r.ContentLength <= limit && httpx.MayBeLarge(q.r) {
		if err := q.mayBeLarge(); err != nil {
			return nil, err
		}
	}
	b, err := httpx.ReadBody(q.r, q.buffer(), limit)
	*q.buf = b
	q.bare = err == nil
	var large *httpx.TooLarge
	if errors.As(err, &large) {
		n := max(q.r.ContentLength, limit+1)
		return nil, errkind.Errorf(errkind.TooLarge,
			"Request body(%d bytes) too large, max size: %d bytes. See https://developer.hashicorp.com/docs/agent/config/config-files#kv_max_value_size.", n, limit)
	}
	if err != nil && !errors.Is(err, limits.ErrBytes) {
		return nil, answer.Invalidf("Request decode failed: %v", err)
	}
	return b, err
}

// mayBeLarge refuses a large body, before it is read, of a caller whose rights let it write nothing. A forwarded one
// has been read.
func (q *request) mayBeLarge() error {
	if q.route.tokenless() {
		return nil // these bodies are bounded by their rows
	}
	for _, res := range writable {
		if q.grant.AllowAny(res, acl.Write) {
			return nil
		}
	}
	return q.grant.CheckAny(acl.Key, acl.Write)
}

// writable are the resources that somebody must be able to write some of to send a large body.
var writable = [...]acl.Resource{acl.Key, acl.Service, acl.Node, acl.Session, acl.Query, acl.Event, acl.Agent, acl.Intention, acl.Mesh, acl.Operator, acl.ACL, acl.Keyring, acl.Peering}

// decode reads a JSON body into v, whose field names match in any case.
func (q *request) decode(v any) error {
	b, err := q.body(q.api.cfg.Limits.BodyBytes)
	if err != nil {
		return err
	}
	return bodies.Decode(b, v)
}

// Shared header values.
var (
	valueTrue  = []string{"true"}
	valueFalse = []string{"false"}
	valueZero  = []string{"0"}
	bodyTrue   = []byte("true")
	bodyFalse  = []byte("false")
)

// replyScratch answers 200 with JSON that was appended to the scratch buffer.
func (q *request) replyScratch(body []byte) error {
	*q.buf = body // the array may have grown: keep it for the next who takes it
	return q.replyStatus(http.StatusOK, body)
}

// reply answers 200 with JSON, which may be shared.
func (q *request) reply(body []byte) error { return q.replyStatus(http.StatusOK, body) }

func (q *request) replyStatus(status int, body []byte) error {
	switch {
	case q.pretty():
		body = append(answer.Indent(body), '\n')
	case q.api.cfg.Pretty:
		body = answer.Indent(body)
	}
	q.tellFiltered()
	httpx.Write(q.w, q.r, status, httpx.JSONType, body)
	return nil
}

func (q *request) pretty() bool { return q.q != "" && q.q.Has("pretty") }

// indented wraps an encoder so that what it makes is indented where all answers are.
func (a *API) indented(encode func([]byte) []byte) func([]byte) []byte {
	if !a.cfg.Pretty {
		return encode
	}
	return func(b []byte) []byte { return answer.Indent(encode(b)) }
}

// replyBool answers the bare token.
func (q *request) replyBool(ok bool) error {
	b := bodyFalse
	if ok {
		b = bodyTrue
	}
	return q.reply(b)
}

// replyValue answers with a value that is not worth an encoder of its own.
func (q *request) replyValue(v any) error { return q.replyValueStatus(http.StatusOK, v) }

func (q *request) replyValueStatus(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return q.replyStatus(status, b)
}

// replyEmpty answers 200 with nothing.
func (q *request) replyEmpty() error {
	q.w.WriteHeader(http.StatusOK)
	return nil
}

// indexHeader makes an X-Consul-Index value in one allocation for the list and one for the text.
func indexHeader(index uint64) []string {
	return []string{strconv.FormatUint(max(index, 1), 10)}
}
