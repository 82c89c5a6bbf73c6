// Package selector reads the contract's selectors of labels and fields, and finds out whether something matches.
//
//	region == "us-west-1" && tier in [web, db] && name matches "api"
//	"linux" in entity.subscriptions
//
// Requirements are joined by &&; operators are ==, !=, in, notin and matches (a part of the text). Words may hold
// letters, digits and _ . - / : and begin with a letter or _; everything else stands in single or double quotes. On
// the right of in and notin is a list in brackets, or the name of something that is a list itself. What is absent
// equals nothing.
//
// A Selector is a value, and never changed once it is read.
package selector

import (
	"fmt"
	"slices"
	"strings"
)

// MaxBytes and MaxRequirements bound what Parse reads.
const (
	MaxBytes        = 16 << 10
	MaxRequirements = 64
)

// Selector is a list of requirements, all of which must hold; without any it matches everything.
type Selector struct{ requirements []requirement }

type operator uint8

const (
	equal operator = iota
	notEqual
	in
	notIn
	matches
)

var operators = map[string]operator{"==": equal, "=": equal, "!=": notEqual, "in": in, "notin": notIn,
	"matches": matches}

type requirement struct {
	name   string   // of a label or field
	op     operator // in and notIn: either name and values, or value and name
	values []string
	member bool // values[0] is looked for in the list that name is
}

// Empty reports whether the selector matches everything.
func (s Selector) Empty() bool { return len(s.requirements) == 0 }

// Names returns the labels or fields that the selector asks about.
func (s Selector) Names() (out []string) {
	for _, r := range s.requirements {
		out = append(out, r.name)
	}
	return out
}

// Matches reports whether all requirements hold; get returns the value of a label or field. Lists are joined by commas.
func (s Selector) Matches(get func(name string) (value string, ok bool)) bool {
	for _, r := range s.requirements {
		if !r.holds(get(r.name)) {
			return false
		}
	}
	return true
}

func (r *requirement) holds(value string, ok bool) bool {
	switch r.op {
	case equal:
		return ok && value == r.values[0]
	case notEqual:
		return !ok || value != r.values[0]
	case matches:
		return ok && strings.Contains(value, r.values[0])
	}
	found := ok && slices.Contains(r.values, value)
	if r.member {
		found = ok && slices.Contains(strings.Split(value, ","), r.values[0])
	}
	return found == (r.op == in)
}

// Parse reads a selector; the empty text is the one that matches everything. Errors name the place.
func Parse(text string) (Selector, error) {
	if len(text) > MaxBytes {
		return Selector{}, fmt.Errorf("a selector of %d bytes is too long", len(text))
	}
	p := parser{text: text}
	var s Selector
	p.space()
	if p.at == len(text) {
		return s, nil
	}
	for {
		if len(s.requirements) == MaxRequirements {
			return Selector{}, fmt.Errorf("a selector of more than %d requirements", MaxRequirements)
		}
		r, err := p.requirement()
		if err != nil {
			return Selector{}, err
		}
		s.requirements = append(s.requirements, r)
		p.space()
		if p.at == len(text) {
			return s, nil
		}
		if !p.skip("&&") {
			return Selector{}, p.wrong("&&")
		}
	}
}

type parser struct {
	text string
	at   int
}

func (p *parser) wrong(wanted string) error {
	if p.at >= len(p.text) {
		return fmt.Errorf("selector %q: it ends where %s is wanted", p.text, wanted)
	}
	return fmt.Errorf("selector %q: %q at %d, where %s is wanted", p.text, p.text[p.at:min(len(p.text), p.at+20)],
		p.at, wanted)
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// skip goes past a mark, and the space before it.
func (p *parser) skip(mark string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], mark) {
		return false
	}
	p.at += len(mark)
	return true
}

func (p *parser) requirement() (r requirement, err error) {
	left, leftQuoted, err := p.word("a name")
	if err != nil {
		return r, err
	}
	if r.op, err = p.operator(); err != nil {
		return r, err
	}
	if r.op != in && r.op != notIn {
		right, _, err := p.word("a value")
		r.name, r.values = left, []string{right}
		return r, err
	}
	if p.skip("[") {
		r.name = left
		r.values, err = p.list()
		return r, err
	}
	right, rightQuoted, err := p.word("a list or a name")
	if err != nil {
		return r, err
	}
	if rightQuoted && !leftQuoted { // name in "value": a list of one
		r.name, r.values = left, []string{right}
		return r, nil
	}
	r.name, r.values, r.member = right, []string{left}, true
	return r, nil
}

func (p *parser) operator() (operator, error) {
	p.space()
	for _, mark := range []string{"==", "!=", "="} {
		if p.skip(mark) {
			return operators[mark], nil
		}
	}
	start := p.at
	if word := p.bare(); word != "" {
		if op, ok := operators[word]; ok {
			return op, nil
		}
	}
	p.at = start
	return 0, p.wrong("==, !=, in, notin or matches")
}

func (p *parser) list() (out []string, err error) {
	if p.skip("]") {
		return nil, nil
	}
	for {
		word, _, err := p.word("a value")
		if err != nil {
			return nil, err
		}
		out = append(out, word)
		if p.skip("]") {
			return out, nil
		}
		if !p.skip(",") {
			return nil, p.wrong(", or ]")
		}
	}
}

// word reads a bare or a quoted word.
func (p *parser) word(wanted string) (word string, quoted bool, err error) {
	p.space()
	if p.at < len(p.text) && (p.text[p.at] == '"' || p.text[p.at] == '\'') {
		word, err = p.quoted()
		return word, true, err
	}
	if word = p.bare(); word == "" {
		return "", false, p.wrong(wanted)
	}
	return word, false, nil
}

func (p *parser) quoted() (string, error) {
	start := p.at
	quote := p.text[p.at]
	var out []byte
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == quote:
			p.at++
			return string(out), nil
		case c == '\\' && p.at+1 < len(p.text):
			p.at++
			out = append(out, p.text[p.at])
		default:
			out = append(out, c)
		}
	}
	p.at = start
	return "", p.wrong("a text with both its quotes")
}

func (p *parser) bare() string {
	start := p.at
	for ; p.at < len(p.text); p.at++ {
		c := p.text[p.at]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
		if !letter && (p.at == start || !('0' <= c && c <= '9' || strings.IndexByte(".-/:", c) >= 0)) {
			break
		}
	}
	return p.text[start:p.at]
}
