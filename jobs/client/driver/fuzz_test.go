package driver

import (
	"encoding/json"
	"testing"
)

// FuzzDecode reads the config of tasks: what is no object of the right kinds is an error.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{}`, `{"command":"x","args":["a"],"labels":[{"a":"b"},{"c":1}]}`,
		`{"labels":{"a":true}}`, `{"labels":[[]]}`, `{"args":"x"}`, `{"more":1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var config map[string]any
		if json.Unmarshal(text, &config) != nil {
			return
		}
		var into struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
			Labels  Pairs    `json:"labels"`
		}
		if err := Decode(config, &into); err != nil {
			return
		}
		for key := range config {
			if Strict([]byte(`{"`+"x-"+key+`":1}`), &into) == nil {
				t.Errorf("the unknown key %q is taken", key)
			}
		}
	})
}
