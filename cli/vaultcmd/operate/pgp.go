package operate

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/pgp"
)

// pgpKey reads a public key for a flag: a file, with or without '@' before its name, that is armoured, in base64 or
// binary.
func pgpKey(flag, name string) (string, error) {
	name = strings.TrimSpace(name)
	if strings.HasPrefix(name, "keybase:") {
		return "", command.Usagef("-%s: keys are not asked of Keybase: export the key of %q to a file", flag,
			strings.TrimPrefix(name, "keybase:"))
	}
	text, err := os.ReadFile(strings.TrimPrefix(name, "@"))
	if err != nil {
		return "", fmt.Errorf("-%s: %w", flag, err)
	}
	raw, err := pgp.Binary(text)
	if err != nil {
		return "", fmt.Errorf("-%s: %s %w", flag, name, err)
	}
	out := base64.StdEncoding.EncodeToString(raw)
	if _, err := pgp.Parse(out); err != nil {
		return "", fmt.Errorf("-%s: %s %w", flag, name, err)
	}
	return out, nil
}

// putPGP puts the keys of a flag into a body.
func putPGP(body map[string]any, field, flag string, names []string) error {
	var keys []string
	for _, name := range names {
		key, err := pgpKey(flag, name)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		body[field] = keys
	}
	return nil
}

// putOnePGP is putPGP of a field that takes one key.
func putOnePGP(body map[string]any, field, flag, name string) error {
	if name == "" {
		return nil
	}
	key, err := pgpKey(flag, name)
	body[field] = key
	return err
}
