package jobwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/nesting"
)

// MaxDepth is how deep brackets may nest in what Decode reads. A driver's configuration is the only
// part that has no shape of ours; ten levels are many.
const MaxDepth = 64

// Decode reads one JSON object. Keys that T does not have are ignored, as the contract's servers do. Null
// elements of lists and maps are left out. The error is Invalid and names the field.
func Decode[T any](data []byte) (*T, error) {
	if line := nesting.Deeper(data, MaxDepth); line > 0 {
		return nil, errkind.Errorf(errkind.Invalid, "line %d: nested deeper than %d levels", line, MaxDepth)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errkind.New(errkind.Invalid, "the body is empty")
	}
	v := new(T)
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a driver's large numbers stay what they are
	if err := d.Decode(v); err != nil {
		return nil, errkind.E(errkind.Invalid, "", describe(err, reflect.TypeFor[T]()))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errkind.New(errkind.Invalid, "there is more than one JSON value")
	}
	withoutNulls(reflect.ValueOf(v))
	return v, nil
}

// describe names the field of a wrong type as clients know it.
func describe(err error, t reflect.Type) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	embedded := map[string]bool{}
	collect(t, embedded, map[reflect.Type]bool{})
	path := slices.DeleteFunc(strings.Split(wrong.Field, "."), func(name string) bool { return embedded[name] })
	return fmt.Errorf("%s: want %s, not %s", strings.Join(path, "."), article(wrong.Type), wrong.Value)
}

// collect finds the names of embedded structs, which JSON does not have.
func collect(t reflect.Type, names map[string]bool, seen map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			names[f.Name] = true
		}
		collect(f.Type, names, seen)
	}
}

func article(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return article(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Int8:
		return "a number from -128 to 127"
	case reflect.Uint8:
		return "a number from 0 to 255"
	}
	return "a whole number"
}
