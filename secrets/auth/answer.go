package auth

import (
	"encoding/json"

	"corbel.dev/corbel/secrets"
)

// Data answers with an object.
func Data(v any) (*secrets.Response, error) {
	raw, err := json.Marshal(v)
	return &secrets.Response{Data: raw}, err
}

// KeyInfo answers a list with what is known of each; an empty one is not found.
func KeyInfo(names []string, info map[string]any) (*secrets.Response, error) {
	if len(names) == 0 {
		return nil, ErrNotFound
	}
	return Data(map[string]any{"keys": names, "key_info": info})
}

// Keys answers a list; an empty one is not found.
func Keys(names []string, err error) (*secrets.Response, error) {
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, ErrNotFound
	}
	return Data(map[string][]string{"keys": names})
}
