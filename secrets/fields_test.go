package secrets

import (
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func TestFields(t *testing.T) {
	f, err :=
		ParseFields(
			[]byte(
				`{"n": "12", "m": 7, "e": 1e3, "b": "true", "c": true, "one": 1, "d": "1h30m", "s": 90, "days": "2d", "list": "a, b,,c", "items": ["x", 1],
		"texts": {"a": "b", "n": 3}, "quoted": "{\"a\":\"b\"}", "null": null, "empty": "", "bigd": "1.5"}`))
	if err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"numbers": f.Int("n", 0) == 12 && f.Int("m", 0) == 7 && f.Int("e", 0) == 1000 && f.Int("none", 5) == 5 &&
			f.Int("null", 6) == 6,
		"booleans": f.Bool("b", false) && f.Bool("c", false) && f.Bool("one", false) && f.Bool("none", true),
		"durations": f.Duration("d", 0) == 90*time.Minute && f.Duration("s", 0) == 90*time.Second &&
			f.Duration("days", 0) == 48*time.Hour && f.Duration("empty", time.Second) == time.Second &&
			f.Duration("bigd", 0) == 1500*time.Millisecond,
		"lists": slices.Equal(f.Strings("list"), []string{"a", "b", "c"}) &&
			slices.Equal(f.Strings("items"), []string{"x", "1"}) && f.Strings("none") == nil,
		"texts":    f.Texts("texts")["n"] == "3" && f.Texts("quoted")["a"] == "b" && f.Texts("none") == nil,
		"strings":  f.String("m") == "7" && f.String("c") == "true" && f.String("null") == "",
		"presence": f.Has("null") && !f.Has("none"),
	} {
		if !ok {
			t.Errorf("%s are read wrongly", what)
		}
	}
	if err := f.Err(); err != nil {
		t.Errorf("good fields are refused: %v", err)
	}
}

func TestFieldsOfAWrongKind(t *testing.T) {
	for name, read := range map[string]func(*Fields){
		"a string": func(f *Fields) { f.String("x") }, "true or false": func(f *Fields) { f.Bool("x", false) },
		"a whole number": func(f *Fields) { f.Int("x", 0) },
		"a duration":     func(f *Fields) { f.Duration("x", 0) }, "a list of strings": func(f *Fields) { f.Strings("x") },
		"an object of strings": func(f *Fields) { f.Texts("x") },
	} {
		f, err := ParseFields([]byte(`{"x": [[1], {"a": [2]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		read(&f)
		if err := f.Err(); !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), `field "x": must be `+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseFieldsRefuses(t *testing.T) {
	for _, body := range []string{`[]`, `{`, `{} x`, `"x"`, strings.Repeat(`{"a":`, 100), "\xff"} {
		if _, err := ParseFields([]byte(body)); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%.20q: %v", body, err)
		}
	}
	for _, body := range []string{"", " \n", "null", "{}"} {
		if f, err := ParseFields([]byte(body)); err != nil || f.Len() != 0 {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add([]byte(`{"x": "1h"}`))
	f.Add([]byte(`{"x": {"y": [null]}}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		fields, err := ParseFields(body)
		if err != nil {
			return
		}
		for _, name := range fields.Names() {
			fields.String(name)
			fields.Int(name, 0)
			fields.Duration(name, 0)
			fields.Bool(name, false)
			fields.Strings(name)
			fields.Texts(name)
		}
	})
}
