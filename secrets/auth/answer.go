package auth

import (
	"encoding/json"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// Data answers with an object.
func Data(v any) (*secrets.Response, error) {
	raw, err := json.Marshal(v)
	return &secrets.Response{Data: raw}, err
}

// Keys answers a list; an empty one is not found.
func Keys(names []string, err error) (*secrets.Response, error) {
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return Data(map[string][]string{"keys": names})
}
