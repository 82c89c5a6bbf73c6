// Package rowfilter is the language of the search fields of the web UI.
//
//	web -passing node:db* tag:"two words"
//
// Terms stand beside each other and all of them must hold; "-" before a term turns it around. A term without a field
// is looked for in the row's own words, anywhere in them; a term with one is the whole value of that field, in which
// "*" stands for anything. Letters are compared without their case.
//
// A Filter is immutable and costs at most Terms comparisons a row; nothing in it can run for long, whatever was typed:
// there are no regular expressions.
package rowfilter

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of what is typed.
const (
	MaxBytes = 1024
	MaxTerms = 32
)

// Row is what a Filter looks at.
type Row interface {
	// Words are what a term without a field is looked for in.
	Words() []string
	// Values are those of a field; a field that the row has not is empty.
	Values(field string) []string
}

type term struct {
	field   string   // "" is the row's words
	parts   []string // of the value, between its asterisks
	whole   bool     // there was no asterisk
	negated bool     // "-" stood before it
}

// Filter is a parsed text. The zero value takes every row.
type Filter struct{ terms []term }

// Parse reads what was typed. fields are those that rows have; the error of another one names them.
func Parse(text string, fields ...string) (Filter, error) {
	if len(text) > MaxBytes {
		return Filter{}, fmt.Errorf("the filter has %d bytes, more than %d", len(text), MaxBytes)
	}
	var f Filter
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		t, after, err := next(rest, fields)
		if err != nil {
			return Filter{}, err
		}
		if len(f.terms) == MaxTerms {
			return Filter{}, fmt.Errorf("the filter has more than %d terms", MaxTerms)
		}
		f.terms = append(f.terms, t)
		rest = after
	}
	return f, nil
}

// next reads the first term of text, which is not empty.
func next(text string, fields []string) (t term, rest string, err error) {
	rest, t.negated = strings.CutPrefix(text, "-")
	end := strings.IndexAny(rest, ` :"`+"\t")
	if end > 0 && rest[end] == ':' {
		t.field, rest = strings.ToLower(rest[:end]), rest[end+1:]
		if !slices.Contains(fields, t.field) {
			return t, "", fmt.Errorf("no field %q: there are %s", t.field, strings.Join(fields, ", "))
		}
	}
	var value string
	if after, quoted := strings.CutPrefix(rest, `"`); quoted {
		var closed bool
		if value, rest, closed = strings.Cut(after, `"`); !closed {
			return t, "", fmt.Errorf("a quotation mark is not closed")
		}
	} else if end = strings.IndexAny(rest, " \t"); end >= 0 {
		value, rest = rest[:end], rest[end:]
	} else {
		value, rest = rest, ""
	}
	if value == "" {
		return t, "", fmt.Errorf("a term is empty")
	}
	t.parts = strings.Split(strings.ToLower(value), "*")
	t.whole = len(t.parts) == 1
	return t, rest, nil
}

// Match reports whether the row passes.
func (f Filter) Match(r Row) bool {
	for i := range f.terms {
		t := &f.terms[i]
		if t.holds(r) == t.negated {
			return false
		}
	}
	return true
}

func (t *term) holds(r Row) bool {
	if t.field == "" {
		return slices.ContainsFunc(r.Words(), func(word string) bool {
			word = strings.ToLower(word)
			return t.whole && strings.Contains(word, t.parts[0]) || !t.whole && t.like(word)
		})
	}
	return slices.ContainsFunc(r.Values(t.field), func(value string) bool { return t.like(strings.ToLower(value)) })
}

// like compares a whole value with the parts between asterisks.
func (t *term) like(value string) bool {
	if t.whole {
		return value == t.parts[0]
	}
	last := len(t.parts) - 1
	if !strings.HasPrefix(value, t.parts[0]) {
		return false
	}
	value = value[len(t.parts[0]):]
	for _, part := range t.parts[1:last] {
		at := strings.Index(value, part)
		if at < 0 {
			return false
		}
		value = value[at+len(part):]
	}
	return strings.HasSuffix(value, t.parts[last])
}
