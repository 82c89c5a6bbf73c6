package engine

import (
	"strings"
)

// Matches reports whether a path is one of a list, in the patterns of Special.
func Matches(patterns []string, path string) bool {
	for _, p := range patterns {
		if prefix, is := strings.CutSuffix(p, "*"); (is && strings.HasPrefix(path, prefix)) || p == path ||
			bySegments(p, path) {
			return true
		}
	}
	return false
}

// bySegments compares a pattern with '+' in it. A last segment that ends in '*' is how the rest begins.
func bySegments(p, path string) bool {
	if !strings.Contains(p, "+") {
		return false
	}
	for {
		if prefix, is := strings.CutSuffix(p, "*"); is && !strings.Contains(prefix, "/") {
			return strings.HasPrefix(path, prefix)
		}
		want, p2, more := strings.Cut(p, "/")
		got, path2, more2 := strings.Cut(path, "/")
		if more != more2 || want != got && (want != "+" || got == "") {
			return false
		}
		if !more {
			return true
		}
		p, path = p2, path2
	}
}
