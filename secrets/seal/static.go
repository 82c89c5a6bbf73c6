package seal

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Static is a seal by a key of 32 bytes that the host keeps beside the server: in a file of another disk, or in what
// starts the process. Whoever has the key and the storage has everything.
type Static struct {
	currentID, previousID string
	current, previous     []byte
}

// staticVersion is the first byte of what Wrap gives; then the key's id with its length before it; then the rest.
const staticVersion = 1

const staticName = "corbel static seal"

// NewStatic makes one. previousID and previous, which may be empty, open what was sealed before the key was changed.
func NewStatic(currentID string, current []byte, previousID string, previous []byte) (*Static, error) {
	s := &Static{currentID, previousID, current, previous}
	switch {
	case currentID == "" || len(currentID) > 255:
		return nil, errors.New("current_key_id: must have 1 to 255 characters")
	case len(current) != 32:
		return nil, fmt.Errorf("current_key: has %d bytes, must have 32", len(current))
	case (previousID == "") != (len(previous) == 0):
		return nil, errors.New("previous_key_id, previous_key: come together")
	case previousID != "" && len(previous) != 32:
		return nil, fmt.Errorf("previous_key: has %d bytes, must have 32", len(previous))
	case previousID == currentID:
		return nil, errors.New("previous_key_id: must not be current_key_id")
	}
	return s, nil
}

// Type implements Auto.
func (s *Static) Type() string { return "static" }

// Wrap implements Auto.
func (s *Static) Wrap(_ context.Context, plain []byte) ([]byte, error) {
	body, err := Wrap(s.current, plain, staticName)
	if err != nil {
		return nil, err
	}
	head := append([]byte{staticVersion, byte(len(s.currentID))}, s.currentID...)
	return append(head, body...), nil
}

func splitStatic(wrapped []byte) (id string, body []byte, ok bool) {
	if len(wrapped) < 2 || wrapped[0] != staticVersion || len(wrapped) < 2+int(wrapped[1]) {
		return "", nil, false
	}
	n := 2 + int(wrapped[1])
	return string(wrapped[2:n]), wrapped[n:], true
}

// Unwrap implements Auto.
func (s *Static) Unwrap(_ context.Context, wrapped []byte) ([]byte, error) {
	id, body, ok := splitStatic(wrapped)
	switch {
	case !ok:
		return nil, errors.New("the stored root key was not sealed by a static key")
	case id == s.currentID:
		return Unwrap(s.current, body, staticName)
	case id == s.previousID && id != "":
		return Unwrap(s.previous, body, staticName)
	}
	return nil, fmt.Errorf("the root key is sealed with the static key %q: give it as previous_key", id)
}

// Stale reports whether something was wrapped by the previous key.
func (s *Static) Stale(wrapped []byte) bool {
	id, _, ok := splitStatic(wrapped)
	return ok && id != s.currentID
}

// ParseKey reads a key as configurations give it: env://NAME, file:///PATH, or the key itself; hexadecimal, base64,
// or 32 raw bytes.
func ParseKey(text string, getenv func(string) string) ([]byte, error) {
	if name, ok := strings.CutPrefix(text, "env://"); ok {
		if text = getenv(name); text == "" {
			return nil, fmt.Errorf("the variable %s is not set", name)
		}
	} else if path, ok := strings.CutPrefix(text, "file://"); ok {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if len(raw) == 32 {
			return raw, nil
		}
		text = string(raw)
	}
	text = strings.TrimSpace(text)
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == 32 {
		return raw, nil
	}
	for _, form := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding} {
		if raw, err := form.DecodeString(text); err == nil && len(raw) == 32 {
			return raw, nil
		}
	}
	if len(text) == 32 {
		return []byte(text), nil
	}
	return nil, errors.New("is no key of 32 bytes in hexadecimal or base64")
}
