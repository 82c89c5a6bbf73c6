package definition

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
)

type dur = time.Duration

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func wrong(path, want string, v any) error {
	return fmt.Errorf("%s: expected %s, got %T", path, want, v)
}

// readString also takes numbers and booleans: files often leave quotes out.
func readString(path string, v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case json.Number:
		return x.String(), nil
	case bool:
		return strconv.FormatBool(x), nil
	case int:
		return strconv.Itoa(x), nil
	case int64:
		return strconv.FormatInt(x, 10), nil
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64), nil
	}
	return "", wrong(path, "a string", v)
}

func readBool(path string, v any) (bool, error) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case string:
		if b, err := strconv.ParseBool(x); err == nil {
			return b, nil
		}
	}
	return false, wrong(path, "true or false", v)
}

func readBoolPtr(path string, v any) (*bool, error) {
	b, err := readBool(path, v)
	return &b, err
}

// readInt takes whole numbers in any spelling, also as strings.
func readInt(path string, v any) (int, error) {
	switch x := v.(type) {
	case int:
		return x, nil
	case int64:
		return int(x), nil
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return int(x), nil
		}
	case json.Number:
		return parseInt(path, x.String())
	case string:
		return parseInt(path, x)
	}
	return 0, wrong(path, "a whole number", v)
}

func parseInt(path, s string) (int, error) {
	if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
		return n, nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int(f), nil
	}
	return 0, fmt.Errorf("%s: %q is not a whole number", path, s)
}

// readDuration takes a Go duration string or a number of nanoseconds.
func readDuration(path string, v any) (time.Duration, error) {
	if s, ok := v.(string); ok {
		if s == "" {
			return 0, nil
		}
		if d, err := time.ParseDuration(s); err == nil {
			return d, nil
		}
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return time.Duration(n), nil
		}
		return 0, fmt.Errorf("%s: time: invalid duration %q", path, s)
	}
	n, err := readInt(path, v)
	return time.Duration(n), err
}

// readObject takes an object, also as HCL's list with one block.
func readObject(path string, v any) (map[string]any, error) {
	objects, err := objectList(path, v)
	if err != nil {
		return nil, err
	}
	if len(objects) == 1 {
		return objects[0], nil
	}
	if len(objects) == 0 {
		return map[string]any{}, nil
	}
	// HCL gives one object per block; blocks of one key complete each other.
	merged := map[string]any{}
	for _, o := range objects {
		for k, x := range o {
			merged[k] = x
		}
	}
	return merged, nil
}

// objectList takes one object or a list of them.
func objectList(path string, v any) ([]map[string]any, error) {
	switch x := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return []map[string]any{x}, nil
	case []map[string]any:
		return x, nil
	case []any:
		all := make([]map[string]any, 0, len(x))
		for i, e := range x {
			inner, err := objectList(fmt.Sprintf("%s[%d]", path, i), e)
			if err != nil {
				return nil, err
			}
			all = append(all, inner...)
		}
		return all, nil
	}
	return nil, wrong(path, "an object", v)
}

// readStrings takes a list, or one string as a list of one.
func readStrings(path string, v any) ([]string, error) {
	switch x := v.(type) {
	case []string:
		return x, nil
	case []any:
		all := make([]string, len(x))
		for i, e := range x {
			s, err := readString(fmt.Sprintf("%s[%d]", path, i), e)
			if err != nil {
				return nil, err
			}
			all[i] = s
		}
		return all, nil
	case string:
		return []string{x}, nil
	}
	return nil, wrong(path, "a list of strings", v)
}

func readStringMap(path string, v any) (map[string]string, error) {
	m, err := readObject(path, v)
	if err != nil || len(m) == 0 {
		return nil, err
	}
	out := make(map[string]string, len(m))
	for _, k := range sortedKeys(m) {
		if m[k] == nil {
			out[k] = ""
			continue
		}
		if out[k], err = readString(join(path, k), m[k]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func readHeader(path string, v any) (map[string][]string, error) {
	m, err := readObject(path, v)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]string, len(m))
	for _, k := range sortedKeys(m) {
		if out[k], err = readStrings(join(path, k), m[k]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func readAddresses(path string, v any) (map[string]catalog.ServiceAddress, error) {
	m, err := readObject(path, v)
	if err != nil || len(m) == 0 {
		return nil, err
	}
	out := make(map[string]catalog.ServiceAddress, len(m))
	for _, k := range sortedKeys(m) {
		inner, err := readObject(join(path, k), m[k])
		if err != nil {
			return nil, err
		}
		var a catalog.ServiceAddress
		if err := object(decoder{}, &a, join(path, k), inner, addressFields); err != nil {
			return nil, err
		}
		out[k] = a
	}
	return out, nil
}

var addressFields = map[string]setter[catalog.ServiceAddress]{
	"address": field(readString, func(a *catalog.ServiceAddress) *string { return &a.Address }),
	"port":    field(readInt, func(a *catalog.ServiceAddress) *int { return &a.Port }),
}

func readWeights(path string, v any) (*catalog.Weights, error) {
	m, err := readObject(path, v)
	if err != nil {
		return nil, err
	}
	w := &catalog.Weights{Passing: 1, Warning: 1}
	return w, object(decoder{}, w, path, m, map[string]setter[catalog.Weights]{
		"passing": field(readInt, func(w *catalog.Weights) *int { return &w.Passing }),
		"warning": field(readInt, func(w *catalog.Weights) *int { return &w.Warning }),
	})
}

func readLocality(path string, v any) (*catalog.Locality, error) {
	m, err := readObject(path, v)
	if err != nil {
		return nil, err
	}
	l := &catalog.Locality{}
	return l, object(decoder{}, l, path, m, map[string]setter[catalog.Locality]{
		"region": field(readString, func(l *catalog.Locality) *string { return &l.Region }),
		"zone":   field(readString, func(l *catalog.Locality) *string { return &l.Zone }),
	})
}
