package exactjson

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	var got struct {
		List []struct{ Token string }
	}
	if err := Decode([]byte(`{"list":[{"token":"A b"}]}`), &got); err != nil || len(got.List) != 1 ||
		got.List[0].Token != "A b" {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		`{"list":[{"Token":"x"}]}`:                  `"Token" must be in lower-case`,
		`{"list":[{"token":"x"},{"to\u212aen":1}]}`: "must be in lower-case",
		`{"li\u017ft":[]}`:                          "must be in lower-case",
		`{`:                                         "JSON",
		`{"list":[{"token":1}]}`:                    "cannot unmarshal",
	} {
		if err := Decode([]byte(text), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", text, err, want)
		}
	}
}
