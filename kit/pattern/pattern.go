// Package pattern compiles regular expressions that come from outside.
//
// Go's own matching is linear in the text, but not in the expression: `(x{1,1000}){1,...}` of a few
// bytes becomes a program of many megabytes before the first match. What Compile
// takes costs at most some hundred kilobytes and a millisecond; it may be called from any goroutine.
package pattern

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

// The bounds are far above what people write: routes and filters have tens of bytes.
const (
	// MaxBytes is how long an expression may be.
	MaxBytes = 8 << 10
	// MaxSize is how many steps it may have once its repetitions are written out.
	MaxSize = 10_000
)

// Compile is regexp.Compile for expressions that nobody vouches for.
func Compile(expr string) (*regexp.Regexp, error) {
	if len(expr) > MaxBytes {
		return nil, fmt.Errorf("the regular expression has %d bytes, the most is %d", len(expr), MaxBytes)
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("error parsing regexp: %w", unwrapped(err))
	}
	if size(tree) > MaxSize {
		return nil, fmt.Errorf("the regular expression has more than %d steps once its repetitions are written out: "+
			"repeat less", MaxSize)
	}
	return regexp.Compile(expr)
}

// unwrapped avoids saying the same twice: the parser's own error begins with these words.
func unwrapped(err error) error {
	if e, ok := err.(*syntax.Error); ok {
		return fmt.Errorf("%s: `%s`", e.Code, e.Expr)
	}
	return err
}

// size counts the steps of a tree, and stops soon after the bound.
func size(tree *syntax.Regexp) int {
	n := 1 + len(tree.Rune)
	for _, sub := range tree.Sub {
		if n += size(sub); n > MaxSize {
			return n
		}
	}
	if tree.Op == syntax.OpRepeat {
		n *= max(tree.Min, tree.Max, 1)
	}
	return n
}
