package nomadrows

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
)

// Reading is a row that reads: the index of what it answers, and the answer. A blocking query asks for the index again
// and again, and for the answer once.
type Reading struct {
	Watch Watch
	Index func(v View) uint64
	// Of names the tables that the answer is made of: while none of them changes, an encoded answer is used again. Nil
	// is everything.
	Of []Table
	// Answer is what is encoded, or an error with its status. Its index is sent with both.
	Answer func(v View) (any, error)
	// Secret answers are not kept.
	Secret bool
}

// Read answers a row that reads, as a blocking query when index is given.
func (q *Request) Read(read Reading) error {
	wants, err := httpx.ParseBlocking(q.Query, q.Limits)
	if err != nil {
		return BadRequest("%s", err.Error())
	}
	v, err := q.Views.View(q.Ctx(), q.Stale())
	if err != nil {
		return err
	}
	index := read.Index(v)
	if wants.Index > 0 && index <= wants.Index {
		if v, index, err = q.block(read, wants, v); err != nil {
			return err
		}
	}
	q.setReadHead(index)
	if read.Secret || q.Query.Has("pretty") {
		return q.answer(read, v)
	}
	var failed error
	var whole []byte // an answer that is not kept
	made := false
	key, version := q.key(), httpx.Version{Generation: v.Generation(), Index: read.version(v)}
	body := q.Bodies.Get(key, version, func([]byte) []byte {
		q.judged = false
		text, err := q.text(read, v)
		failed, made = err, true
		if q.judged { // it is this token's alone: others make their own
			whole, text = text, nil
		}
		return text
	})
	switch {
	case failed != nil:
		return failed
	case whole != nil:
		q.setNextPage()
		httpx.Write(q.W, q.R, http.StatusOK, httpx.JSONType, whole)
		return nil
	case len(body.Bytes()) == 0: // the one who made it got an error, or may see what others may not
		return q.answer(read, v)
	}
	if q.Query.Has("per_page") {
		next := q.Bodies.Get(append(key, "next page"...), version, func(b []byte) []byte {
			if !made { // it was forgotten before its page
				_, _ = read.Answer(v) // it went well when the page was made
			}
			return append(b, q.nextPage...)
		})
		q.nextPage = string(next.Bytes())
	}
	q.setNextPage()
	q.Bodies.WriteTo(q.W, q.R, body)
	return nil
}

// version is what tells one answer from another, as long as no snapshot replaces everything.
func (r *Reading) version(v View) (index uint64) {
	if r.Of == nil {
		return v.State().Index()
	}
	for _, t := range r.Of {
		index = max(index, v.Index(t))
	}
	return index
}

func (q *Request) text(read Reading, v View) ([]byte, error) {
	answer, err := read.Answer(v)
	if err != nil {
		return nil, err
	}
	return q.Encode(answer)
}

func (q *Request) answer(read Reading, v View) error {
	text, err := q.text(read, v)
	if err != nil {
		return err
	}
	q.setNextPage()
	httpx.Write(q.W, q.R, http.StatusOK, httpx.JSONType, text)
	return nil
}

func (q *Request) setNextPage() {
	if q.nextPage != "" {
		q.W.Header()["X-Nomad-Nexttoken"] = []string{q.nextPage}
	}
}

// Told answers what is read once, without a blocking query.
func (q *Request) Told(index uint64, v any) error {
	q.setReadHead(index)
	q.setNextPage()
	return q.JSON(v)
}

// block waits until what is read has an index above the client's, or its time is over.
func (q *Request) block(read Reading, wants httpx.Blocking, v View) (View, uint64, error) {
	ctx, cancel := context.WithTimeout(q.Ctx(), httpx.Jitter(wants.Wait))
	defer cancel()
	if q.Ending != nil {
		defer context.AfterFunc(q.Ending, cancel)()
	}
	for {
		q.Views.Wait(ctx, read.Watch, v.State().Index())
		next, err := q.Views.View(q.Ctx(), true)
		if err != nil {
			return nil, 0, err
		}
		v = next
		if index := read.Index(v); index > wants.Index || ctx.Err() != nil {
			return v, index, nil
		}
	}
}

