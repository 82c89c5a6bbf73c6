package filter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of an expression.
const (
	MaxBytes = 8 << 10
	MaxDepth = 64
	MaxTerms = 512
)

type operator uint8

const (
	opEqual operator = iota
	opNotEqual
	opEmpty
	opNotEmpty
	opIn // value in selector, selector contains value
	opNotIn
	opMatches
	opNotMatches
)

type nodeKind uint8

const (
	nodeMatch nodeKind = iota
	nodeAnd
	nodeOr
	nodeNot
	nodeAny // right holds for an element of selector
	nodeAll // right holds for each element of selector
)

// node is one node of the parsed expression.
type node struct {
	kind        nodeKind
	left, right *node
	selector    []string
	op          operator
	value       string
	bound       binding // nodeAny, nodeAll
}

// binding names what a quantifier's inner expression may speak of; "" is not bound. one is
// an element of a list, or a key of a map.
type binding struct{ one, key, value string }

type parser struct {
	text  string
	at    int
	depth int
	terms int
}

func parse(text string) (*node, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("expression is longer than %d bytes", MaxBytes)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("invalid encoding")
	}
	p := &parser{text: text}
	p.space()
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at < len(p.text) {
		return nil, p.errorf("no match found, expected an operator or the end")
	}
	return n, nil
}

func (p *parser) errorf(format string, args ...any) error {
	line := 1 + strings.Count(p.text[:p.at], "\n")
	col := p.at - strings.LastIndexByte(p.text[:p.at], '\n')
	return fmt.Errorf("%d:%d (%d): %s", line, col, p.at, fmt.Sprintf(format, args...))
}

// space skips white space and reports whether there was any.
func (p *parser) space() bool {
	from := p.at
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	return p.at > from
}

// word takes a keyword that white space (or the end) follows, after white space.
func (p *parser) word(words ...string) bool {
	from := p.at
	for i, w := range words {
		if i > 0 && !p.space() {
			p.at = from
			return false
		}
		if !strings.HasPrefix(p.text[p.at:], w) {
			p.at = from
			return false
		}
		p.at += len(w)
	}
	return true
}

// infix takes white space, words, white space.
func (p *parser) infix(words ...string) bool {
	from := p.at
	if p.space() && p.word(words...) && p.space() {
		return true
	}
	p.at = from
	return false
}

func (p *parser) deeper() error {
	if p.depth++; p.depth > MaxDepth {
		return p.errorf("expression nests deeper than %d levels", MaxDepth)
	}
	return nil
}

// or takes operands of "or". A quantifier stands alone or last, as in the reference.
func (p *parser) or() (*node, error) {
	if n, err := p.quantifier(); n != nil || err != nil {
		return n, err
	}
	left, err := p.and()
	if err != nil {
		return nil, err
	}
	for p.infix("or") {
		right, err := p.quantifier()
		last := right != nil
		if right == nil && err == nil {
			right, err = p.and()
		}
		if err != nil {
			return nil, err
		}
		if left = (&node{kind: nodeOr, left: left, right: right}); last {
			break
		}
	}
	return left, nil
}

// quantifier takes `any Tags as t { t == v1 }`; nil without an error when none begins here.
func (p *parser) quantifier() (*node, error) {
	from := p.at
	n := &node{kind: nodeAny}
	switch {
	case p.word("any"):
	case p.word("all"):
		n.kind = nodeAll
	default:
		return nil, nil
	}
	ok := p.space()
	if ok {
		var err error
		n.selector, err = p.selectorOrPointer()
		ok = err == nil && p.infix("as") && p.binding(&n.bound)
		p.space()
	}
	if !ok || p.at >= len(p.text) || p.text[p.at] != '{' {
		p.at = from // a field may be called any
		return nil, nil
	}
	if n.bound.key != "" && n.bound.key == n.bound.value {
		return nil, p.errorf("%q cannot be used as a placeholder for both the index and the value", n.bound.key)
	}
	p.at++
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	p.space()
	var err error
	if n.right, err = p.or(); err != nil {
		return nil, err
	}
	p.space()
	if p.at >= len(p.text) || p.text[p.at] != '}' {
		return nil, p.errorf("Unmatched braces")
	}
	p.at++
	return n, nil
}

