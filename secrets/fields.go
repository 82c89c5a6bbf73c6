package secrets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/nesting"
)

// Fields are the parameters of a request, read leniently as clients send them:
// numbers as strings, durations as seconds or "1h30m", lists as comma-separated
// strings, booleans as "true" (contract 1.1.15). A value of a wrong kind is
// remembered and given by Err, which names the field.
//
// The zero value has no fields. Not safe for concurrent use.
type Fields struct {
	values map[string]any
	errs   []error
}

// FieldsOf makes fields of values.
func FieldsOf(values map[string]any) Fields { return Fields{values: values} }

// The bounds of a body beside its size: how deep it may nest, and how many values it may hold. A value of
// two bytes takes some hundred once it is read, and logins are read from everybody.
const (
	maxDepth  = 64
	maxValues = 500_000
)

// manyValues reports whether a body may hold more values than it should. Short ones cannot.
func manyValues(body []byte) bool {
	if len(body) <= 2*maxValues {
		return false
	}
	n, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n > maxValues
}

// ParseFields reads a JSON object; nothing at all is an empty one.
func ParseFields(body []byte) (Fields, error) {
	f := Fields{values: map[string]any{}}
	if len(bytes.TrimSpace(body)) == 0 {
		return f, nil
	}
	if nesting.Deeper(body, maxDepth) > 0 {
		return f, errkind.Errorf(errkind.Invalid, "the body nests deeper than %d levels", maxDepth)
	}
	if manyValues(body) {
		return f, errkind.Errorf(errkind.TooLarge, "the body holds more than %d values", maxValues)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&f.values); err != nil {
		return f, errkind.Errorf(errkind.Invalid, "failed to parse JSON input: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return f, errkind.New(errkind.Invalid, "failed to parse JSON input: something follows the object")
	}
	if f.values == nil { // "null"
		f.values = map[string]any{}
	}
	return f, nil
}

// Has reports whether the field was given, also as null.
func (f *Fields) Has(name string) bool { _, ok := f.values[name]; return ok }

// Len returns how many fields there are.
func (f *Fields) Len() int { return len(f.values) }

// Names lists the fields in order.
func (f *Fields) Names() []string { return slices.Sorted(maps.Keys(f.values)) }

// Any returns the value as JSON gave it; numbers are json.Number.
func (f *Fields) Any(name string) any { return f.values[name] }

// Plain returns all fields with numbers as float64, as policies compare them. The caller must not change the map.
func (f *Fields) Plain() map[string]any {
	out := make(map[string]any, len(f.values))
	for name, v := range f.values {
		out[name] = plain(v)
	}
	return out
}

func plain(v any) any {
	switch x := v.(type) {
	case json.Number:
		n, _ := x.Float64() // out of range is infinite, which no rule lists
		return n
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = plain(x[i])
		}
		return out
	}
	return v
}

// Err returns what was wrong with the fields that were read, as an error of kind Invalid.
func (f *Fields) Err() error { return errkind.E(errkind.Invalid, "", errors.Join(f.errs...)) }

func (f *Fields) wrong(name, want string) {
	f.errs = append(f.errs, fmt.Errorf("field %q: must be %s", name, want))
}

// String returns a text; numbers and booleans are written out.
func (f *Fields) String(name string) string {
	switch v := f.values[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	f.wrong(name, "a string")
	return ""
}

// Bool returns a truth value, or def when there is none.
func (f *Fields) Bool(name string, def bool) bool {
	switch v := f.values[name].(type) {
	case nil:
		return def
	case bool:
		return v
	case string:
		if b, err := strconv.ParseBool(strings.TrimSpace(v)); err == nil {
			return b
		}
	case json.Number:
		if v == "0" || v == "1" {
			return v == "1"
		}
	}
	f.wrong(name, "true or false")
	return def
}

// Int returns a whole number, or def when there is none.
func (f *Fields) Int(name string, def int) int {
	text := ""
	switch v := f.values[name].(type) {
	case nil:
		return def
	case string:
		text = strings.TrimSpace(v)
	case json.Number:
		text = v.String()
	default:
		text = "-"
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		if x, err := strconv.ParseFloat(text, 64); err == nil && x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return int(x)
		}
		f.wrong(name, "a whole number")
		return def
	}
	return n
}

// Float returns a number, or def when there is none.
func (f *Fields) Float(name string, def float64) float64 {
	text := ""
	switch v := f.values[name].(type) {
	case nil:
		return def
	case string:
		text = strings.TrimSpace(v)
	case json.Number:
		text = v.String()
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		f.wrong(name, "a number")
		return def
	}
	return x
}

// Duration returns a length of time, or def when there is none.
func (f *Fields) Duration(name string, def time.Duration) time.Duration {
	var d time.Duration
	var err error
	switch v := f.values[name].(type) {
	case nil:
		return def
	case string:
		if strings.TrimSpace(v) == "" {
			return def
		}
		d, err = ParseDuration(v)
	case json.Number:
		d, err = ParseDuration(v.String())
	default:
		err = errors.New("another kind")
	}
	if err != nil {
		f.wrong(name, `a duration: seconds, or a text like "1h30m", 1280000h at most`)
		return def
	}
	return d
}

// MaxDuration is the longest lifetime that is taken: 146 years. From now on it ends before the last moment that has a
// number of nanoseconds since 1970, by which ends are kept and compared; a longer one would be over at once.
const MaxDuration = 1_280_000 * time.Hour

// ParseDuration reads seconds, Go's form, or days as in "2d"; none longer than MaxDuration.
func ParseDuration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	seconds, err := strconv.ParseFloat(text, 64)
	if days, ok := strings.CutSuffix(text, "d"); err != nil && ok {
		if seconds, err = strconv.ParseFloat(days, 64); err == nil {
			seconds *= 24 * 60 * 60
		}
	}
	if err != nil {
		d, err := time.ParseDuration(text)
		if err == nil && d.Abs() > MaxDuration {
			return 0, errRange
		}
		return d, err
	}
	if math.IsNaN(seconds) || math.Abs(seconds) > MaxDuration.Seconds() {
		return 0, errRange
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

var errRange = errors.New("out of range: 1280000h at most")

// Strings returns a list of texts; one text is split at its commas.
func (f *Fields) Strings(name string) []string {
	switch v := f.values[name].(type) {
	case nil:
		return nil
	case string:
		var out []string
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
		return out
	case []any:
		out := make([]string, 0, len(v))
		for _, item := range v {
			one := Fields{values: map[string]any{name: item}}
			text := one.String(name)
			if one.errs != nil || item == nil {
				f.wrong(name, "a list of strings")
				return nil
			}
			out = append(out, text)
		}
		return out
	}
	f.wrong(name, "a list of strings")
	return nil
}

// Texts returns an object of texts.
func (f *Fields) Texts(name string) map[string]string {
	v, ok := f.values[name].(map[string]any)
	if f.values[name] == nil {
		return nil
	}
	if text, is := f.values[name].(string); is { // JSON in a string, as some clients send it
		ok = json.Unmarshal([]byte(text), &v) == nil
	}
	if !ok {
		f.wrong(name, "an object of strings")
		return nil
	}
	inner := Fields{values: v}
	out := make(map[string]string, len(v))
	for key := range v {
		out[key] = inner.String(key)
	}
	if inner.errs != nil {
		f.wrong(name, "an object of strings")
		return nil
	}
	return out
}
