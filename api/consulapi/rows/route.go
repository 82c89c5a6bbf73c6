package rows

import (
	"net/http"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/telemetry"
)

// KVPattern is the row of keys.
const KVPattern = "/v1/kv/"

// HasDotSegment tells whether a path has a segment that is . or ..
func HasDotSegment(path string) bool {
	for s := range strings.SplitSeq(path, "/") {
		if s == "." || s == ".." {
			return true
		}
	}
	return false
}

// Class says who can answer a row.
type Class uint8

const (
	ClassOwn   Class = iota // this agent, whatever it is
	ClassRead               // a server, under the request's consistency mode
	ClassWrite              // the leader
)

// Methods are indexed by these.
const (
	GET = iota
	PUT
	mPost
	mDelete
	methodCount
)

var methodNames = [methodCount]string{"GET", "PUT", "POST", "DELETE"}

// MethodOf maps a request method to its index. -1 is none of them: HEAD too, as the contract has it.
func MethodOf(m string) int {
	switch m {
	case http.MethodGet:
		return GET
	case http.MethodPut:
		return PUT
	case http.MethodPost:
		return mPost
	case http.MethodDelete:
		return mDelete
	}
	return -1
}

// Row is a row of the table. A pattern that ends with a slash takes the rest
// of the path as its argument.
type Row struct {
	Methods  string // "GET", "PUT POST"
	Pattern  string
	Class    Class
	resource acl.Resource // what the handler asks rights for
	Handle   func(*Request) error
	anyone   bool // it does not look at the token: who asks has none yet, or only asks whether there is a cluster
	Streams  bool // its body or answer may be of any length
}

// ForAnyone is the row for callers without a token, and for those whose token nobody knows.
func (r Row) ForAnyone() Row {
	r.anyone = true
	return r
}

// Streaming is the row with a body or an answer of any length.
func (r Row) Streaming() Row {
	r.Streams = true
	return r
}

// Own is a row that this agent answers, whatever it is.
func Own(methods, pattern string, asks acl.Resource, handle func(*Request) error) Row {
	return Row{Methods: methods, Pattern: pattern, Class: ClassOwn, resource: asks, Handle: handle}
}

// Read is a row that any server answers, under the request's consistency mode.
func Read(methods, pattern string, asks acl.Resource, handle func(*Request) error) Row {
	return Row{Methods: methods, Pattern: pattern, Class: ClassRead, resource: asks, Handle: handle}
}

// Write is a row that the leader answers.
func Write(methods, pattern string, asks acl.Resource, handle func(*Request) error) Row {
	return Row{Methods: methods, Pattern: pattern, Class: ClassWrite, resource: asks, Handle: handle}
}

// endpoint is all rows of one pattern.
type endpoint struct {
	Pattern string
	Allow   []string // value of the Allow header
	Rows    [methodCount]*Row
	Timings [methodCount]*telemetry.Timing
	Notify  *NotifyTimings // of its blocking queries; nil without a GET
}

// Table finds the endpoint of a path with map look-ups only.
type Table struct {
	Rows   []Row // the whole contract of this adapter, one row per pattern and set of methods
	Exact  map[string]*endpoint
	Prefix map[string]*endpoint
	KV     *endpoint
}

// NewTable makes the table of all rows, with a timing for each.
func NewTable(m *telemetry.Registry, parts ...[]Row) *Table {
	rows := slices.Concat(parts...)
	t := &Table{Rows: rows, Exact: map[string]*endpoint{}, Prefix: map[string]*endpoint{}}
	for i := range rows {
		row := &rows[i]
		where := t.Exact
		if strings.HasSuffix(row.Pattern, "/") {
			where = t.Prefix
		}
		e := where[row.Pattern]
		if e == nil {
			e = &endpoint{Pattern: row.Pattern}
			where[row.Pattern] = e
		}
		for name := range strings.FieldsSeq(row.Methods) {
			n := MethodOf(name)
			e.Rows[n] = row
			e.Timings[n] = m.Timing("api.http", "method", name, "path", metricPath(row.Pattern))
		}
	}
	for _, where := range []map[string]*endpoint{t.Exact, t.Prefix} {
		for _, e := range where {
			e.Allow = []string{allowOf(e)}
			if e.Rows[GET] != nil {
				e.Notify = notifyOf(m, notifyLabel(e.Pattern))
			}
		}
	}
	t.KV = t.Prefix[KVPattern]
	return t
}

func allowOf(e *endpoint) string {
	names := []string{"OPTIONS"}
	for i, row := range e.Rows {
		if row != nil {
			names = append(names, methodNames[i])
		}
	}
	order := []string{"OPTIONS", http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete}
	slices.SortFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return strings.Join(names, ",")
}

// metricPath is the label of the contract: /v1/kv/ is v1_kv_.
func metricPath(pattern string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pattern, "/"), "/", "_")
}

// Find returns the endpoint of path and what follows its pattern.
func (t *Table) Find(path string) (e *endpoint, rest string) {
	if strings.HasPrefix(path, KVPattern) {
		return t.KV, path[len(KVPattern):]
	}
	if e := t.Exact[path]; e != nil {
		return e, ""
	}
	// The patterns have at most six segments, so a path of many slashes costs no more than that.
	end, seen := 0, 0
	var cuts [6]int
	for seen < len(cuts) {
		i := strings.IndexByte(path[end:], '/')
		if i < 0 {
			break
		}
		end += i + 1
		cuts[seen] = end
		seen++
	}
	for seen--; seen >= 0; seen-- {
		if e := t.Prefix[path[:cuts[seen]]]; e != nil {
			return e, path[cuts[seen]:]
		}
	}
	return nil, ""
}
