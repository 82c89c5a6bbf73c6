package nomadrows

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/standing"
)

// Needs is the plane, as rows see it.
type Needs struct {
	Views       Views
	Jobs        JobWriter
	Starter     JobStarter
	Nodes       NodeWriter
	Deployments DeploymentWriter
	Settings    Settings
	Variables   VariableKeeper
	Clients     Clients
	Cluster     Cluster
	Rights      Rights        // nil: access control is off
	Access      AccessControl // nil: the same
	Keys        Keys          // nil: there are no workload identities
	Metrics     http.Handler  // of /v1/metrics
	Logs        Logs          // of this process; nil keeps none
	Snapshots   Snapshots
}

// Core is what all requests share.
type Core struct {
	Needs
	Log    *slog.Logger
	Now    func() time.Time
	Seed   func() uint64 // of ids that are shown and never stored
	Random io.Reader     // of uuidv4() in job files
	Limits httpx.WaitLimits
	Bodies httpx.BodyCache
	Ending context.Context // it ends when streams and blocking queries are to end
}

// Request is one request.
type Request struct {
	*Core
	W         http.ResponseWriter
	R         *http.Request
	Query     httpx.Query
	Args      map[string]string // of the path
	Namespace string            // "*" is all
	token     string
	nextPage  string // the token of the page behind the one that List made
	judged    bool   // a right of this token's was asked for
}

// MaxBody bounds what a write may bring: a job with its templates and its source.
const MaxBody = 8 << 20

// AllNamespaces stands for all namespaces in reads of lists.
const AllNamespaces = "*"

func newRequest(c *Core, w http.ResponseWriter, r *http.Request) *Request {
	q := &Request{Core: c, W: w, R: r, Query: httpx.Query(r.URL.RawQuery)}
	if q.Namespace = q.Query.Value("namespace"); q.Namespace == "" {
		q.Namespace = "default"
	}
	q.token = r.Header.Get("X-Nomad-Token")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && q.token == "" {
		q.token = bearer
	}
	if q.token == "" { // rights are those of the catalog's tokens
		q.token = r.Header.Get("X-Consul-Token")
	}
	return q
}

// Ctx is the request's context.
func (q *Request) Ctx() context.Context { return q.R.Context() }

// May asks for a right in a namespace.
func (q *Request) May(namespace string, what Capability) error {
	if q.Rights == nil || what == Anyone {
		return nil
	}
	q.judged = true
	ok, err := q.Rights.Allows(q.token, namespace, what)
	if err != nil {
		return err
	}
	if !ok {
		return ErrDenied
	}
	return nil
}

// Lasting is the context of an answer that goes on for long: it ends with ctx, with this process, and soon after may
// fails, which asks a copy of the request for the right again and again. release must be called.
func (q *Request) Lasting(ctx context.Context, may func(q *Request) error) (held context.Context, release func()) {
	own := *q // asked beside the answer
	held, release = standing.New(nil, func() error { return may(&own) }).Hold(ctx)
	if q.Ending == nil {
		return held, release
	}
	stop := context.AfterFunc(q.Ending, release)
	return held, func() {
		stop()
		release()
	}
}

// While reads r for as long as the token has a right that has no namespace.
func (q *Request) While(what Capability, r io.Reader) io.Reader {
	own := *q // asked beside what is read
	return standing.New(nil, func() error { return own.May("", what) }).Reader(r)
}

// Sees reports whether objects of a namespace belong into a list.
func (q *Request) Sees(namespace string, what Capability) bool {
	if q.Namespace != AllNamespaces {
		return namespace == q.Namespace
	}
	return q.May(namespace, what) == nil
}

// Job is the job that the path names.
func (q *Request) Job() jobs.JobKey { return jobs.JobKey{Namespace: q.Namespace, ID: q.Args["job"]} }

// Token is what the request is judged by, "" for nobody's.
func (q *Request) Token() string { return q.token }

// ID is a UUID of the path. Stock answers 500 to what is none.
func (q *Request) ID(name string) (jobs.ID, error) {
	id, ok := ParseID(q.Args[name])
	if !ok {
		return id, Failed("%s lookup failed: index error: UUID must be 36 characters", name)
	}
	return id, nil
}

// ParseID reads a UUID.
func ParseID(text string) (id jobs.ID, ok bool) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(strings.ReplaceAll(text, "-", "")))
	return id, err == nil
}

// Prefix reads the parameter prefix of a list of UUIDs.
func (q *Request) Prefix() (string, error) {
	prefix := strings.ToLower(q.Query.Value("prefix"))
	digits := strings.ReplaceAll(prefix, "-", "")
	if len(digits)%2 != 0 {
		return "", Failed("lookup failed: index error: Input (without hyphens) must be even length")
	}
	if _, err := hex.DecodeString(digits); err != nil {
		return "", Failed("lookup failed: index error: Invalid UUID: %s", err)
	}
	return prefix, nil
}

// Body reads the body.
func (q *Request) Body() ([]byte, error) {
	return httpx.ReadBody(q.R, nil, MaxBody)
}

// Decode reads the body of a request as JSON. What cannot be read is 400.
func Decode[T any](q *Request) (*T, error) {
	body, err := q.Body()
	if err != nil {
		return nil, err
	}
	v, err := jobwire.Decode[T](body)
	if err != nil {
		return nil, BadRequest("%s", errkind.Text(err))
	}
	return v, nil
}

// DecodeOr is Decode, with a zero T for an empty body.
func DecodeOr[T any](q *Request) (*T, error) {
	if q.R.ContentLength == 0 {
		return new(T), nil
	}
	return Decode[T](q)
}

// Flag reads a parameter that is true or false; present and empty is true where bare says so.
func (q *Request) Flag(name string) (bool, error) {
	text, ok := q.Query.Get(name)
	if !ok || text == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, BadRequest("Failed to parse value of %q (%v) as a bool: %v", name, text, err)
	}
	return v, nil
}

// Int reads a parameter that is a number.
func (q *Request) Int(name string, otherwise int64) (int64, error) {
	text, ok := q.Query.Get(name)
	if !ok || text == "" {
		return otherwise, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, BadRequest("Failed to parse value of %q (%v) as an integer", name, text)
	}
	return v, nil
}

// Stale reports whether any server may answer.
func (q *Request) Stale() bool { return q.Query.Has("stale") }

// With is the request with a token that came in another way.
func (q *Request) With(token string) *Request {
	other := *q
	other.token = token
	return &other
}
