package nomadrows

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"corbel.dev/corbel/kit/errkind"
)

// Filter is a compiled expression of the parameter filter: comparisons of the fields of an object as it is sent,
// joined by and, or, not and parentheses.
//
//	JobID == "web" and not (ClientStatus in ["x"]) or "blue" in Tags or Meta.team matches "^a" or Reason is empty
//
// A field that the object does not have is empty text.
type Filter struct{ test test }

type test func(object any) bool

// What an expression may be: it is evaluated for each object of a list.
const (
	maxFilterBytes = 4 << 10
	maxFilterDepth = 32
)

// CompileFilter reads an expression. The error is Invalid and says where.
func CompileFilter(text string) (*Filter, error) {
	if len(text) > maxFilterBytes {
		return nil, errkind.Errorf(errkind.Invalid, "the filter has %d bytes: at most %d", len(text), maxFilterBytes)
	}
	p := &filterParser{}
	if err := p.split(text); err != nil {
		return nil, err
	}
	t, err := p.or(0)
	if err == nil && p.at < len(p.words) {
		err = p.wrong("and, or, or the end")
	}
	if err != nil {
		return nil, err
	}
	return &Filter{t}, nil
}

// Match reports whether an object (decoded JSON) passes.
func (f *Filter) Match(object any) bool { return f.test(object) }

type word struct {
	text   string
	quoted bool
	offset int
}

type filterParser struct {
	words []word
	at    int
}

// split finds the words of text.
func (p *filterParser) split(text string) error {
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case unicode.IsSpace(rune(c)):
			i++
		case c == '"' || c == '`':
			end := closing(text, i)
			if end < 0 {
				return errkind.Errorf(errkind.Invalid, "column %d: the text has no end", i+1)
			}
			value := text[i+1 : end]
			if c == '"' {
				value = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(value)
			}
			p.words = append(p.words, word{value, true, i})
			i = end + 1
		case strings.HasPrefix(text[i:], "==") || strings.HasPrefix(text[i:], "!="):
			p.words = append(p.words, word{text[i : i+2], false, i})
			i += 2
		case c == '(' || c == ')':
			p.words = append(p.words, word{text[i : i+1], false, i})
			i++
		default:
			end := i
			for end < len(text) && !unicode.IsSpace(rune(text[end])) && !strings.ContainsRune("()\"`=!", rune(text[end])) {
				end++
			}
			if end == i {
				return errkind.Errorf(errkind.Invalid, "column %d: %q is not understood", i+1, text[i:i+1])
			}
			p.words = append(p.words, word{text[i:end], false, i})
			i = end
		}
	}
	return nil
}

// closing is where the text that begins at i ends.
func closing(text string, i int) int {
	for end := i + 1; end < len(text); end++ {
		switch {
		case text[i] == '"' && text[end] == '\\':
			end++
		case text[end] == text[i]:
			return end
		}
	}
	return -1
}

func (p *filterParser) wrong(want string) error {
	if p.at >= len(p.words) {
		return errkind.Errorf(errkind.Invalid, "the filter ends where it wants %s", want)
	}
	w := p.words[p.at]
	return errkind.Errorf(errkind.Invalid, "column %d: %q stands where the filter wants %s", w.offset+1, w.text, want)
}

// take goes past a word that is not quoted.
func (p *filterParser) take(text string) bool {
	if p.at < len(p.words) && !p.words[p.at].quoted && p.words[p.at].text == text {
		p.at++
		return true
	}
	return false
}

func (p *filterParser) or(depth int) (test, error) {
	left, err := p.and(depth)
	for err == nil && p.take("or") {
		before := left
		var right test
		if right, err = p.and(depth); err == nil {
			left = func(o any) bool { return before(o) || right(o) }
		}
	}
	return left, err
}

func (p *filterParser) and(depth int) (test, error) {
	left, err := p.not(depth)
	for err == nil && p.take("and") {
		before := left
		var right test
		if right, err = p.not(depth); err == nil {
			left = func(o any) bool { return before(o) && right(o) }
		}
	}
	return left, err
}

func (p *filterParser) not(depth int) (test, error) {
	if depth > maxFilterDepth {
		return nil, errkind.Errorf(errkind.Invalid, "the filter nests deeper than %d levels", maxFilterDepth)
	}
	if p.take("not") {
		t, err := p.not(depth + 1)
		return func(o any) bool { return !t(o) }, err
	}
	if p.take("(") {
		t, err := p.or(depth + 1)
		if err == nil && !p.take(")") {
			err = p.wrong(")")
		}
		return t, err
	}
	return p.comparison()
}

// value takes a word as it is.
func (p *filterParser) value(want string) (word, error) {
	if p.at >= len(p.words) || !p.words[p.at].quoted && strings.ContainsAny(p.words[p.at].text, "()") {
		return word{}, p.wrong(want)
	}
	p.at++
	return p.words[p.at-1], nil
}

func (p *filterParser) comparison() (test, error) {
	left, err := p.value("a field or a value")
	if err != nil {
		return nil, err
	}
	negate := p.take("not") // as in: not in, not contains
	switch {
	case p.take("=="):
		return p.with(func(field, value any) bool { return textOf(field) == textOf(value) }, left, negate)
	case p.take("!="):
		return p.with(func(field, value any) bool { return textOf(field) == textOf(value) }, left, !negate)
	case p.take("contains"):
		return p.with(has, left, negate)
	case p.take("matches"):
		return p.matches(left, negate)
	case p.take("in"):
		field, err := p.value("a field")
		value := left.text
		return func(o any) bool { return has(lookup(o, field.text), value) != negate }, err
	case p.take("is"):
		negate = p.take("not")
		if !p.take("empty") {
			return nil, p.wrong("empty")
		}
		return func(o any) bool { return empty(lookup(o, left.text)) != negate }, nil
	}
	return nil, p.wrong("==, !=, in, contains, matches or is empty")
}

func (p *filterParser) with(compare func(field, value any) bool, field word, negate bool) (test, error) {
	value, err := p.value("a value")
	return func(o any) bool { return compare(lookup(o, field.text), value.text) != negate }, err
}

func (p *filterParser) matches(field word, negate bool) (test, error) {
	value, err := p.value("an expression")
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile(value.text)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	return func(o any) bool { return re.MatchString(textOf(lookup(o, field.text))) != negate }, nil
}

// lookup finds a field by its path.
func lookup(o any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, ok := o.(map[string]any)
		if !ok {
			return nil
		}
		o = m[name]
	}
	return o
}

func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

func empty(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return textOf(v) == ""
}

// has reports whether a list or text has a value, or a map a key.
func has(field, value any) bool {
	want := textOf(value)
	switch f := field.(type) {
	case []any:
		for _, v := range f {
			if textOf(v) == want {
				return true
			}
		}
		return false
	case map[string]any:
		_, ok := f[want]
		return ok
	}
	return strings.Contains(textOf(field), want)
}
