package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// key is one option: where its value goes and what users may know of it.
type key struct {
	path   string
	value  reflect.Value // addressable field of the Config that is loaded
	def    string
	doc    string
	secret bool
	reload bool
}

// schema is the set of keys of one Config value.
type schema struct {
	keys     map[string]*key
	order    []string        // paths as the struct declares them
	sections map[string]bool // proper prefixes of paths
}

// schemaOf walks the struct tags of c.
func schemaOf(c *Config) *schema {
	s := &schema{keys: map[string]*key{}, sections: map[string]bool{}}
	s.walk(reflect.ValueOf(c).Elem(), "")
	for _, name := range slices.Sorted(maps.Keys(c.loaded.sections)) {
		s.walk(reflect.ValueOf(c.loaded.sections[name]).Elem(), name+".")
	}
	for old := range oldNames {
		s.addSections(old)
	}
	for path := range ignoredKeys {
		s.addSections(path)
	}
	return s
}

func (s *schema) walk(v reflect.Value, prefix string) {
	for i := range v.NumField() {
		field, tag := v.Type().Field(i), v.Type().Field(i).Tag
		name := tag.Get("key")
		if field.Type.Kind() == reflect.Struct {
			inner := prefix
			if name != "" {
				inner = prefix + name + "."
			}
			s.walk(v.Field(i), inner)
			continue
		}
		if name == "" {
			continue
		}
		path := prefix + name
		opt := tag.Get("opt")
		s.keys[path] = &key{path: path, value: v.Field(i), def: tag.Get("def"), doc: tag.Get("doc"),
			secret: strings.Contains(opt, "secret"), reload: strings.Contains(opt, "reload")}
		s.order = append(s.order, path)
		s.addSections(path)
	}
}

func (s *schema) addSections(path string) {
	for i, r := range path {
		if r == '.' {
			s.sections[path[:i]] = true
		}
	}
}

// assign puts v, a value from HCL, JSON or the command line, into the key's field.
// Lists append and maps merge; all else is replaced.
func (k *key) assign(v any) error {
	switch dst := k.value.Addr().Interface().(type) {
	case *string:
		text, err := asString(v)
		if err == nil {
			*dst = text
		}
		return err
	case *bool:
		b, err := asBool(v)
		if err == nil {
			*dst = b
		}
		return err
	case *int:
		n, err := asInt(v)
		if err == nil {
			*dst = n
		}
		return err
	case *float64:
		f, err := asFloat(v)
		if err == nil {
			*dst = f
		}
		return err
	case *time.Duration:
		d, err := asDuration(v)
		if err == nil {
			*dst = d
		}
		return err
	case *[]string:
		list, err := asStrings(v)
		*dst = append(slices.Clip(*dst), list...)
		return err
	case *map[string]string:
		return mergeMap(dst, v, asString)
	case *map[string]time.Duration:
		return mergeMap(dst, v, asDuration)
	case *[]map[string]any:
		list, err := asObjects(v)
		*dst = append(slices.Clip(*dst), list...)
		return err
	}
	panic("config: no decoder for the type of key " + k.path)
}

func mergeMap[T any](dst *map[string]T, v any, decode func(any) (T, error)) error {
	var objects []map[string]any
	switch v := v.(type) {
	case map[string]any:
		objects = []map[string]any{v}
	case blocks:
		objects = v
	case string: // the command line: name:value
		name, value, ok := strings.Cut(v, ":")
		if !ok {
			return fmt.Errorf("must be name:value, got %q", v)
		}
		objects = []map[string]any{{name: value}}
	default:
		return fmt.Errorf("must be an object, got %s", kindOf(v))
	}
	merged := maps.Clone(*dst)
	if merged == nil {
		merged = map[string]T{}
	}
	for _, object := range objects {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if object[name] == nil {
				continue
			}
			value, err := decode(object[name])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			merged[name] = value
		}
	}
	*dst = merged
	return nil
}

func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a truth value"
	case json.Number:
		return "a number"
	case []any:
		return "a list"
	}
	return "an object"
}

func asString(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("must be a string, got %s", kindOf(v))
}

func asBool(v any) (bool, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b, nil
		}
		return false, fmt.Errorf("must be true or false, got %q", v)
	}
	return false, fmt.Errorf("must be true or false, got %s", kindOf(v))
}

func asFloat(v any) (float64, error) {
	text, err := asString(v)
	if err != nil {
		return 0, fmt.Errorf("must be a number, got %s", kindOf(v))
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("must be a number, got %q", text)
	}
	return f, nil
}

func asInt(v any) (int, error) {
	f, err := asFloat(v)
	if err != nil {
		return 0, err
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, fmt.Errorf("must be a whole number, got %v", v)
	}
	return int(f), nil
}

func asDuration(v any) (time.Duration, error) {
	text, err := asString(v)
	if err != nil {
		return 0, fmt.Errorf("must be a duration such as \"10s\", got %s", kindOf(v))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("must be a duration such as \"10s\", got %q", text)
	}
	return d, nil
}

func asStrings(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		text, err := asString(v)
		if err != nil {
			return nil, fmt.Errorf("must be a list of strings, got %s", kindOf(v))
		}
		return []string{text}, nil
	}
	out := make([]string, 0, len(list))
	for i, item := range list {
		text, err := asString(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		out = append(out, text)
	}
	return out, nil
}

// asObjects takes one object, a list of them or repeated blocks.
func asObjects(v any) ([]map[string]any, error) {
	switch v := v.(type) {
	case map[string]any:
		return []map[string]any{plain(v)}, nil
	case blocks:
		out := make([]map[string]any, len(v))
		for i, object := range v {
			out[i] = plain(object)
		}
		return out, nil
	case []any:
		out := make([]map[string]any, 0, len(v))
		for i, item := range v {
			one, err := asObjects(item)
			if err != nil || len(one) != 1 {
				return nil, fmt.Errorf("item %d: must be an object, got %s", i+1, kindOf(item))
			}
			out = append(out, one[0])
		}
		return out, nil
	}
	return nil, fmt.Errorf("must be an object or a list of objects, got %s", kindOf(v))
}

// pluralFields are the fields of definitions that hold lists of objects: a single
// block of that name is a list of one.
var pluralFields = []string{"checks", "upstreams", "paths", "envoy_extensions", "EnvoyExtensions", "Checks",
	"Upstreams", "Paths"}

// plain replaces HCL's repeated blocks by lists and single blocks by objects.
func plain(object map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for name, v := range object {
		out[name] = plainValue(v, slices.Contains(pluralFields, name))
	}
	return out
}

func plainValue(v any, plural bool) any {
	switch v := v.(type) {
	case blocks:
		if len(v) == 1 && !plural {
			return plain(v[0])
		}
		list := make([]any, len(v))
		for i, object := range v {
			list[i] = plain(object)
		}
		return list
	case map[string]any:
		return plain(v)
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = plainValue(item, false)
		}
		return list
	}
	return v
}
