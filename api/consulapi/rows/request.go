package rows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	limits "corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

var requests = sync.Pool{New: func() any { return new(Request) }}

// Request is one request on its way through a handler. It is pooled: a handler
// keeps no reference to it.
type Request struct {
	*Core
	caller
	reading
	W        http.ResponseWriter
	R        *http.Request
	Query    httpx.Query
	Rest     string // the path after the route's pattern
	endpoint *endpoint
	Row      *Row
	Recorder *Recorder // what this process asks itself is kept here; nil for a client's request
	buf      *[]byte   // scratch for the body read or the answer, from httpx's pool
	bare     bool      // the body has been read into buf
	Spent    telemetry.Spent
}

// Begin makes a request of what the table found. end gives it back.
func (c *Core) Begin(w http.ResponseWriter, r *http.Request, e *endpoint, row *Row, rest string) *Request {
	q := requests.Get().(*Request)
	*q = Request{Core: c, W: w, R: r, Query: httpx.Query(r.URL.RawQuery), Rest: rest, endpoint: e, Row: row,
		caller: caller{free: c.Open, Grant: acl.Unlimited, rights: q.rights[:0]}, reading: reading{bound: -1}}
	return q
}

// End gives the request back.
func (q *Request) End() {
	q.ReleaseBuffer()
	clear(q.rights)
	*q = Request{caller: caller{rights: q.rights[:0]}}
	requests.Put(q)
}

// Buffer returns the request's empty scratch buffer.
func (q *Request) Buffer() []byte {
	if q.buf == nil {
		q.buf = httpx.GetBuffer()
	}
	return (*q.buf)[:0]
}

// Keep notes what was appended to the scratch buffer: the array may have grown, and the next who takes it has it.
func (q *Request) Keep(b []byte) { *q.buf = b }

// ReleaseBuffer gives the scratch buffer back: for a request that will wait.
func (q *Request) ReleaseBuffer() {
	if q.buf != nil {
		httpx.PutBuffer(q.buf)
		q.buf = nil
	}
}

// PassOn passes the request on as it came; the body already read goes with it.
func (q *Request) PassOn(toLeader bool) error {
	if q.Forward == nil {
		return answer.ErrNoLeader
	}
	if q.bare {
		q.R.Body = io.NopCloser(bytes.NewReader(*q.buf))
	}
	carryToken(q)
	nameNear(q)
	delete(q.W.Header(), "X-Consul-Default-Acl-Policy") // the answer brings its own
	pass := q.Forward.Forward
	if q.Row.Streams {
		pass = q.Forward.ForwardStream
	}
	client := q.Registry == nil
	if client {
		if err := q.outgoing.take(); err != nil {
			return err
		}
	}
	switch err := pass(q.W, q.R, toLeader); {
	case errors.Is(err, answer.ErrCut):
		answer.Cut()
	case err != nil:
		if client {
			q.outgoing.failed.Add(1)
		}
		return err
	}
	return ErrAnswered
}

// Body reads the request's body into the scratch buffer.
func (q *Request) Body(limit int64) ([]byte, error) {
	if q.R.ContentLength <= limit && httpx.MayBeLarge(q.R) {
		if err := mayBeLarge(q); err != nil {
			return nil, err
		}
	}
	b, err := httpx.ReadBody(q.R, q.Buffer(), limit)
	*q.buf = b
	q.bare = err == nil
	var large *httpx.TooLarge
	if errors.As(err, &large) {
		n := max(q.R.ContentLength, limit+1)
		return nil, errkind.Errorf(errkind.TooLarge,
			"Request body(%d bytes) too large, max size: %d bytes. See "+
				"https://developer.hashicorp.com/docs/agent/config/config-files#kv_max_value_size.", n, limit)
	}
	if err != nil && !errors.Is(err, limits.ErrBytes) {
		return nil, answer.Invalidf("Request decode failed: %v", err)
	}
	return b, err
}

// mayBeLarge refuses a large body, before it is read, of a caller whose rights let it write nothing. A forwarded one
// has been read.
func mayBeLarge(q *Request) error {
	if q.Row.anyone {
		return nil // these bodies are bounded by their rows
	}
	for _, res := range writable {
		if q.Grant.AllowAny(res, acl.Write) {
			return nil
		}
	}
	return q.Grant.CheckAny(acl.Key, acl.Write)
}

