package httpx

import (
	"iter"
	"net/url"
	"strings"
)

// Query is a raw query string that is searched where it lies: looking up a
// parameter allocates nothing unless the value holds an escape. Pairs that
// net/url would drop (a bad escape, a semicolon) are absent here too.
type Query string

// next splits the first pair off q.
func (q Query) next() (key, value string, rest Query, ok bool) {
	for q != "" {
		pair := string(q)
		if i := strings.IndexByte(pair, '&'); i >= 0 {
			pair, q = pair[:i], q[i+1:]
		} else {
			q = ""
		}
		if pair == "" || strings.IndexByte(pair, ';') >= 0 {
			continue
		}
		key, value, _ = strings.Cut(pair, "=")
		var err error
		if key, err = unescape(key); err != nil {
			continue
		}
		if value, err = unescape(value); err != nil {
			continue
		}
		return key, value, q, true
	}
	return "", "", "", false
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, nil
	}
	return url.QueryUnescape(s)
}

// Get returns the first value of name. ok tells a parameter that is present
// with an empty value from one that is absent.
func (q Query) Get(name string) (value string, ok bool) {
	for {
		k, v, rest, more := q.next()
		if !more {
			return "", false
		}
		if k == name {
			return v, true
		}
		q = rest
	}
}

// Value is Get without the presence.
func (q Query) Value(name string) string {
	v, _ := q.Get(name)
	return v
}

// Has reports whether name is present, with whatever value.
func (q Query) Has(name string) bool {
	_, ok := q.Get(name)
	return ok
}

// Pairs yields every pair in order.
func (q Query) Pairs() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for {
			k, v, rest, more := q.next()
			if !more || !yield(k, v) {
				return
			}
			q = rest
		}
	}
}

// All returns every value of name in order, nil when there is none.
func (q Query) All(name string) []string {
	var out []string
	for k, v := range q.Pairs() {
		if k == name {
			out = append(out, v)
		}
	}
	return out
}
