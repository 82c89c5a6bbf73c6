package cloudevents

import (
	"slices"
	"strings"

	"corbel.dev/corbel/usage"
)

// Paths are places in an event's data: "a.b" is the field b of the object in the field a. A field with a dot in its own
// name is on no path.
type Paths map[string]place

// place says what a path is there for: its own value, or those below it.
type place struct{ leaf, inner bool }

// Add adds a path.
func (p Paths) Add(path string) {
	for i := range len(path) {
		if path[i] == '.' {
			p[path[:i]] = place{p[path[:i]].leaf, true}
		}
	}
	p[path] = place{true, p[path].inner}
}

// Of are the texts, numbers and booleans at these paths in an Item's Data, in its order. Null, arrays and objects are
// as if they were not there; what is there twice counts as it is there last.
func (p Paths) Of(data string) []usage.Field { return p.below(nil, data, "") }

func (p Paths) below(out []usage.Field, data, prefix string) []usage.Field {
	_ = object(data, func(name, value string) error { // data that are no object have no paths
		if strings.Contains(name, ".") {
			return nil
		}
		path := prefix + name
		at, is := p[path]
		if !is {
			return nil
		}
		out = slices.DeleteFunc(out, func(f usage.Field) bool {
			return f.Name == path || strings.HasPrefix(f.Name, path) && f.Name[len(path)] == '.'
		})
		if at.inner && value[0] == '{' {
			out = p.below(out, value, path+".")
		}
		if at.leaf {
			if text, null, err := plain(path, value); err == nil && !null {
				out = append(out, usage.Field{Name: path, Value: text})
			}
		}
		return nil
	})
	return out
}
