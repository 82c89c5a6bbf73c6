package expression

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Compile reads an expression; ok is false when it is not of the common form, whatever else it may be.
func Compile(source string) (e *Expression, ok bool) {
	tokens, ok := scan(source)
	if !ok || len(tokens) == 0 {
		return nil, false
	}
	p := parser{tokens: tokens}
	root, ok := p.or()
	if !ok || p.at < len(p.tokens) {
		return nil, false
	}
	return &Expression{root.get}, true
}

const (
	maxSource = 4096
	maxDepth  = 32
)

// token is a name, a literal or an operator.
type token struct {
	kind byte // 'n' name, '0' number, '"' text, or 'o' operator
	text string
	n    float64
}

var operators = []string{"===", "!==", "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "(", ")", "[", "]", ".", "%"}

func scan(s string) (out []token, ok bool) {
	if len(s) > maxSource {
		return nil, false
	}
next:
	for s != "" {
		switch c := s[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			s = s[1:]
			continue
		case letter(c):
			n := 1
			for n < len(s) && (letter(s[n]) || digit(s[n])) {
				n++
			}
			out = append(out, token{kind: 'n', text: s[:n]})
			s = s[n:]
			continue
		case digit(c):
			t, n, ok := scanNumber(s)
			if !ok {
				return nil, false
			}
			out = append(out, t)
			s = s[n:]
			continue
		case c == '"' || c == '\'':
			n := strings.IndexByte(s[1:], c)
			if n < 0 || strings.ContainsAny(s[1:1+n], "\\\n\r\u2028\u2029") {
				return nil, false
			}
			for _, r := range s[1 : 1+n] {
				if r == '\uFFFD' { // no text of UTF-8, perhaps
					return nil, false
				}
			}
			out = append(out, token{kind: '"', text: s[1 : 1+n]})
			s = s[n+2:]
			continue
		}
		for _, op := range operators {
			if strings.HasPrefix(s, op) {
				out = append(out, token{kind: 'o', text: op})
				s = s[len(op):]
				continue next
			}
		}
		if s == ";" { // an expression statement
			return out, true
		}
		return nil, false
	}
	return out, true
}

// scanNumber reads a plain decimal number.
func scanNumber(s string) (t token, n int, ok bool) {
	for n < len(s) && (digit(s[n]) || s[n] == '.') {
		n++
	}
	if n < len(s) && letter(s[n]) || n > 15 || n > 1 && s[0] == '0' && s[1] != '.' || s[n-1] == '.' {
		return t, 0, false // other bases, exponents, more digits than there are, octal
	}
	v, err := strconv.ParseFloat(s[:n], 64)
	return token{kind: '0', n: v}, n, err == nil
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$' }

func digit(c byte) bool { return '0' <= c && c <= '9' }

type parser struct {
	tokens []token
	at     int
	depth  int
}

// part is a compiled part; mixed is the kind of one that may be several kinds, as && and || give.
type part struct {
	kind
	get node
}

const mixed kind = 255

func (p *parser) is(op string) bool {
	if p.at < len(p.tokens) && p.tokens[p.at].kind == 'o' && p.tokens[p.at].text == op {
		p.at++
		return true
	}
	return false
}

func (p *parser) or() (part, bool) {
	return p.chain("||", (*parser).and, func(v value) bool { return v.truth() })
}

func (p *parser) and() (part, bool) {
	return p.chain("&&", (*parser).comparison, func(v value) bool { return !v.truth() })
}

// chain reads parts joined by an operator whose value is the first part for which stops, or the last one.
func (p *parser) chain(op string, sub func(*parser) (part, bool), stops func(value) bool) (part, bool) {
	first, ok := sub(p)
	if !ok {
		return first, false
	}
	parts := []node{first.get}
	for p.is(op) {
		next, ok := sub(p)
		if !ok {
			return next, false
		}
		parts = append(parts, next.get)
	}
	if len(parts) == 1 {
		return first, true
	}
	return part{kind: mixed, get: func(s *Subject) (v value) {
		for _, get := range parts {
			if v = get(s); v.kind == thrown || stops(v) {
				return v
			}
		}
		return v
	}}, true
}

func (p *parser) comparison() (part, bool) {
	a, ok := p.operand()
	if !ok {
		return a, false
	}
	for _, op := range []string{"===", "!==", "==", "!=", "<=", ">=", "<", ">"} {
		if !p.is(op) {
			continue
		}
		b, ok := p.operand()
		if !ok {
			return b, false
		}
		for _, again := range []string{"===", "!==", "==", "!=", "<=", ">=", "<", ">"} {
			if p.is(again) { // a == b == c compares a condition
				return a, false
			}
		}
		return compare(a, b, op)
	}
	return a, true
}

// compare makes a comparison of two parts whose kinds go together without being converted.
func compare(a, b part, op string) (part, bool) {
	if a.kind == mixed || b.kind == mixed {
		return part{}, false
	}
	var holds func(a, b value) bool
	switch op {
	case "==", "===":
		holds = func(a, b value) bool { return equal(a, b, op == "===") }
	case "!=", "!==":
		holds = func(a, b value) bool { return !equal(a, b, op == "!==") }
	default:
		if a.kind != number || b.kind != number {
			return part{}, false
		}
		holds = func(x, y value) bool {
			l, r := x.float(), y.float()
			switch op {
			case "<":
				return l < r
			case "<=":
				return l <= r
			case ">":
				return l > r
			}
			return l >= r
		}
	}
	if a.kind != b.kind && a.kind > null && b.kind > null {
		return part{}, false
	}
	x, y := a.get, b.get
	return part{kind: boolean, get: func(s *Subject) value {
		l := x(s)
		if l.kind == thrown {
			return l
		}
		r := y(s)
		if r.kind == thrown {
			return r
		}
		return truthOf(holds(l, r))
	}}, true
}

// float is the number that undefined becomes, too.
func (v value) float() float64 {
	if v.kind == number {
		return v.n
	}
	return math.NaN()
}

func (p *parser) operand() (part, bool) {
	a, ok := p.unary()
	if !ok || !p.is("%") {
		return a, ok
	}
	b, ok := p.unary()
	if !ok || a.kind != number || b.kind != number || p.is("%") {
		return b, false
	}
	x, y := a.get, b.get
	return part{kind: number, get: func(s *Subject) value {
		l, r := x(s), y(s)
		if l.kind == thrown {
			return l
		}
		if r.kind == thrown {
			return r
		}
		return numberOf(math.Mod(l.float(), r.float()))
	}}, true
}

func (p *parser) unary() (part, bool) {
	if p.depth++; p.depth > maxDepth {
		return part{}, false
	}
	defer func() { p.depth-- }()
	switch {
	case p.is("!"):
		a, ok := p.unary()
		if !ok {
			return a, false
		}
		get := a.get
		return part{kind: boolean, get: func(s *Subject) value {
			v := get(s)
			if v.kind == thrown {
				return v
			}
			return truthOf(!v.truth())
		}}, true
	case p.is("("):
		a, ok := p.or()
		return a, ok && p.is(")")
	case p.at == len(p.tokens):
		return part{}, false
	}
	t := p.tokens[p.at]
	p.at++
	switch t.kind {
	case '0':
		return constant(numberOf(t.n)), true
	case '"':
		return constant(textOf(t.text)), true
	case 'n':
		return p.named(t.text)
	}
	return part{}, false
}

func constant(v value) part { return part{kind: v.kind, get: func(*Subject) value { return v }} }

// named reads a constant or the path of a field.
func (p *parser) named(name string) (part, bool) {
	switch name {
	case "true", "false":
		return constant(truthOf(name == "true")), true
	case "undefined":
		return constant(value{}), true
	case "null":
		return constant(value{kind: null}), true
	case "event":
	default:
		return part{}, false
	}
	var path []string
	for {
		switch {
		case p.is("."):
			if p.at == len(p.tokens) || p.tokens[p.at].kind != 'n' {
				return part{}, false
			}
		case p.is("["):
			if p.at+1 >= len(p.tokens) || p.tokens[p.at].kind != '"' || p.tokens[p.at+1].kind != 'o' ||
				p.tokens[p.at+1].text != "]" {
				return part{}, false
			}
			path = append(path, p.tokens[p.at].text)
			p.at += 2
			continue
		default:
			f, ok := lookUp(path)
			return part{kind: f.kind, get: f.get}, ok
		}
		path = append(path, p.tokens[p.at].text)
		p.at++
	}
}

func lookUp(path []string) (field, bool) {
	if len(path) > 1 && path[1] == "metadata" && (path[0] == "check" || path[0] == "entity") {
		if len(path) < 3 || (path[2] != "labels" && path[2] != "annotations" && path[2] != "name" && path[2] != "namespace") {
			return field{}, false
		}
		path = append([]string{path[0]}, path[2:]...)
	}
	if len(path) == 3 && (path[1] == "labels" || path[1] == "annotations") {
		return pair("event."+path[0], path[1], path[2])
	}
	if slices.ContainsFunc(path, func(name string) bool { return strings.Contains(name, ".") }) {
		return field{}, false
	}
	f, ok := fields["event."+strings.Join(path, ".")]
	return f, ok
}