// writable are the resources that somebody must be able to write some of to send a large body.
var writable = [...]acl.Resource{acl.Key, acl.Service, acl.Node, acl.Session, acl.Query, acl.Event, acl.Agent,
	acl.Intention, acl.Mesh, acl.Operator, acl.ACL, acl.Keyring, acl.Peering}

// Decode reads a JSON body into v, whose field names match in any case.
func (q *Request) Decode(v any) error {
	b, err := q.Body(q.Limits.BodyBytes)
	if err != nil {
		return err
	}
	return bodies.Decode(b, v)
}

// ReplyScratch answers 200 with JSON that was appended to the scratch buffer.
func (q *Request) ReplyScratch(body []byte) error {
	q.Keep(body)
	return q.ReplyStatus(http.StatusOK, body)
}

// Reply answers 200 with JSON, which may be shared.
func (q *Request) Reply(body []byte) error { return q.ReplyStatus(http.StatusOK, body) }

// ReplyStatus answers with JSON, which may be shared.
func (q *Request) ReplyStatus(status int, body []byte) error {
	switch {
	case pretty(q):
		body = append(answer.Indent(body), '\n')
	case q.Pretty:
		body = answer.Indent(body)
	}
	q.TellFiltered()
	httpx.Write(q.W, q.R, status, httpx.JSONType, body)
	return nil
}

func pretty(q *Request) bool { return q.Query != "" && q.Query.Has("pretty") }

// Indented wraps an encoder so that what it makes is indented where all answers are.
func (c *Core) Indented(encode func([]byte) []byte) func([]byte) []byte {
	if !c.Pretty {
		return encode
	}
	return func(b []byte) []byte { return answer.Indent(encode(b)) }
}

// ReplyBool answers the bare token.
func (q *Request) ReplyBool(ok bool) error {
	b := BodyFalse
	if ok {
		b = BodyTrue
	}
	return q.Reply(b)
}

// ReplyValue answers with a value that is not worth an encoder of its own.
func (q *Request) ReplyValue(v any) error { return q.ReplyValueStatus(http.StatusOK, v) }

// ReplyValueStatus is ReplyValue with a status.
func (q *Request) ReplyValueStatus(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return q.ReplyStatus(status, b)
}

// ReplyEmpty answers 200 with nothing.
func (q *Request) ReplyEmpty() error {
	q.W.WriteHeader(http.StatusOK)
	return nil
}

// IndexHeader makes an X-Consul-Index value in one allocation for the list and one for the text.
func IndexHeader(index uint64) []string {
	return []string{strconv.FormatUint(max(index, 1), 10)}
}

// MaxRegistrations bounds one list of registrations: more would hold up the log.
const MaxRegistrations = 4096

// WireList decodes a JSON array whose elements are decoded one by one.
func (q *Request) WireList() ([]json.RawMessage, error) {
	b, err := q.Body(q.Limits.ListBytes)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := bodies.Decode(b, &list); err != nil {
		return nil, err
	}
	if len(list) > MaxRegistrations {
		return nil,
			errkind.Errorf(errkind.TooLarge, "the list has %d registrations, at most %d are taken at once: send several lists",
				len(list), MaxRegistrations)
	}
	return list, nil
}

// At says which element of a list an error is about.
func At(i int, err error) error {
	var e *answer.Error
	if errors.As(err, &e) { // the contract's 500 for a single one that is incomplete
		return answer.Invalidf("%s (registration %d)", e.Text, i)
	}
	return errkind.New(errkind.Of(err), fmt.Sprintf("%s (registration %d)", errkind.Text(err), i))
}

// ErrAnswered ends a handler whose answer has been written (by a forward or a stream).
var ErrAnswered = errors.New("answered")

// Shared header values.
var (
	ValueTrue  = []string{"true"}
	valueFalse = []string{"false"}
	ValueZero  = []string{"0"}
	BodyTrue   = []byte("true")
	BodyFalse  = []byte("false")
)

// RawType is the type of answers that are plain text.
var RawType = []string{"text/plain"}
