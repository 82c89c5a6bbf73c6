package pattern

import (
	"regexp"
	"strings"
	"testing"
)

func TestCompile(t *testing.T) {
	for _, expr := range []string{"", "^a", `(?i)^/v1/[a-z]{1,64}/(\d+)$`, `\p{L}+`, strings.Repeat("word|", 1000),
		"x{1000}"} {
		re, err := Compile(expr)
		if err != nil || re.String() != expr {
			t.Errorf("%.40q: %v, %v", expr, re, err)
		}
	}
	for expr, want := range map[string]string{
		"(":                              "error parsing regexp: missing closing )",
		"a**":                            "invalid nested repetition operator: `**`",
		strings.Repeat("(", MaxBytes+1):  "has 8193 bytes",
		strings.Repeat("(a{1,1000})", 3): "", // fits
		strings.Repeat("(a{1,999})", 50): "repeat less",
		strings.Repeat(`\pL{1,100}`, 20): "repeat less",
	} {
		if _, err := Compile(expr); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", expr, err, want)
		}
	}
}

// FuzzCompile holds it against the standard library: it takes nothing more, and what it takes means the same.
func FuzzCompile(f *testing.F) {
	for _, expr := range []string{"", "a", "(a|b){3}", "(", `\pL{1,100}`, "(a{1,1000}){1,1000}", "[[:alpha:]]+?$"} {
		f.Add(expr, "abc")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		re, err := Compile(expr)
		if err != nil {
			return
		}
		if other, err := regexp.Compile(expr); err != nil || other.MatchString(text) != re.MatchString(text) {
			t.Fatalf("%q: %v", expr, err)
		}
	})
}
