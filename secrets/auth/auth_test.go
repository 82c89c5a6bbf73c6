package auth

import (
	"regexp"
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	pieces := []string{"", "a", "b", "ab", "*", "a*", "*b", "a*b", "**", "*a*", "ab*a"}
	for _, one := range pieces {
		for _, two := range pieces {
			pattern := one + two
			model := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
			for _, text := range []string{"", "a", "b", "ab", "ba", "aab", "abab", "abba", "bbaa"} {
				if got := Glob(pattern, text); got != model.MatchString(text) {
					t.Errorf("Glob(%q, %q) = %t", pattern, text, got)
				}
			}
		}
	}
}
