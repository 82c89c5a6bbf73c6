package filter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/pattern"
)

// Filter is a compiled expression. A nil Filter matches all.
type Filter struct{ match func(obj any) bool }

// Match reports whether obj, a pointer to the type that the Schema names, passes.
func (f *Filter) Match(obj any) bool { return f == nil || f.match(obj) }

// Compile checks text against the schema and compiles it. Its error is for the
// user who wrote the expression. A text that is empty or white space gives nil.
func Compile(s *Schema, text string) (*Filter, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	n, err := parse(text)
	if err != nil {
		return nil, err
	}
	if expressions(n) > maxExpressions {
		return nil, fmt.Errorf("A filter takes at most %d regular expressions: join them with |", maxExpressions)
	}
	m, err := compile(s, n)
	if err != nil {
		return nil, err
	}
	return &Filter{m}, nil
}

// maxExpressions bounds what one filter costs to compile: each regular expression is bounded by itself.
const maxExpressions = 32

func expressions(n *node) int {
	if n == nil {
		return 0
	}
	count := expressions(n.left) + expressions(n.right)
	if n.kind == nodeMatch && (n.op == opMatches || n.op == opNotMatches) {
		count++
	}
	return count
}

type matcher = func(obj any) bool

func compile(s *Schema, n *node) (matcher, error) {
	if n.kind == nodeMatch {
		t, err := newTerm(n)
		if err != nil {
			return nil, err
		}
		return s.term(n.selector, t)
	}
	if n.kind == nodeAny || n.kind == nodeAll {
		return s.quantified(n)
	}
	left, err := compile(s, n.left)
	if err != nil || n.kind == nodeNot {
		return func(o any) bool { return !left(o) }, err
	}
	right, err := compile(s, n.right)
	if n.kind == nodeAnd {
		return func(o any) bool { return left(o) && right(o) }, err
	}
	return func(o any) bool { return left(o) || right(o) }, err
}

// term is one comparison: its positive operator, and whether to turn the result round.
type term struct {
	op       operator // opEqual, opEmpty, opIn or opMatches
	negated  bool
	value    string
	re       *regexp.Regexp
	selector string
}

var opNames = map[operator]string{opEqual: "==", opEmpty: "is empty", opIn: "in", opMatches: "matches"}

func newTerm(n *node) (*term, error) {
	t := &term{op: n.op, value: n.value, selector: strings.Join(n.selector, ".")}
	switch n.op {
	case opNotEqual:
		t.op, t.negated = opEqual, true
	case opNotEmpty:
		t.op, t.negated = opEmpty, true
	case opNotIn:
		t.op, t.negated = opIn, true
	case opNotMatches:
		t.op, t.negated = opMatches, true
	}
	if t.op == opMatches {
		var err error
		if t.re, err = pattern.Compile(n.value); err != nil {
			return nil, fmt.Errorf("Failed to compile regular expression %q: %v", n.value, err)
		}
	}
	return t, nil
}

// absent is the result where the selector finds nothing: nothing equals it, and it is empty.
func (t *term) absent() bool { return (t.op == opEmpty) != t.negated }

func (t *term) badOperator() error {
	return fmt.Errorf("Invalid match operator %q for selector %q", opNames[t.op], t.selector)
}

func (t *term) badSelector() error { return fmt.Errorf("Selector %q is not valid", t.selector) }

// term compiles the comparison of what path finds in objects of this schema.
func (s *Schema) term(path []string, t *term) (matcher, error) {
	f := s.fields[path[0]]
	if f == nil {
		return nil, t.badSelector()
	}
	rest := path[1:]
	switch f.kind {
	case kindStruct, kindList, kindMap:
		return f.nested(rest, t)
	case kindJSON:
		return func(o any) bool { return t.json(f.inner(o), rest) }, nil
	case kindStringMap:
		return f.stringMap(rest, t)
	}
	if len(rest) > 0 {
		return nil, t.badSelector()
	}
	return f.leaf(t)
}

