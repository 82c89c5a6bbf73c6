package catalogplane

import (
	"encoding/json"

	"corbel.dev/corbel/catalog/entry"
)

// PlainConfigEntry brings a config entry to the form in which the API gives it back: durations as
// text, names in the contract's spelling. One that is not valid stays as it is: who writes it is told why.
func PlainConfigEntry(in map[string]any) map[string]any {
	raw, err := json.Marshal(in)
	if err != nil {
		return in
	}
	e, err := entry.Decode(raw)
	if err != nil {
		return in
	}
	if raw, err = entry.Encode(e); err != nil {
		return in
	}
	var out map[string]any
	if json.Unmarshal(raw, &out) != nil {
		return in
	}
	return out
}
