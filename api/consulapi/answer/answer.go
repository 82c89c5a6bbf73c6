// Package answer writes what the contract's clients read: catalog objects as JSON, and errors as a status with a
// text. Its functions append to a buffer and keep nothing, so that both paths to the API (net/http and hothttp)
// share them; what they write is byte for byte what encoding/json would, which tests compare.
package answer

import (
	"bytes"
	"encoding/json"
)

// CloseObject ends an object whose members were each followed by a comma.
func CloseObject(b []byte) []byte {
	if b[len(b)-1] == ',' {
		b[len(b)-1] = '}'
		return b
	}
	return append(b, '}')
}

// Indent lays JSON out over lines by four spaces; what is no JSON stays as it is.
func Indent(body []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, body, "", "    ") != nil {
		return body
	}
	return out.Bytes()
}

// List builds a JSON list.
type List struct {
	Bytes []byte
	begun bool
}

// Next appends what comes before the next element.
func (l *List) Next() []byte {
	if l.begun {
		return append(l.Bytes, ',')
	}
	l.begun = true
	return append(l.Bytes, '[')
}

// End ends the list and returns all of it; an empty one is [].
func (l *List) End() []byte {
	if !l.begun {
		l.Bytes = append(l.Bytes, '[')
	}
	return append(l.Bytes, ']')
}