func (f *field) leaf(t *term) (matcher, error) {
	negated := t.negated
	switch {
	case f.kind == kindString:
		return func(o any) bool { return t.str(f.str(o)) != negated }, nil
	case f.kind == kindInt && t.op == opEqual:
		n, err := strconv.ParseInt(t.value, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("Failed to coerce value %q for selector %q: %v", t.value, t.selector, err)
		}
		return func(o any) bool { return (f.num(o) == n) != negated }, nil
	case f.kind == kindBool && t.op == opEqual:
		want, err := strconv.ParseBool(t.value)
		if err != nil {
			return nil, fmt.Errorf("Failed to coerce value %q for selector %q: %v", t.value, t.selector, err)
		}
		return func(o any) bool { return (f.flag(o) == want) != negated }, nil
	case f.kind == kindStrings && t.op == opIn:
		return func(o any) bool {
			for _, s := range f.strs(o) {
				if s == t.value {
					return !negated
				}
			}
			return negated
		}, nil
	case f.kind == kindStrings && t.op == opEmpty:
		return func(o any) bool { return (len(f.strs(o)) == 0) != negated }, nil
	}
	return nil, t.badOperator()
}

// str compares a string, without the negation.
func (t *term) str(s string) bool {
	switch t.op {
	case opEqual:
		return s == t.value
	case opEmpty:
		return s == ""
	case opIn:
		return strings.Contains(s, t.value)
	}
	return t.re.MatchString(s)
}

func (f *field) stringMap(rest []string, t *term) (matcher, error) {
	switch {
	case len(rest) == 1:
		key := rest[0]
		return func(o any) bool {
			v, ok := f.strMap(o)[key]
			if !ok {
				return t.absent()
			}
			return t.str(v) != t.negated
		}, nil
	case len(rest) > 1:
		return nil, t.badSelector()
	case t.op == opIn:
		return func(o any) bool {
			_, ok := f.strMap(o)[t.value]
			return ok != t.negated
		}, nil
	case t.op == opEmpty:
		return func(o any) bool { return (len(f.strMap(o)) == 0) != t.negated }, nil
	}
	return nil, t.badOperator()
}

func (f *field) nested(rest []string, t *term) (matcher, error) {
	if f.kind == kindMap {
		return f.mapTerm(rest, t)
	}
	if len(rest) == 0 {
		if f.kind == kindList && t.op == opEmpty {
			return func(o any) bool { return (f.count(o) == 0) != t.negated }, nil
		}
		return nil, t.badOperator()
	}
	m, err := f.sub.term(rest, t)
	if err != nil {
		return nil, err
	}
	if f.kind == kindStruct {
		return func(o any) bool {
			if in := f.inner(o); in != nil {
				return m(in)
			}
			return t.absent()
		}, nil
	}
	return func(o any) bool {
		found := false
		f.each(o, func(e any) bool {
			found = m(e)
			return !found
		})
		return found
	}, nil
}

func (f *field) mapTerm(rest []string, t *term) (matcher, error) {
	switch {
	case len(rest) >= 2:
		m, err := f.sub.term(rest[1:], t)
		return func(o any) bool {
			if e, ok := f.entry(o, rest[0]); ok {
				return m(e)
			}
			return t.absent()
		}, err
	case len(rest) == 0 && t.op == opIn:
		return func(o any) bool {
			_, ok := f.entry(o, t.value)
			return ok != t.negated
		}, nil
	case len(rest) == 0 && t.op == opEmpty:
		return func(o any) bool { return (f.count(o) == 0) != t.negated }, nil
	}
	return nil, t.badOperator()
}

func decode(raw []byte) any {
	if len(raw) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

// json compares what path finds in a decoded JSON value.
func (t *term) json(v any, path []string) bool {
	for i, key := range path {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any: // true when any element matches
			for _, e := range x {
				if t.json(e, path[i:]) {
					return true
				}
			}
			return false
		default:
			return t.absent()
		}
	}
	switch x := v.(type) {
	case string:
		return t.str(x) != t.negated
	case json.Number:
		return t.str(x.String()) != t.negated
	case bool:
		return t.str(strconv.FormatBool(x)) != t.negated
	case []any:
		return (t.op == opEmpty && len(x) == 0 || t.op == opIn && t.inList(x)) != t.negated
	case map[string]any:
		_, there := x[t.value]
		return (t.op == opEmpty && len(x) == 0 || t.op == opIn && there) != t.negated
	}
	return t.absent()
}

func (t *term) inList(list []any) bool {
	for _, e := range list {
		if s, ok := e.(string); ok && s == t.value {
			return true
		}
	}
	return false
}
