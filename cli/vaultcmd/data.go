package vaultcmd

import (
	"encoding/json"
	"fmt"
	"strings"

	"corbel.dev/corbel/cli/command"
)

// query reads data as parse does, as the parameters of a request without a body.
func (c *Call) query(args []string) (map[string]string, error) {
	data, err := c.parse(args)
	query := make(map[string]string, len(data))
	for k, v := range data {
		query[k] = PlainText(v)
	}
	return query, err
}

// parse reads the data of a write: key=value, key=@file, key=- (stdin), @file and - (objects in JSON).
// A value that begins with \@ begins with @. A repeated key makes a list.
func (c *Call) parse(args []string) (map[string]any, error) {
	data := map[string]any{}
	for _, a := range args {
		if a == "-" || strings.HasPrefix(a, "@") {
			text, err := c.Input(a)
			if err != nil {
				return nil, fmt.Errorf("Failed to parse K=V data: %w", err)
			}
			dec := json.NewDecoder(strings.NewReader(string(text)))
			dec.UseNumber()
			if err := dec.Decode(&data); err != nil {
				return nil, fmt.Errorf("Failed to parse K=V data: %s must hold an object in JSON: %w", a, err)
			}
			continue
		}
		key, v, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			return nil, command.Usagef("Failed to parse K=V data: invalid key/value pair %q: format must be key=value", a)
		}
		if v == "-" || strings.HasPrefix(v, "@") {
			text, err := c.Input(v)
			if err != nil {
				return nil, fmt.Errorf("Failed to parse K=V data: %s: %w", key, err)
			}
			v = string(text)
		} else if strings.HasPrefix(v, `\@`) {
			v = v[1:]
		}
		add(data, key, v)
	}
	return data, nil
}

func add(data map[string]any, key, v string) {
	switch old := data[key].(type) {
	case nil:
		data[key] = v
	case []any:
		data[key] = append(old, v)
	default:
		data[key] = []any{old, v}
	}
}

// stringMap reads key=value flags into an object of texts.
func stringMap(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	return command.Pairs(flag, list)
}

// Put sets name where the value was given.
func Put(body map[string]any, name, v string) {
	if v != "" {
		body[name] = v
	}
}
