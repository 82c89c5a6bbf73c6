// Package exactjson tells keys of a JSON text apart that a decoder does not: encoding/json takes Token for token, and
// also a key with a long s, or the sign for Kelvin. Who hides or keeps what stands under a key goes by its letters, and
// would miss those. It keeps nothing, and may be called from any goroutine.
package exactjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Check refuses a text that is no JSON, or has a key with anything but a to z and underscores. Of keys of maps that may
// be called as anybody likes it knows nothing.
func Check(text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	return exact(v)
}

// Decode is Check, and reads the text then.
func Decode(text []byte, into any) error {
	if err := Check(text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func exact(v any) error {
	var wrong []error
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			wrong = append(wrong, exact(one))
		}
	case map[string]any:
		for key, one := range v {
			if strings.ContainsFunc(key, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
				return fmt.Errorf("the key %q must be in lower-case letters", key)
			}
			wrong = append(wrong, exact(one))
		}
	}
	return errors.Join(wrong...)
}
