// Package mergepatch applies JSON merge patches (RFC 7396).
package mergepatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Apply applies a JSON merge patch (RFC 7396) to v, and returns JSON.
func Apply(v any, change []byte) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	target, err := decodeAny(b)
	if err != nil {
		return nil, err
	}
	patch, err := decodeAny(change)
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	object, ok := patch.(map[string]any)
	if !ok {
		return nil, errors.New("patch: it is not a JSON object")
	}
	return json.Marshal(merge(target, object))
}

// decodeAny reads JSON; numbers stay as they are written.
func decodeAny(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("there is more than one JSON value")
	}
	return v, nil
}

func merge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, ok := target.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for name, change := range changes {
		if change == nil {
			delete(out, name)
			continue
		}
		out[name] = merge(out[name], change)
	}
	return out
}
