package cloudevents

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestPaths: what a path leads to, and what it does not.
func TestPaths(t *testing.T) {
	paths := Paths{}
	for _, path := range []string{"a", "b.c", "b.d.e", "a.x"} {
		paths.Add(path)
	}
	for data, want := range map[string]string{
		`{"a":1,"b":{"c":"x\u00e9","d":{"e":true}}}`: "[{a 1} {b.c xé} {b.d.e true}]",
		`{"b.c":"flat","b":{"d.e":1}}`:               "[]", // a dot in a name leads nowhere
		`{"a":{"x":2},"b":[{"c":1}]}`:                "[{a.x 2}]",
		`{"a":null,"b":{"c":null,"d":{"e":[]}}}`:     "[]",
		`{"b":{"c":1},"a":5,"b":{"d":{"e":2}}}`:      "[{a 5} {b.d.e 2}]", // the last b is the one that counts
		`{"a":{"x":2},"a":1}`:                        "[{a 1}]",
		`[{"a":1}]`:                                  "[]", `"a"`: "[]", ``: "[]",
	} {
		if got := fmt.Sprint(paths.Of(data)); got != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
	}
}

// TestData: an event keeps its data as they came, in each form.
func TestData(t *testing.T) {
	nested := `{"a":{"b":1}}`
	one := `{"specversion":"1.0","id":"1","source":"s","type":"p","data":` + nested + `}`
	items, err := Decode(Structured, []byte(one), nil)
	if err != nil || len(items) != 1 || items[0].Data != nested {
		t.Errorf("%+v, %v", items, err)
	}
	items, err = Decode(Batched, []byte(`[{"specversion":"1.0","id":"1","source":"s","type":"p",`+
		`"data_base64":"eyJhIjp7ImIiOjF9fQ=="}]`), nil)
	if err != nil || len(items) != 1 || items[0].Data != nested {
		t.Errorf("%+v, %v", items, err)
	}
	header := map[string]string{"Ce-Specversion": "1.0", "Ce-Id": "1", "Ce-Source": "s", "Ce-Type": "p"}
	item, _ := DecodeBinary(func(name string) string { return header[name] }, []byte(nested), nil)
	if item.Data != nested {
		t.Errorf("%+v", item)
	}
}

// FuzzPaths: a path leads to what encoding/json finds there.
func FuzzPaths(f *testing.F) {
	f.Add(`{"a":{"b":"x"},"c":1}`)
	f.Add(`{"a":{"b":[]},"a":{"b":true}}`)
	f.Fuzz(func(t *testing.T, data string) {
		var all map[string]any
		s := scanner{text: data} // which steps over the data of each event
		if _, err := s.value(maxDepth); err != nil || json.Unmarshal([]byte(data), &all) != nil {
			return
		}
		paths := Paths{}
		paths.Add("a.b")
		found := paths.Of(data)
		inner, _ := all["a"].(map[string]any)
		switch v := inner["b"].(type) {
		case string, bool, float64:
			if len(found) != 1 {
				t.Errorf("%s: %v, encoding/json finds %v", data, found, v)
			}
		}
	})
}
