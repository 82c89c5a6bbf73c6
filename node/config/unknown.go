package config

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/nearest"
)

// unknown reports a key that there is none of: where it stands, and what was perhaps meant.
func (l *loader) unknown(path, from string) {
	if n := lineOf(l.text, path); n > 0 {
		from = fmt.Sprintf("%s:%d", from, n)
	}
	l.fail(fmt.Sprintf("%s: invalid config key %s%s", from, path, l.meant(path)))
}

// meant looks among the keys and sections beside path first, then among all: a key in the wrong section is common.
func (l *loader) meant(path string) string {
	prefix, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		prefix, name = path[:i+1], path[i+1:]
	}
	beside := func(yield func(string) bool) {
		known := slices.Concat(slices.Sorted(maps.Keys(l.schema.sections)), slices.Sorted(maps.Keys(l.schema.keys)))
		for _, k := range known {
			last, ok := strings.CutPrefix(k, prefix)
			if ok && !strings.Contains(last, ".") && !yield(last) {
				return
			}
		}
	}
	if near := nearest.To(name, beside); near != "" {
		return "; did you mean " + prefix + near + "?"
	}
	for _, known := range slices.Sorted(maps.Keys(l.schema.keys)) {
		if strings.HasSuffix(known, "."+name) {
			return "; did you mean " + known + "?"
		}
	}
	return ""
}

// lineOf finds the line of a path in a text: each name after the one before it. 0 when it is not there, as where the
// text is no file's.
func lineOf(text []byte, path string) int {
	lower, at := bytes.ToLower(text), 0
	for name := range strings.SplitSeq(path, ".") {
		next := wordAfter(lower, at, name)
		if next < 0 {
			return 0
		}
		at = next
	}
	if len(text) == 0 {
		return 0
	}
	return 1 + bytes.Count(lower[:at-1], []byte("\n"))
}

// wordAfter is where word ends for the first time behind at, as a name of its own and in no comment; -1: nowhere.
func wordAfter(text []byte, at int, word string) int {
	for {
		i := bytes.Index(text[at:], []byte(word))
		if i < 0 {
			return -1
		}
		begin := at + i
		at = begin + len(word)
		line := text[bytes.LastIndexByte(text[:begin], '\n')+1 : begin]
		comment := bytes.IndexByte(line, '#') >= 0 || bytes.Contains(line, []byte("//"))
		if !comment && (begin == 0 || !nameByte(text[begin-1])) && (at == len(text) || !nameByte(text[at])) {
			return at
		}
	}
}

func nameByte(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}
