package monitor

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestEventID(t *testing.T) {
	var id ID
	for text, ok := range map[string]bool{
		`"00112233-4455-6677-8899-aabbccddeeff"`: true, `""`: true, `null`: true,
		`"00000000-0000-0000-0000-000000000000"`: true, `"0011"`: false, `7`: false,
	} {
		if err := json.Unmarshal([]byte(text), &id); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	if b, err := json.Marshal(ID(bytes.Repeat([]byte{0xab}, 16))); err != nil ||
		string(b) != `"abababab-abab-abab-abab-abababababab"` {
		t.Error(string(b), err)
	}
}

func TestEntityJSONHidesSecrets(t *testing.T) {
	e := &Entity{Meta: Meta{Name: "web-1"}}
	e.Labels = map[string]string{"API-Key": "s3cret", "region": "eu"}
	b, err := json.Marshal(&Event{Entity: e})
	if err != nil || bytes.Contains(b, []byte("s3cret")) || !bytes.Contains(b, []byte(`"API-Key":"REDACTED"`)) ||
		e.Labels["API-Key"] != "s3cret" {
		t.Fatalf("%v: %s", err, b)
	}
	e.Redact = []string{"region"}
	if b, err = json.Marshal(e); err != nil || !bytes.Contains(b, []byte("s3cret")) || bytes.Contains(b, []byte(`"eu"`)) {
		t.Fatalf("an entity's own list: %v: %s", err, b)
	}
}