// binding takes "x", "k, v", "k, _" or "_, v".
func (p *parser) binding(b *binding) bool {
	name := func(blank bool) (string, bool) {
		if blank && p.word("_") {
			return "", true
		}
		return p.identifier()
	}
	first, ok := name(true)
	if !ok {
		return false
	}
	from := p.at
	p.space()
	if p.at >= len(p.text) || p.text[p.at] != ',' {
		p.at = from
		b.one = first
		return first != ""
	}
	p.at++
	p.space()
	b.key = first
	b.value, ok = name(first != "")
	return ok
}

func (p *parser) and() (*node, error) { return p.binary(nodeAnd, "and", p.not) }

func (p *parser) binary(kind nodeKind, word string, operand func() (*node, error)) (*node, error) {
	left, err := operand()
	if err != nil {
		return nil, err
	}
	for p.infix(word) {
		right, err := operand()
		if err != nil {
			return nil, err
		}
		left = &node{kind: kind, left: left, right: right}
	}
	return left, nil
}

func (p *parser) not() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	from := p.at
	if p.word("not") && p.space() {
		if n, err := p.not(); err == nil {
			return &node{kind: nodeNot, left: n}, nil
		} else if p.depth >= MaxDepth {
			return nil, err
		}
	}
	p.at = from
	if p.at < len(p.text) && p.text[p.at] == '(' {
		p.at++
		p.space()
		n, err := p.or()
		if err != nil {
			return nil, err
		}
		p.space()
		if p.at >= len(p.text) || p.text[p.at] != ')' {
			return nil, p.errorf("Unmatched parentheses")
		}
		p.at++
		return n, nil
	}
	return p.match()
}

// match takes one comparison.
func (p *parser) match() (*node, error) {
	if p.terms++; p.terms > MaxTerms {
		return nil, p.errorf("expression has more than %d terms", MaxTerms)
	}
	from := p.at
	if selector, err := p.selectorOrPointer(); err == nil {
		n, err := p.afterSelector(selector)
		if n != nil || err != nil {
			return n, err
		}
	}
	p.at = from
	value, err := p.value()
	if err != nil {
		return nil, err
	}
	n := &node{value: value, op: opIn}
	switch {
	case p.infix("in"):
	case p.infix("not", "in"):
		n.op = opNotIn
	default:
		return nil, p.errorf("no match found, expected an operator")
	}
	if n.selector, err = p.selectorOrPointer(); err != nil {
		return nil, p.errorf("Invalid selector")
	}
	return n, nil
}

// afterSelector takes the operator and the value; nil without an error when no operator follows.
func (p *parser) afterSelector(selector []string) (*node, error) {
	n := &node{selector: selector}
	from := p.at
	switch {
	case p.symbol("=="):
		n.op = opEqual
	case p.symbol("!="):
		n.op = opNotEqual
	case p.infix("contains"):
		n.op = opIn
	case p.infix("not", "contains"):
		n.op = opNotIn
	case p.infix("matches"):
		n.op = opMatches
	case p.infix("not", "matches"):
		n.op = opNotMatches
	case p.space() && p.word("is", "not", "empty"):
		n.op = opNotEmpty
		return n, nil
	default:
		p.at = from
		if p.space() && p.word("is", "empty") {
			n.op = opEmpty
			return n, nil
		}
		p.at = from
		return nil, nil
	}
	var err error
	n.value, err = p.value()
	return n, err
}

