package record

import (
	"encoding/json"

	"corbel.dev/corbel/kit/errkind"
)

// ReadJSON reads a record of JSON.
func ReadJSON[T any](raw []byte) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "a record is not what was stored")
	}
	return v, nil
}
