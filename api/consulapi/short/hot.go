// Package short answers the rows that a fleet asks for all day without net/http, over api/hothttp: a key, a
// registration, the instances of a service, also as blocking queries, which are parked with all that ask the
// same. Each answer is the one that the long path gives, by the same functions of kvrows and catalogrows; whatever is
// not plainly one of these questions is declined, and net/http gets it.
//
// Shared waiters have one goroutine, owned by Path.Run; at most 10,000 such questions are watched at a time.
package short

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/catalogrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// Path answers the rows that a fleet asks for all day, without net/http: reading and
// setting a key, registering, and the instances of a service, also as a blocking query. Each
// answer is the one that API.ServeHTTP gives; whatever is not plainly one of these
// questions is declined, and API.ServeHTTP gets it.
//
// Blocking queries that ask the same are parked together (hotwaiters.go). Run
// owns these; before Run and after it blocking queries are declined. Serve is
// safe for concurrent use.
type Path struct {
	api          *rows.Core
	tenants      *telemetry.Tenants
	policy       []byte // the header line that each answer begins with
	kvGet, kvPut *telemetry.Timing
	lists        [len(hotLists)]*telemetry.Timing
	notify       [len(hotLists)]*rows.NotifyTimings

	registerTiming *telemetry.Timing

	// base ends when Run ends: it cuts the reads and writes that are still under way.
	base *base

	// round is the answer that many are being given at the moment, nil when there is none.
	round atomic.Pointer[round]

	// SharedLimit bounds the questions that are watched at a time; set it before Run.
	SharedLimit int
	mu          sync.RWMutex // guards shared, ctx and entering waiters; taken before their own lock
	shared      map[question]*sharedWaiters
	ctx         context.Context // of Run; nil while it does not run
	wg          sync.WaitGroup
}

var _ hothttp.Handler = (*Path)(nil)

// New makes the short path to the rows of a table.
func New(c *rows.Core, t *rows.Table, tenants *telemetry.Tenants) *Path {
	h := &Path{api: c, base: &base{}, tenants: tenants,
		policy: []byte("X-Consul-Default-Acl-Policy: " + c.Policy[0] + "\r\n"),
		kvGet:  t.KV.Timings[rows.GET], kvPut: t.KV.Timings[rows.PUT],
		SharedLimit: maxShared, shared: map[question]*sharedWaiters{}}
	h.registerTiming = t.Exact[registerPattern].Timings[rows.PUT]
	for i := range hotLists {
		e := t.Prefix[hotLists[i].pattern]
		h.lists[i], h.notify[i] = e.Timings[rows.GET], e.Notify
	}
	h.base.Context, h.base.cut = context.WithCancel(context.Background())
	return h
}

// Running tells whether blocking queries are parked here now.
func (h *Path) Running() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ctx != nil
}

// Shared is how many questions are watched.
func (h *Path) Shared() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.shared)
}

// Answering tells whether an answer is on its way to many.
func (h *Path) Answering() bool { return h.round.Load() != nil }

// base is the context of the reads and writes that are under way.
type base struct {
	context.Context
	cut context.CancelFunc
}

// Run lets blocking queries be parked until ctx ends. Then those parked are answered with
// what is known, and Run returns when the last waiters have ended. A Hot runs once.
func (h *Path) Run(ctx context.Context) error {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.ctx = nil
	h.mu.Unlock()
	h.wg.Wait()
	h.base.cut()
	return nil
}

var kvPath = []byte(rows.KVPattern)

// Serve implements hothttp.Handler.
func (h *Path) Serve(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	outcome := h.admit(c, r)
	if outcome != hothttp.Decline && h.tenants.Turn() { // what is declined is counted where it is served
		h.tenants.Add("address " + c.Remote().Addr().String())
	}
	return outcome
}

// admit serves what the limits let through.
func (h *Path) admit(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	limits := &h.api.Limits
	if r.Method == hothttp.POST || len(r.Path) > limits.PathBytes || len(r.Query) > limits.QueryBytes ||
		bytes.Contains(r.Path, []byte("/.")) && rows.HasDotSegment(string(r.Path)) {
		return hothttp.Decline
	}
	if !h.api.Limited() {
		return h.serve(c, r)
	}
	method, pattern, t, cl := h.row(r)
	if pattern == "" {
		return hothttp.Decline
	}
	taken, err := h.api.Admit(cl, method, pattern, "")
	if err != nil {
		return h.fail(c, err, cl, t, h.api.Clock.Now())
	}
	outcome := h.serve(c, r)
	if outcome == hothttp.Decline {
		taken.Return() // it is counted where it is served
	}
	return outcome
}

