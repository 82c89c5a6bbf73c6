package consulapi

import (
	"net/http"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/telemetry"
)

// class says who can answer a row.
type class uint8

const (
	own   class = iota // this agent, whatever it is
	read               // a server, under the request's consistency mode
	write              // the leader
)

// Methods are indexed by these.
const (
	mGet = iota
	mPut
	mPost
	mDelete
	methodCount
)

var methodNames = [methodCount]string{"GET", "PUT", "POST", "DELETE"}

// methodOf maps a request method to its index. -1 is none of them: HEAD too, as the contract has it.
func methodOf(m string) int {
	switch m {
	case http.MethodGet:
		return mGet
	case http.MethodPut:
		return mPut
	case http.MethodPost:
		return mPost
	case http.MethodDelete:
		return mDelete
	}
	return -1
}

// route is a row of the table. A pattern that ends with a slash takes the rest
// of the path as its argument.
type route struct {
	methods  string // "GET", "PUT POST"
	pattern  string
	class    class
	resource acl.Resource // what the handler asks rights for
	handle   func(*request) error
}

// streams tells whether the row's body or answer may be of any length.
func (r *route) streams() bool { return r.pattern == snapshotPattern }

// endpoint is all rows of one pattern.
type endpoint struct {
	pattern string
	allow   []string // value of the Allow header
	rows    [methodCount]*route
	timings [methodCount]*telemetry.Timing
	notify  *notifyTimings // of its blocking queries; nil without a GET
}

// table finds the endpoint of a path with map look-ups only.
type table struct {
	exact  map[string]*endpoint
	prefix map[string]*endpoint
	kv     *endpoint
	// kvPrefix is for the blocking queries of the kv endpoint that read a prefix.
	kvPrefix, watch *notifyTimings
}

func newTable(rows []route, m *telemetry.Registry) *table {
	t := &table{exact: map[string]*endpoint{}, prefix: map[string]*endpoint{}}
	for i := range rows {
		row := &rows[i]
		where := t.exact
		if strings.HasSuffix(row.pattern, "/") {
			where = t.prefix
		}
		e := where[row.pattern]
		if e == nil {
			e = &endpoint{pattern: row.pattern}
			where[row.pattern] = e
		}
		for name := range strings.FieldsSeq(row.methods) {
			n := methodOf(name)
			e.rows[n] = row
			e.timings[n] = m.Timing("api.http", "method", name, "path", metricPath(row.pattern))
		}
	}
	for _, where := range []map[string]*endpoint{t.exact, t.prefix} {
		for _, e := range where {
			e.allow = []string{allowOf(e)}
			if e.rows[mGet] != nil {
				e.notify = notifyOf(m, notifyLabel(e.pattern))
			}
		}
	}
	t.kv = t.prefix[kvPattern]
	t.kvPrefix, t.watch = notifyOf(m, "kv-prefix"), notifyOf(m, "watch")
	return t
}

func allowOf(e *endpoint) string {
	names := []string{"OPTIONS"}
	for i, row := range e.rows {
		if row != nil {
			names = append(names, methodNames[i])
		}
	}
	slices.Sort(names[1:])
	return strings.Join(names, ",")
}

// metricPath is the label of the contract: /v1/kv/ is v1_kv_.
func metricPath(pattern string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pattern, "/"), "/", "_")
}

// find returns the endpoint of path and what follows its pattern.
func (t *table) find(path string) (e *endpoint, rest string) {
	if strings.HasPrefix(path, kvPattern) {
		return t.kv, path[len(kvPattern):]
	}
	if e := t.exact[path]; e != nil {
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
		if e := t.prefix[path[:cuts[seen]]]; e != nil {
			return e, path[cuts[seen]:]
		}
	}
	return nil, ""
}
