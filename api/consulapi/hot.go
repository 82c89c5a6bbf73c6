package consulapi

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// Hot answers the rows that a fleet asks for all day, without net/http: reading and
// setting a key, registering, and the instances of a service, also as a blocking query. Each
// answer is the one that API.ServeHTTP gives; whatever is not plainly one of these
// questions is declined, and API.ServeHTTP gets it.
//
// Blocking queries that ask the same are parked in one crowd (hotcrowd.go). Run
// owns the crowds; before Run and after it blocking queries are declined. Serve is
// safe for concurrent use.
type Hot struct {
	api    *API
	policy []byte // the header line that each answer begins with
	kvGet  *telemetry.Timing
	kvPut  *telemetry.Timing
	lists  [len(hotLists)]*telemetry.Timing
	notify [len(hotLists)]*notifyTimings

	registerTiming *telemetry.Timing

	// base ends when Run ends: it cuts the reads and writes that are still under way.
	base context.Context
	cut  context.CancelFunc

	// round is the answer that many are being given at the moment, nil when there is none.
	round atomic.Pointer[round]

	crowdLimit int
	mu         sync.RWMutex // guards crowds, ctx and entering a crowd; taken before a crowd's own lock
	crowds     map[question]*crowd
	ctx        context.Context // of Run; nil while it does not run
	wg         sync.WaitGroup
}

var _ hothttp.Handler = (*Hot)(nil)

// Hot returns the hot path of a, nil when its configuration wants each request to be
// looked at by net/http: on a client agent, and behind rules for paths, writers or headers.
func (a *API) Hot() *Hot {
	if a.cfg.Registry == nil || !a.gate.Plain() || a.cfg.TranslateWAN {
		return nil
	}
	h := &Hot{api: a, policy: []byte("X-Consul-Default-Acl-Policy: " + a.policy[0] + "\r\n"),
		kvGet: a.table.kv.timings[mGet], kvPut: a.table.kv.timings[mPut],
		crowdLimit: maxCrowds, crowds: map[question]*crowd{}}
	h.registerTiming = a.table.exact[registerPattern].timings[mPut]
	for i := range hotLists {
		e := a.table.prefix[hotLists[i].pattern]
		h.lists[i], h.notify[i] = e.timings[mGet], e.notify
	}
	h.base, h.cut = context.WithCancel(context.Background())
	return h
}

// Run lets blocking queries be parked until ctx ends. Then those parked are answered with
// what is known, and Run returns when the last crowd has ended. A Hot runs once.
func (h *Hot) Run(ctx context.Context) error {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.ctx = nil
	h.mu.Unlock()
	h.wg.Wait()
	h.cut()
	return nil
}

var kvPath = []byte(kvPattern)

// Serve implements hothttp.Handler.
func (h *Hot) Serve(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	outcome := h.admit(c, r)
	if outcome != hothttp.Decline && h.api.tenants.Turn() { // what is declined is counted where it is served
		h.api.tenants.Add("address " + c.Remote().Addr().String())
	}
	return outcome
}

// admit serves what the limits let through.
func (h *Hot) admit(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	limits := &h.api.cfg.Limits
	if r.Method == hothttp.POST || len(r.Path) > limits.PathBytes || len(r.Query) > limits.QueryBytes ||
		bytes.Contains(r.Path, []byte("/.")) && hasDotSegment(string(r.Path)) {
		return hothttp.Decline
	}
	if h.api.limits.now.Load() == nil {
		return h.serve(c, r)
	}
	row, t, cl := h.row(r)
	if row == "" {
		return hothttp.Decline
	}
	taken, err := h.api.admit(cl, func() string { return row }, "")
	if err != nil {
		return h.fail(c, err, cl, t, h.api.cfg.Clock.Now())
	}
	outcome := h.serve(c, r)
	if outcome == hothttp.Decline {
		taken.Return() // it is counted where it is served
	}
	return outcome
}

// row names the row of a request as request.op does, "" when it is none of this path's.
func (h *Hot) row(r *hothttp.Request) (name string, t *telemetry.Timing, c class) {
	switch {
	case bytes.HasPrefix(r.Path, kvPath):
		if r.Method == hothttp.PUT {
			return "PUT " + kvPattern, h.kvPut, write
		}
		return "GET " + kvPattern, h.kvGet, read
	case r.Method != hothttp.GET:
		if string(r.Path) == registerPattern {
			return "PUT " + registerPattern, h.registerTiming, write
		}
	default:
		for i := range hotLists {
			if bytes.HasPrefix(r.Path, []byte(hotLists[i].pattern)) {
				return "GET " + hotLists[i].pattern, h.lists[i], read
			}
		}
	}
	return "", nil, read
}

