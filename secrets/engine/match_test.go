package engine

import "testing"

// Patterns of special paths: '+' is one segment, '*' at the end is anything, also both of them.
func TestMatches(t *testing.T) {
	for pattern, paths := range map[string]struct{ yes, no []string }{
		"a":       {[]string{"a"}, []string{"a/b", "ab"}},
		"a/*":     {[]string{"a/", "a/b/c"}, []string{"a"}},
		"a/+/c":   {[]string{"a/b/c"}, []string{"a/c", "a//c", "a/b/c/d", "a/b/cd"}},
		"a/+/c*":  {[]string{"a/b/c", "a/b/cde", "a/b/c/d"}, []string{"a/b", "a/b/d", "a//c", "b/b/c"}},
		"a/+/*":   {[]string{"a/b/", "a/b/c/d"}, []string{"a/b", "a/"}},
		"+/+/c/":  {[]string{"a/b/c/"}, []string{"a/b/c", "a/b/c/d"}},
		"a/+b/c*": {[]string{"a/+b/c"}, []string{"a/xb/c"}},
	} {
		for _, path := range paths.yes {
			if !Matches([]string{pattern}, path) {
				t.Errorf("%s does not match %s", pattern, path)
			}
		}
		for _, path := range paths.no {
			if Matches([]string{pattern}, path) {
				t.Errorf("%s matches %s", pattern, path)
			}
		}
	}
}