func (p *parser) symbol(s string) bool {
	from := p.at
	p.space()
	if !strings.HasPrefix(p.text[p.at:], s) {
		p.at = from
		return false
	}
	p.at += len(s)
	p.space()
	return true
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

func (p *parser) identifier() (string, bool) {
	from := p.at
	if p.at >= len(p.text) || !letter(p.text[p.at]) {
		return "", false
	}
	for p.at < len(p.text) {
		c := p.text[p.at]
		if !letter(c) && !digit(c) && c != '_' && c != '/' {
			break
		}
		p.at++
	}
	return p.text[from:p.at], true
}

// selector takes names joined by dots, with ["any key"] for other names.
func (p *parser) selector() ([]string, error) {
	first, ok := p.identifier()
	if !ok {
		return nil, p.errorf("no match found, expected a selector")
	}
	path := []string{first}
	for p.at < len(p.text) {
		from := p.at
		switch p.text[p.at] {
		case '.':
			p.at++
			if name, ok := p.identifier(); ok {
				path = append(path, name)
				continue
			}
			digits := p.at
			for p.at < len(p.text) && digit(p.text[p.at]) {
				p.at++
			}
			if p.at == digits {
				p.at = from
				return path, nil
			}
			path = append(path, p.text[digits:p.at])
		case '[':
			p.at++
			p.space()
			key, err := p.quoted()
			if err != nil {
				return nil, p.errorf("Invalid index")
			}
			p.space()
			if p.at >= len(p.text) || p.text[p.at] != ']' {
				return nil, p.errorf("Unclosed index expression")
			}
			p.at++
			path = append(path, key)
		default:
			return path, nil
		}
	}
	return path, nil
}

// selectorOrPointer takes a selector, or a JSON pointer in double quotes: "/Meta/env".
func (p *parser) selectorOrPointer() ([]string, error) {
	if !strings.HasPrefix(p.text[p.at:], `"/`) {
		return p.selector()
	}
	end := strings.IndexByte(p.text[p.at+1:], '"')
	if end < 0 {
		return nil, p.errorf("Unterminated string literal")
	}
	parts := strings.Split(p.text[p.at+2:p.at+1+end], "/")
	for i, part := range parts {
		if part == "" || strings.ContainsFunc(part, notInPointer) {
			return nil, p.errorf("no match found, expected a selector")
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	p.at += end + 2
	return parts, nil
}

func notInPointer(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune("-_.~:|", r)
}

// value takes a bare word (a selector's text), a number or a string.
func (p *parser) value() (string, error) {
	from := p.at
	if path, err := p.selector(); err == nil {
		return strings.Join(path, "."), nil
	}
	p.at = from
	if p.at < len(p.text) && (p.text[p.at] == '-' || digit(p.text[p.at])) {
		return p.number()
	}
	return p.quoted()
}

func (p *parser) number() (string, error) {
	from := p.at
	if p.text[p.at] == '-' {
		p.at++
	}
	whole := p.at
	p.digits()
	if p.at == whole || (p.at-whole > 1 && p.text[whole] == '0') {
		return "", p.errorf("Invalid number literal")
	}
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		fraction := p.at
		if p.digits(); p.at == fraction {
			return "", p.errorf("Invalid number literal")
		}
	}
	if p.at < len(p.text) && strings.IndexByte(" \t\r\n)", p.text[p.at]) < 0 {
		return "", p.errorf("Invalid number literal")
	}
	return p.text[from:p.at], nil
}

func (p *parser) digits() {
	for p.at < len(p.text) && digit(p.text[p.at]) {
		p.at++
	}
}

// quoted takes a string in double quotes (with escapes, and no quote inside) or back quotes.
func (p *parser) quoted() (string, error) {
	if p.at >= len(p.text) || (p.text[p.at] != '"' && p.text[p.at] != '`') {
		return "", p.errorf("no match found, expected a value")
	}
	end := strings.IndexByte(p.text[p.at+1:], p.text[p.at])
	if end < 0 {
		return "", p.errorf("Unterminated string literal")
	}
	literal := p.text[p.at : p.at+end+2]
	s, err := strconv.Unquote(literal)
	if err != nil {
		return "", p.errorf("Invalid string literal")
	}
	p.at += len(literal)
	return s, nil
}
