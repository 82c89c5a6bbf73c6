// Package filter compiles and evaluates filter expressions, the contract's
// `filter=` language, over catalog objects.
//
//	expression = and { "or" and }        and   = not { "and" not }
//	not        = "not" not | "(" expression ")" | match
//	match      = selector ( "==" | "!=" | contains | not contains | matches | not matches ) value
//	           | selector "is" [ "not" ] "empty"
//	           | value [ "not" ] "in" selector
//	quantifier = ( "any" | "all" ) selector "as" names "{" expression "}"
//
// A selector is names joined by dots, with ["any key"] for other names, or a JSON pointer
// in double quotes: "/Meta/any-key". A quantifier stands alone in an expression or as the
// last operand of "or"; names is x (an element of a list, a key of a map) or k, v (either may be _).
//
// Invariants:
//   - A Filter is immutable and safe for concurrent use; Match is pure.
//   - Selectors, operators and values are checked against the Schema when a
//     filter is compiled, so that a wrong expression is refused whatever the catalog holds.
//   - Text and nesting are bounded (MaxBytes, MaxDepth, MaxTerms); regular
//     expressions are RE2, so that Match is linear in the object.
package filter
