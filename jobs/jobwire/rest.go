package jobwire

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// encode is v as JSON. Nothing here holds what JSON cannot say.
func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic("jobwire: " + err.Error())
	}
	return string(data)
}

// rest encodes the fields of a struct that are not typed (the core has no field for them) and say
// something that Canonicalize would not.
func rest(v any, typed ...string) map[string]string {
	s := reflect.ValueOf(v).Elem()
	var parts map[string]string
	for _, f := range Fields(s.Type()) {
		value := s.FieldByIndex(f.Index)
		if slices.Contains(typed, f.Name) || value.IsZero() || f.plain(value) {
			continue
		}
		if parts == nil {
			parts = map[string]string{}
		}
		parts[f.Name] = encode(value.Interface())
	}
	return parts
}

// plain reports whether value is what Canonicalize gives the field.
func (f Field) plain(value reflect.Value) bool {
	if f.Made && !value.IsNil() {
		s := value.Elem()
		return !slices.ContainsFunc(Fields(s.Type()), func(inner Field) bool {
			v := s.FieldByIndex(inner.Index)
			return !v.IsZero() && !inner.plain(v)
		})
	}
	if value.Kind() != reflect.Pointer || value.Type().Elem().Kind() == reflect.Struct || f.Keeps {
		return (value.Kind() == reflect.Slice || value.Kind() == reflect.Map) && value.Len() == 0
	}
	usual := reflect.New(value.Type().Elem()).Elem()
	if f.Default != "" {
		set(usual, f.Default)
	}
	return value.Elem().Equal(usual)
}

// leftover is rest as one text, "" when there is nothing.
func leftover(v any, typed ...string) string {
	parts := rest(v, typed...)
	if parts == nil {
		return ""
	}
	object := map[string]json.RawMessage{}
	for name, text := range parts {
		object[name] = json.RawMessage(text)
	}
	return encode(object)
}

// restore sets the fields that rest encoded. A text that cannot be read comes from a newer version: it
// is left out.
func restore(v any, parts map[string]string) {
	s := reflect.ValueOf(v).Elem()
	for _, f := range Fields(s.Type()) {
		if text, ok := parts[f.Name]; ok {
			read(text, s.FieldByIndex(f.Index).Addr().Interface())
		}
	}
}

// read decodes text into v, which stays as it is when it cannot be read.
func read(text string, v any) {
	if text == "" {
		return
	}
	fresh := reflect.New(reflect.TypeOf(v).Elem())
	fresh.Elem().Set(reflect.ValueOf(v).Elem())
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(fresh.Interface()) == nil {
		reflect.ValueOf(v).Elem().Set(fresh.Elem())
	}
}