// row names the row of a request, "" when it is none of this path's.
func (h *Path) row(r *hothttp.Request) (method, pattern string, t *telemetry.Timing, c rows.Class) {
	switch {
	case bytes.HasPrefix(r.Path, kvPath):
		if r.Method == hothttp.PUT {
			return "PUT", rows.KVPattern, h.kvPut, rows.ClassWrite
		}
		return "GET", rows.KVPattern, h.kvGet, rows.ClassRead
	case r.Method != hothttp.GET:
		if string(r.Path) == registerPattern {
			return "PUT", registerPattern, h.registerTiming, rows.ClassWrite
		}
	default:
		for i := range hotLists {
			if bytes.HasPrefix(r.Path, []byte(hotLists[i].pattern)) {
				return "GET", hotLists[i].pattern, h.lists[i], rows.ClassRead
			}
		}
	}
	return "", "", nil, rows.ClassRead
}

func (h *Path) serve(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	if key, ok := bytes.CutPrefix(r.Path, kvPath); ok {
		if len(key) == 0 {
			return hothttp.Decline
		}
		if r.Method == hothttp.PUT {
			return h.servePut(c, r, string(key))
		}
		return h.serveGet(c, r, string(key))
	}
	if r.Method != hothttp.GET {
		if string(r.Path) == registerPattern {
			return h.serveRegister(c, r)
		}
		return hothttp.Decline
	}
	for i := range hotLists {
		if len(r.Path) > len(hotLists[i].pattern) && string(r.Path[:len(hotLists[i].pattern)]) == hotLists[i].pattern {
			return h.serveList(c, r, i)
		}
	}
	return hothttp.Decline
}

// secret is the token that the call is judged by, as request.token finds it.
func (h *Path) secret(r *hothttp.Request) string {
	if h.api.Open {
		return ""
	}
	if len(r.Token) == 0 && h.api.DefaultToken != nil {
		return h.api.DefaultToken()
	}
	return string(r.Token)
}

// grant finds the caller's rights.
func (h *Path) grant(secret string) (*acl.Grant, error) {
	if h.api.Open {
		return acl.Unlimited, nil
	}
	return h.api.Authorizer.Grant(h.base, secret)
}

// allow finds the caller's rights and asks for the one that a row needs.
func (h *Path) allow(secret string, res acl.Resource, name string, l acl.Level) (*acl.Grant, error) {
	g, err := h.grant(secret)
	if err == nil {
		err = g.Check(res, name, l)
	}
	return g, err
}

func (h *Path) serveGet(c *hothttp.Call, r *hothttp.Request, key string) hothttp.Outcome {
	mode, raw := registry.Default, false
	switch string(r.Query) {
	case "":
	case "stale", "stale=":
		mode = registry.Stale
	case "raw", "raw=":
		raw = true
	default:
		return hothttp.Decline
	}
	a, begun := h.api, h.api.Clock.Now()
	if _, err := h.allow(h.secret(r), acl.Key, key, acl.Read); err != nil {
		return h.fail(c, err, rows.ClassRead, h.kvGet, begun)
	}
	contact, _, err := a.Contact(h.base, mode, -1)
	if err != nil {
		return h.fail(c, err, rows.ClassRead, h.kvGet, begun)
	}
	st := a.Registry.State()
	p := st.KV(key)
	bp, hp := httpx.GetBuffer(), httpx.GetBuffer()
	body, status, format := *bp, statusOK, headJSON
	switch {
	case p == nil:
		status, format = statusNotFound, ""
	case raw:
		format = headRaw
	default:
		if body = append(answer.AppendKVPair(append(body, '['), p), ']'); a.Pretty {
			body = answer.Indent(body)
		}
	}
	send := body
	if raw && p != nil {
		send = p.Value
	}
	a.Queries.Add(1)
	head := appendReadHead(h.begin(*hp, status), contact, st.KVKeyIndex(key))
	head = append(head, format...)
	if r.Gzip && len(send) > httpx.GzipMinBytes {
		head, send = append(head, headGzip...), httpx.Gzip(send)
	}
	_ = c.Reply(head, send) // a client that left is noticed by hothttp
	*bp, *hp = body, head
	httpx.PutBuffer(bp)
	httpx.PutBuffer(hp)
	h.read(h.kvGet, begun)
	return hothttp.Done
}

func (h *Path) servePut(c *hothttp.Call, r *hothttp.Request, key string) hothttp.Outcome {
	a := h.api
	if len(r.Query) > 0 || int64(len(r.Body)) > a.Limits.KVValueBytes {
		return hothttp.Decline
	}
	begun := a.Clock.Now()
	g, err := h.allow(h.secret(r), acl.Key, key, acl.Write)
	if err != nil {
		return h.fail(c, err, rows.ClassWrite, h.kvPut, begun)
	}
	res, err := h.propose(&catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: key, Value: r.Body,
		By: rows.Author(g, begun)}})
	if errkind.Is(err, errkind.NotLeader) {
		return hothttp.Decline // nothing was done; net/http passes the request on to the leader
	}
	if err != nil {
		return h.fail(c, err, rows.ClassWrite, h.kvPut, begun)
	}
	return h.done(c, res.OK, h.kvPut, begun)
}

