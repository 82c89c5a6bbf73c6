package agentconfig

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/nearest"
)

// reader fills a Config and collects what is wrong.
type reader struct {
	role  Role
	cfg   *Config
	file  string
	wrong []error
}

// value is what stands at a key.
type value struct {
	r     *reader
	path  string // of the key, as auto_auth.method.type
	label string
	line  int
	*node
}

func (v value) fail(format string, args ...any) {
	v.r.wrong = append(v.r.wrong, fmt.Errorf("%s:%d: %s: %s", v.r.file, v.line, v.path, fmt.Sprintf(format, args...)))
}

func (v value) wants(what string) {
	got := v.kind.String()
	if v.kind < isList {
		got = strconv.Quote(v.text)
	}
	v.fail("must be %s, not %s", what, got)
}

// fields are the keys of a block and what is done with each.
type fields map[string]func(v value)

// walk takes the keys of a block; one that it does not have is told.
func (v value) walk(known fields) {
	prefix := ""
	if v.path != "" {
		prefix = v.path + "."
	}
	for _, e := range v.entries {
		key := strings.ToLower(e.key)
		one := value{r: v.r, path: prefix + key, label: e.label, line: e.line, node: e.value}
		take, ok := known[key]
		if !ok {
			one.path = prefix + e.key
			one.fail("there is no such key%s", nearest.Hint(e.key, slices.Values(slices.Sorted(maps.Keys(known)))))
			continue
		}
		take(one)
	}
}

// block is a value that holds keys, once; lists of one are taken for it, as JSON's users write them.
func block(f func(v value)) func(v value) {
	return func(v value) {
		switch {
		case v.kind == isObject:
			f(v)
		case v.kind == isList && len(v.items) == 1 && v.items[0].kind == isObject:
			v.node = v.items[0]
			f(v)
		default:
			v.wants("one block")
		}
	}
}

// blocks is a value that may stand several times.
func blocks(f func(v value)) func(v value) {
	return func(v value) {
		switch v.kind {
		case isObject:
			f(v)
		case isList:
			for _, item := range v.items {
				one := v
				one.node, one.line = item, item.line
				if item.kind != isObject {
					one.wants("a block")
					continue
				}
				f(one)
			}
		default:
			v.wants("a block")
		}
	}
}

// labelled are blocks with a label, which JSON's users write as a key of its own or as the key type.
func labelled(typeKey string, f func(v value)) func(v value) {
	return blocks(func(v value) {
		if v.label == "" && typeKey != "" {
			for _, e := range v.entries {
				if strings.EqualFold(e.key, typeKey) && e.value.kind == isText {
					v.label = e.value.text
				}
			}
		}
		if v.label != "" {
			f(v)
			return
		}
		for _, e := range v.entries {
			inner := value{r: v.r, path: v.path, label: e.key, line: e.line, node: e.value}
			blocks(f)(inner)
		}
		if len(v.entries) == 0 {
			v.fail("which one? As in %s \"NAME\" { ... }", lastWord(v.path))
		}
	})
}

func lastWord(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func text(dst *string) func(v value) {
	return func(v value) {
		if v.kind != isText {
			v.wants("a text")
			return
		}
		*dst = v.text
	}
}

// among is a text that is one of few.
func among(dst *string, words ...string) func(v value) {
	return func(v value) {
		word := strings.ToLower(v.text)
		if v.kind > isTruth || !slices.Contains(words, word) {
			v.wants(strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1])
			return
		}
		*dst = word
	}
}

func truth(dst *bool) func(v value) {
	return func(v value) {
		b, err := strconv.ParseBool(v.text)
		if v.kind > isTruth || err != nil {
			v.wants("true or false")
			return
		}
		*dst = b
	}
}

func whole(dst *int, low int) func(v value) {
	return func(v value) {
		n, err := strconv.ParseInt(v.text, 0, 32)
		if v.kind > isNumber || err != nil || int(n) < low {
			v.wants(fmt.Sprintf("a whole number, %d or more", low))
			return
		}
		*dst = int(n)
	}
}

func share(dst *float64) func(v value) {
	return func(v value) {
		f, err := strconv.ParseFloat(v.text, 64)
		if v.kind > isNumber || err != nil || !(f > 0 && f <= 1) {
			v.wants("a number above 0, at most 1")
			return
		}
		*dst = f
	}
}

// longest bounds durations: ten years.
const longest = 10 * 365 * 24 * time.Hour

// duration is "90s", "2d" or a number of seconds.
func duration(dst *time.Duration) func(v value) {
	return func(v value) {
		d, ok := parseDuration(v.text)
		if v.kind > isNumber || !ok {
			v.wants(`a duration such as "30s", or seconds`)
			return
		}
		*dst = d
	}
}

func parseDuration(s string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			d := time.Duration(n) * 24 * time.Hour
			return d, d <= longest
		}
	}
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		d := time.Duration(n) * time.Second
		return d, d <= longest
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0 && d <= longest
}

// mode are the rights of a file, in octal: "0640" or 0640.
func mode(dst *fs.FileMode) func(v value) {
	return func(v value) {
		base := 8
		if v.kind == isNumber && !strings.HasPrefix(v.text, "0") {
			base = 10 // JSON has no octal numbers: 416 is 0640
		}
		n, err := strconv.ParseUint(v.text, base, 32)
		if v.kind > isNumber || err != nil || n > 0o777 {
			v.wants(`the rights of a file in octal, such as "0640"`)
			return
		}
		*dst = fs.FileMode(n)
	}
}

// words are a list of texts, or one text.
func words(dst *[]string) func(v value) {
	return func(v value) {
		var list []string
		switch v.kind {
		case isText:
			list = []string{v.text}
		case isList:
			for _, item := range v.items {
				if item.kind != isText {
					v.wants("a list of texts")
					return
				}
				list = append(list, item.text)
			}
		default:
			v.wants("a list of texts")
			return
		}
		*dst = list
	}
}

// refused is a key that is understood and not built.
func refused(why string) func(v value) { return func(v value) { v.fail("%s", why) } }

// unless passes over a key that is off, and refuses it otherwise.
func unless(why string) func(v value) {
	return func(v value) {
		if v.kind == isTruth && v.text == "false" || v.kind == isText && (v.text == "" || v.text == "false") {
			return
		}
		v.fail("%s", why)
	}
}

// ignored is accepted without effect, and said to be.
func ignored(why string) func(v value) {
	return func(v value) {
		v.r.cfg.Warnings = append(v.r.cfg.Warnings, fmt.Sprintf("%s:%d: %s: %s", v.r.file, v.line, v.path, why))
	}
}

func silently(value) {}
