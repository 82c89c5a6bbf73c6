package filter

// kind is what a selector finds.
type kind uint8

const (
	kindString kind = iota
	kindInt
	kindBool
	kindStrings   // list of strings
	kindStringMap // map of strings
	kindStruct    // fields under names
	kindList      // list of structs: true when any element matches
	kindMap       // map of structs
	kindJSON      // free JSON: what is there is known when it is read
)

// field reads one part of an object. obj is always a pointer (for kindJSON a
// decoded value), so that passing it costs nothing. Only the readers of its kind are set.
type field struct {
	kind   kind
	str    func(obj any) string
	num    func(obj any) int64
	flag   func(obj any) bool
	strs   func(obj any) []string
	strMap func(obj any) map[string]string
	sub    *Schema
	inner  func(obj any) any                     // kindStruct, kindJSON; a nil result is absent
	each   func(obj any, yield func(any) bool)   // kindList
	entry  func(obj any, key string) (any, bool) // kindMap
	count  func(obj any) int                     // kindList, kindMap
	// entries is all of a kindMap, for quantifiers.
	entries func(obj any) map[string]any
}

// Schema is the fields that one kind of object has, by the names of its JSON form.
type Schema struct{ fields map[string]*field }

// The makers below keep the tables in objects.go to one line a field.

func str[T any](get func(*T) string) *field {
	return &field{kind: kindString, str: func(o any) string { return get(o.(*T)) }}
}

func num[T any, N int | uint64 | uint16](get func(*T) N) *field {
	return &field{kind: kindInt, num: func(o any) int64 { return int64(get(o.(*T))) }}
}

func flag[T any](get func(*T) bool) *field {
	return &field{kind: kindBool, flag: func(o any) bool { return get(o.(*T)) }}
}

func strs[T any](get func(*T) []string) *field {
	return &field{kind: kindStrings, strs: func(o any) []string { return get(o.(*T)) }}
}

func strMap[T any](get func(*T) map[string]string) *field {
	return &field{kind: kindStringMap, strMap: func(o any) map[string]string { return get(o.(*T)) }}
}

func sub[T, U any](s *Schema, get func(*T) *U) *field {
	return &field{kind: kindStruct, sub: s, inner: func(o any) any {
		if u := get(o.(*T)); u != nil {
			return u
		}
		return nil
	}}
}

func list[T, U any](s *Schema, get func(*T) []*U) *field {
	return &field{kind: kindList, sub: s,
		count: func(o any) int { return len(get(o.(*T))) },
		each: func(o any, yield func(any) bool) {
			for _, u := range get(o.(*T)) {
				if !yield(u) {
					return
				}
			}
		}}
}

func mapOf[T, U any](s *Schema, get func(*T) map[string]U) *field {
	return &field{kind: kindMap, sub: s,
		count: func(o any) int { return len(get(o.(*T))) },
		entry: func(o any, key string) (any, bool) {
			u, ok := get(o.(*T))[key]
			return &u, ok
		},
		entries: func(o any) map[string]any {
			all := make(map[string]any, len(get(o.(*T))))
			for k, u := range get(o.(*T)) {
				all[k] = &u
			}
			return all
		}}
}

// free is stored JSON, decoded when a filter asks for it.
func free[T any](get func(*T) []byte) *field {
	return &field{kind: kindJSON, inner: func(o any) any { return decode(get(o.(*T))) }}
}

// NewSchema makes the schema of a type of strings, numbers and maps that is not
// the catalog's own.
func NewSchema[T any](strings map[string]func(*T) string, numbers map[string]func(*T) int,
	maps map[string]func(*T) map[string]string) *Schema {
	s := &Schema{fields: map[string]*field{}}
	for name, get := range strings {
		s.fields[name] = str(get)
	}
	for name, get := range numbers {
		s.fields[name] = num(get)
	}
	for name, get := range maps {
		s.fields[name] = strMap(get)
	}
	return s
}
