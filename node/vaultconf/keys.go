package vaultconf

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/clienttls"
)

// reader collects what a source says and what is wrong with it.
type reader struct {
	cfg   *Config
	wrong []error
}

func (r *reader) fail(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Errorf(format, args...))
}

func (r *reader) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.cfg.Warnings, text) {
		r.cfg.Warnings = append(r.cfg.Warnings, text)
	}
}

// Keys are the keys of a stanza. Each is taken once; Done names those that nobody took.
type Keys struct {
	r      *reader
	path   string // of the stanza, with a dot behind it
	values map[string]any
	err    error // of the first wrong one
}

// NewKeys makes the keys of a stanza that is built by a program; values are strings, numbers, bools and lists.
func NewKeys(values map[string]any) *Keys { return &Keys{values: lower(values)} }

func lower(values map[string]any) map[string]any {
	out := make(map[string]any, len(values))
	for name, v := range values {
		out[strings.ToLower(name)] = v
	}
	return out
}

// note keeps an error for whoever reads: Load, while it runs, or the owner of the stanza.
func (k *Keys) note(err error) {
	if k.err == nil {
		k.err = err
	}
	if k.r != nil {
		k.r.wrong = append(k.r.wrong, err)
	}
}

func (k *Keys) fail(name, wants string, got any) {
	k.note(fmt.Errorf("%s%s: must be %s, got %v", k.path, name, wants, got))
}

// Fail says that a key's value is wrong.
func (k *Keys) Fail(name, why string) {
	k.note(fmt.Errorf("%s%s: %s", k.path, name, why))
}

// Err is the first error of the keys that were taken.
func (k *Keys) Err() error { return k.err }

// Has reports whether a key is there and was not taken.
func (k *Keys) Has(name string) bool { _, ok := k.values[name]; return ok }

// Peek is a text that is left to be taken; "" where there is none.
func (k *Keys) Peek(name string) string {
	text, _ := k.values[name].(string)
	return text
}

func (k *Keys) take(name string) (any, bool) {
	v, ok := k.values[name]
	delete(k.values, name)
	return v, ok && v != nil
}

// String takes a text, or its default.
func (k *Keys) String(name, def string) string {
	v, ok := k.take(name)
	if !ok {
		return def
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	k.fail(name, "a text", v)
	return def
}

// Bool takes true or false, which may stand as a text or a number.
func (k *Keys) Bool(name string, def bool) bool {
	if !k.Has(name) {
		return def
	}
	text := k.String(name, "")
	b, err := strconv.ParseBool(text)
	if err != nil {
		k.fail(name, "true or false", strconv.Quote(text))
	}
	return b
}

// Int takes a whole number that is not negative.
func (k *Keys) Int(name string, def int) int {
	if !k.Has(name) {
		return def
	}
	text := k.String(name, "")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		k.fail(name, "a whole number that is not negative", strconv.Quote(text))
	}
	return n
}

// Duration takes "90s", "2d" or a number of seconds.
func (k *Keys) Duration(name string, def time.Duration) time.Duration {
	if !k.Has(name) {
		return def
	}
	text := k.String(name, "")
	d, err := ParseDuration(text)
	if err != nil {
		k.fail(name, `a duration such as "30s"`, strconv.Quote(text))
	}
	return d
}

// ParseDuration reads Go's form, days ("2d"), or seconds; not negative.
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n <= longest.Hours()/24 {
			return time.Duration(n * 24 * float64(time.Hour)), nil
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 && n <= int64(longest/time.Second) {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%s is negative", text)
	}
	if err == nil && d > longest {
		err = fmt.Errorf("%s is longer than %s", text, longest)
	}
	return d, err
}

// longest is the longest duration, as secrets.MaxDuration: what ends later has no number of nanoseconds.
const longest = 1_280_000 * time.Hour

// Strings takes a list, or a text with commas.
func (k *Keys) Strings(name string) (list []string) {
	v, ok := k.take(name)
	if !ok {
		return nil
	}
	if text, ok := v.(string); ok {
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		return list
	}
	for _, item := range asList(v) {
		text, ok := item.(string)
		if !ok {
			k.fail(name, "a list of texts", v)
			return nil
		}
		list = append(list, text)
	}
	return list
}

// Blocks takes the stanzas of a name.
func (k *Keys) Blocks(name string) (list []*Keys) {
	v, ok := k.take(name)
	if !ok {
		return nil
	}
	for _, item := range asList(v) {
		object, ok := item.(map[string]any)
		if !ok {
			k.fail(name, "a block", item)
			continue
		}
		list = append(list, &Keys{r: k.r, path: k.path + name + ".", values: lower(object)})
	}
	return list
}

// Texts takes a block whose keys are anybody's choice; nil where there is none.
func (k *Keys) Texts(name string) (out map[string]string) {
	for _, b := range k.Blocks(name) {
		for key := range maps.Clone(b.values) {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = b.String(key, "")
		}
	}
	return out
}

// Labelled takes the stanzas of a name that have a type: name "type" { ... }.
func (k *Keys) Labelled(name string) (list []Block) {
	for _, outer := range k.Blocks(name) {
		list = append(list, outer.labels()...)
	}
	return list
}

// labels takes all of k as blocks under their labels.
func (k *Keys) labels() (list []Block) {
	for _, label := range slices.Sorted(maps.Keys(k.values)) {
		path := k.path + label + "."
		for _, item := range asList(k.values[label]) {
			object, ok := item.(map[string]any)
			if !ok {
				k.fail(label, `a block under a label`, item)
				continue
			}
			list = append(list, Block{Type: label, Keys: &Keys{r: k.r, path: path, values: lower(object)}})
		}
	}
	return list
}

// Ignore takes keys that are known and change nothing here.
func (k *Keys) Ignore(names ...string) {
	for _, name := range names {
		delete(k.values, name)
	}
}

// Warn takes keys that Vault's servers act on and this one does not, and says so by name.
func (k *Keys) Warn(names ...string) {
	for _, name := range names {
		if k.Has(name) && k.r != nil {
			k.r.warn("%s%s: is not supported and has no effect", k.path, name)
		}
		delete(k.values, name)
	}
}

// Because takes a key that has no effect here, and says why.
func (k *Keys) Because(name, why string) {
	if k.Has(name) && k.r != nil {
		k.r.warn("%s%s: has no effect: %s", k.path, name, why)
	}
	delete(k.values, name)
}

// Rest returns the names that nobody took.
func (k *Keys) Rest() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(k.values)) {
		names = append(names, k.path+name)
	}
	return names
}

// Done warns of each key that nobody took.
func (k *Keys) Done() {
	for _, name := range k.Rest() {
		if k.r == nil {
			return
		}
		k.r.warn("%s: unknown or unsupported field in the configuration", name)
	}
}

// ClientTLS takes the keys of a client that speaks TLS: tls_ca_file, tls_cert_file, tls_key_file and tls_skip_verify.
func (k *Keys) ClientTLS() (*tls.Config, error) {
	names := clienttls.Files{CA: "tls_ca_file", Cert: "tls_cert_file", Key: "tls_key_file"}
	c, err := clienttls.Files{CA: k.String(names.CA, ""), Cert: k.String(names.Cert, ""),
		Key: k.String(names.Key, "")}.Config(names)
	skip := k.Bool("tls_skip_verify", false)
	if err != nil {
		return nil, err
	}
	c.InsecureSkipVerify = skip // the operator asked for it by name
	return c, nil
}
