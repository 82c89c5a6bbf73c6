package jobwire

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Duration is nanoseconds in JSON.
type Duration int64

// UnmarshalJSON takes nanoseconds, or text as a job file has it.
func (d *Duration) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if quoted, err := strconv.Unquote(text); err == nil {
		span, err := time.ParseDuration(quoted)
		*d = Duration(span)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 1h30m", quoted)
		}
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%.40s is neither nanoseconds nor a duration such as \"30s\"", text)
	}
	*d = Duration(n)
	return nil
}

// String is d as a job file has it.
func (d Duration) String() string { return time.Duration(d).String() }

// Field is what one declaration says of a field.
type Field struct {
	Name    string // in JSON
	HCL     string // in a job file, "" when job files do not have it
	Label   bool   // the label of its block
	Default string
	Keeps   bool // Canonicalize leaves it nil
	Made    bool // Canonicalize makes the object
	Index   []int
	Type    reflect.Type
}

// Fields are the fields of a struct, those of embedded structs among them. Do not change the list: it is shared.
func Fields(t reflect.Type) []Field {
	if list, ok := ofJobs[t]; ok {
		return list
	}
	return fieldsOf(t)
}

// ofJobs are the fields of the structs that a job is made of. Working them out allocates for each of some hundred
// fields, and a job that is shown needs them again for each group and task.
var ofJobs = structsIn(reflect.TypeFor[Job](), map[reflect.Type][]Field{})

// structsIn adds the fields of t and of the structs below it to all.
func structsIn(t reflect.Type, all map[reflect.Type][]Field) map[reflect.Type][]Field {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return structsIn(t.Elem(), all)
	case reflect.Struct:
		if _, ok := all[t]; ok {
			return all
		}
		all[t] = fieldsOf(t)
		for i := range t.NumField() {
			structsIn(t.Field(i).Type, all)
		}
	}
	return all
}

func fieldsOf(t reflect.Type) (list []Field) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			for _, inner := range fieldsOf(f.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				list = append(list, inner)
			}
			continue
		}
		name, option, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		field := Field{Name: f.Name, HCL: name, Label: option == "label", Default: f.Tag.Get("def"), Index: []int{i},
			Type: f.Type}
		switch {
		case name == "-" || field.Label:
			field.HCL = ""
		case name == "":
			field.HCL = snake(f.Name)
		}
		switch field.Default {
		case "-":
			field.Default, field.Keeps = "", true
		case "made":
			field.Default, field.Made = "", true
		}
		list = append(list, field)
	}
	return list
}

// snake is TLSSkipVerify as tls_skip_verify.
func snake(name string) string {
	var b strings.Builder
	letters := []rune(name)
	for i, c := range letters {
		if i > 0 && unicode.IsUpper(c) && (unicode.IsLower(letters[i-1]) ||
			i+1 < len(letters) && unicode.IsLower(letters[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// each calls visit for v and all structs below it, outer ones first.
func each(v reflect.Value, visit func(reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			each(v.Elem(), visit)
		}
	case reflect.Struct:
		visit(v)
		for i := range v.NumField() {
			each(v.Field(i), visit)
		}
	case reflect.Slice:
		if holdsStructs(v.Type()) {
			for i := range v.Len() {
				each(v.Index(i), visit)
			}
		}
	case reflect.Map:
		if holdsStructs(v.Type()) {
			for _, key := range v.MapKeys() {
				each(v.MapIndex(key), visit)
			}
		}
	}
}

func holdsStructs(t reflect.Type) bool {
	e := t.Elem()
	return e.Kind() == reflect.Struct || e.Kind() == reflect.Pointer && e.Elem().Kind() == reflect.Struct
}

// withoutNulls takes null elements out of lists and maps of objects: nobody behind has to look for them.
func withoutNulls(v reflect.Value) {
	each(v, func(s reflect.Value) {
		for i := range s.NumField() {
			f := s.Field(i)
			switch {
			case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Pointer:
				kept := f.Slice(0, 0)
				for k := range f.Len() {
					if !f.Index(k).IsNil() {
						kept = reflect.Append(kept, f.Index(k))
					}
				}
				if kept.Len() < f.Len() {
					f.Set(kept)
				}
			case f.Kind() == reflect.Map && f.Type().Elem().Kind() == reflect.Pointer:
				for _, key := range f.MapKeys() {
					if f.MapIndex(key).IsNil() {
						f.SetMapIndex(key, reflect.Value{})
					}
				}
			}
		}
	})
}

// fill gives nil pointers to scalars in v and below their defaults.
func fill(v reflect.Value) {
	each(v, func(s reflect.Value) {
		for i := range s.NumField() {
			f, tag := s.Field(i), s.Type().Field(i).Tag.Get("def")
			object := f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct
			if f.Kind() != reflect.Pointer || !f.IsNil() || object && tag != "made" || tag == "-" {
				continue
			}
			f.Set(reflect.New(f.Type().Elem()))
			if tag != "" && !object {
				set(f.Elem(), tag)
			}
		}
	})
}

// set reads a tag def. Tags are ours, and a test reads each.
func set(v reflect.Value, tag string) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(tag)
	case v.Kind() == reflect.Bool:
		v.SetBool(tag == "true")
	case v.Type() == reflect.TypeFor[Duration]():
		d, err := time.ParseDuration(tag)
		if err != nil {
			panic("jobwire: default " + tag)
		}
		v.SetInt(int64(d))
	case v.CanInt():
		n, err := strconv.ParseInt(tag, 10, 64)
		if err != nil {
			panic("jobwire: default " + tag)
		}
		v.SetInt(n)
	default:
		n, err := strconv.ParseUint(tag, 10, 64)
		if err != nil {
			panic("jobwire: default " + tag)
		}
		v.SetUint(n)
	}
}

// under gives each nil pointer of over what base has in the same field. Both point to structs of one type.
func under[T any](over, base *T) *T {
	if over == nil || base == nil {
		return clone(or(over, base))
	}
	merged := clone(over)
	m, b := reflect.ValueOf(merged).Elem(), reflect.ValueOf(base).Elem()
	for i := range m.NumField() {
		if f := m.Field(i); f.Kind() == reflect.Pointer && f.IsNil() {
			f.Set(b.Field(i))
		}
	}
	return merged
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
