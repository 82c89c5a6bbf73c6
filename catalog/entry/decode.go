package entry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Duration is written as Go prints it and read as text or as nanoseconds.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler for stored entries.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	return assign("", v, reflect.ValueOf(d).Elem())
}

// Nanos is a Duration that is written as a number of nanoseconds, as the contract has this one.
type Nanos time.Duration

// UnmarshalJSON implements json.Unmarshaler for stored entries.
func (n *Nanos) UnmarshalJSON(b []byte) error { return (*Duration)(n).UnmarshalJSON(b) }

// Decode reads an entry. Field names match without regard to case and
// underscores; a field that the kind does not have is refused by its name. All
// errors are of kind Invalid.
func Decode(raw []byte) (Entry, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var in map[string]any
	if err := dec.Decode(&in); err != nil {
		return nil, invalid("Request decode failed: %v", err)
	}
	kind, _ := take(in, "kind").(string)
	if kind == "" {
		return nil, invalid("Request decode failed: Payload does not contain a kind/Kind key at the top level")
	}
	e := New(kind)
	if kind == BoundAPIGateway {
		return nil, errkind.E(errkind.Invalid, "", ErrBound)
	}
	if e == nil {
		return nil, invalid("Request decode failed: invalid config entry kind: %s", kind)
	}
	for _, ignored := range []string{"createindex", "modifyindex", "hash"} {
		take(in, ignored)
	}
	if err := assign("", in, reflect.ValueOf(e).Elem()); err != nil {
		return nil, errkind.E(errkind.Invalid, "",
			fmt.Errorf("Request decode failed: %w", err)) //nolint:staticcheck // the contract's text
	}
	e.Base().Kind = kind
	e.Normalize()
	if err := e.Validate(); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	return e, nil
}

// ErrBound refuses to change what the servers work out.
var ErrBound = errors.New("config entries of the kind bound-api-gateway follow from others: write the api-gateway " +
	"and the routes that name it as a parent")

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// take removes and returns the value of a key in any spelling.
func take(in map[string]any, name string) any {
	for k, v := range in {
		if fold(k) == name {
			delete(in, k)
			return v
		}
	}
	return nil
}

// fold makes the two spellings of a name one.
func fold(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "") }

// fieldsOf lists the settable fields of a struct by folded name; embedded structs' fields are its own.
func fieldsOf(v reflect.Value, into map[string]reflect.Value) map[string]reflect.Value {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			fieldsOf(v.Field(i), into)
			continue
		}
		into[fold(f.Name)] = v.Field(i)
	}
	return into
}

func assign(path string, in any, v reflect.Value) error {
	if in == nil {
		return nil
	}
	if d, ok := v.Addr().Interface().(*Duration); ok {
		return assignDuration(path, in, d)
	}
	if n, ok := v.Addr().Interface().(*Nanos); ok {
		return assignDuration(path, in, (*Duration)(n))
	}
	switch v.Kind() {
	case reflect.Pointer:
		next := reflect.New(v.Type().Elem())
		if err := assign(path, in, next.Elem()); err != nil {
			return err
		}
		v.Set(next)
		return nil
	case reflect.Struct:
		return assignStruct(path, in, v)
	case reflect.Map:
		return assignMap(path, in, v)
	case reflect.Slice:
		return assignSlice(path, in, v)
	case reflect.Interface:
		v.Set(reflect.ValueOf(plain(in)))
		return nil
	}
	return assignScalar(path, in, v)
}

// plain turns numbers into what encoding/json makes of them, so that stored and fresh entries are alike.
func plain(in any) any {
	switch in := in.(type) {
	case json.Number:
		f, err := in.Float64()
		if err != nil {
			return in.String()
		}
		return f
	case map[string]any:
		for k, v := range in {
			in[k] = plain(v)
		}
	case []any:
		for i, v := range in {
			in[i] = plain(v)
		}
	}
	return in
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// single unwraps a list of one object: HCL's blocks come like that.
func single(in any) any {
	if list, ok := in.([]any); ok && len(list) == 1 {
		return list[0]
	}
	return in
}

func assignStruct(path string, in any, v reflect.Value) error {
	m, ok := single(in).(map[string]any)
	if !ok {
		return fmt.Errorf("%s: expected an object", path)
	}
	fields := fieldsOf(v, map[string]reflect.Value{})
	for _, name := range slices.Sorted(maps.Keys(m)) {
		f, ok := fields[fold(name)]
		if !ok {
			return fmt.Errorf("invalid config key %q", join(path, name))
		}
		if err := assign(join(path, name), m[name], f); err != nil {
			return err
		}
	}
	return nil
}

func assignMap(path string, in any, v reflect.Value) error {
	m, ok := single(in).(map[string]any)
	if !ok {
		return fmt.Errorf("%s: expected an object", path)
	}
	out := reflect.MakeMapWithSize(v.Type(), len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := assign(join(path, name), m[name], item); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(name), item)
	}
	v.Set(out)
	return nil
}

func assignSlice(path string, in any, v reflect.Value) error {
	list, ok := in.([]any)
	if !ok {
		list = []any{in}
	}
	out := reflect.MakeSlice(v.Type(), len(list), len(list))
	for i := range list {
		if err := assign(fmt.Sprintf("%s[%d]", path, i), list[i], out.Index(i)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

func assignDuration(path string, in any, d *Duration) error {
	switch in := in.(type) {
	case string:
		parsed, err := time.ParseDuration(in)
		if in != "" && err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		*d = Duration(parsed)
		return nil
	case json.Number:
		n, err := in.Int64()
		*d = Duration(n)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	case float64:
		*d = Duration(in)
		return nil
	}
	return fmt.Errorf("%s: expected a duration such as \"5s\"", path)
}

func assignScalar(path string, in any, v reflect.Value) error {
	text := ""
	switch in := in.(type) {
	case string:
		text = in
	case bool:
		text = strconv.FormatBool(in)
	case json.Number:
		text = in.String()
	default:
		return fmt.Errorf("%s: expected a %s", path, v.Kind())
	}
	if _, ok := in.(string); v.Kind() == reflect.String && !ok {
		return fmt.Errorf("%s: expected a string", path)
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case reflect.Int, reflect.Int64, reflect.Int32:
		var n float64
		n, err = strconv.ParseFloat(text, 64)
		if n != math.Trunc(n) || v.OverflowInt(int64(n)) {
			err = fmt.Errorf("%s is no whole number in range", text)
		}
		v.SetInt(int64(n))
	case reflect.Uint, reflect.Uint64, reflect.Uint32:
		var n float64
		n, err = strconv.ParseFloat(text, 64)
		if n < 0 || n != math.Trunc(n) || v.OverflowUint(uint64(n)) {
			err = fmt.Errorf("%s is no whole number in range", text)
		}
		v.SetUint(uint64(max(n, 0)))
	case reflect.Float64, reflect.Float32:
		var n float64
		n, err = strconv.ParseFloat(text, 64)
		v.SetFloat(n)
	default:
		err = fmt.Errorf("fields of type %s cannot be set", v.Type())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// String returns the duration as Go prints it.
func (d Duration) String() string { return time.Duration(d).String() }
