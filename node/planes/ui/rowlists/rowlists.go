// Package rowlists keeps lists of rows for whoever looks at a table of the web UI: each set of rights has its own, a
// page and a filter of the same list make it once, and after a change the rows alone are made anew that it touched.
package rowlists

import (
	"context"
	"net/url"
	"strconv"
	"sync"

	"corbel.dev/corbel/api/uiapi/rowfilter"
)

const (
	maxRows  = 500 // of a page
	RowsHere = 100 // of a page that names no number
	MaxLists = 64  // that a table keeps, one for each set of rights
)

// Page is a part of a list.
type Page[R any] struct {
	Rows []R `json:"rows"`
	From int `json:"from"`
	// Matching is how many pass the filter, All how many the person may see.
	Matching int    `json:"matching"`
	All      int    `json:"all"`
	Problem  string `json:"problem,omitempty"`
}

// Paged filters rows by q=, and cuts out the page that from= and rows= ask for.
func Paged[R rowfilter.Row](rows []R, q url.Values, fields ...string) Page[R] {
	out := Page[R]{Rows: []R{}, All: len(rows)}
	f, err := rowfilter.Parse(q.Get("q"), fields...)
	if err != nil {
		out.Problem = err.Error()
	}
	from, many := number(q.Get("from"), 0), min(number(q.Get("rows"), RowsHere), maxRows)
	for i := range rows {
		if !f.Match(rows[i]) {
			continue
		}
		if out.Matching >= from && len(out.Rows) < many {
			out.Rows = append(out.Rows, rows[i])
		}
		out.Matching++
	}
	out.From = min(from, out.Matching)
	return out
}

func number(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return n
	}
	return otherwise
}

// Lists keeps whole lists, so that pages and filters of the same one make it once.
type Lists[R any] struct {
	mu   sync.Mutex
	kept map[string]*list[R]
}

type list[R any] struct {
	mu      sync.Mutex
	version uint64
	rows    []R
}

// Get is the list of a key as of a version, which make makes.
func (l *Lists[R]) Get(ctx context.Context, key string, version uint64, make func(context.Context) ([]R, error)) ([]R,
	error) {
	l.mu.Lock()
	one := l.kept[key]
	if one == nil {
		if l.kept == nil || len(l.kept) >= MaxLists {
			l.kept = map[string]*list[R]{}
		}
		one = &list[R]{}
		l.kept[key] = one
	}
	l.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.version == version && version != 0 {
		return one.rows, nil
	}
	rows, err := make(ctx)
	if err == nil {
		one.version, one.rows = version, rows
	}
	return rows, err
}