// key is what the answer depends on beside the index.
func (q *Request) key() []byte {
	b := append([]byte(q.R.URL.EscapedPath()), '?')
	for name, value := range q.Query.Pairs() {
		switch name {
		case "index", "wait", "stale", "consistent", "region":
		default:
			b = append(append(append(append(b, name...), '='), value...), '&')
		}
	}
	return b
}

func (q *Request) setReadHead(index uint64) {
	ago, known := q.Views.LastContact()
	h := q.W.Header()
	h["X-Nomad-Knownleader"] = []string{strconv.FormatBool(known)}
	h["X-Nomad-Lastcontact"] = []string{strconv.FormatInt(int64(ago/time.Millisecond), 10)}
	q.setIndex(index)
}

func (q *Request) setIndex(index uint64) {
	q.W.Header()["X-Nomad-Index"] = []string{strconv.FormatUint(index, 10)}
}

// Whole is a Reading of a table.
func Whole(t Table, answer func(v View) (any, error)) Reading {
	index := func(v View) uint64 { return v.Index(t) }
	return Reading{Watch: Watch{Table: t}, Index: index, Of: []Table{t}, Answer: answer}
}

// Matcher finds the row of a path.
type Matcher struct {
	byHead map[string][]*Row
}

// Row is a row of the API. A segment of Path that begins with : takes one segment of a request's path, one that begins
// with * takes one or more: ids of jobs hold slashes, which not all clients escape.
type Row struct {
	Methods string // "GET", "PUT POST"
	Path    string
	Right   Capability // in the request's namespace; Anyone where the handler asks itself
	Own     bool       // answered by this process, whoever leads
	// Stream answers come bit by bit, which cannot be passed on whole: the server that was asked gives them.
	Stream bool
	Handle func(*Request) error
}

// NewMatcher takes the rows; of two that fit, the first counts.
func NewMatcher(rows []Row) *Matcher {
	m := &Matcher{map[string][]*Row{}}
	for i := range rows {
		head := head(rows[i].Path)
		m.byHead[head] = append(m.byHead[head], &rows[i])
	}
	return m
}

// head is the first two segments, of which each row has one at least.
func head(path string) string {
	parts := strings.SplitN(path, "/", 4)
	if len(parts) < 3 {
		return path
	}
	return parts[2]
}

// Serve answers one request.
func (m *Matcher) Serve(c *Core, w http.ResponseWriter, r *http.Request) {
	q := newRequest(c, w, r)
	path := r.URL.EscapedPath()
	known := false
	for _, row := range m.byHead[head(path)] {
		args, ok := match(row.Path, path)
		if !ok {
			continue
		}
		known = true
		if !allows(row.Methods, r.Method) {
			continue
		}
		if region := q.Query.Value("region"); region != "" && !row.here() && region != c.Cluster.Self().Region {
			q.cross(row, &Elsewhere{Region: region})
			return
		}
		if !row.Own && !row.Stream && c.Cluster.Forward(w, r, r.Method == http.MethodGet && q.Stale()) {
			return
		}
		q.Args = args
		err := q.run(row)
		var there *Elsewhere
		switch {
		case errors.As(err, &there):
			q.cross(row, there)
		case err != nil:
			q.fail(err)
		}
		return
	}
	if known {
		q.fail(&Refusal{http.StatusMethodNotAllowed, "Invalid method"})
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

func (q *Request) run(row *Row) error {
	err := q.May(q.Namespace, row.Right)
	if err != nil && (q.Namespace != AllNamespaces || row.Right.Everywhere()) {
		return err // lists of all namespaces show what the token may see
	}
	return row.Handle(q)
}

func allows(methods, method string) bool {
	for m := range strings.FieldsSeq(methods) {
		if m == method {
			return true
		}
	}
	return false
}