func (h *Hot) serve(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
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
func (h *Hot) secret(r *hothttp.Request) string {
	if h.api.open {
		return ""
	}
	if len(r.Token) == 0 && h.api.cfg.DefaultToken != nil {
		return h.api.cfg.DefaultToken()
	}
	return string(r.Token)
}

// grant finds the caller's rights.
func (h *Hot) grant(secret string) (*acl.Grant, error) {
	if h.api.open {
		return acl.Unlimited, nil
	}
	return h.api.cfg.Authorizer.Grant(h.base, secret)
}

// allow finds the caller's rights and asks for the one that a row needs.
func (h *Hot) allow(secret string, res acl.Resource, name string, l acl.Level) (*acl.Grant, error) {
	g, err := h.grant(secret)
	if err == nil {
		err = g.Check(res, name, l)
	}
	return g, err
}

func (h *Hot) serveGet(c *hothttp.Call, r *hothttp.Request, key string) hothttp.Outcome {
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
	a, begun := h.api, h.api.cfg.Clock.Now()
	if _, err := h.allow(h.secret(r), acl.Key, key, acl.Read); err != nil {
		return h.fail(c, err, read, h.kvGet, begun)
	}
	contact, _, err := a.contact(h.base, mode, -1)
	if err != nil {
		return h.fail(c, err, read, h.kvGet, begun)
	}
	st := a.cfg.Registry.State()
	p := st.KV(key)
	bp, hp := httpx.GetBuffer(), httpx.GetBuffer()
	body, status, format := *bp, statusOK, headJSON
	switch {
	case p == nil:
		status, format = statusNotFound, ""
	case raw:
		format = headRaw
	default:
		if body = append(answer.AppendKVPair(append(body, '['), p), ']'); a.cfg.Pretty {
			body = answer.Indent(body)
		}
	}
	send := body
	if raw && p != nil {
		send = p.Value
	}
	a.queries.Add(1)
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

func (h *Hot) servePut(c *hothttp.Call, r *hothttp.Request, key string) hothttp.Outcome {
	a := h.api
	if len(r.Query) > 0 || int64(len(r.Body)) > a.cfg.Limits.KVValueBytes {
		return hothttp.Decline
	}
	begun := a.cfg.Clock.Now()
	if _, err := h.allow(h.secret(r), acl.Key, key, acl.Write); err != nil {
		return h.fail(c, err, write, h.kvPut, begun)
	}
	res, err := a.cfg.Registry.Apply(h.base, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: key, Value: r.Body}})
	if err == nil && res.Err != nil {
		err = answer.Refused(res.Err)
	}
	if errkind.Is(err, errkind.NotLeader) {
		return hothttp.Decline // nothing was done; net/http passes the request on to the leader
	}
	a.requests.Add(1)
	if err != nil {
		return h.fail(c, err, write, h.kvPut, begun)
	}
	body := bodyFalse
	if res.OK {
		body = bodyTrue
	}
	hp := httpx.GetBuffer()
	head := append(h.begin(*hp, statusOK), headJSON...)
	_ = c.Reply(head, body) // a client that left is noticed by hothttp
	*hp = head
	httpx.PutBuffer(hp)
	h.kvPut.Observe(a.cfg.Clock.Since(begun))
	return hothttp.Done
}

// read accounts for a read that was answered at once.
func (h *Hot) read(t *telemetry.Timing, begun time.Time) {
	took := h.api.cfg.Clock.Since(begun)
	t.Observe(took)
	h.api.reads.Done(h.base, 0, took, nil) // a request with a trace is not served here
}

// fail answers with an error as request.fail does. What another server can do is declined.
func (h *Hot) fail(c *hothttp.Call, err error, cl class, t *telemetry.Timing, begun time.Time) hothttp.Outcome {
	if errkind.Is(err, errkind.NotLeader) || errkind.Is(err, errkind.Denied) && !h.api.leads(h.base) {
		return hothttp.Decline // net/http passes the request on to the leader
	}
	head, body := h.failure(err, cl)
	_ = c.Reply(head, body) // a client that left is noticed by hothttp
	t.Observe(h.api.cfg.Clock.Since(begun))
	return hothttp.Done
}

// failure makes the answer for an error.
func (h *Hot) failure(err error, cl class) (head, body []byte) {
	h.api.failures.Add(1)
	code, text, retry := answer.StatusOf(err, cl == write)
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
	headRaw        = "Content-Type: text/plain\r\nVary: Accept-Encoding\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: sandbox\r\n"
	headText       = "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
	headFiltered   = "X-Consul-Results-Filtered-By-Acls: true\r\n"
	headGzip       = "Content-Encoding: gzip\r\n"
)

func (h *Hot) begin(b []byte, status string) []byte {
	return append(append(b, status...), h.policy...)
}

// appendReadHead appends what request.readHeaders sets for all reads.
func appendReadHead(b []byte, c registry.Contact, index uint64) []byte {
	b = append(b, "X-Consul-Index: "...)
	b = strconv.AppendUint(b, max(index, 1), 10)
	b = append(b, "\r\nX-Consul-Knownleader: "...)
	b = strconv.AppendBool(b, c.KnownLeader)
	b = append(b, "\r\nX-Consul-Lastcontact: "...)
	b = strconv.AppendInt(b, contactMillis(c), 10)
	return append(b, "\r\n"...)
}