// done answers a write.
func (h *Path) done(c *hothttp.Call, ok bool, t *telemetry.Timing, begun time.Time) hothttp.Outcome {
	body := rows.BodyFalse
	if ok {
		body = rows.BodyTrue
	}
	hp := httpx.GetBuffer()
	head := append(h.begin(*hp, statusOK), headJSON...)
	_ = c.Reply(head, body) // a client that left is noticed by hothttp
	*hp = head
	httpx.PutBuffer(hp)
	t.Observe(h.api.Clock.Since(begun))
	return hothttp.Done
}

// read accounts for a read that was answered at once.
func (h *Path) read(t *telemetry.Timing, begun time.Time) {
	took := h.api.Clock.Since(begun)
	t.Observe(took)
	h.api.Reads.Done(h.base, 0, took, nil) // a request with a trace is not served here
}

// fail answers with an error as request.fail does. What another server can do is declined.
func (h *Path) fail(c *hothttp.Call, err error, cl rows.Class, t *telemetry.Timing, begun time.Time) hothttp.Outcome {
	if errkind.Is(err, errkind.NotLeader) || errkind.Is(err, errkind.Denied) && !h.api.Leads(h.base) {
		return hothttp.Decline // net/http passes the request on to the leader
	}
	head, body := h.failure(err, cl)
	_ = c.Reply(head, body) // a client that left is noticed by hothttp
	t.Observe(h.api.Clock.Since(begun))
	return hothttp.Done
}

// failure makes the answer for an error.
func (h *Path) failure(err error, cl rows.Class) (head, body []byte) {
	h.api.Failures.Add(1)
	code, text, retry := answer.StatusOf(err, cl == rows.ClassWrite)
	head = append([]byte("HTTP/1.1 "), strconv.Itoa(code)...)
	head = append(append(append(head, ' '), http.StatusText(code)...), "\r\n"...)
	head = append(append(head, h.policy...), headText...)
	if retry {
		head = append(head, "Retry-After: 1\r\n"...)
	}
	return head, []byte(text)
}

// Parts of heads; hothttp ends them.
const (
	statusOK       = "HTTP/1.1 200 OK\r\n"
	statusNotFound = "HTTP/1.1 404 Not Found\r\n"
	headJSON       = "Content-Type: application/json\r\nVary: Accept-Encoding\r\n"
	headRaw        = "Content-Type: text/plain\r\nVary: Accept-Encoding\r\nX-Content-Type-Options: " +
		"nosniff\r\nContent-Security-Policy: sandbox\r\n"
	headText     = "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
	headFiltered = "X-Consul-Results-Filtered-By-Acls: true\r\n"
	headGzip     = "Content-Encoding: gzip\r\n"
)

func (h *Path) begin(b []byte, status string) []byte {
	return append(append(b, status...), h.policy...)
}

// appendReadHead appends what request.readHeaders sets for all reads.
func appendReadHead(b []byte, c registry.Contact, index uint64) []byte {
	b = append(b, "X-Consul-Index: "...)
	b = strconv.AppendUint(b, max(index, 1), 10)
	b = append(b, "\r\nX-Consul-Knownleader: "...)
	b = strconv.AppendBool(b, c.KnownLeader)
	b = append(b, "\r\nX-Consul-Lastcontact: "...)
	b = strconv.AppendInt(b, rows.ContactMillis(c), 10)
	return append(b, "\r\n"...)
}

const registerPattern = "/v1/catalog/register"

// serveRegister is catalogRegister for the hot path.
func (h *Path) serveRegister(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	a := h.api
	if len(r.Query) > 0 || int64(len(r.Body)) > a.Limits.BodyBytes {
		return hothttp.Decline
	}
	begun := a.Clock.Now()
	err := h.register(r)
	if errkind.Is(err, errkind.NotLeader) || err == errElsewhere {
		return hothttp.Decline // nothing was done; net/http passes the request on to the leader
	}
	if err != nil {
		return h.fail(c, err, rows.ClassWrite, h.registerTiming, begun)
	}
	return h.done(c, true, h.registerTiming, begun)
}

// errElsewhere is a registration for another datacenter: net/http passes it on.
var errElsewhere = errkind.New(errkind.Unavailable, "another datacenter's")

func (h *Path) register(r *hothttp.Request) error {
	a := h.api
	g, err := h.grant(h.secret(r))
	if err != nil {
		return err
	}
	in := &bodies.Register{}
	if !bodies.ParseRegister(string(r.Body), in) {
		*in = bodies.Register{}
		if err := bodies.Decode(r.Body, in); err != nil {
			return err
		}
	}
	if in.Datacenter != "" && in.Datacenter != a.Identity.Datacenter {
		return errElsewhere
	}
	cmd, err := catalogrows.Registration(a, g, "", in)
	if err != nil {
		return err
	}
	_, err = h.propose(cmd)
	return err
}

// propose counts a command unless net/http will.
func (h *Path) propose(cmd catalog.Command) (catalog.Result, error) {
	res, err := h.api.Propose(h.base, cmd)
	if !errkind.Is(err, errkind.NotLeader) {
		h.api.Requests.Add(1)
	}
	return res, err
}
