package filter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// bound is an object with the element that a quantifier looks at.
type bound struct {
	outer any // what the whole filter looks at, or the bound of an outer quantifier
	key   string
	elem  any // as the reader of the element's field expects it
}

// of turns a reader of the outer object into one of the bound.
func of[R any](get func(any) R) func(any) R {
	if get == nil {
		return nil
	}
	return func(o any) R { return get(o.(*bound).outer) }
}

// lifted is the field as seen from within a quantifier.
func (f *field) lifted() *field {
	out := &field{kind: f.kind, sub: f.sub, str: of(f.str), num: of(f.num), flag: of(f.flag), strs: of(f.strs),
		strMap: of(f.strMap), inner: of(f.inner), count: of(f.count)}
	if f.each != nil {
		out.each = func(o any, yield func(any) bool) { f.each(o.(*bound).outer, yield) }
	}
	if f.entry != nil {
		out.entry = func(o any, key string) (any, bool) { return f.entry(o.(*bound).outer, key) }
	}
	if f.entries != nil {
		out.entries = func(o any) map[string]any { return f.entries(o.(*bound).outer) }
	}
	return out
}

// within is the schema of the inner expression of a quantifier: all outer fields, and the
// names that it binds, which hide fields of the same name. elem is the element's field.
func (s *Schema) within(b binding, elem *field, isMap bool) *Schema {
	in := &Schema{fields: make(map[string]*field, len(s.fields)+2)}
	for name, f := range s.fields {
		in.fields[name] = f.lifted()
	}
	key := &field{kind: kindString, str: func(o any) string { return o.(*bound).key }}
	one := elem
	if isMap {
		one = key
	}
	for name, f := range map[string]*field{b.key: key, b.value: elem, b.one: one} {
		if name != "" {
			in.fields[name] = f
		}
	}
	return in
}

// The fields of elements: what is bound is the element itself.
var (
	stringElem = &field{kind: kindString, str: func(o any) string { return o.(*bound).elem.(string) }}
	jsonElem   = &field{kind: kindJSON, inner: func(o any) any { return o.(*bound).elem }}
)

func structElem(s *Schema) *field {
	return &field{kind: kindStruct, sub: s, inner: func(o any) any { return o.(*bound).elem }}
}

// elements yields what a quantifier runs over.
type elements func(o any, yield func(key string, elem any) bool)

// quantified compiles `any S as x { ... }` and `all S as x { ... }`.
func (s *Schema) quantified(n *node) (matcher, error) {
	over, elem, isMap, err := s.elements(n.selector)
	if err != nil {
		return nil, err
	}
	inner, err := compile(s.within(n.bound, elem, isMap), n.right)
	if err != nil {
		return nil, err
	}
	all := n.kind == nodeAll
	return func(o any) bool {
		result := all
		b := &bound{outer: o}
		over(o, func(key string, e any) bool {
			b.key, b.elem = key, e
			if inner(b) != all {
				result = !all
				return false
			}
			return true
		})
		return result
	}, nil
}

// elements finds the list or map under path, the field that reads one of its elements, and
// whether it is a map.
func (s *Schema) elements(path []string) (elements, *field, bool, error) {
	bad := fmt.Errorf("%s is not a list or a map", strings.Join(path, "."))
	f := s.fields[path[0]]
	if f == nil {
		return nil, nil, false, fmt.Errorf("Selector %q is not valid", strings.Join(path, "."))
	}
	rest := path[1:]
	switch {
	case f.kind == kindJSON:
		return func(o any, yield func(string, any) bool) { eachJSON(f.inner(o), rest, yield) }, jsonElem, false, nil
	case f.kind == kindStruct && len(rest) > 0:
		over, elem, isMap, err := f.sub.elements(rest)
		return func(o any, yield func(string, any) bool) {
			if in := f.inner(o); in != nil {
				over(in, yield)
			}
		}, elem, isMap, err
	case len(rest) > 0:
		return nil, nil, false, bad
	case f.kind == kindStrings:
		return func(o any, yield func(string, any) bool) { eachOf(f.strs(o), yield) }, stringElem, false, nil
	case f.kind == kindStringMap:
		return func(o any, yield func(string, any) bool) { eachEntry(f.strMap(o), yield) }, stringElem, true, nil
	case f.kind == kindList:
		return func(o any, yield func(string, any) bool) {
			i := -1
			f.each(o, func(e any) bool { i++; return yield(fmt.Sprint(i), e) })
		}, structElem(f.sub), false, nil
	case f.kind == kindMap:
		return func(o any, yield func(string, any) bool) { eachEntry(f.entries(o), yield) }, structElem(f.sub), true, nil
	}
	return nil, nil, false, bad
}

func eachOf[E any](list []E, yield func(string, any) bool) {
	for i, e := range list {
		if !yield(fmt.Sprint(i), e) {
			return
		}
	}
}

// eachEntry goes in the order of the keys: Match is a function of the object.
func eachEntry[E any](m map[string]E, yield func(string, any) bool) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !yield(k, m[k]) {
			return
		}
	}
}

func eachJSON(v any, path []string, yield func(string, any) bool) {
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	switch x := v.(type) {
	case []any:
		eachOf(x, yield)
	case map[string]any:
		eachEntry(x, yield)
	}
}
