// Package nesting tells how deep a text's brackets go before a parser that
// recurses sees it. It is a pure function: no state, no allocation.
package nesting

// Deeper finds where braces and square brackets outside double quotes nest
// deeper than limit. line is 1 for the first; 0 is nowhere. It suits JSON and HCL: a
// quote ends with its line, and what stands in comments counts, so it may
// find too much and never too little of what a parser would follow.
func Deeper[T string | []byte](text T, limit int) (line int) {
	depth, at, quoted := 0, 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			at++
			quoted = false
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return at
			}
		case c == '}' || c == ']':
			depth = max(depth-1, 0)
		}
	}
	return 0
}
