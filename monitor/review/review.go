// Package review tells what an operator should know of an object of the monitor before it is relied on: keys that its
// type does not have, names of things that are not there, and the programs in it that are to be read.
//
// It decides nothing: an API keeps what the contract lets it keep and warns; a command line may refuse. All functions
// are pure.
package review

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"corbel.dev/corbel/monitor"
)

// Key is a key that an object's type does not have.
type Key struct {
	Path    string // as it stands in the body: metadata.lables
	Nearest string // a key that was perhaps meant, "" for none
}

// String says so.
func (k Key) String() string {
	if k.Nearest == "" {
		return fmt.Sprintf("unknown key %q", k.Path)
	}
	return fmt.Sprintf("unknown key %q; did you mean %q?", k.Path, k.Nearest)
}

// Unknown lists the keys of a JSON object that o, a pointer to what it was decoded into, has no field for.
// Keys of maps (labels, annotations) and of values that read themselves are the author's own.
func Unknown(body []byte, o any) (out []Key) {
	if _, own := o.(json.Unmarshaler); own {
		return nil
	}
	var raw any
	if json.Unmarshal(body, &raw) != nil {
		return nil // whoever decodes it says what is wrong
	}
	walk("", raw, reflect.TypeOf(o).Elem(), &out)
	return out
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func walk(path string, raw any, t reflect.Type, out *[]Key) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if path != "" && reflect.PointerTo(t).Implements(unmarshaler) {
		return
	}
	switch v := raw.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i, inner := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), inner, t.Elem(), out)
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return
		}
		fields := fieldsOf(t)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := key
			if path != "" {
				at = path + "." + key
			}
			if field, ok := find(fields, key); ok {
				walk(at, v[key], field, out)
				continue
			}
			*out = append(*out, Key{Path: at, Nearest: nearest(key, fields)})
		}
	}
}

// fieldsOf are the keys of a struct with their types.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || len(f.Index) > 1 && named(t, f.Index) {
			continue
		}
		if name == "" {
			if f.Anonymous {
				continue
			}
			name = f.Name
		}
		out[name] = f.Type
	}
	return out
}

// named reports whether a promoted field stands below an embedded struct that has a key of its own.
func named(t reflect.Type, index []int) bool {
	outer, _, _ := strings.Cut(t.FieldByIndex(index[:len(index)-1]).Tag.Get("json"), ",")
	return outer != ""
}

// find takes a key as package json does: in any case.
func find(fields map[string]reflect.Type, key string) (reflect.Type, bool) {
	if t, ok := fields[key]; ok {
		return t, true
	}
	for name, t := range fields {
		if strings.EqualFold(name, key) {
			return t, true
		}
	}
	return nil, false
}

// nearest is the known key with the fewest changes to a wrong one, where these are few.
func nearest(wrong string, fields map[string]reflect.Type) string {
	type candidate struct {
		name string
		far  int
	}
	var all []candidate
	for name := range fields {
		if d := distance(strings.ToLower(wrong), name); d <= max(2, len(wrong)/4) {
			all = append(all, candidate{name, d})
		}
	}
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(a.far-b.far, strings.Compare(a.name, b.name))
	}).name
}

// distance is how many letters must be put in, taken out, exchanged or swapped with the next one to make b of a
// (Damerau and Levenshtein's, of adjacent letters).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range b {
		rows[0][j+1] = j + 1
	}
	for i := range a {
		for j := range b {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			d := min(rows[i][j+1]+1, rows[i+1][j]+1, rows[i][j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = d
		}
	}
	return rows[len(a)][len(b)]
}

// Program is JavaScript in an object.
type Program struct {
	Field  string // as an error names it: expressions[0]
	Source string
	Body   bool // of a function, as mutators have it; else statements
}

// Programs lists the programs of an object.
func Programs(o monitor.Object) (out []Program) {
	add := func(field string, sources []string) {
		for i, source := range sources {
			out = append(out, Program{Field: fmt.Sprintf("%s[%d]", field, i), Source: source})
		}
	}
	switch o := o.(type) {
	case *monitor.EventFilter:
		add("expressions", o.Expressions)
	case *monitor.Mutator:
		if o.Type == monitor.MutatorJavaScript {
			out = append(out, Program{Field: "eval", Source: o.Eval, Body: true})
		}
	case *monitor.CheckConfig:
		if o.ProxyRequests != nil {
			add("proxy_requests.entity_attributes", o.ProxyRequests.EntityAttributes)
		}
	case *monitor.Asset:
		add("filters", o.Filters)
		for i, b := range o.Builds {
			add(fmt.Sprintf("builds[%d].filters", i), b.Filters)
		}
	}
	return out
}
