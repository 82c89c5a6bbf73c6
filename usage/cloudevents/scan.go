package cloudevents

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

var (
	errSyntax = errors.New("is no JSON")
	errDeep   = errors.New("is nested too deep")
)

// maxDepth bounds how deep values may be nested.
const maxDepth = 32

// scanner reads JSON from a text without copying it: strings without escapes share its memory.
type scanner struct {
	text string
	at   int
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek is the next byte behind space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// take steps over a byte if it is next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// value steps over one value and returns its text.
func (s *scanner) value(depth int) (string, error) {
	c := s.peek()
	from := s.at
	var err error
	switch {
	case c == '"':
		_, err = s.raw()
	case c == '{' || c == '[':
		err = s.nested(c+2, depth) // ']' and '}' are two behind
	default:
		for s.at < len(s.text) && !delimiter(s.text[s.at]) {
			s.at++
		}
		if !json.Valid([]byte(s.text[from:s.at])) {
			err = errSyntax
		}
	}
	return s.text[from:s.at], err
}

func delimiter(c byte) bool {
	switch c {
	case ',', ':', '"', '{', '}', '[', ']', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

func (s *scanner) nested(end byte, depth int) error {
	if depth == 0 {
		return errDeep
	}
	s.at++
	if s.take(end) {
		return nil
	}
	for {
		if end == '}' {
			if s.peek() != '"' {
				return errSyntax
			}
			if _, err := s.raw(); err != nil || !s.take(':') {
				return errSyntax
			}
		}
		if _, err := s.value(depth - 1); err != nil {
			return err
		}
		if s.take(end) {
			return nil
		}
		if !s.take(',') {
			return errSyntax
		}
	}
}

// raw steps over a string and returns it with its quotes.
func (s *scanner) raw() (string, error) {
	from := s.at
	escaped := false
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			text := s.text[from:s.at]
			if escaped && !json.Valid([]byte(text)) {
				return "", errSyntax
			}
			return text, nil
		case c == '\\':
			escaped = true
			s.at++
		case c < ' ':
			return "", errSyntax
		}
	}
	s.at = len(s.text)
	return "", errSyntax
}

// unquote returns what a string says. Bytes that are not UTF-8 stay as they are: who checks texts refuses them.
func unquote(raw string) string {
	inner := raw[1 : len(raw)-1]
	for i := range len(inner) {
		if inner[i] == '\\' {
			if !utf8.ValidString(inner) {
				return inner
			}
			var out string
			if json.Unmarshal([]byte(raw), &out) != nil {
				return inner // raw has found it valid
			}
			return out
		}
	}
	return inner
}

// object calls f for each member of an object that has been stepped over once, so its syntax is known to be right.
// The value is its text.
func object(text string, f func(name, value string) error) error {
	s := scanner{text: text}
	if !s.take('{') {
		return errors.New("must be an object")
	}
	for !s.take('}') {
		s.take(',')
		s.space()
		name, err := s.raw()
		if err != nil || !s.take(':') {
			return errSyntax
		}
		value, err := s.value(maxDepth)
		if err != nil {
			return err
		}
		if err := f(unquote(name), value); err != nil {
			return err
		}
	}
	return nil
}
