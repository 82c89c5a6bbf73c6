// Package nearest finds what somebody meant who mistyped a name.
//
// It is pure. A name is near when few letters differ: at most one in three, and never more than three. Swapped
// neighbours count as one.
package nearest

import (
	"iter"
	"strings"
)

// maxName bounds the names that are compared: longer ones are data, not typing mistakes.
const maxName = 64

// To gives the known name that is nearest to wrong, the first of equals; "" when none is near.
func To(wrong string, known iter.Seq[string]) string {
	wrong = strings.ToLower(wrong)
	if len(wrong) > maxName {
		return ""
	}
	best, limit := "", min(max(len(wrong)/3, 1), 3)
	for name := range known {
		if len(name) > maxName || max(len(name)-len(wrong), len(wrong)-len(name)) > limit {
			continue
		}
		if d := distance(wrong, strings.ToLower(name)); d <= limit && (best == "" || d < limit) {
			best, limit = name, d
		}
	}
	return best
}

// Hint is the end of a sentence that says what was wrong: "; did you mean NAME?", or nothing.
func Hint(wrong string, known iter.Seq[string]) string {
	if name := To(wrong, known); name != "" {
		return "; did you mean " + name + "?"
	}
	return ""
}

// distance counts the letters that were added, left out, changed or swapped with their neighbour.
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
